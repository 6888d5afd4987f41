//! Rows of a number each, one to a page, over a real pool and log in memory: an engine small enough to see through.

use foreshore_base::codec::{Decoder, Put, u64_at};
use foreshore_base::{Error, Lsn, PageId, Place, Result, TableId, Uuid, Xid};
use foreshore_buffer::format::UNDOABLE;
use foreshore_buffer::{Change, ChangeRecord, ExclusiveGuard, PageMut, Pool, PoolOptions, change_cost};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::Fs;
use foreshore_lock::{LockManager, LockOptions, TableMode, Target};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_txn::{
    LoggedChange, ResourceManager, RowHolder, Start, TakeOver, Txn, TxnManager, TxnManagerOptions, TxnOptions,
    UndoContext, UndoEntry, Undoable,
};
use foreshore_wal::{Dep, Log, LogOptions, LoggedRecord};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TABLE: TableId = TableId(7);
/// A logged change of a row. Body: row, header before, value before, value after.
const SET: u8 = 40;
/// A row lock, not logged. Body: row, header before.
const LOCK: u8 = 41;

const AT_HEADER: usize = 32;
const AT_VALUE: usize = 48;
const BODY: usize = 32;

pub(crate) struct Toy {
    pub(crate) log: Log,
    pub(crate) manager: Arc<TxnManager>,
    pub(crate) pool: Pool,
    rows: u64,
    pub(crate) timeout: Duration,
}

/// Undoes on the pages, or fails when told to.
pub(crate) struct Rows {
    pool: Pool,
    pub(crate) fails: AtomicBool,
    pub(crate) panics: AtomicBool,
    /// The row that finds no page on its way back.
    pub(crate) stuck: AtomicU64,
    /// The row whose page is damaged.
    pub(crate) damaged: AtomicU64,
    /// The row whose undo entry cannot be copied under another xid.
    pub(crate) unnamed: AtomicU64,
}

pub(crate) fn small() -> TxnManagerOptions {
    TxnManagerOptions {
        max_sessions: 64,
        system_sessions: 0,
        snapshot_slots: 8,
        status_capacity: 1 << 10,
        undo_limit_bytes: 1 << 20,
        xid_block: 64,
        ..TxnManagerOptions::default()
    }
}

pub(crate) fn log_options() -> LogOptions {
    LogOptions { segment_bytes: 1 << 20, ring_bytes: 1 << 20, max_sessions: 80, ..LogOptions::default() }
}

/// Every record of the log in `fs`, in order.
pub(crate) fn records(fs: &Arc<dyn Fs>) -> Vec<LoggedRecord> {
    let (_log, recovered) = Log::open(fs, Path::new("log"), Uuid::default(), &log_options()).expect("a sound log");
    let records = recovered.records(recovered.first_group());
    records.map(|record| record.expect("a sound record")).collect()
}

/// The payload as a change.
pub(crate) fn decode(record: &LoggedRecord) -> ChangeRecord<'_> {
    ChangeRecord::decode(&record.payload).expect("a change")
}

impl Toy {
    pub(crate) fn new(fs: impl Fs + 'static, values: &[i64], options: TxnManagerOptions) -> (Self, Arc<Rows>) {
        let fs: Arc<dyn Fs> = Arc::new(fs);
        Log::create(&fs, Path::new("log"), Uuid::default(), &log_options()).expect("a new log");
        Self::open(&fs, values, options, Start { next_xid: Xid(1), clock: Default::default() })
    }

    /// With a log in memory, beginning elsewhere.
    pub(crate) fn starting(start: Start, values: &[i64], options: TxnManagerOptions) -> (Self, Arc<Rows>) {
        let fs: Arc<dyn Fs> = Arc::new(foreshore_io::Mem::null());
        Log::create(&fs, Path::new("log"), Uuid::default(), &log_options()).expect("a new log");
        Self::open(&fs, values, options, start)
    }

    /// With a log that no thread writes before another waits for it.
    pub(crate) fn lazy(values: &[i64]) -> Self {
        Self::lazy_with(values, small())
    }

    /// The same with options of the manager.
    pub(crate) fn lazy_with(values: &[i64], options: TxnManagerOptions) -> Self {
        Self::lazy_on(foreshore_io::Mem::null(), values, options).0
    }

