//! A whole run: a directory, a loaded database, the device's speed, the rows.

use crate::{
    Config, Progress, Report, Silent,
    config::Workload,
    home::Home,
    machine::Machine,
    report::Row,
    row::{Check, measure},
    stepper::{Operations, by_turns},
    terminal::{Phase, Terminal},
    workload::{Audit, Work, Worker, next_run, work},
};
use foreshore::{Error, Result};

/// Runs `workload` as `config` says.
///
/// # Errors
/// `InvalidOption` for what is out of range or not built; `Foreign` for a directory that holds something else; what the
/// engine gives. A directory that the run made is removed then too.
pub fn run(workload: Workload, config: &Config, progress: &dyn Progress) -> Result<Report> {
    config.check(workload)?;
    let done = run_checked(workload, config, progress);
    progress.end();
    done
}

fn run_checked(workload: Workload, config: &Config, progress: &dyn Progress) -> Result<Report> {
    let home = Home::new(config)?;
    let work = work(workload, config);
    let mut found = prepare(&*work, &home, progress)?;
    let (rows_name, was_sound) = (work.checks()[0], found.is_sound);
    progress.phase("measuring the device", 1);
    let machine = Machine::probe(home.fs(), home.dir(), home.filesystem()?)?;
    let mut rows = Vec::with_capacity(config.threads.len());
    for &threads in &config.threads {
        let repeats: Result<Vec<Row>> = (0..config.window.repeat)
            .map(|_| {
                let row = measure(config, &home, &*work, threads, &mut found, Check::LiveAndReopened, progress)?;
                Ok(row.begun(rows_name, was_sound))
            })
            .collect();
        rows.push(Row::median(repeats?));
    }
    Ok(Report { workload, config: config.clone(), machine, rows })
}

/// Loads `workload` and runs its transactions by turns, with as many workers as `config` has first. Called in a process
/// that [`stepper::count`](crate::stepper::count) has started.
///
/// # Errors
/// As [`run`]; `Io` without a tracer.
pub fn take_turns(workload: Workload, config: &Config) -> Result<()> {
    config.check(workload)?;
    let home = Home::new(config)?;
    let work = work(workload, config);
    let found = prepare(&*work, &home, &Silent)?;
    let db = home.open()?;
    work.read_in(&db)?;
    let phase = Phase::new();
    let workers = (0..config.threads[0]).map(|thread| {
        let worker = Worker { run: found.next_run, thread: thread as u32 };
        let mut terminal = Terminal::new(config, &db, &phase, work.transactions(worker));
        Box::new(move || terminal.operate()) as Operations<'_>
    });
    by_turns(workers.collect(), config.window.warm_up())?;
    Home::close(&db)
}

