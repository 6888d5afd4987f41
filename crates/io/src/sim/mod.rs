//! A simulated disk with a live and a durable image, and with faults at chosen operations.
//!
//! Every file, length and name exists twice: *live*, as the running program sees it, and *durable*, as it would be
//! found after a power loss. A write, or a change of a length or name, changes the live image at once. A sync copies
//! the change to the durable image. At a power loss, a [`Persist`] policy decides which unsynced changes survive.
//!
//! | becomes durable | by |
//! |---|---|
//! | bytes and length of a file | [`File::sync`] of that file |
//! | the bytes of one write and the length | [`File::write_durable`] |
//! | a new, renamed or removed name | [`Fs::sync_dir`] of its directory |
//!
//! So a file whose name was not synced is lost, whatever was written to it. A file that was renamed before its bytes
//! were synced may have the new name and none of the bytes.
//!
//! **The page cache.** A failed sync marks the file's bytes clean: reads show them, no later sync writes them, and a
//! power loss restores the old bytes. As on Linux, every open handle of the file reports a write-back error once.
//!
//! With [`Sim::set_buffered`], a durable write is a write to the cache and then a sync, as with
//! [`Disk::buffered`](crate::Disk::buffered). [`File::read_past_cache`] then shows which of those bytes the medium has.
//! Without `set_buffered`, `read_past_cache` does nothing.
//!
//! **Faults and crash images.** Operations that change or sync something are numbered. Reads have numbers of their own.
//! A [`Fault`] strikes the operation with a given number, below the retry loops that the real disk uses too. The
//! operations are recorded, so one run of a script yields the images of all its crash points ([`Sim::crash_points`]).
//!
//! If only one thread uses the disk, the seeds determine every result. With several threads, a test can keep durable
//! writes in flight and end them in any order: [`Sim::hold`].

mod fault;
mod file;
mod flight;
mod flights;
mod live;
mod media;
mod persist;
mod plan;
mod points;
mod record;
mod rng;
mod state;
mod tools;

#[cfg(test)]
mod tests;

pub use fault::{Fault, FaultKind, OpNo};
pub use flights::Flight;
pub use persist::Persist;
pub use points::CrashPoints;

use crate::{
    Backend, DirLock, File, Fs, Kind,
    names::{NameLock, Names, normal, parent},
};
use fault::Class;
use file::SimFile;
use foreshore_base::{Error, Result};
use media::{Effect, Op};
use state::{Machine, State};
use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A simulated file system. Clones share its state; [`Sim::fork`] copies the state.
#[derive(Clone)]
pub struct Sim {
    state: Arc<Machine>,
}

impl Sim {
    /// Creates an empty disk. `seed` determines its crash images.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::from_state(State::new(seed, Names::new(), BTreeMap::new()))
    }

    fn from_state(state: State) -> Self {
        Self { state: Arc::new(Machine::new(state)) }
    }

    /// Returns the number of the next operation. It is the count of operations so far that changed or synced something,
    /// or tried to.
    #[must_use]
    pub fn ops(&self) -> OpNo {
        self.state.lock().record.ops()
    }

    /// Returns the count of reads.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.state.lock().plan.reads()
    }

    /// Returns the operations that may have needed space: those that [`FaultKind::Enospc`] strikes.
    #[must_use]
    pub fn space_ops(&self) -> Vec<OpNo> {
        self.state.lock().plan.space_ops().to_vec()
    }

    /// Adds a fault to the plan.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().plan.add(fault);
    }

    /// Makes read number `at` fail with `EIO`, and all later ones if `sticky`.
    pub fn inject_read_error(&self, at: u64, sticky: bool) {
        self.state.lock().plan.add_read_error(at, sticky);
    }

    /// Empties the plan of faults: space is free again, the device works.
    pub fn clear_faults(&self) {
        self.state.lock().plan.clear();
    }

    /// Returns how many operations and reads met a fault.
    #[must_use]
    pub fn faults_met(&self) -> u64 {
        self.state.lock().plan.met()
    }

    /// Makes syncs lie: they succeed and make nothing durable. No database keeps its promises on such a disk.
    pub fn set_lying(&self, lying: bool) {
        self.state.lock().settings.lying = lying;
    }

    /// Sets whether the device offers atomic writes ([`File::write_whole`]), of any length that is a power of two. Such
    /// a write may need new space even where space is allocated. Off for a new disk and for crash images.
    pub fn set_whole_writes(&self, possible: bool) {
        self.state.lock().settings.whole_writes = possible;
    }

    /// Sets whether durable writes go to a page cache that a sync writes back. Off for a new disk and for crash images.
    ///
    /// Without a page cache there is direct I/O, whose reads show the medium. So the bytes of failed write-backs that
    /// only the cache has are gone when it is switched off.
    pub fn set_buffered(&self, buffered: bool) {
        let mut state = self.state.lock();
        if state.settings.buffered && !buffered {
            state.empty_cache();
        }
        state.settings.buffered = buffered;
    }

    /// Sets whether the page cache hides the medium from every reader: there is no direct I/O, and the cache drops no
    /// page. Then [`File::read_past_cache`] only writes the cache back, and later reads still show the cache. Off for
    /// a new disk and for crash images.
    pub fn set_cache_opaque(&self, opaque: bool) {
        self.state.lock().settings.opaque = opaque;
    }

    /// Returns the operations that synced a file or a directory.
    #[must_use]
    pub fn sync_ops(&self) -> Vec<OpNo> {
        self.state.lock().plan.sync_ops().to_vec()
    }

    /// Simulates a write-back that the kernel starts by itself and that fails. The next sync of each open handle
    /// reports the error. A handle that is opened later reports it only if no other handle has.
    ///
    /// # Errors
    /// `Io` if there is no such file.
    pub fn fail_write_back(&self, path: &Path) -> Result<()> {
        let mut state = self.state.lock();
        let ino = state.live.names().file(&normal(path)).map_err(|e| Error::io("write back", path, e))?;
        state.live.add_error(ino);
        state.record.note(Op::FailedSync(ino));
        Ok(())
    }

    /// Stops recording operations and drops the record, for long runs. [`Sim::crash_image`] still works, and
    /// [`Sim::crash_points`] has only the present point.
    pub fn stop_recording(&self) {
        self.state.lock().record.stop();
    }

    /// Loses power now: every later call fails.
    pub fn power_off(&self) {
        let mut state = self.state.lock();
        state.power_off();
        self.state.notify_power_loss(&state);
    }

    /// Whether power is lost, by [`Sim::power_off`] or a [`FaultKind::Crash`].
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.state.lock().need_power().is_err()
    }

    /// Runs one operation on names. `apply` changes the live image and returns the effect, if there is one.
    fn change_names<T>(
        &self,
        op: &'static str,
        path: &Path,
        class: Class,
        apply: impl FnOnce(&mut State) -> io::Result<(T, Option<Effect>)>,
    ) -> Result<T> {
        self.state
            .operation(class, |state, fault| {
                state.refuse(fault, Op::Nothing)?;
                let (value, effect) = apply(state)?;
                Ok((value, effect.map_or(Op::Nothing, Op::Effect)))
            })
            .map_err(|e| Error::io(op, path, e))
    }

    fn handle(&self, path: &Path, ino: media::Ino, seen: u64) -> Arc<dyn File> {
        Arc::new(SimFile::new(Arc::clone(&self.state), path.to_owned(), ino, seen))
    }
}

