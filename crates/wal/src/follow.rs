//! Following the tail of the log: records as they become durable, in this process or another.
//!
//! A follower reads groups in the order of the chain, like recovery, from a remembered position. At the end it returns
//! `None` and may be called again. It never returns a record that a crash could drop, unless it is `unconfirmed`: every
//! later start finds the records that it has returned.
//!
//! | made by | a group counts when | a wait ends when |
//! |---|---|---|
//! | [`Log::follow`](crate::Log::follow), in the process that writes | its cut is not above what is durable | the log raises `durable` |
//! | [`Follower::open`], anywhere | a later group in the chain confirms it (`acked_upto`) | a check finds such a group |
//! | the same, [`unconfirmed`](Follower::unconfirmed) | it is whole | a check finds one |
//!
//! **In another process** the follower shares only files. It locks nothing and opens no file for writing. A group is on
//! disk before a later one confirms it. So the last groups, as many as are in flight at a time, count only when the
//! next one is written. On a busy log that lag is a write or two. On an idle log it lasts: the last group of a closed
//! log counts when another one is appended. An application that needs records earlier appends an empty record now and
//! then. Or it reads unconfirmed records, of which a crash may drop the last ones.
//!
//! **Restarts.** A writer may crash and restart while it is followed. The follower rereads unconfirmed groups at each
//! check. So it finds the groups that the restart writes in their place, skips the repeated ones, and forgets the
//! dropped records.
//!
//! **Truncation.** A follower does not keep the log from being truncated: it then gets `LogTruncated`.

mod cursor;
mod watch;

use crate::format::{Decoded, FIRST_GROUP, GroupHeader};
use crate::log_core::Core;
use crate::reader::{GroupReader, Merge, Read};
use crate::record::LoggedRecord;
use crate::scan::Accepted;
use crate::segment::{Control, Home};
use cursor::existing;
pub(crate) use cursor::{Cursor, Step};
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Incarnation, Lsn, Result, Uuid};
use foreshore_io::Fs;
use foreshore_sync::{Clock, Parker, SystemClock};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use watch::watch;

/// The first and the longest pause between two checks of files that another process writes.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(16)];
/// Groups in a row after which a follower reads whole windows.
const CATCHING_UP: u32 = 4;
/// The most attempts to read a file that is renamed or written meanwhile.
const ATTEMPTS: usize = 8;

/// The evidence that a group counts.
enum Witness {
    /// The durable LSN of the log.
    Log(Arc<Core>),
    /// A later group that confirms it.
    Groups,
    /// The group itself, if it is whole.
    Itself,
}

/// A reader of a log that is being written. The records come as they become durable, in this process or another.
pub struct Follower {
    home: Home,
    witness: Witness,
    from: GroupNo,
    reader: GroupReader,
    merge: Merge,
    at: Cursor,
    /// The newest group that a header confirms. It stays confirmed even if that header is lost.
    confirmed: GroupNo,
    /// The incarnation of the last group that the last check has read.
    end: Incarnation,
    /// The count of checks since the last group, and the control file at the last search for a hole.
    checks: u32,
    searched: u64,
    /// Groups read since the follower was last at the end.
    run: u32,
    /// The durable LSN at the last check.
    seen: Lsn,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("dir", &self.home.dir).field("next", &self.at.next).finish_non_exhaustive()
    }
}

impl Follower {
    /// Follows the log in `dir` from group `from` on, or from the oldest group if `from` is [`GroupNo::ZERO`]. It only
    /// reads files, so another process may write them. [`foreshore_io::ReadOnly`] is the `fs` for that.
    ///
    /// # Errors
    /// `LogTruncated` if `from` was truncated; `Foreign`, `Newer`, `Corrupted` or `Truncated` if the files are no sound
    /// log of `uuid`; or the error of the disk.
    pub fn open(fs: &Arc<dyn Fs>, dir: &Path, uuid: Uuid, from: GroupNo) -> Result<Self> {
        Self::new(Home { fs: fs.clone(), dir: dir.to_owned(), uuid }, Witness::Groups, from)
    }

    /// Follows a log of this process.
    pub(crate) fn of(core: Arc<Core>, from: GroupNo) -> Result<Self> {
        Self::new(core.segments.home().clone(), Witness::Log(core), from)
    }

    fn new(home: Home, witness: Witness, from: GroupNo) -> Result<Self> {
        let at = front(&home)?;
        if from > GroupNo::ZERO && from < at.next {
            return Err(Error::LogTruncated { dir: home.dir.clone(), wanted: from, first: at.next });
        }
        Ok(Self {
            reader: GroupReader::new(at.size),
            witness,
            from,
            merge: Merge::default(),
            confirmed: GroupNo(at.next.0 - 1),
            at,
            end: Incarnation(0),
            checks: 0,
            searched: 0,
            run: 0,
            seen: Lsn::ZERO,
            home,
        })
    }

