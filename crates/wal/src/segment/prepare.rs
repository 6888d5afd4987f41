//! Preparing segments ahead of need, and recycling those that the log no longer needs.

use super::{Control, Home, Live, Ready, Segments};
use crate::format::{CtlSlot, FIRST_GROUP, SegmentHeader, temporary_name};
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Result};
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::{NextWake, pause};
use std::cmp;
use std::sync::Arc;
use std::time::Duration;

/// How long the preparer rests after a failure, unless it is rung.
const RETRY: Duration = Duration::from_millis(100);
/// Bytes zeroed by one write.
const PIECE: usize = 1 << 20;

/// Makes segment `number` of `size` bytes: all blocks written, header in, name durable.
///
/// Blocks are written, not only reserved, where that lasts: a write into a reserved but unwritten extent changes the
/// file's metadata, and then every group would pay for the file system's journal too.
pub(crate) fn create_segment(home: &Home, number: u64, size: u64, zero_fill: bool) -> Result<Arc<dyn File>> {
    let temporary = home.dir.join(temporary_name(number));
    if home.fs.kind(&temporary)?.is_some() {
        home.fs.remove(&temporary)?;
    }
    let file = home.fs.create(&temporary)?;
    let filled = grow(&*file, 0, size, zero_fill).and_then(|()| finish_segment(home, &*file, number, size));
    match filled {
        Ok(file) => Ok(file),
        Err(error) => {
            // What was made of it would only take space; the error at hand says more than a failure of this.
            let _ = home.fs.remove(&temporary);
            Err(error)
        }
    }
}

/// Gives a file the blocks of `from..to`.
fn grow(file: &dyn File, from: u64, to: u64, zero_fill: bool) -> Result<()> {
    assert!(from < to, "a segment grows from {from} to {to} bytes");
    file.allocate(from, to - from)?;
    if zero_fill {
        let zeros = AlignedBuf::new(PIECE.min(usize::try_from(to - from).unwrap_or(PIECE)));
        let mut at = from;
        while at < to {
            let len = (zeros.len() as u64).min(to - at);
            file.write_at(&zeros[..len as usize], at)?;
            at += len;
        }
    }
    Ok(())
}

/// Writes the header, syncs and gives the file its name.
fn finish_segment(home: &Home, file: &dyn File, number: u64, size: u64) -> Result<Arc<dyn File>> {
    let mut block = AlignedBuf::new(BLOCK);
    block.copy_from_slice(&SegmentHeader { uuid: home.uuid, number, size }.encode());
    file.write_at(&block, 0)?;
    file.sync()?;
    pause::point("wal: a segment is filled");
    let path = home.segment_path(number);
    home.fs.rename(&home.dir.join(temporary_name(number)), &path)?;
    pause::point("wal: a segment has its name");
    if !mutant("sabotage: the name of a segment is not synced") {
        home.fs.sync_dir(&home.dir)?;
    }
    home.fs.open(&path)
}

impl Segments {
    /// One step of the preparer: at most one segment.
    pub(crate) fn prepare_step(&self) -> NextWake {
        let mut control = self.control.lock();
        if !self.wants_more() {
            return NextWake::OnSignal;
        }
        match self.prepare_one(&mut control) {
            Ok(()) if self.wants_more() => NextWake::Now,
            Ok(()) => NextWake::OnSignal,
            // The error reaches a session when it needs the space; until then the log goes on.
            Err(_) => NextWake::After(RETRY),
        }
    }

    fn wants_more(&self) -> bool {
        self.list.lock().ready.len() < self.ready_target()
    }

    /// Prepares the next segment, from a spare file where there is one. `_control` excludes other preparers.
    pub(super) fn prepare_one(&self, _control: &mut Control) -> Result<()> {
        let (number, mut spare) = self.next_to_prepare();
        let mut prepared = self.prepare_from(spare, number);
        while let (Err(Error::DiskFull { .. }), Some((old, size))) = (&prepared, spare)
            && size < self.segment_bytes
        {
            // What it lacks the disk does not have. The next one may do with what it gives back.
            if self.home.fs.remove(&self.home.segment_path(old)).is_err() {
                // That the disk is full says more.
                break;
            }
            spare = self.next_to_prepare().1;
            prepared = self.prepare_from(spare, number);
        }
        // ORDERING: Relaxed, a flag about the disk that every attempt sets anew.
        self.full.store(matches!(prepared, Err(Error::DiskFull { .. })), Ordering::Relaxed);
        let file = match prepared {
            Ok(file) => file,
            Err(error) => {
                // On a full disk there may be no other. One that fails twice running may be bad, and is not tried again.
                let is_there = |&(old, _): &(u64, u64)| {
                    self.home.fs.kind(&self.home.segment_path(old)).is_ok_and(|kind| kind.is_some())
                };
                let mut list = self.list.lock();
                let failed = std::mem::replace(&mut list.failed, spare.map(|(old, _)| old));
                list.spare.extend(spare.filter(|&(old, _)| failed != Some(old)).filter(is_there));
                return Err(error);
            }
        };
        let mut list = self.list.lock();
        assert_eq!(list.next_number, number, "the next segment, and the one that was prepared");
        let last = list.ready.back().map(|ready| ready.number);
        assert!(last.is_none_or(|last| last < number), "segment {number} is ready behind {last:?}");
        list.next_number = number + 1;
        list.ready.push_back(Ready { number, size: self.segment_bytes, file });
        drop(list);
        // ORDERING: Relaxed, a measure.
        self.ready_bytes.fetch_add(self.segment_bytes - FIRST_GROUP, Ordering::Relaxed);
        self.returns().notify();
        Ok(())
    }

