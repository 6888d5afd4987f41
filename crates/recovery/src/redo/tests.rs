//! Workers against the thread that reads: the same pages, the same error, and an end whatever happens.

use super::*;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{GroupNo, Lsn, Place, Uuid, Xid};
use foreshore_base::{PageId, TableId};
use foreshore_buffer::ExclusiveGuard;
use foreshore_buffer::{PageMut, PageType};
use foreshore_buffer::{Pool, PoolOptions, Stamps};
use foreshore_io::{File, Fs, Mem};
use foreshore_sync::primitive::thread;
use foreshore_txn::{LoggedChange, TakeOver, UndoContext, UndoEntry};
use foreshore_wal::{Dep, Log, LogOptions, Record};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Pages 10 to 209.
const PAGES: u64 = 200;
/// A page that no record initialises.
const DAMAGED: PageId = PageId(300);
/// Where a page has the count of its changes, and a hash of their LSNs in their order.
const AT: usize = 512;
/// Bodies of records that cannot be redone.
const FAILS: &[u8] = b"fails";
const PANICS: &[u8] = b"panics";
const HALF_FAILS: &[u8] = b"half fails";
const HALF_PANICS: &[u8] = b"half panics";
/// The first byte of a body of which one half is on the page when it turns out that the other cannot be redone.
const HALF: u8 = b'h';

/// Counts the changes of a page, in their order.
struct Counter;

impl ResourceManager for Counter {
    fn redo(&self, change: &ChangeRecord<'_>, index: usize, page: &mut ExclusiveGuard<'_>) -> Result<()> {
        assert_ne!(change.body, PANICS, "as it was told");
        if change.body[0] == HALF {
            page.write(AT, change.body);
        }
        assert_ne!(change.body, HALF_PANICS, "as it was told");
        if change.body == FAILS || change.body == HALF_FAILS {
            return Err(Error::corrupted("data", Place::Offset(page.pid().0 * PAGE_SIZE as u64), "as it was told"));
        }
        let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        let (count, hash) = if change.initialises(index) { (0, 0) } else { (word(AT), word(AT + 8)) };
        page.set_page_type(PageType::Tree);
        let number = u64::from_le_bytes(change.body.try_into().expect("a number"));
        let hash: u64 = (hash ^ number).wrapping_mul(0x100_0000_01b3);
        page.write(AT, &(count + 1).to_le_bytes());
        page.write(AT + 8, &hash.to_le_bytes());
        Ok(())
    }

    fn undo(&self, _: &mut UndoContext<'_>, _: &UndoEntry<'_>) -> Result<bool> {
        unreachable!("redo alone")
    }

    fn row_of<'c>(&self, _: u8, _: &'c [u8]) -> Result<Option<&'c [u8]>> {
        unreachable!("redo alone")
    }

    fn rename(&self, _: u8, _: &[u8], _: Xid, _: Xid) -> Result<Vec<u8>> {
        unreachable!("redo alone")
    }

    fn take_over(&self, _: &mut dyn TakeOver, _: &[LoggedChange]) -> Result<()> {
        unreachable!("redo alone")
    }
}

/// A pool without threads over files without pages.
fn pool() -> Pool {
    pool_over(Mem::null().create(Path::new("data")).expect("memory"))
}

fn pool_over(data: Arc<dyn File>) -> Pool {
    let log = Log::discarding(&LogOptions { background: false, ..LogOptions::default() }).expect("a log");
    let doublewrite = Mem::null().create(Path::new("dw")).expect("memory");
    Pool::create_files(&*doublewrite, Uuid([1; 16])).expect("memory");
    let options = PoolOptions { frames: 512, background: false, ..PoolOptions::default() };
    Pool::open(data, doublewrite, Uuid([1; 16]), log, &options).expect("a pool")
}

