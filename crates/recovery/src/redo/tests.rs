//! Any threads, memory and order of reads: the same pages, the same error, and an end whatever happens.

use super::changes::WaitingRecord;
use super::collected::{Collected, bucket_of};
use super::drain::{Body, EagerRedo, OpenRedo};
use super::pending::PendingRedo;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, GroupNo, Lsn, PageId, Place, Result, TableId, Uuid, Xid};
use foreshore_buffer::{ChangeRecord, ExclusiveGuard, PageMut, PageType, Pool, PoolOptions, Stamps};
use foreshore_io::{File, Fs, Mem};
use foreshore_sync::primitive::thread;
use foreshore_sync::{Clock, Joiner, SystemClock, spawn};
use foreshore_txn::{LoggedChange, ResourceManager, TakeOver, UndoContext, UndoEntry};
use foreshore_wal::{Dep, Log, LogOptions, LoggedRecord, Record};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Pages 10 to 209.
const PAGES: u64 = 200;
/// The end of the log that was found; the open database has appended since.
const UNTIL: Lsn = Lsn(35_000);
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

/// A pool without threads, and the changes that wait for its pages.
struct Bed {
    pool: Pool,
    manager: Arc<dyn ResourceManager>,
    pending: Arc<PendingRedo>,
}

impl Bed {
    fn over(pool: Pool) -> Self {
        let manager: Arc<dyn ResourceManager> = Arc::new(Counter);
        let pending = PendingRedo::new(&pool, Path::new("log"), &manager, (GroupNo(1), UNTIL));
        pool.set_redo(Arc::clone(&pending) as _);
        Self { pool, manager, pending }
    }

    /// Over files without pages.
    fn new() -> Self {
        Self::over(pool_over(Mem::null().create(Path::new("data")).expect("memory")))
    }

    /// Redo by `threads` threads that has memory for `limit` bytes.
    fn eager(&self, threads: usize, limit: u64) -> EagerRedo<'_> {
        let mut redo = EagerRedo::new(&self.pending, &self.pool, threads, |body| spawn("redo", body));
        redo.limit = limit;
        redo
    }

    /// Adds a history, as far as no change fails.
    fn add(&self, mut redo: Option<&mut EagerRedo<'_>>, history: &[LoggedRecord]) {
        let mut waits = Collected::new();
        for record in history {
            let change = ChangeRecord::decode(&record.payload).expect("sound");
            let &LoggedRecord { lsn, group, ref payload, .. } = record;
            let record = WaitingRecord { lsn, group, payload };
            match redo.as_deref_mut() {
                Some(redo) => {
                    if !redo.add(&record, &change) {
                        return;
                    }
                }
                None => waits.add(&record, &change),
            }
        }
        self.pending.fill(&mut waits);
    }

    /// Redoes a history before the database is open. Returns how many changes pages lacked, or what went wrong.
    fn redo_by(&self, mut redo: EagerRedo<'_>, history: &[LoggedRecord]) -> Result<u64> {
        let (before, _) = self.pending.redone();
        self.add(Some(&mut redo), history);
        redo.finish(false);
        self.pending.check()?;
        assert_eq!((self.pending.pages(), self.pending.bytes()), (0, 0), "nothing waits");
        Ok(self.pending.redone().0 - before)
    }

    fn redo(&self, threads: usize, history: &[LoggedRecord]) -> Result<u64> {
        self.redo_by(self.eager(threads, u64::MAX), history)
    }

    fn quarantined(&self) -> Vec<PageId> {
        self.pending.quarantined(usize::MAX)
    }

    fn page(&self, pid: u64) -> Vec<u8> {
        self.pool.shared(PageId(pid)).expect("sound").to_vec()
    }

    fn pages(&self) -> Vec<Vec<u8>> {
        (10..10 + PAGES).map(|pid| self.page(pid)).collect()
    }
}

/// A log that is durable up to `lsn` or beyond.
fn log_to(lsn: u64) -> Log {
    let log = Log::discarding(&LogOptions { background: false, ..LogOptions::default() }).expect("a log");
    let mut session = log.session().expect("a session");
    let mut last = Lsn::ZERO;
    while last < Lsn(lsn) {
        session.reserve(64).expect("space");
        last = session.append(Record { tag: 0, flags: 0, parts: &[&[0; 8]] }, Dep::none());
    }
    log.force(last).expect("a log");
    log
}

