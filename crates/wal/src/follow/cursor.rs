//! A position in the chain of groups, and its steps along the chain.

use crate::format::{CtlSlot, FIRST_GROUP, GroupHeader};
use crate::reader::{Chain, GroupReader};
use crate::scan::{Accepted, Link, find, link};
use crate::segment::Home;
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Incarnation, Result};
use foreshore_io::File;
use std::io::ErrorKind;
use std::sync::Arc;

/// A position in the chain.
#[derive(Clone)]
pub(crate) struct Cursor {
    pub(super) number: u64,
    pub(super) file: Arc<dyn File>,
    pub(super) size: u64,
    pub(super) offset: u64,
    pub(super) next: GroupNo,
    pub(super) prev_crc: u32,
    pub(super) incarnation: Incarnation,
    /// The last groups, which a start may have repeated.
    pub(super) tail: Vec<Accepted>,
    /// The segment of the newest of them.
    pub(super) last: u64,
    /// The last hole that was found: its segment, its beginning, and the offset where the chain continues. Groups that
    /// are written at its beginning later still come first.
    pub(super) hole: Option<(u64, u64, u64)>,
}

/// A group of the chain; the reader holds its bytes.
pub(crate) struct Step {
    pub(crate) header: GroupHeader,
    pub(crate) file: Arc<dyn File>,
    pub(crate) offset: u64,
}

impl Cursor {
    /// Creates a cursor at the first group of the log, which lies in `file`.
    pub(crate) fn new(start: &CtlSlot, file: Arc<dyn File>, size: u64) -> Self {
        Self {
            number: start.segment,
            file,
            size,
            offset: FIRST_GROUP,
            next: start.first,
            prev_crc: start.prev_crc,
            incarnation: Incarnation(0),
            tail: Vec::new(),
            last: start.segment,
            hole: None,
        }
    }

    /// Returns the number of the next group.
    pub(crate) const fn next_group(&self) -> GroupNo {
        self.next
    }

    /// Returns the checksum of the header of the group before.
    pub(crate) const fn last_crc(&self) -> u32 {
        self.prev_crc
    }

    /// Returns what the next group must have.
    pub(crate) const fn chain(&self, home: &Home) -> Chain {
        Chain { uuid: home.uuid, group: self.next, prev_crc: self.prev_crc, incarnation: self.incarnation }
    }

    /// Returns the error of a durable group that is missing.
    pub(super) fn lost(&self, missing: GroupNo) -> Error {
        Error::LostLog { file: self.file.path().into(), offset: self.offset, missing }
    }

    /// Returns the error of the next group, which is durable and missing.
    pub(crate) fn lost_next(&self) -> Error {
        self.lost(self.next)
    }

    /// Steps over the next group of the chain. Searches behind holes only if `holes`.
    pub(crate) fn step(&mut self, home: &Home, reader: &mut GroupReader, holes: bool) -> Result<Option<Step>> {
        loop {
            let chain = self.chain(home);
            match link(reader, (&*self.file, self.size), self.offset, &chain, &self.tail)? {
                Some(Link::Next(header, crc)) => return Ok(Some(self.pass(header, crc))),
                Some(Link::Again(header, _)) => {
                    self.offset += u64::from(header.total_len);
                    continue;
                }
                None => {}
            }
            let found = match self.hole {
                Some((number, from, to)) if (number, from) == (self.number, self.offset) => Some(to),
                _ if holes => {
                    let from = self.offset + BLOCK as u64;
                    find(reader, (&*self.file, self.size), from, &chain, &self.tail)?.map(|(at, _)| at)
                }
                _ => None,
            };
            if let Some(to) = found {
                self.hole = Some((self.number, self.offset, to));
                self.offset = to;
                continue;
            }
            if !self.roll(home, reader, &chain, holes)? {
                return Ok(None);
            }
        }
    }

    fn pass(&mut self, header: GroupHeader, crc: u32) -> Step {
        let (len, offset) = (u64::from(header.total_len), self.offset);
        self.tail.retain(|before| before.group > header.acked_upto);
        self.tail.push(Accepted { group: header.group, segment: 0, offset, len, crc, prev_crc: self.prev_crc });
        self.offset += len;
        (self.next, self.prev_crc, self.incarnation) = (header.group.next(), crc, header.incarnation);
        self.last = self.number;
        Step { header, file: self.file.clone(), offset }
    }

    /// Moves to the next segment if the chain continues there.
    fn roll(&mut self, home: &Home, reader: &mut GroupReader, chain: &Chain, holes: bool) -> Result<bool> {
        let number = self.number + 1;
        let Some(file) = existing(home.fs.open(&home.segment_path(number)))? else { return Ok(false) };
        let size = file.len()?;
        let goes_on = match holes {
            true => find(reader, (&*file, size), FIRST_GROUP, chain, &self.tail)?.is_some(),
            false => link(reader, (&*file, size), FIRST_GROUP, chain, &self.tail)?.is_some(),
        };
        if !goes_on {
            return Ok(false);
        }
        // The segment contains groups that count, so its header must be sound too.
        let Some((file, size)) = existing(home.open_segment(number))? else { return Ok(false) };
        (self.number, self.file, self.size, self.offset) = (number, file, size, FIRST_GROUP);
        Ok(true)
    }
}

/// Returns `None` for a missing file.
pub(super) fn existing<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
