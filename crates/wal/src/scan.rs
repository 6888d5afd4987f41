//! The scan of the log at start: which groups count, and whether a missing group was ever acknowledged.
//!
//! The chain starts at the first group of the control file. It goes on while header, checksums, number and predecessor
//! fit. If it does not go on inside a segment, the first group of the next segment may continue it. That is a group
//! that did not fit the rest of the segment, or the first one of a new incarnation behind a torn group. Otherwise the
//! chain has ended.
//!
//! Several groups may be in flight at a time and reach the disk in any order. If one is missing, those behind it were
//! never acknowledged, even if they are whole. None of them continues the chain behind the groups of a new incarnation.
//!
//! **Repeated groups.** A group that no later header confirms may be on the medium, or in a cache whose write-back has
//! failed. Another sync of the same pages would prove nothing. So each start repeats such groups, at least the last
//! one, byte for byte, behind the last one. Readers skip a repeated group. If an original did not survive, the chain
//! goes on at the repeated group, some blocks further on. Before the chain counts as ended, such a hole is searched for
//! in the segment, and then from the beginning of the next one.
//!
//! **Groups that only the cache has.** The scan reads past the page cache. Behind the last group on the medium, the
//! cache may still have one whose sync has failed. It was never acknowledged, but readers of the running log use the
//! cache and would take it for the next one. So a start writes over its first block: a repeated group, or zeros if that
//! one goes to the next segment.
//!
//! **Segments that are not read.** Most of a long log was acknowledged long ago. The scan passes over a segment whose
//! groups all count for sure (`scan/heads.rs`). The readers of its groups check them.
//!
//! **Torn tail or lost media.** A group that was never acknowledged may be torn, and is dropped. If a later header
//! confirms it (`acked_upto`), acknowledged groups are missing, and the log is refused. The log is also refused if the
//! first group that the control file names is missing, unless the log is new. The loss of the very last group alone
//! cannot be detected.

mod heads;
mod link;
mod rule;

pub(crate) use link::{Accepted, Link, find, link};
pub(crate) use rule::Rule;

use crate::format::{Decoded, FIRST_GROUP, GroupHeader};
use crate::reader::{Chain, GroupReader, visit};
use crate::segment::{Control, Home, Live};
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Incarnation, Lsn, Place, Result};
use foreshore_io::File;
use foreshore_sync::Nanos;
use heads::Heads;
use link::LOOK_AHEAD;
use std::sync::Arc;

/// Number of the first group of a new log.
pub(crate) const FIRST: GroupNo = GroupNo(1);

/// The accepted part of the log.
#[derive(Debug)]
pub(crate) struct Scanned {
    /// Segments from the first group on; the last one holds the end of the chain.
    pub(crate) live: Vec<Live>,
    /// The file of the last segment. At most two segments are open at a time.
    pub(crate) file: Arc<dyn File>,
    pub(crate) next: GroupNo,
    pub(crate) prev_crc: u32,
    /// The last groups, ascending: the newest one and those before it that no header confirms.
    pub(crate) tail: Vec<Accepted>,
    /// Largest cut of the accepted groups of each incarnation, ascending by incarnation.
    pub(crate) cuts: Vec<(Incarnation, Lsn)>,
    /// Largest LSN or cut seen anywhere, in records that do not count too. Segments that were passed over are not seen.
    pub(crate) max_lsn: Lsn,
    /// Largest incarnation seen in any header.
    pub(crate) incarnation: Incarnation,
    /// Time of the last group.
    pub(crate) time: Nanos,
    rule: Rule,
}

impl Scanned {
    /// Returns the LSN up to which every record counts, if its own incarnation accepts it.
    pub(crate) fn end(&self) -> Lsn {
        self.cuts.iter().map(|&(_, cut)| cut).max().unwrap_or(Lsn::ZERO)
    }
}

/// Scans the log at `home`. Writes nothing.
///
/// # Errors
/// `LostLog`, `Foreign`, `Newer`, `Corrupted`, `Truncated`, or the error of the disk.
pub(crate) fn scan(home: &Home, control: &Control) -> Result<Scanned> {
    scan_by(home, control, Rule::Sound)
}

