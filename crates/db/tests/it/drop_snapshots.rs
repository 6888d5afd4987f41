//! Snapshot readers take no lock of a table: a drop does not wait for them, and a waiting drop does not stop them. A
//! table dropped after their snapshot stays readable until the snapshot ends or is cancelled.

use crate::script::{disk, open as open_sim, options as sim_options};
use crate::support::{DIR, NUMBERS, POLICIES, TEXTS, fill, in_memory, open, small};
use foreshore::{Db, Device, Error, Isolation, ReadOptions, ReadTransaction, TableDef, TxnOptions};
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_sync::pause;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// What takes longer has stopped.
const HANG: Duration = Duration::from_secs(600);

const ROWS: u64 = 3000;
const OTHERS: TableDef<u64, i64> = TableDef::new("others");

fn drop_numbers(db: &Db) {
    assert!(db.run(|tx| tx.drop_table(NUMBERS.name())).unwrap());
}

/// Fills the table with rows whose values tell the round.
fn fill_round(db: &Db, round: i64) {
    for from in (0..ROWS).step_by(500) {
        db.run(|tx| {
            let table = tx.open(NUMBERS)?;
            (from..from + 500).try_for_each(|n| table.insert(n, round * 10_000 + n as i64).map(drop))
        })
        .unwrap();
    }
}

fn round_of(reader: &ReadTransaction) -> i64 {
    let table = reader.open(NUMBERS).unwrap();
    let rows: Vec<(u64, i64)> = table.iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.len(), ROWS as usize);
    let round = rows[0].1 / 10_000;
    assert!(rows.iter().all(|&(n, value)| value == round * 10_000 + n as i64), "the rows of one round");
    assert_eq!(table.get(77).unwrap(), Some(round * 10_000 + 77));
    assert_eq!(table.last().unwrap().unwrap().0, ROWS - 1);
    round
}

/// Has pages freed that nothing needs, and checks all.
fn settle(db: &Db) -> u64 {
    db.vacuum().unwrap();
    db.check().unwrap();
    db.stats().space.used_pages
}

#[test]
fn a_waiting_drop_stops_no_reader() {
    let (db, _fs) = in_memory();
    fill(&db, 500);
    let writer = db.begin();
    writer.open(NUMBERS).unwrap().insert(1, 1).unwrap();
    let (is_over, (done, dropped)) = (AtomicBool::new(false), mpsc::channel());
    thread::scope(|scope| {
        scope.spawn(|| {
            drop_numbers(&db);
            is_over.store(true, Ordering::Release);
            done.send(()).unwrap();
        });
        // A locking reader tells when the drop waits: it stands behind it.
        let waits = || {
            let other = db.begin_with(TxnOptions::new().lock_timeout(Duration::ZERO));
            matches!(other.open(NUMBERS).and_then(|table| table.get(2)), Err(Error::LockTimeout { .. }))
        };
        while !waits() {
            thread::yield_now();
        }
        let snapshot = db.begin_with(TxnOptions::new().isolation(Isolation::Snapshot).lock_timeout(Duration::ZERO));
        let committed =
            db.begin_with(TxnOptions::new().isolation(Isolation::ReadCommitted).lock_timeout(Duration::ZERO));
        for n in 0..500 {
            assert_eq!(db.read().open(NUMBERS).unwrap().get(n).unwrap(), Some(n as i64));
        }
        assert_eq!(db.read().open(NUMBERS).unwrap().iter().rev().count(), 500);
        assert_eq!(snapshot.open(NUMBERS).unwrap().range(100..200_u64).count(), 100);
        assert_eq!(committed.open(NUMBERS).unwrap().get(3).unwrap(), Some(3));
        assert!(waits() && !is_over.load(Ordering::Acquire), "the drop waits for the writer");
        drop((snapshot, committed));
        writer.commit().unwrap();
        dropped.recv().unwrap();
    });
    assert!(matches!(db.read().open(NUMBERS), Err(Error::NoTable { .. })));
}

