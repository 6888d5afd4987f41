//! A backup is a database that holds a prefix of the commits, those durable before the call among them, whatever
//! happens to the original while it is made. One that fails leaves no database, and the original as it was.
//!
//! `FORESHORE_BACKUPS=100` makes so many beside writers, and `FORESHORE_CRASH_STRIDE=1` loses power at each operation.

use crate::script::{Loss, Random, Script, disk, lose_power, options};
use crate::support::{DIR, NUMBERS, POLICIES, SetOnDrop, Snapshot, TempDir, fill, numbers, small, stride};
use foreshore::{Backup, Db, Error, Options, Place, TableDef};
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{File, FileLayer, Fs, FsLayer, Kind, Mem, Sim};
use foreshore_sync::pause;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const COPY: &str = "/copy";
const MOVES: TableDef<(u64, u64), u64> = TableDef::new("moves");
const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A file system whose large reads of `data` are done block by block. So a hook of the reading thread runs in the
/// middle of a page.
#[derive(Debug)]
pub(crate) struct SlowReads(pub(crate) Sim);

#[derive(Debug)]
struct SlowData(Arc<dyn File>);

pub(crate) const BLOCK_READ: &str = "test: a block is read";

impl FsLayer for SlowReads {
    fn below(&self) -> &dyn Fs {
        &self.0
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        if file.path().ends_with("data") { Arc::new(SlowData(file)) } else { file }
    }
}

impl FileLayer for SlowData {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> foreshore_base::Result<usize> {
        if buf.len() <= PAGE_SIZE {
            return self.0.read_at(buf, offset);
        }
        let mut read = 0;
        for (block, at) in buf.chunks_mut(BLOCK).zip((offset..).step_by(BLOCK)) {
            let len = self.0.read_at(block, at)?;
            read += len;
            if len < block.len() {
                break;
            }
            pause::point(BLOCK_READ);
        }
        Ok(read)
    }
}

fn open_at(sim: &Sim, dir: &str) -> Result<Db, Error> {
    options(sim).open(dir)
}

/// Whether a directory is missing, or has no file that counts.
fn is_empty(fs: &dyn Fs, dir: &str) -> bool {
    let dir = Path::new(dir);
    if fs.kind(dir).unwrap().is_none() {
        return true;
    }
    fs.list(dir).unwrap().into_iter().all(|name| match &*name {
        "LOCK" => true,
        "log" => fs.list(&dir.join("log")).unwrap().is_empty(),
        _ => false,
    })
}

/// Transactions, drops, checkpoints, truncations and page writes happen between two blocks of a page, and between two
/// pages. The copy is a prefix of the history, and so is a copy of it.
#[test]
fn a_copy_is_a_prefix_of_the_commits_whatever_happens_while_it_is_made() {
    let (mut torn, mut later) = (0, 0);
    for seed in 0..number("FORESHORE_CRASH_SEEDS", 12) {
        let sim = disk(seed);
        let open = || {
            let slow = || Some(Arc::new(SlowReads(sim.clone())) as Arc<dyn Fs>);
            options(&sim).lab(|lab| (lab.fs, lab.step_seed) = (slow(), seed)).open(DIR).unwrap()
        };
        let db = open();
        let script = Rc::new(RefCell::new(Script::new(&sim, seed)));
        script.borrow_mut().run(&db, 60).unwrap();
        let mut random = Random(seed);
        let (hooked, history) = (db.clone(), Rc::clone(&script));
        pause::set(BLOCK_READ, move || match random.below(24) {
            0 | 1 => history.borrow_mut().run(&hooked, 1).unwrap(),
            2 => (0..4).for_each(|_| hooked.step()),
            3 if random.below(4) == 0 => hooked.checkpoint().unwrap(),
            4 if random.below(16) == 0 => drop(hooked.vacuum().unwrap()),
            _ => {}
        });
        let (first, pages) = (sim.ops(), db.stats().pool.pages_written);
        let backup = db.backup(COPY).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        let last = sim.ops();
        pause::set("nowhere", || ());
        torn += db.stats().pool.pages_written - pages;
        assert!(backup.csn <= db.durable_csn() && backup.pages > 2 && backup.log_bytes > 0, "{backup:?}");
        let copy = open_at(&sim, COPY).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        assert_eq!(copy.stats().damage.pages, 0, "seed {seed}");
        let found = script.borrow().verify_between(&copy, first, last);
        let found = found.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        later += u64::from(script.borrow().verify_between(&copy, first, first).is_err());
        copy.backup("/second").unwrap();
        drop(copy);
        let second = open_at(&sim, "/second").unwrap();
        assert!(script.borrow().verify_between(&second, first, last).unwrap() == found, "seed {seed}");
        script.borrow_mut().run(&db, 20).unwrap();
        script.borrow().verify(&db, sim.ops()).unwrap();
        let db = db.reopen().unwrap();
        script.borrow().verify(&db, sim.ops()).unwrap();
    }
    assert!(torn > 0 && later > 0, "{torn} pages were written meanwhile, {later} copies have later commits");
}