    /// The same with its log on a file system.
    pub(crate) fn lazy_on(fs: impl Fs + 'static, values: &[i64], options: TxnManagerOptions) -> (Self, Arc<Rows>) {
        let fs: Arc<dyn Fs> = Arc::new(fs);
        let log = LogOptions { background: false, ..log_options() };
        Log::create(&fs, Path::new("log"), Uuid::default(), &log).expect("a new log");
        Self::with_log(&fs, values, options, Start { next_xid: Xid(1), clock: Default::default() }, &log)
    }

    /// With another log buffer.
    pub(crate) fn with_buffer(buffer: BufferKind, values: &[i64]) -> Self {
        let fs: Arc<dyn Fs> = Arc::new(foreshore_io::Mem::null());
        let log = LogOptions { buffer: buffer.maker(), ..log_options() };
        Log::create(&fs, Path::new("log"), Uuid::default(), &log).expect("a new log");
        Self::with_log(&fs, values, small(), Start { next_xid: Xid(1), clock: Default::default() }, &log).0
    }

    /// Opens the log in `fs` again; the rows are made anew.
    pub(crate) fn open(
        fs: &Arc<dyn Fs>,
        values: &[i64],
        options: TxnManagerOptions,
        start: Start,
    ) -> (Self, Arc<Rows>) {
        Self::with_log(fs, values, options, start, &log_options())
    }

    /// The same with options of the log.
    pub(crate) fn with_log(
        fs: &Arc<dyn Fs>,
        values: &[i64],
        options: TxnManagerOptions,
        start: Start,
        log: &LogOptions,
    ) -> (Self, Arc<Rows>) {
        let (log, _) = Log::open(fs, Path::new("log"), Uuid::default(), log).expect("a sound log");
        let files = foreshore_io::Mem::null();
        files.create_dir(Path::new("")).ok();
        let data = files.create(Path::new("data")).expect("a new file");
        let doublewrite = files.create(Path::new("dw")).expect("a new file");
        Pool::create_files(&*doublewrite, Uuid::default()).expect("formatted");
        let pool = PoolOptions { frames: 64, background: false, ..PoolOptions::default() };
        let pool = Pool::open(data, doublewrite, Uuid::default(), log.clone(), &pool).expect("a pool");
        for (row, value) in (0..).zip(values) {
            let mut page = pool.create(page_of(row)).expect("a frame");
            page.mark_dirty();
            page.write(AT_VALUE, &value.to_le_bytes());
        }
        let locks =
            Arc::new(LockManager::new(LockOptions { max_owners: 64, share_slots: 1 << 10, ..LockOptions::default() }));
        let manager = TxnManager::new(options, log.clone(), locks, start).expect("a manager");
        let resources = Arc::new(Rows {
            pool: pool.clone(),
            fails: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            stuck: AtomicU64::new(u64::MAX),
            damaged: AtomicU64::new(u64::MAX),
            unnamed: AtomicU64::new(u64::MAX),
        });
        manager.set_resource_manager(resources.clone());
        let rows = values.len() as u64;
        (Self { log, manager, pool, rows, timeout: Duration::from_secs(60) }, resources)
    }

    pub(crate) fn begin(&self, label: &'static str) -> Txn {
        self.try_begin(label).expect("a session")
    }

    pub(crate) fn try_begin(&self, label: &'static str) -> Result<Txn> {
        self.manager.begin(TxnOptions { label, lock_timeout: self.timeout, ..TxnOptions::default() })
    }

    /// Logs a change that takes no undo entry, so that the commit of the transaction is logged.
    pub(crate) fn log_a_change(&self, txn: &mut Txn) {
        txn.ensure_xid().expect("an xid");
        txn.session().reserve(change_cost(1, 0)).expect("log space");
        let mut page = self.pool.exclusive(page_of(0)).expect("a frame");
        let change = Change { kind: SET, flags: 0, init_mask: 0, table: TABLE, body: &[] };
        txn.log_change(&change, Dep::none(), &mut [&mut page]);
        txn.session().release();
    }

    pub(crate) fn sum(&self) -> i64 {
        (0..self.rows).map(|row| self.value(row)).sum()
    }