#[test]
fn an_older_snapshot_reads_a_dropped_table_by_handle_and_by_name() {
    let (db, fs) = in_memory();
    db.run(|tx| tx.open(TEXTS)?.insert("kept", "here").map(drop)).unwrap();
    let before = settle(&db);
    fill_round(&db, 1);
    let first = db.read();
    let handle = first.open(NUMBERS).unwrap();
    // Under way from both ends, over several leaves.
    let mut rows = handle.iter();
    assert_eq!((rows.next().unwrap().unwrap().0, rows.next_back().unwrap().unwrap().0), (0, ROWS - 1));
    drop_numbers(&db);
    assert!(matches!(db.read().open(NUMBERS), Err(Error::NoTable { .. })));
    // Others take whatever pages are free.
    fill_round(&db, 2);
    let second = db.read();
    drop_numbers(&db);
    // The name comes back with other types.
    db.run(|tx| tx.open(TableDef::<&str, &str>::new(NUMBERS.name()))?.insert("one", "two").map(drop)).unwrap();
    let third = db.read();
    settle(&db);
    assert_eq!((round_of(&first), round_of(&second)), (1, 2));
    assert_eq!(handle.get(5).unwrap(), Some(10_005));
    assert!(matches!(third.open(NUMBERS), Err(Error::TableTypes { .. })));
    assert!(matches!(first.open(TableDef::<&str, &str>::new(NUMBERS.name())), Err(Error::TableTypes { .. })));
    db.run(|tx| tx.drop_table(NUMBERS.name()).map(drop)).unwrap();
    let texts = third.open(TableDef::<&str, &str>::new(NUMBERS.name())).unwrap();
    assert_eq!(texts.get("one").unwrap().as_deref(), Some("two"));
    assert!(db.stats().held_tables == 3 && settle(&db) > before + 10, "{} tables are held", db.stats().held_tables);
    let rest: Vec<_> = rows.collect::<Result<_, _>>().unwrap();
    assert!(rest.into_iter().eq((1..ROWS - 1).map(|n| (n, 10_000 + n as i64))), "the iterator goes on");
    drop((first, second));
    settle(&db);
    assert_eq!(db.stats().held_tables, 1, "one is left for the third");
    assert_eq!(texts.get("one").unwrap().as_deref(), Some("two"));
    drop(third);
    assert_eq!((settle(&db), db.stats().held_tables), (before, 0));
    db.close(Duration::ZERO).unwrap();
    assert_eq!(open(&fs).unwrap().check().unwrap().tables, 1);
}

/// A transaction with a snapshot of its own comes to the table that it sees, and cannot write to it any more.
#[test]
fn a_snapshot_transaction_reads_its_table_and_is_refused_to_write_to_it() {
    let (db, _fs) = in_memory();
    let options = TxnOptions::new().isolation(Isolation::Snapshot).lock_timeout(Duration::ZERO);
    for is_created_again in [false, true] {
        fill(&db, 100);
        let (by_name, by_handle) = (db.begin_with(options), db.begin_with(options));
        let handle = by_handle.open(NUMBERS).unwrap();
        drop_numbers(&db);
        if is_created_again {
            fill(&db, 7);
        }
        let table = by_name.open(NUMBERS).unwrap();
        for table in [&table, &handle] {
            assert_eq!((table.get(50).unwrap(), table.iter().count()), (Some(50), 100));
            let refused = table.insert(1, 2);
            assert!(matches!(&refused, Err(error @ Error::TableDropped { .. }) if error.is_retryable()), "{refused:?}");
        }
        drop((by_name, by_handle));
        assert_eq!(
            db.run(|tx| Ok::<_, Error>(tx.open(NUMBERS)?.iter().count())).unwrap(),
            if is_created_again { 7 } else { 0 }
        );
        drop_numbers(&db);
    }
}