/// Does [`scan`], with cuts read by `rule`.
pub(crate) fn scan_by(home: &Home, control: &Control, rule: Rule) -> Result<Scanned> {
    let start = control.newest();
    let numbers = home.segment_numbers()?;
    let is_lost = start.first != FIRST || numbers.last().is_some_and(|&last| last > start.segment);
    let lost = || Error::LostLog { file: home.segment_path(start.segment), offset: FIRST_GROUP, missing: start.first };
    if is_lost && numbers.binary_search(&start.segment).is_err() {
        return Err(lost());
    }
    let (file, size) = home.check_segment(start.segment, home.open_past_cache(start.segment)?)?;
    let mut scanned = Scanned {
        live: vec![Live::new(start.segment, size, start.first, start.prev_crc)],
        file,
        next: start.first,
        prev_crc: start.prev_crc,
        tail: Vec::new(),
        cuts: Vec::new(),
        max_lsn: Lsn::ZERO,
        incarnation: control.incarnation(),
        time: Nanos::ZERO,
        rule,
    };
    let mut reader = GroupReader::new(size);
    let heads = Heads::read(home, start.segment, &numbers)?;
    loop {
        if !scanned.pass_over(&heads) {
            scanned.scan_segment(home, &mut reader)?;
            // A continuation in this segment comes before one in the next segment.
            if scanned.pass_hole(home, &mut reader)? {
                continue;
            }
        }
        let number = scanned.last().number + 1;
        if numbers.binary_search(&number).is_err() || !scanned.roll(home, &mut reader, number)? {
            break;
        }
    }
    scanned.look_ahead(home, &mut reader, &numbers)?;
    rule.conclude(&mut scanned.cuts);
    // The control file only names a later group once that group is durable.
    if scanned.tail.is_empty() && start.first != FIRST {
        return Err(lost());
    }
    if scanned.last().is_unread() {
        let (file, offset) = (home.segment_path(scanned.last().number), scanned.last().end);
        return Err(Error::LostLog { file, offset, missing: scanned.next });
    }
    Ok(scanned)
}

impl Scanned {
    /// Returns the last segment.
    pub(crate) fn last(&self) -> &Live {
        self.live.last().expect("the first segment")
    }

    fn chain(&self, home: &Home) -> Chain {
        let incarnation = self.cuts.last().map_or(Incarnation(0), |&(incarnation, _)| incarnation);
        Chain { uuid: home.uuid, group: self.next, prev_crc: self.prev_crc, incarnation }
    }

    /// Passes over the last segment, of which nothing has been read, if all its groups count for sure. Returns whether
    /// they do.
    fn pass_over(&mut self, heads: &Heads) -> bool {
        let last = self.last();
        let next = (last.end == FIRST_GROUP).then(|| heads.behind(last.number, (self.next, self.prev_crc))).flatten();
        let Some((group, prev_crc)) = next else { return false };
        self.live.last_mut().expect("the first segment").leave_unread();
        (self.next, self.prev_crc) = (group, prev_crc);
        // Later starts repeat none of them: a header in the chain confirms them.
        self.tail.clear();
        true
    }

    /// Accepts groups of the last segment as long as the chain goes on, and skips repeated ones.
    fn scan_segment(&mut self, home: &Home, reader: &mut GroupReader) -> Result<()> {
        loop {
            let index = self.live.len() - 1;
            let (file, size, offset) = (self.file.clone(), self.live[index].size, self.live[index].end);
            let (header, crc) = match link(reader, (&*file, size), offset, &self.chain(home), &self.tail)? {
                Some(Link::Next(header, crc)) => (header, crc),
                Some(Link::Again(header, _)) => {
                    self.live[index].skip(offset + u64::from(header.total_len));
                    continue;
                }
                None => return Ok(()),
            };
            // A new incarnation begins above all cuts of those before.
            let (mut max, floor) = (Lsn::ZERO, self.end());
            visit(reader.bytes(&header), &header, floor, |_, lsn, _| max = max.max(lsn))
                .map_err(|why| Error::corrupted(file.path(), Place::Offset(offset), why))?;
            let (len, prev_crc) = (u64::from(header.total_len), self.prev_crc);
            self.live[index].push(header.group, offset, offset + len);
            self.tail.retain(|before| before.group > header.acked_upto);
            self.tail.push(Accepted { group: header.group, segment: index, offset, len, crc, prev_crc });
            self.accept(&header, crc, max);
        }
    }

