//! Promise: a thread that sees a page sees it redone, and a checkpoint passes no page that is neither redone nor home.
//! A few threads read and count while others drain, with three frames, on a disk that fails reads now and then.

use crate::shuttle_pool::{AT_COUNT, AT_TAIL, FRAMES, PAGES, SCHEDULES, check, count, insist, pool, read};
use foreshore_base::codec::u64_at;
use foreshore_base::{Error, GroupNo, Lsn, PageId, Result};
use foreshore_buffer::{ExclusiveGuard, IfDamaged, PageMut, PageRedo, Pool, Stamps};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{LockRank, Mutex};
use foreshore_wal::{Dep, Log, Record};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What redo adds to the count of each page, in this many changes.
const REDONE: u64 = 2;
/// LSN of the first change that waits.
const FIRST: Lsn = Lsn(1);

/// The pages that wait, and whether their changes are taken.
struct Waiting {
    pages: Mutex<BTreeMap<PageId, bool>>,
    left: AtomicU64,
}

impl PageRedo for Waiting {
    fn pending(&self, pid: PageId) -> Option<IfDamaged> {
        self.pages.lock().contains_key(&pid).then_some(IfDamaged::Quarantine)
    }

    fn redo(&self, page: &mut ExclusiveGuard<'_>, _: &Stamps) -> Result<bool> {
        let pid = page.pid();
        match self.pages.lock().get_mut(&pid) {
            None => return Ok(false),
            Some(is_taken) => assert!(!std::mem::replace(is_taken, true), "page {pid} is redone twice"),
        }
        for change in 0..REDONE {
            thread::yield_now();
            let count = (u64_at(page, AT_COUNT) + 1).to_le_bytes();
            page.set_rec_group_for_redo(GroupNo(1));
            page.write(AT_COUNT, &count);
            page.write(AT_TAIL, &count);
            page.set_lsn(Lsn(FIRST.0 + change));
        }
        self.pages.lock().remove(&pid);
        // ORDERING: Release, pairs with `oldest_group`.
        self.left.fetch_sub(1, Ordering::Release);
        Ok(true)
    }

    fn failed(&self, error: &Error) {
        assert!(matches!(error, Error::Io { .. }), "only reads fail: {error:?}");
    }

    fn oldest_group(&self) -> Option<GroupNo> {
        // ORDERING: Acquire, pairs with `redo`.
        (self.left.load(Ordering::Acquire) > 0).then_some(GroupNo(1))
    }

    fn last_page(&self) -> PageId {
        PageId(PAGES)
    }
}

/// A pool of which the first `count` pages wait, and a log that is durable beyond their changes.
fn waiting(count: u64) -> (Pool, Log) {
    let (pool, log) = pool(FRAMES, ReplacementKind::S3c);
    let mut session = log.session().expect("a session");
    let mut last = Lsn::ZERO;
    while last < Lsn(FIRST.0 + REDONE) {
        session.reserve(64).expect("log space");
        last = session.append(Record { tag: 0, flags: 0, parts: &[&[0; 8]] }, Dep::none());
    }
    log.force(last).expect("a log");
    drop(session);
    let pages = Mutex::new(LockRank::Leaf, (1..=count).map(|number| (PageId(number), false)).collect());
    pool.set_redo(Arc::new(Waiting { pages, left: AtomicU64::new(count) }));
    (pool, log)
}

/// Readers, a writer and threads that drain.
fn touches() {
    let (pool, log) = waiting(PAGES);
    let reader = |own: u64| {
        let pool = pool.clone();
        thread::spawn(move || {
            for round in 0..6 {
                let pid = PageId(1 + (own * 3 + round * 5) % PAGES);
                if let Some(found) = read(&pool, pid, (own + round) % 6) {
                    assert!(found >= REDONE, "page {pid} is seen with {found}");
                }
            }
        })
    };
    let drain = |from: u64| {
        let pool = pool.clone();
        thread::spawn(move || {
            (0..PAGES).for_each(|number| insist(|| pool.redo(PageId(1 + (from + number) % PAGES))));
        })
    };
    let writer = {
        let (pool, log) = (pool.clone(), log.clone());
        thread::spawn(move || {
            let mut session = log.session().expect("a session");
            for turn in 1..=4 {
                assert_eq!(count(&pool, &mut session, PageId(3)), REDONE + turn, "page 3");
                pool.clean_step().expect("nothing but reads fails");
            }
        })
    };
    let threads = [reader(0), reader(1), drain(0), drain(5), writer];
    threads.into_iter().for_each(|thread| thread.join().expect("a thread ends"));
    for number in 1..=PAGES {
        let counted = if number == 3 { 4 } else { 0 };
        assert_eq!(check(&insist(|| pool.shared(PageId(number))), PageId(number)), REDONE + counted);
    }
}

#[test]
fn a_page_is_seen_redone_or_not_at_all() {
    shuttle(SCHEDULES, touches);
}

#[test]
#[should_panic]
fn a_page_that_is_seen_before_its_redo_is_noticed() {
    shuttle_mutated("pool: a page is seen before its redo", SCHEDULES, touches);
}

/// One thread redoes a page. Another asks what a checkpoint asks: from which group on does redo begin?
fn checkpoint() {
    let (pool, _log) = waiting(1);
    let drain = {
        let pool = pool.clone();
        thread::spawn(move || insist(|| pool.redo(PageId(1))))
    };
    for _ in 0..6 {
        assert_eq!(pool.min_rec_group(), Some(GroupNo(1)), "the page is neither redone nor home");
        thread::yield_now();
    }
    drain.join().expect("a thread ends");
    pool.flush_all().expect("nothing but reads fails");
    assert_eq!(pool.min_rec_group(), None);
}

#[test]
fn a_checkpoint_sees_a_page_that_waits_or_that_is_dirty() {
    shuttle(SCHEDULES, checkpoint);
}

#[test]
#[should_panic]
fn a_checkpoint_that_asks_for_dirty_pages_first_is_noticed() {
    let name = "pool: dirty pages are listed before those that wait for their redo";
    shuttle_mutated(name, 10 * SCHEDULES, checkpoint);
}
