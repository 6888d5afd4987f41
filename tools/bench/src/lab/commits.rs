//! Logs with files, and sessions that commit: what `log-threads` and `group-timer` share.

use super::{drive::Span, subject::payload};
use crate::{
    config::Commit,
    home::own_directory,
    machine::{Machine, device_sync_us},
    process::{user_and_system_seconds, voluntary_switches},
    terminal::{Phase, Tally},
};
use foreshore::{Csn, Db, Device, Options, Result};
use foreshore_base::Uuid;
use foreshore_io::{File, Fs};
use foreshore_wal::{CommitTicket, Dep, Log, LogOptions, LogStats, Record, Session, flags};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Segments are small, so that the log of each row is made soon and lies in little memory.
pub(super) const SEGMENT: u64 = 16 << 20;
/// Writes of a probe of the device between points.
const PROBES: usize = 100;
/// How often the main thread gives up what is behind the log.
const TICK: Duration = Duration::from_millis(10);

/// A directory on a device, removed with the value.
pub(super) struct Place {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    is_own: bool,
}

impl Place {
    /// A place of its own on `device`, below the current directory if it has files.
    pub(super) fn new(device: Device) -> Result<Self> {
        let is_own = !matches!(device, Device::Null | Device::Delay(_));
        let dir = if is_own { own_directory()? } else { PathBuf::from("lab") };
        // From here on the guard removes what was made.
        let mut place = Self { fs: Arc::new(foreshore_io::Mem::null()), dir, is_own };
        place.fs = device.open(&place.dir)?;
        if !is_own {
            place.fs.create_dir(&place.dir)?;
        }
        Ok(place)
    }

    pub(super) const fn fs(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The backend's name.
    pub(super) fn backend(&self) -> String {
        self.fs.backend().name
    }

    /// The machine with this device.
    pub(super) fn machine(&self) -> Result<Machine> {
        let memory = || Ok("memory".to_owned());
        let filesystem = if self.is_own { foreshore_io::filesystem_name(&self.dir) } else { memory() };
        Machine::probe(&*self.fs, &self.dir, filesystem?)
    }

    /// Durable writes of 4 KiB that the device makes a second now, one at a time.
    pub(super) fn syncs_per_s(&self) -> Result<f64> {
        Ok(1e6 / device_sync_us(&*self.fs, &self.dir, PROBES)?)
    }

    /// A new file here.
    pub(super) fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.fs.create(&self.dir.join(name))?)
    }

    /// A new database here.
    pub(super) fn database(&self, options: Options) -> Result<Db> {
        options.lab(|lab| lab.fs = Some(Arc::clone(&self.fs))).open(self.dir.join("db"))
    }

    /// A new log here.
    pub(super) fn log(&self, options: &LogOptions) -> Result<Log> {
        let (dir, uuid) = (self.dir.join("log"), Uuid([1; 16]));
        Log::create(&self.fs, &dir, uuid, options)?;
        Ok(Log::open(&self.fs, &dir, uuid, options)?.0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_own {
            // A directory that cannot be removed is a nuisance, not a failed run.
            let _ = std::fs::remove_dir_all(Path::new(&self.dir));
        }
    }
}

/// Differences over a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) seconds: f64,
    /// Cores in user and in system mode.
    pub(super) cpu: [f64; 2],
    pub(super) switches: u64,
    pub(super) records: u64,
    pub(super) groups: u64,
    pub(super) group_bytes: u64,
}

/// What is read at both ends of a window.
pub(super) struct LogSample {
    at: Instant,
    cpu: [f64; 2],
    switches: u64,
    pub(super) stats: LogStats,
}

impl LogSample {
    fn take(log: &Log) -> Result<Self> {
        let stats = log.stats();
        // A kernel counts a yield as if the thread had been pushed aside.
        let switches = voluntary_switches()? + stats.yields;
        Ok(Self { at: Instant::now(), cpu: user_and_system_seconds()?, switches, stats })
    }

    pub(super) fn since(&self, before: &Self) -> Used {
        let seconds = (self.at - before.at).as_secs_f64();
        Used {
            seconds,
            cpu: std::array::from_fn(|i| (self.cpu[i] - before.cpu[i]) / seconds),
            switches: self.switches.saturating_sub(before.switches),
            records: self.stats.records - before.stats.records,
            groups: self.stats.groups - before.stats.groups,
            group_bytes: self.stats.group_bytes - before.stats.group_bytes,
        }
    }
}

