//! A dropped table goes as a whole, with the transaction that drops it, and its pages come back.

use crate::quarantine::{Kind, damage, on_sim, options, pages};
use crate::support::{DIR, NUMBERS, Snapshot, TEXTS, fill, in_memory, numbers, open, small};
use foreshore::limits::{BLOCK, PAGE_SIZE};
use foreshore::{Db, Error, Isolation, ReadOptions, TableDef, TxnOptions};
use foreshore_base::codec::u16_at;
use foreshore_base::crc32c;
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{Fs, Mem};
use std::sync::{Arc, mpsc};
use std::{thread, time::Duration};

const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");

/// Fills a table with so many large rows, four to a page.
fn fill_blobs(db: &Db, count: u64) {
    for from in (0..count).step_by(50) {
        db.run(|tx| {
            let table = tx.open(BLOBS)?;
            (from..count.min(from + 50)).try_for_each(|n| table.insert(n, &[7; 1900][..]).map(drop))
        })
        .unwrap();
    }
}

fn drop_numbers(db: &Db) -> bool {
    db.run(|tx| tx.drop_table(NUMBERS.name())).unwrap()
}

fn used(db: &Db) -> u64 {
    db.check().unwrap();
    db.stats().space.used_pages
}

#[test]
fn a_dropped_table_is_gone_and_its_pages_are_free() {
    let (db, fs) = in_memory();
    fill(&db, 1);
    drop_numbers(&db);
    db.vacuum().unwrap();
    let before = used(&db);
    for _ in 0..3 {
        fill(&db, 5000);
        assert!(used(&db) > before + 10);
        assert!(drop_numbers(&db));
        assert!(!drop_numbers(&db), "it is gone");
        db.vacuum().unwrap();
        assert_eq!(used(&db), before);
        assert_eq!(numbers(&db), [], "a new table");
    }
    drop_numbers(&db);
    db.vacuum().unwrap();
    assert_eq!(db.check().unwrap().tables, 0);
    db.close(Duration::ZERO).unwrap();
    let db = open(&fs).unwrap();
    assert_eq!(db.check().unwrap().tables, 0);
    assert_eq!(used(&db), before);
}

#[test]
fn a_drop_that_is_rolled_back_has_not_happened() {
    let (db, _fs) = in_memory();
    fill(&db, 300);
    let rows = numbers(&db);
    let tx = db.begin();
    assert!(tx.drop_table(NUMBERS.name()).unwrap());
    tx.open(NUMBERS).unwrap().insert(1_000_000, 1).unwrap();
    tx.rollback().unwrap();
    db.vacuum().unwrap();
    assert_eq!(numbers(&db), rows);
    db.check().unwrap();
}

