//! Reading the log of a database from a backup on: that of the backup, then an archive, then the database's own.
//!
//! Each group must continue the chain of those before it, by number and by the checksum of the header before. So a
//! backup or an archive of another timeline of the database is refused (`crates/wal/src/restore.rs`).
//!
//! **A gap** is reported, and the reader goes on behind it with the database's own log. Across a gap nothing tells
//! whether the two parts are of one timeline. So nothing from before it may be combined with what follows.

use crate::archive::folder::{Folder, forked};
use crate::archive::read::ArchiveReader;
use crate::follow::{Cursor, Step};
use crate::format::MAX_GROUP;
use crate::reader::{Chain, GroupReader, Merge, Read};
use crate::record::LoggedRecord;
use crate::restore::RestoreSource;
use crate::scan::scan;
use crate::segment::{Control, Home};
use foreshore_base::{Error, GroupNo, Lsn, RestoreRefusal, Result};
use foreshore_io::Fs;
use std::path::Path;
use std::sync::Arc;

/// What a reader of a history meets.
#[derive(Clone, Debug)]
pub enum HistoryEvent {
    /// The next record that counts, in the order of LSNs.
    Record(LoggedRecord),
    /// Groups from `missing` on are in neither log nor in the archive. The database's own log begins with `next`.
    Gap {
        /// The first missing group.
        missing: GroupNo,
        /// The next group that is there.
        next: GroupNo,
    },
}

/// Reads the log of the backup in `source`, its archive, and the log in `own`, all of one database.
pub(crate) fn read_history(
    source: &RestoreSource,
    (fs, dir): (&Arc<dyn Fs>, &Path),
    each: &mut dyn FnMut(HistoryEvent) -> Result<()>,
) -> Result<()> {
    let own = Home { fs: Arc::clone(fs), dir: dir.to_owned(), uuid: source.uuid };
    let mut history = History { merge: Merge::default(), each };
    let control = Control::open(&own)?;
    let end = scan(&own, &control)?.next;
    let chain = history.read_backup(source)?;
    if chain.group > end {
        let why = "its log goes beyond that of the database: one of the two is of another timeline";
        return Err(Error::Foreign { path: source.log.1.clone(), why });
    }
    let first = control.newest().first;
    let chain = history.read_archive(source, chain, first)?;
    history.read_own(&own, &control, &chain, end)
}

struct History<'a> {
    merge: Merge,
    each: &'a mut dyn FnMut(HistoryEvent) -> Result<()>,
}

impl History<'_> {
    /// Reads the log of the backup. Returns what the next group must have.
    fn read_backup(&mut self, source: &RestoreSource) -> Result<Chain> {
        let (fs, dir) = &source.log;
        let home = Home { fs: Arc::clone(fs), dir: dir.clone(), uuid: source.uuid };
        let control = Control::open(&home)?;
        let end = scan(&home, &control)?.next;
        let (mut at, mut reader) = front(&home, &control)?;
        self.read_to(&home, &mut at, &mut reader, end)?;
        Ok(at.chain(&home))
    }

    /// Reads the archive up to group `first`, as far as it goes. Returns what the next group must have.
    fn read_archive(&mut self, source: &RestoreSource, chain: Chain, first: GroupNo) -> Result<Chain> {
        let Some((fs, dir)) = source.archive.as_ref().filter(|_| chain.group < first) else { return Ok(chain) };
        let folder = Folder { fs: Arc::clone(fs), dir: dir.clone(), uuid: source.uuid };
        let mut archive = match ArchiveReader::new(&folder, chain) {
            Err(Error::Restore(RestoreRefusal::EmptyArchive { .. })) => return Ok(chain),
            archive => archive?,
        };
        let mut reader = GroupReader::new(MAX_GROUP as u64);
        while archive.chain().group < first {
            match archive.next(&mut reader) {
                Ok(Some(header)) => {
                    self.push(&Read { header: &header, bytes: reader.bytes(&header), path: dir, offset: 0 })?;
                }
                Ok(None) | Err(Error::Restore(RestoreRefusal::Gap { .. })) => break,
                Err(error) => return Err(error),
            }
        }
        assert!(chain.group <= archive.chain().group, "an archive leads back before group {}", chain.group);
        Ok(archive.chain())
    }

    /// Reads the database's own log, whose next group is `end`, from the group on that `chain` tells.
    fn read_own(&mut self, own: &Home, control: &Control, chain: &Chain, end: GroupNo) -> Result<()> {
        let (mut at, mut reader) = front(own, control)?;
        if at.next_group() > chain.group {
            let (missing, next) = (chain.group, at.next_group());
            // Records that no cut has released, and parts of records, are from before it, too.
            self.merge = Merge::default();
            (self.each)(HistoryEvent::Gap { missing, next })?;
        }
        while at.next_group() < chain.group {
            if at.step(own, &mut reader, true)?.is_none() {
                return Err(at.lost_next());
            }
        }
        if at.next_group() == chain.group && at.last_crc() != chain.prev_crc {
            return Err(forked(&own.dir));
        }
        self.read_to(own, &mut at, &mut reader, end)
    }

    /// Reads the groups of a log before `end`, where it ends.
    fn read_to(&mut self, home: &Home, at: &mut Cursor, reader: &mut GroupReader, end: GroupNo) -> Result<()> {
        while at.next_group() < end {
            let Some(Step { header, file, offset }) = at.step(home, reader, true)? else { return Err(at.lost_next()) };
            self.push(&Read { header: &header, bytes: reader.bytes(&header), path: file.path(), offset })?;
        }
        Ok(())
    }

    fn push(&mut self, group: &Read<'_>) -> Result<()> {
        if group.header.incarnation != self.merge.incarnation() {
            self.merge.begin(group.header.incarnation);
        }
        self.merge.push(group, Lsn(u64::MAX))?;
        while let Some(record) = self.merge.next()? {
            (self.each)(HistoryEvent::Record(record))?;
        }
        Ok(())
    }
}

/// Returns a cursor at the first group of a log, and a reader for it.
fn front(home: &Home, control: &Control) -> Result<(Cursor, GroupReader)> {
    let start = control.newest();
    let (file, size) = home.open_segment(start.segment)?;
    Ok((Cursor::new(&start, file, size), GroupReader::new(size)))
}
