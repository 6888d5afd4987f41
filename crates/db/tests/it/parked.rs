//! Rollbacks on a full disk have their log. One that finds no page is parked, harms no other transaction and continues
//! when there is space. Nothing is poisoned.

use crate::script::{disk, options};
use crate::support::{DIR, NUMBERS, POLICIES};
use foreshore::limits::PAGE_SIZE;
use foreshore::{Db, Error, Options, Salvaged, TableDef, Transaction, TxnOptions};
use foreshore_io::Sim;
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_sync::pause;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");
/// Keys of rows that stay lie apart, so that others fit between.
const APART: u64 = 1000;

/// Memory for the undo of large transactions.
fn roomy(sim: &Sim) -> Options {
    options(sim).memory_limit(32 << 20).lab(|lab| lab.undo_limit = Some(8 << 20))
}

fn open(sim: &Sim) -> Result<Db, Error> {
    roomy(sim).open(DIR)
}

fn fill_disk(sim: &Sim) {
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
}

/// Rows of 2,000 bytes, `count` of them.
fn with_rows(db: &Db, count: u64) {
    for n in 0..count {
        db.run(|tx| tx.open(BLOBS)?.insert(n * APART, &[1; 2000][..]).map(drop)).unwrap();
        db.step();
    }
}

fn verify_rows(db: &Db, count: u64) {
    let reader = db.read();
    let table = reader.open(BLOBS).unwrap();
    for n in 0..count {
        assert_eq!(table.get(n * APART).unwrap().as_deref(), Some(&[1; 2000][..]), "row {n}");
    }
}

/// Gives every row of the table another value of `len` bytes.
fn change_all(tx: &Transaction, count: u64, len: usize) -> Result<(), Error> {
    let table = tx.open(BLOBS)?;
    (0..count).try_for_each(|n| table.insert(n * APART, &vec![2; len][..]).map(drop))
}

/// Inserts rows beside those of [`with_rows`] until the data file has no page left for any of them. The log has space.
fn use_up_pages(db: &Db, count: u64) {
    let mut refused = 0;
    for n in 0.. {
        // On both sides, for a split leaves the row on one of them.
        let (beside, away) = (n % count * APART + APART / 2, 1 + n / count / 2);
        let key = if (n / count).is_multiple_of(2) { beside - APART / 2 + away } else { beside + APART / 2 - away };
        match db.run(|tx| tx.open(BLOBS)?.insert(key, &[3; 1900][..]).map(drop)) {
            Ok(()) => refused = 0,
            Err(Error::DiskFull { path, .. }) if path.ends_with("data") => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
        if refused > 2 * count {
            return;
        }
    }
}

/// A database on a full disk with a transaction that has made its rows small, and whose pages others have filled since.
fn shrunk(seed: u64) -> (Sim, Db, Transaction) {
    // So that much of the log is prepared, and it is the data file that lacks space.
    shrunk_with(seed, ROWS, 4 << 20)
}

fn shrunk_with(seed: u64, count: u64, segment_bytes: u64) -> (Sim, Db, Transaction) {
    let sim = disk(seed);
    let db = roomy(&sim).lab(|lab| lab.segment_bytes = segment_bytes).log_budget(4 * segment_bytes).open(DIR).unwrap();
    with_rows(&db, count);
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
    let tx = db.begin_with(TxnOptions::new().label("shrinks"));
    change_all(&tx, count, 10).unwrap();
    (0..100).for_each(|_| db.step());
    fill_disk(&sim);
    use_up_pages(&db, count);
    (sim, db, tx)
}

fn is_parked<T>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::RollbackParked { label: "shrinks", .. }))
}

const ROWS: u64 = 600;

