//! Snapshot readers wait for no transaction and see one state, whatever others write meanwhile.

use crate::support::{DIR, NUMBERS, TEXTS, fill, in_memory, small};
use foreshore::{Db, Device, Error, Isolation, ReadOptions, TableDef, Transaction, TxnOptions};
use std::time::Duration;

fn at(isolation: Isolation) -> TxnOptions {
    TxnOptions::new().isolation(isolation).lock_timeout(Duration::ZERO)
}

fn set(db: &Db, key: u64, value: i64) {
    db.run(|tx| tx.open(NUMBERS)?.insert(key, value).map(drop)).unwrap();
}

fn get(tx: &Transaction, key: u64) -> Option<i64> {
    tx.open(NUMBERS).unwrap().get(key).unwrap()
}

#[test]
fn a_reader_sees_the_rows_as_they_were_when_it_began() {
    let (db, _) = in_memory();
    fill(&db, 500);
    let reader = db.read();
    let before: Vec<(u64, i64)> = (0..500).map(|n| (n, n as i64)).collect();
    for round in 1..20 {
        db.run(|tx| {
            let numbers = tx.open(NUMBERS)?;
            // Splits leaves between the old rows, changes and removes those, and brings some back.
            for n in (round % 7..500).step_by(7) {
                numbers.insert(n, -1)?;
                numbers.insert(1000 * round + n, 1)?;
            }
            for n in (round % 11..500).step_by(11) {
                numbers.remove(n)?;
            }
            Ok::<_, Error>(())
        })
        .unwrap();
        // A change of every row that is under way, and taken back.
        let other = db.begin();
        let numbers = other.open(NUMBERS).unwrap();
        (0..500).try_for_each(|n| numbers.insert(n, -2).map(drop)).unwrap();
        let read = reader.open(NUMBERS).unwrap();
        assert_eq!(read.iter().collect::<Result<Vec<_>, _>>().unwrap(), before, "round {round}");
        for n in [0, 7, 11, 77, 499] {
            assert_eq!(read.get(n).unwrap(), Some(n as i64), "round {round}");
        }
        assert_eq!(read.get(1000 * round).unwrap(), None);
        other.rollback().unwrap();
        assert_eq!(read.range(100..200).count(), 100, "round {round}");
    }
    reader.finish().unwrap().wait().unwrap();
    assert_ne!(db.read().open(NUMBERS).unwrap().iter().count(), 500);
    db.check().unwrap();
}

/// The change that replaces a lock entry is undone up to a savepoint before the lock, which stays, and the row is
/// changed again.
#[test]
fn rows_that_are_locked_and_changed_and_taken_back_and_changed_again_are_read_as_they_were() {
    const ROWS: u64 = 6;
    let (db, _) = in_memory();
    fill(&db, ROWS);
    let change = |tx: &Transaction, key: u64, new: Option<i64>| {
        let numbers = tx.open(NUMBERS).unwrap();
        new.map_or_else(|| numbers.remove(key).unwrap(), |new| numbers.insert(key, new).unwrap())
    };
    let seen = |reader: &foreshore::ReadTransaction| -> Vec<Option<i64>> {
        let numbers = reader.open(NUMBERS).unwrap();
        (0..ROWS).map(|key| numbers.get(key).unwrap()).collect()
    };
    let (first, mut rows) = (db.read(), (0..ROWS).map(|n| Some(n as i64)).collect::<Vec<_>>());
    let began = rows.clone();
    for round in 1..=24_i64 {
        let last = db.read();
        let is_as_it_was = |rows: &[Option<i64>], when: &str| {
            assert_eq!(seen(&first), began, "round {round}, {when}");
            assert_eq!(seen(&last), rows, "round {round}, {when}");
            assert_eq!(seen(&db.read()), rows, "round {round}, {when}");
        };
        let tx = db.begin();
        let mut after = rows.clone();
        for key in 0..ROWS {
            let old = rows[key as usize];
            // Before the lock, and for some rows one more between the lock and the change.
            let before = tx.savepoint().unwrap();
            assert_eq!(tx.open(NUMBERS).unwrap().get_for_update(key).unwrap(), old);
            let between = (key % 3 == 1).then(|| tx.savepoint().unwrap());
            for turn in 0..=key % 2 {
                assert_eq!(change(&tx, key, (turn == 0).then_some(-round)), old);
                is_as_it_was(&rows, "before it is taken back");
                tx.rollback_to(between.as_ref().filter(|_| turn == 0).unwrap_or(&before)).unwrap();
                assert_eq!(get(&tx, key), old);
                is_as_it_was(&rows, "when it is taken back");
            }
            after[key as usize] = ((round + key as i64) % 3 > 0).then_some(100 * round + key as i64);
            assert_eq!(change(&tx, key, after[key as usize]), old);
            is_as_it_was(&rows, "when it is changed again");
        }
        if round % 2 == 0 {
            tx.rollback().unwrap();
            is_as_it_was(&rows, "when all is taken back");
        } else {
            tx.commit().unwrap();
            assert_eq!((seen(&first), seen(&last)), (began.clone(), rows), "round {round}");
            rows = after;
            assert_eq!(seen(&db.read()), rows, "round {round}");
        }
    }
    drop(first);
    db.check().unwrap();
}

