//! Promise: after a crash at any operation, with any part of the unsynced writes on disk, every forced change survives.
//! Doublewrite and redo from the last checkpoint bring every page to the state of the log.

use crate::common::{Bed, Rng, check, count, create, init, open, open_with, pool_options};
use foreshore_base::codec::u64_at;
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, PageId, Result, crc32c};
use foreshore_buffer::{PageWrites, PoolOptions, PoolStats};
use foreshore_io::sim::{Fault, FaultKind, OpNo, Persist};
use foreshore_io::{AlignedBuf, File, FileLayer, Fs, Sim};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

const PAGES: u64 = 28;
const FRAMES: usize = 16;
const CHECKPOINTS: &str = "db/checkpoints";

/// An acknowledgement: a page's counter was forced before the operation of that number began.
struct Ack {
    ops: u64,
    pid: u64,
    count: u64,
}

/// The file in place of a superblock: one block a checkpoint, each with the first group that redo needs.
fn write_checkpoint(fs: &Arc<dyn Fs>, index: u64, first: GroupNo) -> Result<()> {
    let mut block = AlignedBuf::new(BLOCK);
    block[8..16].copy_from_slice(&first.0.to_le_bytes());
    let crc = u64::from(crc32c(&block[8..]));
    block[..8].copy_from_slice(&crc.to_le_bytes());
    fs.open(Path::new(CHECKPOINTS))?.write_durable(&block, index * BLOCK as u64)
}

fn read_checkpoint(fs: &Arc<dyn Fs>) -> GroupNo {
    let Ok(file) = fs.open(Path::new(CHECKPOINTS)) else { return GroupNo::ZERO };
    let mut block = AlignedBuf::new(BLOCK);
    let mut newest = GroupNo::ZERO;
    for index in 0.. {
        if file.read_at(&mut block, index * BLOCK as u64).expect("a read") < BLOCK {
            break;
        }
        if u64_at(&block, 0) == u64::from(crc32c(&block[8..])) {
            newest = GroupNo(u64_at(&block, 8));
        }
    }
    newest
}

fn checkpoint(fs: &Arc<dyn Fs>, bed: &Bed, index: u64) -> Result<()> {
    let group = bed.log.next_group();
    bed.pool.flush_older_than(group, |_| Ok(()))?;
    let first = bed.pool.min_rec_group().map_or(group, |oldest| oldest.min(group));
    write_checkpoint(fs, index, first)
}

/// Dirties and cleans pages, far more than there are frames, with checkpoints in between.
fn script(sim: &Sim, rounds: u64, acks: &mut Vec<Ack>) -> Result<PoolStats> {
    script_on(sim, rounds, acks, |file| file)
}

/// Runs [`script`] with the data file wrapped.
fn script_on(
    sim: &Sim,
    rounds: u64,
    acks: &mut Vec<Ack>,
    wrap: impl FnOnce(Arc<dyn File>) -> Arc<dyn File>,
) -> Result<PoolStats> {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let bed = open_with(&fs, &pool_options(FRAMES), |_, file| wrap(file))?;
    let mut session = bed.log.session()?;
    let mut rng = Rng(7);
    let mut newest = vec![None; PAGES as usize];
    for pid in 1..PAGES {
        init(&bed.pool, &mut session, PageId(pid))?;
        newest[pid as usize] = Some(0);
    }
    for round in 0..rounds {
        let pid = 1 + rng.below(PAGES - 1);
        let (n, lsn) = count(&bed.pool, &mut session, PageId(pid))?;
        newest[pid as usize] = Some(n);
        if round % 5 == 4 {
            bed.log.force(lsn)?;
            let counts = newest.iter().enumerate().filter_map(|(pid, n)| Some((pid as u64, (*n)?)));
            acks.extend(counts.map(|(pid, count)| Ack { ops: sim.ops(), pid, count }));
        }
        if round % 13 == 12 {
            checkpoint(&fs, &bed, round / 13)?;
        }
    }
    let stats = bed.pool.stats();
    assert!(stats.evictions > 0 && stats.batches > 0 && stats.pages_read > 0, "{stats:?}");
    assert_eq!(stats.doublewrite_batches > 0, stats.page_writes == PageWrites::Doublewrite, "{stats:?}");
    Ok(stats)
}

