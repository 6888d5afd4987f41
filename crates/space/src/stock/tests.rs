use super::*;
use crate::format::REGION_PAGES;
use crate::growth::MAX_EXTENT;
use foreshore_io::{FileLayer, Fs, Mem};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io;
use std::path::Path;

/// A file that has room up to some length.
#[derive(Debug)]
struct Limited {
    file: Arc<dyn File>,
    room: AtomicU64,
    /// Whether changes of the length happen, and are said to have failed.
    lies: AtomicBool,
}

impl FileLayer for Limited {
    fn below(&self) -> &dyn File {
        &*self.file
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)?;
        match self.lies.load(Ordering::Relaxed) {
            true => Err(Error::io("set the length of", self.path(), io::ErrorKind::Other.into())),
            false => Ok(()),
        }
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        if offset + len > PageId(self.room.load(Ordering::Relaxed)).offset() {
            return Err(Error::DiskFull { path: self.path().to_owned(), held_by: None });
        }
        self.file.allocate(offset, len)
    }
}

fn stock(growth: Growth, room: u64) -> (Stock, Arc<Limited>) {
    let file = Mem::null().create(Path::new("/data")).unwrap();
    let file = Arc::new(Limited { file, room: AtomicU64::new(room), lies: AtomicBool::new(false) });
    let stock = Stock::new(file.clone(), SpaceOptions { growth, background: false });
    stock.create().unwrap();
    (stock, file)
}

fn data(stock: &Stock, worker: usize) -> Result<u64> {
    stock.take(worker, Purpose::Data).map(|pid| pid.0)
}

fn free(stock: &Stock) -> u64 {
    stock.stats().free_pages
}

#[test]
fn workers_take_from_magazines_of_their_own() {
    let (stock, _file) = stock(Growth::AHEAD, MAX_PAGES);
    let before = free(&stock);
    assert_eq!((data(&stock, 0).unwrap(), data(&stock, 1).unwrap()), (0, 17), "page 2 is a map");
    assert_eq!((data(&stock, 0).unwrap(), data(&stock, 1).unwrap()), (1, 18));
    assert_eq!(free(&stock), before - 4, "what lies in magazines is free");
    assert_eq!(stock.recall(), 14 + 13, "the last pages are kept back");
    assert_eq!(data(&stock, 2).unwrap(), 3);
}

#[test]
fn growth_ahead_keeps_pages_ready_and_extents_grow_with_the_file() {
    let (stock, _file) = stock(Growth::AHEAD, MAX_PAGES);
    const USED: u64 = 100_000;
    for _ in 0..USED {
        data(&stock, 0).unwrap();
        while stock.extend_step() == NextWake::Now {}
        assert!(stock.with(|state| state.ready(Purpose::Data)) >= 32);
    }
    let stats = stock.stats();
    assert_eq!(stats.growths_inline, 0);
    // One of the smallest size for each sixty-fourth part of 8192 pages, then each by a sixty-fourth of the file.
    assert!(stats.growths <= 320, "{} growths", stats.growths);
    let least = USED + KEPT_BACK;
    assert!(stats.file_pages <= least + least / 64 + 2 * MIN_EXTENT, "{} pages", stats.file_pages);
}

#[test]
fn a_small_file_is_little_larger_than_what_it_holds() {
    let (stock, _file) = stock(Growth::AHEAD, MAX_PAGES);
    for used in 1..2000 {
        data(&stock, 0).unwrap();
        while stock.extend_step() == NextWake::Now {}
        let file_pages = stock.stats().file_pages;
        // Half of what is kept ready, one extent, and what a magazine has.
        let most = used + KEPT_BACK + 32 + MIN_EXTENT + MAGAZINE as u64;
        assert!(file_pages <= most, "{file_pages} pages for {used}");
    }
}

#[test]
fn an_extent_is_what_is_missing_and_a_small_part_of_the_file() {
    for (file_pages, missing, pages) in [
        (64, 1, MIN_EXTENT),
        (2000, 65, 2 * MIN_EXTENT),
        (2000, 640, 640),
        (64 * 64 * 5, 1, 5 * MIN_EXTENT),
        (MAX_PAGES, 1, MAX_EXTENT),
        (64, 10 * MAX_EXTENT, MAX_EXTENT),
    ] {
        assert_eq!(extent(file_pages, missing), pages, "{file_pages} pages, {missing} missing");
    }
}

#[test]
fn without_the_background_thread_a_taker_grows_by_the_smallest_extent() {
    let (stock, file) = stock(Growth::AHEAD, MAX_PAGES);
    let taken: Vec<_> = (0..1000).map(|_| data(&stock, 0).unwrap()).collect();
    assert!(taken.is_sorted());
    let stats = stock.stats();
    assert_eq!(stats.growths_inline, stats.growths - 1);
    assert_eq!(stats.file_pages, 64 * stats.growths);
    assert_eq!(file.len().unwrap(), PageId(stats.file_pages).offset());
}