/// A name that was free for the snapshot, and is free again, counts as free. A table that had it in between does not
/// exist for the transaction, and its types do not matter.
#[test]
fn a_table_that_has_come_and_gone_since_a_snapshot_does_not_take_its_name() {
    let (db, _fs) = in_memory();
    let options = TxnOptions::new().isolation(Isolation::Snapshot);
    let (creates, finds, reader) = (db.begin_with(options), db.begin_with(options), db.read());
    db.run(|tx| tx.open(TableDef::<&str, &str>::new(NUMBERS.name()))?.insert("one", "two").map(drop)).unwrap();
    drop_numbers(&db);
    assert!(matches!(reader.open(NUMBERS), Err(Error::NoTable { .. })));
    for n in 1..=2 {
        let table = creates.open(NUMBERS).unwrap();
        table.insert_new(n, 10).unwrap();
        assert_eq!(table.iter().count(), n as usize, "the table that it has created");
    }
    creates.commit().unwrap();
    assert_eq!(finds.open(NUMBERS).unwrap().iter().count(), 0, "created since, under a name that was free");
    finds.open(NUMBERS).unwrap().insert(3, 30).unwrap();
    finds.commit().unwrap();
    assert_eq!(reader.open(NUMBERS).unwrap().iter().count(), 0);
    assert_eq!(db.read().open(NUMBERS).unwrap().iter().count(), 3);
}

/// Statements of a read-committed transaction have snapshots of their own: the next one sees the drop.
#[test]
fn a_read_committed_transaction_learns_of_a_drop_at_its_next_statement() {
    let (db, _fs) = in_memory();
    fill(&db, 1000);
    let tx = db.begin_with(TxnOptions::new().isolation(Isolation::ReadCommitted));
    let table = tx.open(NUMBERS).unwrap();
    let mut rows = table.iter();
    assert_eq!(rows.next().unwrap().unwrap(), (0, 0));
    drop_numbers(&db);
    assert_eq!(rows.by_ref().count(), 999, "one statement");
    assert!(matches!(table.get(1), Err(Error::TableDropped { .. })));
}

#[test]
fn a_table_whose_creation_is_rolled_back_to_a_savepoint_is_gone_for_its_creator() {
    let (db, _fs) = in_memory();
    for isolation in [Isolation::Snapshot, Isolation::ReadCommitted] {
        let tx = db.begin_with(TxnOptions::new().isolation(isolation));
        let savepoint = tx.savepoint().unwrap();
        let table = tx.open(NUMBERS).unwrap();
        table.insert(1, 1).unwrap();
        assert_eq!(table.get(1).unwrap(), Some(1));
        tx.rollback_to(&savepoint).unwrap();
        assert!(matches!(table.get(1), Err(Error::TableDropped { .. })), "{isolation}");
    }
    assert!(matches!(db.read().open(NUMBERS), Err(Error::NoTable { .. })));
}

/// Pages come back with the end of each snapshot: the file holds as many rounds as there are readers.
#[test]
fn a_hundred_rounds_beside_readers_do_not_let_the_file_grow() {
    let (db, _fs) = in_memory();
    let (mut reader, mut most) = (None, 0);
    for round in 0..100 {
        fill_round(&db, round);
        let next = db.read();
        drop_numbers(&db);
        // The reader of the round before still has its own.
        if let Some(last) = reader.replace(next) {
            assert_eq!(round_of(&last), round - 1);
        }
        // Background work frees what it can by now, or the call does.
        db.vacuum().unwrap();
        assert_eq!(round_of(reader.as_ref().unwrap()), round);
        let used = db.stats().space.used_pages;
        if round < 5 {
            most = most.max(used);
        }
        assert!(used <= most + most / 4, "round {round}: {used} pages after {most}");
    }
    assert!(db.stats().held_tables <= 2);
    drop(reader);
    settle(&db);
    let stats = db.stats();
    assert!(stats.held_tables == 0 && stats.space.used_pages < most / 2, "{:?}", stats.space);
}

/// The thread in the background finds out by itself that a snapshot has ended.
#[test]
fn background_work_frees_the_pages_when_the_snapshot_ends() {
    let db = small().device(Device::Null).open(DIR).unwrap();
    let before = settle(&db);
    fill_round(&db, 1);
    let reader = db.read();
    drop_numbers(&db);
    // Longer than the first pauses between two looks.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(100) {
        assert_eq!(round_of(&reader), 1);
    }
    assert_eq!(db.stats().held_tables, 1);
    drop(reader);
    let ended = Instant::now();
    // The catalogue may keep a page more.
    while db.stats().space.used_pages > before + 1 {
        assert!(ended.elapsed() < HANG, "{:?}", db.stats().space);
        thread::yield_now();
    }
    assert_eq!(db.stats().held_tables, 0);
}

