//! Restarts of a database that has a restart target: it measures them, and keeps as much log as one may take.

use super::bank::{Limit, load_and_crash};
use crate::{
    Config,
    config::{Commit, Workload},
    lab::{
        Row,
        commits::Place,
        crashed::Crashed,
        experiment::Lab,
        promise::{Bound, Promise},
    },
    workload::{Audit, work},
};
use foreshore::{Options, Result};
use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a restart may take.
const TARGET: Duration = Duration::from_secs(2);
/// Memory of the database, before and after.
const MEMORY: u64 = 1 << 30;
/// How often it crashes: each restart may change the measured speed by half.
const CRASHES: usize = 5;
const QUICK_CRASHES: usize = 2;
/// How often the main thread looks whether pages wait.
const TICK: Duration = Duration::from_millis(2);
/// How long it is used before each crash: longer than between two checkpoints.
const USE: Duration = Duration::from_secs(20);

/// Crashes a bank under full load again and again, and measures the restart of a copy each time.
pub(super) fn restarts(lab: &mut Lab<'_>, scale: u64) -> Result<Vec<Row>> {
    let place = Place::new(lab.settings.device)?;
    let config = Config { scale, commit: Commit::Async, seed: lab.settings.seed, ..Config::default() };
    let (work, options) =
        (work(Workload::Tpcb, &config), || Options::new().memory_limit(MEMORY).restart_target(TARGET));
    let limit = Limit { log_bytes: u64::MAX, time: lab.settings.secs.unwrap_or(USE) };
    let (mut rows, mut expected) = (Vec::new(), None::<Audit>);
    let crashes = lab.choose(CRASHES, QUICK_CRASHES);
    lab.progress.phase("crashes", crashes as u64);
    for crash in 0..crashes {
        let (crashed, audit) = Crashed::make(&place, options(), |db, crash| {
            if expected.is_none() {
                work.load(db, lab.progress)?;
                db.checkpoint()?;
            }
            let found = work.audit(db)?;
            assert!(expected.is_none_or(|expected| expected.count == found.count), "{found:?}, not {expected:?}");
            let commits = load_and_crash(&config, &*work, (db, crash), (found, limit), |_| ())?;
            Ok(Audit { count: work.count_after(found.count, commits), ..found })
        })?;
        expected = Some(audit);
        crashed.copy()?;
        let read_mb_per_s = crashed.read_mb_per_s()?;
        let begun = Instant::now();
        let db = crashed.open(options())?;
        let open_s = begun.elapsed().as_secs_f64();
        let mut redone_s = open_s;
        while db.stats().recovery.pending_pages > 0 {
            thread::sleep(TICK);
            redone_s = begun.elapsed().as_secs_f64();
        }
        let row = Row::new()
            .with("log_bytes", db.stats().recovery.log_bytes)
            .with("workers", 0)
            .with("redo", "first touch")
            .measured("target_s", TARGET.as_secs_f64())
            .measured("open_s", open_s)
            .measured("redone_s", redone_s)
            .measured("read_mb_per_s", read_mb_per_s);
        rows.push(row);
        lab.progress.at(crash as u64 + 1);
    }
    Ok(rows)
}

/// The promise of a row with a target.
pub(super) fn promise(row: &Row) -> Option<Promise> {
    let [target, redone] = ["target_s", "redone_s"].map(|field| row.number(field));
    let log = format!("{} MiB of log, target {} s", row.number("log_bytes")? as u64 >> 20, target?);
    Some(Promise::new(format!("{log}: the restart / its target"), redone? / target?, Bound::Most(1.5)))
}
