//! A database without its upper layers: log, pool, space, transactions and one tree. Its restart reads the whole log.

#![allow(unreachable_pub)]

use foreshore_base::limits::MAX_KEY;
use foreshore_base::{Csn, Lsn, PageId, Result, TableId, Uuid, Xid};
use foreshore_btree::{ChainRef, Cursor, Tree, TreeReport, Trees};
use foreshore_buffer::format::{CLR, UNDOABLE};
use foreshore_buffer::{ChangeRecord, Pool, PoolOptions};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_io::{File, Fs, Mem};
use foreshore_lock::{LockManager, LockOptions};
use foreshore_space::{CATALOGUE_ROOT, Growth, Space, SpaceOptions};
use foreshore_sync::primitive::MODEL;
use foreshore_txn::format::{COMMIT, END, split_clr};
use foreshore_txn::{
    PrecommitRelease, ResourceManager, Start, Txn, TxnManager, TxnManagerOptions, TxnOptions, UndoContext, UndoEntry,
    UndoPtr,
};
use foreshore_wal::{Log, LogOptions, Recovered};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const TABLE: TableId = TableId(1);

const SPACE: SpaceOptions = SpaceOptions { growth: Growth::AHEAD, background: false };

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub struct Bed {
    pub fs: Mem,
    pub frames: usize,
    pub log: Log,
    pub pool: Pool,
    pub space: Arc<Space>,
    pub trees: Trees,
    pub txns: Arc<TxnManager>,
    pub tree: Tree,
}

/// What a restart did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Restart {
    pub redone: usize,
    pub undone: usize,
    pub losers: usize,
}

struct Base {
    log: Log,
    recovered: Recovered,
    pool: Pool,
    file: Arc<dyn File>,
}

fn base(fs: &Mem, frames: usize, replacement: ReplacementKind) -> Base {
    let (dir, uuid) = (Path::new("/db"), Uuid([9; 16]));
    let (log_dir, data, dw) = (dir.join("log"), dir.join("data"), dir.join("dw"));
    let shared: Arc<dyn Fs> = Arc::new(fs.clone());
    let options = LogOptions {
        segment_bytes: if MODEL { 1 << 20 } else { 16 << 20 },
        ring_bytes: if MODEL { 1 << 20 } else { 4 << 20 },
        max_sessions: 64,
        background: false,
        ..LogOptions::default()
    };
    if fs.kind(&data).unwrap().is_none() {
        fs.create_dir(dir).unwrap();
        Log::create(&shared, &log_dir, uuid, &options).unwrap();
        fs.create(&data).unwrap();
        Pool::create_files(&*fs.create(&dw).unwrap(), uuid).unwrap();
    }
    let (log, recovered) = Log::open(&shared, &log_dir, uuid, &options).unwrap();
    let file = fs.open(&data).unwrap();
    let replacement = replacement.maker();
    let pool_options = PoolOptions { frames, background: false, replacement, ..PoolOptions::default() };
    let pool = Pool::open(file.clone(), fs.open(&dw).unwrap(), uuid, log.clone(), &pool_options).unwrap();
    Base { log, recovered, pool, file }
}

/// Bytes for undo. A model gets fewer, because its checker tracks objects in each chunk.
const UNDO: usize = if MODEL { 1 << 20 } else { 128 << 20 };

/// How locks are taken and released.
#[derive(Clone, Copy, Debug)]
pub struct Modes {
    pub hold_until_durable: Option<PrecommitRelease>,
    pub fast_intents: bool,
    /// Memory for locks, as a number of short keys.
    pub lock_memory: usize,
}

impl Default for Modes {
    fn default() -> Self {
        let LockOptions { fast_intents, memory_units, .. } = LockOptions::default();
        Self { hold_until_durable: None, fast_intents, lock_memory: memory_units }
    }
}