/// A record of some pages.
fn record(lsn: u64, init_mask: u8, pages: &[PageId], body: &[u8]) -> LoggedRecord {
    let change = ChangeRecord::new(1, 0, init_mask, TableId(9), pages);
    let mut header = [0; foreshore_buffer::format::change_header_len(foreshore_buffer::format::MAX_CHANGE_PAGES)];
    let used = change.encode_header(&mut header);
    let payload = [&header[..used], body].concat();
    LoggedRecord { lsn: Lsn(lsn), tag: 0, flags: 0, payload, group: GroupNo(1) }
}

/// A history of records of one to three pages, the first of each page initialising it, and some later ones again.
fn history(seed: u64, records: u64) -> Vec<LoggedRecord> {
    let mut state = seed;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % bound
    };
    let first = |page: u64| record(1 + page, 1, &[PageId(10 + page)], &page.to_le_bytes());
    let later = |number: u64| {
        let mut pages: Vec<PageId> = (0..1 + below(3)).map(|_| PageId(10 + below(PAGES))).collect();
        pages.sort_unstable();
        pages.dedup();
        if below(50) == 0 {
            pages = vec![DAMAGED];
        }
        // A hot page, as a table's last one.
        if below(4) == 0 {
            pages = vec![PageId(77)];
        }
        let mask = u8::from(below(40) == 0 && pages != [DAMAGED]);
        record(1 + PAGES + number, mask, &pages, &number.to_le_bytes())
    };
    let firsts: Vec<LoggedRecord> = (0..PAGES).map(first).collect();
    firsts.into_iter().chain((0..records).map(later)).collect()
}

/// Redoes a history, and returns what was done, or what went wrong.
fn redo(pool: &Pool, workers: usize, history: &[LoggedRecord]) -> Result<Redone> {
    let manager: Arc<dyn ResourceManager> = Arc::new(Counter);
    redo_by(Redo::new(workers, Path::new("log"), pool, &manager), history)
}

fn redo_by(mut redo: Redo<'_>, history: &[LoggedRecord]) -> Result<Redone> {
    let malformed = |why| Error::corrupted("log", Place::File, why);
    let read = history.iter().try_for_each(|record| {
        let change = ChangeRecord::decode(&record.payload).map_err(malformed)?;
        redo.redo(record, &change, &malformed).map(drop)
    });
    let done = redo.finish()?;
    read.map(|()| done)
}

fn pages(pool: &Pool) -> Vec<Vec<u8>> {
    (10..10 + PAGES).map(|pid| pool.shared(PageId(pid)).expect("in memory").to_vec()).collect()
}

#[test]
fn any_number_of_workers_leaves_the_pages_that_one_thread_leaves() {
    for seed in 0..4 {
        let history = history(seed, 20_000);
        let alone = pool();
        let expected = redo(&alone, 1, &history).expect("sound records");
        assert_eq!(expected.quarantined.iter().collect::<Vec<_>>(), [&DAMAGED]);
        for workers in [2, 3, 8] {
            let pool = pool();
            let redone = redo(&pool, workers, &history).expect("sound records");
            assert_eq!((redone.changes, &redone.quarantined), (expected.changes, &expected.quarantined));
            assert!(pages(&pool) == pages(&alone), "seed {seed}, {workers} workers");
            // Once more: the pages have everything.
            let again = redo(&pool, workers, &history).expect("sound records");
            assert_eq!(again.changes, 0, "seed {seed}, {workers} workers");
        }
    }
}

#[test]
fn the_first_record_that_fails_gives_the_error() {
    for seed in 0..20 {
        let mut history = history(seed, 3000);
        let count = history.len() as u64;
        // Later ones may fail before it does.
        for step in 0..40 {
            let at = (1000 + seed * 37 + step * 29) % count;
            let pid = PageId(10 + (seed * 7 + step * 13) % PAGES);
            history[at as usize] = record(1 + at, 0, &[pid], FAILS);
        }
        let expected = redo(&pool(), 1, &history).expect_err("some fail");
        for workers in [2, 5] {
            let failed = redo(&pool(), workers, &history).expect_err("some fail");
            assert_eq!(format!("{failed:?}"), format!("{expected:?}"), "seed {seed}");
        }
    }
}

