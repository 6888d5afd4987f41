//! Opening a database: creates or recovers it, and connects the layers. `docs/recovery.md` lists what a start may find
//! and what it does then.

use crate::catalogue::{each_row, table_info};
use crate::close::Idle;
use crate::damage::Damage;
use crate::engine::{Closing, Engine, OPEN};
use crate::fence::{Fenced, Gate};
use crate::files::{Contents, Files};
use crate::format::{CATALOGUE, TableRow};
use crate::marker;
use crate::max_age::AgingTransactions;
use crate::prepared::{PreparedList, take_over};
use crate::profile::Profiler;
use crate::purge::Purger;
use crate::reclaim::Reclaimer;
use crate::run::Queues;
use crate::tables::Tables;
use crate::{Error, MemoryShares, Options, Result, TxnOptions};
use foreshore_base::{Csn, Error as Storage, Uuid};
use foreshore_btree::{Tree, Trees};
use foreshore_buffer::{Pool, PoolOptions};
use foreshore_io::{DirLock, File, Fs, Kind};
use foreshore_lock::{LockManager, LockOptions};
use foreshore_recovery::{CheckpointParts, Checkpointer, RecoveryStats, Replayed, replay, undo};
use foreshore_space::{CATALOGUE_ROOT, Space, SpaceOptions, SuperBlock};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU8, AtomicU32, Ordering};
use foreshore_sync::{LockRank, Mutex, ShardedCounter, pause};
use foreshore_txn::{Isolation, SpillFile, Start, TakenOver, TxnManager, TxnManagerOptions};
use foreshore_wal::{Log, LogOptions, Recovered};
use std::{
    hash::{BuildHasher, RandomState},
    path::Path,
    sync::Arc,
};

/// Transactions besides those of users: one to free pages, one to purge, one for a check.
const OWN_TRANSACTIONS: usize = 3;
/// Log sessions besides those of transactions: one for the checkpointer, one for creation or undo.
const OWN_SESSIONS: usize = 2;

impl Engine {
    /// Opens the database in `dir`.
    pub(crate) fn open(dir: &Path, options: &Options) -> Result<Arc<Self>> {
        let fs = match &options.lab.fs {
            Some(fs) => Arc::clone(fs),
            None => options.device.open(dir)?,
        };
        match fs.kind(dir)? {
            Some(Kind::Dir) => {}
            Some(Kind::File) => {
                return Err(Error::Foreign {
                    path: dir.to_owned(),
                    why: "a file stands in the place of the directory",
                });
            }
            None => {
                fs.create_dir(dir)?;
                if let Some(parent) = dir.parent() {
                    // The parent of a relative path of one name is the current directory.
                    let is_here = parent.as_os_str().is_empty();
                    fs.sync_dir(if is_here { Path::new(".") } else { parent })?;
                }
            }
        }
        Self::lock_and_start(Files::of(dir), fs, options)
    }

    /// Locks the directory and starts.
    pub(crate) fn lock_and_start(files: Files, fs: Arc<dyn Fs>, options: &Options) -> Result<Arc<Self>> {
        let lock = fs.lock(&files.lock)?;
        let gate = Gate::new();
        let fenced: Arc<dyn Fs> = Arc::new(Fenced::new(Arc::clone(&fs), Arc::clone(&gate)));
        let memory = MemoryShares::of(options.memory_limit, options.lab.undo_limit)?;
        let contents = files.contents(&fenced)?;
        if contents != Contents::Database {
            create_files(&files, &fenced, contents, &log_options(options, &memory))?;
        }
        let parts = Parts { files, fs, fenced, gate, options: options.clone(), memory };
        let engine = parts.start(lock, contents != Contents::Database).and_then(|engine| {
            engine.spawn_daemons()?;
            Ok(engine)
        });
        // The parts of a failed start are dropped without further access to the files.
        engine.inspect_err(|_| parts.gate.shut())
    }
}