/// Moves between accounts keep their sum, and each thread numbers its own. A copy has all moves of a thread up to a
/// number, at least up to the last that was acknowledged before the call.
#[test]
fn copies_beside_many_writers_have_every_acknowledged_commit_and_the_right_sum() {
    const ACCOUNTS: u64 = 50;
    const THREADS: u64 = 4;
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options = || small().lab(|lab| lab.fs = Some(Arc::clone(&fs)));
    let db = options().open(DIR).unwrap();
    fill(&db, ACCOUNTS);
    let sum: i64 = numbers(&db).iter().map(|row| row.1).sum();
    db.run(|tx| tx.open(MOVES).and(tx.open(BLOBS)).map(drop)).unwrap();
    let (is_over, acknowledged) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; THREADS as usize]);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, is_over, acknowledged) = (&db, &is_over, &acknowledged[thread as usize]);
            scope.spawn(move || {
                let mut random = Random(thread);
                for number in 1.. {
                    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
                    db.run(|tx| {
                        let accounts = tx.open(NUMBERS)?;
                        let balance = accounts.get_for_update(from)?.unwrap();
                        accounts.insert(from, balance - 10)?;
                        let balance = accounts.get_for_update(to)?.unwrap();
                        accounts.insert(to, balance + 10)?;
                        let large = vec![number as u8; if number % 16 == 0 { 20_000 } else { 300 }];
                        tx.open(BLOBS)?.insert(thread * 1000 + number % 40, &*large)?;
                        tx.open(MOVES)?.insert((thread, number), number)
                    })
                    .unwrap();
                    acknowledged.store(number, Ordering::Release);
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let _ends = SetOnDrop(&is_over);
        let rounds = number("FORESHORE_BACKUPS", 12);
        for round in 0..rounds {
            let dir = format!("/copy-{round}");
            let least: Vec<u64> = acknowledged.iter().map(|number| number.load(Ordering::Acquire)).collect();
            if round % 3 == 1 {
                db.checkpoint().unwrap();
            }
            let Backup { csn, .. } = db.backup(&dir).unwrap();
            let copy = options().open(&dir).unwrap();
            assert!(copy.durable_csn() >= csn);
            copy.check().unwrap();
            assert_eq!(numbers(&copy).iter().map(|row| row.1).sum::<i64>(), sum, "round {round}");
            let moves: Vec<_> = copy.read().open(MOVES).unwrap().iter().map(|row| row.unwrap().0).collect();
            for thread in 0..THREADS {
                let own: Vec<u64> = moves.iter().filter(|of| of.0 == thread).map(|of| of.1).collect();
                let count = own.len() as u64;
                assert!(own == (1..=count).collect::<Vec<_>>(), "round {round}: thread {thread} has {own:?}");
                assert!(count >= least[thread as usize], "round {round}: {count} of {least:?}");
            }
        }
    });
    db.check().unwrap();
}

