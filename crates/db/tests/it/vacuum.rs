//! The data file gets shorter when its end is free, whatever others read and write meanwhile, and the rest is whole.

use crate::support::{DIR, NUMBERS, Snapshot, fill, numbers, open, small};
use foreshore::{Db, Error, TableDef};
use foreshore_classics::growth::GrowthKind;
use foreshore_io::{Fs, Mem};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const KEPT: TableDef<u64, u64> = TableDef::new("kept");

fn data_bytes(fs: &Arc<dyn Fs>) -> u64 {
    fs.open(&Path::new(DIR).join("data")).unwrap().len().unwrap()
}

fn drop_numbers(db: &Db) {
    assert!(db.run(|tx| tx.drop_table(NUMBERS.name())).unwrap());
}

fn keep(db: &Db) {
    db.run(|tx| (0..100).try_for_each(|n| tx.open(KEPT)?.insert(n, n).map(drop))).unwrap();
}

fn kept(db: &Db) -> usize {
    db.run(|tx| tx.open(KEPT)?.iter().collect::<Result<Vec<_>, Error>>()).unwrap().len()
}

#[test]
fn the_file_ends_behind_the_last_page_in_use() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    // Without background work no more is kept ready than must be.
    let open = || {
        small()
            .lab(|lab| {
                lab.background = false;
                lab.fs = Some(Arc::clone(&fs));
            })
            .open(DIR)
            .unwrap()
    };
    let mut db = open();
    keep(&db);
    for round in 0..3 {
        fill(&db, 40_000);
        let long = data_bytes(&fs);
        drop_numbers(&db);
        let gone = db.vacuum().unwrap();
        let short = data_bytes(&fs);
        assert_eq!(long, short + gone);
        assert!(short < 3 << 20 && gone > 0, "{short} bytes after {gone} of {long} are gone");
        assert_eq!(db.vacuum().unwrap(), 0, "a cut is not followed by another");
        db.check().unwrap();
        if round == 1 {
            db.close(Duration::ZERO).unwrap();
            drop(db);
            db = open();
            assert_eq!(data_bytes(&fs), short);
        }
    }
    assert_eq!((kept(&db), numbers(&db).len()), (100, 0));
    assert_eq!(db.stats().space.cuts, 1, "since the last open");
}

/// Its log, in which truncated pages were filled and freed, is retained, and a restart reads it only for the
/// transaction.
#[test]
fn a_transaction_that_is_older_does_not_hold_the_cut_up() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = small()
        .lab(|lab| {
            lab.background = false;
            lab.fs = Some(Arc::clone(&fs));
        })
        .open(DIR)
        .unwrap();
    keep(&db);
    let old = db.begin();
    old.open(KEPT).unwrap().insert(1, 7).unwrap();
    let prepared = db.begin();
    prepared.open(KEPT).unwrap().insert(2, 7).unwrap();
    prepared.prepare("prepared").unwrap();
    fill(&db, 30_000);
    drop_numbers(&db);
    let before = data_bytes(&fs);
    assert!(db.vacuum().unwrap() > 0);
    let short = data_bytes(&fs);
    assert!(short < before, "{short} of {before} bytes");
    db.check().unwrap();
    let killed = Snapshot::of(&fs).restore();
    drop(old);
    let again = small()
        .lab(|lab| {
            lab.background = false;
            lab.fs = Some(Arc::clone(&killed));
        })
        .open(DIR)
        .unwrap();
    let recovery = again.stats().recovery;
    assert!(recovery.losers == 1 && recovery.prepared == 1 && recovery.analysed > 1000, "{recovery:?}");
    assert_eq!((data_bytes(&killed), recovery.restored), (short, 0));
    again.commit_prepared("prepared").unwrap();
    let row = |row| again.run(|tx| tx.open(KEPT)?.get(row)).unwrap();
    assert_eq!([row(1), row(2)], [Some(1), Some(7)]);
    assert_eq!((again.check().unwrap().tables, kept(&again)), (1, 100));
}

