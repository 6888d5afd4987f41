use super::*;
use crate::Growth;
use crate::format::CATALOGUE_ROOT;
use crate::growth::MIN_EXTENT;
use crate::{MapReport, Spare};
use foreshore_base::Uuid;
use foreshore_buffer::PoolOptions;
use foreshore_io::{FileLayer, Fs, Mem};
use foreshore_wal::{Log, LogOptions};
use std::collections::HashSet;
use std::path::Path;

struct Bed {
    fs: Mem,
    log: Log,
    pool: Pool,
    file: Arc<dyn File>,
}

fn dir() -> &'static Path {
    Path::new("/db")
}

fn bed(fs: Mem) -> Bed {
    let uuid = Uuid([7; 16]);
    let shared: Arc<dyn Fs> = Arc::new(fs.clone());
    let options = LogOptions {
        segment_bytes: 1 << 20,
        ring_bytes: 1 << 18,
        max_sessions: 4,
        background: false,
        ..LogOptions::default()
    };
    let log_dir = dir().join("log");
    let (data, dw) = (dir().join("data"), dir().join("dw"));
    if fs.kind(&data).unwrap().is_none() {
        fs.create_dir(dir()).unwrap();
        Log::create(&shared, &log_dir, uuid, &options).unwrap();
        fs.create(&data).unwrap();
        Pool::create_files(&*fs.create(&dw).unwrap(), uuid).unwrap();
    }
    let (log, _) = Log::open(&shared, &log_dir, uuid, &options).unwrap();
    let file = fs.open(&data).unwrap();
    let pool_options = PoolOptions { frames: 32, background: false, ..PoolOptions::default() };
    let pool = Pool::open(file.clone(), fs.open(&dw).unwrap(), uuid, log.clone(), &pool_options).unwrap();
    Bed { fs, log, pool, file }
}

impl Bed {
    fn space(&self) -> Space {
        Space::new(self.pool.clone(), self.file.clone(), SpaceOptions { growth: Growth::AHEAD, background: false })
    }

    /// Writes everything home, and comes back from the files.
    fn reopen(self) -> Self {
        self.pool.flush_all().unwrap();
        let fs = self.fs.clone();
        drop(self);
        bed(fs)
    }
}

/// Links a page as a tree does, with a record of this crate's kind in place of a tree's.
fn link(bed: &Bed, space: &Space, pid: PageId) {
    let mut session = bed.log.session().unwrap();
    let map = space.map_page(pid, &mut session, Purpose::Data).unwrap();
    session.reserve(change_cost(1, 0)).unwrap();
    let mut map = map.exclusive();
    map::mark_allocated(&mut map, pid).unwrap();
    let record = Change { kind: 1, flags: 0, init_mask: 0, table: TableId::ZERO, body: &[] };
    change(&mut session, Dep::none(), 0, &record, &mut [&mut map]);
}

#[test]
fn pages_are_handed_out_lowest_first_and_only_linked_ones_last() {
    let bed = bed(Mem::null());
    let space = bed.space();
    space.create(&mut bed.log.session().unwrap()).unwrap();
    let first = space.take(0, Purpose::Data).unwrap();
    assert_eq!(first, CATALOGUE_ROOT);
    let others: Vec<_> = (0..3).map(|_| space.take(0, Purpose::Data).unwrap().0).collect();
    assert_eq!(others, [4, 5, 6]);
    space.give_back(PageId(5));
    assert_eq!(space.take(0, Purpose::Data).unwrap(), PageId(7), "from the magazine");
    link(&bed, &space, first);
    link(&bed, &space, PageId(6));
    let before = space.stats();
    drop(space);

    let bed = bed.reopen();
    let space = bed.space();
    space.load().unwrap();
    assert_eq!(space.stats().used_pages, before.used_pages - 2, "4 and 7 were handed out and never linked");
    assert_eq!(space.take(0, Purpose::Data).unwrap(), PageId(4));
    assert_eq!(space.take(0, Purpose::Data).unwrap(), PageId(5));
    assert_eq!(space.take(0, Purpose::Data).unwrap(), PageId(7));
    let reachable = HashSet::from([first, PageId(6)]);
    assert_eq!(space.verify(&reachable).unwrap(), MapReport { regions: 1, allocated: 5 });
    let lost = space.verify(&HashSet::from([first]));
    assert!(matches!(lost, Err(Error::Corrupted { place: Place::Page(PageId(6)), .. })), "{lost:?}");
    let foreign = space.verify(&HashSet::from([first, PageId(6), PageId(9)]));
    assert!(matches!(foreign, Err(Error::Corrupted { place: Place::Page(PageId(9)), .. })), "{foreign:?}");
}

