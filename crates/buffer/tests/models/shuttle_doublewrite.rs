//! Promise: the images in the doublewrite file restore every torn page, and never a state older than its last sync.
//! That holds for a power loss at any moment, and for any interleaving of the rounds of several threads. It also holds
//! while a device stops offering whole writes.

use crate::common::{UUID, check, count, init};
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_base::{Lsn, PageId, Result};
use foreshore_buffer::format::{blank_page, page_checksum, page_lsn, verify_page};
use foreshore_buffer::{Pool, PoolOptions};
use foreshore_io::{File, Fs, Mem};
use foreshore_sync::model::{choose, shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_sync::{LockRank, Mutex};
use foreshore_wal::{Log, LogOptions, Session};
use std::path::Path;
use std::sync::Arc;

const THREADS: u64 = 3;
const ROUNDS: u64 = 3;
const PAGES: u64 = 4;
const SCHEDULES: usize = 400;

/// The home of a page.
struct Home {
    /// The state that an ended sync has made durable.
    synced: Vec<u8>,
    /// The last write.
    written: Vec<u8>,
    /// The count of writes, and of those before the last sync.
    writes: [u64; 2],
    /// Whether the last write cannot be torn.
    is_whole: bool,
}

/// The contents of both files.
struct Media {
    doublewrite: Vec<u8>,
    /// By page number.
    homes: Vec<Home>,
    /// Whether the device offers whole writes. It refuses one now and then.
    offers_whole: bool,
}

/// Both files, shared by all threads.
#[derive(Clone)]
struct Machine(Arc<Mutex<Media>>);

impl Machine {
    fn new(offers_whole: bool) -> Self {
        let home = |number| {
            let mut page = blank_page(PageId(number)).to_vec();
            let checksum = page_checksum(&page).to_le_bytes();
            page[..checksum.len()].copy_from_slice(&checksum);
            Home { synced: page.clone(), written: page, writes: [0, 0], is_whole: true }
        };
        let media = Media { doublewrite: Vec::new(), homes: (0..=PAGES).map(home).collect(), offers_whole };
        Self(Arc::new(Mutex::new(LockRank::Leaf, media)))
    }

    /// Lets other threads run, and now and then loses power.
    fn step(&self) {
        thread::yield_now();
        if choose(4) == 0 {
            self.lose_power();
        }
    }

    /// Every page whose last write is not synced and may be torn is torn, and one or none is lost. Then a restart. An
    /// image of the lost page, if there is one, must not be older than its last sync.
    fn lose_power(&self) {
        let lost = PageId(choose(PAGES + 1));
        let mem = Mem::null();
        let create = |name: &str| mem.create(Path::new(name)).expect("memory");
        let (data, doublewrite) = (create("data"), create("doublewrite"));
        let synced: Vec<_> = {
            let media = self.0.lock();
            doublewrite.write_at(&media.doublewrite, 0).expect("memory");
            for (number, home) in (0..).zip(&media.homes) {
                let mut page = home.written.clone();
                if home.writes[0] != home.writes[1] && !home.is_whole {
                    let cut = PAGE_SIZE / 2;
                    page[cut..].copy_from_slice(&home.synced[cut..]);
                }
                if number > 0 && number == lost.0 {
                    page.fill(0xee);
                }
                data.write_at(&page, PageId(number).offset()).expect("memory");
            }
            media.homes.iter().map(|home| page_lsn(&home.synced)).collect()
        };
        let options = PoolOptions { frames: 2, background: false, ..PoolOptions::default() };
        let pool = Pool::open(data.clone(), doublewrite, UUID, log(), &options).expect("a pool");
        pool.restore_doublewrite(Lsn(u64::MAX)).expect("restore");
        let mut page = vec![0; PAGE_SIZE];
        for (pid, synced) in (0..).map(PageId).zip(synced) {
            data.read_at(&mut page, pid.offset()).expect("memory");
            if pid == lost && page[0] == 0xee && page[PAGE_SIZE - 1] == 0xee {
                // The file has no image of it.
                continue;
            }
            verify_page(&page, pid, Lsn(u64::MAX)).unwrap_or_else(|flaw| panic!("page {pid}: {}", flaw.why()));
            assert!(page_lsn(&page) >= synced, "page {pid} is older than its last sync");
        }
    }
}

fn log() -> Log {
    let options = LogOptions { ring_bytes: 64 << 10, max_sessions: 8, background: false, ..LogOptions::default() };
    Log::discarding(&options).expect("a log")
}

struct Data(Machine);

struct Doublewrite(Machine);

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Data")
    }
}