fn bed(
    fs: &Mem,
    (frames, undo, modes): (usize, usize, Modes),
    base: Base,
    space: Arc<Space>,
    trees: Trees,
    start: Start,
) -> Bed {
    let Base { log, pool, .. } = base;
    let Modes { hold_until_durable, fast_intents, lock_memory: memory_units } = modes;
    let locks = Arc::new(LockManager::new(LockOptions {
        max_owners: 64,
        fast_intents,
        memory_units,
        ..LockOptions::default()
    }));
    let mut options = TxnManagerOptions {
        max_sessions: 64,
        snapshot_slots: 16,
        xid_block: 1 << 10,
        undo_limit_bytes: undo,
        hold_until_durable,
        ..TxnManagerOptions::default()
    };
    if MODEL {
        // The checker of a model tracks each word of the status window as an object.
        options.status_capacity = 1 << 12;
    }
    let txns = TxnManager::new(options, log.clone(), locks, start).unwrap();
    txns.set_resource_manager(Arc::new(trees.clone()));
    let tree = trees.tree(TABLE, CATALOGUE_ROOT);
    Bed { fs: fs.clone(), frames, log, pool, space, trees, txns, tree }
}

impl Bed {
    /// Makes a new database with an empty tree.
    pub fn new(frames: usize) -> Self {
        Self::with_undo(frames, UNDO)
    }

    /// Makes a new database with `undo` bytes for undo.
    pub fn with_undo(frames: usize, undo: usize) -> Self {
        Self::with((frames, undo, Modes::default()), ReplacementKind::default())
    }

    /// Makes a new database that takes and releases locks as `modes` says.
    #[cfg(foreshore_shuttle)]
    pub fn with_modes(frames: usize, modes: Modes) -> Self {
        Self::with((frames, UNDO, modes), ReplacementKind::default())
    }

    /// Makes a new database whose pool uses the replacement policy `replacement`.
    pub fn with_policy(frames: usize, replacement: ReplacementKind) -> Self {
        Self::with((frames, UNDO, Modes::default()), replacement)
    }

    fn with(sizes: (usize, usize, Modes), replacement: ReplacementKind) -> Self {
        let fs = Mem::null();
        let base = base(&fs, sizes.0, replacement);
        let space = Arc::new(Space::new(base.pool.clone(), base.file.clone(), SPACE));
        let trees = Trees::new(base.pool.clone(), space.clone());
        let mut session = base.log.session().unwrap();
        space.create(&mut session).unwrap();
        trees.create_catalogue(&mut session, TABLE).unwrap();
        trees.create_chains(&mut session).unwrap();
        drop(session);
        bed(&fs, sizes, base, space, trees, Start { next_xid: Xid(1), clock: Csn(0) })
    }

    /// Stops without writing pages home, with the whole log durable, and restarts.
    pub fn crash(self) -> (Self, Restart) {
        self.log.force(self.log.current()).unwrap();
        self.halt()
    }

    /// Writes all pages home, stops, and restarts.
    pub fn reopen(self) -> (Self, Restart) {
        self.pool.flush_all().unwrap();
        self.crash()
    }

    /// Stops at once and restarts.
    pub fn halt(self) -> (Self, Restart) {
        let (fs, frames) = (self.fs.clone(), self.frames);
        self.pool.close();
        drop(self.log.close());
        drop(self);
        restart(&fs, frames, usize::MAX)
    }

    pub fn begin(&self) -> Txn {
        self.begin_as("test", Duration::from_secs(30))
    }

    pub fn begin_as(&self, label: &'static str, lock_timeout: Duration) -> Txn {
        self.txns.begin(TxnOptions { label, lock_timeout, ..TxnOptions::default() }).unwrap()
    }

    /// Runs one transaction to its commit, without waiting for the disk.
    pub fn run<T>(&self, work: impl FnOnce(&mut Txn) -> Result<T>) -> T {
        let mut txn = self.begin();
        let result = work(&mut txn).unwrap();
        drop(txn.commit().unwrap());
        result
    }

    /// Returns all rows, by a scan.
    pub fn contents(&self) -> Model {
        self.run(|txn| scan(&self.tree, txn, Bound::Unbounded, Bound::Unbounded))
    }

    /// Checks the tree, and that the map of pages agrees with it.
    pub fn verify(&self) -> TreeReport {
        self.verify_with(&[])
    }

