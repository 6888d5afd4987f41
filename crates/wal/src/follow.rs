//! Following the tail: records as they become durable, in this process or another.
//!
//! A follower reads groups in the order of the chain, as a start does, from a place that it remembers. At the end it
//! answers `None` and may be asked again. It never hands out a record that a crash could take back, unless it is told
//! to; what it has handed out is found by every later start.
//!
//! | made by | a group counts when | a wait ends when |
//! |---|---|---|
//! | [`Log::follow`](crate::Log::follow), in the process that writes | its cut is not above what is durable | the log raises `durable` |
//! | [`Follower::open`], anywhere | a later group in the chain says that it is durable (`acked_upto`) | a check finds such a group |
//! | the same, [`unconfirmed`](Follower::unconfirmed) | it is whole | a check finds one |
//!
//! **In another process** nothing but files is shared: nothing is locked, opened for writing or written. A group is on
//! disk before the log says that it is durable. So the last groups, as many as are in flight at a time, count only when
//! the next one is written, and with them all that waits for their cut. On a busy log that lag is a write or two. On an
//! idle log it lasts: the last group of a log that was closed counts when another one is appended. An application that
//! needs it earlier appends an empty record now and then, or reads unconfirmed records, of which a crash may take back
//! the last ones.
//!
//! **Starts.** A writer may crash and start while it is followed. Groups that were not confirmed are read anew at each
//! check. So a follower finds what the start puts in their place, passes over what it repeats, and forgets the records
//! that it dropped.
//!
//! **Truncation.** Nothing keeps the log from being truncated under a follower: it then gets `LogTruncated`.

mod cursor;
mod watch;

use crate::format::{Decoded, FIRST_GROUP, GroupHeader};
use crate::log_core::Core;
use crate::reader::{GroupReader, Merge, Read};
use crate::record::LoggedRecord;
use crate::scan::Accepted;
use crate::segment::{Control, Home};
use cursor::{Cursor, Step, existing};
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Incarnation, Lsn, Result, Uuid};
use foreshore_io::Fs;
use foreshore_sync::{Clock, Parker, SystemClock};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use watch::watch;

/// First and longest pause between two checks of files that another process writes.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(16)];
/// Groups in a row after which a follower reads whole windows.
const CATCHING_UP: u32 = 4;
/// How often a file that is renamed or written meanwhile is read again.
const ATTEMPTS: usize = 8;

/// What proves that a group counts.
enum Witness {
    /// The log itself.
    Log(Arc<Core>),
    /// A later group.
    Groups,
    /// The group itself: it is whole.
    Itself,
}

/// Reads a log while it is written. See the head of this file.
pub struct Follower {
    home: Home,
    witness: Witness,
    from: GroupNo,
    reader: GroupReader,
    merge: Merge,
    at: Cursor,
    /// The newest group that some header says to be durable. Never wrong, whatever becomes of that header.
    confirmed: GroupNo,
    /// The incarnation of the last group that the last check passed.
    end: Incarnation,
    /// Checks since the last group, and the state of the control file when a hole was searched for last.
    checks: u32,
    searched: u64,
    /// Groups read since the end was met last.
    run: u32,
    /// What was durable when the log was asked last.
    seen: Lsn,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("dir", &self.home.dir).field("next", &self.at.next).finish_non_exhaustive()
    }
}

impl Follower {
    /// Follows the log in `dir` from group `from` on, or from the oldest group if that is [`GroupNo::ZERO`]. Reads
    /// files only, so another process may be writing them; [`foreshore_io::ReadOnly`] opens them for nothing else.
    ///
    /// # Errors
    /// `LogTruncated` if `from` has been given up, `Foreign`, `Newer`, `Corrupted` or `Truncated` for files that are
    /// not a sound log of `uuid`, or what reading failed with.
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

    /// Takes groups as soon as they are whole. A crash of the writer may take back records that were handed out then.
    /// Its next start does not find them, and others may come in their place. Reading on answers `LogRetracted`.
    #[must_use]
    pub fn unconfirmed(mut self) -> Self {
        self.witness = Witness::Itself;
        self
    }

    /// The next record, in ascending order of LSN; `None` at the end, as it is now.
    ///
    /// # Errors
    /// `LogTruncated` if the next group has been given up meanwhile, `LogRetracted` as [`Follower::unconfirmed`] says,
    /// `Corrupted`, `LostLog`, or what reading failed with.
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

