//! The doublewrite file. A page image is durable here before the page is written home, so a page torn by a crash has a
//! whole image. After InnoDB's doublewrite buffer.
//!
//! 1. Two areas take turns. A batch is one write: header and images.
//! 2. The home writes of a batch are synced before its area is written again. So two batches may be under way, with no
//!    page in both.
//! 3. Recovery uses only the two newest batches: older images may be older than their homes. A batch with a torn header
//!    or image never had a home write.

use crate::format::{
    self, Batch, DOUBLEWRITE_BYTES, DOUBLEWRITE_VERSION, Entry, HeaderFlaw, area_offset, page_lsn, verify_page,
};
use foreshore_base::codec::u32_at;
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_base::{Error, Lsn, Place, Result, Uuid};
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use std::collections::HashSet;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Doublewrite {
    file: Arc<dyn File>,
    uuid: Uuid,
    /// Sequence number of the newest batch when the file was opened.
    sequence: u64,
    /// The area of that batch.
    newest: usize,
}

impl Doublewrite {
    /// Formats an empty file as a doublewrite file and allocates its space.
    pub(crate) fn format(file: &dyn File, uuid: Uuid) -> Result<()> {
        file.allocate(0, DOUBLEWRITE_BYTES)?;
        let mut block = AlignedBuf::new(BLOCK);
        format::encode_file_header(&mut block, uuid);
        file.write_at(&block, 0)?;
        file.sync()
    }

    /// Opens the file and finds the newest batch, past the page cache, which may show a batch whose sync has failed.
    pub(crate) fn open(file: Arc<dyn File>, uuid: Uuid) -> Result<Self> {
        file.read_past_cache()?;
        let mut block = AlignedBuf::new(BLOCK);
        let len = file.read_at(&mut block, 0)?;
        let path = || file.path().to_owned();
        format::check_file_header(&block[..len], uuid).map_err(|flaw| match flaw {
            HeaderFlaw::Magic => Error::Foreign { path: path(), why: "it is not a doublewrite file" },
            HeaderFlaw::Uuid => Error::Foreign { path: path(), why: "it belongs to another database" },
            HeaderFlaw::Checksum => {
                Error::corrupted(path(), Place::Offset(0), "the checksum of the header does not fit")
            }
            HeaderFlaw::Newer(found) => Error::Newer { path: path(), found, supported: DOUBLEWRITE_VERSION },
        })?;
        let found = file.len()?;
        if found < DOUBLEWRITE_BYTES {
            return Err(Error::Truncated { file: path(), len: found, expected: DOUBLEWRITE_BYTES });
        }
        let mut found = [None; 2];
        for (area, sequence) in found.iter_mut().enumerate() {
            let len = file.read_at(&mut block, area_offset(area))?;
            *sequence = Batch::decode(&block[..len], uuid).map(|batch| batch.sequence);
        }
        let sequence = found.iter().flatten().copied().max().unwrap_or(0);
        Ok(Self { file, uuid, sequence, newest: usize::from(found[1] > found[0]) })
    }

    /// Returns the sequence number of the newest batch when the file was opened, and its area.
    pub(crate) fn newest(&self) -> (u64, usize) {
        (self.sequence, self.newest)
    }

    /// Writes a batch to an area and returns when it is durable. `buf` holds a free block, then the images of the
    /// batch.
    pub(crate) fn write(&self, area: usize, batch: &Batch, buf: &mut [u8]) -> Result<()> {
        let len = BLOCK + batch.entries.len() * PAGE_SIZE;
        assert!(len <= buf.len(), "a batch of {} pages in {} bytes", batch.entries.len(), buf.len());
        batch.encode(buf, self.uuid);
        match mutant("sabotage: images are written without a sync") {
            true => self.file.write_at(&buf[..len], area_offset(area)),
            false => self.file.write_durable(&buf[..len], area_offset(area)),
        }
    }

    /// Makes both areas empty.
    pub(crate) fn invalidate(&self) -> Result<()> {
        let zeros = AlignedBuf::new(BLOCK);
        for area in 0..2 {
            self.file.write_at(&zeros, area_offset(area))?;
        }
        self.file.sync()
    }

