//! A full disk fails the transactions that need space, and nothing else: reads go on, rollbacks work, and freed space
//! makes writes go on.

use crate::script::{Script, disk, open, options};
use crate::support::{DIR, NUMBERS};
use foreshore::{Db, Error, TableDef, Transaction, TxnOptions};
use foreshore_io::sim::{Fault, FaultKind, Persist};

const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");

#[test]
fn writes_are_refused_reads_go_on_and_freed_space_lets_writes_go_on() {
    let sim = disk(1);
    let db = open(&sim).unwrap();
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 11).map(drop)).unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let value = vec![7; 2000];
    let mut written = 0;
    let error = loop {
        match db.run(|tx| tx.open(BLOBS)?.insert_new(written, &*value)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        db.step();
        assert!(written < 10_000, "the disk was never full");
    };
    assert!(matches!(&error, Error::DiskFull { path, .. } if path.starts_with(DIR)), "{error:?}");
    assert_eq!(db.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap(), Some(11));
    // What was open can be given up, and what was committed is there.
    let tx = db.begin();
    let _ = tx.open(NUMBERS).and_then(|table| table.insert(1, 12));
    tx.rollback().unwrap();
    assert_eq!(db.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap(), Some(11));
    if written > 0 {
        assert_eq!(db.run(|tx| tx.open(BLOBS)?.get(written - 1)).unwrap().as_deref(), Some(&*value));
    }
    sim.clear_faults();
    for n in 0..50 {
        db.run(|tx| tx.open(BLOBS)?.insert(1_000_000 + n, &*value).map(drop)).unwrap();
    }
    db.check().unwrap();
    let db = db.reopen().unwrap();
    assert_eq!(db.run(|tx| tx.open(BLOBS)?.get(1_000_049)).unwrap().as_deref(), Some(&*value));
    db.check().unwrap();
}

/// Dropping a table frees space, so it works when nothing else does. That includes a split that stayed open because
/// its parent would have had to split, too.
#[test]
fn a_table_can_be_dropped_on_a_full_disk_and_its_pages_be_used() {
    const DEEP: TableDef<&str, &[u8]> = TableDef::new("deep");
    for others in (0..60).step_by(3) {
        let sim = disk(3);
        let db = open(&sim).unwrap();
        // The log goes round, and makes no new files.
        for n in 0..1000 {
            db.run(|tx| tx.open(BLOBS)?.insert(n % 100, &[n as u8; 1000][..]).map(drop)).unwrap();
            db.step();
        }
        (0..others).for_each(|n| db.run(|tx| tx.open(BLOBS)?.insert(1000 + n, &[7; 2000][..]).map(drop)).unwrap());
        let insert = |n| db.run(|tx| tx.open(DEEP)?.insert_new(&*format!("{n:0900}"), &[7; 1000][..]));
        (0..200).for_each(|n| insert(n).unwrap());
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
        let fill = |first| {
            for n in first.. {
                // The log has room as it goes round, so what is full is the data.
                db.checkpoint().unwrap();
                match insert(n) {
                    Ok(()) => {}
                    Err(Error::DiskFull { path, .. }) if path.ends_with("data") => return n,
                    Err(error) => panic!("{error:?}"),
                }
            }
            unreachable!("the disk was never full")
        };
        let rows = fill(200);
        assert!(db.run(|tx| tx.drop_table(DEEP.name())).unwrap());
        // A vacuum would give the room back to others.
        (0..200).for_each(|_| db.step());
        let again = fill(0);
        assert!(again + 8 > rows, "{others} rows of others, {rows} rows and then {again}");
        db.check().unwrap();
    }
}

/// The catalogue notes dropped tables, and if its leaf is full a page is reserved for that. Tables dropped in one
/// transaction leave no space in it for a later row.
#[test]
fn many_tables_can_be_dropped_on_a_full_disk_at_once() {
    const TABLES: u64 = 80;
    for commits in [false, true] {
        let sim = disk(3);
        let db = open(&sim).unwrap();
        let name = |n: u64| format!("{n:0100}");
        (0..TABLES).for_each(|n| db.run(|tx| tx.open(TableDef::<u64, u64>::new(&name(n))).map(drop)).unwrap());
        let insert = |n| db.run(|tx| tx.open(BLOBS)?.insert_new(n, &[7; 2000][..]));
        insert(0).unwrap();
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
        let refused = (1..).find_map(|n| {
            db.checkpoint().unwrap();
            insert(n).err()
        });
        assert!(matches!(&refused, Some(Error::DiskFull { path, .. }) if path.ends_with("data")), "{refused:?}");
        let before = db.stats().tree.leaf_splits;
        let tx = db.begin();
        (0..TABLES).for_each(|n| assert!(tx.drop_table(&name(n)).unwrap(), "table {n}"));
        assert!(db.stats().tree.leaf_splits > before, "there was room in the leaf");
        if commits {
            tx.commit().unwrap();
            (0..TABLES).for_each(|_| db.step());
        } else {
            tx.rollback().unwrap();
        }
        let tx = db.begin();
        (0..TABLES).for_each(|n| assert_eq!(tx.drop_table(&name(n)).unwrap(), !commits));
        tx.rollback().unwrap();
        db.check().unwrap();
    }
}

