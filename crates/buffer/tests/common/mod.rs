//! A pool over a log and two files, and counting pages: the body of page `p` starts with `p` and a counter.

#![allow(unreachable_pub)]

use foreshore_base::codec::u64_at;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{GroupNo, Lsn, PageId, Result, TableId, Uuid};
use foreshore_buffer::format::{ChangeRecord, PAGE_HEADER};
use foreshore_buffer::{Change, ExclusiveGuard, PageMut, PageType, Pool, PoolOptions, change, change_cost};
use foreshore_io::{File, FileLayer, Fs, Sim};
use foreshore_wal::{Dep, Log, LogOptions, Recovered, Session};
use std::path::Path;
use std::sync::Arc;

pub const UUID: Uuid = Uuid([5; 16]);
pub const DATA: &str = "db/data";
pub const DOUBLEWRITE: &str = "db/dw";
const LOG: &str = "db/log";

const INIT: u8 = 33;
const COUNT: u8 = 34;
const AT_OWN_ID: usize = PAGE_HEADER;
pub const AT_COUNT: usize = PAGE_HEADER + 8;
/// Offset of a second copy of the counter in the last sector, which reveals a torn page without the checksum.
const AT_TAIL: usize = PAGE_SIZE - 8;

pub fn pool_options(frames: usize) -> PoolOptions {
    PoolOptions { frames, background: false, ..PoolOptions::default() }
}

fn log_options() -> LogOptions {
    LogOptions {
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        max_sessions: 64,
        background: false,
        ..Default::default()
    }
}

/// The parts of a database that a pool needs.
pub struct Bed {
    pub log: Log,
    pub pool: Pool,
    pub recovered: Recovered,
}

/// Creates an empty, durable database with space for pages below `pages`.
pub fn create(fs: &Arc<dyn Fs>, pages: u64) -> Result<()> {
    fs.create_dir(Path::new("db"))?;
    Log::create(fs, Path::new(LOG), UUID, &log_options())?;
    let data = fs.create(Path::new(DATA))?;
    data.allocate(0, PageId(pages).offset())?;
    data.sync()?;
    Pool::create_files(&*fs.create(Path::new(DOUBLEWRITE))?, UUID)?;
    fs.sync_dir(Path::new("db"))?;
    fs.sync_dir(Path::new("."))
}

/// Creates a simulated disk with a database of the pages from 1 to below `pages`, each initialised and at home. Also
/// returns the group in which later changes begin.
pub fn store(seed: u64, pages: u64) -> (Sim, Arc<dyn Fs>, GroupNo) {
    let sim = Sim::new(seed);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    create(&fs, pages).expect("an empty store");
    let bed = open(&fs, &pool_options(16)).expect("open");
    let mut session = bed.log.session().expect("a session");
    for pid in 1..pages {
        init(&bed.pool, &mut session, PageId(pid)).expect("init");
    }
    bed.pool.flush_all().expect("flush");
    let group = bed.log.next_group();
    (sim, fs, group)
}

pub fn open(fs: &Arc<dyn Fs>, options: &PoolOptions) -> Result<Bed> {
    open_with(fs, options, |_, file| file)
}

/// Opens with the data file wrapped.
pub fn open_with(
    fs: &Arc<dyn Fs>,
    options: &PoolOptions,
    wrap: impl FnOnce(&Log, Arc<dyn File>) -> Arc<dyn File>,
) -> Result<Bed> {
    let (log, recovered) = Log::open(fs, Path::new(LOG), UUID, &log_options())?;
    let data = wrap(&log, fs.open(Path::new(DATA))?);
    let pool = Pool::open(data, fs.open(Path::new(DOUBLEWRITE))?, UUID, log.clone(), options)?;
    Ok(Bed { log, pool, recovered })
}