    /// Skips a hole behind the end of the last segment. Returns true if the chain goes on behind it.
    fn pass_hole(&mut self, home: &Home, reader: &mut GroupReader) -> Result<bool> {
        let (from, size) = (self.last().end + BLOCK as u64, self.last().size);
        let found = find(reader, (&*self.file, size), from, &self.chain(home), &self.tail)?;
        if let Some((at, _)) = found {
            self.live.last_mut().expect("the first segment").skip(at);
        }
        Ok(found.is_some())
    }

    fn accept(&mut self, header: &GroupHeader, crc: u32, max: Lsn) {
        self.next = header.group.next();
        self.prev_crc = crc;
        self.time = header.time;
        self.max_lsn = self.max_lsn.max(self.rule.base(header.cut, max));
        self.incarnation = self.incarnation.max(header.incarnation);
        match self.cuts.last_mut() {
            Some((incarnation, cut)) if *incarnation == header.incarnation => *cut = self.rule.limit(*cut, header.cut),
            _ => self.cuts.push((header.incarnation, header.cut)),
        }
    }

    /// Makes segment `number` the last one if it continues the chain, at its first group or behind a hole. Returns
    /// whether it does.
    fn roll(&mut self, home: &Home, reader: &mut GroupReader, number: u64) -> Result<bool> {
        let file = home.open_past_cache(number)?;
        let size = file.len()?;
        let (first, prev_crc) = match find(reader, (&*file, size), FIRST_GROUP, &self.chain(home), &self.tail)? {
            Some((_, Link::Next(header, _))) => (header.group, self.prev_crc),
            Some((_, Link::Again(header, prev_crc))) => (header.group, prev_crc),
            None => return Ok(false),
        };
        // The segment contains groups that count, so its header must be sound too.
        let (file, size) = home.check_segment(number, file)?;
        self.live.push(Live::new(number, size, first, prev_crc));
        self.file = file;
        Ok(true)
    }

    /// Refuses the log if a header behind the end of the chain confirms the missing group.
    fn look_ahead(&mut self, home: &Home, reader: &mut GroupReader, numbers: &[u64]) -> Result<()> {
        let (last, file) = (self.last().clone(), self.file.clone());
        let mut budget = LOOK_AHEAD;
        self.witness(home, reader, (&*file, last.size), last.end, &mut budget)?;
        for &number in numbers.iter().filter(|&&number| number > last.number) {
            let file = home.fs.open(&home.segment_path(number))?;
            let size = file.len()?;
            // The first group of every later segment is checked, at any distance.
            budget = budget.max(BLOCK as u64);
            self.witness(home, reader, (&*file, size), FIRST_GROUP, &mut budget)?;
        }
        Ok(())
    }

    fn witness(
        &mut self,
        home: &Home,
        reader: &mut GroupReader,
        (file, size): (&dyn File, u64),
        mut at: u64,
        budget: &mut u64,
    ) -> Result<()> {
        let oldest = self.cuts.last().map_or(Incarnation(0), |&(incarnation, _)| incarnation);
        while at + BLOCK as u64 <= size && *budget > 0 {
            if let Decoded::Header(header, _) = GroupHeader::decode(reader.view(file, at, BLOCK)?)
                && header.uuid == home.uuid
                && header.group >= self.next
                && header.incarnation >= oldest
            {
                if header.acked_upto >= self.next {
                    let last = self.last();
                    let file = home.segment_path(last.number);
                    return Err(Error::LostLog { file, offset: last.end, missing: self.next });
                }
                self.incarnation = self.incarnation.max(header.incarnation);
                self.max_lsn = self.max_lsn.max(header.cut);
            }
            at += BLOCK as u64;
            *budget = budget.saturating_sub(BLOCK as u64);
        }
        Ok(())
    }
}

#[cfg(all(test, not(foreshore_loom)))]
pub(crate) mod tests;
