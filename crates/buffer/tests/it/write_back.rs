//! Promise: a dirty page is home when a flush returns, and a change during the flush is not lost.

use crate::common::{
    Bed, DATA, DOUBLEWRITE, Event, Watched, check, count, create, init, open, open_with, pool_options, store,
};
use foreshore_base::limits::{PAGE_SIZE, SECTOR};
use foreshore_base::{Error, GroupNo, Lsn, PageId, Place, Result};
use foreshore_buffer::format::{AREA_PAGES, page_checksum, page_lsn, verify_page};
use foreshore_buffer::{DoublewriteKind, PageWrites, Pool, PoolOptions};
use foreshore_io::{File, FileLayer, Fs, Mem, Sim};
use foreshore_sync::{LockRank, Mutex};
use std::path::Path;
use std::sync::{Arc, OnceLock};

const PAGES: u64 = 8;
const P: PageId = PageId(3);

fn home(fs: &Arc<dyn Fs>, pid: PageId) -> Vec<u8> {
    let mut page = foreshore_io::AlignedBuf::new(PAGE_SIZE);
    fs.open(Path::new(DATA)).expect("the data file").read_at(&mut page, pid.offset()).expect("a read");
    page.to_vec()
}

#[test]
fn a_page_changed_during_its_write_stays_dirty_since_the_group_before_the_copy() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    create(&fs, PAGES).expect("an empty store");
    let pool: Arc<OnceLock<Pool>> = Arc::default();
    let bed = {
        let pool = pool.clone();
        open_with(&fs, &pool_options(16), |log, inner| {
            let log = log.clone();
            // The change comes between the copy and its sync.
            let watch = Box::new(move |event: Event<'_>| {
                if let (Event::Sync, Some(pool)) = (event, pool.get()) {
                    let mut session = log.session().expect("a session");
                    let (_, lsn) = count(pool, &mut session, P).expect("the page is in memory");
                    // Its record goes into the next group, which was noted before the copy. `force` seals it.
                    log.force(lsn).expect("force");
                }
            });
            Arc::new(Watched { inner, watch })
        })
        .expect("open")
    };
    let mut session = bed.log.session().expect("a session");
    let lsn = init(&bed.pool, &mut session, P).expect("init");
    bed.log.force(lsn).expect("force");
    let group = bed.log.next_group();
    pool.set(bed.pool.clone()).expect("set once");
    bed.pool.flush_older_than(group, |_| Ok(())).expect("flush");
    assert!(bed.log.next_group() > group);
    assert_eq!(bed.pool.min_rec_group(), Some(group), "the older change is home, the newer is not");
    let image = home(&fs, P);
    assert_eq!(verify_page(&image, P, lsn), Ok(()), "the copy from before the change is home");
    assert_eq!(check(&image, P), 0);
    assert_eq!(check(&bed.pool.shared(P).expect("in memory"), P), 1);
}

#[test]
fn a_page_that_redo_changes_while_it_is_written_keeps_its_older_group() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    create(&fs, PAGES).expect("an empty store");
    let old_group = {
        let bed = open(&fs, &pool_options(16)).expect("open");
        let mut session = bed.log.session().expect("a session");
        let lsn = init(&bed.pool, &mut session, P).expect("init");
        bed.log.force(lsn).expect("force");
        bed.recovered.first_group()
    };
    let pool: Arc<OnceLock<Pool>> = Arc::default();
    let bed = {
        let pool = pool.clone();
        open_with(&fs, &pool_options(16), |_, inner| {
            let watch = Box::new(move |event: Event<'_>| {
                if let (Event::Sync, Some(pool)) = (event, pool.get()) {
                    pool.exclusive(P).expect("in memory").set_rec_group_for_redo(old_group);
                }
            });
            Arc::new(Watched { inner, watch })
        })
        .expect("open")
    };
    bed.recover(old_group).expect("redo");
    pool.set(bed.pool.clone()).expect("set once");
    assert_eq!(bed.pool.clean_step().expect("clean"), 1);
    assert_eq!(bed.pool.min_rec_group(), Some(old_group), "redo's record is in an old group");
    assert!(old_group < bed.log.next_group());
}

#[test]
fn a_checkpoint_flush_leaves_pages_dirtied_since_its_group() {
    let (_, fs, _) = store(1, PAGES);
    let bed = open(&fs, &pool_options(16)).expect("open");
    let mut session = bed.log.session().expect("a session");
    let (_, lsn) = count(&bed.pool, &mut session, PageId(1)).expect("count");
    bed.log.force(lsn).expect("force");
    let group = bed.log.next_group();
    count(&bed.pool, &mut session, PageId(2)).expect("count");
    assert!(bed.pool.min_rec_group().expect("dirty pages") < group);
    bed.pool.flush_older_than(group, |_| Ok(())).expect("flush");
    assert_eq!(bed.pool.min_rec_group(), Some(group));
    assert_eq!(bed.pool.stats().pages_dirty, 1);
    assert_eq!(check(&home(&fs, PageId(1)), PageId(1)), 1);
    assert_eq!(check(&home(&fs, PageId(2)), PageId(2)), 0);
}