    /// The value in the page, by any writer.
    pub(crate) fn value(&self, row: u64) -> i64 {
        value(&self.pool.shared(page_of(row)).expect("resident"))
    }

    pub(crate) fn header(&self, row: u64) -> Xid {
        header(&self.pool.shared(page_of(row)).expect("resident"))
    }

    pub(crate) fn get(&self, txn: &mut Txn, row: u64) -> Result<i64> {
        txn.lock_table(TABLE, TableMode::IntentShared)?;
        loop {
            txn.share(Target::row(TABLE, &key(row)))?;
            let holder = {
                let page = self.pool.shared(page_of(row))?;
                match txn.row_holder(header(&page)) {
                    RowHolder::None | RowHolder::Me => return Ok(value(&page)),
                    RowHolder::Other(holder) => holder,
                    RowHolder::Unknown => panic!("a header names nobody"),
                }
            };
            txn.wait_row(TABLE, &key(row), holder)?;
        }
    }

    /// Locks the row for writing and returns its value.
    pub(crate) fn lock(&self, txn: &mut Txn, row: u64) -> Result<i64> {
        self.write(txn, row, None)
    }

    pub(crate) fn add(&self, txn: &mut Txn, row: u64, amount: i64) -> Result<i64> {
        self.write(txn, row, Some(amount))
    }

    fn write(&self, txn: &mut Txn, row: u64, amount: Option<i64>) -> Result<i64> {
        txn.lock_table(TABLE, TableMode::IntentExclusive)?;
        let xid = txn.ensure_xid()?;
        txn.reserve(change_cost(1, BODY), BODY)?;
        let mut has_turn = false;
        loop {
            let mut page = self.pool.exclusive(page_of(row))?;
            let before = header(&page);
            let holder = txn.row_holder(before);
            let shared = holder == RowHolder::None && {
                page.mark_dirty();
                page.write(AT_HEADER, &xid.0.to_le_bytes());
                let (locks, owner) = txn.locks();
                locks.shared_by_other(owner, Target::row(TABLE, &key(row)))
            };
            if shared {
                page.write(AT_HEADER, &before.0.to_le_bytes());
            } else if !matches!(holder, RowHolder::Other(_)) {
                let value = self.change(txn, &mut page, row, before, amount);
                drop(page);
                if has_turn {
                    let (locks, owner) = txn.locks();
                    locks.end_exclusive(owner);
                }
                return Ok(value);
            }
            drop(page);
            if std::mem::take(&mut has_turn) {
                let (locks, owner) = txn.locks();
                locks.end_exclusive(owner);
            }
            match holder {
                RowHolder::Other(holder) => txn.wait_row(TABLE, &key(row), holder)?,
                _ => {
                    txn.wait_exclusive(Target::row(TABLE, &key(row)))?;
                    has_turn = true;
                }
            }
        }
    }

    /// Enters undo, logs, changes: the latch is held and the row is ours.
    fn change(&self, txn: &mut Txn, page: &mut ExclusiveGuard<'_>, row: u64, before: Xid, amount: Option<i64>) -> i64 {
        let old = value(page);
        let mut body = Vec::new();
        body.put_u64(row);
        body.put_u64(before.0);
        let Some(amount) = amount else {
            txn.push_undo(&Undoable { kind: LOCK, table: TABLE, body: &body, before: None, structure: 0 });
            return old;
        };
        body.put_u64(old as u64);
        body.put_u64((old + amount) as u64);
        let pointer = txn.push_undo(&Undoable { kind: SET, table: TABLE, body: &body, before: None, structure: 0 });
        assert!(pointer.bits() < 1 << 48);
        let change = Change { kind: SET, flags: UNDOABLE, init_mask: 0, table: TABLE, body: &[&body] };
        txn.log_change(&change, Dep::none(), &mut [page]);
        page.write(AT_VALUE, &(old + amount).to_le_bytes());
        old + amount
    }
}

pub(crate) fn page_of(row: u64) -> PageId {
    PageId(10 + row)
}

pub(crate) fn key(row: u64) -> [u8; 8] {
    row.to_be_bytes()
}

fn header(page: &[u8]) -> Xid {
    Xid(u64_at(page, AT_HEADER))
}