#[test]
fn prepared_transactions_are_prepared_in_the_copy() {
    for with_checkpoint in [false, true] {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let options = || small().lab(|lab| lab.fs = Some(Arc::clone(&fs)));
        let db = options().open(DIR).unwrap();
        fill(&db, 100);
        let tx = db.begin();
        tx.open(NUMBERS).unwrap().insert(1, -1).unwrap();
        tx.prepare("first").unwrap();
        let open = db.begin();
        open.open(NUMBERS).unwrap().insert(2, -2).unwrap();
        if with_checkpoint {
            db.checkpoint().unwrap();
        }
        db.backup(COPY).unwrap();
        let copy = options().open(COPY).unwrap();
        assert_eq!(copy.prepared().unwrap().len(), 1);
        let get = |db: &Db, n| db.read().open(NUMBERS).unwrap().get(n).unwrap();
        assert_eq!((get(&copy, 1), get(&copy, 2)), (Some(1), Some(2)));
        copy.commit_prepared("first").unwrap();
        assert_eq!(get(&copy, 1), Some(-1));
        copy.check().unwrap();
        assert_eq!(get(&db, 1), Some(1), "the original is another database");
        open.rollback().unwrap();
        db.rollback_prepared("first").unwrap();
    }
}

/// Power is lost at any operation of a backup. Then its directory is no database, or holds all of it. The original has
/// every acknowledged commit.
#[test]
fn power_loss_leaves_a_whole_copy_or_none() {
    let stride = stride(7);
    let (mut unfinished, mut whole, mut images) = (0, 0, 0);
    for seed in 0..2 {
        let sim = disk(seed);
        let db = open_at(&sim, DIR).unwrap();
        let mut script = Script::new(&sim, seed);
        script.run(&db, 50).unwrap();
        let first = sim.ops();
        db.backup(COPY).unwrap();
        images += lose_power(&sim, (first, stride), |Loss { image, op, is_last, what }| {
            let original = open_at(image, DIR).unwrap();
            script.verify(&original, *op).unwrap_or_else(|why| panic!("seed {seed}, {what}: {why}"));
            if is_empty(image, COPY) {
                assert!(!is_last, "seed {seed}, {what}");
                return;
            }
            match open_at(image, COPY) {
                Err(Error::UnfinishedBackup { dir }) => {
                    assert_eq!(dir, Path::new(COPY));
                    assert!(!is_last, "seed {seed}, {what}");
                    unfinished += 1;
                }
                Ok(copy) => {
                    script.verify(&copy, first).unwrap_or_else(|why| panic!("seed {seed}, {what}: {why}"));
                    whole += 1;
                }
                Err(error) => panic!("seed {seed}, {what}: {error:?}"),
            }
        });
    }
    assert!(unfinished > 5 && whole > 1, "{unfinished} unfinished, {whole} whole of {images}");
}

/// Makes a backup that meets a fault at its `n`-th operation, and checks what it leaves. Returns its error; `None` if
/// there are fewer operations.
fn fails_at(base: &Sim, n: u64, kind: FaultKind, sticky: bool) -> Option<Error> {
    let sim = base.fork();
    let db = open_at(&sim, DIR).unwrap();
    sim.inject(Fault { at: sim.ops() + n, kind, sticky });
    let error = db.backup(COPY).err();
    sim.clear_faults();
    if let Some(error) = &error {
        let what = format!("operation {n}, {kind:?}: {error:?}");
        assert!(is_empty(&sim, COPY) || sticky && kind == FaultKind::Eio, "{what}");
        db.run(|tx| tx.open(NUMBERS)?.insert(1, 77).map(drop)).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        if is_empty(&sim, COPY) {
            db.backup(COPY).unwrap();
            let copy = open_at(&sim, COPY).unwrap();
            assert_eq!(copy.read().open(NUMBERS).unwrap().get(1).unwrap(), Some(77), "{what}");
            copy.check().unwrap();
        } else {
            // All was there, and only the removal of the marker failed to be synced.
            match open_at(&sim, COPY) {
                Err(Error::UnfinishedBackup { .. }) => {}
                Ok(copy) => copy.check().map(drop).unwrap(),
                Err(error) => panic!("{what}: {error:?}"),
            }
        }
        db.check().unwrap();
    }
    error
}