#[test]
fn flush_some_writes_its_share_oldest_first_and_all_pages_older_than_the_group() {
    let (_, fs, _) = store(1, PAGES);
    let bed = open(&fs, &pool_options(16)).expect("open");
    let mut session = bed.log.session().expect("a session");
    // Each page is changed in a group of its own, in this order.
    let groups = [5, 2, 7, 1, 6, 3, 4].map(|pid| {
        let group = bed.log.next_group();
        let (_, lsn) = count(&bed.pool, &mut session, PageId(pid)).expect("count");
        bed.log.force(lsn).expect("force");
        group
    });
    let left = |dirty: u64, oldest: usize| {
        assert_eq!((bed.pool.stats().pages_dirty, bed.pool.min_rec_group()), (dirty, groups.get(oldest).copied()));
    };
    left(7, 0);
    bed.pool.flush_some(groups[0], 4, |_| Ok(())).expect("flush");
    left(5, 2);
    assert_eq!(check(&home(&fs, PageId(5)), PageId(5)), 1);
    bed.pool.flush_some(groups[5], 16, |_| Ok(())).expect("flush");
    left(2, 5);
    bed.pool.flush_some(groups[5], 1, |_| Ok(())).expect("flush");
    left(0, 7);
}

#[test]
fn flush_paced_writes_no_page_while_it_rests() {
    const DIRTY: u64 = 4 * AREA_PAGES as u64 - 5;
    let (_, fs, _) = store(1, DIRTY + 2);
    let bed = open(&fs, &pool_options(2 * DIRTY as usize)).expect("open");
    let mut session = bed.log.session().expect("a session");
    for pid in (2..DIRTY + 2).map(PageId) {
        let (_, lsn) = count(&bed.pool, &mut session, pid).expect("count");
        bed.log.force(lsn).expect("force");
    }
    let dirty = || bed.pool.stats().pages_dirty;
    assert_eq!(dirty(), DIRTY);
    let mut left = Vec::new();
    let rest = &mut || {
        // What the background thread would do meanwhile.
        bed.pool.help_step();
        left.push(dirty());
        Ok(())
    };
    bed.pool.flush_paced(bed.log.next_group(), rest).expect("flush");
    let batch = AREA_PAGES as u64;
    assert_eq!(left[..4], [DIRTY - batch, DIRTY - 2 * batch, DIRTY - 3 * batch, 0]);
}

/// The writes home, each as its first page and its length in pages.
type Writes = Arc<Mutex<Vec<(u64, u64)>>>;

/// Creates a pool, and a list of its writes home.
fn listed(fs: &Arc<dyn Fs>, frames: usize) -> (Bed, Writes) {
    let writes = Arc::new(Mutex::new(LockRank::Leaf, Vec::new()));
    let list = writes.clone();
    let bed = open_with(fs, &pool_options(frames), |_, inner| {
        let watch = Box::new(move |event: Event<'_>| {
            if let Event::Write(bytes, offset) = event {
                list.lock().push((offset / PAGE_SIZE as u64, (bytes.len() / PAGE_SIZE) as u64));
            }
        });
        Arc::new(Watched { inner, watch })
    });
    (bed.expect("open"), writes)
}

#[test]
fn neighbours_go_home_in_one_write() {
    let (_, fs, _) = store(1, PAGES);
    let (bed, writes) = listed(&fs, 16);
    let mut session = bed.log.session().expect("a session");
    for pid in [5, 1, 7, 6, 2] {
        count(&bed.pool, &mut session, PageId(pid)).expect("count");
    }
    bed.pool.flush_all().expect("flush");
    assert_eq!(*writes.lock(), [(1, 2), (5, 3)]);
    let stats = bed.pool.stats();
    assert_eq!((stats.batches, stats.doublewrite_batches, stats.data_syncs, stats.pages_written), (1, 1, 1, 10));
}

