//! Makes histories: sessions at work on a database, by a seed. They scan from both ends, roll back, some of them to
//! savepoints, and commit in two phases, with power losses and recoveries between. A transaction that was prepared when
//! power was lost is committed or rolled back in the next life, while others work.
//!
//! The seed decides what every session does, where power is lost and what survives, and which of the engine's designs
//! are at work in each life. How sessions interleave is up to the system, so the same seed gives another history each
//! time.

mod config;
mod disk;
mod record;
mod session;
mod store;

pub use config::{Config, Planted};

use crate::History;
use disk::SlowDisk;
use foreshore::{Db, Error, Isolation, Options};
use foreshore_classics::early_release::EarlyRelease;
use foreshore_classics::intents::IntentKind;
use foreshore_classics::status_tables::StatusKind;
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_io::{Fs, Sim};
use foreshore_sim::Random;
use record::Recorder;
use session::{Ended, Session};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use store::Store;

/// The directory of the database.
const DIR: &str = "db";
/// Longer than any wait without a cycle: one that takes this long is an error of the engine.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// What is asked whether a transaction has committed.
const STATUS: [StatusKind; 4] = [
    StatusKind::CsnMap,
    StatusKind::Direct,
    StatusKind::Lru { buffers: 8, banks: false },
    StatusKind::Lru { buffers: 16, banks: true },
];
const INTENTS: [IntentKind; 2] = [IntentKind::Fastpath, IntentKind::Table];
const EARLY_RELEASE: [EarlyRelease; 3] = [EarlyRelease::Full, EarlyRelease::SharedOnly, EarlyRelease::Off];
/// Memory for undo that histories fill, so that some of it goes to a file.
const LITTLE_UNDO: u64 = 64 << 10;

/// How one life of the database runs. No design may show in what transactions see.
struct Life {
    status: StatusKind,
    intents: IntentKind,
    early_release: EarlyRelease,
    /// One session reads the same at the end as at the begin. Others write more meanwhile than there is memory to keep
    /// for it.
    has_old_reader: bool,
}

impl Life {
    fn draw(seed: u64, life: u64) -> Self {
        let mut random = Random::new(seed << 16 | life);
        let mut draw = |count: usize| random.below(count as u64) as usize;
        Self {
            status: STATUS[draw(STATUS.len())],
            intents: INTENTS[draw(INTENTS.len())],
            early_release: EARLY_RELEASE[draw(EARLY_RELEASE.len())],
            has_old_reader: draw(3) == 0,
        }
    }

    fn options(&self, disk: &Sim) -> Options {
        let options = Options::new()
            .memory_limit(4 << 20)
            .lab(|lab| lab.segment_bytes = 64 << 10)
            .log_budget(256 << 10)
            .max_transactions(64)
            .lock_timeout(LOCK_TIMEOUT)
            .lab(|lab| {
                lab.status = self.status.maker();
                lab.fast_intents = self.intents.is_fast();
                lab.hold_until_durable = self.early_release.hook();
                lab.fs = Some(Arc::new(SlowDisk::new(disk)) as Arc<dyn Fs>);
            });
        if self.has_old_reader {
            options.lab(|lab| lab.undo_limit = Some(LITTLE_UNDO)).spill_limit(1 << 20)
        } else {
            options
        }
    }
}

/// Makes a history.
///
/// # Errors
/// `InvalidOption` for a level that the engine does not have. Any other error is a defect of the engine. It may be a
/// wait that outlasts the transaction waited for, or files that do not open after a power loss.
pub fn drive(config: &Config) -> Result<History, Error> {
    drive_watched(config, &mut |_| {})
}

/// Makes a history, and shows each life of the database when it begins and before it ends.
fn drive_watched(config: &Config, watch: &mut dyn FnMut(&Db)) -> Result<History, Error> {
    let isolation: Isolation = config.isolation.to_string().parse()?;
    let store = Store::new(config, isolation);
    let mut random = Random::new(config.seed);
    let mut disk = Sim::new(config.seed);
    let mut sessions: Vec<Session> = (0..config.sessions).map(|number| Session::new(config, number)).collect();
    let recorder = Recorder::new(config);
    for number in 0..=config.losses {
        disk.stop_recording();
        let life = Life::draw(config.seed, number);
        let db = life.options(&disk).open(DIR)?;
        store.create(&db)?;
        watch(&db);
        let prepared = db.prepared()?;
        recorder.recovered(|number| prepared.iter().any(|found| found.name == session::name(number)));
        if prepared.is_empty() {
            sessions[0].read_all(&db, &store, &recorder)?;
        }
        let goal = config.txns * (number + 1) / (config.losses + 1);
        let is_last = number == config.losses;
        if !is_last {
            // How many operations come to a transaction depends on the machine; six are usual. So the numbers are of
            // several sizes: power is lost anywhere, and in some lives after the last transaction.
            let txns = config.sessions * config.txns / (config.losses + 1);
            let at = disk.ops() + 1 + (random.below(txns + 1) << random.below(4));
            disk.inject(Fault { at, kind: FaultKind::Crash, sticky: false });
        }
        work(&life, &db, &disk, &store, &recorder, &mut sessions, goal)?;
        watch(&db);
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
    life: &Life,
    db: &Db,
    disk: &Sim,
    store: &Store,
    recorder: &Recorder,
    sessions: &mut [Session],
    goal: u64,
) -> Result<(), Error> {
    let finish = |ended| match ended {
        Ok(Ended::Well) => Ok(()),
        Ok(Ended::Stopped(_)) if disk.is_off() => Ok(()),
        Ok(Ended::Stopped(error)) | Err(error) => Err(error),
    };
    let work = |session: &mut Session| {
        let mut ended = session.resolve(db, recorder);
        while session.done() < goal && matches!(ended, Ok(Ended::Well)) {
            ended = session.run(db, store, recorder);
        }
        finish(ended)
    };
    let work_all = |sessions: &mut [Session]| {
        thread::scope(|scope| {
            let threads: Vec<_> = sessions.iter_mut().map(|session| scope.spawn(|| work(session))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a session panicked"))
        })
    };
    sessions.iter_mut().for_each(|session| session.set_heavy(life.has_old_reader));
    if !life.has_old_reader {
        return work_all(sessions);
    }
    let (reader, others) = sessions.split_first_mut().expect("there are sessions");
    finish(reader.read_twice(db, store, recorder, goal, || work_all(others)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::check::Base;

    /// What the seed draws is met: prepared transactions after a loss of power, and undo that is read back from its
    /// file.
    #[test]
    fn lives_meet_what_they_are_made_for() {
        let (mut prepared, mut fetched) = (0, 0);
        for seed in 1..=30 {
            let kind = if seed % 2 == 0 { Kind::Append } else { Kind::Register };
            let isolation = Base::Serializable;
            let config = Config { kind, isolation, sessions: 5, txns: 80, keys: 4, losses: 3, seed, planted: None };
            let mut watch = |db: &Db| {
                let stats = db.stats();
                prepared += usize::from(stats.prepared > 0);
                fetched += usize::from(stats.txn.undo_fetches > 0);
            };
            drive_watched(&config, &mut watch).unwrap();
        }
        println!("of 120 lives {prepared} begin with prepared transactions, {fetched} read undo from its file");
        assert!(prepared > 1 && fetched > 1, "{prepared} and {fetched} of 120 lives");
    }
}