fn pool_over(data: Arc<dyn File>) -> Pool {
    let log = log_to(40_000);
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

/// A history without damage, and the pages that it leaves.
fn expected(seed: u64, records: u64) -> (Vec<LoggedRecord>, Bed) {
    let (history, bed) = (history(seed, records), Bed::new());
    for record in &history {
        bed.redo(1, std::slice::from_ref(record)).expect("sound records");
    }
    (history, bed)
}

#[test]
fn any_number_of_threads_and_any_memory_leave_the_pages_that_single_records_leave() {
    for seed in 0..4 {
        let (history, alone) = expected(seed, 10_000);
        assert_eq!(alone.quarantined(), [DAMAGED]);
        for (threads, limit) in [(1, u64::MAX), (1, 40_000), (2, 100_000), (3, u64::MAX), (8, 10_000)] {
            let (bed, what) = (Bed::new(), format!("seed {seed}, {threads} threads, {limit} bytes"));
            let changes = bed.redo_by(bed.eager(threads, limit), &history).expect("sound records");
            assert_eq!((changes, bed.quarantined()), (alone.pending.redone().0, vec![DAMAGED]), "{what}");
            assert!(bed.pages() == alone.pages(), "{what}");
            // Once more: the pages have everything.
            assert_eq!(bed.redo(threads, &history).expect("sound records"), 0, "{what}");
        }
    }
}

#[test]
fn pages_that_are_read_first_are_those_that_redo_leaves() {
    for seed in 0..4 {
        let (history, alone) = expected(seed, 10_000);
        let expected = alone.pages();
        // Some of it is redone before, since it does not fit in memory.
        for (readers, threads, limit) in [(1, 0, u64::MAX), (3, 2, u64::MAX), (2, 1, 100_000), (4, 0, 10_000)] {
            let what = format!("seed {seed}, {readers} readers, {threads} threads, {limit} bytes");
            let bed = Bed::new();
            let mut redo = bed.eager(2, limit);
            bed.add(Some(&mut redo), &history);
            redo.finish(true);
            bed.pending.check().expect("sound records");
            bed.pending.set_live();
            let open = OpenRedo::new(&bed.pending, &bed.pool, threads);
            assert!(open.left().0 > 0 || limit < u64::MAX, "{what}");
            open.start();
            thread::scope(|scope| {
                for reader in 0..readers {
                    let (bed, expected, what) = (&bed, &expected, &what);
                    scope.spawn(move || {
                        for step in 0..PAGES {
                            let page = (step * (7 + 2 * reader) * 3 + reader * 61 + seed) % PAGES;
                            assert!(bed.page(10 + page) == expected[page as usize], "{what}, page {page}");
                        }
                    });
                }
            });
            open.finish(|| ()).expect("sound records");
            assert_eq!(open.left(), (0, 0), "{what}");
            assert_eq!((open.redone(), open.quarantined(9)), (alone.pending.redone(), vec![DAMAGED]), "{what}");
            assert!(bed.pages() == expected, "{what}");
        }
    }
}

#[test]
fn a_page_counts_as_needed_until_it_is_redone() {
    let history = history(5, 1000);
    let bed = Bed::new();
    bed.add(None, &history);
    bed.pending.set_live();
    assert_eq!(bed.pool.last_page(), DAMAGED, "it waits");
    for pid in 10..10 + PAGES {
        assert_eq!(bed.pool.min_rec_group(), Some(GroupNo(1)));
        drop(bed.pool.shared(PageId(pid)).expect("sound"));
        bed.pool.flush_all().expect("memory");
    }
    assert_eq!(bed.pool.min_rec_group(), Some(GroupNo(1)), "the damaged page waits");
    OpenRedo::new(&bed.pending, &bed.pool, 0).finish(|| ()).expect("sound records");
    assert_eq!(bed.pool.min_rec_group(), None, "it is home as quarantined when it is redone");
}

#[test]
fn a_page_made_anew_is_redone_before() {
    let (history, alone) = expected(5, 1000);
    let bed = Bed::new();
    let mut redo = bed.eager(2, u64::MAX);
    bed.add(Some(&mut redo), &history);
    redo.finish(true);
    bed.pending.set_live();
    let before = bed.pending.pages();
    let page = bed.pool.pin_unread(PageId(12)).expect("a frame");
    assert_eq!(bed.pending.pages(), before - 1);
    assert!(page.exclusive()[AT..] == alone.page(12)[AT..], "its earlier use");
    assert!(page.exclusive().is_dirty(), "the log of its earlier use is kept until it is home");
    drop(page);
    let new = bed.pool.create(PageId(13)).expect("a frame");
    assert!(new[AT..].iter().all(|&byte| byte == 0) && new.lsn() >= Lsn(4), "it is blank, with its LSN");
    drop(new);
    // A thread that drains does not put the former content there.
    OpenRedo::new(&bed.pending, &bed.pool, 0).finish(|| ()).expect("sound records");
    assert!(bed.page(13)[AT..].iter().all(|&byte| byte == 0), "it is blank");
}

/// The log has lost its tail, and a page is home with changes of it. The database has appended to the log since.
#[test]
fn a_page_ahead_of_the_recovered_log_is_refused() {
    for lsn in [UNTIL.0, UNTIL.0 + 1] {
        let data = Mem::null().create(Path::new("data")).expect("memory");
        let before = Bed::over(pool_over(Arc::clone(&data)));
        let mut page = before.pool.create(PageId(10)).expect("a frame");
        page.set_page_type(PageType::Tree);
        page.set_rec_group_for_redo(GroupNo(1));
        page.set_lsn(Lsn(lsn));
        drop(page);
        before.pool.flush_all().expect("memory");
        let bed = Bed::over(pool_over(data));
        assert!(bed.pool.log().durable() > Lsn(lsn));
        bed.add(None, &[record(5, 0, &[PageId(10)], &[1; 8])]);
        bed.pending.set_live();
        let read = bed.pool.shared(PageId(10)).map(drop);
        let refused = matches!(&read, Err(Error::Corrupted { place: Place::Page(PageId(10)), .. }));
        assert_eq!((refused, bed.pool.log().poisoned().is_some()), (lsn > UNTIL.0, lsn > UNTIL.0), "{read:?}");
        assert_eq!(bed.pending.pages(), u64::from(refused));
    }
}

#[test]
fn threads_go_on_when_frames_are_free_again() {
    let bed = Bed::new();
    bed.add(None, &history(4, 1000));
    bed.pending.set_live();
    let pins: Vec<_> = (1000..1512).map(|pid| bed.pool.pin_unread(PageId(pid)).expect("a frame")).collect();
    let open = OpenRedo::new(&bed.pending, &bed.pool, 2);
    let before = bed.pool.stats().misses;
    open.start();
    let clock = SystemClock::new();
    let wait = |until: &dyn Fn() -> bool| {
        while !until() {
            assert!(Duration::from(clock.now()) < Duration::from_secs(60), "{:?} are left", open.left());
            thread::yield_now();
        }
    };
    // One at least has found no frame, and tries again.
    wait(&|| bed.pool.stats().misses > before + 2);
    assert!(bed.pool.log().poisoned().is_none());
    drop(pins);
    wait(&|| open.left().0 == 0);
}

/// Records are stored once for the pages of a bucket: runs of 64 pages.
#[test]
fn a_record_of_adjacent_pages_waits_once() {
    let (pages, body) = ([64, 65, 66, 67].map(PageId), [1; 4000]);
    let waiting = |pages: &[PageId]| {
        let bed = Bed::new();
        bed.add(None, &(0..20).map(|number| record(10 + number, 0, pages, &body)).collect::<Vec<_>>());
        bed.pending.bytes()
    };
    assert!(waiting(&pages) < waiting(&pages[..1]) + 2000, "{} and {}", waiting(&pages), waiting(&pages[..1]));
}

/// Maps that have been large give their memory back.
#[test]
fn a_bucket_without_pages_has_no_memory() {
    let bed = Bed::new();
    bed.add(None, &history(5, 1000));
    assert!(bed.pending.room() > 100);
    bed.pending.set_live();
    OpenRedo::new(&bed.pending, &bed.pool, 0).finish(|| ()).expect("sound records");
    assert_eq!(bed.pending.room(), 0);
}

#[test]
fn a_quarantined_page_is_home_before_it_is_seen() {
    let data = Mem::null().create(Path::new("data")).expect("memory");
    data.write_at(&[7; PAGE_SIZE], DAMAGED.offset()).expect("memory");
    let bed = Bed::over(pool_over(Arc::clone(&data)));
    bed.add(None, &[record(5, 0, &[DAMAGED], &[1; 8])]);
    bed.pending.set_live();
    assert!(bed.pool.shared(DAMAGED).is_ok(), "it is readable, and refused by all its users");
    let mut home = [0; PAGE_SIZE];
    data.read_at(&mut home, DAMAGED.offset()).expect("memory");
    assert_eq!(foreshore_buffer::format::page_type(&home), Some(PageType::Quarantined));
    assert_eq!((bed.quarantined(), bed.pool.stats().pages_dirty), (vec![DAMAGED], 0));
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
        let alone = Bed::new();
        let by_one = history.iter().try_for_each(|record| alone.redo(1, std::slice::from_ref(record)).map(drop));
        let expected = by_one.expect_err("some fail");
        for threads in [1, 2, 5] {
            let failed = Bed::new().redo(threads, &history).expect_err("some fail");
            assert_eq!(format!("{failed:?}"), format!("{expected:?}"), "seed {seed}");
        }
    }
}