#[test]
fn no_thread_stops_while_the_file_is_truncated_again_and_again() {
    for growth in [GrowthKind::Ahead, GrowthKind::Inline] {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let db = small()
            .lab(|lab| {
                lab.fs = Some(Arc::clone(&fs));
                lab.growth = growth.rule();
            })
            .open(DIR)
            .unwrap();
        keep(&db);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..3_u64)
                .map(|worker| {
                    let db = &db;
                    scope.spawn(move || {
                        let name = format!("temporary {worker}");
                        let def = TableDef::<u64, &[u8]>::new(&name);
                        // Twelve rounds at least, and until the file has been cut beside them.
                        for round in (0_u8..12).chain((12..200).take_while(|_| db.stats().space.cuts == 0)) {
                            for from in (0..1200).step_by(100) {
                                db.run(|tx| {
                                    let table = tx.open(def)?;
                                    (from..from + 100).try_for_each(|n| table.insert(n, &[round; 300][..]).map(drop))
                                })
                                .unwrap();
                            }
                            let rows = db.run(|tx| {
                                let table = tx.open(def)?;
                                table.lock_against_writes()?;
                                table.iter().collect::<Result<Vec<_>, Error>>()
                            });
                            let rows = rows.unwrap();
                            assert_eq!(rows.len(), 1200);
                            assert!(rows.iter().all(|(_, value)| *value == [round; 300]));
                            db.run(|tx| tx.drop_table(&name).map(drop)).unwrap();
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    db.vacuum().unwrap();
                }
            });
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let space = db.stats().space;
                    assert!(space.used_pages <= space.file_pages, "{space:?}");
                    db.check().unwrap();
                }
            });
            let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            over.store(true, Ordering::Relaxed);
            outcomes.into_iter().for_each(Result::unwrap);
        });
        // Writers that reuse pages at once may have left nothing to cut, and this table leaves more than is kept ready.
        let last = TableDef::<u64, &[u8]>::new("last");
        for from in (0..20_000).step_by(100) {
            db.run(|tx| {
                let table = tx.open(last)?;
                (from..from + 100).try_for_each(|n| table.insert(n, &[1; 300][..]).map(drop))
            })
            .unwrap();
        }
        db.run(|tx| tx.drop_table("last").map(drop)).unwrap();
        // What is kept ready for a burst fades with it.
        let since = Instant::now();
        while data_bytes(&fs) >= 3 << 20 {
            db.vacuum().unwrap();
            assert!(since.elapsed() < Duration::from_secs(60), "{growth}: {:?}", db.stats().space);
        }
        assert!(db.stats().space.cuts > 0, "{growth}");
        assert_eq!((db.check().unwrap().tables, kept(&db)), (1, 100));
        db.close(Duration::ZERO).unwrap();
        let db = open(&fs).unwrap();
        assert_eq!((db.check().unwrap().tables, kept(&db)), (1, 100));
    }
}

/// The images that the cut-off pages have in the doublewrite file are not taken for those of torn ones.
#[test]
fn a_restart_does_not_bring_back_what_was_cut_off() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = small()
        .lab(|lab| {
            lab.background = false;
            lab.fs = Some(Arc::clone(&fs));
        })
        .open(DIR)
        .unwrap();
    keep(&db);
    // Many pages are dirty when they become free, and so are the last that go home.
    for from in (0..3000).step_by(50) {
        db.run(|tx| {
            let table = tx.open(TableDef::<u64, &[u8]>::new("large"))?;
            (from..from + 50).try_for_each(|n| table.insert(n, &[1; 500][..]).map(drop))
        })
        .unwrap();
    }
    assert!(db.run(|tx| tx.drop_table("large")).unwrap());
    assert!(db.vacuum().unwrap() > 0);
    let short = data_bytes(&fs);
    let killed = Snapshot::of(&fs).restore();
    let again = small()
        .lab(|lab| {
            lab.background = false;
            lab.fs = Some(Arc::clone(&killed));
        })
        .open(DIR)
        .unwrap();
    assert_eq!((data_bytes(&killed), again.stats().recovery.restored), (short, 0));
    assert_eq!((again.check().unwrap().tables, kept(&again)), (1, 100));
}