#[test]
fn the_file_grows_by_extents_into_a_second_region() {
    let bed = bed(Mem::null());
    let space = bed.space();
    space.create(&mut bed.log.session().unwrap()).unwrap();
    assert_eq!(space.file_pages(), MIN_EXTENT);
    let mut last = PageId::ZERO;
    while last.0 < REGION_PAGES + 10 {
        let next = space.take(0, Purpose::Data).unwrap();
        assert!(next > last, "{next} after {last}");
        assert!(next.0 < REGION_PAGES || next.0 % REGION_PAGES != MAP_IN_REGION, "{next} is a map page");
        last = next;
        while space.extend_step() == NextWake::Now {}
    }
    let stats = space.stats();
    assert!(stats.growths <= 320, "{stats:?}");
    assert_eq!(bed.file.len().unwrap(), PageId(stats.file_pages).offset());
    link(&bed, &space, last);
    link(&bed, &space, PageId(3));
    drop(space);

    let bed = bed.reopen();
    let space = bed.space();
    space.load().unwrap();
    assert_eq!(space.file_pages(), stats.file_pages);
    assert_eq!(space.verify(&HashSet::from([last, PageId(3)])).unwrap().regions, 2);
    assert_eq!(space.stats().used_pages, 4 + 2);
}

#[test]
fn a_truncated_file_ends_behind_the_last_page_in_use_and_grows_again() {
    let bed = bed(Mem::null());
    let space = bed.space();
    let mut session = bed.log.session().unwrap();
    space.create(&mut session).unwrap();
    let mut taken = Vec::new();
    while taken.last().is_none_or(|last: &PageId| last.0 < 2 * REGION_PAGES + 10) {
        taken.push(space.take(0, Purpose::Data).unwrap());
    }
    let last = *taken.last().unwrap();
    link(&bed, &space, CATALOGUE_ROOT);
    link(&bed, &space, last);
    taken.retain(|&pid| pid != CATALOGUE_ROOT && pid != last);
    assert!(space.start_truncation(&mut session, Spare::Growth).unwrap().is_none(), "a page at the end is in use");
    // It is freed, and with it goes the reason for two map pages.
    {
        let map = space.map_page(last, &mut session, Purpose::Data).unwrap();
        session.reserve(change_cost(1, 0)).unwrap();
        let mut map = map.exclusive();
        map::mark_free(&mut map, last).unwrap();
        let record = Change { kind: 1, flags: 0, init_mask: 0, table: TableId::ZERO, body: &[] };
        change(&mut session, Dep::none(), 0, &record, &mut [&mut map]);
    }
    taken.into_iter().chain([last]).for_each(|pid| space.give_back(pid));
    let before = space.stats();

    // Given up, the pages are there as before.
    let cut = space.start_truncation(&mut session, Spare::Growth).unwrap().unwrap();
    let promised = space.file_pages();
    assert!(promised < 300 && space.mapped() == 1, "{promised} pages, {} maps", space.mapped());
    assert_eq!(space.stats(), before);
    drop(cut);
    assert_eq!(space.file_pages(), before.file_pages);
    let pid = PageId(2 * REGION_PAGES + 7);
    drop(space.map_page(pid, &mut session, Purpose::Data).unwrap());
    assert_eq!(space.mapped(), 3);

    let cut = space.start_truncation(&mut session, Spare::Growth).unwrap().unwrap();
    bed.pool.flush_all().unwrap();
    assert_eq!(cut.finish().unwrap(), before.file_pages - promised);
    assert_eq!(bed.file.len().unwrap(), PageId(promised).offset());
    assert_eq!(space.stats().used_pages, 4);
    drop((session, space));

    let bed = bed.reopen();
    let space = bed.space();
    space.load().unwrap();
    assert_eq!((space.file_pages(), space.mapped()), (promised, 1));
    assert_eq!(space.verify(&HashSet::from([CATALOGUE_ROOT])).unwrap(), MapReport { regions: 1, allocated: 4 });
    while space.take(0, Purpose::Data).unwrap().0 < REGION_PAGES {}
    link(&bed, &space, PageId(REGION_PAGES + 7));
    assert_eq!(space.mapped(), 2);
}