impl Bed {
    /// Restores torn pages and redoes the log from `from` on. Returns how many pages were restored.
    pub fn recover(&self, from: GroupNo) -> Result<usize> {
        let restored = self.pool.restore_doublewrite(self.recovered.end())?;
        for record in self.recovered.records(from.max(self.recovered.first_group())) {
            let record = record?;
            let change = ChangeRecord::decode(&record.payload).expect("a record of ours");
            for (index, &pid) in change.pages().iter().enumerate() {
                let fix = if change.initialises(index) { Pool::exclusive_or_blank } else { Pool::exclusive };
                let mut page = fix(&self.pool, pid)?;
                if record.lsn > page.lsn() {
                    page.set_rec_group_for_redo(record.group);
                    apply(change.kind, u64_at(change.body, 0), &mut page);
                    page.set_lsn(record.lsn);
                }
            }
        }
        Ok(restored)
    }

    /// Returns the counter of each page by the recovered log.
    pub fn logged_counts(&self, pages: u64) -> Vec<Option<u64>> {
        let mut counts = vec![None; pages as usize];
        for record in self.recovered.records(self.recovered.first_group()) {
            let payload = record.expect("the accepted log is readable").payload;
            let change = ChangeRecord::decode(&payload).expect("a record of ours");
            counts[change.pages()[0].0 as usize] = Some(u64_at(change.body, 0));
        }
        counts
    }
}

fn apply(kind: u8, count: u64, page: &mut ExclusiveGuard<'_>) {
    if kind == INIT {
        let pid = page.pid();
        page.fill(PAGE_HEADER..PAGE_SIZE, 0xee);
        page.set_page_type(PageType::Tree);
        page.write(AT_OWN_ID, &pid.0.to_le_bytes());
    }
    page.write(AT_COUNT, &count.to_le_bytes());
    page.write(AT_TAIL, &count.to_le_bytes());
}

fn log_count(session: &mut Session, kind: u8, count: u64, page: &mut ExclusiveGuard<'_>) -> Lsn {
    let body: &[&[u8]] = &[&count.to_le_bytes()];
    let init_mask = u8::from(kind == INIT);
    let what = Change { kind, flags: 0, init_mask, table: TableId(1), body };
    apply(kind, count, page);
    change(session, Dep::none(), 1, &what, &mut [page])
}

/// Makes a counting page of count 0.
pub fn init(pool: &Pool, session: &mut Session, pid: PageId) -> Result<Lsn> {
    session.reserve(change_cost(1, 8))?;
    Ok(log_count(session, INIT, 0, &mut pool.create(pid)?))
}

/// Raises the counter of a page and returns it with the LSN of the change.
pub fn count(pool: &Pool, session: &mut Session, pid: PageId) -> Result<(u64, Lsn)> {
    session.reserve(change_cost(1, 8))?;
    let mut page = pool.exclusive(pid)?;
    let next = check(&page, pid) + 1;
    let lsn = log_count(session, COUNT, next, &mut page);
    Ok((next, lsn))
}

/// Checks that the bytes are those of page `pid`, of one state, and returns its counter.
pub fn check(page: &[u8], pid: PageId) -> u64 {
    assert_eq!(u64_at(page, AT_OWN_ID), pid.0, "page {pid} holds another page");
    let count = u64_at(page, AT_COUNT);
    assert_eq!(u64_at(page, AT_TAIL), count, "page {pid} is of two states");
    count
}

/// A small generator of pseudo-random numbers (splitmix64), so that every run is the same.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// The next operation of a [`Watched`] file.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    Read,
    Write(&'a [u8], u64),
    Sync,
}

/// A file that reports each operation before it happens.
pub struct Watched {
    pub inner: Arc<dyn File>,
    pub watch: Box<dyn Fn(Event<'_>) + Send + Sync>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl FileLayer for Watched {
    fn below(&self) -> &dyn File {
        &*self.inner
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        (self.watch)(Event::Read);
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        (self.watch)(Event::Write(buf, offset));
        self.inner.write_at(buf, offset)
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        (self.watch)(Event::Write(buf, offset));
        self.inner.write_durable(buf, offset)
    }

    fn sync(&self) -> Result<()> {
        (self.watch)(Event::Sync);
        self.inner.sync()
    }
}
