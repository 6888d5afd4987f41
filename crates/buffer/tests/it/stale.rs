//! A page whose write the medium has lost is noticed when it is read again, before redo hides that.

use crate::common::{DATA, UUID, check, count, open, open_with, pool_options, store};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, GroupNo, PageId, Place, Result};
use foreshore_buffer::{Pool, Stamps};
use foreshore_io::{File, FileLayer, Fs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGES: u64 = 64;

/// A file that does not write one page, and says that it did.
#[derive(Debug)]
struct Loses {
    below: Arc<dyn File>,
    page: Arc<AtomicU64>,
}

impl FileLayer for Loses {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        for (part, at) in buf.chunks(PAGE_SIZE).zip((offset..).step_by(PAGE_SIZE)) {
            if at != PageId(self.page.load(Ordering::Relaxed)).offset() {
                self.below.write_at(part, at)?;
            }
        }
        Ok(())
    }

    fn write_whole(&self, _: &[(&[u8], u64)]) -> Result<bool> {
        Ok(false)
    }
}

fn with_stamps(pool: &Pool, fs: &Arc<dyn Fs>) {
    let path = Path::new("db/stamps");
    pool.stamps().open(Stamps::find(&**fs, path, UUID, 0).unwrap(), &**fs, path, UUID, true);
}

fn is_stale<T>(read: Result<T>, pid: PageId) -> bool {
    matches!(read, Err(Error::Corrupted { place: Place::Page(page), why, .. }) if page == pid && why.starts_with("stale"))
}

/// Reads so many other pages that none before stays in memory.
fn evict(pool: &Pool) {
    for _ in 0..3 {
        (32..PAGES).for_each(|pid| drop(pool.shared(PageId(pid)).unwrap()));
    }
}

#[test]
fn a_lost_write_is_noticed_at_once_and_by_the_next_run() {
    let (_sim, fs, group) = store(1, PAGES);
    let lost = Arc::new(AtomicU64::new(0));
    let bed = open_with(&fs, &pool_options(16), |_, below| Arc::new(Loses { below, page: lost.clone() })).unwrap();
    with_stamps(&bed.pool, &fs);
    let mut session = bed.log.session().unwrap();
    let (p, q) = (PageId(7), PageId(8));
    let mut change = |pid| {
        count(&bed.pool, &mut session, pid).unwrap();
        bed.pool.flush_all().unwrap();
    };
    change(p);
    lost.store(p.0, Ordering::Relaxed);
    change(q);
    evict(&bed.pool);
    assert!(bed.pool.shared(p).is_ok(), "no write of it was lost yet");
    change(p);
    evict(&bed.pool);
    assert!(is_stale(bed.pool.shared(p), p), "by the notes of this run");
    // The doublewrite file has later batches only.
    change(q);
    change(q);
    assert_eq!(check(&bed.pool.shared(q).unwrap(), q), 3);
    // The next run has the stamps of the checkpoint.
    bed.pool.stamps().write(bed.log.next_group(), 1);
    assert!(is_stale(bed.pool.shared(p), p));
    drop(session);
    drop(bed);

    let bed = open(&fs, &pool_options(16)).unwrap();
    assert!(bed.pool.shared(p).is_ok(), "without stamps it is not known");
    let bed = open(&fs, &pool_options(16)).unwrap();
    with_stamps(&bed.pool, &fs);
    assert!(is_stale(bed.pool.shared(p), p), "by its stamp");
    assert!(is_stale(bed.recover(group), p), "before redo changes it");
    let page = bed.pool.exclusive_or_quarantined(p).unwrap();
    assert!(page.is_quarantined() && page.lsn().0 == 0, "a record that initialises it ends that");
    let (kept, body) = (&page[28..32], &page[32..]);
    let mut found = vec![0; PAGE_SIZE];
    fs.open(Path::new(DATA)).unwrap().read_at(&mut found, p.offset()).unwrap();
    assert_eq!((kept, body, &page[24..28]), (&found[4..8], &found[32..], &found[24..28]));
}

#[test]
fn a_stale_neighbour_is_not_read_around() {
    let (_sim, fs, _) = store(2, PAGES);
    let (pid, next) = (PageId(9), PageId(10));
    let file = || fs.open(Path::new(DATA)).unwrap();
    let mut before = vec![0; PAGE_SIZE];
    file().read_at(&mut before, pid.offset()).unwrap();
    let bed = open(&fs, &pool_options(256)).unwrap();
    with_stamps(&bed.pool, &fs);
    let mut session = bed.log.session().unwrap();
    count(&bed.pool, &mut session, pid).unwrap();
    bed.pool.flush_all().unwrap();
    bed.pool.stamps().write(GroupNo(u64::MAX), 1);
    drop(session);
    drop(bed);
    file().write_at(&before, pid.offset()).unwrap();
    let bed = open(&fs, &pool_options(256)).unwrap();
    with_stamps(&bed.pool, &fs);
    assert_eq!(check(&bed.pool.shared(next).unwrap(), next), 0);
    assert!(bed.pool.stats().pages_ahead > 0, "its neighbours were read");
    assert!(is_stale(bed.pool.shared(pid), pid));
}