impl Sim {
    /// Wraps a lock that was taken for the name `path`.
    fn name_lock(&self, path: PathBuf) -> Box<dyn DirLock> {
        let state = Arc::clone(&self.state);
        Box::new(NameLock::new(path, move |path| state.lock().live.names_mut().unlock(path)))
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").finish_non_exhaustive()
    }
}

impl Fs for Sim {
    fn create_dir(&self, dir: &Path) -> Result<()> {
        let path = normal(dir);
        if self.kind(dir)? == Some(Kind::Dir) {
            return Ok(());
        }
        self.change_names("create", dir, Class::Create, |state| {
            let new = state.live.names_mut().create_dir(&path)?;
            Ok(((), new.then_some(Effect::CreateDir { path })))
        })
    }

    fn kind(&self, path: &Path) -> Result<Option<Kind>> {
        let state = self.state.lock();
        state.need_power().map_err(|e| Error::io("stat", path, e))?;
        Ok(state.live.names().kind(&normal(path)))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        let ino = state.open(&normal(path)).map_err(|e| Error::io("open", path, e))?;
        let seen = state.live.sample_errors(ino);
        drop(state);
        Ok(self.handle(path, ino, seen))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let ino = self.change_names("create", path, Class::Create, |state| {
            let ino = state.live.create(&normal(path))?;
            state.live.hold(ino);
            Ok((ino, Some(Effect::Create { path: normal(path), ino })))
        })?;
        Ok(self.handle(path, ino, 0))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let state = self.state.lock();
        let names = state.need_power().and_then(|()| state.live.names().list(&normal(dir)));
        names.map_err(|e| Error::io("list", dir, e))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.change_names("rename", from, Class::Name, |state| {
            let (from, to) = (normal(from), normal(to));
            let ino = state.live.rename(&from, &to)?;
            Ok(((), Some(Effect::Rename { from, to, ino })))
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.change_names("remove", path, Class::Name, |state| {
            let path = normal(path);
            let ino = state.live.remove(&path)?;
            Ok(((), Some(Effect::Remove { path, ino })))
        })
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let path = normal(dir);
        self.state
            .operation(Class::Sync, |state, fault| {
                state.refuse(fault, Op::FailedSyncDir(path.clone()))?;
                state.live.names().need_dir(&path)?;
                Ok(((), if state.settings.lying { Op::Nothing } else { Op::SyncDir(path) }))
            })
            .map_err(|e| Error::io("sync", dir, e))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        if self.kind(path)?.is_none() {
            drop(self.create(path)?);
        }
        let path = normal(path);
        if !self.state.lock().live.names_mut().lock(&path) {
            return Err(Error::Locked { path: parent(&path) });
        }
        Ok(self.name_lock(path))
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        if self.kind(path)? != Some(Kind::File) {
            return Err(Error::io("lock", path, io::ErrorKind::NotFound.into()));
        }
        let path = normal(path);
        if !self.state.lock().live.names_mut().lock_shared(&path) {
            return Err(Error::Locked { path: parent(&path) });
        }
        Ok(self.name_lock(path))
    }

    fn backend(&self) -> Backend {
        Backend { name: "sim".into(), durable: true, needs_alignment: false }
    }
}