/// Whether this is the list of backups of the original, which is prepared under another name, or is its directory.
fn is_list(path: &Path) -> bool {
    [DIR, "/db/backups", "/db/backups.tmp"].iter().any(|name| path == Path::new(name))
}

fn filled(seed: u64) -> Sim {
    let sim = disk(seed);
    let db = open_at(&sim, DIR).unwrap();
    fill(&db, 500);
    db.run(|tx| (0..40).try_for_each(|n| tx.open(BLOBS)?.insert(n, &[n as u8; 5000][..]).map(drop))).unwrap();
    db.close(Duration::ZERO).unwrap();
    sim
}

#[test]
fn a_failing_operation_of_the_target_fails_the_backup_alone() {
    let base = filled(3);
    for sticky in [false, true] {
        let mut failed = 0;
        for n in (0..).step_by(if sticky { 5 } else { 2 }) {
            match fails_at(&base, n, FaultKind::Eio, sticky) {
                Some(Error::Io { path, .. }) => {
                    let is_target = path.starts_with(COPY) || path == Path::new("/");
                    assert!(is_target || is_list(&path), "operation {n}: {path:?}");
                }
                Some(error) => panic!("operation {n}: {error:?}"),
                None => break,
            }
            failed += 1;
        }
        assert!(failed > 3, "{failed} failures");
    }
}

#[test]
fn a_full_target_is_named_and_cleared() {
    let base = filled(4);
    let mut refused = 0;
    for n in 0.. {
        match fails_at(&base, n, FaultKind::Enospc, true) {
            Some(Error::DiskFull { path, .. }) => assert!(path.starts_with(COPY), "operation {n}: {path:?}"),
            Some(error) => panic!("operation {n}: {error:?}"),
            None => break,
        }
        refused += 1;
    }
    assert!(refused > 3, "{refused} refusals");
}

#[test]
fn a_failing_read_of_the_original_fails_the_backup_alone() {
    let base = filled(5);
    let mut failed = 0;
    for (n, sticky) in (0..30).flat_map(|n| [(n, false), (n, true)]) {
        let sim = base.fork();
        let db = open_at(&sim, DIR).unwrap();
        sim.inject_read_error(sim.reads() + n, sticky);
        match db.backup(COPY) {
            Ok(_) => {}
            Err(Error::Io { .. }) => failed += 1,
            Err(error) => panic!("read {n}: {error:?}"),
        }
        sim.clear_faults();
        if is_empty(&sim, COPY) {
            db.backup(COPY).unwrap();
        }
        assert_eq!(numbers(&open_at(&sim, COPY).unwrap()), numbers(&db));
        db.check().unwrap();
    }
    assert!(failed > 3, "{failed} failures");
}

/// Log that is retained for a backup alone is truncated for writers on a full disk.
#[test]
fn writers_on_a_full_disk_end_the_backup_and_not_the_reverse() {
    let sim = disk(6);
    let db = open_at(&sim, DIR).unwrap();
    let update = |db: &Db, n: u64| db.run(|tx| tx.open(BLOBS)?.insert(n % 50, &[n as u8; 500][..]).map(drop));
    for n in 0..300 {
        update(&db, n).unwrap();
        db.step();
    }
    let (hooked, disk) = (db.clone(), sim.clone());
    pause::set("backup: the pages are copied", move || {
        disk.inject(Fault { at: disk.ops(), kind: FaultKind::Enospc, sticky: true });
        (0..1000).for_each(|n| update(&hooked, n).unwrap_or_else(|error| panic!("update {n}: {error:?}")));
    });
    let refused = db.backup(COPY);
    assert!(matches!(&refused, Err(Error::DiskFull { path, .. }) if path.starts_with("/db/log")), "{refused:?}");
    pause::set("nowhere", || ());
    sim.clear_faults();
    assert!(is_empty(&sim, COPY));
    db.backup(COPY).unwrap();
    open_at(&sim, COPY).unwrap().check().unwrap();
    db.check().unwrap();
}

