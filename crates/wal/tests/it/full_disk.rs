//! A full disk refuses new work, leaves space for rollbacks and harms no waiter. Work goes on when there is space
//! again.

use crate::common::*;
use foreshore_base::{Error, Result};
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{File, FileLayer, Fs, FsLayer, Sim};
use foreshore_sync::NextWake;
use foreshore_wal::{Dep, Log, LogOptions, Record, Session};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

#[test]
fn ordinary_work_stops_and_rollbacks_fit() {
    let sim = Sim::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &small());
    let mut session = log.session().unwrap();
    // Log that can be truncated later.
    let mut tag = 0;
    while tag < 40 {
        log.force(append(&mut session, tag, &payload(tag, 3000)).unwrap()).unwrap();
        tag += 1;
    }
    while log.prepare_step() == NextWake::Now {}
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let refused = loop {
        match append(&mut session, tag, &payload(tag, 3000)) {
            Ok(lsn) => log.force(lsn).unwrap(),
            Err(error) => break error,
        }
        tag += 1;
        assert!(tag < 1000, "a full disk was never noticed");
    };
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused:?}");
    assert!(log.poisoned().is_none());
    let ordinary = tag;
    // The space kept back suffices for a whole segment of rollbacks.
    let mut written = 0;
    while written < 60 << 10 {
        session.reserve_rollback(Session::cost(3000)).unwrap();
        let lsn = session.append(Record { tag, flags: 0, parts: &[&payload(tag, 3000)] }, Dep::none());
        log.force(lsn).unwrap();
        tag += 1;
        written += 4096;
        let error = session.reserve(Session::cost(20) + 3000).unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
    }
    // A truncation frees segments for reuse, so the disk need not provide space.
    let keep = log.next_group();
    log.truncate(keep).unwrap();
    // Falling back to the older control slot still works, so its segments are kept until it has moved, too.
    assert!(matches!(session.reserve(Session::cost(3000)), Err(Error::DiskFull { .. })));
    log.truncate(keep).unwrap();
    for _ in 0..5 {
        let lsn = append(&mut session, tag, &payload(tag, 3000)).unwrap();
        log.force(lsn).unwrap();
        tag += 1;
    }
    drop(session);
    log.close().unwrap();
    drop(log);
    sim.clear_faults();
    let (_, recovered) = open(&fs, &small()).unwrap();
    let found = tags(&recovered);
    assert_eq!(found, (found[0]..tag).collect::<Vec<_>>());
    assert!(found[0] >= ordinary && found[0] < tag - 5, "{found:?} after {ordinary} ordinary records");
}

/// Earlier reservations of sessions do not use up the space kept back, even with the smallest records, each in a group
/// of its own.
#[test]
fn small_groups_of_many_sessions_do_not_use_up_what_is_kept_back() {
    for buffer in KINDS {
        let options = LogOptions { buffer: buffer.maker(), ..small() };
        let sim = Sim::new(1);
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        let log = fresh(&fs, &options);
        let mut sessions: Vec<_> = (0..8).map(|_| log.session().unwrap()).collect();
        while log.prepare_step() == NextWake::Now {}
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
        let mut refused = 0;
        for session in &mut sessions {
            while let Ok(lsn) = append(session, 1, b"small") {
                log.force(lsn).unwrap();
            }
            refused += 1;
        }
        assert!(refused == 8 && log.poisoned().is_none(), "{buffer}");
        // The buffered records still find space.
        log.force(log.current()).unwrap();
    }
}

/// Lanes may hold more than the ring of other buffers does. Also where work that `frees` space has used up the margin,
/// and with records whose groups leave much of the segments empty.
#[test]
fn full_lanes_find_their_place_on_a_full_disk() {
    for (frees, len) in [(false, 4000), (true, 4000), (false, 7000), (true, 7000)] {
        let sim = Sim::new(1);
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        let log = fresh(&fs, &LogOptions { buffer: None, ..small() });
        let mut sessions: Vec<_> = (0..8).map(|_| log.session().unwrap()).collect();
        while log.prepare_step() == NextWake::Now {}
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
        sessions.iter_mut().for_each(|session| assert!(!session.set_frees(frees)));
        // No session forces, so nothing is written before all lanes are full. The session of a full lane frees space in
        // it.
        let mut refused = 0;
        'sessions: for session in &mut sessions {
            for _ in 0..56_000 / len {
                if append(session, 1, &payload(1, len)).is_err() {
                    refused += 1;
                    continue 'sessions;
                }
            }
        }
        log.force(log.current()).unwrap();
        let error = (0..)
            .find_map(|tag| append(&mut sessions[0], tag, &payload(tag, len)).and_then(|lsn| log.force(lsn)).err());
        assert!(matches!(error, Some(Error::DiskFull { .. })), "{error:?} after {refused}");
        // Then all at once, until each is refused.
        for session in &mut sessions {
            while append(session, 1, &payload(1, len)).is_ok() {}
        }
        log.force(log.current()).unwrap();
    }
}