#[test]
fn a_rollback_that_finds_no_page_is_parked_and_goes_on_when_there_is_space() {
    let (sim, db, tx) = shrunk(1);
    assert!(is_parked(tx.rollback()));
    assert_eq!(db.stats().txn.parked, 1);
    // A row that is not back yet: the oldest change is the last.
    let write = |key| db.run(|tx| tx.open(BLOBS)?.insert(key, &[9; 5][..]).map(drop));
    assert!(is_parked(write(0)));
    verify_rows(&db, ROWS);
    assert_eq!(db.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap(), Some(1));
    (0..100).for_each(|_| db.step());
    assert_eq!(db.stats().txn.parked, 1, "the disk is as full as before");
    db.checkpoint().unwrap();

    sim.clear_faults();
    (0..100).for_each(|_| db.step());
    assert_eq!(db.stats().txn.parked, 0);
    verify_rows(&db, ROWS);
    db.check().unwrap();
    write(0).unwrap();
}

/// With threads of its own the database goes on by itself.
#[test]
fn a_parked_rollback_needs_no_help() {
    let (sim, db, tx) = shrunk(1);
    tx.prepare("name").unwrap();
    db.close(Duration::ZERO).unwrap();
    drop(db);
    let db = roomy(&sim).lab(|lab| lab.background = true).open(DIR).unwrap();
    assert!(matches!(db.rollback_prepared("name"), Err(Error::RollbackParked { .. })));
    assert_eq!(db.stats().txn.parked, 1);
    sim.clear_faults();
    let until = Instant::now() + Duration::from_secs(30);
    while db.stats().txn.parked > 0 {
        assert!(Instant::now() < until, "it is not tried again");
        std::thread::yield_now();
    }
    verify_rows(&db, ROWS);
    db.check().unwrap();
}

/// A restart needs no space, however often it is cut short, though a prepared transaction keeps all log.
#[test]
fn a_full_disk_opens_again_and_again() {
    let sim = disk(9);
    let db = open(&sim).unwrap();
    with_rows(&db, 50);
    let tx = db.begin();
    change_all(&tx, 50, 2000).unwrap();
    tx.prepare("name").unwrap();
    let lost = db.begin();
    (0..50).for_each(|n| drop(lost.open(BLOBS).unwrap().insert(n * APART + 1, &[4; 500][..]).unwrap()));
    db.sync().unwrap();
    fill_disk(&sim);
    let refused = (0..100_000).find_map(|n| db.run(|tx| tx.open(NUMBERS)?.insert(n, 1).map(drop)).err());
    assert!(matches!(refused, Some(Error::DiskFull { .. })), "{refused:?}");
    let mut sim = sim.crash_image(&Persist::None, 0);
    for round in 0..40 {
        fill_disk(&sim);
        let opened = options(&sim).memory_limit(32 << 20).spill_limit(64 << 20).open(DIR);
        let db = opened.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        verify_rows(&db, 50);
        assert_eq!(db.prepared().unwrap().len(), 1);
        // The background tries the checkpoint of the start, which would take log and truncate none.
        (0..round % 2 * 20).for_each(|_| db.step());
        // Power is lost in the middle of the next one, too.
        sim = sim.crash_image(&POLICIES[round as usize % POLICIES.len()], round);
    }
    fill_disk(&sim);
    let db = open(&sim).unwrap();
    db.rollback_prepared("name").unwrap();
    verify_rows(&db, 50);
    sim.clear_faults();
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
    db.check().unwrap();
}

#[test]
fn a_drop_and_a_savepoint_and_a_prepared_transaction_are_parked_alike() {
    for way in 0..3 {
        let (sim, db, tx) = shrunk(2 + way);
        match way {
            0 => drop(tx),
            1 => {
                let savepoint = tx.savepoint().unwrap();
                let _ = change_all(&tx, ROWS, 9);
                // Whichever of the two was refused first has ended the transaction.
                let _ = tx.rollback_to(&savepoint);
                let _ = tx.rollback();
            }
            _ => {
                tx.prepare("name").unwrap();
                assert!(is_parked(db.rollback_prepared("name")));
                assert!(matches!(db.rollback_prepared("name"), Err(Error::NoPrepared { .. })));
            }
        }
        assert_eq!(db.stats().txn.parked, 1, "way {way}");
        verify_rows(&db, ROWS);
        // What is left is a loser of the next start.
        db.close(Duration::ZERO).unwrap();
        sim.clear_faults();
        let db = open(&sim).unwrap();
        verify_rows(&db, ROWS);
        assert_eq!((db.stats().txn.parked, db.stats().recovery.losers), (0, 1), "way {way}");
        db.check().unwrap();
    }
}

