//! Opening a database: creates or recovers it, and connects the layers. `docs/recovery.md` lists what a start may find
//! and what it does then.

use crate::admission::Admission;
use crate::backup;
use crate::catalogue::Catalogue;
use crate::create::{self, Contents};
use crate::damage::Damage;
use crate::engine::{Background, Engine};
use crate::files::Files;
use crate::format::{CATALOGUE, LAST_SYSTEM_TABLE, SEQUENCES, SEQUENCES_ROOT};
use crate::known_backups::KnownBackups;
use crate::max_age::AgingTransactions;
use crate::prepared::{PreparedList, take_over};
use crate::profile::Profiler;
use crate::purge::Purger;
use crate::queues::Queues;
use crate::reclaim::Reclaimer;
use crate::storage::{Access, Directory, Storage};
use crate::{Error, MemoryShares, Options, Result, TxnOptions, daemons, trace};
use foreshore_base::{Csn, Lsn};
use foreshore_btree::Trees;
use foreshore_buffer::{Pool, Stamps};
use foreshore_io::{File, Fs, Kind};
use foreshore_lock::LockManager;
use foreshore_recovery::{
    CheckpointParts, Checkpointer, OpenRedo, OpenUndo, RecoveryStats, RedoOptions, Replayed, UndoOptions, replay, undo,
};
use foreshore_space::{Space, SuperBlock};
use foreshore_sync::model::mutant;
use foreshore_sync::{Clock, SystemClock, pause};
use foreshore_txn::{Isolation, SpillFile, Start, TakenOver, TxnManager};
use foreshore_wal::{Log, Recovered};
use std::{path::Path, sync::Arc};

/// Opens the database in `dir`.
pub(crate) fn open(dir: &Path, options: &Options) -> Result<Arc<Engine>> {
    let clock = SystemClock::new();
    let fs = options.file_system(dir)?;
    create::create_dir(&*fs, dir)?;
    start(clock, Directory::lock(Files::of(dir), fs, Access::Create)?, options)
}

/// Opens the database in `dir`, and creates none.
pub(crate) fn open_existing(dir: &Path, options: &Options) -> Result<Arc<Engine>> {
    let clock = SystemClock::new();
    // A directory without a database is only read: it gets no lock file, and no trial of direct I/O.
    let (files, reader) = (Files::of(dir), options.reader(dir)?);
    check_exists(&files, &reader)?;
    start(clock, Directory::lock(files, options.file_system(dir)?, Access::Existing)?, options)
}

/// Opens the closed database in `dir` for reading only. What the start writes stays in memory.
pub(crate) fn open_read_only(dir: &Path, options: &Options) -> Result<Arc<Engine>> {
    let clock = SystemClock::new();
    let (files, overlay) = (Files::of(dir), options.overlay(dir)?);
    check_exists(&files, &overlay)?;
    start(clock, Directory::lock(files, overlay, Access::ReadOnly)?, options)
}

/// Refuses a directory without a database, and writes nothing.
pub(crate) fn check_exists(files: &Files, reader: &Arc<dyn Fs>) -> Result<()> {
    let dir = &files.dir;
    if reader.kind(dir)? == Some(Kind::File) {
        return Err(Error::Foreign { path: dir.clone(), why: "it is a file, and a database is a directory" });
    }
    backup::check_no_backup(files, &**reader)?;
    match create::contents(files, reader)? {
        Contents::Database => Ok(()),
        Contents::Nothing | Contents::Unfinished => Err(Error::NoDatabase { path: dir.clone() }),
    }
}

/// Opens the directory of a closed engine again, with the same options and file system.
pub(crate) fn reopen(engine: &Engine) -> Result<Arc<Engine>> {
    let directory = engine.storage.directory();
    if directory.is_read_only() {
        // The files may have changed since.
        return open_read_only(&directory.files().dir, &engine.options);
    }
    start(SystemClock::new(), directory.lock_again(Access::Create)?, &engine.options)
}

/// Starts the engine. `clock` has counted from the call of open.
///
/// The catalogue may have to wait for losers that are undone beside transactions. If their undo is stuck, this start
/// ends as a crash would end it. A start for the same log undoes losers first, and parks what it cannot undo.
fn start(clock: SystemClock, directory: Arc<Directory>, options: &Options) -> Result<Arc<Engine>> {
    match start_once(clock, Arc::clone(&directory), options) {
        Err(Error::RollbackParked { .. }) => start_once(clock, directory.lock_again(directory.access())?, options),
        started => started,
    }
}