fn log_options(options: &Options, memory: &MemoryShares) -> LogOptions {
    LogOptions {
        segment_bytes: options.lab.segment_bytes,
        buffer: options.lab.log_buffer.clone(),
        ring_bytes: memory.ring_bytes(),
        lane_memory: usize::try_from(memory.log_buffer).expect("at most 64 MiB"),
        max_sessions: options.max_transactions + OWN_TRANSACTIONS + OWN_SESSIONS,
        group: options.group,
        group_from: options.lab.group.clone(),
        background: options.lab.background,
        ..LogOptions::default()
    }
}

/// Creates the files of a new database, the marker first: while it exists, the next open starts over.
fn create_files(files: &Files, fs: &Arc<dyn Fs>, contents: Contents, options: &LogOptions) -> Result<(), Storage> {
    if contents == Contents::Unfinished {
        files.clear(&**fs)?;
    }
    let uuid = new_uuid();
    let superblock = SuperBlock {
        uuid,
        seq: 0,
        checkpoint_lsn: foreshore_base::Lsn::ZERO,
        checkpoint_group: foreshore_base::GroupNo::ZERO,
        // A restart before the first checkpoint reads all of the log.
        scan_start: Log::FIRST_GROUP,
        redo_start: Log::FIRST_GROUP,
        data_pages: 0,
        xid_ceiling: foreshore_base::Xid(1),
        clean: false,
        features: 0,
        created: 0,
        quarantined: Vec::new(),
    };
    marker::write(&**fs, files, &superblock)?;
    pause::point("create: the marker is durable");
    Log::create(fs, &files.log, uuid, options)?;
    pause::point("create: the log is there");
    Pool::create_files(&*fs.create(&files.doublewrite)?, uuid)?;
    superblock.write_next(&*fs.create(&files.data)?)?;
    pause::point("create: all files are there");
    fs.sync_dir(&files.dir)
}

/// Takes the checkpoint that ends a start. Without log space for it on the disk, the next restart reads the same log
/// again. A new database has no earlier checkpoint, so for it that is an error.
fn take_first_checkpoint(checkpointer: &Checkpointer, is_new: bool) -> Result<(), Storage> {
    match checkpointer.checkpoint() {
        Err(Storage::DiskFull { .. }) if !is_new => Ok(()),
        taken => taken,
    }
}

/// 128 bits from the hash keys that the standard library draws from the system.
fn new_uuid() -> Uuid {
    let mut bytes = [0; 16];
    for half in bytes.chunks_exact_mut(8) {
        half.copy_from_slice(&RandomState::new().hash_one(half.len()).to_le_bytes());
    }
    Uuid(bytes)
}

/// Parts from which an engine is started.
struct Parts {
    files: Files,
    /// The file system as given, to open the directory again.
    fs: Arc<dyn Fs>,
    fenced: Arc<dyn Fs>,
    gate: Arc<Gate>,
    options: Options,
    memory: MemoryShares,
}