/// The changes that are not undone lie in the leaves, one of which is damaged. A salvage reads what was committed last.
#[test]
fn a_salvage_beside_a_parked_rollback_finds_what_was_committed() {
    let (sim, db, tx) = shrunk(15);
    assert!(is_parked(tx.rollback()));
    db.checkpoint().unwrap();
    let image = sim.crash_image(&Persist::All, 1);
    let data = image.contents(Path::new("/db/data")).unwrap();
    let is_changed = |page: &[u8]| page[4..6] == [3, 0] && page.windows(10).any(|bytes| bytes == [2; 10]);
    let changed: Vec<_> = (0..).zip(data.chunks(PAGE_SIZE)).filter(|(_, page)| is_changed(page)).collect();
    let (hurt, _) = changed[changed.len() / 2];
    image.patch(Path::new("/db/data"), hurt * PAGE_SIZE as u64 + 100, &[0xff; 8]).unwrap();
    let images = image.contents(Path::new("/db/dw")).unwrap().len();
    image.patch(Path::new("/db/dw"), 4096, &vec![0; images - 4096]).unwrap();
    fill_disk(&image);
    let db = open(&image).unwrap();
    assert_eq!((db.stats().txn.parked, db.stats().damage.pages), (1, 1));
    let (reader, mut found, mut lost) = (db.read(), 0, Vec::new());
    for item in reader.open_raw("blobs").unwrap().salvage() {
        match item.unwrap() {
            Salvaged::Row { key, value } => {
                let n = u64::from_be_bytes(key.try_into().unwrap());
                let is_committed = if n.is_multiple_of(APART) { value == [1; 2000] } else { value == [3; 1900] };
                assert!(is_committed, "row {n}: {value:?}");
                found += u64::from(n.is_multiple_of(APART));
            }
            Salvaged::LostKeys { from, to, .. } => lost.push([from, to.unwrap()]),
            other => panic!("{other:?}"),
        }
    }
    let [[from, to]] = &lost[..] else { panic!("{lost:?}") };
    let is_lost = |n: &u64| (&from[..]..&to[..]).contains(&&(n * APART).to_be_bytes()[..]);
    let missing = (0..ROWS).filter(is_lost).count() as u64;
    assert!(missing > 0 && found + missing == ROWS, "{found} found, {missing} missing");
}

/// Log for compensations is on the disk before it is full: those of this transaction are several times what is kept
/// back otherwise.
#[test]
fn a_rollback_finds_its_log_on_a_full_disk_whatever_its_size() {
    for (rows, restarts) in [(1500, false), (1500, true)] {
        let sim = disk(7);
        let db = open(&sim).unwrap();
        with_rows(&db, rows);
        let tx = db.begin();
        change_all(&tx, rows, 2000).unwrap();
        fill_disk(&sim);
        let refused = (0..100_000).find_map(|n| db.run(|tx| tx.open(NUMBERS)?.insert(n, 1).map(drop)).err());
        assert!(matches!(refused, Some(Error::DiskFull { .. })), "{refused:?}");
        let db = match restarts {
            false => {
                tx.rollback().unwrap();
                db
            }
            true => {
                db.checkpoint().unwrap();
                let sim = sim.crash_image(&Persist::None, 1);
                fill_disk(&sim);
                open(&sim).unwrap()
            }
        };
        verify_rows(&db, rows);
    }
}