/// Without threads what is done follows from the steps, and not from the time between them.
#[test]
fn steps_look_for_the_end_of_the_snapshot_without_pauses() {
    let db = small()
        .device(Device::Null)
        .lab(|lab| {
            lab.background = false;
            lab.step_seed = 1;
        })
        .open(DIR)
        .unwrap();
    fill_round(&db, 1);
    let reader = db.read();
    drop_numbers(&db);
    (0..100).for_each(|_| db.step());
    assert_eq!(db.stats().held_tables, 1);
    drop(reader);
    // A fifth of the steps look.
    (0..100).for_each(|_| db.step());
    assert_eq!(db.stats().held_tables, 0);
}

/// A reader whose snapshot is cancelled in the middle of an iteration never takes rows of others, in pages that were
/// its own, for its own.
#[test]
fn a_cancelled_reader_reads_no_page_that_is_used_again() {
    let db = small().device(Device::Null).snapshot_max_age(Duration::from_millis(20)).open(DIR).unwrap();
    let mut cancelled = 0;
    for round in 0..8 {
        fill_round(&db, round);
        let is_over = AtomicBool::new(false);
        cancelled += thread::scope(|scope| {
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    let (reader, is_over) = (db.read_with(ReadOptions::new().label("old")), &is_over);
                    scope.spawn(move || {
                        // Where the thread comes late its snapshot is gone already.
                        let Ok(table) = reader.open(NUMBERS) else { return 0 };
                        while !is_over.load(Ordering::Acquire) {
                            for row in table.iter() {
                                match row {
                                    Ok((n, value)) => assert_eq!(value, round * 10_000 + n as i64),
                                    Err(Error::SnapshotTooOld { label: "old", .. }) => return 1,
                                    Err(error) => panic!("round {round}: {error}"),
                                }
                            }
                        }
                        0
                    })
                })
                .collect();
            drop_numbers(&db);
            let began = Instant::now();
            let mut used = 0;
            while began.elapsed() < Duration::from_millis(200) {
                // New tables take the pages as soon as they are free.
                let name = format!("table {used}");
                db.run(|tx| {
                    let other = tx.open(TableDef::<u64, i64>::new(&name))?;
                    (0..400).try_for_each(|n| other.insert(n, -1).map(drop))
                })
                .unwrap();
                db.vacuum().unwrap();
                used += 1;
            }
            is_over.store(true, Ordering::Release);
            let cancelled = readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u32>();
            assert!((0..used).all(|n| db.run(|tx| tx.drop_table(&format!("table {n}"))).unwrap()));
            cancelled
        });
        settle(&db);
    }
    assert!(cancelled > 0, "no snapshot was cancelled");
    assert_eq!(db.stats().damage.pages, 0);
}

/// A reader that was cancelled and does nothing keeps no page, and hears of it when it goes on.
#[test]
fn an_idle_reader_that_was_cancelled_keeps_no_page() {
    for limited in
        [ReadOptions::new().snapshot_max_age(Duration::from_millis(1)), ReadOptions::new().snapshot_max_bytes(40 << 10)]
    {
        let (db, _fs) = in_memory();
        let before = settle(&db);
        db.run(|tx| (0..2000).try_for_each(|n| tx.open(OTHERS)?.insert(n, 0).map(drop))).unwrap();
        fill_round(&db, 1);
        let reader = db.read_with(limited);
        let table = reader.open(NUMBERS).unwrap();
        let mut rows = table.iter();
        assert_eq!(rows.next().unwrap().unwrap(), (0, 10_000));
        drop_numbers(&db);
        let began = Instant::now();
        while db.stats().held_tables > 0 {
            // Old versions are kept for it, until it is beyond its limit.
            db.run(|tx| (0..2000).try_for_each(|n| tx.open(OTHERS)?.insert(n, 1).map(drop))).unwrap();
            db.vacuum().unwrap();
            assert!(began.elapsed() < HANG, "it is still there");
        }
        db.run(|tx| tx.drop_table(OTHERS.name())).unwrap();
        assert!(settle(&db) <= before + 1, "its pages are free");
        fill_round(&db, 2);
        // What it had read before is handed out; there are more rows than that.
        let rest: Vec<_> = rows.collect();
        let (last, handed) = rest.split_last().unwrap();
        assert!(matches!(last, Err(Error::SnapshotTooOld { .. })), "{last:?}");
        assert!(handed.len() < ROWS as usize / 2);
        for (n, row) in (1..).zip(handed) {
            assert_eq!(row.as_ref().unwrap(), &(n, 10_000 + n as i64));
        }
    }
}

