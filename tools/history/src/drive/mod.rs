//! Makes histories: sessions at work on a database, by a seed, with scans from both ends, rollbacks, some of them to savepoints,
//! losses of power and recoveries.
//!
//! The seed decides what every session does, where power is lost and what survives. How sessions interleave is up to the
//! system, so the same seed gives another history each time.

mod disk;
mod record;
mod session;
mod store;

use crate::check::{Base, Level};
use crate::{History, Kind};
use disk::SlowDisk;
use foreshore::{Db, Error, Isolation, Options};
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_io::{Fs, Sim};
use foreshore_sim::Random;
use record::Recorder;
use session::{Ended, Session};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use store::Store;

/// The directory of the database.
const DIR: &str = "db";
/// Longer than any wait without a cycle: one that takes this long is an error of the engine.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// What history to make.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What writes do.
    pub kind: Kind,
    /// The isolation of every transaction.
    pub isolation: Base,
    /// Sessions at once, each a thread.
    pub sessions: u64,
    /// Transactions of each session.
    pub txns: u64,
    /// Keys.
    pub keys: u64,
    /// How often power is lost, and the database recovered.
    pub losses: u64,
    /// Seed of all choices.
    pub seed: u64,
    /// What goes wrong on purpose.
    pub planted: Option<Planted>,
}

/// An error that the driver makes in place of the engine. Its histories show that such a one is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Who goes back to a savepoint leaves one write as it is.
    Forgets,
    /// A scan from the back comes to its end one row too early.
    Short,
}

impl Config {
    /// The level that the history must pass: what was acknowledged is seen by all that begin later.
    #[must_use]
    pub fn level(&self) -> Level {
        Level { base: self.isolation, real_time: true }
    }

    fn options(&self, disk: &Sim) -> Options {
        Options::new()
            .memory_limit(4 << 20)
            .segment_bytes(64 << 10)
            .log_budget(256 << 10)
            .max_transactions(64)
            .lock_timeout(LOCK_TIMEOUT)
            .fs(Arc::new(SlowDisk::new(disk)) as Arc<dyn Fs>)
    }
}

/// Makes a history.
///
/// # Errors
/// `InvalidOption` for a level that the engine has not. Otherwise the engine has met what it should not: a wait that
/// somebody's end would not have ended, or files that do not open after a loss of power.
pub fn drive(config: &Config) -> Result<History, Error> {
    let isolation: Isolation = config.isolation.to_string().parse()?;
    let store = Store::new(config, isolation);
    let mut random = Random::new(config.seed);
    let mut disk = Sim::new(config.seed);
    let mut sessions: Vec<Session> = (0..config.sessions).map(|number| Session::new(config, number)).collect();
    let recorder = Recorder::new(config);
    for life in 0..=config.losses {
        disk.stop_recording();
        let db = config.options(&disk).open(DIR)?;
        store.create(&db)?;
        recorder.recovered();
        sessions[0].read_all(&db, &store, &recorder)?;
        let goal = config.txns * (life + 1) / (config.losses + 1);
        let is_last = life == config.losses;
        if !is_last {
            // In half of the lives power is lost after the last transaction.
            let operations = 2 * config.sessions * config.txns / (config.losses + 1);
            let at = disk.ops() + 1 + random.below(2 * operations + 1);
            disk.inject(Fault { at, kind: FaultKind::Crash, sticky: false });
        }
        work(&db, &disk, &store, &recorder, &mut sessions, goal)?;
        if is_last {
            sessions[0].read_all(&db, &store, &recorder)?;
            break;
        }
        disk.power_off();
        drop(db);
        let policy = Persist::ALL[random.below(Persist::ALL.len() as u64) as usize];
        disk = disk.crash_image(&policy, random.below(u64::MAX));
    }
    Ok(recorder.finish())
}

/// Lets every session go on until it has reached the goal, or power is lost.
fn work(
    db: &Db,
    disk: &Sim,
    store: &Store,
    recorder: &Recorder,
    sessions: &mut [Session],
    goal: u64,
) -> Result<(), Error> {
    let work = |session: &mut Session| {
        while session.done() < goal {
            match session.run(db, store, recorder) {
                Ok(Ended::Well) => {}
                Ok(Ended::Stopped(_)) if disk.is_off() => return Ok(()),
                Ok(Ended::Stopped(error)) | Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = sessions.iter_mut().map(|session| scope.spawn(|| work(session))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a session panicked"))
    })
}

/// Values that no two writes share.
#[derive(Debug, Default)]
struct Values(AtomicU64);

impl Values {
    fn next(&self) -> u64 {
        // ORDERING: relaxed - the read-modify-write alone makes values distinct.
        1 + self.0.fetch_add(1, Ordering::Relaxed)
    }
}
