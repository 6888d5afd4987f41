//! Background work of the engine itself: on its threads, or piece by piece where there are none.

use crate::engine::Engine;
use crate::live::Live;
use crate::trace;
use crate::watches::TableSet;
use foreshore_base::{Error, Result};
use foreshore_sync::{Daemon, NextWake, Signal, Step};
use std::sync::{Arc, Weak};
use std::{io, time::Duration};

/// Pause before work that failed is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// Time between two tries of parked rollbacks while nothing else wakes the thread. Each try costs a descent and a
/// system call.
const RETRY_PARKED: Duration = Duration::from_millis(200);

/// A step of background work. It does not keep the engine alive.
struct Work {
    engine: Weak<Engine>,
    step: fn(&Engine) -> NextWake,
}

impl Step for Work {
    fn step(&self) -> NextWake {
        self.engine.upgrade().map_or(NextWake::OnSignal, |engine| (self.step)(&engine))
    }
}

/// Starts the threads that the engine itself drives.
pub(crate) fn spawn(engine: &Arc<Engine>) -> Result<()> {
    if engine.storage.directory().is_read_only() {
        // Work left for the background stays for the next opener that writes.
        return Ok(());
    }
    let weak = Arc::downgrade(engine);
    // Rows that a loser had removed are back.
    engine.storage.undo().on_end(move || {
        weak.upgrade().iter().for_each(|engine| engine.catalogue.watches().signal(&TableSet::ALL));
    });
    let has_threads = engine.options.of_lab().background;
    let checkpointer = engine.storage.checkpointer();
    checkpointer.serve(has_threads);
    if !has_threads {
        return Ok(());
    }
    let log = engine.storage.log();
    // Before the checkpointer begins: it writes to no archive that has a thread. If a thread is missing, it must not
    // wait for that one.
    log.drive_archive(true);
    spawn_all(engine).inspect_err(|_| log.drive_archive(false))
}

fn spawn_all(engine: &Arc<Engine>) -> Result<()> {
    let (checkpointer, log) = (engine.storage.checkpointer(), engine.storage.log());
    let work = |step| Arc::new(Work { engine: Arc::downgrade(engine), step });
    let undo = engine.storage.undo();
    if undo.is_running() {
        spawn_one(engine, "foreshore-undo", Signal::new(), Arc::clone(undo) as _)?;
        undo.has_thread();
    }
    spawn_one(engine, "foreshore-checkpoint", checkpointer.signal(), Arc::clone(checkpointer) as _)?;
    if engine.options.max_age().is_some() {
        spawn_one(engine, "foreshore-max-age", Signal::new(), work(end_old))?;
    }
    if log.archive_stats().is_some() {
        spawn_one(engine, "foreshore-archive", log.archive_signal(), work(archive))?;
    }
    spawn_one(engine, "foreshore-purge", engine.catalogue.trees().purge_signal(), work(purge))?;
    spawn_one(engine, "foreshore-space", engine.storage.space().signal(), work(upkeep))
}

fn spawn_one(engine: &Engine, name: &'static str, signal: Signal, step: Arc<dyn Step>) -> Result<()> {
    let (log, dir) = (engine.storage.log().clone(), engine.storage.files().dir.clone());
    let on_panic = Box::new(move |name: &str, message: &str| {
        log.poison(&Error::io("do background work for", dir, io::Error::other(format!("{name}: {message}"))));
    });
    let daemon = Daemon::spawn(name, signal, step, on_panic)
        .map_err(|error| Error::io("start a thread for", &engine.storage.files().dir, error))?;
    engine.background.add(daemon);
    Ok(())
}

/// Runs one piece of background work, drawn by the seed.
pub(crate) fn step(engine: &Engine) {
    let storage = &engine.storage;
    if storage.directory().is_read_only() {
        return;
    }
    match engine.background.draw() % 5 {
        0 => {
            storage.log().flush_step();
        }
        1 => {
            storage.log().prepare_step();
        }
        // A failure of these stops the log, which all callers learn.
        2 => drop(storage.pool().clean_step()),
        3 => drop(storage.pool().reclaim_step()),
        _ => {
            archive(engine);
            Step::step(&**storage.undo());
            Step::step(&**storage.checkpointer());
            storage.space().extend_step();
            drop(engine.reclaimer.reclaim_some(&engine.admission, &engine.catalogue));
            drop(engine.reclaimer.chains().free_some(&engine.admission, engine.catalogue.trees()));
            purge(engine);
            end_old(engine);
            retry_parked(engine);
            engine.background.workers().step();
        }
    }
}

/// Copies log to the archive.
fn archive(engine: &Engine) -> NextWake {
    engine.storage.log().archive_step()
}

/// Purges some leaves.
fn purge(engine: &Engine) -> NextWake {
    engine.purger.step(&engine.admission, &engine.catalogue)
}

/// Rolls back transactions that are too old.
fn end_old(engine: &Engine) -> NextWake {
    // A rollback that fails stops the log, and every later operation reports that.
    let roll_back = |live: Live| {
        trace::too_old(live.txn.label());
        drop(engine.roll_back(live));
    };
    engine.aging.end_old(roll_back).map_or(NextWake::OnSignal, NextWake::After)
}

/// Retries parked rollbacks, and returns whether some are left.
fn retry_parked(engine: &Engine) -> bool {
    let retried = engine.admission.txns().retry_parked();
    if retried.ended > 0 {
        engine.catalogue.watches().signal(&TableSet::ALL);
    }
    retried.left > 0
}

/// Grows the data file, frees pages of dropped tables and replaced large values, and retries parked rollbacks.
fn upkeep(engine: &Engine) -> NextWake {
    let grown = engine.storage.space().extend_step();
    if grown == NextWake::Now {
        return grown;
    }
    let dropped = engine.reclaimer.reclaim_some(&engine.admission, &engine.catalogue);
    // Whatever keeps the other: a check may hold a dropped table for long.
    let chains = engine.reclaimer.chains().free_some(&engine.admission, engine.catalogue.trees());
    let reclaimed = dropped.and_then(|dropped| Ok(dropped.into_iter().chain(chains?).min()));
    let is_parked = retry_parked(engine);
    let next = match reclaimed {
        Ok(Some(Duration::ZERO)) => return NextWake::Now,
        // A damaged page is in the way.
        Ok(Some(pause)) => no_later(grown, pause),
        Ok(None) | Err(Error::Closed | Error::Poisoned { .. }) => grown,
        // A check walks the table, all sessions are in use, or the disk is full.
        Err(_) => no_later(grown, RETRY),
    };
    if is_parked && engine.storage.log().poisoned().is_none() { no_later(next, RETRY_PARKED) } else { next }
}

/// Returns the next step, after `pause` at the latest.
fn no_later(next: NextWake, pause: Duration) -> NextWake {
    match next {
        NextWake::After(sooner) => NextWake::After(sooner.min(pause)),
        _ => NextWake::After(pause),
    }
}