fn start_once(clock: SystemClock, directory: Arc<Directory>, options: &Options) -> Result<Arc<Engine>> {
    let memory = options.shares()?;
    backup::check_no_backup(directory.files(), &**directory.fs())?;
    let contents = create::contents(directory.files(), directory.fs())?;
    if contents != Contents::Database {
        if directory.access() != Access::Create {
            return Err(Error::NoDatabase { path: directory.files().dir.clone() });
        }
        create::create(directory.files(), directory.fs(), contents, &options.for_log(&memory))?;
    }
    let parts = Parts { clock, directory, options, memory };
    let engine = parts.start(contents != Contents::Database).and_then(|engine| {
        daemons::spawn(&engine)?;
        stop_watches(&engine);
        trace::opened(&engine.storage.files().dir, &engine.storage.recovery());
        Ok(engine)
    });
    // The parts of a failed start are dropped without further access to the files.
    engine.inspect_err(|_| parts.directory.release())
}

/// Ends the waits of watches when the log stops.
fn stop_watches(engine: &Arc<Engine>) {
    let weak = Arc::downgrade(engine);
    engine.storage.log().on_stop(move || {
        if let Some(engine) = weak.upgrade()
            && let Err(cause) = engine.admission.check_open()
        {
            let cause = cause.into();
            trace::stopped(&cause);
            engine.catalogue.watches().stop(&cause);
        }
    });
}

/// Creates the trees of the engine in new files.
fn create_trees(log: &Log, space: &Space, trees: &Trees) -> foreshore_base::Result<()> {
    let mut session = log.session()?;
    space.create(&mut session)?;
    trees.create_catalogue(&mut session, CATALOGUE)?;
    trees.create_chains(&mut session)?;
    trees.create_root(&mut session, SEQUENCES, SEQUENCES_ROOT).map(drop)
}

/// Whether the first checkpoint is left to the background, since a crash has left pages to be written. The next start
/// for the same log takes it at once. So does one that finds a single superblock: a second one shows that a backup was
/// opened, and replaces a damaged one.
fn is_left(superblock: &SuperBlock, replayed: &Replayed) -> bool {
    superblock.checkpoint_lsn > Lsn::ZERO && !replayed.stats.was_clean && !replayed.is_repeated
}

/// Takes the checkpoint that ends a start, unless it is left to the background. Without log space for it on the disk,
/// the next restart reads the same log again. A new database has no earlier checkpoint, so for it that is an error.
fn take_first_checkpoint(checkpointer: &Checkpointer, is_new: bool, is_left: bool) -> foreshore_base::Result<()> {
    if is_left {
        checkpointer.begin_in_background();
        pause::point("open: the first checkpoint is left to the background");
        return Ok(());
    }
    match checkpointer.checkpoint() {
        Err(foreshore_base::Error::DiskFull { .. }) if !is_new => {}
        taken => taken?,
    }
    pause::point("open: the first checkpoint is taken");
    Ok(())
}

/// Returns an error, or the one that has stopped the log: redo by other threads may have met it.
fn first_cause(log: &Log) -> impl FnOnce(Error) -> Error {
    |error| match (error, log.poisoned()) {
        (Error::Poisoned { .. }, Some(cause)) => cause.into(),
        (error, _) => error,
    }
}

/// Parts from which an engine is started.
struct Parts<'o> {
    /// Counts from the call of open.
    clock: SystemClock,
    directory: Arc<Directory>,
    options: &'o Options,
    memory: MemoryShares,
}