/// Pages stay while a reader is in the middle of an operation, though it is cancelled.
#[test]
fn an_operation_of_a_cancelled_reader_keeps_its_pages_to_its_end() {
    let (db, _fs) = in_memory();
    fill_round(&db, 1);
    let reader = db.read_with(ReadOptions::new().snapshot_max_age(Duration::from_millis(1)));
    let ((to_main, reached), (resume, to_reader)) = (mpsc::channel(), mpsc::channel());
    // With its end of the channel, so that a failure ends the reader, too.
    thread::scope(move |scope| {
        let reading = scope.spawn(move || {
            let table = reader.open(NUMBERS).unwrap();
            pause::set("btree: a reader by a snapshot is on its way", move || {
                to_main.send(()).unwrap();
                to_reader.recv().unwrap();
            });
            table.get(1)
        });
        reached.recv().unwrap();
        drop_numbers(&db);
        while db.stats().txn.snapshots_cancelled == 0 {
            db.vacuum().unwrap();
        }
        let used = settle(&db);
        assert_eq!(db.stats().held_tables, 1, "an operation is under way");
        resume.send(()).unwrap();
        let read = reading.join().unwrap();
        assert!(matches!(read, Err(Error::SnapshotTooOld { .. })), "{read:?}");
        assert!(settle(&db) < used - 10 && db.stats().held_tables == 0);
    });
}

/// What a commit that drops and creates does is seen as a whole, also where the commit is numbered but not durable.
#[test]
fn a_drop_and_what_commits_with_it_are_seen_together() {
    let (db, _fs) = in_memory();
    fill(&db, 10);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for latest in [true, false] {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || {
                let options = if latest { ReadOptions::new().latest() } else { ReadOptions::new() };
                while !is_over.load(Ordering::Acquire) {
                    let reader = db.read_with(options);
                    // The text tells how often the table was dropped, and its rows say the same.
                    let rounds = match reader.open(TEXTS) {
                        Ok(texts) => texts.get("rounds").unwrap().map_or(0, |text| text.parse::<i64>().unwrap()),
                        Err(Error::NoTable { .. }) => 0,
                        Err(error) => panic!("{error}"),
                    };
                    let rows = reader.open(NUMBERS).unwrap().get(0).unwrap();
                    assert_eq!(rows, Some(rounds), "latest: {latest}");
                }
            });
        }
        for round in 1..=300_i64 {
            db.run(|tx| {
                tx.drop_table(NUMBERS.name())?;
                tx.open(NUMBERS)?.insert(0, round)?;
                tx.open(TEXTS)?.insert("rounds", &*round.to_string()).map(drop)
            })
            .unwrap();
        }
        is_over.store(true, Ordering::Release);
    });
    settle(&db);
}