fn fresh(seed: u64) -> Sim {
    let sim = Sim::new(seed);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    create(&fs, PAGES).expect("an empty store");
    fs.create(Path::new(CHECKPOINTS)).expect("create").sync().expect("sync");
    fs.sync_dir(Path::new("db")).expect("sync");
    sim
}

/// Recovers and compares every page with the whole log, and the log with what was acknowledged.
fn verify(sim: &Sim, acks: &[Ack], what: &str) -> usize {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let bed = open(&fs, &pool_options(FRAMES)).unwrap_or_else(|e| panic!("{what}: open: {e:?}"));
    let restored = bed.recover(read_checkpoint(&fs)).unwrap_or_else(|e| panic!("{what}: recover: {e:?}"));
    let logged = bed.logged_counts(PAGES);
    for ack in acks {
        let found = logged[ack.pid as usize];
        assert!(found >= Some(ack.count), "{what}: page {} lost count {}, the log has {found:?}", ack.pid, ack.count);
    }
    for (pid, expected) in (0..).map(PageId).zip(&logged) {
        if let Some(expected) = expected {
            let page = bed.pool.shared(pid).unwrap_or_else(|e| panic!("{what}: page {pid}: {e:?}"));
            assert_eq!(check(&page, pid), *expected, "{what}: page {pid}");
        }
    }
    bed.pool.flush_all().unwrap_or_else(|e| panic!("{what}: flush: {e:?}"));
    restored
}

#[test]
fn a_crash_at_any_operation_loses_nothing() {
    let sim = fresh(3);
    let start = sim.ops();
    let mut acks = Vec::new();
    script(&sim, 60, &mut acks).expect("the script runs");
    let policies = [Persist::None, Persist::All, Persist::Prefix, Persist::DropOne, Persist::RandomHalf, Persist::Torn];
    let (mut points, mut images, mut restored) = (sim.crash_points(), 0, 0);
    loop {
        let op = points.op();
        if op >= start {
            let known: Vec<Ack> = acks
                .iter()
                .filter(|ack| ack.ops <= op)
                .map(|&Ack { ops, pid, count }| Ack { ops, pid, count })
                .collect();
            for policy in &policies {
                let image = points.image(policy, op);
                restored += verify(&image, &known, &format!("operation {op}, {policy:?}"));
                images += 1;
            }
        }
        if !points.advance() {
            break;
        }
    }
    assert!(images > 300 && restored > 0, "{images} images, {restored} pages restored: the script tears pages");
}

#[test]
fn an_error_at_any_operation_is_typed_and_loses_nothing() {
    let ops = {
        let sim = fresh(4);
        let start = sim.ops();
        script(&sim, 30, &mut Vec::new()).expect("the script runs");
        start..sim.ops()
    };
    for kind in [FaultKind::Eio, FaultKind::Enospc] {
        for at in ops.clone() {
            let sim = fresh(4);
            sim.inject(Fault { at, kind, sticky: false });
            let mut acks = Vec::new();
            let result = script(&sim, 30, &mut acks);
            if let Err(e) = &result {
                let typed = matches!(e, Error::Io { .. } | Error::DiskFull { .. } | Error::Poisoned { .. });
                assert!(typed, "{kind:?} at {at}: {e:?}");
            }
            sim.clear_faults();
            verify(&sim.crash_image(&Persist::None, at), &acks, &format!("{kind:?} at {at}, then a crash"));
        }
    }
}

/// A data file that notes which operations of the disk are whole writes to it.
#[derive(Debug)]
struct Noting {
    sim: Sim,
    file: Arc<dyn File>,
    whole: Arc<Mutex<BTreeSet<OpNo>>>,
}

impl FileLayer for Noting {
    fn below(&self) -> &dyn File {
        &*self.file
    }

    fn write_whole(&self, parts: &[(&[u8], u64)]) -> Result<bool> {
        let first = self.sim.ops();
        let written = self.file.write_whole(parts);
        self.whole.lock().unwrap().extend(first..self.sim.ops());
        written
    }
}