#[test]
fn old_values_of_any_length_come_back_whole() {
    const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");
    let (db, _) = in_memory();
    let value = |n: usize, len: usize| (0..len).map(|at| (at * 31 + n) as u8).collect::<Vec<u8>>();
    let lens = [0, 1, 7, 8, 9, 100, 2000, 2047, 2048];
    let write = |round: usize| {
        db.run(|tx| {
            let blobs = tx.open(BLOBS)?;
            lens.iter().enumerate().try_for_each(|(n, &len)| {
                // The ends stay, the middle and the length change.
                let mut new = value(n, len * (4 - round) / 4);
                let middle = new.len() / 3..new.len() / 2;
                new[middle].fill(round as u8);
                blobs.insert(n as u64, &new[..]).map(drop)
            })
        })
        .unwrap();
    };
    write(0);
    let reader = db.read();
    (1..4).for_each(write);
    let blobs = reader.open(BLOBS).unwrap();
    for (n, &len) in lens.iter().enumerate() {
        let mut expected = value(n, len);
        expected[len / 3..len / 2].fill(0);
        assert_eq!(blobs.get(n as u64).unwrap(), Some(expected), "{len}");
    }
}

#[test]
fn a_durable_reader_sees_what_was_acknowledged_and_the_latest_one_tells_when_it_may_be_told() {
    let (db, _) = in_memory();
    set(&db, 1, 1);
    let read = |options| {
        let reader = db.read_with(options);
        let value = reader.open(NUMBERS).unwrap().get(1).unwrap();
        (value, reader.finish().unwrap())
    };
    assert_eq!(read(ReadOptions::new()).0, Some(1));
    let writer = db.begin();
    writer.open(NUMBERS).unwrap().insert(1, 2).unwrap();
    assert_eq!(read(ReadOptions::new().latest()).0, Some(1), "it has not committed");
    let written = writer.commit_pipelined().unwrap();
    let (value, ticket) = read(ReadOptions::new().latest());
    assert_eq!((value, ticket.csn()), (Some(2), written.csn()));
    ticket.wait().unwrap();
    assert_eq!(read(ReadOptions::new()).0, Some(2));
}