#[test]
fn a_panic_of_a_thread_goes_on_in_the_thread_that_reads_the_log() {
    let mut history = history(1, 30_000);
    history[1000] = record(1001, 0, &[PageId(50)], PANICS);
    for threads in [1, 4] {
        let bed = Bed::new();
        let panic = catch_unwind(AssertUnwindSafe(|| bed.redo(threads, &history).map(drop)));
        let message = panic.expect_err("a panic");
        let text = message.downcast_ref::<String>().expect("a text");
        assert!(text.contains("as it was told"), "{text}");
    }
}

#[test]
fn threads_end_with_a_restart_that_gives_up() {
    let bed = Bed::new();
    bed.add(None, &history(2, 1000));
    bed.pending.set_live();
    let open = OpenRedo::new(&bed.pending, &bed.pool, 4);
    open.start();
    drop(open);
    // The bed's own, and that of its pool.
    assert_eq!(Arc::strong_count(&bed.pending), 2, "no thread has it any more");
    let Bed { pool, manager, pending } = bed;
    drop(pool);
    assert_eq!((Arc::strong_count(&pending), Arc::strong_count(&manager)), (1, 1));
}

#[test]
fn redo_goes_on_with_the_threads_that_there_are() {
    let (history, alone) = expected(3, 5000);
    for there in 0..4 {
        let bed = Bed::new();
        let mut left = there;
        let spawn = |body: Body| {
            left = if left > 0 { left - 1 } else { return Err(io::Error::other("no more threads")) };
            spawn("few", body)
        };
        let redo = EagerRedo::new(&bed.pending, &bed.pool, 4, spawn);
        bed.redo_by(redo, &history).expect("sound records");
        assert!(bed.pages() == alone.pages(), "{there} threads");
    }
}