#[test]
fn whole_writes_that_find_no_space_give_way_to_the_doublewrite_file_and_nothing_is_lost() {
    const ROUNDS: u64 = 40;
    let start = |seed| {
        let sim = fresh(seed);
        sim.set_whole_writes(true);
        sim
    };
    let whole = Arc::new(Mutex::new(BTreeSet::new()));
    let ops: Vec<_> = {
        let sim = start(7);
        let first = sim.ops();
        let noting = |file| Arc::new(Noting { sim: sim.clone(), file, whole: whole.clone() }) as Arc<dyn File>;
        let stats = script_on(&sim, ROUNDS, &mut Vec::new(), noting).expect("the script runs");
        assert_eq!(stats.page_writes, PageWrites::Whole);
        sim.space_ops().into_iter().filter(|&op| op >= first).collect()
    };
    let whole = whole.lock().unwrap();
    assert!(whole.iter().all(|op| ops.contains(op)), "each of them may find no space");
    let (mut refused, mut images, mut restored) = (0, 0, 0);
    for at in ops {
        let sim = start(7);
        sim.inject(Fault { at, kind: FaultKind::Enospc, sticky: false });
        let mut acks = Vec::new();
        let outcome = script(&sim, ROUNDS, &mut acks);
        match &outcome {
            Ok(stats) if whole.contains(&at) => {
                assert_eq!(stats.page_writes, PageWrites::Doublewrite, "whole write {at}: {stats:?}");
                refused += 1;
            }
            Err(error) if whole.contains(&at) => panic!("whole write {at} fails the caller: {error:?}"),
            // The log was refused space. It may go on, and the way of writing pages does not change.
            Ok(stats) => assert_eq!(stats.page_writes, PageWrites::Whole, "operation {at}: {stats:?}"),
            Err(error) => assert!(matches!(error, Error::DiskFull { .. }), "operation {at}: {error:?}"),
        }
        let mut points = sim.crash_points();
        while points.advance() {
            let op = points.op();
            if op < at || op > at + 12 && !(op + at).is_multiple_of(61) {
                continue;
            }
            let policy = [Persist::Torn, Persist::None, Persist::RandomHalf][op as usize % 3];
            let image = points.image(&policy, op);
            image.set_whole_writes(op.is_multiple_of(2));
            acks.sort_by_key(|ack| ack.ops);
            let known = &acks[..acks.partition_point(|ack| ack.ops <= op)];
            restored += verify(&image, known, &format!("refused at {at}, operation {op}, {policy:?}"));
            images += 1;
        }
    }
    assert_eq!(refused, whole.len(), "each refusal is met");
    assert!(refused > 20 && images > 200 && restored > 0, "{refused} refusals, {images} images, {restored} restored");
}

#[test]
fn a_failed_write_home_stops_the_log_and_resident_pages_stay_readable() {
    let sim = fresh(5);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let bed = open(&fs, &pool_options(FRAMES)).expect("open");
    let mut session = bed.log.session().expect("a session");
    let lsn = init(&bed.pool, &mut session, PageId(1)).expect("init");
    bed.log.force(lsn).expect("force");
    // Doublewrite, home write, sync: each fails once.
    for failing in 0..3 {
        let sim = sim.fork();
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        let bed = open(&fs, &pool_options(FRAMES)).expect("open");
        bed.recover(GroupNo::ZERO).expect("recover");
        sim.inject(Fault { at: sim.ops() + failing, kind: FaultKind::Eio, sticky: false });
        assert!(bed.pool.flush_all().is_err(), "operation {failing}");
        assert!(bed.log.poisoned().is_some(), "operation {failing}");
        assert_eq!(bed.pool.stats().pages_dirty, 1, "nothing is taken to be home");
        assert_eq!(check(&bed.pool.shared(PageId(1)).expect("in memory"), PageId(1)), 0);
        assert!(matches!(bed.pool.shared(PageId(2)), Err(Error::Poisoned { .. })));
        assert!(matches!(bed.pool.flush_all(), Err(Error::Poisoned { .. })));
    }
}

#[test]
fn a_read_error_fails_one_fix_and_no_more() {
    let sim = fresh(6);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    {
        let bed = open(&fs, &pool_options(FRAMES)).expect("open");
        let mut session = bed.log.session().expect("a session");
        init(&bed.pool, &mut session, PageId(1)).expect("init");
        bed.pool.flush_all().expect("flush");
    }
    let bed = open(&fs, &PoolOptions { read_around: false, ..pool_options(FRAMES) }).expect("open");
    sim.inject_read_error(sim.reads(), false);
    assert!(matches!(bed.pool.shared(PageId(1)), Err(Error::Io { op: "read", .. })));
    assert_eq!(check(&bed.pool.shared(PageId(1)).expect("the next read"), PageId(1)), 0);
    assert!(bed.log.poisoned().is_none());
}