impl std::fmt::Debug for Doublewrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Doublewrite")
    }
}

impl File for Data {
    fn path(&self) -> &Path {
        Path::new("data")
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.0.step();
        buf.copy_from_slice(&self.0.0.lock().homes[(offset / PAGE_SIZE as u64) as usize].written);
        Ok(buf.len())
    }

    fn read_many(&self, parts: &mut [(&mut [u8], u64)]) -> Vec<Result<usize>> {
        parts.iter_mut().map(|(buf, offset)| self.read_at(buf, *offset)).collect()
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        for (number, page) in (offset / PAGE_SIZE as u64..).zip(buf.chunks_exact(PAGE_SIZE)) {
            {
                let home = &mut self.0.0.lock().homes[number as usize];
                home.written.copy_from_slice(page);
                home.writes[0] += 1;
                home.is_whole = false;
            }
            self.0.step();
        }
        Ok(())
    }

    fn write_durable(&self, _: &[u8], _: u64) -> Result<()> {
        unreachable!("pages go home without a sync each")
    }

    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> {
        parts.iter().try_for_each(|&(buf, offset)| self.write_at(buf, offset))
    }

    fn writes_whole(&self, _: usize) -> bool {
        self.0.0.lock().offers_whole
    }

    fn write_whole(&self, parts: &[(&[u8], u64)]) -> Result<bool> {
        let mut all = true;
        for (page, offset) in parts {
            {
                let mut media = self.0.0.lock();
                let taken = choose(4) != 0;
                if taken {
                    let home = &mut media.homes[(offset / PAGE_SIZE as u64) as usize];
                    home.written.copy_from_slice(page);
                    home.writes[0] += 1;
                    home.is_whole = true;
                }
                all &= taken;
            }
            self.0.step();
        }
        Ok(all)
    }

    fn sync(&self) -> Result<()> {
        let began: Vec<_> = self.0.0.lock().homes.iter().map(|home| (home.writes[0], home.written.clone())).collect();
        self.0.step();
        for (home, (writes, written)) in self.0.0.lock().homes.iter_mut().zip(began) {
            if writes > home.writes[1] {
                (home.writes[1], home.synced) = (writes, written);
            }
        }
        self.0.step();
        Ok(())
    }

    fn read_past_cache(&self) -> Result<()> {
        Ok(())
    }

    fn read_cached(&self) {}

    fn len(&self) -> Result<u64> {
        Ok(PageId(PAGES + 1).offset())
    }

    fn set_len(&self, _: u64) -> Result<()> {
        unreachable!("a pool does not grow files")
    }

    fn allocate(&self, _: u64, _: u64) -> Result<()> {
        unreachable!("a pool does not grow files")
    }
}

impl File for Doublewrite {
    fn path(&self) -> &Path {
        Path::new("doublewrite")
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let media = self.0.0.lock();
        let found = &media.doublewrite[offset as usize..];
        let len = buf.len().min(found.len());
        buf[..len].copy_from_slice(&found[..len]);
        Ok(len)
    }

    fn read_many(&self, parts: &mut [(&mut [u8], u64)]) -> Vec<Result<usize>> {
        parts.iter_mut().map(|(buf, offset)| self.read_at(buf, *offset)).collect()
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let at = offset as usize;
        self.0.0.lock().doublewrite[at..at + buf.len()].copy_from_slice(buf);
        Ok(())
    }