/// A log with so many records in segments of `before` bytes, some of them spare, opened again for segments of `after`
/// bytes and more sessions.
fn opened_again(sim: &Sim, records: u64, before: u64, after: u64) -> (Log, Vec<Session>) {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let with = |segment_bytes| LogOptions { segment_bytes, ..small() };
    let log = fresh(&fs, &with(before));
    let mut session = log.session().unwrap();
    for tag in 0..records {
        log.force(append(&mut session, tag, &payload(tag, 3000)).unwrap()).unwrap();
    }
    // Old segments become spare ones when both slots of the control file are past them.
    let keep = log.next_group();
    (0..2).for_each(|_| log.truncate(keep).unwrap());
    drop(session);
    log.close().unwrap();
    drop(log);
    let (log, _) = open(&fs, &with(after)).unwrap();
    let sessions = (0..4).map(|_| log.session().unwrap()).collect();
    (log, sessions)
}

/// Lengths of the segments, by number.
fn lengths(sim: &Sim) -> Vec<u64> {
    let names = sim.list(&dir()).unwrap();
    let segments = names.iter().filter(|name| name.ends_with(".seg"));
    segments.map(|name| sim.open(&dir().join(name)).unwrap().len().unwrap()).collect()
}

/// Segments whose reuse fails are not lost. After a restart some of them already have their new name, and others still
/// have old groups.
#[test]
fn a_failure_of_the_preparer_costs_no_segment() {
    let (mut failures, mut needed) = (0, None);
    // The first time without a failure.
    for at in [1000].into_iter().chain(0..12) {
        let sim = Sim::new(1);
        let (log, _sessions) = opened_again(&sim, 100, 64 << 10, 64 << 10);
        let segments = || lengths(&sim).len();
        let before = segments();
        sim.inject(Fault { at: sim.ops() + at, kind: FaultKind::Eio, sticky: false });
        let mut steps = 0;
        loop {
            match log.prepare_step() {
                NextWake::Now => steps += 1,
                NextWake::After(_) => failures += 1,
                NextWake::OnSignal => break,
            }
        }
        assert!(steps > 0 && segments() >= before, "{} of {before} are left after a failure at {at}", segments());
        let made = log.stats().segments_made;
        assert_eq!(made, *needed.get_or_insert(made), "one instead of one that was lost by the failure at {at}");
    }
    assert!(failures > 6, "{failures}");
}

/// Checks the content of the log after further appends, and after a restart.
fn goes_on(sim: &Sim, log: Log, mut sessions: Vec<Session>, size: u64) {
    for tag in 200..260 {
        log.force(append(&mut sessions[0], tag, &payload(tag, 3000)).unwrap()).unwrap();
        log.prepare_step();
    }
    let ready = lengths(sim);
    assert!(ready.iter().rev().take(3).all(|&len| len == size), "{ready:?}");
    drop((log, sessions));
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let (_, recovered) = open(&fs, &LogOptions { segment_bytes: size, ..small() }).unwrap();
    let found = tags(&recovered);
    assert_eq!(found, (found[0]..260).collect::<Vec<_>>());
    assert!(found[0] <= 200, "{found:?}");
}

#[test]
fn spare_segments_of_another_size_are_cut_though_the_disk_is_full() {
    let sim = Sim::new(1);
    let (log, sessions) = opened_again(&sim, 200, 256 << 10, 64 << 10);
    let before = lengths(&sim).len();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    while log.prepare_step() == NextWake::Now {}
    let after = lengths(&sim);
    assert!(log.stats().segments_recycled >= 2 && log.stats().segments_made == 0, "{:?}", log.stats());
    assert!(after.len() == before && after[1..].iter().filter(|&&len| len == 64 << 10).count() >= 2, "{after:?}");
    sim.clear_faults();
    goes_on(&sim, log, sessions, 64 << 10);
}

#[test]
fn spare_segments_of_another_size_grow() {
    let sim = Sim::new(1);
    let (log, sessions) = opened_again(&sim, 200, 64 << 10, 128 << 10);
    let before = lengths(&sim).len();
    while log.prepare_step() == NextWake::Now {}
    let (after, stats) = (lengths(&sim), log.stats());
    assert!(stats.segments_recycled > 0 && after.len() as u64 == before as u64 + stats.segments_made, "{after:?}");
    goes_on(&sim, log, sessions, 128 << 10);
}