impl Parts<'_> {
    /// Recovers, and connects the layers. `is_new`: the files were just created and hold no page yet.
    fn start(&self, is_new: bool) -> Result<Arc<Engine>> {
        let Self { clock, directory, options, memory } = self;
        let (files, fenced) = (directory.files(), directory.fs());
        let (data, doublewrite) = (fenced.open(&files.data)?, fenced.open(&files.doublewrite)?);
        // The page cache may hold superblocks and pages whose sync has failed, in this process or an earlier one. The
        // log and the doublewrite file bypass it by themselves.
        if !mutant("sabotage: a start reads pages from the page cache") {
            data.read_past_cache()?;
        }
        let (mut superblock, older) = self.read_superblocks(&*data)?;
        Pool::check_files(&doublewrite, superblock.uuid)?;
        let stamps = Stamps::find(&**fenced, &files.stamps, superblock.uuid, superblock.seq)?;
        let (log, recovered) = Log::open(fenced, &files.log, superblock.uuid, &options.for_log(memory))?;
        self.archive(&log)?;
        let backups =
            KnownBackups::open(fenced, &files.backups, (superblock.uuid, superblock.backups), recovered.end())?;
        let pool = Pool::open(Arc::clone(&data), doublewrite, superblock.uuid, log.clone(), &options.for_pool(memory))?;
        pool.stamps().open(stamps, &**fenced, &files.stamps, superblock.uuid, !directory.is_read_only());
        let space = Arc::new(Space::new(pool.clone(), Arc::clone(&data), options.for_space()));
        let trees = Arc::new(Trees::new(pool.clone(), Arc::clone(&space)));
        let manager = Arc::clone(&trees) as _;
        let how = self.redo_options(&superblock, older.is_some());
        let replayed = replay(&files.log, &log, &recovered, &superblock, &pool, &manager, how)?;
        self.check_closed(replayed.stats.was_clean)?;
        if is_new {
            create_trees(&log, &space, &trees)?;
        } else {
            space.load()?;
        }
        superblock.quarantined.extend(&replayed.quarantined);
        let is_left = older.is_some() && is_left(&superblock, &replayed);
        let Recovery { txns, taken_over, redo, undo, stats: recovery } =
            self.recover(&log, recovered, &trees, replayed)?;
        let damage = Damage::found(&pool, &space, &mut superblock.quarantined)?;
        let passes_damage = directory.is_read_only() && superblock.quarantined.is_empty();
        let checkpointer = Checkpointer::new(CheckpointParts {
            log: log.clone(),
            pool: pool.clone(),
            txns: Arc::clone(&txns),
            space: Arc::clone(&space),
            data: Arc::clone(&data),
            superblock,
            backups: backups.mark(),
            budget: options.restart_budget(),
            redo,
        })?;
        self.remove_marker(&log, is_new)?;
        checkpointer.measure(&recovery, clock.now().into());
        take_first_checkpoint(&checkpointer, is_new, is_left)?;
        let has_threads = options.of_lab().background;
        let mut engine = Engine {
            options: (*options).clone(),
            admission: Admission::new(txns, log.clone(), options),
            reclaimer: Reclaimer::new(log.clone(), space.signal(), has_threads),
            purger: Purger::new(trees.purge_signal(), has_threads),
            catalogue: Catalogue::new(trees, log.clone(), files.data.clone(), passes_damage),
            prepared: PreparedList::new(log.clone()),
            damage,
            aging: AgingTransactions::new(options.max_age()),
            queues: Queues::new(&log, options.of_lab().step_seed),
            profiler: Profiler::new(options.of_lab().profile),
            background: Background::new(options.of_lab().step_seed, has_threads),
            storage: Storage::new((directory, backups), data, log, pool, space, checkpointer, (recovery, undo)),
        };
        load_catalogue(&engine, taken_over, &files.log).map_err(first_cause(engine.storage.log()))?;
        engine.storage.opened(clock.now().into());
        Ok(Arc::new(engine))
    }

    /// Reads the newest superblock and the older one. Only a writer has to know all features.
    fn read_superblocks(&self, data: &dyn File) -> Result<(SuperBlock, Option<SuperBlock>)> {
        let (newest, older) = match self.directory.is_read_only() {
            true => SuperBlock::read_newest_for_reading(data)?,
            false => SuperBlock::read_newest(data)?,
        };
        self.check_closed(newest.clean)?;
        Ok((newest, older))
    }

    /// Returns how pages are redone. They may wait for their first read unless the first checkpoint is taken at once,
    /// or there is no work in the background.
    fn redo_options(&self, superblock: &SuperBlock, has_older: bool) -> RedoOptions {
        let lab = self.options.of_lab();
        let (waits_from, has_threads) = (lab.redo_waits_from, lab.background);
        let is_left = has_older && superblock.checkpoint_lsn > Lsn::ZERO && !self.directory.is_read_only();
        let may_wait = is_left && (has_threads || waits_from.is_some());
        RedoOptions { threads: self.options.redo_workers(), may_wait, waits_from, has_threads }
    }

    /// Begins to archive the log, before the first checkpoint truncates it.
    fn archive(&self, log: &Log) -> Result<()> {
        if let Some(clock) = self.options.of_lab().wall_clock {
            log.stamp_by(clock);
        }
        if let Some(archive) = self.options.for_archive()?.filter(|_| !self.directory.is_read_only()) {
            create::create_dir(&*archive.fs, &archive.dir)?;
            log.archive_to(archive)?;
        }
        Ok(())
    }

    /// Refuses to recover a database that is only read: all that recovery writes would stay in memory.
    fn check_closed(&self, was_closed: bool) -> Result<()> {
        if was_closed || !self.directory.is_read_only() {
            return Ok(());
        }
        Err(Error::NotClosed { path: self.directory.files().dir.clone() })
    }

    /// Removes the marker of a new database. From here on a restart finds everything in the log, and no superblock
    /// names a checkpoint.
    fn remove_marker(&self, log: &Log, is_new: bool) -> foreshore_base::Result<()> {
        if !is_new {
            return Ok(());
        }
        log.force(log.current())?;
        self.directory.fs().remove(&self.directory.files().unfinished)?;
        pause::point("create: the marker is removed");
        self.directory.fs().sync_dir(&self.directory.files().dir)
    }

    /// Returns how losers are undone. They wait only if a thread undoes them, or the lab asks for it.
    fn undo_options(&self) -> UndoOptions {
        let (waits_from, has_threads) = (self.options.of_lab().undo_waits_from, self.options.of_lab().background);
        let may_wait = !self.directory.is_read_only() && (has_threads || waits_from.is_some());
        UndoOptions { may_wait, waits_from, last_system_table: LAST_SYSTEM_TABLE }
    }

    /// Creates the transaction manager, undoes transactions that had not committed, and takes over the prepared ones
    /// without their table locks. If the undo is to go on beside new transactions, it only begins.
    fn recover(&self, log: &Log, recovered: Recovered, trees: &Arc<Trees>, replayed: Replayed) -> Result<Recovery> {
        let Replayed { mut unended, in_doubt, start, redo, stats, .. } = replayed;
        // Beside the undo, which needs some of the pages. The maps of pages are known.
        redo.start();
        let txns = self.transactions(log, LockManager::new(self.options.for_locks(&self.memory)), start)?;
        txns.set_resource_manager(Arc::clone(trees) as _);
        // The signal of the thread that frees pages: freed space lets a parked rollback go on.
        txns.signal_parked(trees.space_signal());
        if let Some(hold) = unended.to_hold(&**trees, self.undo_options()) {
            // What they hold keeps the log.
            let undo = OpenUndo::begin(log, &txns, Arc::clone(trees) as _, recovered, (unended, hold))?;
            return Ok(Recovery { txns, taken_over: Vec::new(), redo, undo, stats });
        }
        let mut taken_over = take_over(&txns, in_doubt)?;
        let (unended, undone) =
            undo(log, &recovered, &txns, &**trees, unended).map_err(|error| first_cause(log)(error.into()))?;
        for taken in &mut taken_over {
            let changes = unended.changes_of(&recovered, &**trees, taken.in_doubt().xid)?;
            taken.hold_rows(changes)?;
        }
        // The segments of what was recovered may be recycled from here on.
        let undo = OpenUndo::none(log);
        Ok(Recovery { txns, taken_over, redo, undo, stats: stats.with_undo(undone) })
    }

    fn transactions(&self, log: &Log, locks: LockManager, start: Start) -> Result<Arc<TxnManager>> {
        let mut options = self.options.for_transactions(&self.memory, self.spill_file()?);
        options.read_only = self.directory.is_read_only();
        let txns = TxnManager::new(options, log.clone(), Arc::new(locks), start)?;
        let status = self.directory.files().dir.join("status");
        if let Some(maker) = &self.options.of_lab().status {
            txns.visibility().set_status_table(maker.make(start.next_xid, &**self.directory.fs(), &status)?);
        }
        Ok(txns)
    }

    /// Returns the spill file of undo. It is created on first use, and vanishes with the process. So a start on a full
    /// disk needs no space for it.
    fn spill_file(&self) -> Result<impl FnOnce(usize) -> SpillFile> {
        let path = &self.directory.files().spill;
        // After power loss its name may exist again.
        if self.directory.fs().kind(path)?.is_some() {
            self.directory.fs().remove(path)?;
        }
        let (fs, path) = (Arc::clone(self.directory.fs()), path.clone());
        let make = move || {
            let file = fs.create(&path)?;
            fs.remove(&path)?;
            Ok(file)
        };
        Ok(move |limit_bytes| SpillFile::new(make, limit_bytes))
    }
}

/// The result of recovery.
struct Recovery {
    txns: Arc<TxnManager>,
    taken_over: Vec<TakenOver>,
    redo: OpenRedo,
    undo: Arc<OpenUndo>,
    stats: RecoveryStats,
}

/// Makes all tables known, and lists the prepared transactions of the previous run again.
fn load_catalogue(engine: &Engine, taken_over: Vec<TakenOver>, log: &Path) -> Result<()> {
    let options = TxnOptions::new().label("open").isolation(Isolation::Snapshot);
    let mut txn = engine.admission.begin_own(options)?;
    // The log in which the drop was found is durable.
    let gone = |tree| engine.reclaimer.add([tree], Csn::ZERO);
    let known = engine.catalogue.load(&mut txn, gone, |error| engine.damage.note(error))?;
    engine.prepared.hold_again(&mut txn, taken_over, &engine.catalogue, &known, log)?;
    txn.rollback()?;
    Ok(())
}
