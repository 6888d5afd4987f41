//! What several tests need.

use foreshore::{Db, Error, Options, TableDef};
use foreshore_io::sim::Persist;
use foreshore_io::{Fs, Mem};
use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Wake},
    thread,
};

pub(crate) const NUMBERS: TableDef<u64, i64> = TableDef::new("numbers");
pub(crate) const TEXTS: TableDef<&str, &str> = TableDef::new("texts");

/// Where databases on file systems in memory live.
pub(crate) const DIR: &str = "/db";

/// The distance of the operations that a test visits: `usual`, unless `FORESHORE_CRASH_STRIDE` says otherwise.
pub(crate) fn stride(usual: u64) -> u64 {
    std::env::var("FORESHORE_CRASH_STRIDE").map_or(usual, |text| text.parse().unwrap())
}

/// What a loss of power leaves of the unsynced effects, for loops over images of histories.
pub(crate) const POLICIES: [Persist; 9] = [
    Persist::None,
    Persist::All,
    Persist::Prefix,
    Persist::Suffix,
    Persist::DropOne,
    Persist::RandomHalf,
    Persist::MetadataFirst,
    Persist::DataFirst,
    Persist::Torn,
];

/// Small memory and small segments, so that tests evict, checkpoint and roll.
pub(crate) fn small() -> Options {
    Options::new().memory_limit(8 << 20).lab(|lab| lab.segment_bytes = 64 << 10).log_budget(512 << 10)
}

/// A database in memory, and the file system that it can be opened from again.
pub(crate) fn in_memory() -> (Db, Arc<dyn Fs>) {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    (small().lab(|lab| lab.fs = Some(Arc::clone(&fs))).open(DIR).unwrap(), fs)
}

/// Opens what [`in_memory`] made, after the database was closed.
pub(crate) fn open(fs: &Arc<dyn Fs>) -> Result<Db, Error> {
    small().lab(|lab| lab.fs = Some(Arc::clone(fs))).open(DIR)
}

/// Fills a table with rows 0..count, each its own number, in transactions of 100.
pub(crate) fn fill(db: &Db, count: u64) {
    for from in (0..count).step_by(100) {
        db.run(|tx| {
            let table = tx.open(NUMBERS)?;
            (from..count.min(from + 100)).try_for_each(|n| table.insert(n, n as i64).map(drop))
        })
        .unwrap();
    }
}

/// All rows of a table of numbers, however many.
pub(crate) fn numbers(db: &Db) -> Vec<(u64, i64)> {
    db.run(|tx| {
        let table = tx.open(NUMBERS)?;
        table.lock_against_writes()?;
        table.iter().collect::<Result<Vec<_>, Error>>()
    })
    .unwrap()
}

/// Polls a future on this thread until it is ready.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Sets a flag when it is dropped. So threads that run until the flag is set end also after a failed assertion.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        // ORDERING: hint, the threads end a little later.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A directory on the real disk, removed on drop.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The files of a database, by path below its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot(pub(crate) Vec<(String, Vec<u8>)>);

impl Snapshot {
    /// Copies the files of the database in [`DIR`].
    pub(crate) fn of(fs: &Arc<dyn Fs>) -> Self {
        let log = fs.list(&Path::new(DIR).join("log")).unwrap();
        let others = ["data", "dw", "stamps"].map(str::to_owned);
        let names = log.into_iter().map(|name| format!("log/{name}")).chain(others);
        let is_there = |name: &String| fs.kind(&Path::new(DIR).join(name)).unwrap().is_some();
        Self(names.filter(is_there).map(|name| (name.clone(), read(fs, &name))).collect())
    }

    /// A new file system in memory that holds these files.
    pub(crate) fn restore(&self) -> Arc<dyn Fs> {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        fs.create_dir(Path::new(DIR)).unwrap();
        fs.create_dir(&Path::new(DIR).join("log")).unwrap();
        for (name, bytes) in &self.0 {
            write(&fs, name, bytes);
        }
        fs
    }

    pub(crate) fn file(&mut self, name: &str) -> &mut Vec<u8> {
        &mut self.0.iter_mut().find(|(known, _)| known == name).unwrap().1
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }
}

/// The bytes of a file of the database in [`DIR`].
pub(crate) fn read(fs: &Arc<dyn Fs>, name: &str) -> Vec<u8> {
    let file = fs.open(&Path::new(DIR).join(name)).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// Replaces a file of the database in [`DIR`].
pub(crate) fn write(fs: &Arc<dyn Fs>, name: &str, bytes: &[u8]) {
    let path = Path::new(DIR).join(name);
    if fs.kind(&path).unwrap().is_some() {
        fs.remove(&path).unwrap();
    }
    fs.create(&path).unwrap().write_at(bytes, 0).unwrap();
}

/// A small database that was closed cleanly, with 300 numbers in it.
pub(crate) fn closed_database() -> Snapshot {
    let (db, fs) = in_memory();
    fill(&db, 300);
    db.close(std::time::Duration::ZERO).unwrap();
    Snapshot::of(&fs)
}
