//! Numbers of a table: no two callers get the same one, whatever is rolled back, and none waits for another's end.

use crate::script::disk;
use crate::support::{DIR, NUMBERS, POLICIES, TEXTS, in_memory, open, small};
use foreshore::{Db, Error, Isolation, Options, TxnOptions};
use foreshore_io::{Fs, Sim};
use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn threads_get_different_numbers_also_of_transactions_that_roll_back() {
    let (db, fs) = in_memory();
    db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
    let take = |seed: u64| {
        let mut taken = Vec::new();
        for n in 0..400 {
            let tx = db.begin_with(TxnOptions::new().isolation(match (seed + n) % 3 {
                0 => Isolation::Serializable,
                1 => Isolation::Snapshot,
                _ => Isolation::ReadCommitted,
            }));
            let numbers = tx.open(NUMBERS).unwrap();
            (0..5).for_each(|_| taken.push(tx.next_id(&numbers).unwrap()));
            if n % 2 == 0 { tx.rollback() } else { tx.commit().map(drop) }.unwrap();
        }
        assert!(taken.is_sorted(), "one after the other they grow");
        taken
    };
    let mut all: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || take(seed))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    assert!(all.iter().copied().eq(1..=8000), "none is missing while the database is open");

    db.check().unwrap();
    db.close(Duration::from_secs(10)).unwrap();
    let db = open(&fs).unwrap();
    let next = db.run(|tx| tx.next_id(&tx.open(NUMBERS)?)).unwrap();
    assert!((8001..=9001).contains(&next), "{next}");
}

#[test]
fn open_transactions_do_not_keep_others_from_numbers() {
    let (db, _) = in_memory();
    // The creator of the table holds the catalogue exclusively.
    let creator = db.begin();
    let numbers = creator.open(NUMBERS).unwrap();
    assert_eq!(creator.next_id(&numbers).unwrap(), 1);
    creator.commit().unwrap();
    let transactions: Vec<_> = (0..10).map(|_| db.begin()).collect();
    let tables: Vec<_> = transactions.iter().map(|tx| tx.open(NUMBERS).unwrap()).collect();
    let creator = db.begin();
    let texts = creator.open(TEXTS).unwrap();
    for n in 0..300 {
        for (at, (tx, table)) in transactions.iter().zip(&tables).enumerate() {
            assert_eq!(tx.next_id(table).unwrap(), 2 + n * 10 + at as u64);
        }
        assert_eq!(creator.next_id(&texts).unwrap(), n + 1, "each table has its own");
    }
    assert_eq!(numbers_of(&db), 3002);
}

fn numbers_of(db: &Db) -> u64 {
    db.run(|tx| tx.next_id(&tx.open(NUMBERS)?)).unwrap()
}

#[test]
fn a_new_table_of_an_old_name_begins_again_and_tables_of_others_are_refused() {
    let (db, fs) = in_memory();
    assert_eq!((numbers_of(&db), numbers_of(&db)), (1, 2));
    assert!(db.run(|tx| tx.drop_table("numbers")).unwrap());
    assert_eq!(numbers_of(&db), 1);
    let (tx, other) = (db.begin(), db.begin());
    let refused = other.next_id(&tx.open(NUMBERS).unwrap());
    assert!(matches!(refused, Err(Error::InvalidOption { name: "table", .. })), "{refused:?}");
    // That changes nothing.
    other.open(NUMBERS).unwrap().put(1, 1).unwrap();
    other.commit().unwrap();
    drop(tx);
    db.close(Duration::from_secs(10)).unwrap();
    let db = small().lab(|lab| lab.fs = Some(Arc::clone(&fs))).open_read_only(DIR).unwrap();
    let refused = db.run(|tx| tx.next_id(&tx.open(NUMBERS)?));
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
}

fn options(sim: &Sim, seed: u64) -> Options {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    small().lab(|lab| {
        lab.background = false;
        lab.fs = Some(fs);
        lab.step_seed = seed;
    })
}

#[test]
fn no_number_comes_twice_after_a_power_loss_at_any_operation() {
    let sim = disk(7);
    let db = options(&sim, 7).open(DIR).unwrap();
    db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
    // How many operations the disk had done when a number was handed out.
    let mut handed_out = Vec::new();
    for n in 1..26 {
        let tx = db.begin();
        let numbers = tx.open(NUMBERS).unwrap();
        for _ in 0..150 {
            let number = tx.next_id(&numbers).unwrap();
            handed_out.push((sim.ops(), number));
        }
        // What takes numbers need not survive.
        numbers.put(n, 1).unwrap();
        drop(tx);
        db.step();
    }
    drop(db);
    assert_eq!(handed_out.iter().map(|(_, number)| number).collect::<HashSet<_>>().len(), 25 * 150);
    let mut points = sim.crash_points();
    let (mut images, mut least) = (0, u64::MAX);
    loop {
        let op = points.op();
        let before = handed_out.iter().take_while(|(at, _)| *at <= op).last();
        if let Some((_, last)) = before {
            let lost = points.image(&POLICIES[images % POLICIES.len()], op);
            images += 1;
            let db = options(&lost, op).open(DIR).unwrap_or_else(|error| panic!("open after {op}: {error}"));
            let next = numbers_of(&db);
            assert!(next > *last, "after {op} number {next} comes again, the last was {last}");
            least = least.min(next - last);
        }
        if !points.advance() {
            break;
        }
    }
    assert!(images > 5 && least <= 1000, "{images} images, {least} numbers missing at least");
}

#[test]
fn numbers_are_skipped_at_once_and_for_good() {
    let (db, fs) = in_memory();
    let skip = |db: &Db, last| db.run(|tx| tx.skip_ids(&tx.open(NUMBERS)?, last));
    assert_eq!(numbers_of(&db), 1);
    skip(&db, 500).unwrap();
    assert_eq!(numbers_of(&db), 501, "within the reserved block");
    skip(&db, 5).unwrap();
    assert_eq!(numbers_of(&db), 502, "numbers never go back");
    for last in [1000, 1_001, 700_000] {
        let tx = db.begin();
        tx.skip_ids(&tx.open(NUMBERS).unwrap(), last).unwrap();
        tx.rollback().unwrap();
        assert_eq!(numbers_of(&db), last + 1);
    }
    assert!(matches!(skip(&db, u64::MAX), Err(Error::InvalidOption { name: "last", .. })));
    skip(&db, 1 << 40).unwrap();
    db.close(Duration::from_secs(10)).unwrap();
    let db = open(&fs).unwrap();
    assert!(numbers_of(&db) > 1 << 40);
    skip(&db, i64::MAX as u64).unwrap();
    assert_eq!(numbers_of(&db), 1 << 63);
}

/// The close waits for the transaction, so its operations go on.
#[test]
fn a_running_transaction_gets_numbers_while_the_database_closes() {
    let (db, fs) = in_memory();
    db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
    thread::scope(|scope| {
        let tx = db.begin();
        let numbers = tx.open(NUMBERS).unwrap();
        let close = scope.spawn(|| db.close(Duration::from_secs(60)));
        // Once no transaction begins any more, the database is closing.
        while db.begin().savepoint().is_ok() {
            thread::yield_now();
        }
        for number in 1..=2500 {
            assert_eq!(tx.next_id(&numbers).unwrap(), number);
        }
        tx.skip_ids(&numbers, 9000).unwrap();
        numbers.put(1, 1).unwrap();
        tx.commit().unwrap();
        close.join().unwrap().unwrap();
    });
    let db = open(&fs).unwrap();
    assert!(db.stats().recovery.was_clean);
    assert!(numbers_of(&db) > 9000);
}