/// A spare segment that cannot grow is removed, and its space goes to the next one.
#[test]
fn spare_segments_that_are_too_small_are_given_to_a_full_disk() {
    let sim = Sim::new(1);
    let (log, sessions) = opened_again(&sim, 200, 64 << 10, 128 << 10);
    let before = lengths(&sim);
    // The space for one of them to grow is there when another is gone: each tries two operations that need space.
    let next = sim.ops();
    sim.inject(Fault { at: next + 1, kind: FaultKind::Enospc, sticky: false });
    assert_ne!(log.prepare_step(), NextWake::OnSignal);
    let after = lengths(&sim);
    assert!(sim.faults_met() == 1 && log.stats().segments_recycled == 1, "{after:?}");
    assert_eq!(after.len(), before.len() - 1);
    // Nothing gives enough.
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    assert!(matches!(log.prepare_step(), NextWake::After(_)));
    assert!(lengths(&sim)[1..].iter().all(|&len| len == 128 << 10), "none that is too small is left: {after:?}");
    sim.clear_faults();
    goes_on(&sim, log, sessions, 128 << 10);
}

/// A disk from which nothing can be removed any more once it has been full.
#[derive(Debug)]
struct Clinging(Sim);

impl FsLayer for Clinging {
    fn below(&self) -> &dyn Fs {
        &self.0
    }

    fn remove(&self, path: &Path) -> Result<()> {
        match self.0.faults_met() {
            0 => self.0.remove(path),
            _ => Err(Error::io("unlink", path, std::io::Error::other("it stays"))),
        }
    }
}

/// A session gets `DiskFull`, even if a spare segment that is too small cannot be removed.
#[test]
fn a_spare_segment_that_cannot_be_removed_hides_no_full_disk() {
    let sim = Sim::new(1);
    let (log, sessions) = opened_again(&sim, 200, 64 << 10, 64 << 10);
    drop((log, sessions));
    let fs: Arc<dyn Fs> = Arc::new(Clinging(sim.clone()));
    let (log, _) = open(&fs, &LogOptions { segment_bytes: 128 << 10, ..small() }).unwrap();
    let (before, mut session) = (lengths(&sim), log.session().unwrap());
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let mut refused = (0..100).map(|tag| append(&mut session, tag, &payload(tag, 3000)).and_then(|lsn| log.force(lsn)));
    let error = refused.find_map(Result::err);
    assert!(matches!(error, Some(Error::DiskFull { .. })), "{error:?}");
    assert!(log.poisoned().is_none() && lengths(&sim) == before, "{before:?}");
}

/// A disk with a file that cannot be synced, whatever its name is at the time.
#[derive(Debug)]
struct Spoilt {
    disk: Sim,
    bad: Mutex<PathBuf>,
}

#[derive(Debug)]
struct BadFile(Arc<dyn File>);

impl FileLayer for BadFile {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn sync(&self) -> Result<()> {
        Err(Error::io("sync", self.path(), std::io::Error::other("a bad block")))
    }
}

impl FsLayer for Spoilt {
    fn below(&self) -> &dyn Fs {
        &self.disk
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        if file.path() == *self.bad.lock().unwrap() { Arc::new(BadFile(file)) } else { file }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut bad = self.bad.lock().unwrap();
        self.disk.rename(from, to)?;
        if *bad == from {
            *bad = to.to_owned();
        }
        Ok(())
    }
}

/// A spare segment that fails twice running is not tried a third time before all others, as long as the log is open.
#[test]
fn a_bad_file_does_not_keep_others_from_being_used() {
    let sim = Sim::new(1);
    let (log, sessions) = opened_again(&sim, 200, 64 << 10, 64 << 10);
    drop((log, sessions));
    // One of those behind the last has the number of the next segment, so it goes first.
    let names = sim.list(&dir()).unwrap();
    let bad = dir().join(names.iter().filter(|name| name.ends_with(".seg")).nth_back(0).unwrap());
    let spoilt = Arc::new(Spoilt { disk: sim.clone(), bad: Mutex::new(bad.clone()) });
    let fs: Arc<dyn Fs> = spoilt.clone();
    let (log, _) = open(&fs, &small()).unwrap();
    let mut sessions: Vec<_> = (0..4).map(|_| log.session().unwrap()).collect();
    let steps: Vec<bool> = std::iter::from_fn(|| match log.prepare_step() {
        NextWake::Now => Some(true),
        NextWake::After(_) => Some(false),
        NextWake::OnSignal => None,
    })
    .take(20)
    .collect();
    assert_eq!(steps.iter().filter(|&&step| !step).count(), 2, "{steps:?}");
    assert!(steps.len() < 20 && log.stats().segments_recycled > 1, "{steps:?}");
    assert_eq!(*spoilt.bad.lock().unwrap(), bad, "it is where it was");
    let lsn = append(&mut sessions[0], 1, b"on").unwrap();
    log.force(lsn).unwrap();
}