#[test]
fn one_transaction_drops_and_creates_again_and_again() {
    let (db, fs) = in_memory();
    fill(&db, 300);
    db.run(|tx| {
        for round in 0..5 {
            assert!(tx.drop_table(NUMBERS.name())?);
            assert!(!tx.drop_table(NUMBERS.name())?);
            let table = tx.open(NUMBERS)?;
            assert_eq!(table.get(7)?, None, "a table without rows");
            table.insert(round, 1)?;
        }
        assert!(!tx.drop_table("nothing")?);
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(numbers(&db), [(4, 1)]);
    db.run(|tx| tx.drop_table(NUMBERS.name()).map(drop)).unwrap();
    // With another type, under the same name.
    db.run(|tx| tx.open(TableDef::<&str, &str>::new(NUMBERS.name()))?.insert("one", "two").map(drop)).unwrap();
    db.vacuum().unwrap();
    assert_eq!(db.check().unwrap().tables, 1);
    db.close(Duration::ZERO).unwrap();
    let db = open(&fs).unwrap();
    let text = db.run(|tx| tx.open(TableDef::<&str, &str>::new(NUMBERS.name()))?.get("one"));
    assert_eq!(text.unwrap().as_deref(), Some("two"));
}

#[test]
fn a_transaction_that_opened_a_table_without_use_learns_that_it_is_gone() {
    let (db, _fs) = in_memory();
    fill(&db, 10);
    let options = TxnOptions::new().isolation(Isolation::Serializable);
    let (reader, writer, scanner) = (db.begin_with(options), db.begin(), db.begin());
    let (read, written, scanned) =
        (reader.open(NUMBERS).unwrap(), writer.open(NUMBERS).unwrap(), scanner.open(NUMBERS).unwrap());
    let range = scanned.range(..);
    drop_numbers(&db);
    let error = read.get(1).unwrap_err();
    assert!(matches!(error, Error::TableDropped { .. }) && error.is_retryable(), "{error}");
    assert!(matches!(written.insert(1, 1), Err(Error::TableDropped { .. })));
    assert!(matches!(range.collect::<Result<Vec<_>, _>>(), Err(Error::TableDropped { .. })));
    assert!(matches!(reader.commit(), Err(Error::RolledBack)));
    drop((writer, scanner));
    assert_eq!(numbers(&db), []);
}

#[test]
fn a_drop_waits_for_the_users_of_the_table() {
    let (db, _fs) = in_memory();
    fill(&db, 10);
    let reader = db.begin();
    assert_eq!(reader.open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
    let impatient = db.begin_with(TxnOptions::new().lock_timeout(Duration::from_millis(1)));
    assert!(matches!(impatient.drop_table(NUMBERS.name()), Err(Error::LockTimeout { .. })));
    drop(impatient);
    let (done, dropped) = mpsc::channel();
    let dropper = thread::spawn({
        let db = db.clone();
        move || done.send(drop_numbers(&db)).unwrap()
    });
    assert!(dropped.try_recv().is_err());
    assert_eq!(reader.open(NUMBERS).unwrap().get(2).unwrap(), Some(2));
    reader.commit().unwrap();
    assert_eq!(dropped.recv(), Ok(true));
    dropper.join().unwrap();
}

#[test]
fn a_restart_goes_on_with_what_was_dropped() {
    for steps in 0..12 {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let options = small().lab(|lab| {
            lab.fs = Some(Arc::clone(&fs));
            lab.background = false;
            lab.step_seed = steps;
        });
        let db = options.open("/db").unwrap();
        db.run(|tx| tx.open(TEXTS)?.insert("kept", "here").map(drop)).unwrap();
        fill(&db, 9000);
        drop_numbers(&db);
        (0..steps).for_each(|_| db.step());
        // Another table takes some of the pages while the rest is being freed.
        fill(&db, 2000);
        db.check().unwrap();
        db.close(Duration::ZERO).unwrap();
        let db = open(&fs).unwrap();
        db.check().unwrap();
        db.vacuum().unwrap();
        assert_eq!(db.check().unwrap().tables, 2);
        assert_eq!(numbers(&db).len(), 2000);
        assert_eq!(db.run(|tx| tx.open(TEXTS)?.get("kept")).unwrap().as_deref(), Some("here"));
    }
}

/// The absence of a table is reported only when its drop survives a power loss, by an answer without a commit or by a
/// closure that failed because of it.
#[test]
fn no_transaction_sees_a_drop_that_may_be_lost() {
    #[derive(Debug)]
    struct Gone;
    impl From<Error> for Gone {
        fn from(error: Error) -> Self {
            panic!("{error}")
        }
    }
    type Ask = fn(&Db);
    let asks: [(&str, Ask); 3] = [
        ("a reader of the latest", |db| {
            let reader = db.read_with(ReadOptions::new().latest());
            assert!(matches!(reader.open(NUMBERS), Err(Error::NoTable { .. })));
        }),
        ("who drops it again", |db| assert!(!drop_numbers(db))),
        ("who refuses to go on", |db| {
            db.run(|tx| if tx.drop_table(NUMBERS.name())? { Ok(()) } else { Err(Gone) }).expect_err("it is gone");
        }),
    ];
    for (who, ask) in asks {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        // No thread writes the log unless another waits for it.
        let db = small()
            .lab(|lab| {
                lab.background = false;
                lab.fs = Some(Arc::clone(&fs));
            })
            .open("/db")
            .unwrap();
        fill(&db, 10);
        let tx = db.begin();
        assert!(tx.drop_table(NUMBERS.name()).unwrap());
        let ticket = tx.commit_pipelined().unwrap();
        let lost = Snapshot::of(&fs).restore();
        assert!(open(&lost).unwrap().read().open(NUMBERS).is_ok(), "a loss of power before takes the drop back");
        assert_eq!(
            db.read().open(NUMBERS).unwrap().get(3).unwrap(),
            Some(3),
            "a reader of what is durable does not see it"
        );
        assert!(!ticket.is_durable(), "nor does it wait");
        ask(&db);
        assert!(ticket.is_durable(), "{who}");
        let kept = Snapshot::of(&fs).restore();
        assert!(matches!(open(&kept).unwrap().read().open(NUMBERS), Err(Error::NoTable { .. })), "{who}");
    }
}

/// The same for a transaction that has opened the table before and meets the drop when it uses it.
#[test]
fn no_transaction_sees_a_lost_drop_through_an_open_table() {
    for by_snapshot in [true, false] {
        let at = |isolation| TxnOptions::new().isolation(isolation);
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let db = small()
            .lab(|lab| {
                lab.background = false;
                lab.fs = Some(Arc::clone(&fs));
            })
            .open("/db")
            .unwrap();
        fill(&db, 10);
        // Each of its statements reads what is committed by then.
        let (reader, writer) = (db.begin_with(at(Isolation::ReadCommitted)), db.begin());
        let (read, written) = (reader.open(NUMBERS).unwrap(), writer.open(NUMBERS).unwrap());
        let tx = db.begin();
        assert!(tx.drop_table(NUMBERS.name()).unwrap());
        let ticket = tx.commit_pipelined().unwrap();
        assert!(!ticket.is_durable(), "nobody waits for it yet");
        let answer = if by_snapshot { read.get(1) } else { written.insert(1, 1) };
        assert!(matches!(answer, Err(Error::TableDropped { .. })), "{answer:?}");
        assert!(ticket.is_durable(), "by a snapshot: {by_snapshot}");
        let kept = Snapshot::of(&fs).restore();
        assert!(matches!(open(&kept).unwrap().read().open(NUMBERS), Err(Error::NoTable { .. })));
    }
}

/// Tables come and go on several threads while others are read and checked.
#[test]
fn tables_come_and_go_under_load() {
    let (db, fs) = in_memory();
    fill(&db, 500);
    thread::scope(|scope| {
        for worker in 0..3_u64 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..25 {
                    let name = format!("table {}", (worker + round) % 4);
                    let def = TableDef::<u64, u64>::new(&name);
                    db.run(|tx| {
                        let table = tx.open(def)?;
                        (0..150).try_for_each(|n| table.insert(worker << 32 | n, n).map(drop))
                    })
                    .unwrap();
                    if round % 3 == worker % 3 {
                        db.run(|tx| tx.drop_table(&name).map(drop)).unwrap();
                    }
                    if round % 8 == 7 {
                        db.check().unwrap();
                    }
                }
            });
        }
    });
    db.vacuum().unwrap();
    let before = db.check().unwrap();
    assert_eq!(numbers(&db).len(), 500);
    db.close(Duration::ZERO).unwrap();
    assert_eq!(open(&fs).unwrap().check().unwrap(), before);
}