/// A snapshot that sees a commit finds the tables that it has created before others are told of them.
#[test]
fn a_latest_reader_finds_a_table_before_its_creator_has_made_it_known() {
    let (db, _fs) = in_memory();
    for round in 0..3 {
        let found = Rc::new(Cell::new(None));
        let (reads, finds) = (db.clone(), Rc::clone(&found));
        pause::set("db: about to make tables known", move || {
            let reader = reads.read_with(ReadOptions::new().latest());
            finds.set(Some(reader.open(NUMBERS).and_then(|table| table.get(0))));
        });
        db.run(|tx| {
            tx.drop_table(NUMBERS.name())?;
            tx.open(NUMBERS)?.insert(0, round).map(drop)
        })
        .unwrap();
        pause::set("nowhere", || ());
        assert_eq!(found.take().unwrap().unwrap(), Some(round));
        assert_eq!(db.read().open(NUMBERS).unwrap().get(0).unwrap(), Some(round));
    }
}

/// A prepared transaction has dropped and created a table. Resolving it, in the same run or the next one, takes the
/// table from no reader by an older snapshot.
#[test]
fn a_prepared_drop_takes_no_table_from_older_snapshots() {
    for (is_reopened, commits) in [(false, true), (true, true), (true, false)] {
        let (mut db, fs) = in_memory();
        db.run(|tx| tx.open(TEXTS)?.insert("kept", "here").map(drop)).unwrap();
        let before = settle(&db);
        fill_round(&db, 1);
        let tx = db.begin();
        assert!(tx.drop_table(NUMBERS.name()).unwrap());
        tx.open(NUMBERS).unwrap().insert(0, 1).unwrap();
        tx.prepare("drops").unwrap();
        if is_reopened {
            db.close(Duration::ZERO).unwrap();
            db = open(&fs).unwrap();
        }
        let reader = db.read();
        let handle = reader.open(NUMBERS).unwrap();
        assert_eq!(round_of(&reader), 1, "it is prepared");
        if commits {
            db.commit_prepared("drops").unwrap();
        } else {
            db.rollback_prepared("drops").unwrap();
        }
        db.vacuum().unwrap();
        assert_eq!(db.stats().held_tables, u64::from(commits));
        fill(&db, 1000);
        assert_eq!((round_of(&reader), handle.get(9).unwrap()), (1, Some(10_009)));
        assert_eq!(db.read().open(NUMBERS).unwrap().iter().count(), if commits { 1000 } else { ROWS as usize });
        drop(reader);
        settle(&db);
        assert_eq!(db.stats().held_tables, 0);
        drop_numbers(&db);
        assert_eq!(settle(&db), before, "reopened: {is_reopened}, commits: {commits}");
    }
}

