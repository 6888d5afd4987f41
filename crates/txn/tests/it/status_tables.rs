//! Status tables: whichever is asked, the same history shows the same (T9).

use crate::toy::{Toy, small};
use foreshore_base::{Csn, Error, Result, Xid};
use foreshore_classics::status_tables::{Lru, StatusKind};
use foreshore_io::{File, FileLayer, Fs, Mem};
use foreshore_txn::{RowHolder, Snapshot, SnapshotKind, Start, StatusTable, TxnManagerOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Xids to a page of `lru`.
const PAGE: u64 = 32 << 10;
/// Pages of xids from before a history.
const OLD: u64 = 40;
/// The first xid of a history, so near the end of a page that the history goes on in the next one.
const BEGIN: u64 = 1 + OLD * PAGE - 60;
/// Of the old pages, so many are asked for at each step: more than `lru:8` has in memory.
const ASKED: u64 = 10;

/// A file that counts what is read of it.
#[derive(Debug)]
struct Counted {
    file: Arc<dyn File>,
    reads: Arc<AtomicU64>,
}

impl FileLayer for Counted {
    fn below(&self) -> &dyn File {
        &*self.file
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.file.read_at(buf, offset)
    }
}

/// An xid of an old page.
fn old(page: u64) -> Xid {
    Xid(1 + page * PAGE + page)
}

/// A table in which one transaction of each old page has ended, and the count of pages that it has read since.
fn table(kind: StatusKind) -> (Option<Arc<dyn StatusTable>>, Arc<AtomicU64>) {
    let (fs, path, reads) = (Mem::null(), Path::new("status"), Arc::<AtomicU64>::default());
    let table = if let StatusKind::Lru { buffers, banks } = kind {
        let file = Counted { file: fs.create(path).expect("memory"), reads: reads.clone() };
        Some(Arc::new(Lru::new(Xid(1), buffers, banks, Arc::new(file))) as Arc<dyn StatusTable>)
    } else {
        kind.maker().map(|maker| maker.make(Xid(1), &fs, path).expect("memory"))
    };
    if let Some(table) = &table {
        (0..OLD).for_each(|page| table.set(old(page), page % 3 > 0).expect("memory"));
    }
    reads.store(0, Ordering::Relaxed);
    (table, reads)
}

/// What every snapshot and a writer found, of each xid of a history of commits, rollbacks and locks that the table does
/// not change. Its xids lie in two pages, and others of old pages are met all the while.
fn history(table: Option<Arc<dyn StatusTable>>) -> Vec<String> {
    let options = TxnManagerOptions { status_capacity: 64, snapshot_slots: 64, ..small() };
    let (toy, _) = Toy::starting(Start { next_xid: Xid(BEGIN), clock: Csn::ZERO }, &[0; 4], options);
    if let Some(table) = &table {
        toy.manager.visibility().set_status_table(table.clone());
    }
    let mut seed = 7_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut open: [Option<foreshore_txn::Txn>; 4] = [const { None }; 4];
    let mut snapshots: Vec<Snapshot> = Vec::new();
    let (mut found, mut newest) = (Vec::new(), 0);
    for step in 0..600 {
        let row = draw(4);
        let slot = &mut open[row as usize];
        match (slot.take(), draw(8)) {
            (None, choice) => {
                let mut txn = toy.begin("writer");
                let done = if choice == 0 { toy.lock(&mut txn, row) } else { toy.add(&mut txn, row, 1) };
                done.expect("its own row");
                newest = newest.max(txn.xid().expect("it wrote").0);
                *slot = Some(txn);
            }
            (Some(txn), 0) => drop(txn.rollback().expect("undone")),
            (Some(txn), 1 | 2) => txn.commit().expect("committed").wait().expect("durable"),
            (Some(txn), 3) => drop(txn.commit().expect("committed")),
            (txn, 4) => {
                *slot = txn;
                snapshots.push(toy.manager.snapshot(SnapshotKind::Latest, "reader"));
                drop((snapshots.len() > 8).then(|| snapshots.remove(draw(8) as usize)));
            }
            (txn, _) => *slot = txn,
        }
        let mut judge = toy.begin("judge");
        let held = |xid| matches!(judge.row_holder(Xid(xid)), RowHolder::Other(_));
        let held: Vec<bool> = (BEGIN..=newest).map(held).collect();
        let sees = |snapshot: &Snapshot, xid| snapshot.sees(Xid(xid)).is_some();
        let seen: Vec<Vec<bool>> =
            snapshots.iter().map(|snapshot| (BEGIN..=newest).map(|xid| sees(snapshot, xid)).collect()).collect();
        found.push(format!("{held:?} {seen:?}"));
        for page in (0..ASKED).map(|nth| (step * 7 + nth) % OLD) {
            assert_eq!(judge.row_holder(old(page)), RowHolder::None);
        }
        assert!(toy.log.poisoned().is_none(), "the table agrees with the window");
    }
    assert!(newest > BEGIN + 100 && toy.manager.checkpoint_view().window_lo > Xid(BEGIN + 50), "the window has moved");
    for page in (0..OLD).filter(|_| table.is_some()) {
        let has_committed = table.as_ref().expect("asked above").has_committed(old(page));
        assert_eq!(has_committed.expect("memory"), page % 3 > 0, "what was evicted has come back");
    }
    found
}

#[test]
fn every_table_shows_the_same_of_one_history() {
    let without = history(None);
    for kind in StatusKind::ALL {
        let (table, reads) = table(kind);
        assert!(history(table) == without, "{kind}");
        let reads = reads.load(Ordering::Relaxed);
        println!("{kind}: {reads} pages read");
        // Two pages of the history and as many of the old ones as are asked for do not fit into 8 buffers; all together
        // into 128.
        match kind {
            StatusKind::Lru { buffers: 8, .. } => assert!(reads > 600 * ASKED / 2, "{kind}: {reads} pages read"),
            StatusKind::Lru { buffers: 32, .. } => assert!(reads > 600, "{kind}: {reads} pages read"),
            _ => assert!(reads < 2 * OLD, "{kind}: {reads} pages read"),
        }
    }
}

/// A table that is told the contrary of one of the ends that are `committed`, or not.
#[derive(Debug)]
struct MishearsOne {
    table: Arc<dyn StatusTable>,
    committed: bool,
    ends: AtomicU64,
}

impl StatusTable for MishearsOne {
    fn prepare(&self, xid: Xid) -> Result<()> {
        self.table.prepare(xid)
    }

    fn set(&self, xid: Xid, committed: bool) -> Result<()> {
        let mishears = committed == self.committed && self.ends.fetch_add(1, Ordering::Relaxed) == 7;
        self.table.set(xid, committed != mishears)
    }

    fn has_committed(&self, xid: Xid) -> Result<bool> {
        self.table.has_committed(xid)
    }
}

/// Otherwise the test above would show nothing.
#[test]
fn a_table_that_errs_in_one_transaction_is_found_out() {
    for kind in StatusKind::ALL {
        for committed in [true, false] {
            let (Some(table), _) = table(kind) else { continue };
            let wrong = Arc::new(MishearsOne { table, committed, ends: AtomicU64::new(0) });
            let caught =
                catch_unwind(AssertUnwindSafe(|| history(Some(wrong)))).expect_err("what it shows is not the same");
            let why = caught.downcast_ref::<&str>().expect("a message");
            assert_eq!(*why, "the table agrees with the window", "{kind}, {committed}");
        }
    }
}

/// Says that no transaction has committed, and counts the questions.
#[derive(Debug, Default)]
struct Denies(AtomicU64);

impl StatusTable for Denies {
    fn prepare(&self, _xid: Xid) -> Result<()> {
        Ok(())
    }

    fn set(&self, _xid: Xid, _committed: bool) -> Result<()> {
        Ok(())
    }

    fn has_committed(&self, _xid: Xid) -> Result<bool> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(false)
    }
}

#[test]
fn a_table_that_does_not_agree_stops_the_log() {
    let (toy, _) = Toy::new(Mem::null(), &[0], small());
    let table = Arc::new(Denies::default());
    toy.manager.visibility().set_status_table(table.clone());
    let mut txn = toy.begin("writer");
    toy.add(&mut txn, 0, 1).expect("free");
    let xid = txn.xid().expect("it wrote");
    txn.commit().expect("committed").wait().expect("durable");
    let mut judge = toy.begin("judge");
    assert_eq!(judge.row_holder(xid), RowHolder::None);
    assert_eq!(table.0.load(Ordering::Relaxed), 1, "who meets the row asks");
    assert!(matches!(toy.log.poisoned(), Some(Error::Poisoned { .. })));
}