    /// The group with which another follower goes on where this one is. It finds every record that this one has not
    /// handed out, and perhaps some that it has: those are not above the LSN of the last one. Records of two sessions
    /// may carry one LSN. So a caller that passes over known ones by LSN stops where [`Follower::read`] has answered
    /// `None`, or where the LSN changes.
    #[must_use]
    pub fn resume_at(&self) -> GroupNo {
        self.merge.oldest().unwrap_or(self.at.next).max(self.from)
    }

    /// Waits until there may be more to read, for at most `timeout`, and returns whether there may. Parks; where the
    /// log is written by another process, checks the files in between, at least every 16 ms. Asks for no write.
    ///
    /// # Errors
    /// `Poisoned` if the log of this process has stopped, so that nothing comes any more; as [`Follower::read`].
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
            // WAIT: park - another process writes and wakes no thread here, so only time ends it.
            Parker::current().park_timeout(pause.min(left));
            pause = (2 * pause).min(longest);
        }
    }

    /// The group to be read next.
    #[cfg(test)]
    pub(crate) fn next_group(&self) -> GroupNo {
        self.at.next
    }

    /// Moves the records of the next group that counts into the merge; false if there is none now.
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

    /// Whether the next group is there and counts.
    fn probe(&mut self) -> Result<bool> {
        if let Witness::Log(core) = &self.witness {
            self.seen = core.pipeline.progress().durable();
        }
        if self.at.next <= self.confirmed || (self.run > 0 && self.check(false)?) {
            return Ok(true);
        }
        // What was read ahead may have been written since. The end moves in small steps, so no more is read than
        // needed.
        self.reader.forget();
        self.run = 0;
        let counts = self.check(false)? || (self.check_control()? && self.check(true)?);
        if !counts && matches!(self.witness, Witness::Itself) {
            self.check_last()?;
        }
        Ok(counts)
    }

    /// Whether the group that was handed out last, unconfirmed, is still there. Its segment is opened anew: a start
    /// that has no use for the file removes it, and then the file at hand would show the group for ever.
    ///
    /// # Errors
    /// As [`Self::find_again`].
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

    /// Goes to where the chain goes on if the segment at hand has been given up; true if it has. The next group may
    /// have been kept none the less: a start has repeated it, or one before it, in a later segment.
    ///
    /// # Errors
    /// As [`Self::find_again`].
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

    /// Walks from the first group that is kept to the next one.
    ///
    /// # Errors
    /// `LogTruncated` if the next one is not kept; `LogRetracted` or `LostLog` if the chain holds other groups than
    /// those that were passed.
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

    /// What an error of reading says. Files change under the reader when the log is truncated, and nothing else that
    /// may be said of them counts then.
    fn explain(&self, error: Error) -> Error {
        match read_control(&self.home).map(|control| control.newest().first) {
            Ok(first) if first > self.at.next => self.truncated(first),
            _ => error,
        }
    }

    fn truncated(&self, first: GroupNo) -> Error {
        Error::LogTruncated { dir: self.home.dir.clone(), wanted: self.at.next, first }
    }

    /// Whether the chain holds what makes the next group count.
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
                // What a header says is true whatever becomes of it, but it says nothing of itself.
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

    /// Whether to check again, and behind holes, which the last start may have left. Searching for one reads much, so
    /// it is done once for each start and then more and more seldom.
    ///
    /// # Errors
    /// As [`Self::move_on`].
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
                // What a start before this one has left there may be gone.
                self.at.hole = None;
            }
            self.searched = newest.seq;
        }
        Ok(started && due)
    }
}

/// The place of the first group.
fn front(home: &Home) -> Result<Cursor> {
    let mut attempts = 0;
    loop {
        let start = read_control(home)?.newest();
        match home.open_segment(start.segment) {
            Ok((file, size)) => return Ok(Cursor::new(&start, file, size)),
            // The log may be truncated between the two reads, and the file be another segment already.
            Err(_) if attempts < ATTEMPTS && read_control(home)?.newest() != start => attempts += 1,
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                let file = home.segment_path(start.segment);
                return Err(Error::LostLog { file, offset: FIRST_GROUP, missing: start.first });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads the control file, of which one slot may be half written at a time.
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
