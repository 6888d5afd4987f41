//! Power loss at every operation, and failures of every operation: no acknowledged record is lost, and none is
//! invented.

use crate::common::*;
use foreshore_base::{Error, Lsn, Result};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_io::{Fs, Sim};
use foreshore_wal::{Dep, Log, LogOptions, Record, Recovered};
use std::path::Path;
use std::sync::Arc;

/// The promises made to a run.
#[derive(Clone, Debug, Default)]
struct Promised {
    /// Records appended, by tag from 0: LSN and length.
    appended: Vec<(Lsn, usize)>,
    /// Records below this tag are acknowledged.
    acked: u64,
    /// Records below this tag may be gone because the log was truncated.
    truncated: u64,
    /// Operations of the disk after which the acknowledgements came: (op, acked, truncated).
    history: Vec<(u64, u64, u64)>,
    created: Option<u64>,
    /// Segment files used again, by run.
    recycled: Vec<u64>,
}

impl Promised {
    fn note(&mut self, sim: &Sim) {
        self.history.push((sim.ops(), self.acked, self.truncated));
    }

    /// Returns the promises just before operation `op` returned: the acknowledgements before it count. A truncation may
    /// have taken effect as soon as its call began.
    fn at(&self, op: u64) -> (u64, u64) {
        let acked = self.history.iter().filter(|&&(at, ..)| at <= op).map(|&(_, acked, _)| acked).max();
        let next = self.history.iter().position(|&(at, ..)| at > op);
        let truncated = next.map_or(self.truncated, |i| self.history[i].2);
        (acked.unwrap_or(0), truncated)
    }
}

const LEN: usize = 2500;
/// The length of a record. One record is longer, and is split into fragments if the buffer has them.
const BIG: usize = 10_000;

fn as_fs(sim: &Sim) -> Arc<dyn Fs> {
    Arc::new(sim.clone())
}

/// The options of each run of the script.
type Runs = [LogOptions; 3];

fn alike(options: &LogOptions) -> Runs {
    [options.clone(), options.clone(), options.clone()]
}

/// Options of runs with segments that grow and shrink: each run uses the files of the run before in another size.
fn of_all_sizes() -> Runs {
    [64 << 10, 128 << 10, 64 << 10].map(|segment_bytes| LogOptions { segment_bytes, ..small() })
}

/// Appends, forces, rolls, truncates, recycles, closes and opens again. Stops at the first error and returns it.
fn script(sim: &Sim, runs: &Runs, promised: &mut Promised) -> Result<()> {
    let fs = as_fs(sim);
    // The owner of a log makes the name of its directory durable.
    fs.create_dir(&dir())?;
    fs.sync_dir(Path::new("/"))?;
    create(&fs, &runs[0])?;
    promised.created = Some(sim.ops());
    for (run, options) in runs.iter().enumerate() {
        let (log, _) = open(&fs, options)?;
        let mut session = log.session()?;
        let mut groups = Vec::new();
        let base = promised.appended.len() as u64;
        for i in 0..40 {
            let tag = base + i;
            groups.push(log.next_group());
            let len = LEN + (tag as usize * 37) % 900;
            let lsn = append(&mut session, tag, &payload(tag, len))?;
            promised.appended.push((lsn, len));
            match i % 4 {
                3 => {
                    log.force(lsn)?;
                    promised.acked = tag + 1;
                    promised.note(sim);
                }
                1 => {
                    log.flush_soon(&mut session, lsn);
                    log.flush_step();
                    if log.durable() >= lsn {
                        promised.acked = tag + 1;
                        promised.note(sim);
                    }
                }
                _ => {}
            }
            if i % 20 == 19 && run < 2 {
                promised.truncated = base + i - 8;
                promised.note(sim);
                log.truncate(groups[i as usize - 8])?;
                log.prepare_step();
            }
        }
        if run == 1 {
            let big = payload(1 << 40, log.max_large().min(90_000));
            let record = Record { tag: promised.appended.len() as u64, flags: 0, parts: &[&big] };
            let lsn = session.append_large(record, Dep::none())?;
            promised.appended.push((lsn, big.len()));
        }
        drop(session);
        log.close()?;
        promised.recycled.push(log.stats().segments_recycled);
        promised.acked = promised.appended.len() as u64;
        promised.note(sim);
    }
    Ok(())
}

/// Checks that the records found are a gapless run of the appended ones, unchanged, and that no promised one is
/// missing.
fn check(recovered: &Recovered, promised: &Promised, acked: u64, truncated: u64, context: &str) -> u64 {
    let records = all(recovered);
    let first = records.first().map_or(acked, |record| record.tag);
    assert!(first <= truncated, "{context}: starts at {first}, truncated to {truncated}");
    let mut expected = first;
    for record in &records {
        assert_eq!(record.tag, expected, "{context}: a gap or a repetition");
        let (lsn, len) = promised.appended[expected as usize];
        assert_eq!(record.lsn, lsn, "{context}");
        let content = if len >= BIG { payload(1 << 40, len) } else { payload(record.tag, len) };
        assert!(record.payload == content, "{context}: wrong bytes in {expected}");
        expected += 1;
    }
    assert!(expected >= acked, "{context}: {acked} acknowledged, {expected} found");
    expected
}

