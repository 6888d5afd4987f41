//! The undo of a loser beside transactions meets a full disk or a damaged page. It stops before that change and tries
//! it again. Meanwhile nothing waits for it.

use crate::restart::{
    FILLER, ROWS, full_while, is_shrunk, verify_ended, without_a_page_and_with_a_loser,
    without_a_page_and_with_a_loser_and,
};
use crate::script::{disk, options};
use crate::support::DIR;
use foreshore::{Db, DoublewriteKind, Error, Isolation, Options, TableDef, TxnOptions};
use foreshore_io::Sim;
use foreshore_io::sim::Persist;
use foreshore_sync::pause;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const OTHERS: TableDef<u64, &[u8]> = TableDef::new("others");
const COUNT: u64 = 300;

/// Losers are undone beside new transactions, however few changes there are.
fn waiting(options: Options) -> Options {
    options.lab(|lab| lab.undo_waits_from = Some(0))
}

fn lazy(sim: &Sim) -> Options {
    waiting(options(sim).memory_limit(32 << 20))
}

fn full(sim: &Sim) -> Options {
    waiting(full_while(sim, &Arc::new(AtomicBool::new(true))))
}

fn left(db: &Db) -> u64 {
    db.stats().recovery.pending_losers
}

fn put(db: &Db, key: u64, value: &[u8]) {
    db.run(|tx| tx.open(OTHERS)?.insert(key, value).map(drop)).unwrap();
}

/// Whether the loser of a full disk has changed a row.
fn is_changed(key: u64) -> bool {
    let n = key / 10;
    match key % 10 {
        0 => n.is_multiple_of(10) || is_shrunk(n),
        _ => key % 10 == 3 && is_shrunk(n),
    }
}

/// The undo of a row needs a page, and the disk has none. It stops there, and rows of the loser are refused until there
/// is one, or until the next start.
#[test]
fn rows_of_a_loser_that_finds_no_page_are_refused_until_there_is_one() {
    let (image, rows) = without_a_page_and_with_a_loser();
    let db = full(&image).open(DIR).unwrap();
    assert_eq!(left(&db), 1);
    let is_refused = |key: &u64| match db.read().open(ROWS).unwrap().get(*key) {
        Ok(found) => {
            assert_eq!(found.as_ref(), rows.get(key), "row {key}");
            false
        }
        Err(Error::RollbackParked { label: "rollback at restart", cause }) => {
            assert!(matches!(*cause, Error::DiskFull { .. }), "{cause:?}");
            let found = db.begin().open(ROWS).unwrap().get_for_update(*key);
            assert!(matches!(found, Err(Error::RollbackParked { .. })), "{found:?}");
            true
        }
        Err(error) => panic!("row {key}: {error:?}"),
    };
    let refused: Vec<u64> = rows.keys().copied().filter(is_refused).collect();
    assert!((1..=280).contains(&refused.len()), "{refused:?}");
    assert!(refused.iter().all(|key| is_changed(*key)), "{refused:?}");
    let stats = db.stats();
    assert_eq!((left(&db), stats.recovery.parked, stats.txn.parked), (1, 1, 0));
    let undone = stats.recovery.undone;
    let oldest = stats.oldest_transaction.unwrap();
    assert!(oldest.label == "rollback at restart" && oldest.log_bytes > 100_000, "it keeps the log: {oldest:?}");
    assert!(!is_changed(50));
    db.run(|tx| tx.open(ROWS)?.insert(50, &rows[&50][..]).map(drop)).unwrap();
    let tx = db.begin_with(hasty());
    assert!(matches!(tx.drop_table(ROWS.name()), Err(Error::LockTimeout { .. })), "its table is held");
    tx.rollback().unwrap();
    db.checkpoint().unwrap();
    // The next start is as ever.
    let again = image_after(&db, &image);
    let again = lazy(&again).open(DIR).unwrap();
    assert_eq!((left(&again), again.stats().recovery.losers), (0, 1), "an earlier restart has left it");
    (0..5).for_each(|_| again.step());
    assert_eq!(again.stats().txn.parked, 0);
    verify_ended(&again, &rows);
    // So is this one when there are pages.
    db.run(|tx| tx.drop_table(FILLER.name()).map(drop)).unwrap();
    (0..1000).take_while(|_| left(&db) > 0).for_each(|_| db.step());
    assert_eq!((left(&db), db.stats().recovery.parked), (0, 0));
    assert!(db.stats().recovery.undone > undone);
    verify_ended(&db, &rows);
    db.close(Duration::ZERO).unwrap();
    assert!(lazy(&image).open(DIR).unwrap().stats().recovery.was_clean);
}

fn hasty() -> TxnOptions {
    TxnOptions::new().isolation(Isolation::Serializable).lock_timeout(Duration::from_millis(20))
}

/// What keeps the undo from a page passes soon. Nothing is refused for that.
#[test]
fn a_failure_that_passes_refuses_nothing() {
    let (image, rows) = without_a_page_and_with_a_loser();
    let is_full = Arc::new(AtomicBool::new(true));
    let db = waiting(full_while(&image, &is_full)).open(DIR).unwrap();
    let mut failures = 0;
    pause::set("restart: a try of the undo has failed", move || {
        failures += 1;
        is_full.store(failures < 2, Ordering::Relaxed);
    });
    assert_eq!(left(&db), 1);
    let undone = |db: &Db| db.stats().recovery.undone;
    assert_eq!(undone(&db), 0);
    assert_eq!(db.read().open(ROWS).unwrap().get(0).unwrap().as_ref(), rows.get(&0));
    pause::set("nowhere", || ());
    assert_eq!((left(&db), db.stats().recovery.parked), (0, 0));
    verify_ended(&db, &rows);
}