#[test]
fn the_preparer_tries_again_when_space_is_back() {
    let sim = Sim::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &small());
    while log.prepare_step() == NextWake::Now {}
    let mut session = log.session().unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let mut tag = 0;
    while let Ok(lsn) = append(&mut session, tag, &payload(tag, 3000)) {
        log.force(lsn).unwrap();
        tag += 1;
    }
    assert!(matches!(log.prepare_step(), NextWake::After(_)));
    sim.clear_faults();
    append(&mut session, tag, &payload(tag, 3000)).unwrap();
    assert!(!matches!(log.prepare_step(), NextWake::After(_)));
}

/// Compensations are refused before records in flight may lack space. So the log goes on, and transactions can end.
#[test]
fn what_is_kept_back_ends_in_a_refusal_and_not_in_a_stop() {
    let sim = Sim::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &small());
    while log.prepare_step() == NextWake::Now {}
    let mut session = log.session().unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let mut acked = 0;
    let mut write = |session: &mut Session| {
        let lsn = session.append(Record { tag: acked, flags: 0, parts: &[&payload(acked, 3000)] }, Dep::none());
        log.force(lsn).unwrap();
        acked += 1;
    };
    let error = loop {
        match session.reserve_rollback(Session::cost(3000)) {
            Ok(()) => write(&mut session),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::DiskFull { .. }), "{error:?}");
    for _ in 0..2 {
        session.reserve_end(Session::cost(3000)).unwrap();
        write(&mut session);
    }
    assert!(log.poisoned().is_none());
    assert!(acked > 30, "{acked} records in what was ready");
    drop((session, log));
    sim.clear_faults();
    let (_, recovered) = open(&fs, &small()).unwrap();
    assert_eq!(tags(&recovered), (0..acked).collect::<Vec<_>>());
}

/// Work that frees space may use the margin, and no more.
#[test]
fn work_that_frees_space_goes_on_where_other_work_is_refused() {
    let sim = Sim::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &small());
    while log.prepare_step() == NextWake::Now {}
    let mut session = log.session().unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    let mut go_on = || {
        let before = log.written_bytes();
        while let Ok(lsn) = append(&mut session, 1, &payload(1, 3000)) {
            log.force(lsn).unwrap();
        }
        assert!(!session.set_frees(true));
        let ordinary = log.written_bytes() - before;
        while let Ok(lsn) = append(&mut session, 1, &payload(1, 3000)) {
            log.force(lsn).unwrap();
        }
        assert!(session.set_frees(false));
        (ordinary, log.written_bytes() - before - ordinary)
    };
    let (_, freeing) = go_on();
    assert!(freeing >= 32 << 10, "{freeing} bytes for work that frees space");
    assert_eq!(go_on(), (0, 0));
    // The rest is for rollbacks.
    session.reserve_rollback(Session::cost(3000)).unwrap();
    let lsn = session.append(Record { tag: 1, flags: 0, parts: &[&payload(1, 3000)] }, Dep::none());
    log.force(lsn).unwrap();
}

/// Sessions that begin on a full disk are refused, and take no space from rollbacks and checkpoints of earlier ones.
#[test]
fn sessions_that_begin_on_a_full_disk_leave_rollbacks_their_space() {
    let sim = Sim::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &LogOptions { buffer: None, ..small() });
    let mut first = log.session().unwrap();
    log.force(append(&mut first, 0, &payload(0, 3000)).unwrap()).unwrap();
    while log.prepare_step() == NextWake::Now {}
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    while let Ok(lsn) = append(&mut first, 1, &payload(1, 3000)) {
        log.force(lsn).unwrap();
    }
    let mut others: Vec<_> = (0..7).map(|_| log.session().unwrap()).collect();
    for other in &mut others {
        let refused = append(other, 2, b"small");
        assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
    }
    first.reserve_rollback(Session::cost(3000)).unwrap();
    let lsn = first.append(Record { tag: 3, flags: 0, parts: &[&payload(3, 3000)] }, Dep::none());
    log.force(lsn).unwrap();
}