/// Loses power at each operation, or each `stride`-th, and opens again with the options of the last run.
fn power_loss(runs: &Runs, stride: u64) -> Promised {
    let sim = Sim::new(7);
    let mut promised = Promised::default();
    script(&sim, runs, &mut promised).unwrap();
    let created = promised.created.unwrap();
    let mut points = sim.crash_points();
    let mut images = 0;
    loop {
        let op = points.op();
        if op >= created && op.is_multiple_of(stride) {
            let (acked, truncated) = promised.at(op);
            for policy in Persist::ALL {
                let image = points.image(&policy, op);
                let context = format!("op {op}, {policy:?}");
                let (log, recovered) = open(&as_fs(&image), &runs[2]).unwrap_or_else(|e| panic!("{context}: {e:?}"));
                let found = check(&recovered, &promised, acked, truncated, &context);
                if op.is_multiple_of(16) {
                    goes_on_and_crashes_again(&image, log, found, &promised, truncated, &context);
                }
                images += 1;
            }
        }
        if !points.advance() {
            break;
        }
    }
    assert!(images > 500, "{images} images");
    promised
}

#[test]
fn power_loss_at_every_operation_loses_nothing_acknowledged() {
    for buffer in KINDS {
        // All buffers do the same operations: one of them is stopped at each, the others at every third.
        let stride = if buffer == BufferKind::Lanes { 1 } else { 3 };
        power_loss(&alike(&LogOptions { buffer: buffer.maker(), ..small() }), stride);
    }
}

#[test]
fn power_loss_while_segments_change_their_size_loses_nothing_acknowledged() {
    let promised = power_loss(&of_all_sizes(), 1);
    assert!(promised.recycled[1] > 0 && promised.recycled[2] > 0, "{:?}", promised.recycled);
}

/// Checks that recovered records stay, even if another power loss follows right after the start.
fn goes_on_and_crashes_again(image: &Sim, log: Log, found: u64, promised: &Promised, truncated: u64, context: &str) {
    let options = small();
    let before = image.crash_image(&Persist::None, 1);
    let (_, recovered) = open(&as_fs(&before), &options).unwrap();
    assert_eq!(check(&recovered, promised, found, truncated, context), found, "{context}: believed, then lost");

    let mut session = log.session().unwrap();
    let mut promised = promised.clone();
    promised.appended.truncate(found as usize);
    let lsn = append(&mut session, found, &payload(found, 10)).unwrap();
    promised.appended.push((lsn, 10));
    log.force(lsn).unwrap();
    for policy in [Persist::None, Persist::Torn, Persist::RandomHalf] {
        let again = image.crash_image(&policy, 2);
        let (_, recovered) =
            open(&as_fs(&again), &options).unwrap_or_else(|e| panic!("{context}, then {policy:?}: {e:?}"));
        check(&recovered, &promised, found + 1, truncated, context);
    }
}

#[test]
fn power_loss_during_creation_leaves_a_log_or_none() {
    let sim = Sim::new(3);
    create(&as_fs(&sim), &small()).unwrap();
    let mut points = sim.crash_points();
    loop {
        for policy in Persist::ALL {
            let fs = as_fs(&points.image(&policy, points.op()));
            match open(&fs, &small()) {
                Ok((_, recovered)) => assert_eq!(tags(&recovered), []),
                // Without a control file nothing was created, and a second attempt does it.
                Err(_) => {
                    create(&fs, &small()).unwrap_or_else(|e| panic!("op {}, {policy:?}: {e:?}", points.op()));
                    open(&fs, &small()).unwrap();
                }
            }
        }
        if !points.advance() {
            break;
        }
    }
    assert!(points.op() > 5);
}

/// Runs the script with a fault at each operation, opens again, and checks; then power is lost.
fn every_fault(kind: FaultKind, sticky: bool, step: usize) {
    every_fault_of(&alike(&small()), kind, sticky, step);
}

fn every_fault_of(runs: &Runs, kind: FaultKind, sticky: bool, step: usize) {
    let options = small();
    let total = {
        let sim = Sim::new(7);
        script(&sim, runs, &mut Promised::default()).unwrap();
        sim.ops()
    };
    let mut failures = 0;
    for at in (0..total).step_by(step) {
        let sim = Sim::new(7);
        sim.inject(Fault { at, kind, sticky });
        let mut promised = Promised::default();
        let outcome = script(&sim, runs, &mut promised);
        sim.clear_faults();
        let context = format!("{kind:?} at {at}");
        if let Err(error) = outcome {
            failures += 1;
            let typed = matches!(error, Error::Io { .. } | Error::DiskFull { .. } | Error::Poisoned { .. });
            assert!(typed, "{context}: {error:?}");
        }
        if promised.created.is_none() {
            continue;
        }
        let (log, recovered) = open(&as_fs(&sim), &options).unwrap_or_else(|e| panic!("{context}: {e:?}"));
        let found = check(&recovered, &promised, promised.acked, promised.truncated, &context);
        // The records that the start accepted survive a power loss right after it, even if a write had failed before.
        goes_on_and_crashes_again(&sim, log, found, &promised, promised.truncated, &context);
    }
    assert!(failures > 10, "{kind:?} met {failures} operations only");
}

#[test]
fn a_failed_operation_is_answered_and_never_acknowledged() {
    every_fault(FaultKind::Eio, false, 1);
}

#[test]
fn a_failing_disk_is_answered_and_never_acknowledged() {
    every_fault(FaultKind::Eio, true, 3);
}

#[test]
fn a_full_disk_is_answered_and_loses_nothing() {
    every_fault(FaultKind::Enospc, true, 1);
}

#[test]
fn a_failed_operation_while_segments_change_their_size_is_answered() {
    every_fault_of(&of_all_sizes(), FaultKind::Eio, false, 1);
    every_fault_of(&of_all_sizes(), FaultKind::Enospc, true, 1);
}
