//! An open file of the simulated disk.

use super::{
    fault::{Class, FaultKind},
    media::{Bytes, Effect, Ino, Op},
    state::Machine,
};
use crate::{
    File,
    retry::{self, RawFile, uninterrupted},
    syncs::Syncs,
};
use foreshore_base::{Error, Result};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(super) struct SimFile {
    state: Arc<Machine>,
    path: PathBuf,
    ino: Ino,
    syncs: Syncs,
    /// Write-back errors of the file that this handle has reported, or that were reported before it was opened.
    seen: AtomicU64,
    past_cache: AtomicBool,
}

impl SimFile {
    /// Creates a handle on `ino`, which the state has counted already.
    pub(super) fn new(state: Arc<Machine>, path: PathBuf, ino: Ino, seen: u64) -> Self {
        let (syncs, past_cache) = (Syncs::new(), AtomicBool::new(false));
        Self { state, path, ino, syncs, seen: AtomicU64::new(seen), past_cache }
    }

    /// Syncs once, as the kernel does it.
    fn sync_once(&self) -> io::Result<()> {
        self.state.operation(Class::Sync, |state, fault| {
            // ORDERING: Relaxed, all under the lock of the state.
            let mut seen = self.seen.load(Ordering::Relaxed);
            if matches!(fault, Some(FaultKind::Eio | FaultKind::LateEio | FaultKind::LateEnospc)) {
                state.live.add_error(self.ino);
            }
            let is_error = state.live.report_error(self.ino, &mut seen) && fault.is_none();
            // ORDERING: as above.
            self.seen.store(seen, Ordering::Relaxed);
            state.refuse(fault, Op::FailedSync(self.ino))?;
            let done = if state.settings.lying { Op::Nothing } else { Op::Sync(self.ino) };
            if is_error {
                state.record.note(done);
                return Err(rustix::io::Errno::IO.into());
            }
            Ok(((), done))
        })
    }

    fn error(&self, op: &'static str, e: io::Error) -> Error {
        Error::io(op, &self.path, e)
    }

    /// Changes the length once.
    fn resize_once(&self, space: bool, effect: &Effect) -> io::Result<()> {
        self.state.operation(Class::Length { space }, |state, fault| {
            state.refuse(fault, Op::Nothing)?;
            effect.apply(state.live.content(self.ino));
            Ok(((), Op::Effect(effect.clone())))
        })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.state.lock().live.release(self.ino);
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFile").field("path", &self.path).field("ino", &self.ino).finish_non_exhaustive()
    }
}

impl RawFile for SimFile {
    fn aligned(&self) -> bool {
        false
    }

    fn read_once(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        // ORDERING: Relaxed, a test sets it before it reads, in the same thread.
        let past_cache = self.past_cache.load(Ordering::Relaxed);
        self.state.lock().read(self.ino, buf, offset, past_cache)
    }

    fn write_once(&self, buf: &[u8], offset: u64, durable: bool) -> io::Result<usize> {
        self.write_as(buf, offset, durable, false)
    }

    fn write_whole_once(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.write_as(buf, offset, false, true)
    }

    fn length(&self) -> io::Result<u64> {
        let mut state = self.state.lock();
        state.need_power()?;
        Ok(state.live.content(self.ino).len())
    }
}

impl SimFile {
    /// Writes once. If `whole`, all or nothing of the write survives.
    fn write_as(&self, buf: &[u8], offset: u64, durable: bool, whole: bool) -> io::Result<usize> {
        let ino = self.ino;
        let mut state = self.state.lock();
        if durable && state.flights.holds(&self.path) {
            return self.state.write_held(state, ino, &self.path, buf, offset);
        }
        // A file system may have to do such a write out of place, as XFS with reflink does.
        let space = whole || !state.live.content(ino).is_allocated(offset, buf.len());
        let result = state.operation(Class::Write { space }, |state, fault| {
            let n = match fault {
                Some(FaultKind::ShortWrite(n)) if !whole => n.min(buf.len()),
                _ => buf.len(),
            };
            // A durable write makes the length that it needs durable, even one that an earlier sync failed to keep.
            let grow = durable || offset + n as u64 > state.live.content(ino).len();
            let effect = Effect::Write { ino, offset, bytes: Bytes::new(&buf[..n]), grow, whole };
            state.refuse(fault, Op::FailedWrite(effect.clone()))?;
            if n == 0 {
                return Ok((0, Op::Nothing));
            }
            effect.apply(state.live.content(ino));
            let durable = durable && !state.settings.lying;
            Ok((n, if durable { Op::Durable(effect) } else { Op::Effect(effect) }))
        });
        self.state.notify_power_loss(&state);
        result
    }
}