#[test]
fn no_space_from_any_operation_on_loses_nothing() {
    let base = disk(2);
    drop(open(&base).unwrap());
    let first = base.ops();
    let mut refused = 0;
    for at in (first..first + 400).step_by(23) {
        let sim = base.fork();
        sim.inject(Fault { at, kind: FaultKind::Enospc, sticky: true });
        let Ok(db) = open(&sim) else {
            sim.clear_faults();
            open(&sim).unwrap().check().unwrap();
            continue;
        };
        let mut script = Script::new(&sim, 11);
        match script.run(&db, 120) {
            Ok(()) => {}
            Err(Error::DiskFull { .. }) => refused += 1,
            Err(error) => panic!("operation {at}: {error:?}"),
        }
        sim.clear_faults();
        script.verify(&db, sim.ops()).unwrap_or_else(|why| panic!("operation {at}: {why}"));
        let db = db.reopen().unwrap_or_else(|error| panic!("operation {at}: {error:?}"));
        script.verify(&db, sim.ops()).unwrap_or_else(|why| panic!("operation {at}, reopened: {why}"));
    }
    assert!(refused > 0);
}

#[test]
fn creation_on_a_full_disk_fails_and_works_later() {
    for at in 0..30 {
        let sim = disk(9);
        sim.inject(Fault { at, kind: FaultKind::Enospc, sticky: true });
        match options(&sim).open(DIR) {
            Err(Error::DiskFull { .. }) => {}
            Err(error) => panic!("operation {at}: {error:?}"),
            Ok(db) => drop(db),
        }
        sim.clear_faults();
        let db = open(&sim).unwrap_or_else(|error| panic!("operation {at}: {error:?}"));
        db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
        db.check().unwrap();
    }
}

/// Log space for the decision about a prepared transaction is reserved, now and after a restart. Each rollback writes
/// its own group before it undoes anything.
#[test]
fn prepared_transactions_are_resolved_on_a_full_disk() {
    for (count, rows) in [(5, 1), (40, 5), (1, 100), (1, 380)] {
        for restarts in [false, true] {
            let sim = disk(4);
            let mut db = open(&sim).unwrap();
            let keys = |n: u64| (0..rows).map(move |row| n * 1000 + row);
            let put = |tx: &Transaction, n, byte| {
                let table = tx.open(BLOBS)?;
                keys(n).try_for_each(|key| table.insert(key, &[byte; 1000][..]).map(drop))
            };
            for n in 0..count {
                db.run(|tx| put(tx, n, 1)).unwrap();
                let tx = db.begin();
                put(&tx, n, 2).unwrap();
                tx.prepare(&n.to_string()).unwrap();
                (0..3).for_each(|_| db.step());
            }
            sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
            let refused = (0..10_000).find_map(|n| db.run(|tx| tx.open(NUMBERS)?.insert(n, 1).map(drop)).err());
            assert!(matches!(refused, Some(Error::DiskFull { .. })), "{refused:?}");
            let sim = if restarts { sim.crash_image(&Persist::None, 1) } else { sim };
            if restarts {
                sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
                db = open(&sim).unwrap();
            }
            let commits = |n| n % 7 == 3;
            for n in 0..count {
                let name = n.to_string();
                let resolved =
                    if commits(n) { db.commit_prepared(&name).map(drop) } else { db.rollback_prepared(&name) };
                resolved.unwrap_or_else(|error| panic!("{count} of {rows}, restarts {restarts}, {n}: {error}"));
            }
            let verify = |db: &Db| {
                let reader = db.read();
                let table = reader.open(BLOBS).unwrap();
                for (n, key) in (0..count).flat_map(|n| keys(n).map(move |key| (n, key))) {
                    assert_eq!(table.get(key).unwrap().unwrap()[0], 1 + u8::from(commits(n)), "row {key}");
                }
            };
            verify(&db);
            let sim = sim.crash_image(&Persist::None, 2);
            verify(&open(&sim).unwrap());
        }
    }
}

