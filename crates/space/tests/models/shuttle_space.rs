//! Workers take pages and give them back while the file grows ahead of them, and is truncated behind them, under many
//! schedules. No page has two holders, and each has space in the file as long as it is held.

use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{PageId, Uuid};
use foreshore_buffer::{Pool, PoolOptions};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::{File, Fs, Mem};
use foreshore_space::{Growth, Purpose, Space, SpaceOptions, Spare};
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_sync::{LockRank, Mutex};
use foreshore_wal::{Log, LogOptions};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

const ITERATIONS: usize = 300;
const WORKERS: usize = 3;
/// Growth a page at a time, by the thread that needs it.
const INLINE: Growth = Growth { is_ahead: false, inline_pages: 1, magazine_pages: 1 };
/// Takes of a worker: beyond the first extents.
const TAKES: usize = 60;

struct Bed {
    file: Arc<dyn File>,
    log: Log,
    space: Space,
    held: Mutex<HashSet<PageId>>,
}

fn bed(growth: Growth) -> Bed {
    bed_with(growth, BufferKind::default())
}

fn bed_with(growth: Growth, buffer: BufferKind) -> Bed {
    let (dir, uuid) = (Path::new("/db"), Uuid([3; 16]));
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options = LogOptions {
        segment_bytes: 1 << 20,
        ring_bytes: 1 << 18,
        max_sessions: 8,
        buffer: buffer.maker(),
        background: false,
        ..LogOptions::default()
    };
    fs.create_dir(dir).unwrap();
    Log::create(&fs, &dir.join("log"), uuid, &options).unwrap();
    let (file, dw) = (fs.create(&dir.join("data")).unwrap(), fs.create(&dir.join("dw")).unwrap());
    Pool::create_files(&*dw, uuid).unwrap();
    let (log, _) = Log::open(&fs, &dir.join("log"), uuid, &options).unwrap();
    let pool_options = PoolOptions { frames: 16, background: false, ..PoolOptions::default() };
    let pool = Pool::open(file.clone(), dw, uuid, log.clone(), &pool_options).unwrap();
    let space = Space::new(pool, file.clone(), SpaceOptions { growth, background: false });
    space.create(&mut log.session().unwrap()).unwrap();
    Bed { file, log, space, held: Mutex::new(LockRank::Leaf, HashSet::new()) }
}

impl Bed {
    fn has_room(&self, pid: PageId) -> bool {
        self.file.len().unwrap() >= pid.offset() + PAGE_SIZE as u64
    }

    fn take(&self, worker: usize) -> PageId {
        let pid = self.space.take(worker, Purpose::Data).unwrap();
        assert!(self.held.lock().insert(pid), "page {pid} has two holders");
        assert!(self.has_room(pid), "page {pid} is handed out beyond the end");
        pid
    }

    fn give_back(&self, pid: PageId) {
        assert!(self.has_room(pid), "page {pid} was cut off while it was held");
        assert!(self.held.lock().remove(&pid));
        self.space.give_back(pid);
    }

    /// Takes many pages, gives all back but the first few, and does so again.
    fn work(&self, worker: usize) {
        for _ in 0..2 {
            let mut mine: Vec<_> = (0..TAKES).map(|_| self.take(worker)).collect();
            mine.drain(3..).for_each(|pid| self.give_back(pid));
            thread::yield_now();
            mine.into_iter().for_each(|pid| self.give_back(pid));
        }
    }

    fn cut(&self) {
        for _ in 0..8 {
            let cut = self.space.start_truncation(&mut self.log.session().unwrap(), Spare::Growth).unwrap();
            thread::yield_now();
            if let Some(cut) = cut {
                let promised = self.space.file_pages();
                if cut.finish().unwrap() > 0 {
                    assert!(self.file.len().unwrap() >= PageId(promised).offset());
                }
            }
        }
    }
}

fn run(growth: Growth) {
    let bed = Arc::new(bed(growth));
    let spawn = |work: fn(&Bed, usize), worker: usize| {
        let bed = bed.clone();
        thread::spawn(move || work(&bed, worker))
    };
    let mut threads: Vec<_> = (0..WORKERS).map(|worker| spawn(Bed::work, worker)).collect();
    threads.push(spawn(|bed, _| (0..6).for_each(|_| drop(bed.space.extend_step())), 0));
    threads.push(spawn(|bed, _| bed.cut(), 0));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let stats = bed.space.stats();
    // Two superblocks and a map.
    assert_eq!((stats.used_pages, stats.free_pages), (3, stats.file_pages - 3));
    assert_eq!(bed.file.len().unwrap(), PageId(stats.file_pages).offset());
    // All of it can be used, what lay in magazines too, which a truncation collects.
    drop(bed.space.start_truncation(&mut bed.log.session().unwrap(), Spare::Growth).unwrap());
    let mut all = HashSet::new();
    while (all.len() as u64) < stats.free_pages {
        let pid = bed.space.take(0, Purpose::Rollback).unwrap();
        assert!(all.insert(pid) && pid.0 < stats.file_pages, "page {pid} again");
    }
}

/// One that takes pages has all space of the log meanwhile, and a truncation needs some.
fn truncation_beside_a_holder_of_the_log() {
    let bed = Arc::new(bed_with(INLINE, BufferKind::Mutex));
    let many = |bed: &Bed| (0..4 * TAKES).map(|_| bed.take(0)).collect::<Vec<_>>();
    many(&bed).into_iter().for_each(|pid| bed.give_back(pid));
    let mut sessions = [(); 4].map(|()| bed.log.session().unwrap());
    sessions.iter_mut().for_each(|session| session.reserve(bed.log.max_reserve()).unwrap());
    let cutter = bed.clone();
    let cuts = thread::spawn(move || {
        drop(cutter.space.start_truncation(&mut cutter.log.session().unwrap(), Spare::Growth).unwrap())
    });
    many(&bed);
    drop(sessions);
    cuts.join().unwrap();
}

#[test]
fn a_truncation_waits_for_log_space_before_others_wait_for_it() {
    shuttle(ITERATIONS / 3, truncation_beside_a_holder_of_the_log);
}

/// Both wait for ever then, the truncation with looks at the log in between.
#[test]
#[should_panic(expected = "exceeded max_steps")]
fn a_truncation_that_asks_for_log_space_too_late_is_found() {
    shuttle_mutated("space: a truncation asks for log space while others wait for it", ITERATIONS, || {
        truncation_beside_a_holder_of_the_log();
    });
}

#[test]
fn pages_have_one_holder_and_space_behind_them() {
    shuttle(ITERATIONS, || run(Growth::AHEAD));
}

#[test]
fn pages_have_one_holder_when_takers_grow_the_file() {
    shuttle(ITERATIONS / 3, || run(INLINE));
}

#[test]
#[should_panic(expected = "one thread at a time changes the length")]
fn two_that_grow_the_file_at_once_are_found() {
    shuttle_mutated("space: two grow the file at once", ITERATIONS, || run(Growth::AHEAD));
}

#[test]
#[should_panic]
fn a_truncation_that_others_do_not_wait_for_is_found() {
    shuttle_mutated("space: a truncation ends while the file grows", 10 * ITERATIONS, || run(Growth::AHEAD));
}