impl Parts {
    /// Recovers, and connects the layers. `is_new`: the files were just created and hold no page yet.
    fn start(&self, lock: Box<dyn DirLock>, is_new: bool) -> Result<Arc<Engine>> {
        let Self { files, fenced, options, memory, .. } = self;
        let (data, doublewrite) = (fenced.open(&files.data)?, fenced.open(&files.doublewrite)?);
        // The page cache may hold superblocks and pages whose sync has failed, in this process or an earlier one. The
        // log and the doublewrite file bypass it by themselves.
        if !mutant("sabotage: a start reads pages from the page cache") {
            data.read_past_cache()?;
        }
        let (mut superblock, _) = SuperBlock::read_newest(&*data)?;
        Pool::check_files(&doublewrite, superblock.uuid)?;
        let (log, recovered) = Log::open(fenced, &files.log, superblock.uuid, &log_options(options, memory))?;
        let pool = Pool::open(Arc::clone(&data), doublewrite, superblock.uuid, log.clone(), &self.pool_options())?;
        let space = Arc::new(Space::new(pool.clone(), Arc::clone(&data), self.space_options()));
        let trees = Arc::new(Trees::new(pool.clone(), Arc::clone(&space)));
        let replayed = replay(&files.log, &log, &recovered, &superblock, &pool, &*trees)?;
        if is_new {
            let mut session = log.session()?;
            space.create(&mut session)?;
            trees.create_catalogue(&mut session, CATALOGUE)?;
        } else {
            space.load()?;
        }
        superblock.quarantined.extend(&replayed.quarantined);
        let (txns, taken_over, recovery) = self.recover(&log, &recovered, &trees, replayed)?;
        // Its segments may be recycled from here on.
        drop(recovered);
        let damage = Damage::found(&pool, &space, &mut superblock.quarantined)?;
        let checkpointer = self.checkpointer(&log, &pool, &txns, &space, &data, superblock)?;
        if is_new {
            self.remove_marker(&log)?;
        }
        take_first_checkpoint(&checkpointer, is_new)?;
        pause::point("open: the first checkpoint is taken");
        // Everything that was only in the cache was redone, written again and synced.
        data.read_cached();
        let engine = Engine {
            files: files.clone(),
            fs: Arc::clone(&self.fs),
            backend: self.fs.backend().name,
            gate: Arc::clone(&self.gate),
            catalogue: trees.tree(CATALOGUE, CATALOGUE_ROOT),
            tables: Tables::new(),
            reclaimer: Reclaimer::new(space.signal(), options.lab.background),
            purger: Purger::default(),
            prepared: PreparedList::new(),
            damage,
            last_table: AtomicU32::new(CATALOGUE.0),
            checkpointer: Arc::new(checkpointer),
            recovery,
            state: AtomicU8::new(OPEN),
            closing: Closing::new(lock),
            begun: ShardedCounter::new(),
            ended: ShardedCounter::new(),
            idle: Idle::new(),
            aging: AgingTransactions::new(options.transaction_max_age),
            queues: Queues::new(&log, options.lab.step_seed),
            profiler: Profiler::new(options.lab.profile),
            steps: Mutex::new(LockRank::Leaf, options.lab.step_seed),
            options: options.clone(),
            memory: *memory,
            data,
            log,
            pool,
            space,
            txns,
            trees,
        };
        engine.hold_again(taken_over, &engine.load_catalogue()?)?;
        Ok(Arc::new(engine))
    }

    /// Removes the marker. From here on a restart finds everything in the log, and no superblock names a checkpoint.
    fn remove_marker(&self, log: &Log) -> Result<(), Storage> {
        log.force(log.current())?;
        self.fenced.remove(&self.files.unfinished)?;
        pause::point("create: the marker is removed");
        self.fenced.sync_dir(&self.files.dir)
    }

    /// Creates the transaction manager, undoes transactions that had not committed, and takes over the prepared ones
    /// without their table locks.
    fn recover(
        &self,
        log: &Log,
        recovered: &Recovered,
        trees: &Arc<Trees>,
        replayed: Replayed,
    ) -> Result<(Arc<TxnManager>, Vec<TakenOver>, RecoveryStats)> {
        let Replayed { mut unended, in_doubt, start, mut stats, .. } = replayed;
        let txns = self.transactions(log, LockManager::new(self.lock_options()), start)?;
        txns.set_resource_manager(Arc::clone(trees) as _);
        // The signal of the thread that frees pages: freed space lets a parked rollback go on.
        txns.signal_parked(trees.space_signal());
        let mut taken_over = take_over(&txns, in_doubt)?;
        undo(log, recovered, &txns, &**trees, &mut unended, &mut stats)?;
        for taken in &mut taken_over {
            let changes = unended.changes_of(recovered, taken.in_doubt().xid)?;
            taken.hold_rows(changes)?;
        }
        Ok((txns, taken_over, stats))
    }

    fn checkpointer(
        &self,
        log: &Log,
        pool: &Pool,
        txns: &Arc<TxnManager>,
        space: &Arc<Space>,
        data: &Arc<dyn File>,
        superblock: SuperBlock,
    ) -> Result<Checkpointer, Storage> {
        Checkpointer::new(CheckpointParts {
            log: log.clone(),
            pool: pool.clone(),
            txns: Arc::clone(txns),
            space: Arc::clone(space),
            data: Arc::clone(data),
            superblock,
            // A restart reads the pages of this log through a pool of that size, so a small pool gets a short log.
            log_budget: self.options.log_budget.min(self.options.memory_limit / 2),
        })
    }

