//! TPC-B up to a crash.

use crate::{
    Config,
    lab::crashed::Crash,
    terminal::{Phase, Terminal},
    workload::{Audit, Work, Worker},
};
use foreshore::{Db, Error, Result};
use std::{
    thread,
    time::{Duration, Instant},
};

/// How often the main thread looks at the log.
const TICK: Duration = Duration::from_millis(2);

/// When the log is long enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) log_bytes: u64,
    pub(super) time: Duration,
}

/// Runs TPC-B up to the limit, and crashes. Returns the commits. `found` is what the bank had before.
pub(super) fn load_and_crash(
    config: &Config,
    work: &dyn Work,
    (db, crash): (&Db, &Crash),
    (found, limit): (Audit, Limit),
    progress: impl Fn(u64),
) -> Result<u64> {
    let written = |db: &Db| db.stats().log.group_bytes;
    let (before, begun, phase) = (written(db), Instant::now(), Phase::new());
    let commits = thread::scope(|scope| {
        let worker = |thread| {
            let worker = Worker { run: found.next_run, thread: thread as u32 };
            Terminal::new(config, db, &phase, work.transactions(worker))
        };
        let workers: Vec<_> =
            (0..config.threads[0]).map(worker).map(|terminal| scope.spawn(move || terminal.work())).collect();
        while written(db) - before < limit.log_bytes && begun.elapsed() < limit.time && phase.get() != Phase::STOP {
            progress(written(db) - before);
            thread::sleep(TICK);
        }
        phase.raise(Phase::STOP);
        workers
            .into_iter()
            .try_fold(0, |sum, worker| Ok::<_, Error>(sum + worker.join().expect("a worker ends")?.all_commits))
    })?;
    db.sync()?;
    crash.now();
    Ok(commits)
}
