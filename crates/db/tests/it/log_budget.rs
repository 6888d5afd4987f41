//! The log budget: writers are slowed down so that pages, written home by a slow disk, never need much more log than
//! that. Log for open transactions is reported separately, and no writer is slowed for it.

use crate::support::DIR;
use foreshore::{Db, Durability, Options, Stats, TableDef, TxnOptions};
use foreshore_io::{Fs, Mem};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const COUNT: u64 = 20_000;
const BUDGET: u64 = 4 << 20;
const SEGMENT: u64 = 256 << 10;
const THREADS: u64 = 3;

/// A database with rows on a disk that takes some milliseconds for each sync.
fn slow() -> Db {
    let fs: Arc<dyn Fs> = Arc::new(Mem::delay(Duration::from_millis(4)));
    let options = Options::new()
        .lab(|lab| lab.fs = Some(fs))
        .memory_limit(64 << 20)
        .lab(|lab| lab.segment_bytes = SEGMENT)
        .log_budget(BUDGET);
    let db = options.open(DIR).unwrap();
    for first in (0..COUNT).step_by(100) {
        let tx = db.begin_with(TxnOptions::new().durability(Durability::Relaxed));
        let rows = tx.open(ROWS).unwrap();
        (first..first + 100).for_each(|n| drop(rows.insert(n, &[0; 500][..]).unwrap()));
        tx.commit().unwrap();
    }
    db
}

/// Updates rows all over the table until `bytes` of log are written, and looks at the counters meanwhile.
fn update(db: &Db, bytes: u64, mut look: impl FnMut(&Stats)) {
    let (end, is_done) = (db.stats().log.group_bytes + bytes, AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let is_done = &is_done;
            scope.spawn(move || {
                for n in 0_u64.. {
                    let key = (n * THREADS + thread).wrapping_mul(0x9E37_79B9_7F4A_7C15) % COUNT;
                    let tx = db.begin_with(TxnOptions::new().durability(Durability::Relaxed));
                    // Two threads may have come for one row.
                    if tx.open(ROWS).and_then(|rows| rows.insert(key, &[n as u8; 500][..]).map(drop)).is_ok() {
                        tx.commit().unwrap();
                    }
                    if is_done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        loop {
            let stats = db.stats();
            look(&stats);
            if stats.log.group_bytes >= end {
                break is_done.store(true, Ordering::Relaxed);
            }
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_slow_disk_slows_writers_and_the_log_keeps_to_its_budget() {
    let db = slow();
    let (mut retained, mut pages) = (0, 0);
    update(&db, 10 * BUDGET, |stats| {
        retained = retained.max(stats.log_retained_bytes);
        pages = pages.max(stats.checkpoint.page_log_bytes);
    });
    let stats = db.stats();
    assert!(stats.log.slowed_nanos > 0, "the disk was fast enough");
    // A checkpoint may take as long as the log grows by some segments.
    assert!(retained <= 2 * BUDGET, "{retained} bytes of log");
    assert!(pages <= BUDGET, "{pages} bytes of log for pages");
    db.check().unwrap();
}

#[test]
fn log_that_an_open_transaction_keeps_is_shown_and_slows_no_one() {
    let db = slow();
    let old = db.begin();
    old.open(ROWS).unwrap().insert(COUNT, &[1; 500][..]).unwrap();
    let mut pages = 0;
    update(&db, 4 * BUDGET, |stats| pages = pages.max(stats.checkpoint.page_log_bytes));
    let stats = db.stats();
    assert!(stats.checkpoint.transaction_log_bytes > 2 * BUDGET, "{:?}", stats.checkpoint);
    assert!(stats.log_retained_bytes > 3 * BUDGET && pages <= BUDGET, "{:?}, {pages}", stats.checkpoint);
    old.rollback().unwrap();
    // Two, as the older slot counts too.
    (0..2).for_each(|_| db.checkpoint().unwrap());
    let stats = db.stats();
    assert!(stats.checkpoint.transaction_log_bytes == 0 && stats.log_retained_bytes < BUDGET, "{:?}", stats.checkpoint);
}