    /// The number of the next segment and the spare file for it, which is not in the list any more.
    fn next_to_prepare(&self) -> (u64, Option<(u64, u64)>) {
        let mut list = self.list.lock();
        let number = list.next_number;
        // One that has the name already goes first, so that none is ever overwritten. Then the largest, which give space back.
        let first = list.spare.iter().enumerate().max_by_key(|&(_, &(old, size))| (old == number, size));
        let first = first.map(|(i, _)| i);
        (number, first.map(|i| list.spare.swap_remove(i)))
    }

    fn prepare_from(&self, spare: Option<(u64, u64)>, number: u64) -> Result<Arc<dyn File>> {
        match spare {
            Some((old, size)) => self.recycle(old, size, number),
            None => self.make(number),
        }
    }

    fn make(&self, number: u64) -> Result<Arc<dyn File>> {
        let file = create_segment(&self.home, number, self.segment_bytes, self.zero_fill)?;
        // ORDERING: Relaxed, a counter.
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(file)
    }

    /// Gives the file of segment `old`, of `size` bytes, to segment `number`, under a name and header that are certainly durable,
    /// also if they are the same: a sync of the run before may have failed. Groups inside keep numbers and checksums that continue
    /// no chain from here on, so readers pass them over. After a failure the file mostly is where it was, with the old header.
    fn recycle(&self, old: u64, size: u64, number: u64) -> Result<Arc<dyn File>> {
        let (fs, home) = (&self.home.fs, self.home.segment_path(old));
        let temporary = self.home.dir.join(temporary_name(number));
        fs.rename(&home, &temporary)?;
        pause::point("wal: a segment is taken for another");
        let finished = fs.open(&temporary).and_then(|file| {
            match size.cmp(&self.segment_bytes) {
                cmp::Ordering::Less => grow(&*file, size, self.segment_bytes, self.zero_fill)?,
                cmp::Ordering::Equal => {}
                cmp::Ordering::Greater => file.set_len(self.segment_bytes)?,
            }
            finish_segment(&self.home, &*file, number, self.segment_bytes)
        });
        if finished.is_err() {
            // The error at hand says more than a failure of these.
            let names = [temporary, self.home.segment_path(number)];
            let _ = names.iter().any(|name| fs.rename(name, &home).is_ok());
        }
        let file = finished?;
        // ORDERING: Relaxed, a counter.
        self.recycled.fetch_add(1, Ordering::Relaxed);
        Ok(file)
    }

    /// Gives up the groups before `before`, segment by segment: the control file moves first, then files that neither
    /// of its slots needs become spare. `durable` is the newest group that is durable together with all before it.
    pub(crate) fn truncate(&self, before: GroupNo, durable: GroupNo) -> Result<()> {
        let mut control = self.control.lock();
        let slot = {
            let list = self.list.lock();
            // A segment whose first group is still on its way to disk is no place to start from.
            let starts = |live: &Live| live.first <= before.min(durable);
            let is_early = mutant("sabotage: a segment is given up too early");
            let index = list.live.partition_point(starts).saturating_sub(usize::from(!is_early));
            let Some(live) = list.live.get(index) else { return Ok(()) };
            CtlSlot { first: live.first, segment: live.number, prev_crc: live.prev_crc, ..control.newest() }
        };
        if slot.segment > control.newest().segment || slot.segment > control.oldest_segment() {
            control.advance(slot)?;
        }
        self.give_up(control.oldest_segment())?;
        self.preparer.notify();
        Ok(())
    }

    /// Turns live segments below `needed` into spare ones, and removes some beyond what is kept ready: a checkpoint gives up several
    /// at once, and a spare file is a segment that need not be filled with zeros.
    fn give_up(&self, needed: u64) -> Result<()> {
        let (mut surplus, most) = (Vec::new(), self.ready_target() + self.options.ready_segments);
        {
            let mut list = self.list.lock();
            while list.live.len() > 1 && list.live[0].number < needed {
                let live = list.live.pop_front().expect("more than one");
                let is_spare = list.spare.iter().any(|&(spare, _)| spare == live.number);
                assert!(!is_spare, "segment {} is given up twice", live.number);
                match list.spare.len() < most {
                    true => list.spare.push((live.number, live.size)),
                    false => surplus.push(live.number),
                }
            }
        }
        pause::point("wal: log is given up");
        surplus.iter().try_for_each(|&number| self.home.fs.remove(&self.home.segment_path(number)))
    }
}
