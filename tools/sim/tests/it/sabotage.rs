//! The rig sees what it is for: an engine that leaves out a step of its protocol with the disk is found out.

use foreshore_base::Result;
use foreshore_io::sim::Persist;
use foreshore_io::{File, FileLayer, Fs, FsLayer, Sim};
use foreshore_sim::{Script, crash, open, options};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ROUNDS: u32 = 60;
const STRIDE: u64 = 9;
/// Parts in which the operations are visited, each spread over the whole history: a defect is found in the first as a
/// rule.
const PARTS: u64 = 8;

/// A step that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neglected {
    /// Groups of the log are written and not made durable before they are acknowledged.
    LogWrites,
    /// The control block of the log is not made durable before the segments it leaves behind are used again.
    LogControl,
    /// Pages are not synced before the doublewrite batch that holds them is written over, nor before a superblock.
    PageSyncs,
    /// Batches are not durable in the doublewrite file when their pages are written.
    Doublewrites,
    /// Directories are not synced: new segments have no durable name.
    Names,
}

impl Neglected {
    /// Whether the durability of a write to `path` is what is left out.
    fn is_durable_write(self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match self {
            Self::LogWrites => name.ends_with(".seg"),
            Self::LogControl => name == "ctl",
            Self::Doublewrites => name == "dw",
            Self::PageSyncs | Self::Names => false,
        }
    }

    /// Whether a sync of `path` is what is left out.
    fn is_sync(self, path: &Path) -> bool {
        self == Self::PageSyncs && path.ends_with("data")
    }
}

/// A file system seen by an engine that neglects something.
#[derive(Debug)]
struct Careless {
    disk: Sim,
    neglect: Arc<Neglect>,
}

/// The step that is left out, and whether the engine is open. Control blocks are neglected only after the start: a
/// start writes both control slots, and both may tear before any segment is used again.
#[derive(Debug)]
struct Neglect {
    step: Option<Neglected>,
    open: AtomicBool,
}

impl Neglect {
    fn step(&self) -> Option<Neglected> {
        self.step.filter(|&step| step != Neglected::LogControl || self.open.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct CarelessFile {
    file: Arc<dyn File>,
    neglect: Arc<Neglect>,
}

impl FsLayer for Careless {
    fn below(&self) -> &dyn Fs {
        &self.disk
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(CarelessFile { file, neglect: self.neglect.clone() })
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        if self.neglect.step() == Some(Neglected::Names) { Ok(()) } else { self.disk.sync_dir(dir) }
    }
}

impl FileLayer for CarelessFile {
    fn below(&self) -> &dyn File {
        &*self.file
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        if self.neglect.step().is_some_and(|step| step.is_durable_write(self.path())) {
            self.file.write_at(buf, offset)
        } else {
            self.file.write_durable(buf, offset)
        }
    }

    fn sync(&self) -> Result<()> {
        if self.neglect.step().is_some_and(|step| step.is_sync(self.path())) { Ok(()) } else { self.file.sync() }
    }
}

/// Runs a history with a step left out and returns what the recoveries from its power losses say, but for those whose
/// failure does not count. They themselves leave out nothing.
fn neglect(neglected: Option<Neglected>, counts: &(dyn Fn(&str) -> bool + Sync)) -> Result<u64, String> {
    let (sim, contents) = Script::loaded().unwrap();
    let mut script = Script::new(&sim, 1, contents);
    let neglect = Arc::new(Neglect { step: neglected, open: AtomicBool::new(false) });
    let careless: Arc<dyn Fs> = Arc::new(Careless { disk: sim.clone(), neglect: neglect.clone() });
    let db = options(&sim, 1).lab(|lab| lab.fs = Some(careless)).open("db").unwrap();
    neglect.open.store(true, Ordering::Relaxed);
    script.run(&db, ROUNDS).unwrap();
    script.oracle.forget_tickets();
    drop(db);
    let (stride, policies): (u64, &[Persist]) = match neglected {
        // Few losses take a segment that counts without a sign: that of the name alone.
        Some(Neglected::Names) => (1, &[Persist::RandomHalf; 2]),
        _ => (STRIDE, &crash::POLICIES),
    };
    let visit = |part| crash::look_for(&script.oracle, &sim, 1, (part * stride, PARTS * stride, policies), counts);
    (0..PARTS).map(visit).sum()
}

/// Asserts that a recovery fails for this reason, and none before it for another, but for those `beside`.
fn assert_found_out(neglected: Neglected, reason: &str, beside: &[&str]) {
    let counts = |why: &str| why.contains(reason) || !beside.iter().any(|beside| why.contains(beside));
    match neglect(Some(neglected), &counts) {
        Err(why) => assert!(why.contains(reason), "{neglected:?} is found out by something else: {why}"),
        Ok(images) => panic!("{neglected:?} is not found out in {images} images"),
    }
}

/// Otherwise the tests below would show nothing.
#[test]
fn a_disk_that_neglects_nothing_passes() {
    assert!(neglect(None, &|_| true).unwrap() > 0);
}

#[test]
fn groups_that_are_not_durable_are_found_out() {
    assert_found_out(Neglected::LogWrites, "was durable and is missing", &[]);
}

#[test]
fn a_control_block_that_is_not_durable_is_found_out() {
    // A slot that is half written is refused, and one that is old misses groups.
    assert_found_out(Neglected::LogControl, "was durable and is missing", &["log/ctl is corrupted"]);
}

#[test]
fn pages_that_are_not_synced_are_found_out() {
    // A page of which a write is lost as a whole is not torn. If it was the first one, the page is blank. A restart
    // whose redo meets it has quarantined it.
    let stale = ["stale: an older state of the page is in its place", "stale, a later write of the page was lost"];
    let beside = ["the page was never written", stale[0], stale[1]];
    assert_found_out(Neglected::PageSyncs, "the checksum of the page does not fit", &beside);
}

#[test]
fn batches_that_are_not_durable_are_found_out() {
    assert_found_out(Neglected::Doublewrites, "the checksum of the page does not fit", &[]);
}

#[test]
fn names_that_are_not_synced_are_found_out() {
    // With its segment a whole stretch of the log is gone: before any page was written that would miss it, and then the
    // oracle misses acknowledged commits; or after, or with groups behind it.
    let beside = ["holds a change that the log has lost", "was durable and is missing"];
    assert_found_out(Neglected::Names, "commits are there", &beside);
}

/// Syncs that do nothing lose acknowledged commits, and the oracle says so.
#[test]
fn a_lying_disk_is_found_out() {
    let (sim, contents) = Script::loaded().unwrap();
    let mut script = Script::new(&sim, 1, contents);
    let db = open(&sim, 1).unwrap();
    sim.set_lying(true);
    script.run(&db, 20).unwrap();
    script.oracle.forget_tickets();
    drop(db);
    let verdict = crash::lose_power(&script.oracle, &sim, 1, 50);
    assert!(verdict.is_err(), "{verdict:?}");
}