#[test]
fn the_first_updater_wins() {
    let (db, _) = in_memory();
    fill(&db, 10);
    for remove in [false, true] {
        let second = db.begin_with(at(Isolation::Snapshot));
        assert_eq!(get(&second, 3), Some(3));
        let first = db.begin_with(at(Isolation::Snapshot));
        let numbers = first.open(NUMBERS).unwrap();
        if remove {
            numbers.remove(3).unwrap();
        } else {
            numbers.insert(3, 30).unwrap();
            numbers.insert(3, 3).unwrap();
        }
        first.commit().unwrap();
        assert_eq!(get(&second, 3), Some(3), "its snapshot");
        let refused = second.open(NUMBERS).unwrap().insert(3, 31);
        assert!(matches!(&refused, Err(error @ Error::Conflict { .. }) if error.is_retryable()), "{refused:?}");
        assert!(matches!(second.commit(), Err(Error::RolledBack)));
    }
    // A transaction that is rolled back has not been first.
    let second = db.begin_with(at(Isolation::Snapshot));
    let first = db.begin();
    first.open(NUMBERS).unwrap().insert(4, 40).unwrap();
    let waits = second.open(NUMBERS).unwrap().get(4).unwrap();
    assert_eq!(waits, Some(4), "reads wait for nobody");
    first.rollback().unwrap();
    second.open(NUMBERS).unwrap().insert(4, 41).unwrap();
    assert_eq!(get(&second, 4), Some(41), "its own changes");
    second.commit().unwrap();
    let missing = db.begin_with(at(Isolation::Snapshot));
    assert_eq!(missing.open(NUMBERS).unwrap().remove(77).unwrap(), None);
    set(&db, 77, 1);
    assert_eq!(get(&missing, 77), None, "absence is not locked, and stays");
    assert!(matches!(missing.open(NUMBERS).unwrap().insert_new(77, 2), Err(Error::Conflict { .. })));
}

#[test]
fn read_committed_sees_each_time_what_is_committed() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let tx = db.begin_with(at(Isolation::ReadCommitted));
    assert_eq!(get(&tx, 1), Some(1));
    let writer = db.begin();
    writer.open(NUMBERS).unwrap().insert(1, 2).unwrap();
    assert_eq!(get(&tx, 1), Some(1), "nothing dirty");
    let mut scan = tx.open(NUMBERS).unwrap().iter();
    assert_eq!(scan.next().unwrap().unwrap(), (0, 0));
    writer.commit().unwrap();
    assert_eq!(scan.next().unwrap().unwrap(), (1, 1), "one scan is one statement");
    assert_eq!(get(&tx, 1), Some(2));
    assert_eq!(tx.open(NUMBERS).unwrap().insert(1, 3).unwrap(), Some(2), "it writes what is newest");
    tx.commit().unwrap();
    assert_eq!(db.read().open(NUMBERS).unwrap().get(1).unwrap(), Some(3));
}

#[test]
fn a_reader_does_not_see_a_table_come_or_go() {
    let (db, _) = in_memory();
    let early = db.read();
    assert!(matches!(early.open(NUMBERS), Err(Error::NoTable { .. })));
    fill(&db, 10);
    assert_eq!(early.open(NUMBERS).unwrap().iter().count(), 0, "created after it began");
    drop(early);
    let reader = db.read();
    assert_eq!(reader.open(NUMBERS).unwrap().iter().count(), 10);
    db.run(|tx| tx.drop_table("numbers")).unwrap();
    assert_eq!(reader.open(NUMBERS).unwrap().iter().count(), 10, "dropped after it began");
    assert!(matches!(db.read().open(NUMBERS), Err(Error::NoTable { .. })));
    assert!(matches!(db.read().open(TEXTS), Err(Error::NoTable { .. })));
}

#[test]
fn ghosts_stay_while_a_reader_sees_the_rows() {
    let (db, _) = in_memory();
    fill(&db, 2000);
    let reader = db.read();
    for _ in 0..3 {
        db.run(|tx| {
            let numbers = tx.open(NUMBERS)?;
            // What is not there to remove is locked too.
            numbers.lock_against_writes()?;
            (0..2000).try_for_each(|n| numbers.remove(n).map(drop))?;
            (0..2000).try_for_each(|n| numbers.insert(10_000 + n, 1).map(drop))
        })
        .unwrap();
    }
    let rows: Result<Vec<_>, _> = reader.open(NUMBERS).unwrap().iter().collect();
    assert!(rows.unwrap().into_iter().eq((0..2000).map(|n| (n, n as i64))));
}