/// Background work takes no transaction away from those that the user may run.
#[test]
fn freeing_leaves_every_transaction_to_the_user() {
    let db = small().max_transactions(1).device(foreshore::Device::Null).open("/db").unwrap();
    for _ in 0..5 {
        fill_blobs(&db, 1000);
        let before = db.stats().space.used_pages;
        let tx = db.begin();
        tx.drop_table(BLOBS.name()).unwrap();
        tx.commit().unwrap();
        while db.stats().space.used_pages > before - 250 {
            let tx = db.begin();
            tx.open(TEXTS).unwrap().get("any").unwrap();
        }
    }
}

/// A table whose pages cannot be read does not keep those of others from becoming free.
#[test]
fn a_damaged_table_keeps_no_other_from_being_freed() {
    let (db, fs) = in_memory();
    for name in ["damaged", "sound"] {
        let def = TableDef::<u64, &[u8]>::new(name);
        db.run(|tx| {
            let table = tx.open(def)?;
            (0..300).try_for_each(|key| table.insert(key, &[1; 1000][..]).map(drop))
        })
        .unwrap();
    }
    db.close(Duration::ZERO).unwrap();
    let mut files = Snapshot::of(&fs);
    // No image of a page is left that could mend it.
    files.file("dw")[BLOCK..].fill(0);
    let mut damaged = 0;
    for page in files.file("data").chunks_exact_mut(PAGE_SIZE) {
        // A leaf of the first table, by the header of the page.
        if page[4..6] == [3, 0] && page[24..28] == 4_u32.to_le_bytes() {
            page[PAGE_SIZE - 1] ^= 1;
            damaged += 1;
        }
    }
    assert!(damaged > 30);
    let db = open(&files.restore()).unwrap();
    let before = db.stats().space.used_pages;
    for name in ["damaged", "sound"] {
        assert!(db.run(|tx| tx.drop_table(name)).unwrap());
    }
    for _ in 0..2 {
        assert!(matches!(db.vacuum(), Err(Error::Corrupted { .. })));
        assert!(db.stats().space.used_pages <= before - 40, "each frees what it can");
    }
    assert!(db.stats().space.used_pages <= before - 40);
    fill(&db, 10);
}

