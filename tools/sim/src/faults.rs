//! Failing operations: whatever the disk refuses, nothing acknowledged is lost and nothing wrong is said.

use crate::{Contents, Script, open};
use foreshore::Error;
use foreshore_io::Sim;
use foreshore_io::sim::{Fault, FaultKind, Persist};

/// What fails.
#[derive(Clone, Copy, Debug)]
pub enum Strike {
    /// An operation that changes or syncs something.
    Operation(Fault),
    /// A read, with `EIO`, by its number, and the next one: a page whose neighbours fail with it is read once more
    /// alone.
    Read(u64),
}

/// Runs the history of `seed` on a copy of `disk` with one `strike` in it.
///
/// The error that the script meets must be typed. Afterwards power is lost, once with nothing and once with everything
/// of what was not synced. Then the fault is gone, and the database must open and hold what the oracle allows. A fault
/// that caused no error must not have changed any result. Returns whether the fault was met.
///
/// # Errors
/// Says what is wrong.
pub fn strike(disk: &Sim, contents: &Contents, seed: u64, rounds: u32, strike: Strike) -> Result<bool, String> {
    let sim = disk.fork();
    let kind = match strike {
        Strike::Operation(fault) => {
            sim.inject(fault);
            fault.kind
        }
        Strike::Read(at) => {
            [at, at + 1].into_iter().for_each(|at| sim.inject_read_error(at, false));
            FaultKind::Eio
        }
    };
    let mut script = Script::new(&sim, seed, contents.clone());
    let outcome = open(&sim, seed).and_then(|db| {
        let outcome = script.run(&db, rounds);
        script.oracle.poll(sim.ops());
        script.oracle.forget_tickets();
        outcome
    });
    if let Err(error) = &outcome {
        judge(kind, error)?;
    }
    let met = sim.faults_met() > 0;
    sim.clear_faults();
    for policy in [Persist::None, Persist::All] {
        let db = open(&sim.crash_image(&policy, seed), seed)
            .map_err(|error| format!("open after {outcome:?}, {policy:?}: {error} ({error:?})"))?;
        script.oracle.verify(&db, sim.ops()).map_err(|why| format!("after {outcome:?}, {policy:?}: {why}"))?;
    }
    Ok(met)
}

/// Whether `error` is one that a fault of this kind may come out as.
fn judge(kind: FaultKind, error: &Error) -> Result<(), String> {
    let fits = match kind {
        // A sync is not repeated, whatever it failed with; everything else is repeated after a signal.
        FaultKind::Eio | FaultKind::LateEio | FaultKind::Crash | FaultKind::Eintr => {
            matches!(error, Error::Io { .. } | Error::Poisoned { .. })
        }
        FaultKind::Enospc | FaultKind::LateEnospc => {
            matches!(error, Error::DiskFull { .. })
                || matches!(error, Error::Poisoned { cause } if matches!(**cause, Error::DiskFull { .. }))
        }
        FaultKind::ShortWrite(_) => false,
    };
    if fits { Ok(()) } else { Err(format!("{kind:?} came out as {error} ({error:?})")) }
}