/// Existing rows can be updated on a full disk without end: the log is recycled. A writer that finds no space requests
/// it, and two checkpoints recycle old segments. It holds whenever the disk fills up.
#[test]
fn updates_go_on_on_a_full_disk() {
    let base = disk(5);
    let update = |db: &Db, n: u64| db.run(|tx| tx.open(BLOBS)?.insert(n % 50, &[n as u8; 500][..]).map(drop));
    {
        let db = open(&base).unwrap();
        for n in 0..200 {
            update(&db, n).unwrap();
            db.step();
        }
        db.close(std::time::Duration::ZERO).unwrap();
    }
    for after in (0..120).step_by(3) {
        let sim = base.fork();
        let db = open(&sim).unwrap();
        for n in 0..100 {
            update(&db, n).unwrap();
            db.step();
        }
        // In the middle of an operation, too.
        sim.inject(Fault { at: sim.ops() + after, kind: FaultKind::Enospc, sticky: true });
        let before = db.stats();
        for n in 100..600 {
            update(&db, n).unwrap_or_else(|error| panic!("full after {after} operations, update {n}: {error:?}"));
        }
        let stats = db.stats();
        assert!(stats.log.group_bytes - before.log.group_bytes > 20 * 65536, "the log went round");
        assert!(stats.checkpoint.checkpoints > before.checkpoint.checkpoints);
        let db = db.reopen().unwrap();
        assert_eq!(db.run(|tx| tx.open(BLOBS)?.get(599 % 50)).unwrap().as_deref(), Some(&[87; 500][..]));
        db.check().unwrap();
    }
}

/// The same with threads: writers wait for the checkpointer and are not refused. It holds however little log is left
/// when the disk fills up: all of it may lie behind writers that wait for space with an xid and without a record.
#[test]
fn writers_wait_on_a_full_disk_until_the_checkpointer_has_given_up_log() {
    const THREADS: u64 = 4;
    for before in [1, 5, 20, 100] {
        let sim = disk(6);
        let db = options(&sim).lab(|lab| lab.background = true).open(DIR).unwrap();
        let update = |thread: u64, n: u64| {
            db.run(|tx| tx.open(BLOBS)?.insert(thread * 100 + n % 20, &[n as u8; 500][..]).map(drop))
        };
        let all = |count: u64| {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let update = &update;
                    scope.spawn(move || {
                        for n in 0..count {
                            update(thread, n).unwrap_or_else(|error| panic!("{before} before, update {n}: {error:?}"));
                        }
                    });
                }
            });
        };
        // As many sessions at once as later on: the space that is kept back for them is made while there is some.
        db.run(|tx| tx.open(BLOBS).map(drop)).unwrap();
        let at_once: Vec<_> = (0..THREADS).map(|_| db.begin()).collect();
        for (thread, tx) in (0..).zip(&at_once) {
            tx.open(BLOBS).unwrap().insert(thread * 100, &[0; 500][..]).unwrap();
        }
        for tx in at_once {
            tx.commit().unwrap();
        }
        all(before);
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
        all(500);
        assert_eq!(db.stats().checkpoint.failures, 0);
        db.check().unwrap();
    }
}

/// A transaction that has only locked rows has nothing in the log, so it retains none however long it is open.
#[test]
fn a_transaction_that_only_holds_locks_keeps_no_log_on_a_full_disk() {
    let sim = disk(8);
    let db = open(&sim).unwrap();
    let insert = |n: u64| db.run(|tx| tx.open(BLOBS)?.insert(n, &[n as u8; 500][..]).map(drop));
    for n in 0..100 {
        insert(n).unwrap();
        db.step();
    }
    let old = db.begin_with(TxnOptions::new().label("old"));
    assert!(old.open(BLOBS).unwrap().get_for_update(99).unwrap().is_some());
    let oldest = db.stats().oldest_transaction.unwrap();
    assert_eq!((oldest.label, oldest.first_group, oldest.log_bytes), ("old", None, 0));
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    (0..600).for_each(|n| insert(n % 50).unwrap_or_else(|error| panic!("row {n}: {error:?}")));
    assert_eq!(db.stats().checkpoint.transaction_log_bytes, 0);
    // Its first change is as safe as any.
    assert!(old.open(BLOBS).unwrap().remove(99).unwrap().is_some());
    let next = db.stats().oldest_transaction.unwrap().first_group;
    assert!(next.is_some_and(|group| group >= db.stats().checkpoint.scan_start), "{next:?}");
    let image = sim.crash_image(&Persist::All, 1);
    let found = open(&image).unwrap().run(|tx| tx.open(BLOBS)?.get(99)).unwrap();
    assert!(found.is_some(), "it has not committed");
    old.commit().unwrap();
    assert_eq!(db.run(|tx| tx.open(BLOBS)?.get(99)).unwrap(), None);
    db.check().unwrap();
}

