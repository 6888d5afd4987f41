//! An archive whose device fails or hangs.

use crate::archive::{read_blobs, update};
use crate::restore::{ARCHIVE, TARGET, restore_on};
use crate::script::{disk, options};
use crate::support::DIR;
use foreshore::{Db, Error, Options, RestoreRefusal, Until};
use foreshore_io::{DirLock, File, FileLayer, Fs, FsLayer, Sim};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

/// What an archive does with a file.
pub(crate) const WRITES: &[&str] = &["write", "rename"];

/// A file system on which some operations of the archive fail.
#[derive(Debug, Clone)]
pub(crate) struct Failing {
    pub(crate) below: Sim,
    kind: io::ErrorKind,
    plan: Arc<(Mutex<Plan>, Condvar)>,
}

#[derive(Debug, Default)]
struct Plan {
    ops: &'static [&'static str],
    /// How the path ends; empty for all of the archive.
    of: String,
    /// How many are left to fail.
    count: u64,
    /// They do not return before that ends.
    hangs: bool,
}

#[derive(Debug)]
struct FailingFile(Arc<dyn File>, Failing);

impl Failing {
    pub(crate) fn new(seed: u64, kind: io::ErrorKind) -> Self {
        Self { below: disk(seed), kind, plan: Arc::default() }
    }

    pub(crate) fn fail(&self, ops: &'static [&'static str], count: u64) {
        self.set(Plan { ops, count, ..Plan::default() });
    }

    /// All such operations on one file fail.
    pub(crate) fn fail_of(&self, ops: &'static [&'static str], file: &Path) {
        self.set(Plan { ops, of: file.to_str().unwrap().to_owned(), count: u64::MAX, hangs: false });
    }

    /// All such operations hang until [`mend`](Self::mend).
    pub(crate) fn hang(&self, ops: &'static [&'static str]) {
        self.set(Plan { ops, count: u64::MAX, hangs: true, ..Plan::default() });
    }

    pub(crate) fn mend(&self) {
        self.set(Plan::default());
    }

    fn set(&self, plan: Plan) {
        *self.plan.0.lock().unwrap() = plan;
        self.plan.1.notify_all();
    }

    pub(crate) fn options(&self) -> Options {
        let fs = self.fs();
        options(&self.below).archive(ARCHIVE).lab(|lab| lab.fs = Some(fs))
    }

    pub(crate) fn open(&self) -> Db {
        self.options().open(DIR).unwrap()
    }

    pub(crate) fn fs(&self) -> Arc<dyn Fs> {
        Arc::new(self.clone())
    }

    fn check(&self, op: &'static str, path: &Path) -> foreshore_base::Result<()> {
        let is_meant = |plan: &Plan| {
            let is_there = path.starts_with(ARCHIVE) && path.to_str().unwrap().ends_with(&plan.of);
            is_there && plan.ops.contains(&op) && plan.count > 0
        };
        let plan = self.plan.0.lock().unwrap();
        let mut plan = self.plan.1.wait_while(plan, |plan| plan.hangs && is_meant(plan)).unwrap();
        if is_meant(&plan) {
            plan.count -= 1;
            return Err(foreshore_base::Error::io(op, path, self.kind.into()));
        }
        Ok(())
    }
}

impl FsLayer for Failing {
    fn below(&self) -> &dyn Fs {
        &self.below
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FailingFile(file, self.clone()))
    }

    fn create(&self, path: &Path) -> foreshore_base::Result<Arc<dyn File>> {
        self.check("create", path)?;
        self.below.create(path).map(|file| self.wrap(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> foreshore_base::Result<()> {
        self.check("rename", to)?;
        self.below.rename(from, to)
    }

    fn remove(&self, path: &Path) -> foreshore_base::Result<()> {
        self.check("remove", path)?;
        self.below.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> foreshore_base::Result<()> {
        self.check("sync_dir", dir)?;
        self.below.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> foreshore_base::Result<Box<dyn DirLock>> {
        self.below.lock(path)
    }
}

impl FileLayer for FailingFile {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> foreshore_base::Result<usize> {
        self.1.check("read", self.0.path())?;
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> foreshore_base::Result<()> {
        self.1.check("write", self.0.path())?;
        self.0.write_at(buf, offset)
    }
}

/// The files of the archive, ascending.
pub(crate) fn files(fs: &dyn Fs) -> Vec<PathBuf> {
    let mut names = fs.list(Path::new(ARCHIVE)).unwrap();
    names.retain(|name| name.ends_with(".arc"));
    names.sort();
    names.into_iter().map(|name| Path::new(ARCHIVE).join(name)).collect()
}

pub(crate) fn change(fs: &dyn Fs, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let file = fs.open(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    change(&mut bytes);
    file.set_len(bytes.len() as u64).unwrap();
    file.write_at(&bytes, 0).unwrap();
}

pub(crate) fn assert_gap(fs: &Arc<dyn Fs>) {
    let refused = restore_on(fs, TARGET, Until::End).run();
    assert!(matches!(refused, Err(Error::Restore(RestoreRefusal::Gap { .. }))), "{refused:?}");
}

/// Restores the newest backup, which is that in `/later`, to the end.
pub(crate) fn assert_later_restores(failing: &Failing, db: &Db) {
    db.backup("/later").unwrap();
    (0..300).for_each(|n| update(db, n + 7));
    db.archive().unwrap();
    foreshore::restore("/later", TARGET).archive(ARCHIVE).lab(failing.fs(), 64 << 10).run().unwrap();
    assert_eq!(read_blobs(&options(&failing.below).open(TARGET).unwrap()), read_blobs(db));
}
