//! Promise: two batches go home at once, and a power loss, the end of the process, an error of the disk or a panic
//! stops them. Afterwards every page can be read, and none counts as clean that is not at home.

use crate::common::{Bed, check, count, open, open_with, pool_options, store};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, GroupNo, PageId, Result};
use foreshore_io::sim::Persist;
use foreshore_io::{File, FileLayer, Fs, Sim};
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use std::io;
use std::sync::{Arc, Barrier};

const PAGES: u64 = 8;
// No two of them neighbours.
const P: PageId = PageId(2);
const Q: PageId = PageId(4);
const R: PageId = PageId(6);

/// A data file that calls a function before it syncs, and reports its writes.
struct Asking {
    inner: Arc<dyn File>,
    written: Box<dyn Fn(PageId) + Send + Sync>,
    sync: Box<dyn Fn() -> Result<()> + Send + Sync>,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl FileLayer for Asking {
    fn below(&self) -> &dyn File {
        &*self.inner
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)?;
        (self.written)(PageId(offset / PAGE_SIZE as u64));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        (self.sync)()?;
        self.inner.sync()
    }
}

/// Raises the counter of a page.
fn change(bed: &Bed, pid: PageId) {
    let mut session = bed.log.session().expect("a session");
    count(&bed.pool, &mut session, pid).expect("count");
}

fn no_answer() -> Result<()> {
    Err(Error::io("sync", "data", io::ErrorKind::TimedOut.into()))
}

/// The results of the concurrent flushes of P and of Q. `None` for a panic.
struct Ended {
    bed: Bed,
    p: Option<Result<()>>,
    q: Option<Result<()>>,
}

/// Writes P and Q home, in a round each:
///
/// 1. Both pages are written, and the round of P is about to sync.
/// 2. `meanwhile` runs.
/// 3. The sync of P's round ends as `first` says, which ends that round.
/// 4. The sync of Q's round ends as `second` says.
fn two_rounds(
    fs: &Arc<dyn Fs>,
    first: fn() -> Result<()>,
    second: fn() -> Result<()>,
    meanwhile: impl FnOnce(),
) -> Ended {
    let [p_stands, p_goes, q_stands, q_goes] = [(); 4].map(|()| Arc::new(Barrier::new(2)));
    let bed = open_with(fs, &pool_options(16), |_, inner| {
        let (stands, goes, is_second) = (p_stands.clone(), p_goes.clone(), AtomicBool::new(false));
        let sync = move || {
            // ORDERING: a flag; the barriers order the threads.
            if is_second.swap(true, Ordering::Relaxed) {
                return second();
            }
            stands.wait();
            goes.wait();
            first()
        };
        let (stands, goes) = (q_stands.clone(), q_goes.clone());
        let written = move |pid| {
            if pid == Q {
                stands.wait();
                goes.wait();
            }
        };
        Arc::new(Asking { inner, written: Box::new(written), sync: Box::new(sync) })
    })
    .expect("open");
    change(&bed, P);
    let (p, q) = thread::scope(|scope| {
        let p = scope.spawn(|| bed.pool.flush_all());
        p_stands.wait();
        change(&bed, Q);
        let q = scope.spawn(|| bed.pool.flush_all());
        q_stands.wait();
        meanwhile();
        p_goes.wait();
        let p = p.join().ok();
        q_goes.wait();
        (p, q.join().ok())
    });
    Ended { bed, p, q }
}

/// Loses power, with any unsynced sectors on the medium, and checks that `pages` have count 1. Returns how many were
/// torn.
fn lose_power(sim: &Sim, group: GroupNo, pages: &[PageId]) -> Vec<usize> {
    let after = |seed| {
        let fs: Arc<dyn Fs> = Arc::new(sim.crash_image(&Persist::Torn, seed));
        let bed = open(&fs, &pool_options(16)).expect("open");
        let restored = bed.recover(group).unwrap_or_else(|e| panic!("seed {seed}: {e:?}"));
        for &pid in pages {
            let page = bed.pool.shared(pid).unwrap_or_else(|e| panic!("seed {seed}: page {pid}: {e:?}"));
            assert_eq!(check(&page, pid), 1, "seed {seed}: page {pid}");
        }
        restored
    };
    (0..60).map(after).collect()
}

#[test]
fn power_may_be_lost_with_both_batches_on_their_way() {
    let (sim, fs, group) = store(1, PAGES);
    let mut restored = Vec::new();
    let ended = two_rounds(&fs, || Ok(()), || Ok(()), || restored = lose_power(&sim, group, &[P, Q]));
    assert!(restored.contains(&2), "no power loss tore both pages: {restored:?}");
    assert!(matches!((ended.p, ended.q), (Some(Ok(())), Some(Ok(())))));
    assert_eq!(ended.bed.pool.stats().pages_dirty, 0);
}

/// A process ends with both batches on their way. As long as power stays, its files look whole. The next run must not
/// take them for durable and overwrite the images.
#[test]
fn a_process_may_end_with_both_batches_on_their_way_and_the_next_lose_power() {
    let (sim, fs, group) = store(2, PAGES);
    drop(two_rounds(&fs, no_answer, no_answer, || ()));
    let runs = Arc::new(AtomicBool::new(false));
    let bed = open_with(&fs, &pool_options(16), |_, inner| {
        let runs = runs.clone();
        // ORDERING: a flag of one thread; here and below.
        let sync = Box::new(move || if runs.load(Ordering::Relaxed) { no_answer() } else { Ok(()) });
        Arc::new(Asking { inner, written: Box::new(|_| ()), sync })
    })
    .expect("open");
    bed.recover(group).expect("recover");
    runs.store(true, Ordering::Relaxed);
    change(&bed, R);
    bed.pool.flush_all().expect_err("the power is lost before the sync");
    let restored = lose_power(&sim, group, &[P, Q, R]);
    assert!(restored.contains(&1), "no power loss tore the page: {restored:?}");
}

/// The kernel reports lost pages once, to either round.
#[test]
fn a_sync_after_one_that_failed_is_not_believed() {
    let (_sim, fs, _) = store(3, PAGES);
    let ended = two_rounds(&fs, no_answer, || Ok(()), || ());
    assert!(matches!(ended.p, Some(Err(Error::Io { op: "sync", .. }))), "{:?}", ended.p);
    assert!(matches!(ended.q, Some(Err(Error::Poisoned { .. }))), "{:?}", ended.q);
    assert_eq!(ended.bed.pool.stats().pages_dirty, 2, "nothing is taken to be home");
}

/// The pages of the round may be torn at home, so their images must stay. No thread waits for ever for the round.
#[test]
fn a_round_that_unwinds_stops_the_log_and_hangs_no_thread() {
    let (_sim, fs, _) = store(4, PAGES);
    let ended = two_rounds(&fs, || panic!("a defect"), || Ok(()), || ());
    assert!(ended.p.is_none());
    assert!(matches!(ended.q, Some(Err(Error::Poisoned { .. }))), "{:?}", ended.q);
    assert!(matches!(ended.bed.pool.flush_all(), Err(Error::Poisoned { .. })));
}