    /// Accepts groups as soon as they are whole. A crash of the writer may drop records that the follower has returned.
    /// The writer's next start does not find them, and others may replace them. The next read then returns
    /// `LogRetracted`.
    #[must_use]
    pub fn unconfirmed(mut self) -> Self {
        self.witness = Witness::Itself;
        self
    }

    /// Returns the next record, in ascending order of LSN, or `None` at the present end.
    ///
    /// # Errors
    /// `LogTruncated` if the next group was truncated meanwhile; `LogRetracted` (see [`Follower::unconfirmed`]);
    /// `Corrupted`; `LostLog`; or the error of the disk.
    pub fn read(&mut self) -> Result<Option<LoggedRecord>> {
        loop {
            if let Some(record) = self.merge.next()? {
                return Ok(Some(record));
            }
            if !self.read_group().map_err(|error| self.explain(error))? {
                return Ok(None);
            }
        }
    }

    /// Returns the group from which another follower can continue. That follower finds every record that this one has
    /// not returned. It may also find some that this one has returned, with LSNs not above that of the last one.
    ///
    /// Records of two sessions may have the same LSN. So a caller that skips known records by LSN stops where
    /// [`Follower::read`] has returned `None`, or where the LSN changes.
    #[must_use]
    pub fn resume_at(&self) -> GroupNo {
        self.merge.oldest().unwrap_or(self.at.next).max(self.from)
    }