/// Loads an empty directory, or takes a loaded one as it is, and tells what it holds.
pub(crate) fn prepare(work: &dyn Work, home: &Home, progress: &dyn Progress) -> Result<Audit> {
    let is_fresh = home.is_empty()?;
    if !is_fresh && !home.has_database()? {
        let path = home.dir().to_owned();
        return Err(Error::Foreign { path, why: "the directory holds other files and no database" });
    }
    let db = home.open()?;
    if is_fresh {
        work.load(&db, progress)?;
    } else {
        work.resume(&db, home.dir())?;
    }
    progress.phase("counting", 1);
    let found = work.audit(&db)?;
    let next_run = found.next_run.max(next_run(&db)?);
    Home::close(&db)?;
    Ok(Audit { next_run, ..found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Commit, Storage, Window};
    use foreshore::Device;
    use std::{path::PathBuf, time::Duration};

    fn config(device: Device) -> Config {
        Config {
            threads: vec![2],
            clients: 8,
            scale: 1,
            window: Window::of(Duration::from_millis(200)),
            storage: Storage { device, memory: 64 << 20, segment: 4 << 20, ..Storage::default() },
            ..Config::default()
        }
    }

    #[test]
    fn every_commit_mode_passes_its_checks_in_memory() {
        for commit in [Commit::Blocking, Commit::Pipelined, Commit::Async] {
            let config = Config { commit, ..config(Device::Null) };
            let report = run(Workload::Tpcb, &config, &Silent).unwrap();
            let row = &report.rows[0];
            assert!(report.passed(), "{commit}: {:?}", row.checks);
            assert!(row.ended.commits > 0 && row.tps > 0.0);
            assert!(row.latency.p50_us > 0.0 && row.latency.p50_us <= row.latency.p999_us);
            assert!(row.log.log_groups > 0 && row.log.log_bytes_per_txn > 100.0 && row.time.cpu_cores > 0.0);
            assert_eq!(row.clients, if commit == Commit::Pipelined { 8 } else { 1 });
            assert_eq!(row.rmw.contended_rmw_per_txn, None);
            assert!(!report.machine.is_durable && report.machine.filesystem == "memory");
        }
    }

    #[test]
    fn a_snapshot_is_held_where_there_is_a_file_for_what_it_sees() {
        let window = Window { reader: true, ..Window::of(Duration::from_secs(1)) };
        let config = Config { scale: 10_000, window, ..config(Device::Null) };
        // The memory for undo is spent after some 10,000 updates.
        for (spill, killed) in [(0, 1), (64 << 20, 0)] {
            let storage = Storage { memory: 16 << 20, spill, ..config.storage };
            let config = Config { storage, ..config.clone() };
            let report = run(Workload::Update, &config, &Silent).unwrap();
            let row = &report.rows[0];
            assert!(report.passed() && row.ended.commits > 0);
            assert_eq!(row.memory.snapshots_killed, Some(killed), "{row:?}");
            assert_eq!(row.memory.undo_spilled_bytes.is_some_and(|bytes| bytes > 0), spill > 0, "{row:?}");
        }
    }

    /// A path below the system's folder for temporary files, removed with the value.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("foreshore-bench-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_directory_is_used_again_at_its_scale_and_refused_at_another() {
        let scratch = Scratch::new("again");
        let config = Config { dir: Some(scratch.0.clone()), ..config(Device::Buffered) };
        // The second run counts the history of the first: a collision of keys or a lost row fails its checks.
        for _ in 0..2 {
            assert!(run(Workload::Tpcb, &config, &Silent).unwrap().passed());
        }
        let other = Config { scale: 2, ..config };
        let refused = run(Workload::Tpcb, &other, &Silent);
        assert!(matches!(refused, Err(Error::InvalidOption { name: "scale", .. })), "{refused:?}");
        assert!(scratch.0.is_dir());
    }

    #[test]
    fn a_run_draws_anew_also_behind_one_whose_result_was_lost() {
        let scratch = Scratch::new("anew");
        let config = Config { dir: Some(scratch.0.clone()), ..config(Device::Buffered) };
        let config = Config { scale: 500, window: Window::of(Duration::from_millis(20)), ..config };
        for workload in [Workload::Tatp, Workload::YcsbA, Workload::Read] {
            let (home, work) = (Home::new(&config).unwrap(), work(workload, &config));
            let mut found = prepare(&*work, &home, &Silent).unwrap();
            let first = found.next_run;
            measure(&config, &home, &*work, 1, &mut found, Check::Skip, &Silent).unwrap();
            assert_eq!(prepare(&*work, &home, &Silent).unwrap().next_run, first + 1, "{workload}");
            std::fs::remove_dir_all(&scratch.0).unwrap();
        }
    }

    /// A process that was killed has left the directory so, or a defect has.
    #[test]
    fn rows_that_are_not_sound_when_a_run_begins_are_reported() {
        let scratch = Scratch::new("begun");
        let config = Config { dir: Some(scratch.0.clone()), ..config(Device::Buffered) };
        let config = Config { scale: 500, window: Window::of(Duration::from_millis(20)), ..config };
        let checks = |config: &Config| {
            let report = run(Workload::Tatp, config, &Silent).unwrap();
            (serde_json::to_value(&report.rows[0].checks).unwrap()["rows_begun"].clone(), report.passed())
        };
        assert_eq!(checks(&config), (true.into(), true));
        let db = Home::new(&config).and_then(|home| home.open()).unwrap();
        let access_infos = foreshore::TableDef::<(u32, u8), (u8, u8, [u8; 3], [u8; 5])>::new("access_info");
        db.run(|tx| tx.open(access_infos)?.remove_range((7, 0)..(8, 0))).unwrap();
        Home::close(&db).unwrap();
        assert_eq!(checks(&config), (false.into(), false));
    }

    #[test]
    fn a_directory_of_other_files_is_refused_and_left_alone() {
        let scratch = Scratch::new("other");
        std::fs::create_dir(&scratch.0).unwrap();
        std::fs::write(scratch.0.join("notes"), "mine").unwrap();
        let config = Config { dir: Some(scratch.0.clone()), ..config(Device::Buffered) };
        let refused = run(Workload::Tpcb, &config, &Silent);
        assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
        assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
    }

    #[test]
    fn what_is_out_of_range_is_refused_before_anything_is_made() {
        let config = Config { threads: vec![0], ..config(Device::Null) };
        assert!(matches!(run(Workload::Tpcb, &config, &Silent), Err(Error::InvalidOption { name: "threads", .. })));
    }
}