#[test]
fn a_long_reader_keeps_the_rows_that_it_sees_and_not_all_that_follow() {
    const ROWS: u64 = 500;
    let (db, _) = in_memory();
    fill(&db, ROWS);
    let reader = db.read();
    let rows = || reader.open(NUMBERS).unwrap().iter().collect::<Result<Vec<_>, _>>().unwrap();
    let before = rows();
    let limit = db.stats().memory.undo;
    // Several times as much undo as there is memory for.
    for round in 0..200 {
        db.run(|tx| {
            let numbers = tx.open(NUMBERS)?;
            (0..ROWS).try_for_each(|n| numbers.insert(n, round).map(drop))
        })
        .unwrap();
        assert!(db.stats().memory_use.undo <= limit);
    }
    assert_eq!(rows(), before);
    drop(reader.finish().unwrap());
}

const AGE: Duration = Duration::from_millis(50);

/// Updates rows until the reader has lost its snapshot.
fn write_until_given_up(db: &Db, reader: &foreshore::ReadTransaction) {
    for round in 1..10_000 {
        db.run(|tx| {
            let numbers = tx.open(NUMBERS)?;
            (0..500).try_for_each(|n| numbers.insert(n, round).map(drop))
        })
        .unwrap();
        match reader.open(NUMBERS).and_then(|numbers| numbers.get(7)) {
            Ok(found) => assert_eq!(found, Some(7), "round {round}"),
            Err(Error::SnapshotTooOld { label: "old", age, bytes }) => {
                assert!(age >= AGE && bytes > 0, "{age:?}, {bytes} bytes");
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it is still there")
}

#[test]
fn a_snapshot_that_is_too_old_is_cancelled_by_writers() {
    let db = small().device(Device::Null).snapshot_max_age(AGE).open(DIR).unwrap();
    fill(&db, 500);
    let reader = db.read_with(ReadOptions::new().label("old"));
    let oldest = db.stats().oldest_snapshot.expect("one is in use");
    assert_eq!((oldest.label, oldest.bytes), ("old", 0));
    write_until_given_up(&db, &reader);
    let stats = db.stats();
    assert!(stats.txn.snapshots_cancelled >= 1 && stats.memory_use.undo < stats.memory.undo, "{:?}", stats.txn);
    assert!(stats.oldest_snapshot.is_none_or(|oldest| oldest.label != "old"));
    // Others are as young as they should be.
    assert!(db.read().open(NUMBERS).unwrap().get(7).unwrap().is_some());
}

#[test]
fn a_snapshot_for_which_too_much_is_kept_is_cancelled_by_writers() {
    const MOST: u64 = 40 << 10;
    let db = small().device(Device::Null).snapshot_max_bytes(MOST).open(DIR).unwrap();
    fill(&db, 3000);
    let exempt = ReadOptions::new().label("exempt").snapshot_max_bytes(u64::MAX);
    for (reader, limit) in [(ReadOptions::new().label("old"), Some(MOST)), (exempt, None)] {
        let reader = db.read_with(reader);
        for from in (0..3000).step_by(100) {
            db.run(|tx| {
                let numbers = tx.open(NUMBERS)?;
                (from..from + 100).try_for_each(|n| numbers.insert(n, 1 - n as i64).map(drop))
            })
            .unwrap();
        }
        assert!(db.stats().memory_use.undo < db.stats().memory.undo, "there is room for more");
        match (reader.open(NUMBERS).and_then(|rows| rows.get(7)), limit) {
            (Err(Error::SnapshotTooOld { label: "old", bytes, .. }), Some(most)) => {
                assert!(bytes > most && bytes < most + (64 << 10), "{bytes} bytes");
            }
            (Ok(Some(_)), None) => {
                let oldest = db.stats().oldest_snapshot.expect("it is in use");
                assert!(oldest.label == "exempt" && oldest.bytes > MOST, "{oldest:?}");
            }
            (outcome, _) => panic!("{outcome:?}"),
        }
    }
    assert_eq!(db.stats().txn.snapshots_cancelled, 1);
}

/// One that may stay keeps no other from its limit.
#[test]
fn a_transaction_may_have_a_limit_of_its_own_for_its_snapshot() {
    let db = small().device(Device::Null).open(DIR).unwrap();
    fill(&db, 500);
    let stays = db.read_with(ReadOptions::new().label("stays"));
    let own = TxnOptions::new().isolation(Isolation::Snapshot).label("own").snapshot_max_age(AGE);
    let goes = db.begin_with(own);
    assert_eq!(get(&goes, 7), Some(7));
    for round in 1..10_000 {
        db.run(|tx| {
            let numbers = tx.open(NUMBERS)?;
            (0..500).try_for_each(|n| numbers.insert(n, round).map(drop))
        })
        .unwrap();
        assert_eq!(stays.open(NUMBERS).unwrap().get(7).unwrap(), Some(7), "round {round}");
        match goes.open(NUMBERS).and_then(|numbers| numbers.get(7)) {
            Ok(found) => assert_eq!(found, Some(7), "round {round}"),
            Err(Error::SnapshotTooOld { label: "own", age, .. }) => return assert!(age >= AGE, "{age:?}"),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it is still there")
}

#[test]
fn undo_stays_within_its_limit_and_costs_the_reader_its_snapshot() {
    const LIMIT: u64 = 128 << 10;
    let db = small().device(Device::Null).lab(|lab| lab.undo_limit = Some(LIMIT)).open(DIR).unwrap();
    assert_eq!(db.stats().memory.undo, LIMIT);
    fill(&db, 3000);
    let reader = db.read_with(ReadOptions::new().label("old"));
    // What it sees of so many rows is more than the limit.
    let spoiled = (0..3000).step_by(100).try_for_each(|from| {
        db.run(|tx| {
            let numbers = tx.open(NUMBERS)?;
            (from..from + 100).try_for_each(|n| numbers.insert(n, 1).map(drop))
        })
    });
    spoiled.unwrap();
    assert!(matches!(
        reader.open(NUMBERS).and_then(|rows| rows.get(7)),
        Err(Error::SnapshotTooOld { label: "old", .. })
    ));
    assert!(db.stats().txn.snapshots_cancelled >= 1 && db.stats().memory_use.undo <= LIMIT);
    let large: Result<(), Error> = db.run(|tx| {
        let numbers = tx.open(NUMBERS)?;
        (0..3000).try_for_each(|n| numbers.insert(n, 2).map(drop))
    });
    assert!(matches!(large, Err(Error::TransactionTooLarge { max }) if max as u64 == LIMIT), "{large:?}");
    assert_eq!(db.read().open(NUMBERS).unwrap().get(7).unwrap(), Some(1));
}

#[test]
fn a_limit_of_undo_out_of_range_is_refused() {
    for bytes in [1, 4 << 20] {
        let refused = small().device(Device::Null).lab(|lab| lab.undo_limit = Some(bytes)).open(DIR);
        assert!(matches!(refused, Err(Error::InvalidOption { name: "undo_limit", .. })), "{refused:?}");
    }
}

/// Each iterator of a read-committed transaction reads by a snapshot of its own.
#[test]
fn thousands_of_iterators_are_open_at_once() {
    let (db, _) = in_memory();
    fill(&db, 2);
    let tx = db.begin_with(TxnOptions::new().isolation(Isolation::ReadCommitted));
    let table = tx.open(NUMBERS).unwrap();
    let mut open: Vec<_> = (0..3000).map(|_| table.iter()).collect();
    for first in open.iter_mut().map(Iterator::next) {
        assert_eq!(first.unwrap().unwrap(), (0, 0));
    }
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 10)).unwrap();
    let values: Vec<_> = open.into_iter().map(|mut rows| rows.next().unwrap().unwrap().1).collect();
    assert_eq!(values, [1; 3000], "each goes on by its snapshot");
    assert_eq!(table.get(1).unwrap(), Some(10));
}