/// The log is recycled again, and the file truncated, once the backup has ended.
#[test]
fn what_is_retained_is_released() {
    let sim = disk(7);
    let db = open_at(&sim, DIR).unwrap();
    let update = |db: &Db, n: u64| {
        db.run(|tx| tx.open(BLOBS)?.insert(n % 50, &[n as u8; 500][..]).map(drop)).unwrap();
        db.step();
    };
    let segments = |sim: &Sim| sim.list(&Path::new(DIR).join("log")).unwrap().len();
    (0..1000).for_each(|n| update(&db, n));
    fill(&db, 60_000);
    assert!(db.run(|tx| tx.drop_table(NUMBERS.name())).unwrap());
    let most = segments(&sim);
    let (hooked, disk) = (db.clone(), sim.clone());
    pause::set("backup: the pages are copied", move || {
        let before = segments(&disk);
        (0..2000).for_each(|n| update(&hooked, n));
        assert!(segments(&disk) > before + 5, "the log is retained");
        assert_eq!(hooked.vacuum().unwrap(), 0, "the end of the file is retained");
    });
    db.backup(COPY).unwrap();
    pause::set("nowhere", || ());
    (0..1000).for_each(|n| update(&db, n));
    assert!(segments(&sim) <= most + 5, "{} segments, {most} before", segments(&sim));
    assert!(db.vacuum().unwrap() > 0);
    open_at(&sim, COPY).unwrap().check().unwrap();
    db.check().unwrap();
}

/// The checkpoint of a backup that waits behind the last one of the run must not be taken: it would undo the close.
#[test]
fn a_backup_beside_a_close_leaves_the_database_closed() {
    let sim = filled(31);
    let db = options(&sim).open(DIR).unwrap();
    fill(&db, 2000);
    let ((to_close, closes), (closed, is_closed), (ended, has_ended)) =
        (mpsc::channel::<()>(), mpsc::channel(), mpsc::channel());
    thread::scope(|scope| {
        let (backup, close) = (db.clone(), db.clone());
        scope.spawn(move || {
            let (ready, is_closed) = (to_close, is_closed);
            pause::set("backup: its checkpoint begins", move || {
                ready.send(()).unwrap();
                is_closed.recv().unwrap();
            });
            ended.send(backup.backup("/copy").map(drop)).unwrap();
        });
        scope.spawn(move || {
            closes.recv().expect("the backup takes a checkpoint");
            pause::set("close: the last checkpoint is taken", move || {
                closed.send(()).unwrap();
                let ended = has_ended.recv().unwrap();
                assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
            });
            close.close(Duration::ZERO).unwrap();
        });
    });
    options(&sim).open_read_only(DIR).unwrap();
}

#[test]
fn a_directory_in_use_is_refused_and_stays_as_it_is() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options = || small().lab(|lab| lab.fs = Some(Arc::clone(&fs)));
    let db = options().open(DIR).unwrap();
    fill(&db, 10);
    fs.create_dir(Path::new(COPY)).unwrap();
    fs.create(&Path::new(COPY).join("letter")).unwrap();
    assert!(matches!(db.backup(COPY), Err(Error::NotEmpty { dir }) if dir == Path::new(COPY)));
    assert_eq!(fs.list(Path::new(COPY)).unwrap(), ["letter"]);
    assert!(matches!(db.backup(DIR), Err(Error::NotEmpty { .. })));
    fs.create(Path::new("/file")).unwrap();
    assert!(matches!(db.backup("/file"), Err(Error::Foreign { .. })));
    // An empty directory will do.
    fs.remove(&Path::new(COPY).join("letter")).unwrap();
    db.backup(COPY).unwrap();
    assert!(matches!(db.backup(COPY), Err(Error::NotEmpty { .. })));
    let copy = options().open(COPY).unwrap();
    assert_eq!(numbers(&copy).len(), 10);
    db.close(Duration::ZERO).unwrap();
    assert!(matches!(db.backup("/later"), Err(Error::Closed)));
    assert_eq!(fs.kind(Path::new("/later")).unwrap(), None::<Kind>);
}