    /// Checks the tree and `others`: no page is in two of them, and the map of pages agrees with all.
    pub fn verify_with(&self, others: &[&Tree]) -> TreeReport {
        let mut pages = HashSet::new();
        let report = verify_tree(&self.tree, &mut pages);
        for other in others.iter().copied().chain([&self.trees.chains()]) {
            verify_tree(other, &mut pages);
        }
        self.space.verify(&pages).unwrap();
        report
    }
}

/// Checks a tree and its large values, and adds their pages.
fn verify_tree(tree: &Tree, pages: &mut HashSet<PageId>) -> TreeReport {
    let mut add = |page| assert!(pages.insert(page), "page {page} is in two trees or values");
    let refers = &mut |found: &ChainRef<'_>| {
        tree.verify_chain(found, &mut |page| {
            add(page);
            Ok(())
        })
    };
    let report = tree.verify_with(&mut |_| Ok(()), &mut Err, refers).unwrap();
    report.pages.iter().for_each(|&page| assert!(pages.insert(page), "page {page} is in two trees or values"));
    report
}

pub fn scan(tree: &Tree, txn: &mut Txn, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Model> {
    let mut cursor = tree.range(txn, lower, upper)?;
    let mut rows = Model::new();
    while let Some((key, value)) = cursor.next(txn)? {
        if let Some((last, _)) = rows.last_key_value() {
            assert!(&last[..] < key, "a scan goes up");
        }
        rows.insert(key.to_vec(), value.to_vec());
    }
    Ok(rows)
}

/// The order in which the rows of a range are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Up,
    Down,
    /// From both ends alternately.
    Inwards,
}

pub const WAYS: [Way; 3] = [Way::Up, Way::Down, Way::Inwards];

impl Way {
    /// Reads the rows of a cursor in this order, and returns them sorted by key.
    pub fn collect(self, cursor: &mut Cursor, txn: &mut Txn) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (mut front, mut back) = (Vec::new(), Vec::new());
        loop {
            let from_back = self == Self::Down || self == Self::Inwards && front.len() > back.len();
            let row = if from_back { cursor.next_back(txn)? } else { cursor.next(txn)? };
            let Some((key, value)) = row else { break };
            if from_back { &mut back } else { &mut front }.push((key.to_vec(), value.to_vec()));
        }
        assert!(cursor.next(txn)?.is_none() && cursor.next_back(txn)?.is_none(), "one end is both");
        front.extend(back.into_iter().rev());
        assert!(front.windows(2).all(|pair| pair[0].0 < pair[1].0), "rows come in their order, and once");
        Ok(front)
    }
}