#[test]
fn a_panic_of_a_worker_goes_on_in_the_thread_that_reads() {
    let mut history = history(1, 30_000);
    history[1000] = record(1001, 0, &[PageId(50)], PANICS);
    for workers in [1, 4] {
        let pool = pool();
        let panic = catch_unwind(AssertUnwindSafe(|| redo(&pool, workers, &history).map(drop)));
        let message = panic.expect_err("a panic");
        let text = message.downcast_ref::<String>().expect("a text");
        assert!(text.contains("as it was told"), "{text}");
    }
}

#[test]
fn workers_end_with_a_reader_that_gives_up() {
    let pool = pool();
    let manager: Arc<dyn ResourceManager> = Arc::new(Counter);
    let mut redo = Redo::new(4, Path::new("log"), &pool, &manager);
    for record in history(2, 1000) {
        let change = ChangeRecord::decode(&record.payload).expect("sound");
        let unused = |why| Error::corrupted("log", Place::File, why);
        assert!(redo.redo(&record, &change, &unused).expect("sound"));
    }
    drop(redo);
    assert_eq!(Arc::strong_count(&manager), 1, "no thread has it any more");
}

#[test]
fn redo_goes_on_with_the_threads_that_there_are() {
    let (history, alone) = (history(3, 5000), pool());
    redo(&alone, 1, &history).expect("sound records");
    for there in 0..4 {
        let (pool, manager): (Pool, Arc<dyn ResourceManager>) = (pool(), Arc::new(Counter));
        let mut left = there;
        let spawn = |body: Body| {
            left = if left > 0 { left - 1 } else { return Err(io::Error::other("no more threads")) };
            spawn("few", body)
        };
        let redo = Redo::with(4, Path::new("log"), &pool, &manager, spawn);
        assert_eq!(matches!(redo, Redo::Here(_)), there == 0, "{there} threads");
        redo_by(redo, &history).expect("sound records");
        assert!(pages(&pool) == pages(&alone), "{there} threads");
    }
}

#[test]
fn of_an_error_and_a_panic_the_first_counts() {
    for (error, panic) in [(500, 1500), (1500, 500)] {
        let mut history = history(6, 2000);
        history[error] = record(1 + error as u64, 0, &[PageId(20)], FAILS);
        history[panic] = record(1 + panic as u64, 0, &[PageId(120)], PANICS);
        for workers in [1, 2, 5] {
            let pool = pool();
            let ended = catch_unwind(AssertUnwindSafe(|| redo(&pool, workers, &history).map(drop)));
            assert_eq!(ended.is_err(), panic < error, "{workers} workers");
        }
    }
}

#[test]
fn no_page_goes_home_with_half_of_a_change() {
    for body in [HALF_FAILS, HALF_PANICS] {
        for workers in [1, 4] {
            let mut history = history(8, 2000);
            history[1900] = record(1901, 0, &[PageId(50)], body);
            let data = Mem::null().create(Path::new("data")).expect("memory");
            let pool = pool_over(Arc::clone(&data));
            let is_half = || pool.shared(PageId(50)).is_ok_and(|page| page[AT..].starts_with(body));
            let ended = thread::scope(|scope| {
                // A thread that gets the latch behind the change finds the log stopped.
                let watcher = scope.spawn(|| {
                    let begun = Instant::now();
                    while !is_half() {
                        assert!(begun.elapsed() < Duration::from_secs(60), "no half of the change is on the page");
                        thread::yield_now();
                    }
                    pool.log().poisoned().is_some()
                });
                let ended = catch_unwind(AssertUnwindSafe(|| redo(&pool, workers, &history).map(drop)));
                assert!(watcher.join().expect("no panic"), "the log runs when the latch ends");
                ended
            });
            assert_eq!(ended.is_err(), body == HALF_PANICS, "{workers} workers");
            assert!(pool.shared(PageId(50)).expect("in memory")[AT..].starts_with(body), "half of it is on the page");
            assert!(matches!(pool.flush_all(), Err(Error::Poisoned { .. })), "{workers} workers");
            assert_eq!(data.len().expect("memory"), 0, "no page is home");
        }
    }
}