/// A copy never hides damage: a page in use whose image is not sound fails the backup, by name.
#[test]
fn a_damaged_page_fails_the_backup_and_is_named() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = small().lab(|lab| lab.fs = Some(Arc::clone(&fs))).open(DIR).unwrap();
    fill(&db, 2000);
    db.close(Duration::ZERO).unwrap();
    let mut sound = Snapshot::of(&fs);
    // No start repairs a page from its image.
    sound.file("dw")[BLOCK..].fill(0);
    let mut refused = 0;
    let pages = sound.file("data").len() / PAGE_SIZE;
    for page in (5..pages).step_by(2) {
        for is_blank in [false, true] {
            let mut files = sound.clone();
            let bytes = &mut files.file("data")[page * PAGE_SIZE..][..PAGE_SIZE];
            if is_blank {
                bytes.fill(0);
            } else {
                bytes[100] ^= 1;
            }
            let fs = files.restore();
            let open = |dir: &str| small().lab(|lab| lab.fs = Some(Arc::clone(&fs))).open(dir);
            let db = open(DIR).unwrap();
            match db.backup(COPY) {
                Err(Error::Corrupted { place: Place::Page(found), .. }) => {
                    assert_eq!(found.0, page as u64);
                    assert_eq!(db.stats().damage.pages, 1);
                    assert!(is_empty(&*fs, COPY));
                    refused += 1;
                }
                // The page is free.
                Ok(_) => assert_eq!(numbers(&open(COPY).unwrap()).len(), 2000, "page {page}"),
                Err(error) => panic!("page {page}: {error:?}"),
            }
        }
    }
    assert!(refused > 6, "{refused} refused of {pages} pages");
}

/// The crash of the original while it is copied concerns the copy alone.
#[test]
fn the_original_recovers_from_a_crash_in_the_middle_of_a_backup() {
    let sim = disk(9);
    let db = open_at(&sim, DIR).unwrap();
    let script = Rc::new(RefCell::new(Script::new(&sim, 9)));
    script.borrow_mut().run(&db, 60).unwrap();
    let (hooked, history, disk) = (db.clone(), Rc::clone(&script), sim.clone());
    let images = Rc::new(RefCell::new(Vec::new()));
    let taken = Rc::clone(&images);
    pause::set("backup: the pages are copied", move || {
        for policy in &POLICIES {
            history.borrow_mut().run(&hooked, 5).unwrap();
            hooked.checkpoint().unwrap();
            taken.borrow_mut().push((disk.ops(), disk.crash_image(policy, 1)));
        }
    });
    db.backup(COPY).unwrap();
    pause::set("nowhere", || ());
    assert_eq!(images.borrow().len(), POLICIES.len());
    for (op, image) in images.borrow().iter() {
        script.borrow().verify(&open_at(image, DIR).unwrap(), *op).unwrap();
        assert!(matches!(open_at(image, COPY), Err(Error::UnfinishedBackup { .. })));
    }
}

#[test]
fn a_copy_on_a_real_disk_opens_and_goes_on() {
    let dir = TempDir::new("backup");
    let (origin, copy) = (dir.path().join("db"), dir.path().join("copy"));
    let db = Options::new().memory_limit(16 << 20).open(&origin).unwrap();
    fill(&db, 1000);
    db.backup(&copy).unwrap();
    fill(&db, 2000);
    assert!(matches!(db.backup(&copy), Err(Error::NotEmpty { .. })));
    let copy = Db::open(&copy).unwrap();
    assert_eq!(numbers(&copy).len(), 1000);
    fill(&copy, 1500);
    copy.check().unwrap();
    let copy = copy.reopen().unwrap();
    assert_eq!((numbers(&copy).len(), numbers(&db).len()), (1500, 2000));
}