    fn pool_options(&self) -> PoolOptions {
        PoolOptions {
            frames: self.memory.frames,
            background: self.options.lab.background,
            replacement: self.options.lab.replacement.clone(),
            doublewrite: self.options.doublewrite,
            ..PoolOptions::default()
        }
    }

    fn space_options(&self) -> SpaceOptions {
        SpaceOptions { growth: self.options.lab.growth, background: self.options.lab.background }
    }

    fn lock_options(&self) -> LockOptions {
        let max_owners = self.options.max_transactions + OWN_TRANSACTIONS;
        let (memory_units, fast_intents) = (self.memory.memory_units(), self.options.lab.fast_intents);
        LockOptions { max_owners, memory_units, fast_intents, ..LockOptions::default() }
    }

    fn transactions(&self, log: &Log, locks: LockManager, start: Start) -> Result<Arc<TxnManager>> {
        let txns = TxnManager::new(self.txn_options()?, log.clone(), Arc::new(locks), start)?;
        let status = self.files.dir.join("status");
        if let Some(maker) = &self.options.lab.status {
            txns.visibility().set_status_table(maker.make(start.next_xid, &*self.fenced, &status)?);
        }
        Ok(txns)
    }

    fn txn_options(&self) -> Result<TxnManagerOptions> {
        let bytes = |share: u64| usize::try_from(share).unwrap_or(usize::MAX);
        Ok(TxnManagerOptions {
            max_sessions: self.options.max_transactions,
            system_sessions: OWN_TRANSACTIONS,
            status_capacity: bytes(self.memory.status_words()),
            undo_limit_bytes: bytes(self.memory.undo),
            snapshot_limits: self.options.snapshot_limits,
            spill: self.spill_file()?,
            hold_until_durable: self.options.lab.hold_until_durable,
            ..TxnManagerOptions::default()
        })
    }

    /// Returns the spill file of undo. It is created on first use, and vanishes with the process. So a start on a full
    /// disk needs no space for it.
    fn spill_file(&self) -> Result<Option<SpillFile>> {
        let path = &self.files.spill;
        // After power loss its name may exist again.
        if self.fenced.kind(path)?.is_some() {
            self.fenced.remove(path)?;
        }
        let limit_bytes = usize::try_from(self.options.spill_limit).unwrap_or(usize::MAX);
        if limit_bytes == 0 {
            return Ok(None);
        }
        let (fs, path) = (Arc::clone(&self.fenced), path.clone());
        let make = move || {
            let file = fs.create(&path)?;
            fs.remove(&path)?;
            Ok(file)
        };
        Ok(Some(SpillFile::new(make, limit_bytes)))
    }
}

impl Engine {
    /// Reads all tables, so that opening one needs no lock, and returns their trees. Reads by a snapshot: tables
    /// created by prepared transactions are absent, and tables dropped by them are present.
    fn load_catalogue(&self) -> Result<Vec<Tree>> {
        let mut known = Vec::new();
        let mut txn = self.begin_own(TxnOptions::new().label("open").isolation(Isolation::Snapshot))?;
        let mut last = CATALOGUE;
        let learn = |name: Option<&str>, row: TableRow| {
            last = last.max(row.table);
            match name {
                Some(name) => known.push(self.tables.add(table_info(&self.trees, name, row, Csn::ZERO)).tree.clone()),
                // The log in which the drop was found is durable.
                None => self.reclaimer.add([self.trees.tree(row.table, row.root)], Csn::ZERO),
            }
        };
        each_row(self, &mut txn, learn, |error| self.damage.hide_tables(error))?;
        // ORDERING: hint. No other thread has the engine yet.
        self.last_table.store(last.0, Ordering::Relaxed);
        txn.rollback()?;
        Ok(known)
    }
}