/// Whatever operation is the first that finds no space: the transaction that meets it ends, and nothing else does.
#[test]
fn no_operation_that_finds_no_space_poisons() {
    let base = disk(8);
    let db = options(&base).open(DIR).unwrap();
    with_rows(&db, 60);
    db.close(Duration::ZERO).unwrap();
    drop(db);
    let work = |db: &Db| -> Result<(), Error> {
        let tx = db.begin();
        change_all(&tx, 60, 10)?;
        let savepoint = tx.savepoint()?;
        for n in 0..40 {
            let _ = db.run(|tx| tx.open(BLOBS)?.insert(n * APART + 1, &[3; 1900][..]).map(drop));
        }
        change_all(&tx, 60, 1900)?;
        tx.rollback_to(&savepoint)?;
        tx.prepare("name")?;
        db.checkpoint()?;
        db.rollback_prepared("name")
    };
    let sim = base.fork();
    let db = options(&sim).spill_limit(1 << 20).open(DIR).unwrap();
    let first = sim.ops();
    work(&db).unwrap();
    let ops: Vec<u64> = sim.space_ops().into_iter().filter(|&op| op >= first).collect();
    assert!(ops.len() > 10, "{} operations that need space", ops.len());
    drop(db);
    for at in ops {
        let sim = base.fork();
        let db = options(&sim).spill_limit(1 << 20).open(DIR).unwrap();
        sim.inject(Fault { at, kind: FaultKind::Enospc, sticky: true });
        match work(&db) {
            Ok(()) | Err(Error::DiskFull { .. } | Error::RolledBack | Error::RollbackParked { .. }) => {}
            Err(error) => panic!("operation {at}: {error:?}"),
        }
        verify_rows(&db, 60);
        drop(db);
        if at % 2 == 0 {
            sim.clear_faults();
        }
        let db =
            options(&sim).spill_limit(1 << 20).open(DIR).unwrap_or_else(|error| panic!("operation {at}: {error:?}"));
        for name in db.prepared().unwrap() {
            let _ = db.rollback_prepared(&name.name);
        }
        verify_rows(&db, 60);
        sim.clear_faults();
        (0..50).for_each(|_| db.step());
        assert_eq!(db.stats().txn.parked, 0, "operation {at}");
        db.run(|tx| change_all(tx, 60, 10)).unwrap();
        db.check().unwrap();
    }
}

/// Ghosts are taken out of a leaf before a rollback asks for a page.
#[test]
fn a_rollback_takes_the_space_of_rows_that_were_removed() {
    let (_sim, db, tx) = shrunk_with(11, ROWS, 16 << 20);
    let beside: Vec<u64> = {
        let reader = db.read();
        let keys = reader.open(BLOBS).unwrap().iter().map(|row| row.unwrap().0);
        keys.filter(|key| !key.is_multiple_of(APART)).collect()
    };
    for key in beside {
        db.run(|tx| tx.open(BLOBS)?.remove(key)).unwrap();
    }
    let before = db.stats().tree;
    tx.rollback().unwrap();
    let after = db.stats().tree;
    assert!(after.purges > before.purges && after.leaf_splits == before.leaf_splits, "{before:?} {after:?}");
    verify_rows(&db, ROWS);
    db.check().unwrap();
}

/// A parked rollback on a full disk, and a table beside it.
fn parked_with_others(seed: u64) -> (Sim, Db) {
    let (sim, db, tx) = shrunk_with(seed, 150, 2 << 20);
    db.checkpoint().unwrap();
    assert!(is_parked(tx.rollback()));
    (sim, db)
}

fn update_others(db: &Db, n: u64) -> Result<(), Error> {
    db.run(|tx| tx.open(NUMBERS)?.insert(1, n.cast_signed()).map(drop))
}