/// Damage that is found while pages become free is reported also if the truncation fails after that.
#[test]
fn a_failing_truncation_hides_no_damage() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = options(&fs).open(DIR).unwrap();
    fill_blobs(&db, 60);
    fill(&db, 2000);
    db.close(Duration::ZERO).unwrap();
    let mut files = Snapshot::of(&fs);
    let leaf = pages(&files).into_iter().find(|&(page, kind, level)| page > 5 && (kind, level) == (3, 0)).unwrap().0;
    damage(&mut files, leaf, Kind::Flip);
    let base = on_sim(&files);
    let vacuum = |fault: Option<u64>| {
        let sim = base.fork();
        let db = options(&(Arc::new(sim.clone()) as Arc<dyn Fs>)).open(DIR).unwrap();
        for table in [BLOBS.name(), NUMBERS.name()] {
            assert!(db.run(|tx| tx.drop_table(table)).unwrap());
        }
        let before = sim.faults_met();
        if let Some(at) = fault {
            sim.inject(Fault { at, kind: FaultKind::Eio, sticky: true });
        }
        let outcome = db.vacuum();
        assert!(matches!(outcome, Err(Error::Corrupted { .. })), "fault at {fault:?}: {outcome:?}");
        (sim.ops(), sim.faults_met() > before)
    };
    let (end, _) = vacuum(None);
    assert!((end - 3..end).all(|at| vacuum(Some(at)).1), "each fault is met");
}

/// Closing does not wait for all pages to be free, nor does it leave anything behind for that.
#[test]
fn a_database_that_is_closed_while_pages_become_free_is_closed_cleanly() {
    for _ in 0..3 {
        let (db, fs) = in_memory();
        fill_blobs(&db, 4000);
        let before = db.stats().space.used_pages;
        assert!(db.run(|tx| tx.drop_table(BLOBS.name())).unwrap());
        while db.stats().space.used_pages == before {
            thread::yield_now();
        }
        db.close(Duration::ZERO).unwrap();
        let db = open(&fs).unwrap();
        assert!(db.stats().recovery.was_clean);
        db.check().unwrap();
    }
}

/// Background work retries a dropped table with a damaged page less and less often, and frees the pages of others.
#[test]
fn a_damaged_page_of_a_dropped_table_is_not_read_over_and_over() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = options(&fs).open(DIR).unwrap();
    fill_blobs(&db, 60);
    db.close(Duration::ZERO).unwrap();
    let mut files = Snapshot::of(&fs);
    let leaf = pages(&files).into_iter().find(|&(page, kind, level)| page > 5 && (kind, level) == (3, 0)).unwrap().0;
    damage(&mut files, leaf, Kind::Flip);
    let fs = files.restore();
    let db = options(&fs).open(DIR).unwrap();
    fill(&db, 100);
    for table in [BLOBS.name(), NUMBERS.name()] {
        assert!(db.run(|tx| tx.drop_table(table)).unwrap());
    }
    let aborts = || db.stats().txn.aborts;
    let before = aborts();
    (0..5_000).for_each(|_| db.step());
    let tries = aborts() - before;
    // A fifth of the steps free pages. The pauses between tries double, so the speed of the machine hardly matters.
    assert!((2..100).contains(&tries), "{tries} transactions");
    assert!(matches!(db.vacuum(), Err(Error::Corrupted { .. })), "it is tried at once when a caller asks for it");
    let used = db.stats().space.used_pages;
    fill(&db, 100);
    drop_numbers(&db);
    (0..5_000).for_each(|_| db.step());
    assert_eq!(db.stats().space.used_pages, used, "the pages of another table come back");
}

/// Damage has brought back the row of a name beside the row of the dropped table. Freeing the pages of that table would
/// take them from under the name.
#[test]
fn a_catalogue_with_a_table_twice_is_refused() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = options(&fs).open(DIR).unwrap();
    fill(&db, 10);
    drop_numbers(&db);
    db.close(Duration::ZERO).unwrap();
    let mut files = Snapshot::of(&fs);
    drop(options(&files.restore()).open(DIR).unwrap());
    // Otherwise the images of the newest batches go home again, and mend it.
    files.file("dw")[BLOCK..].fill(0);
    let catalogue = &mut files.file("data")[3 * PAGE_SIZE..][..PAGE_SIZE];
    let name = usize::from(u16_at(catalogue, 64));
    assert_eq!((catalogue[name], &catalogue[name + 16..][..7]), (1, &b"numbers"[..]), "the ghost of its name");
    catalogue[name] = 0;
    let crc = crc32c(&catalogue[4..]);
    catalogue[..4].copy_from_slice(&crc.to_le_bytes());
    let opened = options(&files.restore()).open(DIR);
    assert!(matches!(opened, Err(Error::Corrupted { .. })), "{opened:?}");
}