#[test]
fn inline_growth_is_a_page_at_a_time() {
    let (stock, _file) = stock(Growth { is_ahead: false, inline_pages: 1, magazine_pages: 1 }, MAX_PAGES);
    let first = MIN_EXTENT - 1 - KEPT_BACK;
    (0..first).for_each(|_| assert!(data(&stock, 0).is_ok()));
    assert_eq!(stock.stats().growths, 1);
    for more in 1..200 {
        data(&stock, more as usize).unwrap();
        assert_eq!((stock.stats().growths, stock.stats().file_pages), (1 + more, MIN_EXTENT + more));
    }
    assert_eq!(stock.extend_step(), NextWake::OnSignal);
    // The first pages of a region come with its map page.
    let pages: Vec<_> = [0, 1, 2, 3].map(|at| one_more(REGION_PAGES + at)).into();
    assert_eq!(pages, [3, 2, 1, 1]);
}

#[test]
fn on_a_full_disk_magazines_are_emptied_and_a_rollback_has_the_reserve() {
    let (stock, file) = stock(Growth::AHEAD, MIN_EXTENT);
    let hoarded = data(&stock, 1).unwrap();
    let mut taken = vec![hoarded];
    let refused = loop {
        match data(&stock, 0) {
            Ok(pid) => taken.push(pid),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused:?}");
    assert_eq!(taken.len() as u64, MIN_EXTENT - 1 - KEPT_BACK, "what the other worker had is not lost");
    for _ in 0..KEPT_BACK {
        taken.push(stock.take(2, Purpose::Rollback).unwrap().0);
    }
    assert!(matches!(stock.take(2, Purpose::Rollback), Err(Error::DiskFull { .. })));
    taken.sort_unstable();
    assert!(taken.windows(2).all(|pair| pair[0] < pair[1]), "a page is handed out twice");
    // What is given back makes rollbacks, then data, go on.
    (3..10).for_each(|number| stock.give_back(PageId(number)));
    assert_eq!(stock.take(2, Purpose::Rollback).unwrap(), PageId(3));
    assert!(data(&stock, 0).is_err());
    file.room.store(2 * MIN_EXTENT, Ordering::Relaxed);
    assert!(data(&stock, 0).is_ok());
}

#[test]
fn the_last_room_of_a_disk_is_used_in_small_pieces() {
    // Such a file grows by two of the smallest extents at a time.
    let room = 2 * 64 * MIN_EXTENT + MIN_EXTENT;
    let (stock, file) = stock(Growth::AHEAD, room);
    while file.len().unwrap() < PageId(room).offset() {
        data(&stock, 0).unwrap();
        while stock.extend_step() == NextWake::Now {}
    }
    assert_eq!(stock.stats().growths_inline, 0);
}

/// Takes and gives back many pages: the file is much longer than it needs to be.
fn long(stock: &Stock) -> u64 {
    let taken: Vec<_> = (0..5000).map(|_| stock.take(0, Purpose::Data).unwrap()).collect();
    taken.into_iter().for_each(|pid| stock.give_back(pid));
    stock.stats().file_pages
}

#[test]
fn a_need_of_pages_cancels_a_truncation() {
    let (stock, file) = stock(Growth::AHEAD, MAX_PAGES);
    let pages = long(&stock);
    let number = stock.start_truncation(Spare::Growth, |_| Ok(())).unwrap().unwrap();
    let (growths, end) = (stock.stats().growths, stock.with(|state| state.free.end()));
    while data(&stock, 0).unwrap() < end {}
    assert_eq!(stock.stats().growths, growths, "the pages beyond the truncation were there");
    assert_eq!(stock.finish_truncation(number).unwrap(), 0);
    assert_eq!(file.len().unwrap(), PageId(pages).offset());
}

#[test]
fn a_truncation_is_finished_by_the_number_that_it_was_started_with() {
    let (stock, file) = stock(Growth::AHEAD, MAX_PAGES);
    let pages = long(&stock);
    let first = stock.start_truncation(Spare::Growth, |_| Ok(())).unwrap().unwrap();
    let second = stock.start_truncation(Spare::Growth, |_| Ok(())).unwrap().unwrap();
    assert_eq!(stock.finish_truncation(first).unwrap(), 0, "another one has begun");
    stock.cancel_truncation(first);
    let gone = stock.finish_truncation(second).unwrap();
    assert!(gone > 4000 && file.len().unwrap() == PageId(pages - gone).offset());
    assert_eq!((stock.finish_truncation(second).unwrap(), stock.stats().cuts), (0, 1));
    let failed = stock.start_truncation(Spare::Growth, |_| Err(Error::Closed));
    assert!(matches!(failed, Ok(None) | Err(Error::Closed)));
    assert!(data(&stock, 0).is_ok());
}

#[test]
fn growth_does_not_follow_a_truncation_at_once() {
    let (stock, _file) = stock(Growth::AHEAD, MAX_PAGES);
    long(&stock);
    let number = stock.start_truncation(Spare::Growth, |_| Ok(())).unwrap().unwrap();
    stock.finish_truncation(number).unwrap();
    let pages = stock.stats().file_pages;
    (0..64).for_each(|_| assert!(data(&stock, 0).is_ok()));
    assert_ne!(stock.extend_step(), NextWake::Now);
    assert_eq!(stock.stats().file_pages, pages);
    assert!(stock.start_truncation(Spare::Growth, |_| Ok(())).unwrap().is_none(), "nor a truncation a truncation");
}

/// A file system may set the new length and fail on the blocks behind it.
#[test]
fn a_truncation_that_fails_leaves_no_page_without_space_behind_it() {
    let (stock, file) = stock(Growth::AHEAD, MAX_PAGES);
    long(&stock);
    let number = stock.start_truncation(Spare::Growth, |_| Ok(())).unwrap().unwrap();
    file.lies.store(true, Ordering::Relaxed);
    assert!(matches!(stock.finish_truncation(number), Err(Error::Io { .. })));
    assert_eq!(stock.stats().cuts, 0);
    for _ in 0..2000 {
        let pid = PageId(data(&stock, 0).unwrap());
        let promised = stock.with(|state| state.free.end());
        assert!(pid.0 < promised && file.len().unwrap() >= PageId(promised).offset(), "{pid} of {promised}");
    }
}

#[test]
fn what_a_rollback_takes_of_the_reserve_is_not_left_to_others() {
    let (stock, _file) = stock(Growth::AHEAD, MIN_EXTENT);
    while data(&stock, 0).is_ok() {}
    for _ in 0..KEPT_BACK {
        stock.take(0, Purpose::Rollback).unwrap();
        assert!(matches!(data(&stock, 0), Err(Error::DiskFull { .. })), "data takes what a rollback may need");
    }
}

#[test]
fn the_background_thread_hears_of_the_end_of_a_change_that_it_met() {
    let (stock, _file) = stock(Growth::AHEAD, MAX_PAGES);
    long(&stock);
    let is_rung = || stock.signal().wait(Some(Duration::ZERO));
    let prepare = |_| {
        // All that is not kept back is used up meanwhile, and the thread hears of it.
        while stock.with(|state| state.ready(Purpose::Data)) > 0 {
            data(&stock, 0).unwrap();
        }
        assert!(is_rung());
        assert_eq!(stock.extend_step(), NextWake::OnSignal);
        assert!(!is_rung());
        Ok(())
    };
    let number = stock.start_truncation(Spare::Growth, prepare).unwrap().unwrap();
    assert!(is_rung());
    while stock.extend_step() == NextWake::Now {}
    assert!(stock.with(|state| state.ready(Purpose::Data)) > 0);
    assert_eq!(stock.finish_truncation(number).unwrap(), 0, "the truncation was given up");
}

/// Nothing but the need of a thread ends it, whatever wakes the thread that grows the file.
#[test]
fn growth_ahead_does_not_cancel_a_truncation_that_leaves_the_least() {
    let (stock, file) = stock(Growth::AHEAD, MAX_PAGES);
    long(&stock);
    let number = stock.start_truncation(Spare::Least, |_| Ok(())).unwrap().unwrap();
    assert!(!stock.has_free_end(), "it is being cut");
    (0..3).for_each(|_| assert_eq!(stock.extend_step(), NextWake::OnSignal));
    assert!(stock.finish_truncation(number).unwrap() > 4000);
    let pages = stock.stats().file_pages;
    assert!(pages <= 64 && !stock.has_free_end(), "{pages} pages");
    (0..3).for_each(|_| assert_eq!(stock.extend_step(), NextWake::OnSignal));
    assert_eq!(file.len().unwrap(), PageId(pages).offset());
    (0..40).for_each(|_| assert!(data(&stock, 0).is_ok()));
    while stock.extend_step() == NextWake::Now {}
    assert!(stock.stats().file_pages >= pages + 64, "a need makes it grow again");
}

#[test]
fn a_file_never_ends_before_the_map_of_its_last_region() {
    const R: u64 = REGION_PAGES;
    assert_eq!([past_map(R - 63, 64), past_map(R - 62, 64), past_map(R - 64, 64)], [66, 65, 64]);
    assert_eq!([past_map(R - 61, 64), past_map(0, 64)], [64, 64]);
}