impl File for SimFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        retry::read_full(self, buf, offset).map_err(|e| self.error("read", e))
    }

    /// Reads the parts as worker threads do: in any order, and on after a failure.
    fn read_many(&self, parts: &mut [(&mut [u8], u64)]) -> Vec<Result<usize>> {
        let mut order: Vec<_> = parts.iter_mut().enumerate().collect();
        self.state.lock().shuffle(&mut order);
        let read = order.into_iter().map(|(part, (buf, offset))| (part, self.read_at(buf, *offset)));
        let mut read: Vec<_> = read.collect();
        read.sort_by_key(|&(part, _)| part);
        read.into_iter().map(|(_, read)| read).collect()
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        retry::write_full(self, buf, offset, false).map_err(|e| self.error("write", e))
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        let is_buffered = self.state.lock().settings.buffered;
        let write = || retry::write_full(self, buf, offset, !is_buffered);
        let written = match is_buffered {
            false => write().inspect_err(|e| self.syncs.note_failure(e)),
            true => self.syncs.write_durable(write, || self.sync_once()),
        };
        written.map_err(|e| self.error("write", e))
    }

    /// Writes the parts in a random order, as concurrent threads do, and goes on after a failure.
    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> {
        let mut order: Vec<_> = parts.iter().collect();
        self.state.lock().shuffle(&mut order);
        let mut written = Ok(());
        for (buf, offset) in order {
            written = written.and(self.write_at(buf, *offset));
        }
        written
    }

    fn writes_whole(&self, len: usize) -> bool {
        len.is_power_of_two() && self.state.lock().settings.whole_writes
    }

    fn write_whole(&self, parts: &[(&[u8], u64)]) -> Result<bool> {
        let mut order: Vec<_> = parts.iter().collect();
        {
            let state = self.state.lock();
            if !state.settings.whole_writes {
                return Ok(false);
            }
            state.shuffle(&mut order);
        }
        let mut written = Ok(true);
        for (buf, offset) in order {
            let one = retry::write_whole(self, buf, *offset).map_err(|e| self.error("write", e));
            written = written.and_then(|all| Ok(one? && all));
        }
        written
    }

    fn sync(&self) -> Result<()> {
        self.syncs.sync_all(|| self.sync_once()).map_err(|e| self.error("sync", e))
    }

    fn read_past_cache(&self) -> Result<()> {
        if !self.state.lock().settings.buffered {
            return Ok(());
        }
        let synced = self.sync_once().or_else(|_| self.sync_once());
        synced.map_err(|e| self.error("read past the cache", e))?;
        let mut state = self.state.lock();
        if !state.settings.opaque {
            state.drop_cache(self.ino);
            // ORDERING: Relaxed, as in `read_once`.
            self.past_cache.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn read_cached(&self) {
        // ORDERING: Relaxed, as in `read_once`.
        self.past_cache.store(false, Ordering::Relaxed);
    }

    fn len(&self) -> Result<u64> {
        self.length().map_err(|e| self.error("stat", e))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let resize = || {
            retry::check_range(0, len)?;
            let effect = Effect::SetLen { ino: self.ino, len };
            uninterrupted(|| self.resize_once(len > self.length()?, &effect))
        };
        resize().map_err(|e| self.error("set the length of", e))
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let resize = || {
            retry::check_range(offset, len)?;
            let effect = Effect::Allocate { ino: self.ino, offset, len };
            if len == 0 { Ok(()) } else { uninterrupted(|| self.resize_once(true, &effect)) }
        };
        resize().map_err(|e| self.error("allocate space for", e))
    }
}