fn value(page: &[u8]) -> i64 {
    u64_at(page, AT_VALUE) as i64
}

impl ResourceManager for Rows {
    fn redo(&self, record: &ChangeRecord<'_>, _index: usize, page: &mut ExclusiveGuard<'_>) -> Result<()> {
        page.write(AT_VALUE, &record.body[24..32]);
        Ok(())
    }

    fn row_of<'c>(&self, _kind: u8, body: &'c [u8]) -> Result<Option<&'c [u8]>> {
        Ok(body.get(..8))
    }

    fn rename(&self, _kind: u8, body: &[u8], was: Xid, is: Xid) -> Result<Vec<u8>> {
        if u64_at(body, 0) == self.unnamed.load(Ordering::Relaxed) {
            return Err(Error::io("read", "data", std::io::Error::other("told to fail")));
        }
        let mut body = body.to_vec();
        if body[8..16] == was.0.to_le_bytes() {
            body[8..16].copy_from_slice(&is.0.to_le_bytes());
        }
        Ok(body)
    }

    fn undo(&self, context: &mut UndoContext<'_>, entry: &UndoEntry<'_>) -> Result<bool> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(Error::io("read", "data", std::io::Error::other("the disk is gone")));
        }
        assert!(!self.panics.load(Ordering::Relaxed), "told to panic");
        let mut from = Decoder::new(entry.body);
        let mut next = || from.u64().expect("our own body");
        let (row, before) = (next(), next());
        assert_eq!(entry.table, TABLE);
        if self.stuck.load(Ordering::Relaxed) == row {
            return Err(Error::DiskFull { path: "data".into(), held_by: None });
        }
        if self.damaged.load(Ordering::Relaxed) == row {
            return Err(Error::corrupted("data", Place::Page(page_of(row)), "the checksum does not fit"));
        }
        context.reserve(UndoContext::clr_cost(1, BODY))?;
        let mut page = self.pool.exclusive(page_of(row))?;
        assert_eq!(header(&page), context.xid(), "the row is still locked");
        page.mark_dirty();
        if entry.lsn > Lsn::ZERO {
            let (old, new) = (next(), next());
            assert_eq!(value(&page) as u64, new, "undo meets what was done");
            let body: Vec<u8> = [row, context.xid().0, new, old].iter().flat_map(|v| v.to_le_bytes()).collect();
            let change = Change { kind: SET, flags: 0, init_mask: 0, table: TABLE, body: &[&body] };
            let lsn = context.log_clr(entry, &change, Dep::none(), &mut [&mut page]);
            assert!(lsn > entry.lsn);
            page.write(AT_VALUE, &old.to_le_bytes());
        } else {
            assert!(entry.keep.is_none(), "a lock that is kept stays as it is");
        }
        let keeps = entry.keep.is_some() && before != context.xid().0;
        if !keeps {
            page.write(AT_HEADER, &before.to_le_bytes());
        }
        Ok(keeps)
    }

    fn take_over(&self, again: &mut dyn TakeOver, changes: &[LoggedChange]) -> Result<()> {
        for change in changes {
            let mut from = Decoder::new(&change.body);
            let mut next = || from.u64().expect("our own body");
            let (row, before) = (next(), next());
            let before = if before == again.was().0 { again.xid().0 } else { before };
            let body = [&row.to_le_bytes()[..], &before.to_le_bytes(), &change.body[16..]].concat();
            again.reserve(BODY)?;
            let page = self.pool.exclusive(page_of(row)).and_then(|page| match self.damaged.load(Ordering::Relaxed) {
                damaged if damaged == row => {
                    Err(Error::corrupted("data", Place::Page(page_of(row)), "the checksum does not fit"))
                }
                _ => Ok(page),
            });
            let mut page = match page {
                Ok(page) => page,
                Err(cause) => {
                    again.leave_out(cause)?;
                    continue;
                }
            };
            again.enter(
                &Undoable { kind: change.kind, table: change.table, body: &body, before: None, structure: 0 },
                change.lsn,
            );
            page.mark_dirty();
            page.write(AT_HEADER, &again.xid().0.to_le_bytes());
        }
        Ok(())
    }
}