    /// Writes the images of the two newest batches home, makes them durable there, and returns how many homes were not
    /// whole.
    ///
    /// A home that cannot be read counts as torn, if its newest image here is whole. No older image replaces it.
    ///
    /// Homes that read whole are written, too. After a failed sync the cache may show a page that the medium does not
    /// have, and not every file system lets a reader bypass the cache. All such pages are in these two batches. For a
    /// batch begins only when the homes of the last but one are durable, and none begins after a failed sync.
    ///
    /// Why no image replaces a newer page:
    /// - The newest batch holds the newest image of each of its pages.
    /// - For a page in both batches, the image of the newer one counts.
    /// - A whole home with a greater LSN has another origin, for example because this file was replaced. It stays.
    ///
    /// An image may have the same LSN as its home and differ in bytes that are not logged. Either is a state that a
    /// crash may leave.
    pub(crate) fn restore(&self, data: &dyn File, durable: Lsn) -> Result<usize> {
        let mut restored = 0;
        let mut done = HashSet::new();
        for area in [self.newest, 1 - self.newest] {
            let Some((batch, images)) = self.read(area)? else { continue };
            for (entry, image) in batch.entries.iter().zip(images.chunks_exact(PAGE_SIZE)) {
                if done.contains(&entry.pid) {
                    continue;
                }
                let home = self.restore_page(data, entry, image, durable)?;
                restored += usize::from(home == Home::WasTorn);
                if home != Home::Stays {
                    done.insert(entry.pid);
                }
            }
        }
        // The areas may be overwritten after this.
        data.sync()?;
        pause::point("pool: images are restored");
        Ok(restored)
    }

    /// Returns the batch in `area` and its images, if it is one of the two newest.
    fn read(&self, area: usize) -> Result<Option<(Batch, AlignedBuf)>> {
        let mut block = AlignedBuf::new(BLOCK);
        let len = self.file.read_at(&mut block, area_offset(area))?;
        let Some(batch) = Batch::decode(&block[..len], self.uuid) else { return Ok(None) };
        if batch.sequence + 1 < self.sequence {
            return Ok(None);
        }
        let mut images = AlignedBuf::new(batch.entries.len() * PAGE_SIZE);
        let len = self.file.read_at(&mut images, area_offset(area) + BLOCK as u64)?;
        images[len..].fill(0);
        Ok(Some((batch, images)))
    }

    fn restore_page(&self, data: &dyn File, entry: &Entry, image: &[u8], durable: Lsn) -> Result<Home> {
        // A fix of the page checks whether it is ahead of the log. Here it only matters that it is whole.
        let any = Lsn(u64::MAX);
        let mut home = AlignedBuf::new(PAGE_SIZE);
        let read = data.read_at(&mut home, entry.pid.offset());
        if matches!(read, Ok(0)) {
            // The file ends before it. Either the file was truncated, and the page was free. Or a growth was lost in a
            // crash before a sync of the page's first home write: then the log has all changes of the page.
            return Ok(Home::Stays);
        }
        let is_torn = read.as_ref().map_or(true, |&len| verify_page(&home[..len], entry.pid, any).is_err());
        let is_whole = verify_page(image, entry.pid, any).is_ok() && u32_at(image, format::AT_CRC) == entry.crc;
        if !is_whole {
            return read.map(|_| Home::Stays);
        }
        if !is_torn && page_lsn(&home) > entry.lsn {
            return Ok(Home::Stays);
        }
        if page_lsn(image) != entry.lsn || entry.lsn > durable {
            if !is_torn {
                return Ok(Home::Stays);
            }
            read?;
            let why = "the image that a torn page needs holds a change that the log has lost";
            return Err(Error::corrupted(self.file.path(), Place::Page(entry.pid), why));
        }
        data.write_at(image, entry.pid.offset())?;
        Ok(if is_torn { Home::WasTorn } else { Home::WasWhole })
    }
}