#[test]
fn of_an_error_and_a_panic_the_first_counts() {
    for (error, panic) in [(500, 1500), (1500, 500)] {
        let mut history = history(6, 2000);
        history[error] = record(1 + error as u64, 0, &[PageId(20)], FAILS);
        history[panic] = record(1 + panic as u64, 0, &[PageId(120)], PANICS);
        for threads in [1, 2, 5] {
            let bed = Bed::new();
            let ended = catch_unwind(AssertUnwindSafe(|| bed.redo(threads, &history).map(drop)));
            assert_eq!(ended.is_err(), panic < error, "{threads} threads");
        }
    }
}

#[test]
fn no_page_is_seen_or_goes_home_with_half_of_a_change() {
    let home = |data: &dyn File| {
        let mut page = [0; PAGE_SIZE];
        data.read_at(&mut page, PageId(50).offset()).expect("memory");
        page
    };
    for (body, is_live) in [(HALF_FAILS, false), (HALF_PANICS, false), (HALF_FAILS, true), (HALF_PANICS, true)] {
        let mut history = history(8, 2000);
        history[1900] = record(1901, 0, &[PageId(50)], body);
        let data = Mem::null().create(Path::new("data")).expect("memory");
        let bed = Bed::over(pool_over(Arc::clone(&data)));
        if is_live {
            bed.add(None, &history);
            bed.pending.set_live();
            let ended = catch_unwind(AssertUnwindSafe(|| bed.pool.shared(PageId(50)).map(drop)));
            assert_eq!(ended.is_err(), body == HALF_PANICS);
            assert!(!ended.is_ok_and(|read| read.is_ok()), "the read fails");
            assert!(bed.pool.log().poisoned().is_some(), "nothing is committed beside it");
            assert!(matches!(bed.pool.flush_all(), Ok(()) | Err(Error::Poisoned { .. })));
        } else {
            let ended = catch_unwind(AssertUnwindSafe(|| bed.redo(2, &history).map(drop)));
            assert_eq!(ended.is_err(), body == HALF_PANICS);
            bed.pool.flush_all().expect("memory");
            assert!(bed.pool.stats().pages_written > 100, "the others are home");
        }
        assert!(bed.pool.exclusive_resident(PageId(50)).expect("in range").is_none(), "it has left memory");
        assert!(bed.pool.shared(PageId(50)).is_err(), "and does not come back");
        assert!(!home(&*data)[AT..].starts_with(body), "half of a change is home");
        assert!(bed.pool.min_rec_group().is_some(), "no checkpoint passes it");
    }
}