#[test]
fn neighbours_converge_to_one_age_and_no_page_is_written_much_more_often() {
    const ALL: u64 = 16 * 16;
    const PORTIONS: u64 = 8;
    let (_, fs, _) = store(1, ALL);
    let (bed, writes) = listed(&fs, 2 * ALL as usize);
    let mut session = bed.log.session().expect("a session");
    // Pages are changed in an order that has nothing to do with their places.
    let mut change_all = || {
        for n in 0..ALL {
            let pid = PageId((n * 77 + 3) % ALL);
            if pid != PageId::ZERO {
                let (_, lsn) = count(&bed.pool, &mut session, pid).expect("count");
                bed.log.force(lsn).expect("force");
            }
        }
    };
    let mut runs = Vec::new();
    for _ in 0..6 {
        let mut lap = vec![0; ALL as usize];
        for _ in 0..PORTIONS {
            change_all();
            bed.pool.flush_some(GroupNo::ZERO, PORTIONS as usize, |_| Ok(())).expect("flush");
            for (first, pages) in std::mem::take(&mut *writes.lock()) {
                (first..first + pages).for_each(|pid| lap[pid as usize] += 1);
                runs.push(pages);
            }
        }
        // Hardly more than one write a page.
        assert!(lap.iter().sum::<u64>() < ALL + ALL / 8, "{lap:?}");
        assert!(lap.iter().all(|&times| times <= 2), "{lap:?}");
    }
    let mean = |runs: &[u64]| runs.iter().sum::<u64>() / runs.len() as u64;
    assert!(mean(&runs[..32]) < 4 && mean(&runs[runs.len() - 16..]) >= 12, "{runs:?}");
}

#[test]
fn a_page_torn_at_any_sector_is_mended_from_the_doublewrite_file() {
    let (sim, fs, _) = store(1, PAGES);
    let old = home(&fs, P);
    {
        let bed = open(&fs, &pool_options(16)).expect("open");
        let mut session = bed.log.session().expect("a session");
        count(&bed.pool, &mut session, P).expect("count");
        bed.pool.flush_all().expect("flush");
    }
    let new = home(&fs, P);
    for cut in 1..PAGE_SIZE / SECTOR {
        let mut torn = new.clone();
        torn[cut * SECTOR..].copy_from_slice(&old[cut * SECTOR..]);
        let fork = sim.fork();
        fork.patch(Path::new(DATA), P.offset(), &torn).expect("patch");
        let fs: Arc<dyn Fs> = Arc::new(fork);
        let bed = open(&fs, &pool_options(16)).expect("open");
        assert_eq!(bed.pool.restore_doublewrite(bed.recovered.end()).expect("restore"), 1, "cut {cut}");
        assert_eq!(home(&fs, P), new, "cut {cut}");
        assert_eq!(check(&bed.pool.shared(P).expect("whole again"), P), 1);
        assert_eq!(bed.pool.restore_doublewrite(bed.recovered.end()).expect("restore"), 0, "nothing is left to mend");
    }
}

#[test]
fn an_image_ahead_of_the_log_mends_nothing() {
    let (sim, fs, _) = store(1, PAGES);
    sim.flip(Path::new(DATA), P.offset() + 100, 1).expect("flip");
    let bed = open(&fs, &pool_options(16)).expect("open");
    let lost = Lsn(page_lsn(&home(&fs, P)).0 - 1);
    let refused = bed.pool.restore_doublewrite(lost).expect_err("the log has lost the change");
    assert!(matches!(refused, Error::Corrupted { place: Place::Page(P), .. }), "{refused:?}");
}

#[test]
fn images_do_not_outlive_a_run_without_doublewrite() {
    let (sim, fs, _) = store(1, PAGES);
    {
        let bed = open(&fs, &PoolOptions { doublewrite: DoublewriteKind::Off, ..pool_options(16) }).expect("open");
        bed.recover(bed.recovered.first_group()).expect("recover");
        let mut session = bed.log.session().expect("a session");
        count(&bed.pool, &mut session, P).expect("count");
        bed.pool.flush_all().expect("flush");
    }
    // Rot, not a tear: the image in the doublewrite file is an older page.
    sim.flip(Path::new(DATA), P.offset() + 100, 1).expect("flip");
    let bed = open(&fs, &pool_options(16)).expect("open");
    assert_eq!(bed.pool.restore_doublewrite(bed.recovered.end()).expect("restore"), 0);
    assert!(matches!(bed.pool.shared(P), Err(Error::Corrupted { place: Place::Page(P), .. })));
}

