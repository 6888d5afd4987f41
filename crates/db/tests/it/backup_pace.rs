//! A backup rests while others commit, and only then.

use crate::support::{DIR, NUMBERS, fill};
use foreshore::{Db, Options, TableDef};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_io::{File, FileLayer, Fs, FsLayer, Mem};
use foreshore_sync::{LockRank, Mutex, pause};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");
/// How long the disk takes for a run of pages.
const READ: Duration = Duration::from_millis(20);

/// Called in each read of a run of pages.
type InRead = Arc<Mutex<Option<Box<dyn FnMut() + Send>>>>;

/// A file system that takes its time for runs of pages of `data`.
#[derive(Clone)]
struct SlowReads(Arc<dyn Fs>, InRead);

struct SlowData(Arc<dyn File>, InRead);

impl std::fmt::Debug for SlowReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("slow reads")
    }
}

impl std::fmt::Debug for SlowData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("slow data")
    }
}

impl FsLayer for SlowReads {
    fn below(&self) -> &dyn Fs {
        &*self.0
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        if file.path().ends_with("data") { Arc::new(SlowData(file, Arc::clone(&self.1))) } else { file }
    }
}

impl FileLayer for SlowData {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> foreshore_base::Result<usize> {
        let began = Instant::now();
        if buf.len() > PAGE_SIZE
            && let Some(in_read) = &mut *self.1.lock()
        {
            in_read();
            while began.elapsed() < READ {
                thread::yield_now();
            }
        }
        self.0.read_at(buf, offset)
    }
}

/// Makes a backup. Returns how many rests it took, and its time.
fn back_up(db: &Db, dir: &str) -> (u32, Duration) {
    let rests = Rc::new(Cell::new(0));
    let count = Rc::clone(&rests);
    pause::set("backup: a rest begins", move || count.set(count.get() + 1));
    let began = Instant::now();
    db.backup(dir).unwrap();
    let time = began.elapsed();
    pause::set("nowhere", || ());
    (rests.get(), time)
}

#[test]
fn a_backup_rests_as_long_as_it_works_while_others_commit_and_only_then() {
    let in_read: InRead = Arc::new(Mutex::new(LockRank::Leaf, None));
    let fs: Arc<dyn Fs> = Arc::new(SlowReads(Arc::new(Mem::null()), Arc::clone(&in_read)));
    let db = Options::new().memory_limit(16 << 20).lab(|lab| lab.fs = Some(Arc::clone(&fs))).open(DIR).unwrap();
    fill(&db, 100);
    db.run(|tx| (0..3000).try_for_each(|n| tx.open(BLOBS)?.insert(n, &[n as u8; 1000][..]).map(drop))).unwrap();
    // So the backups take none, whose record would be log.
    db.checkpoint().unwrap();
    let (read, reads) = mpsc::channel();
    let count = read.clone();
    *in_read.lock() = Some(Box::new(move || count.send(()).unwrap()));
    assert_eq!(back_up(&db, "/idle").0, 0, "no other commits");
    let runs = reads.try_iter().count() as u32;
    assert!(runs > 2, "{runs} runs");
    let (committed, commits) = mpsc::channel();
    *in_read.lock() = Some(Box::new(move || {
        // The file may have grown since: no thread commits in more runs than before.
        let _ = read.send(()).map(|()| commits.recv());
    }));
    thread::scope(|scope| {
        let db = &db;
        scope.spawn(move || {
            for n in 0..runs {
                reads.recv().unwrap();
                db.run(|tx| tx.open(NUMBERS)?.put(u64::from(n), 7)).unwrap();
                committed.send(()).unwrap();
            }
        });
        let (rests, time) = back_up(db, "/busy");
        assert!(rests >= runs, "{rests} rests in {runs} runs");
        assert!(time >= READ * 2 * runs, "{time:?} for {runs} runs");
    });
    *in_read.lock() = None;
}