/// A page whose stamp is 150.
const STAMPED: PageId = PageId(20);

/// A pool over the files of `fs`, with stamps and a log that is durable beyond 150.
fn stamped_pool(fs: &dyn Fs) -> Pool {
    let log = log_to(1000);
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

/// Redoes records, and writes and evicts all pages after each. Returns how many changes pages lacked.
fn redo_and_evict(bed: &Bed, history: &[LoggedRecord]) -> u64 {
    let mut changes = 0;
    for record in history {
        changes += bed.redo(1, std::slice::from_ref(record)).expect("sound records");
        bed.pool.flush_all().expect("memory");
        (400..440).for_each(|pid| drop(bed.pool.exclusive_or_blank(PageId(pid)).expect("a frame")));
    }
    changes
}

#[test]
fn a_page_made_anew_goes_home_below_its_stamp_and_is_not_lost() {
    for was_quarantined in [false, true] {
        let fs = Mem::null();
        fs.create(Path::new("data")).expect("memory").write_at(&[7; PAGE_SIZE], STAMPED.offset()).expect("memory");
        let number = |n: u64| n.to_le_bytes();
        let of = |lsn, mask| record(lsn, mask, &[STAMPED], &number(lsn));
        let history = [of(90, 0), of(100, 1), of(120, 0), of(150, 0)];
        let bed = || Bed::over(stamped_pool(&fs));
        let first = bed();
        if was_quarantined {
            redo_and_evict(&first, &history[..1]);
            assert_eq!(first.quarantined().len(), 1);
            assert!(first.pool.quarantined(STAMPED).expect("sound").is_some());
        }
        drop(first);
        let mut entry = [&number(150)[..], &number(STAMPED.0)[..4]].concat();
        entry.extend(foreshore_base::crc32c(&entry).to_le_bytes());
        let stamps = fs.open(Path::new("stamps")).expect("made by the first open");
        stamps.write_at(&entry, 4096 + 16 * STAMPED.0).expect("memory");
        // The first start ends early, when the page is home below its stamp. So does the second.
        for records in [&history[1..3], &history[..3]] {
            let bed = bed();
            redo_and_evict(&bed, records);
            assert!(bed.quarantined().is_empty(), "quarantined before: {was_quarantined}");
            assert_eq!(bed.page(STAMPED.0)[AT], 2);
            assert_eq!(bed.pool.stats().stamps.failures, 0);
        }
        assert!(stamped_pool(&fs).shared(STAMPED).is_err(), "it is below its stamp");
        // A start that leaves it to the first read makes it anew at once.
        let waits = bed();
        waits.add(None, &history);
        waits.pending.set_live();
        assert_eq!((waits.page(STAMPED.0)[AT], waits.quarantined().len()), (3, 0));
        assert!(!waits.pool.stamps().has_rebuilt(), "it is at its stamp");
        drop(waits);
        for changes in [4, 0] {
            let bed = bed();
            assert_eq!((redo_and_evict(&bed, &history), bed.quarantined().len()), (changes, 0));
            assert_eq!(bed.page(STAMPED.0)[AT], 3);
        }
    }
}

/// A page has its records in one order, and their groups in another.
#[test]
fn a_change_found_at_home_is_stamped_with_the_group_of_its_own_record() {
    let fs = Mem::null();
    let data = fs.create(Path::new("data")).expect("memory");
    let of = |lsn: u64, mask, group| LoggedRecord {
        group: GroupNo(group),
        ..record(lsn, mask, &[STAMPED], &lsn.to_le_bytes())
    };
    let history = [of(100, 1, 20), of(110, 0, 30), of(120, 0, 5)];
    let homes = [1, 3].map(|records| {
        // What it notes becomes no stamp.
        let bed = Bed::over(stamped_pool(&fs));
        redo_and_evict(&bed, &history[..records]);
        let mut home = [0; PAGE_SIZE];
        data.read_at(&mut home, STAMPED.offset()).expect("memory");
        home
    });
    let bed = Bed::over(stamped_pool(&fs));
    assert_eq!(bed.redo(1, &history).expect("sound records"), 0, "all changes are found");
    bed.pool.stamps().write(GroupNo(6), 1);
    drop(bed);
    data.write_at(&homes[0], STAMPED.offset()).expect("memory");
    assert!(stamped_pool(&fs).shared(STAMPED).is_err(), "it lacks a change from before the redo start");
    data.write_at(&homes[1], STAMPED.offset()).expect("memory");
    assert_eq!(stamped_pool(&fs).shared(STAMPED).expect("sound")[AT], 3);
}

/// The page is rebuilt by a pass that the end of the log finds unfinished, up to a change that is below its stamp. It
/// goes home, and the stamps forget what was rebuilt when redo ends.
#[test]
fn a_page_that_was_rebuilt_by_the_last_pass_does_not_wait() {
    let of_bucket = |bucket| (1..).map(|run| PageId(64 * run)).find(|&pid| bucket_of(pid) == bucket).expect("a bucket");
    let (stamped, number) = (of_bucket(100), |number: u64| number.to_le_bytes());
    for threads in [1, 2] {
        let fs = Mem::null();
        let data = fs.create(Path::new("data")).expect("memory");
        data.write_at(&[7; PAGE_SIZE], stamped.offset()).expect("memory");
        drop(stamped_pool(&fs));
        let mut entry = [&number(150)[..], &number(stamped.0)[..4]].concat();
        entry.extend(foreshore_base::crc32c(&entry).to_le_bytes());
        let stamps = fs.open(Path::new("stamps")).expect("made by the first open");
        stamps.write_at(&entry, 4096 + 16 * stamped.0).expect("memory");
        let bed = Bed::over(stamped_pool(&fs));
        let mut history = vec![record(100, 1, &[stamped], &number(100))];
        let others = (0..20).map(|at| 80 + at).chain(101..121).map(of_bucket);
        history.extend((101..).zip(others).map(|(lsn, pid)| record(lsn, 1, &[pid], &number(lsn))));
        history.push(record(150, 0, &[stamped], &number(150)));
        let mut redo = bed.eager(threads, 42_000);
        bed.add(Some(&mut redo), &history);
        let waits = redo.finish(true);
        bed.pending.check().expect("sound records");
        bed.pool.flush_all().expect("memory");
        bed.pool.stamps().end_redo();
        bed.pending.set_live();
        assert_eq!(bed.page(stamped.0)[AT], 2, "both changes, waits: {waits}");
        assert_eq!(bed.quarantined(), [], "waits: {waits}");
    }
}

#[test]
fn an_index_that_takes_too_much_memory_ends_the_waiting() {
    for pages_each in [1, 10] {
        let bed = Bed::new();
        let mut redo = bed.eager(2, 1 << 20);
        let new = |lsn| record(lsn, 1, &[PageId(10 + lsn / pages_each)], &[1; 8]);
        // Almost as much as it may take.
        (1..10_000).for_each(|lsn| bed.add(Some(&mut redo), &[new(lsn)]));
        assert_eq!(bed.pending.pages(), 0, "it is all collected");
        redo.finish(true);
        assert!(bed.pending.bytes() <= 1 << 20, "{}", bed.pending.bytes());
        assert_eq!(bed.pending.pages() == 0, pages_each == 1, "{}", bed.pending.bytes());
    }
}

/// The thread that panics ends before the one that starts it goes on.
#[test]
fn a_panic_of_another_thread_is_not_forgotten() {
    for may_wait in [false, true] {
        let bed = Bed::new();
        let first = |body: Body| {
            spawn("redo", body).map(|join| {
                join();
                Box::new(|| ()) as Joiner
            })
        };
        let mut redo = EagerRedo::new(&bed.pending, &bed.pool, 2, first);
        let payload = record(6, 0, &[PageId(70)], &[1; 8]).payload;
        let change = ChangeRecord::decode(&payload).expect("sound");
        redo.add(&WaitingRecord { lsn: Lsn(5), group: GroupNo(1), payload: &payload }, &change);
        // The index of it cannot be made.
        redo.add(&WaitingRecord { lsn: Lsn(6), group: GroupNo(1), payload: &payload[..3] }, &change);
        assert!(catch_unwind(AssertUnwindSafe(|| redo.finish(may_wait))).is_err(), "may wait: {may_wait}");
    }
}