/// Power is lost at every operation of the disk from a drop on, with a snapshot from before in use, and pages held,
/// given back and used again. No page is lost, and none is used twice.
#[test]
fn power_lost_at_any_operation_of_a_drop_beside_a_reader_leaks_no_page() {
    for seed in 0..2 {
        let sim = disk(seed);
        let db = sim_options(&sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
        db.run(|tx| tx.open(TEXTS)?.insert("kept", "here").map(drop)).unwrap();
        fill_round(&db, 1);
        db.checkpoint().unwrap();
        let reader = db.read();
        let from = sim.ops();
        drop_numbers(&db);
        let dropped = sim.ops();
        (0..20).for_each(|_| db.step());
        assert_eq!(round_of(&reader), 1);
        assert_eq!(db.stats().held_tables, 1);
        db.checkpoint().unwrap();
        fill(&db, 300);
        drop(reader);
        while db.stats().held_tables > 0 {
            db.vacuum().unwrap();
        }
        fill(&db, 900);
        drop(db);
        let mut points = sim.crash_points();
        let mut images = 0;
        loop {
            let op = points.op();
            if op >= from {
                let policy = &POLICIES[images % POLICIES.len()];
                let again = open_sim(&points.image(policy, op)).unwrap();
                let report = again.check().unwrap_or_else(|error| panic!("operation {op}, {policy:?}: {error}"));
                again.vacuum().unwrap();
                let rows = again.read().open(NUMBERS).map_or(0, |table| table.iter().count());
                assert!(op < dropped || rows < ROWS as usize, "operation {op}: the drop is lost");
                let clean = again.check().unwrap();
                assert!(report.tables == clean.tables && clean.unused == 0);
                // What no table has is free: the same pages as after a drop of all that is there.
                again.run(|tx| tx.drop_table(NUMBERS.name())).unwrap();
                again.vacuum().unwrap();
                assert!(again.check().unwrap().pages <= 8, "operation {op}, {policy:?}: {:?}", again.check());
                images += 1;
            }
            if !points.advance() {
                break;
            }
        }
        assert!(images > 20, "{images} images");
    }
}

#[test]
fn a_restart_frees_what_a_snapshot_held() {
    let (db, fs) = in_memory();
    db.run(|tx| tx.open(TEXTS)?.insert("kept", "here").map(drop)).unwrap();
    let before = settle(&db);
    fill_round(&db, 1);
    let reader = db.read();
    drop_numbers(&db);
    assert!(settle(&db) > before + 10 && db.stats().held_tables == 1);
    // The reader is still there: closing does not wait for it for ever.
    db.close(Duration::ZERO).unwrap();
    assert!(matches!(reader.open(NUMBERS), Err(Error::Closed)));
    drop(reader);
    let db = open(&fs).unwrap();
    assert_eq!(settle(&db), before);
    assert_eq!(db.stats().held_tables, 0);
}

/// A transaction with a snapshot drops the table that it sees, or gets an error. It never answers that there is none,
/// and never drops another one.
#[test]
fn a_snapshot_transaction_drops_the_table_that_it_sees_or_is_refused() {
    let (db, _fs) = in_memory();
    // The thread that frees pages locks the catalogue now and then, for a moment.
    let options = TxnOptions::new().isolation(Isolation::Snapshot).lock_timeout(Duration::from_secs(10));
    for (is_created_again, vacuums) in [(false, false), (false, true), (true, false), (true, true)] {
        fill(&db, 100);
        let (late, reads) = (db.begin_with(options), db.begin_with(options));
        drop_numbers(&db);
        if vacuums {
            db.vacuum().unwrap();
        }
        if is_created_again {
            fill(&db, 7);
        }
        let case = (is_created_again, vacuums);
        assert_eq!(reads.open(NUMBERS).unwrap().iter().count(), 100, "{case:?}");
        let refused = late.drop_table(NUMBERS.name());
        assert!(
            matches!(&refused, Err(error @ Error::TableDropped { .. }) if error.is_retryable()),
            "{case:?}: {refused:?}"
        );
        assert!(refused.unwrap_err().to_string().contains("\"numbers\""), "the table is named");
        drop((late, reads));
        if is_created_again {
            assert_eq!(db.read().open(NUMBERS).unwrap().iter().count(), 7, "{case:?}");
            let young = db.begin_with(options);
            assert!(young.drop_table(NUMBERS.name()).unwrap(), "{case:?}");
            young.commit().unwrap();
        }
    }
    // It did not see the table, which has come since.
    let early = db.begin_with(options);
    fill(&db, 3);
    let refused = early.drop_table(NUMBERS.name());
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
    assert_eq!(db.read().open(NUMBERS).unwrap().iter().count(), 3);
    // What it drops itself is no other one's drop, and neither is what it creates in its place.
    let own = db.begin_with(options);
    assert!(own.drop_table(NUMBERS.name()).unwrap() && !own.drop_table(NUMBERS.name()).unwrap());
    own.open(NUMBERS).unwrap().insert(1, 1).unwrap();
    assert!(own.drop_table(NUMBERS.name()).unwrap() && !own.drop_table(NUMBERS.name()).unwrap());
    own.commit().unwrap();
    assert!(matches!(db.read().open(NUMBERS), Err(Error::NoTable { .. })));
}

/// They count as old versions do, from the first look at what is held on.
#[test]
fn pages_of_a_dropped_table_count_for_the_oldest_snapshot_that_may_read_them() {
    let (db, _fs) = in_memory();
    let before = settle(&db);
    fill_round(&db, 1);
    let table = (settle(&db) - before) * 8192;
    let kept = |db: &Db| db.stats().oldest_snapshot.expect("a reader").bytes;
    let reader = db.read_with(ReadOptions::new().label("patient"));
    assert_eq!(round_of(&reader), 1);
    let versions = kept(&db);
    drop_numbers(&db);
    db.vacuum().unwrap();
    let of_table = kept(&db) - versions;
    // The drop itself leaves versions of some rows of the catalogue.
    assert!((table * 9 / 10..table + 64 * 1024).contains(&of_table), "{of_table} bytes for a table of {table}");
    // A younger reader needs none of them, and what is kept for the older one stays its own.
    let young = db.read();
    assert!(kept(&db) - versions >= table * 9 / 10 && young.open(TEXTS).is_err());
    assert_eq!(round_of(&reader), 1);
    drop(reader);
    assert_eq!((settle(&db), db.stats().held_tables), (before, 0));
    assert!(kept(&db) < table / 2, "{} bytes are kept for a younger one", kept(&db));
}

/// A vacuum leaves no held table uncounted, whatever other threads do.
#[test]
fn pages_of_a_dropped_table_count_once_for_two_threads_that_count_them() {
    let db = small().lab(|lab| lab.background = false).device(Device::Null).open(DIR).unwrap();
    fill_round(&db, 1);
    let reader = db.read_with(ReadOptions::new().label("patient"));
    assert_eq!(round_of(&reader), 1);
    drop_numbers(&db);
    let kept = |db: &Db| db.stats().oldest_snapshot.expect("a reader").bytes;
    let versions = kept(&db);
    let (counts, beside) = (Rc::new(Cell::new(0)), db.clone());
    let counted = counts.clone();
    pause::set("db: the pages of a dropped table are to be counted", move || {
        beside.vacuum().unwrap();
        counted.set(kept(&beside));
    });
    db.vacuum().unwrap();
    pause::set("nowhere", || ());
    assert!(counts.get() > versions + 8192 * 4, "{} bytes after {versions}", counts.get());
    assert_eq!(kept(&db), counts.get(), "they count once");
    assert_eq!(db.stats().held_tables, 1);
}

#[test]
fn a_snapshot_that_holds_more_pages_of_dropped_tables_than_it_may_is_given_up() {
    let (db, _fs) = in_memory();
    let before = settle(&db);
    fill_round(&db, 1);
    let table = (settle(&db) - before) * 8192;
    for (limit, stays) in [(table / 2, false), (2 * table + 256 * 1024, true)] {
        let reader = db.read_with(ReadOptions::new().label("limited").snapshot_max_bytes(limit));
        assert_eq!(round_of(&reader), 1);
        drop_numbers(&db);
        db.vacuum().unwrap();
        assert_eq!(db.stats().held_tables, u64::from(stays), "{limit} bytes");
        if stays {
            assert_eq!(round_of(&reader), 1);
        } else {
            let refused = reader.open(NUMBERS).map(drop);
            assert!(matches!(refused, Err(Error::SnapshotTooOld { label: "limited", .. })), "{refused:?}");
            assert_eq!(settle(&db), before);
            fill_round(&db, 1);
        }
    }
}

#[test]
fn a_full_disk_names_the_snapshot_that_holds_pages_of_a_dropped_table() {
    for holds in [false, true] {
        let sim = disk(5);
        let db = open_sim(&sim).unwrap();
        fill_round(&db, 1);
        db.run(|tx| tx.open(TEXTS).map(drop)).unwrap();
        let reader = holds.then(|| db.read_with(ReadOptions::new().label("keeper")));
        drop_numbers(&db);
        db.vacuum().unwrap();
        // It was taken after the drop, and needs nothing of the table.
        let _young = db.read_with(ReadOptions::new().label("young"));
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
        let refused = (0..).find_map(|n: u64| {
            db.checkpoint().unwrap();
            db.run(|tx| tx.open(TEXTS)?.insert(&*format!("{n}"), &*"x".repeat(1500)).map(drop)).err()
        });
        let Some(Error::DiskFull { path, held_by }) = &refused else { panic!("{refused:?}") };
        assert!(path.ends_with("data"), "{refused:?}");
        assert_eq!(*held_by, reader.as_ref().map(|_| "keeper"));
        assert!(!holds || refused.unwrap().to_string().contains("\"keeper\""));
    }
}