/// Work that frees space needs log, too, and some is reserved for it. That holds even if an old transaction retains
/// all the log and no checkpoint would help. Then none is taken, as it would only use up log.
#[test]
fn rows_and_tables_go_on_a_full_disk_whose_log_an_old_transaction_keeps() {
    const OLD: TableDef<u64, &[u8]> = TableDef::new("old");
    let sim = disk(7);
    let db = open(&sim).unwrap();
    let insert = |n: u64| db.run(|tx| tx.open(BLOBS)?.insert(n, &[n as u8; 500][..]).map(drop));
    db.run(|tx| tx.open(OLD)?.insert(1, &[1; 2000][..]).map(drop)).unwrap();
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
    for n in 0..100 {
        insert(n).unwrap();
        db.step();
    }
    let old = db.begin_with(TxnOptions::new().label("old"));
    old.open(NUMBERS).unwrap().insert(1, 2).unwrap();
    // Log that it keeps alone: no page needs it behind a checkpoint.
    (0..300).for_each(|n| insert(n % 100).unwrap());
    db.checkpoint().unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let refused = (0..10_000).find_map(|n| insert(n % 100).err());
    let is_named = |error: &Error| match error {
        Error::DiskFull { path, held_by } => path.starts_with("/db/log") && *held_by == Some("old"),
        _ => false,
    };
    assert!(refused.as_ref().is_some_and(is_named), "{refused:?}");
    let before = db.stats().checkpoint;
    for n in 0..20 {
        assert!(matches!(insert(n), Err(Error::DiskFull { .. })));
    }
    assert_eq!(db.stats().checkpoint.checkpoints, before.checkpoints, "they would give up nothing");
    assert!(before.transaction_log_bytes > before.page_log_bytes, "{before:?}");
    for n in 0..5 {
        assert!(db.run(|tx| tx.open(BLOBS)?.remove(n)).unwrap().is_some());
    }
    db.run(|tx| {
        let blobs = tx.open(BLOBS)?;
        assert!(blobs.get_for_update(5)?.is_some());
        blobs.remove(5).map(drop)
    })
    .unwrap();
    assert!(db.run(|tx| tx.drop_table(OLD.name())).unwrap());
    db.vacuum().unwrap();
    assert!(matches!(insert(50), Err(Error::DiskFull { .. })), "the old transaction is still there");
    old.rollback().unwrap();
    (0..200).for_each(|n| insert(n % 50).unwrap());
    db.check().unwrap();
}

/// A checkpoint takes log. Explicit ones free none while an old transaction retains all of it, and leave the log that
/// its rollback and a restart need.
#[test]
fn any_number_of_checkpoints_on_a_full_disk_leave_rollbacks_their_log() {
    let sim = disk(6);
    let db = open(&sim).unwrap();
    let insert = |n: u64| db.run(|tx| tx.open(BLOBS)?.insert(n, &[n as u8; 500][..]).map(drop));
    (0..100).for_each(|n| insert(n).unwrap());
    let old = db.begin();
    for n in 0..300 {
        old.open(BLOBS).unwrap().insert(1000 + n, &[77; 1000][..]).unwrap();
        db.step();
    }
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let refused = (0..10_000).find_map(|n| insert(n % 100).err());
    assert!(matches!(refused, Some(Error::DiskFull { .. })), "{refused:?}");
    let refused = (0..2000).find_map(|_| db.checkpoint().err());
    assert!(matches!(refused, Some(Error::DiskFull { .. })), "{refused:?}");
    (0..200).for_each(|_| drop(db.checkpoint()));
    let image = sim.crash_image(&Persist::None, 1);
    old.rollback().unwrap();
    (0..200).for_each(|n| insert(n % 50).unwrap());
    db.check().unwrap();
    image.inject(Fault { at: image.ops(), kind: FaultKind::Enospc, sticky: true });
    let db = open(&image).unwrap();
    assert_eq!(db.stats().recovery.parked, 0);
    assert_eq!(db.run(|tx| tx.open(BLOBS)?.get(1000)).unwrap(), None);
    db.check().unwrap();
}