/// An offset, and what is done during the next read there.
type Meanwhile = Option<(u64, Box<dyn FnOnce() + Send>)>;

/// A file during whose next read of some page something else is done.
struct Interrupted {
    file: Arc<dyn File>,
    meanwhile: std::sync::Mutex<Meanwhile>,
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl FileLayer for Interrupted {
    fn below(&self) -> &dyn File {
        &*self.file
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let due = self.meanwhile.lock().unwrap().take_if(|(at, _)| *at == offset);
        if let Some((_, meanwhile)) = due {
            meanwhile();
        }
        self.file.read_at(buf, offset)
    }
}

/// The regions that a check has counted may be fewer when it comes to the last.
#[test]
fn the_maps_are_verified_while_the_last_of_them_is_truncated() {
    let bed = bed(Mem::null());
    let used = PageId(2 * REGION_PAGES + 7);
    {
        let space = bed.space();
        space.create(&mut bed.log.session().unwrap()).unwrap();
        link(&bed, &space, CATALOGUE_ROOT);
    }
    bed.file.set_len(PageId(4 * REGION_PAGES).offset()).unwrap();
    let mut bed = bed.reopen();
    {
        let space = bed.space();
        space.load().unwrap();
        link(&bed, &space, used);
        drop(space.map_page(PageId(3 * REGION_PAGES), &mut bed.log.session().unwrap(), Purpose::Data).unwrap());
        assert_eq!(space.mapped(), 4);
    }
    bed = bed.reopen();
    let file = Arc::new(Interrupted { file: bed.file.clone(), meanwhile: std::sync::Mutex::new(None) });
    bed.file = file.clone();
    let dw = bed.fs.open(&dir().join("dw")).unwrap();
    let pool_options = PoolOptions { frames: 32, background: false, ..PoolOptions::default() };
    bed.pool = Pool::open(bed.file.clone(), dw, Uuid([7; 16]), bed.log.clone(), &pool_options).unwrap();
    let space = Arc::new(bed.space());
    space.load().unwrap();
    let evict = |pool: &Pool| (100..200).for_each(|number| drop(pool.create(PageId(number)).unwrap()));
    evict(&bed.pool);
    let (cutter, pool, log) = (space.clone(), bed.pool.clone(), bed.log.clone());
    let cut = move || {
        let cut = cutter.start_truncation(&mut log.session().unwrap(), Spare::Growth).unwrap().unwrap();
        pool.flush_all().unwrap();
        assert!(cut.finish().unwrap() > 0);
        evict(&pool);
    };
    *file.meanwhile.lock().unwrap() = Some((map::map_of_region(1).offset(), Box::new(cut)));
    let report = space.verify(&HashSet::from([CATALOGUE_ROOT, used])).unwrap();
    assert!(file.meanwhile.lock().unwrap().is_none(), "nothing was cut off");
    assert_eq!((report.regions, report.allocated), (3, 2 + 3 + 2));
}
