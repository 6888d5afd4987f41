//! A place in the chain of groups, and stepping along it: by a start, by a reader of what it found, and by a follower.

use super::groups::{Chain, GroupReader};
use super::link::{Accepted, Link, find, link};
use crate::format::{CtlSlot, FIRST_GROUP, GroupHeader};
use crate::segment::Home;
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Incarnation, Result};
use foreshore_io::File;
use std::io::ErrorKind;
use std::sync::Arc;

/// A place in the chain.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    pub(crate) number: u64,
    /// The file of the segment. At most two segments are open at a time, however many there are.
    pub(crate) file: Arc<dyn File>,
    pub(crate) size: u64,
    pub(crate) offset: u64,
    pub(crate) next: GroupNo,
    pub(crate) prev_crc: u32,
    pub(crate) incarnation: Incarnation,
    /// The last groups, which a start may have repeated: the very last one and those before it that no header says to
    /// be durable. Ascending.
    pub(crate) tail: Vec<Accepted>,
    /// The last hole that was searched: its segment, where it begins, and where the chain continues. Groups written at
    /// its beginning later still come first.
    pub(crate) hole: Option<(u64, u64, u64)>,
    /// Whether later segments are opened for reads past the page cache.
    past_cache: bool,
}

/// A group of the chain; the reader holds its bytes.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) header: GroupHeader,
    pub(crate) file: Arc<dyn File>,
    pub(crate) offset: u64,
}

/// What a cursor has passed.
#[derive(Debug)]
pub(crate) enum Passed {
    /// A group.
    Group(Step),
    /// The end of a segment. The next one continues with group `first`, or a repetition of it. The header of the group
    /// before has the checksum `prev_crc`. The chain in the segment before ended at `left`.
    Segment { first: GroupNo, prev_crc: u32, left: u64 },
}

impl Cursor {
    /// At the group that `start` names, which lies at `offset` of `file`.
    pub(crate) fn new(start: &CtlSlot, file: Arc<dyn File>, size: u64, offset: u64) -> Self {
        Self {
            number: start.segment,
            file,
            size,
            offset,
            next: start.first,
            prev_crc: start.prev_crc,
            incarnation: Incarnation(0),
            tail: Vec::new(),
            hole: None,
            past_cache: false,
        }
    }

    /// The same for a start, which does not believe the page cache.
    pub(crate) fn past_cache(self) -> Self {
        Self { past_cache: true, ..self }
    }

    /// Returns the error of a durable group that is missing.
    pub(crate) fn lost(&self, missing: GroupNo) -> Error {
        Error::LostLog { file: self.file.path().into(), offset: self.offset, missing }
    }

    /// Steps over the next group of the chain, into later segments. Searches behind holes only where a start may have
    /// left one.
    pub(crate) fn step(&mut self, home: &Home, reader: &mut GroupReader, holes: bool) -> Result<Option<Step>> {
        loop {
            match self.advance(home, reader, holes)? {
                Some(Passed::Group(step)) => return Ok(Some(step)),
                Some(Passed::Segment { .. }) => {}
                None => return Ok(None),
            }
        }
    }

    /// Steps over the next group of the chain, or into the next segment, as [`Self::step`] does.
    pub(crate) fn advance(&mut self, home: &Home, reader: &mut GroupReader, holes: bool) -> Result<Option<Passed>> {
        loop {
            let chain =
                Chain { uuid: home.uuid, group: self.next, prev_crc: self.prev_crc, incarnation: self.incarnation };
            match link(reader, (&*self.file, self.size), self.offset, &chain, &self.tail)? {
                Some(Link::Next(header, crc)) => return Ok(Some(Passed::Group(self.pass(header, crc)))),
                Some(Link::Again(header, _)) => {
                    self.offset += u64::from(header.total_len);
                    continue;
                }
                None => {}
            }
            // What follows in this segment comes before what follows in the next one.
            let found = match self.hole {
                Some((number, from, to)) if (number, from) == (self.number, self.offset) => Some(to),
                _ if holes => {
                    let from = self.offset + BLOCK as u64;
                    find(reader, (&*self.file, self.size), from, &chain, &self.tail)?.map(|(at, _)| at)
                }
                _ => None,
            };
            let Some(to) = found else { return self.roll(home, reader, &chain, holes) };
            self.hole = Some((self.number, self.offset, to));
            self.offset = to;
        }
    }

    fn pass(&mut self, header: GroupHeader, crc: u32) -> Step {
        let (len, offset, number) = (u64::from(header.total_len), self.offset, self.number);
        self.tail.retain(|before| before.group > header.acked_upto);
        self.tail.push(Accepted { group: header.group, number, offset, len, crc, prev_crc: self.prev_crc });
        self.offset += len;
        (self.next, self.prev_crc, self.incarnation) = (header.group.next(), crc, header.incarnation);
        Step { header, file: self.file.clone(), offset }
    }

    /// Goes to the next segment if it continues the chain, at its first group or behind a hole.
    fn roll(&mut self, home: &Home, reader: &mut GroupReader, chain: &Chain, holes: bool) -> Result<Option<Passed>> {
        let number = self.number + 1;
        let file = match self.past_cache {
            true => existing(home.open_past_cache(number))?,
            false => existing(home.fs.open(&home.segment_path(number)))?,
        };
        let Some(file) = file else { return Ok(None) };
        let size = file.len()?;
        let found = match holes {
            true => find(reader, (&*file, size), FIRST_GROUP, chain, &self.tail)?.map(|(_, link)| link),
            false => link(reader, (&*file, size), FIRST_GROUP, chain, &self.tail)?,
        };
        let (first, prev_crc) = match found {
            Some(Link::Next(header, _)) => (header.group, self.prev_crc),
            Some(Link::Again(header, prev_crc)) => (header.group, prev_crc),
            None => return Ok(None),
        };
        // It carries log that counts, so its header must be sound too. A follower may find another segment by then.
        let checked = match self.past_cache {
            true => Some(home.check_segment(number, file)?),
            false => existing(home.open_segment(number))?,
        };
        let Some((file, size)) = checked else { return Ok(None) };
        let left = self.offset;
        (self.number, self.file, self.size, self.offset) = (number, file, size, FIRST_GROUP);
        Ok(Some(Passed::Segment { first, prev_crc, left }))
    }
}

/// Returns `None` for a missing file.
pub(crate) fn existing<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
