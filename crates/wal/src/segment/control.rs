//! The control file: incarnation and first group, in two slots written alternately.

use super::home::Home;
use crate::format::CtlSlot;
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, Incarnation, Place, Result};
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use std::sync::Arc;

/// Name of the control file.
const NAME: &str = "ctl";
const TEMPORARY: &str = "ctl.tmp";

/// The open control file. A slot is overwritten only when the other one is sound and durable.
#[derive(Debug)]
pub(crate) struct Control {
    file: Arc<dyn File>,
    /// The content of each slot, `None` if it cannot be read.
    slots: [Option<CtlSlot>; 2],
    /// The content of a slot before a failed write to it.
    doubtful: [Option<CtlSlot>; 2],
}

impl Control {
    /// Writes the control file of a new log. Its name is durable when it returns.
    ///
    /// # Errors
    /// `Io` with `AlreadyExists` if there is one.
    pub(crate) fn create(home: &Home, slot: CtlSlot) -> Result<()> {
        let (path, temporary) = (home.dir.join(NAME), home.dir.join(TEMPORARY));
        if home.fs.kind(&path)?.is_some() {
            let source = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(Error::io("create", path, source));
        }
        let file = home.fs.create(&temporary)?;
        let mut bytes = AlignedBuf::new(2 * BLOCK);
        bytes[..BLOCK].copy_from_slice(&slot.encode());
        bytes[BLOCK..].copy_from_slice(&CtlSlot { seq: slot.seq + 1, ..slot }.encode());
        file.write_at(&bytes, 0)?;
        file.sync()?;
        home.fs.rename(&temporary, &path)?;
        home.fs.sync_dir(&home.dir)
    }

    /// Reads both slots, past the page cache, which may show a slot whose sync has failed. Writes nothing.
    ///
    /// # Errors
    /// `Foreign` or `Newer` if either slot says so, `Corrupted` or `Truncated` if neither is sound.
    pub(crate) fn open(home: &Home) -> Result<Self> {
        let path = home.dir.join(NAME);
        let file = home.fs.open(&path)?;
        file.read_past_cache()?;
        let mut bytes = AlignedBuf::new(2 * BLOCK);
        let read = file.read_at(&mut bytes, 0)?;
        let mut slots = [None, None];
        let mut damage = None;
        for (i, slot) in slots.iter_mut().enumerate() {
            let (start, end) = (i * BLOCK, read.min((i + 1) * BLOCK));
            let block = bytes.get(start..end).unwrap_or_default();
            match CtlSlot::decode(block, &path, start as u64, home.uuid) {
                Ok(sound) => *slot = Some(sound),
                Err(error @ (Error::Corrupted { .. } | Error::Truncated { .. })) => damage = Some(error),
                Err(error) => return Err(error),
            }
        }
        if let (None, None, Some(damage)) = (slots[0], slots[1], damage) {
            return Err(damage);
        }
        if slots[0].map(|slot| slot.seq) == slots[1].map(|slot| slot.seq) {
            return Err(Error::corrupted(path, Place::File, "both control slots carry the same sequence number"));
        }
        Ok(Self { file, slots, doubtful: [None; 2] })
    }

    /// Returns the newest sound slot.
    pub(crate) fn newest(&self) -> CtlSlot {
        let newest = self.slots.iter().flatten().max_by_key(|slot| slot.seq);
        *newest.expect("one slot is sound")
    }

    /// Returns the oldest segment that a slot needs.
    pub(crate) fn oldest_segment(&self) -> u64 {
        let slots = self.slots.iter().chain(&self.doubtful).flatten();
        let oldest = slots.map(|slot| slot.segment).min();
        oldest.expect("one slot is sound")
    }

    /// Returns the larger incarnation of the slots.
    pub(crate) fn incarnation(&self) -> Incarnation {
        let largest = self.slots.iter().flatten().map(|slot| slot.incarnation).max();
        largest.expect("one slot is sound")
    }

    /// Writes `slot` with the next sequence number over the older one; durable when it returns.
    pub(crate) fn advance(&mut self, slot: CtlSlot) -> Result<()> {
        let at = self.newest_index() ^ 1;
        self.write(at, slot)
    }

    /// Writes the content of the newest slot to both, with another incarnation.
    ///
    /// The newest slot is written first, because only it may be visible without being on the medium after a failed
    /// write. An unreadable slot is written before it.
    pub(crate) fn renew(&mut self, incarnation: Incarnation) -> Result<()> {
        let slot = CtlSlot { incarnation, ..self.newest() };
        let newest = self.newest_index();
        let first = if self.slots[newest ^ 1].is_some() { newest } else { newest ^ 1 };
        self.write(first, slot)?;
        self.write(first ^ 1, slot)
    }

    fn newest_index(&self) -> usize {
        let newest = self.newest();
        usize::from(self.slots[0] != Some(newest))
    }

    fn write(&mut self, at: usize, slot: CtlSlot) -> Result<()> {
        let slot = CtlSlot { seq: self.newest().seq + 1, ..slot };
        let mut bytes = AlignedBuf::new(BLOCK);
        bytes.copy_from_slice(&slot.encode());
        let (oldest, incarnation) = (self.oldest_segment(), self.newest().incarnation);
        assert!(slot.segment >= oldest, "the log begins at segment {}, which went before {oldest}", slot.segment);
        assert!(slot.incarnation >= incarnation, "{:?} is written behind {incarnation:?}", slot.incarnation);
        let before = self.slots[at].take();
        let written = match mutant("sabotage: the control file is written without a sync") {
            true => self.file.write_at(&bytes, (at * BLOCK) as u64),
            false => self.file.write_durable(&bytes, (at * BLOCK) as u64),
        };
        written.inspect_err(|_| {
            // The content of the slot is unknown now, so the segments that its old content needs are kept.
            self.doubtful[at] = before;
        })?;
        pause::point("wal: a control slot is durable");
        (self.slots[at], self.doubtful[at]) = (Some(slot), None);
        Ok(())
    }
}