/// The log behind a parked rollback is let go: its changes are copied to the end of the log, again and again.
#[test]
fn the_log_goes_round_beside_a_parked_rollback() {
    let (sim, db) = parked_with_others(12);
    let before = db.stats().log.group_bytes;
    let mut n = 2;
    while db.stats().log.group_bytes - before < 40 << 20 {
        update_others(&db, n).unwrap_or_else(|error| panic!("update {n}: {error}"));
        n += 1;
    }
    assert_eq!(db.stats().txn.parked, 1);
    db.run(|tx| tx.open(BLOBS)?.remove(APART / 2)).unwrap();
    // The next start finds what is left in the copies, and so does the one behind that.
    let mut sim = sim.crash_image(&Persist::None, 1);
    for round in 0..3 {
        fill_disk(&sim);
        let db = roomy(&sim)
            .lab(|lab| lab.segment_bytes = 2 << 20)
            .log_budget(8 << 20)
            .open(DIR)
            .unwrap_or_else(|error| panic!("{round}: {error}"));
        assert_eq!((db.stats().txn.parked, db.stats().recovery.parked), (1, 1), "round {round}");
        verify_rows(&db, 150);
        let before = db.stats().log.group_bytes;
        while db.stats().log.group_bytes - before < 20 << 20 {
            update_others(&db, n).unwrap_or_else(|error| panic!("round {round}, update {n}: {error}"));
            n += 1;
        }
        sim = sim.crash_image(&POLICIES[round % POLICIES.len()], round as u64);
    }
    let db = roomy(&sim).lab(|lab| lab.segment_bytes = 2 << 20).log_budget(8 << 20).open(DIR).unwrap();
    (0..100).for_each(|_| db.step());
    assert_eq!(db.stats().txn.parked, 0);
    verify_rows(&db, 150);
    db.check().unwrap();
}

/// Power is lost at every operation while what is left of a rollback is copied and the log behind it goes.
#[test]
fn power_is_lost_while_a_parked_rollback_is_copied() {
    let (sim, db) = parked_with_others(13);
    let mut n = 2;
    for _ in 0..2 {
        let range = loop {
            let (before, first) = (db.stats().checkpoint.scan_start, sim.ops());
            update_others(&db, n).unwrap();
            if db.stats().checkpoint.scan_start > before {
                break first..sim.ops();
            }
            n += 1;
        };
        assert!(range.end - range.start > 10, "{range:?}");
        for op in range {
            let policy = &POLICIES[op as usize % POLICIES.len()];
            let image = sim.image_at(op, policy, op);
            fill_disk(&image);
            let reopened = roomy(&image).lab(|lab| lab.segment_bytes = 2 << 20).log_budget(8 << 20).open(DIR);
            let db = reopened.unwrap_or_else(|error| panic!("operation {op}: {error}"));
            verify_rows(&db, 150);
            let newest = db.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap().map(i64::cast_unsigned);
            assert!([Some(n - 1), Some(n)].contains(&newest), "operation {op}: {newest:?}, not {n}");
            assert_eq!(db.stats().txn.parked, 1, "operation {op}");
            image.clear_faults();
            (0..100).for_each(|_| db.step());
            assert_eq!(db.stats().txn.parked, 0, "operation {op}");
            verify_rows(&db, 150);
            db.check().unwrap_or_else(|error| panic!("operation {op}: {error}"));
        }
    }
}