/// A page whose stamp is 150.
const STAMPED: PageId = PageId(20);

/// A pool over the files of `fs`, with stamps and a log that is durable beyond 150.
fn stamped_pool(fs: &dyn Fs) -> Pool {
    let log = Log::discarding(&LogOptions { background: false, ..LogOptions::default() }).expect("a log");
    let mut session = log.session().expect("a session");
    let mut lsn = Lsn::ZERO;
    while lsn < Lsn(1000) {
        session.reserve(64).expect("space");
        lsn = session.append(Record { tag: 0, flags: 0, parts: &[&[0; 8]] }, Dep::none());
    }
    log.force(lsn).expect("a log");
    let doublewrite = Mem::null().create(Path::new("dw")).expect("memory");
    Pool::create_files(&*doublewrite, Uuid([1; 16])).expect("memory");
    let options = PoolOptions { frames: 16, background: false, ..PoolOptions::default() };
    let data = fs.open(Path::new("data")).expect("memory");
    let pool = Pool::open(data, doublewrite, Uuid([1; 16]), log, &options).expect("a pool");
    let path = Path::new("stamps");
    let found = Stamps::find(fs, path, Uuid([1; 16]), 0).expect("its own");
    pool.stamps().open(found, fs, path, Uuid([1; 16]), true);
    pool
}

/// Redoes records, and writes and evicts all pages after each.
fn redo_and_evict(pool: &Pool, history: &[LoggedRecord]) -> Redone {
    let mut done = Redone::default();
    for record in history {
        let Redone { changes, quarantined } = redo(pool, 1, std::slice::from_ref(record)).expect("sound records");
        (done.changes, done.quarantined) = (done.changes + changes, quarantined);
        pool.flush_all().expect("memory");
        (400..440).for_each(|pid| drop(pool.exclusive_or_blank(PageId(pid)).expect("a frame")));
    }
    done
}

#[test]
fn a_page_made_anew_goes_home_below_its_stamp_and_is_not_lost() {
    for was_quarantined in [false, true] {
        let fs = Mem::null();
        fs.create(Path::new("data")).expect("memory").write_at(&[7; PAGE_SIZE], STAMPED.offset()).expect("memory");
        let number = |n: u64| n.to_le_bytes();
        let of = |lsn, mask| record(lsn, mask, &[STAMPED], &number(lsn));
        let history = [of(90, 0), of(100, 1), of(120, 0), of(150, 0)];
        let pool = stamped_pool(&fs);
        if was_quarantined {
            assert_eq!(redo_and_evict(&pool, &history[..1]).quarantined.len(), 1);
            assert!(pool.quarantined(STAMPED).expect("sound").is_some());
        }
        drop(pool);
        let mut entry = [&number(150)[..], &number(STAMPED.0)[..4]].concat();
        entry.extend(foreshore_base::crc32c(&entry).to_le_bytes());
        let stamps = fs.open(Path::new("stamps")).expect("made by the first open");
        stamps.write_at(&entry, 4096 + 16 * STAMPED.0).expect("memory");
        // The first start ends early, when the page is home below its stamp. So does the second.
        for records in [&history[1..3], &history[..3]] {
            let pool = stamped_pool(&fs);
            let redone = redo_and_evict(&pool, records);
            assert!(redone.quarantined.is_empty(), "quarantined before: {was_quarantined}");
            assert_eq!(pool.shared(STAMPED).expect("sound")[AT], 2);
            assert_eq!(pool.stats().stamps.failures, 0);
        }
        assert!(stamped_pool(&fs).shared(STAMPED).is_err(), "it is below its stamp");
        for changes in [4, 0] {
            let pool = stamped_pool(&fs);
            let redone = redo_and_evict(&pool, &history);
            assert_eq!((redone.changes, redone.quarantined.len()), (changes, 0));
            assert_eq!(pool.shared(STAMPED).expect("sound")[AT], 3);
        }
    }
}