    /// Waits until there may be more to read, for at most `timeout`, and returns whether there may. The thread parks.
    /// If another process writes the log, it checks the files at least every 16 ms. It requests no write.
    ///
    /// # Errors
    /// `Poisoned` if the log of this process has stopped and no more records come; those of [`Follower::read`].
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let clock = SystemClock::new();
        let left = || timeout.saturating_sub(clock.now().into());
        if let Witness::Log(core) = &self.witness {
            return watch(&core.pipeline, self.seen, left);
        }
        let [mut pause, longest] = PAUSES;
        loop {
            if self.probe().map_err(|error| self.explain(error))? {
                return Ok(true);
            }
            let left = left();
            if left.is_zero() {
                return Ok(false);
            }
            // WAIT: park - another process writes and wakes no thread here, so only the timeout ends it.
            Parker::current().park_timeout(pause.min(left));
            pause = (2 * pause).min(longest);
        }
    }

    /// Returns the next group to read.
    #[cfg(test)]
    pub(crate) fn next_group(&self) -> GroupNo {
        self.at.next
    }

    /// Moves the records of the next group that counts into the merge. Returns false if there is none now.
    fn read_group(&mut self) -> Result<bool> {
        let Step { header, file, offset } = loop {
            if !self.probe()? {
                return Ok(false);
            }
            if let Some(step) = self.at.step(&self.home, &mut self.reader, true)? {
                break step;
            }
            self.run = 0;
            if !self.move_on()? {
                return match self.at.next <= self.confirmed {
                    true => Err(self.at.lost(self.at.next)),
                    false => Ok(false),
                };
            }
        };
        if header.incarnation != self.merge.incarnation() {
            self.merge.begin(header.incarnation);
        }
        if header.group >= self.from {
            let bytes = self.reader.bytes(&header);
            self.merge.push(&Read { header: &header, bytes, path: file.path(), offset }, Lsn(u64::MAX))?;
        }
        self.run += 1;
        self.checks = 0;
        if self.run == CATCHING_UP {
            self.reader.widen();
        }
        Ok(true)
    }

    /// Whether the next group exists and counts.
    fn probe(&mut self) -> Result<bool> {
        if let Witness::Log(core) = &self.witness {
            self.seen = core.pipeline.progress().durable();
        }
        if self.at.next <= self.confirmed || (self.run > 0 && self.check(false)?) {
            return Ok(true);
        }
        // Bytes that were read ahead may have been written since. The end moves in small steps, so only the needed
        // bytes are read.
        self.reader.forget();
        self.run = 0;
        let counts = self.check(false)? || (self.check_control()? && self.check(true)?);
        if !counts && matches!(self.witness, Witness::Itself) {
            self.check_last()?;
        }
        Ok(counts)
    }

    /// Checks that the last returned group, which was unconfirmed, still exists. Its segment is opened anew: a start
    /// may have removed the file, and an open handle would show the group for ever.
    ///
    /// # Errors
    /// Those of [`Self::find_again`].
    fn check_last(&mut self) -> Result<()> {
        let Some(&Accepted { offset, crc, .. }) = self.at.tail.last() else { return Ok(()) };
        self.reader.forget();
        if let Some(file) = existing(self.home.fs.open(&self.home.segment_path(self.at.last)))?
            && let Decoded::Header(_, found) = GroupHeader::decode(self.reader.view(&*file, offset, BLOCK)?)
            && found == crc
        {
            return Ok(());
        }
        self.find_again()
    }

    /// Moves to the position where the chain continues if the current segment was truncated. Returns whether it was.
    /// The next group may exist nevertheless, if a start has repeated it, or one before it, in a later segment.
    ///
    /// # Errors
    /// Those of [`Self::find_again`].
    fn move_on(&mut self) -> Result<bool> {
        let newest = read_control(&self.home)?.newest();
        if newest.first > self.at.next {
            return Err(self.truncated(newest.first));
        }
        let given_up = newest.segment > self.at.number;
        if given_up {
            self.find_again()?;
        }
        Ok(given_up)
    }

    /// Walks from the first group of the log to the next one to read.
    ///
    /// # Errors
    /// `LogTruncated` if the next one does not exist; `LogRetracted` or `LostLog` if the chain holds other groups than
    /// those that were read.
    fn find_again(&mut self) -> Result<()> {
        self.reader.forget();
        let mut at = front(&self.home)?;
        while at.next < self.at.next && at.step(&self.home, &mut self.reader, true)?.is_some() {}
        if at.next > self.at.next {
            return Err(self.truncated(at.next));
        }
        if (at.next, at.prev_crc) != (self.at.next, self.at.prev_crc) {
            let group = GroupNo(self.at.next.0 - 1);
            return Err(match self.witness {
                Witness::Itself => Error::LogRetracted { dir: self.home.dir.clone(), group },
                Witness::Log(_) | Witness::Groups => at.lost(group),
            });
        }
        self.at = at;
        Ok(())
    }

    /// Replaces an error of reading by `LogTruncated` if the log was truncated: files change under the reader then,
    /// which may cause any other error.
    fn explain(&self, error: Error) -> Error {
        match read_control(&self.home).map(|control| control.newest().first) {
            Ok(first) if first > self.at.next => self.truncated(first),
            _ => error,
        }
    }

    fn truncated(&self, first: GroupNo) -> Error {
        Error::LogTruncated { dir: self.home.dir.clone(), wanted: self.at.next, first }
    }

    /// Whether the chain holds the evidence that the next group counts.
    fn check(&mut self, holes: bool) -> Result<bool> {
        let mut ahead = self.at.clone();
        let counts = self.check_along(&mut ahead, holes);
        self.at.hole = ahead.hole;
        counts
    }

    fn check_along(&mut self, ahead: &mut Cursor, holes: bool) -> Result<bool> {
        while let Some(Step { header, .. }) = ahead.step(&self.home, &mut self.reader, holes)? {
            self.confirmed = match &self.witness {
                Witness::Log(_) if header.cut <= self.seen => header.group,
                Witness::Log(_) => return Ok(false),
                // A header confirms earlier groups even if it is lost itself, but it does not confirm its own group.
                Witness::Groups => self.confirmed.max(header.acked_upto.min(GroupNo(header.group.0 - 1))),
                Witness::Itself => return Ok(true),
            };
            if self.at.next <= self.confirmed {
                return Ok(true);
            }
        }
        self.end = ahead.incarnation;
        Ok(false)
    }

    /// Whether to check again behind holes, which the last start may have left. A search for a hole reads much. So it
    /// is done once for each start, and then less and less often.
    ///
    /// # Errors
    /// Those of [`Self::move_on`].
    fn check_control(&mut self) -> Result<bool> {
        if self.move_on()? {
            return Ok(true);
        }
        let control = read_control(&self.home)?;
        let newest = control.newest();
        self.checks = self.checks.saturating_add(1);
        let started = control.incarnation() > self.end;
        let due = self.searched != newest.seq || self.checks.is_power_of_two();
        if started && due {
            if self.searched != newest.seq {
                // A hole of an earlier start may have vanished.
                self.at.hole = None;
            }
            self.searched = newest.seq;
        }
        Ok(started && due)
    }
}

/// Returns the position of the first group.
fn front(home: &Home) -> Result<Cursor> {
    let mut attempts = 0;
    loop {
        let start = read_control(home)?.newest();
        match home.open_segment(start.segment) {
            Ok((file, size)) => return Ok(Cursor::new(&start, file, size)),
            // The log may be truncated between the two reads, and the file may be another segment by then.
            Err(_) if attempts < ATTEMPTS && read_control(home)?.newest() != start => attempts += 1,
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                let file = home.segment_path(start.segment);
                return Err(Error::LostLog { file, offset: FIRST_GROUP, missing: start.first });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads the control file. One of its slots may be half written.
fn read_control(home: &Home) -> Result<Control> {
    let mut attempts = 0;
    loop {
        match Control::open(home) {
            Err(Error::Corrupted { .. }) if attempts < ATTEMPTS => attempts += 1,
            control => return control,
        }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