#[test]
fn a_close_tries_again_what_has_failed_for_a_moment() {
    let (image, rows) = without_a_page_and_with_a_loser();
    let is_full = Arc::new(AtomicBool::new(true));
    let db = waiting(full_while(&image, &is_full)).open(DIR).unwrap();
    let (fails, failures) = (Rc::new(RefCell::new(0)), 2);
    let counted = Rc::clone(&fails);
    pause::set("restart: a try of the undo has failed", move || {
        *counted.borrow_mut() += 1;
        is_full.store(*counted.borrow() < failures, Ordering::Relaxed);
    });
    db.close(Duration::from_secs(600)).unwrap();
    pause::set("nowhere", || ());
    assert_eq!(*fails.borrow(), failures);
    let db = lazy(&image).open(DIR).unwrap();
    assert!(db.stats().recovery.was_clean);
    verify_ended(&db, &rows);
}

/// A transaction that the log does not know has locked a row of the catalogue. So the open waits for the loser, and its
/// undo is stuck.
#[test]
fn an_open_that_waits_for_a_stuck_undo_undoes_first() {
    let image = Rc::new(RefCell::new(None));
    let (_, rows) = without_a_page_and_with_a_loser_and(|db, sim| {
        let next = |db: &Db| db.run(|tx| tx.next_id(&tx.open(FILLER)?)).unwrap();
        next(db);
        let (within, sim, taken) = (db.clone(), sim.clone(), Rc::clone(&image));
        pause::set("db: a sequence is locked", move || {
            (0..100).for_each(|_| within.step());
            *taken.borrow_mut() = Some(sim.crash_image(&Persist::All, 1));
        });
        assert!((0..2000).all(|_| next(db) > 0));
        pause::set("nowhere", || ());
    });
    let image = image.take().unwrap();
    let db = full(&image).open(DIR).unwrap();
    let stats = db.stats();
    assert_eq!((left(&db), stats.recovery.parked, stats.txn.parked), (0, 1, 1), "{:?}", stats.recovery);
    db.run(|tx| tx.drop_table(FILLER.name()).map(drop)).unwrap();
    (0..1000).take_while(|_| db.stats().txn.parked > 0).for_each(|_| db.step());
    verify_ended(&db, &rows);
}

fn image_after(db: &Db, sim: &Sim) -> Sim {
    db.sync().unwrap();
    sim.crash_image(&Persist::None, 1)
}

/// The undo meets a damaged page that redo did not need. It is stuck, and the next restart quarantines the page.
#[test]
fn rows_of_a_loser_on_a_damaged_page_wait_for_the_next_restart() {
    let sim = disk(11);
    // No image restores a page.
    let db = options(&sim).memory_limit(32 << 20).doublewrite(DoublewriteKind::Off).open(DIR).unwrap();
    (0..COUNT).for_each(|key| put(&db, key, &[1; 300]));
    let loser = db.begin();
    (0..COUNT).for_each(|key| drop(loser.open(OTHERS).unwrap().insert(key, &[2; 300][..]).unwrap()));
    db.checkpoint().unwrap();
    put(&db, COUNT, &[1; 300]);
    let image = sim.kill();
    let data = std::path::Path::new(DIR).join("data");
    let pages = image.contents(&data).unwrap().len() / 8192;
    let mut parked = 0;
    for page in 6..pages {
        let image = image.fork();
        image.flip(&data, (page * 8192 + 200) as u64, 0x40).unwrap();
        let Ok(db) = lazy(&image).open(DIR) else { continue };
        if left(&db) == 0 {
            continue;
        }
        // Counts the rows that cannot be read because of the page, and those that are refused.
        let found = |db: &Db| {
            let get = |key| db.read().open(OTHERS).and_then(|table| table.get(key));
            let (mut lost, mut refused) = (0, 0);
            for row in (0..COUNT).map(get) {
                match row {
                    Ok(row) => assert_eq!(row.as_deref(), Some(&[1; 300][..]), "page {page}"),
                    Err(Error::Corrupted { .. }) => lost += 1,
                    Err(Error::RollbackParked { cause, .. }) => {
                        assert!(matches!(*cause, Error::Corrupted { .. }), "page {page}: {cause:?}");
                        refused += 1;
                    }
                    Err(error) => panic!("page {page}: {error:?}"),
                }
            }
            (lost, refused)
        };
        let (lost, refused) = found(&db);
        assert!(lost > 0 || refused == 0, "page {page}: {refused} rows are refused");
        let stats = db.stats();
        assert_eq!((left(&db), stats.recovery.parked), (u64::from(lost > 0), u64::from(lost > 0)), "page {page}");
        parked += stats.recovery.parked;
        let again = lazy(&image.kill()).open(DIR).unwrap();
        assert_eq!((found(&again), again.stats().txn.parked, left(&again)), ((lost, 0), 0, 0), "page {page}");
    }
    assert!(parked > 3, "{parked} pages with rows of the loser");
}