/// Waits through warm-up and window of `span`, and keeps the log short: groups sealed before the last tick but one are
/// released. Ends early when a worker has failed.
pub(super) fn watch(log: &Log, phase: &Phase, span: Span) -> Result<(LogSample, LogSample)> {
    let begun = Instant::now();
    let mut sealed = [log.next_group(); 2];
    let mut wait_until = |end: Duration| -> Result<()> {
        while begun.elapsed() < end && phase.get() != Phase::STOP {
            thread::sleep(TICK.min(end.saturating_sub(begun.elapsed())));
            log.truncate(sealed[0])?;
            sealed = [sealed[1], log.next_group()];
        }
        Ok(())
    };
    wait_until(span.warm_up)?;
    let before = LogSample::take(log)?;
    phase.raise(Phase::MEASURE);
    wait_until(span.warm_up + span.window)?;
    Ok((before, LogSample::take(log)?))
}

/// Runs `workers`, a thread each, through the span, and returns what they give and both ends of the window.
pub(super) fn run<W: FnOnce(&Phase) -> Result<T> + Send, T: Send>(
    log: &Log,
    workers: Vec<W>,
    span: Span,
) -> Result<(Vec<T>, LogSample, LogSample)> {
    let phase = Phase::new();
    thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                let phase = &phase;
                scope.spawn(move || {
                    let worked = worker(phase);
                    if worked.is_err() {
                        phase.raise(Phase::STOP);
                    }
                    worked
                })
            })
            .collect();
        let window = watch(log, &phase, span);
        phase.raise(Phase::STOP);
        let mut worked = Vec::with_capacity(threads.len());
        for thread in threads {
            match thread.join() {
                Ok(one) => worked.push(one?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let (before, after) = window?;
        Ok((worked, before, after))
    })
}

/// Commits records of one size, one after the other: each transaction is one record.
pub(super) struct Committer<'a> {
    pub(super) log: &'a Log,
    session: Session,
    payload: Vec<u8>,
    /// Commits that are not yet known to be durable, oldest first, with their begin.
    in_flight: VecDeque<(CommitTicket, Instant)>,
    tally: Tally,
}

impl<'a> Committer<'a> {
    pub(super) fn new(log: &'a Log, record_bytes: usize) -> Result<Self> {
        let payload = payload(record_bytes - super::subject::HEADER);
        Ok(Self { log, session: log.session()?, payload, in_flight: VecDeque::new(), tally: Tally::new() })
    }

    /// Appends one record and returns the ticket of its commit.
    pub(super) fn append(&mut self) -> Result<CommitTicket> {
        self.session.reserve(Session::cost(self.payload.len()))?;
        let lsn = self.session.append(Record { tag: 1, flags: flags::COMMIT, parts: &[&self.payload] }, Dep::none());
        Ok(self.log.ticket(lsn, Csn(lsn.0), lsn))
    }

    /// Asks for all that this committer appended to be durable soon.
    pub(super) fn flush_soon(&mut self, ticket: &CommitTicket) {
        self.log.flush_soon(&mut self.session, ticket.record_lsn());
    }

    /// Commits until the phase says stop, with `clients` in flight at most, and returns what was counted when all are
    /// durable.
    pub(super) fn work(mut self, phase: &Phase, commit: Commit, clients: usize) -> Result<Tally> {
        while phase.get() != Phase::STOP {
            let begun = Instant::now();
            let ticket = self.append()?;
            if commit == Commit::Blocking {
                ticket.wait()?;
                self.count(phase, begun, Instant::now());
                continue;
            }
            self.flush_soon(&ticket);
            self.in_flight.push_back((ticket, begun));
            if self.in_flight.len() >= clients {
                self.wait_for_oldest(phase)?;
            }
            // A group carries many: they are counted when it is known to be durable, not one by one.
            if self.in_flight.front().is_some_and(|(ticket, _)| ticket.is_durable()) {
                self.count_durable(phase);
            }
        }
        while !self.in_flight.is_empty() {
            self.wait_for_oldest(phase)?;
        }
        Ok(self.tally)
    }

    fn wait_for_oldest(&mut self, phase: &Phase) -> Result<()> {
        if let Some((ticket, begun)) = self.in_flight.pop_front() {
            ticket.wait()?;
            self.count(phase, begun, Instant::now());
        }
        Ok(())
    }

    fn count_durable(&mut self, phase: &Phase) {
        let now = Instant::now();
        while self.in_flight.front().is_some_and(|(ticket, _)| ticket.is_durable()) {
            if let Some((_, begun)) = self.in_flight.pop_front() {
                self.count(phase, begun, now);
            }
        }
    }

    fn count(&mut self, phase: &Phase, begun: Instant, now: Instant) {
        self.tally.all_commits += 1;
        if phase.get() == Phase::MEASURE {
            self.tally.commits += 1;
            self.tally.latency.saturating_record(nanoseconds(now - begun));
        }
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