    /// Writes in two parts, either of which may come first.
    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        let cut = BLOCK * choose((buf.len() / BLOCK) as u64) as usize;
        let (head, tail) = buf.split_at(cut);
        if choose(2) == 0 {
            self.write_at(head, offset)?;
            self.0.step();
            self.write_at(tail, offset + cut as u64)?;
        } else {
            self.write_at(tail, offset + cut as u64)?;
            self.0.step();
            self.write_at(head, offset)?;
        }
        self.0.step();
        Ok(())
    }

    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> {
        parts.iter().try_for_each(|&(buf, offset)| self.write_at(buf, offset))
    }

    fn writes_whole(&self, _: usize) -> bool {
        false
    }

    fn write_whole(&self, _: &[(&[u8], u64)]) -> Result<bool> {
        Ok(false)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn read_past_cache(&self) -> Result<()> {
        Ok(())
    }

    fn read_cached(&self) {}

    fn len(&self) -> Result<u64> {
        Ok(self.0.0.lock().doublewrite.len() as u64)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        unreachable!("its length stays")
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.0.0.lock().doublewrite.resize((offset + len) as usize, 0);
        Ok(())
    }
}

fn work(pool: &Pool, session: &mut Session) {
    for _ in 0..ROUNDS {
        count(pool, session, PageId(1 + choose(PAGES))).expect("nothing fails");
        match choose(3) {
            0 => pool.flush_all().expect("nothing fails"),
            1 => drop(pool.clean_step().expect("nothing fails")),
            _ => pool.flush_older_than(pool.log().next_group(), |_| Ok(())).expect("nothing fails"),
        }
    }
}

fn storm() {
    storm_on(Machine::new(false));
}

/// The device offers whole writes and refuses one at any moment.
fn storm_with_a_refusal() {
    storm_on(Machine::new(true));
}

fn storm_on(machine: Machine) {
    let log = log();
    let doublewrite = Arc::new(Doublewrite(machine.clone()));
    Pool::create_files(&*doublewrite, UUID).expect("memory");
    let options = PoolOptions { frames: PAGES as usize, background: false, ..PoolOptions::default() };
    let data = Arc::new(Data(machine.clone()));
    let pool = Pool::open(data, doublewrite, UUID, log.clone(), &options).expect("a pool");
    let mut session = log.session().expect("a session");
    for number in 1..=PAGES {
        init(&pool, &mut session, PageId(number)).expect("nothing fails");
    }
    let spawn = |_| {
        let (pool, mut session) = (pool.clone(), log.session().expect("a session"));
        thread::spawn(move || work(&pool, &mut session))
    };
    let threads: Vec<_> = (0..THREADS).map(spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread ends"));
    pool.flush_all().expect("nothing fails");
    let media = machine.0.lock();
    let counts = (1..=PAGES).map(|number| check(&media.homes[number as usize].synced, PageId(number)));
    assert_eq!(counts.sum::<u64>(), THREADS * ROUNDS, "what was flushed is not durable");
}

#[test]
fn images_mend_whatever_a_power_loss_tears() {
    shuttle(SCHEDULES, storm);
}

#[test]
fn images_mend_what_is_torn_after_a_device_has_refused_a_whole_write() {
    shuttle(SCHEDULES, storm_with_a_refusal);
}

#[test]
#[should_panic]
fn an_image_that_is_older_than_a_later_whole_write_is_noticed() {
    shuttle_mutated("cleaner: a round begins with whole writes after an image", SCHEDULES, storm_with_a_refusal);
}

#[test]
#[should_panic]
fn an_image_that_is_overwritten_too_early_is_noticed() {
    shuttle_mutated("cleaner: both rounds use one area", SCHEDULES, storm);
}

#[test]
#[should_panic]
fn a_round_that_ends_before_its_sync_is_noticed() {
    shuttle_mutated("cleaner: a round ends before its sync", SCHEDULES, storm);
}

#[test]
#[should_panic]
fn images_of_one_page_in_two_rounds_are_noticed() {
    shuttle_mutated("cleaner: a page may be in two rounds", SCHEDULES, storm);
}

#[test]
#[should_panic]
fn a_round_without_pages_that_passes_its_turn_on_is_noticed() {
    shuttle_mutated("cleaner: a round without pages passes its turn on", SCHEDULES, storm);
}

#[test]
#[should_panic]
fn a_round_that_passes_its_turn_on_before_its_images_is_noticed() {
    shuttle_mutated("cleaner: a round passes its turn on before its images", SCHEDULES, storm);
}