/// The state of a home before its image was written there, if it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    WasTorn,
    WasWhole,
    Stays,
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::format::AREA_BYTES;
    use foreshore_base::PageId;
    use foreshore_io::{FileLayer, Fs, Mem};
    use std::path::Path;

    /// A page `pid` of LSN `lsn` with `mark` in its body, sealed.
    fn page(pid: PageId, lsn: Lsn, mark: u8) -> (Entry, Vec<u8>) {
        let mut page = format::blank_page(pid).to_vec();
        page[format::AT_LSN..format::AT_LSN + 8].copy_from_slice(&lsn.0.to_le_bytes());
        page[PAGE_SIZE - 1] = mark;
        let crc = format::seal_page(&mut page);
        (Entry { pid, lsn, crc }, page)
    }

    struct Bed {
        file: Arc<dyn File>,
        data: Arc<dyn File>,
        uuid: Uuid,
    }

    impl Bed {
        /// Creates an empty doublewrite file, and a data file of eight pages of zeros.
        fn new() -> Self {
            let (mem, uuid) = (Mem::null(), Uuid([1; 16]));
            let create = |name: &str| mem.create(Path::new(name)).expect("a file");
            let (file, data) = (create("doublewrite"), create("data"));
            data.set_len(PageId(8).offset()).expect("pages of zeros");
            Doublewrite::format(&*file, uuid).expect("format");
            Self { file, data, uuid }
        }

        fn open(&self) -> Doublewrite {
            Doublewrite::open(self.file.clone(), self.uuid).expect("open")
        }

        fn batch(&self, area: usize, sequence: u64, pages: &[(Entry, Vec<u8>)]) {
            let mut buf = AlignedBuf::new(AREA_BYTES);
            for ((_, page), room) in pages.iter().zip(buf[BLOCK..].chunks_exact_mut(PAGE_SIZE)) {
                room.copy_from_slice(page);
            }
            let entries = pages.iter().map(|&(entry, _)| entry).collect();
            self.open().write(area, &Batch { sequence, entries }, &mut buf).expect("write");
        }

        /// Writes a home.
        fn home(&self, (entry, page): &(Entry, Vec<u8>)) {
            self.data.write_at(page, entry.pid.offset()).expect("write");
        }

        /// Restores and returns how many homes were torn.
        fn restore(&self, durable: Lsn) -> usize {
            self.open().restore(&*self.data, durable).expect("restore")
        }

        /// The mark of the page at home.
        fn mark(&self, pid: PageId) -> u8 {
            let mut page = [0; PAGE_SIZE];
            self.data.read_at(&mut page, pid.offset()).expect("read");
            page[PAGE_SIZE - 1]
        }
    }

    /// A data file whose pages cannot be read.
    #[derive(Debug)]
    struct Unreadable(Arc<dyn File>);

    impl FileLayer for Unreadable {
        fn below(&self) -> &dyn File {
            &*self.0
        }

        fn read_at(&self, _: &mut [u8], _: u64) -> Result<usize> {
            Err(Error::io("read", self.path(), std::io::Error::from_raw_os_error(5)))
        }
    }

    #[test]
    fn a_home_that_cannot_be_read_gets_its_newest_image_and_no_other() {
        let (bed, pid) = (Bed::new(), PageId(3));
        let restore = || bed.open().restore(&Unreadable(bed.data.clone()), Lsn(100));
        bed.home(&page(pid, Lsn(20), 2));
        bed.batch(0, 8, &[page(pid, Lsn(20), 3)]);
        bed.batch(1, 7, &[page(pid, Lsn(10), 1)]);
        assert_eq!((restore().expect("an image"), bed.mark(pid)), (1, 3));
        let mut rotten = page(pid, Lsn(20), 4);
        rotten.1[100] ^= 1;
        bed.batch(0, 8, &[rotten]);
        assert!(matches!(restore(), Err(Error::Io { .. })), "its home may be newer than the other image");
        assert_eq!(bed.mark(pid), 3);
        bed.batch(0, 8, &[page(pid, Lsn(101), 5)]);
        assert!(matches!(restore(), Err(Error::Io { .. })), "it may be readable later");
    }

    #[test]
    fn an_image_older_than_the_last_two_batches_mends_nothing() {
        let (bed, pid) = (Bed::new(), PageId(3));
        let restored = |sequences: [u64; 2]| {
            bed.batch(0, sequences[0], &[page(pid, Lsn::ZERO, 1)]);
            bed.batch(1, sequences[1], &[]);
            bed.restore(Lsn::ZERO)
        };
        assert_eq!(restored([7, 9]), 0, "the page may have been written since");
        assert_eq!(restored([7, 8]), 1);
    }

    #[test]
    fn whole_homes_are_written_again_and_the_newest_image_counts() {
        let (bed, p, q) = (Bed::new(), PageId(3), PageId(4));
        bed.home(&page(p, Lsn(10), 1));
        bed.home(&page(q, Lsn(10), 1));
        bed.batch(0, 8, &[page(p, Lsn(30), 3)]);
        bed.batch(1, 7, &[page(p, Lsn(20), 2), page(q, Lsn(10), 2)]);
        assert_eq!(bed.restore(Lsn(100)), 0, "none was torn");
        assert_eq!((bed.mark(p), bed.mark(q)), (3, 2));
    }

    #[test]
    fn an_image_does_not_replace_a_newer_home_and_is_not_ahead_of_the_log() {
        let (bed, p, q) = (Bed::new(), PageId(3), PageId(4));
        bed.home(&page(p, Lsn(21), 1));
        bed.home(&page(q, Lsn(10), 1));
        bed.batch(0, 8, &[page(p, Lsn(20), 2), page(q, Lsn(30), 3)]);
        assert_eq!(bed.restore(Lsn(29)), 0);
        assert_eq!((bed.mark(p), bed.mark(q)), (1, 1));
        // A torn image was never on its way home: the one before counts.
        let mut torn = page(q, Lsn(30), 3);
        torn.1[100] ^= 1;
        bed.batch(0, 8, &[torn]);
        bed.batch(1, 7, &[page(q, Lsn(20), 2)]);
        assert_eq!(bed.restore(Lsn(100)), 0);
        assert_eq!(bed.mark(q), 2);
    }
}