#[test]
fn every_flawed_page_is_refused_with_its_id_and_the_frame_goes_back() {
    let (sim, fs, _) = store(1, PAGES);
    let whole = home(&fs, P);
    let mut ahead = whole.clone();
    ahead[16..24].copy_from_slice(&(u64::MAX >> 2).to_le_bytes());
    let crc = page_checksum(&ahead);
    ahead[..4].copy_from_slice(&crc.to_le_bytes());
    let mut flipped = whole.clone();
    flipped[PAGE_SIZE - 1] ^= 0x40;
    let cases = [
        ("the page was never written", vec![0; PAGE_SIZE], true),
        ("the checksum of the page does not fit", flipped, true),
        ("the page carries the id of another", home(&fs, PageId(4)), true),
        ("the page holds a change that the log has lost", ahead, false),
    ];
    for (expected, bytes, may_be_blank) in cases {
        let fork = sim.fork();
        fork.patch(Path::new(DATA), P.offset(), &bytes).expect("patch");
        let fs: Arc<dyn Fs> = Arc::new(fork);
        let bed = open(&fs, &pool_options(16)).expect("open");
        for _ in 0..2 {
            let Err(Error::Corrupted { place: Place::Page(P), why, .. }) = bed.pool.shared(P) else {
                panic!("{expected}: not refused");
            };
            assert_eq!(why, expected);
        }
        let stats = bed.pool.stats();
        assert_eq!(stats.frames_free, 16 - stats.pages_ahead, "all others have pages that lie beside it");
        match bed.pool.exclusive_or_blank(P) {
            Ok(page) => assert!(may_be_blank && page.lsn() == Lsn::ZERO && page.pid() == P, "{expected}"),
            Err(e) => assert!(!may_be_blank, "{expected}: {e:?}"),
        }
    }
    let bed = open(&fs, &pool_options(16)).expect("open");
    assert!(matches!(bed.pool.shared(PageId(PAGES + 1)), Err(Error::Corrupted { .. })), "beyond the end of the file");
}

#[test]
fn a_foreign_newer_or_cut_doublewrite_file_is_refused() {
    let (sim, _, _) = store(1, PAGES);
    let refusal = |spoil: &dyn Fn(&Sim)| {
        let fork = sim.fork();
        spoil(&fork);
        let fs: Arc<dyn Fs> = Arc::new(fork);
        open(&fs, &pool_options(16)).err().expect("refused")
    };
    let dw = Path::new(DOUBLEWRITE);
    assert!(matches!(refusal(&|sim| sim.flip(dw, 0, 1).expect("flip")), Error::Foreign { .. }));
    assert!(matches!(refusal(&|sim| sim.flip(dw, 20, 1).expect("flip")), Error::Corrupted { .. }));
    assert!(matches!(refusal(&|sim| sim.truncate(dw, 8192).expect("truncate")), Error::Truncated { .. }));
    assert!(matches!(refusal(&|sim| sim.truncate(dw, 0).expect("truncate")), Error::Foreign { .. }));
}

/// A device that offers to write pages whole and refuses one of them.
#[derive(Debug)]
struct Picky(Arc<dyn File>);

impl FileLayer for Picky {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn writes_whole(&self, _: usize) -> bool {
        true
    }

    fn write_whole(&self, parts: &[(&[u8], u64)]) -> Result<bool> {
        let taken: Vec<_> = parts.iter().copied().filter(|&(_, offset)| offset != P.offset()).collect();
        self.0.write_many(&taken)?;
        Ok(taken.len() == parts.len())
    }
}

#[test]
fn a_batch_of_which_one_page_is_not_written_whole_goes_through_the_doublewrite_file() {
    let (sim, fs, _) = store(1, PAGES);
    {
        let bed = open_with(&fs, &pool_options(16), |_, inner| Arc::new(Picky(inner))).expect("open");
        let mut session = bed.log.session().expect("a session");
        let mut flushed = |pids: [u64; 3], page_writes: PageWrites, doublewrite_batches: u64| {
            for pid in pids {
                count(&bed.pool, &mut session, PageId(pid)).expect("count");
            }
            bed.pool.flush_all().expect("flush");
            let stats = bed.pool.stats();
            let observed = (stats.page_writes, stats.doublewrite_batches, stats.pages_dirty);
            assert_eq!(observed, (page_writes, doublewrite_batches, 0));
        };
        flushed([1, 5, 6], PageWrites::Whole, 0);
        flushed([2, P.0, 4], PageWrites::Doublewrite, 1);
    }
    for pid in 1..PAGES - 1 {
        assert_eq!(check(&home(&fs, PageId(pid)), PageId(pid)), 1);
    }
    // The device wrote 2 and 4 whole before it refused P. They have images in the doublewrite file, too.
    for pid in [2, P.0, 4].map(PageId) {
        let fork = sim.fork();
        fork.patch(Path::new(DATA), pid.offset() + 1000, &[0; SECTOR]).expect("patch");
        let fs: Arc<dyn Fs> = Arc::new(fork);
        let bed = open(&fs, &pool_options(16)).expect("open");
        assert_eq!(bed.pool.restore_doublewrite(bed.recovered.end()).expect("restore"), 1);
        assert_eq!(check(&bed.pool.shared(pid).expect("whole again"), pid), 1);
    }
}