pub fn scan_by(way: Way, tree: &Tree, txn: &mut Txn, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Model> {
    let mut cursor = tree.range(txn, lower, upper)?;
    Ok(way.collect(&mut cursor, txn)?.into_iter().collect())
}

struct Loser {
    last_lsn: Lsn,
    changes: BTreeMap<Lsn, (u8, TableId, Vec<u8>)>,
}

/// Redoes the first `limit` records of the log on pages that are older. Returns the number of page changes, the losers,
/// and where a restart continues.
fn redo(base: &Base, trees: &Trees, limit: usize) -> (usize, HashMap<Xid, Loser>, Start) {
    let mut losers: HashMap<Xid, Loser> = HashMap::new();
    let (mut redone, mut max_xid) = (0, 0);
    for record in base.recovered.records(base.recovered.first_group()).take(limit) {
        let record = record.unwrap();
        let mut change = ChangeRecord::decode(&record.payload).unwrap();
        let xid = Xid(record.tag);
        max_xid = max_xid.max(record.tag);
        let mut compensates = None;
        if change.flags & CLR != 0 {
            let (lsn, body) = split_clr(change.body).unwrap();
            (compensates, change.body) = (Some(lsn), body);
        }
        for (index, &pid) in change.pages().iter().enumerate() {
            let mut page = if change.initialises(index) {
                base.pool.exclusive_or_blank(pid).unwrap()
            } else {
                base.pool.exclusive(pid).unwrap()
            };
            if page.lsn() < record.lsn {
                trees.redo(&change, index, &mut page).unwrap();
                page.set_rec_group_for_redo(record.group);
                page.set_lsn(record.lsn);
                redone += 1;
            }
        }
        if matches!(change.kind, COMMIT | END) {
            losers.remove(&xid);
        } else if xid != Xid::ZERO {
            let loser = losers.entry(xid).or_insert(Loser { last_lsn: Lsn::ZERO, changes: BTreeMap::new() });
            loser.last_lsn = record.lsn;
            if change.flags & UNDOABLE != 0 {
                loser.changes.insert(record.lsn, (change.kind, change.table, change.body.to_vec()));
            }
            if let Some(lsn) = compensates {
                assert!(loser.changes.remove(&lsn).is_some(), "a change is compensated once");
            }
        }
    }
    // No xid so far above the largest logged one can have been handed out.
    let start = Start { next_xid: Xid(max_xid + (1 << 12)), clock: base.recovered.max_lsn().csn() };
    (redone, losers, start)
}

/// Restarts as if the log had ended after `limit` records.
pub fn restart(fs: &Mem, frames: usize, limit: usize) -> (Bed, Restart) {
    let base = base(fs, frames, ReplacementKind::default());
    base.pool.restore_doublewrite(base.recovered.end()).unwrap();
    let space = Arc::new(Space::new(base.pool.clone(), base.file.clone(), SPACE));
    let trees = Trees::new(base.pool.clone(), space.clone());
    let (redone, mut losers, start) = redo(&base, &trees, limit);
    let (again, _, _) = redo(&base, &trees, limit);
    assert_eq!(again, 0, "a second redo finds nothing to do");
    space.load().unwrap();
    let mut session = base.log.session().unwrap();
    let mut all: Vec<(Lsn, Xid)> =
        losers.iter().flat_map(|(&xid, loser)| loser.changes.keys().map(move |&lsn| (lsn, xid))).collect();
    all.sort();
    let done = Restart { redone, undone: all.len(), losers: losers.len() };
    for (lsn, xid) in all.into_iter().rev() {
        let loser = losers.get_mut(&xid).unwrap();
        let (kind, table, body) = &loser.changes[&lsn];
        let mut context = UndoContext::new(&mut session, xid, loser.last_lsn);
        let (kind, table, next) = (*kind, *table, UndoPtr::NULL);
        let entry = UndoEntry { lsn, is_undone: false, kind, table, body, next, keep: None };
        trees.undo(&mut context, &entry).unwrap();
        loser.last_lsn = context.last_lsn();
    }
    for (xid, loser) in losers {
        UndoContext::new(&mut session, xid, loser.last_lsn).log_end().unwrap();
    }
    drop(session);
    (bed(fs, (frames, UNDO, Modes::default()), base, space, trees, start), done)
}

/// Records that lay out a new database: the first map page and two roots.
pub const LAYOUT_RECORDS: usize = 3;

/// The LSNs of all records in the log.
pub fn lsns(fs: &Mem, frames: usize) -> Vec<Lsn> {
    let base = base(fs, frames, ReplacementKind::default());
    base.recovered.records(base.recovered.first_group()).map(|record| record.unwrap().lsn).collect()
}

/// Kinds, tables and bodies of all changes in the log that a rollback would undo.
pub fn undoable_changes(fs: &Mem, frames: usize) -> Vec<(u8, TableId, Vec<u8>)> {
    let base = base(fs, frames, ReplacementKind::default());
    let records = base.recovered.records(base.recovered.first_group()).map(Result::unwrap);
    let changes = records.filter_map(|record| {
        let change = ChangeRecord::decode(&record.payload).unwrap();
        (change.flags & UNDOABLE != 0).then(|| (change.kind, change.table, change.body.to_vec()))
    });
    changes.collect()
}

/// A small generator of reproducible numbers (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Returns the key of a number: keys are short and long, with long common prefixes, and not in the order of numbers.
pub fn key(number: usize) -> Vec<u8> {
    let mut key = format!("{:04}", number * 7919 % 10_000).into_bytes();
    match number % 5 {
        0 => key.resize(MAX_KEY, b'x'),
        1 => key.splice(0..0, std::iter::repeat_n(b'p', 500)).for_each(drop),
        2 => key.resize(90, 0),
        _ => {}
    }
    key
}

pub fn value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(8) {
        0 => 2048,
        1 => 0,
        2..5 => rng.below(600),
        _ => rng.below(60),
    };
    vec![rng.next() as u8; len]
}