/// A writer requests log while the rollback that retains all of it is being tried, and waits for the end of the try.
/// `has_threads`: threads of the database answer it, not the writer itself.
fn a_request_waits_for_the_end_of_a_try(has_threads: bool) {
    let (sim, db) = parked_with_others(14);
    let db = if has_threads {
        let sim = sim.crash_image(&Persist::None, 1);
        fill_disk(&sim);
        let options = roomy(&sim).lab(|lab| lab.segment_bytes = 2 << 20).log_budget(8 << 20);
        options.lab(|lab| lab.background = true).open(DIR).unwrap()
    } else {
        db
    };
    let (held, is_held) = mpsc::channel();
    let (release, released) = mpsc::channel();
    thread::scope(|scope| {
        let db = &db;
        scope.spawn(move || {
            let was_held = Rc::new(Cell::new(false));
            let is_first = Rc::clone(&was_held);
            pause::set("txn: a change is to be taken back", move || {
                if !is_first.replace(true) {
                    held.send(()).unwrap();
                    released.recv().unwrap();
                }
            });
            while !was_held.get() {
                db.step();
            }
        });
        is_held.recv().unwrap();
        let appended = move || db.stats().log.group_bytes;
        let before = appended();
        let writer = scope
            .spawn(move || (2..).take_while(|_| appended() - before < 20 << 20).try_for_each(|n| update_others(db, n)));
        // The log stands still.
        let (mut seen, mut since) = (before, Instant::now());
        while since.elapsed() < Duration::from_millis(300) && !writer.is_finished() {
            thread::sleep(Duration::from_millis(1));
            if appended() != seen {
                (seen, since) = (appended(), Instant::now());
            }
        }
        let waits = !writer.is_finished();
        let ended = Instant::now();
        release.send(()).unwrap();
        writer.join().unwrap().unwrap();
        assert!(waits, "the log was full meanwhile");
        // A writer that is forgotten is refused after ten seconds, and asks again.
        assert!(ended.elapsed() < Duration::from_secs(8), "answered after {:?}", ended.elapsed());
    });
    assert_eq!(db.stats().txn.parked, 1);
}

#[test]
fn a_request_without_threads_waits_for_the_end_of_a_try() {
    a_request_waits_for_the_end_of_a_try(false);
}

#[test]
fn a_request_to_a_thread_waits_for_the_end_of_a_try() {
    a_request_waits_for_the_end_of_a_try(true);
}

/// Rows of a load may be removed in part, so others must not write there before the load is undone.
#[test]
fn others_are_kept_out_of_a_table_whose_load_is_parked_over_restarts() {
    let sim = disk(6);
    let db = roomy(&sim).lab(|lab| lab.segment_bytes = 4 << 20).log_budget(16 << 20).open(DIR).unwrap();
    with_rows(&db, ROWS);
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
    let tx = db.begin_with(TxnOptions::new().label("shrinks"));
    tx.open(NUMBERS).unwrap().load((2..3000).map(|n| (n, n as i64))).unwrap();
    change_all(&tx, ROWS, 10).unwrap();
    (0..100).for_each(|_| db.step());
    fill_disk(&sim);
    use_up_pages(&db, ROWS);
    db.sync().unwrap();
    let mut image = sim.crash_image(&Persist::All, 1);
    drop((tx, db));
    for round in 0..3 {
        fill_disk(&image);
        let db = roomy(&image).log_budget(16 << 20).open(DIR).unwrap_or_else(|error| panic!("{round}: {error:?}"));
        assert_eq!(db.stats().txn.parked, 1, "round {round}");
        for key in [0, 5, 2000, 5000] {
            let other = db.begin_with(TxnOptions::new().lock_timeout(Duration::ZERO));
            let put = other.open(NUMBERS).and_then(|table| table.put(key, 9));
            assert!(matches!(put, Err(Error::LockTimeout { .. })), "round {round}, key {key}: {put:?}");
        }
        let seen = db.read().open(NUMBERS).unwrap().iter().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(seen, [(1, 1)], "round {round}");
        image = image.crash_image(&Persist::All, round);
    }
    let db = roomy(&image).log_budget(16 << 20).open(DIR).unwrap();
    (0..100).for_each(|_| db.step());
    assert_eq!(db.stats().txn.parked, 0);
    db.run(|tx| tx.open(NUMBERS)?.load([(2, 2), (5, 5)]).map(drop)).unwrap();
    assert_eq!(db.read().open(NUMBERS).unwrap().len().unwrap(), 3);
    verify_rows(&db, ROWS);
    db.check().unwrap();
}
