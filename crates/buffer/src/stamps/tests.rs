use super::*;
use crate::format::{AT_LSN, AT_TYPE, blank_page};
use foreshore_io::{FileLayer, Mem};
use std::collections::HashSet;
use std::path::PathBuf;

const UUID: Uuid = Uuid([1; 16]);
const PATH: &str = "db/stamps";
/// Number of the superblock in use.
const SEQ: u64 = 7;
const END: Lsn = Lsn(1 << 40);

fn fs() -> Mem {
    let fs = Mem::null();
    fs.create_dir(Path::new("db")).unwrap();
    fs
}

fn open_for(fs: &dyn Fs, uuid: Uuid) -> Result<Stamps> {
    let stamps = Stamps::new(64);
    let path = Path::new(PATH);
    stamps.open(Stamps::find(fs, path, uuid, SEQ)?, fs, path, uuid, true);
    Ok(stamps)
}

fn open(fs: &dyn Fs) -> Stamps {
    open_for(fs, UUID).unwrap()
}

fn note(stamps: &Stamps, pid: u64, lsn: u64, group: u64) {
    stamps.note([(PageId(pid), Lsn(lsn), GroupNo(group))].into_iter());
}

fn least<const N: usize>(stamps: &Stamps, pids: [u64; N]) -> [u64; N] {
    pids.map(|pid| stamps.least(PageId(pid), END).0)
}

fn take_notes(stamps: &Stamps) -> Vec<Note> {
    stamps.notes.lock().take()
}

#[test]
fn a_checkpoint_stamps_the_images_that_redo_does_not_repeat() {
    let fs = fs();
    let stamps = open(&fs);
    assert!(stamps.stats().is_new);
    note(&stamps, 7, 100, 3);
    note(&stamps, 8, 110, 5);
    note(&stamps, 600, 120, 4);
    note(&stamps, 600, 130, 6);
    note(&stamps, 600, 130, 7);
    note(&stamps, 600, 140, 8);
    let pids = [7, 8, 9, 600];
    assert_eq!(least(&stamps, pids), [100, 110, 0, 140], "notes count at once");
    stamps.write(GroupNo(5), SEQ + 1);
    assert_eq!(least(&stamps, pids), [100, 110, 0, 140]);
    assert_eq!(least(&open(&fs), pids), [100, 0, 0, 120], "later images are repeated");
    stamps.write(GroupNo(8), SEQ + 1);
    assert_eq!(least(&open(&fs), pids), [100, 110, 0, 130]);
    stamps.write(GroupNo(9), SEQ + 1);
    note(&stamps, 600, 135, 9);
    stamps.write(GroupNo(10), SEQ + 1);
    assert_eq!(least(&open(&fs), pids), [100, 110, 0, 140], "stamps only grow");
    assert_eq!(take_notes(&stamps), []);
    assert_eq!(open(&fs).stats(), StampStats::default());
}

#[test]
fn an_image_that_is_noted_during_a_write_stays_noted() {
    let stamps = open(&fs());
    note(&stamps, 7, 100, 3);
    let due = take_notes(&stamps);
    assert_eq!(least(&stamps, [7]), [100]);
    note(&stamps, 7, 200, 3);
    stamps.notes.lock().remove(&due);
    assert_eq!(least(&stamps, [7]), [200]);
    let due = take_notes(&stamps);
    stamps.notes.lock().remove(&due);
    assert_eq!((due.len(), least(&stamps, [7])), (1, [0]));
}

#[test]
fn one_image_is_due_with_the_oldest_of_its_groups() {
    let fs = fs();
    let stamps = open(&fs);
    [30, 5, 8, 4, 40].into_iter().for_each(|group| note(&stamps, 7, 20, group));
    stamps.write(GroupNo(5), SEQ + 1);
    assert_eq!((least(&stamps, [7]), least(&open(&fs), [7])), ([20], [20]));
    let left: HashSet<_> = take_notes(&stamps).iter().map(|note| note.group.0).collect();
    assert_eq!(left, HashSet::from([5, 30]), "8 and 40 say no more than the groups before");
    // An older image with an older group counts as well, and is not the newest.
    note(&stamps, 8, 60, 9);
    note(&stamps, 8, 50, 6);
    assert_eq!(least(&stamps, [8]), [60]);
    stamps.write(GroupNo(7), SEQ + 1);
    assert_eq!((least(&stamps, [8]), least(&open(&fs), [8])), ([60], [50]));
}

#[test]
fn images_count_until_they_have_stamps() {
    let mut notes = Notes::new(3);
    let add = |notes: &mut Notes, pids: std::ops::Range<u64>| {
        pids.for_each(|pid| notes.add(Note { pid: PageId(pid), lsn: Lsn(9), group: GroupNo(pid) }));
        notes.dropped
    };
    assert_eq!(add(&mut notes, 0..2), 0);
    let mut due = notes.take();
    assert_eq!(add(&mut notes, 2..4), 1, "images that are taken count");
    let later = due.split_off(1);
    notes.put_back(later);
    assert_eq!(add(&mut notes, 4..5), 2);
    notes.remove(&due);
    assert_eq!(add(&mut notes, 5..7), 3, "there is room for one");
    let left: HashSet<_> = notes.take().iter().map(|note| note.pid.0).collect();
    assert_eq!(left, HashSet::from([1, 2, 5]));
    assert_eq!([0, 1, 2, 3, 5].map(|pid| notes.newest(PageId(pid)).0), [0, 9, 9, 0, 9]);
}

#[test]
fn beyond_their_limit_notes_are_dropped_and_counted() {
    let fs = fs();
    let stamps = open(&fs);
    let most = MIN_NOTES as u64;
    (0..most + 5).for_each(|pid| note(&stamps, pid, 10 + pid, 1));
    assert_eq!(stamps.stats().dropped, 5);
    assert_eq!(least(&stamps, [most - 1, most]), [most + 9, 0]);
    stamps.write(GroupNo(u64::MAX), SEQ + 1);
    note(&stamps, most, 77, 1);
    assert_eq!(least(&stamps, [0, most - 1, most]), [10, most + 9, 77]);
    assert_eq!(least(&open(&fs), [0, most - 1, most]), [10, most + 9, 0]);
}

#[test]
fn more_blocks_than_memory_holds_are_read_again() {
    let fs = fs();
    let stamps = open(&fs);
    let pids: Vec<u64> = (0..3 * MIN_BLOCKS as u64).map(|block| block * 256 + 5).collect();
    for round in 1..3 {
        pids.iter().for_each(|&pid| note(&stamps, pid, round * 10_000 + pid, round));
        stamps.write(GroupNo(round + 1), SEQ + 1);
        pids.iter().for_each(|&pid| assert_eq!(least(&stamps, [pid]), [round * 10_000 + pid]));
    }
}

#[test]
fn a_page_that_redo_makes_anew_is_compared_with_its_notes_only() {
    let stamps = open(&fs());
    note(&stamps, 7, 100, 3);
    stamps.write(GroupNo(9), SEQ + 1);
    stamps.note_rebuilt(PageId(7), Lsn(101));
    assert_eq!(least(&stamps, [7]), [100], "it is not below its stamp");
    stamps.note_rebuilt(PageId(7), Lsn(50));
    assert_eq!(least(&stamps, [7]), [0]);
    note(&stamps, 7, 60, 9);
    assert_eq!(least(&stamps, [7]), [60]);
    assert!(stamps.has_rebuilt());
    stamps.end_redo();
    assert!(!stamps.has_rebuilt());
    assert_eq!(least(&stamps, [7]), [100]);
}

#[test]
fn only_a_sound_page_below_its_stamp_is_stale() {
    let mut page = blank_page(PageId(7));
    page[AT_LSN] = 50;
    assert!(Stamps::is_stale(&page, Lsn(51)) && !Stamps::is_stale(&page, Lsn(50)));
    page[AT_TYPE] = PageType::Quarantined as u8;
    assert!(!Stamps::is_stale(&page, Lsn(51)));
}

/// The file with the stamps 100 and 200 of pages 7 and 600, and what `damage` does to its bytes.
fn damaged(damage: impl FnOnce(&mut Vec<u8>)) -> Mem {
    let fs = fs();
    let stamps = open(&fs);
    note(&stamps, 7, 100, 1);
    note(&stamps, 600, 200, 1);
    stamps.write(GroupNo(2), SEQ + 1);
    let file = fs.open(Path::new(PATH)).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    damage(&mut bytes);
    file.set_len(0).unwrap();
    file.write_at(&bytes, 0).unwrap();
    fs
}

/// Stamps of pages 7 and 600, and whether the file was made anew. The next write and open have all that is written.
fn found(fs: &Mem) -> ([u64; 2], bool) {
    let stamps = open(fs);
    let found = (least(&stamps, [7, 600]), stamps.stats().is_new);
    assert_eq!(stamps.stats().failures, 0);
    note(&stamps, 7, 300, 5);
    note(&stamps, 600, 300, 5);
    stamps.write(GroupNo(6), SEQ + 1);
    assert_eq!(least(&open(fs), [7, 600]), [300, 300]);
    found
}

#[test]
fn what_is_left_of_a_damaged_file_counts() {
    assert_eq!(found(&damaged(|_| {})), ([100, 200], false));
    assert_eq!(found(&damaged(|bytes| bytes.truncate(2 * BLOCK))), ([100, 0], false), "a missing tail");
    assert_eq!(found(&damaged(|bytes| bytes.truncate(2 * BLOCK - 1))), ([100, 0], false));
    assert_eq!(found(&damaged(|bytes| bytes[BLOCK..BLOCK + 512].fill(9))), ([0, 200], false), "a torn block");
    assert_eq!(found(&damaged(|bytes| bytes[20] ^= 1)), ([0, 0], true), "the header");
    assert_eq!(found(&damaged(|bytes| bytes[0] ^= 1)), ([0, 0], true));
    assert_eq!(found(&damaged(Vec::clear)), ([0, 0], true));
    let missing = damaged(|_| {});
    missing.remove(Path::new(PATH)).unwrap();
    missing.create(Path::new("db/stamps.tmp")).unwrap().write_at(b"begun", 0).unwrap();
    assert_eq!(found(&missing), ([0, 0], true));
    assert!(missing.kind(Path::new("db/stamps.tmp")).unwrap().is_none());
}

#[test]
fn stamps_of_another_moment_do_not_count() {
    let fs = damaged(|_| {});
    let open_at = |seq| {
        let (stamps, path) = (Stamps::new(64), Path::new(PATH));
        stamps.open(Stamps::find(&fs, path, UUID, seq).unwrap(), &fs, path, UUID, true);
        stamps
    };
    let stamps = open_at(SEQ + 1);
    assert_eq!([99, 100].map(|end| stamps.least(PageId(7), Lsn(end)).0), [0, 100], "above the end of the log");
    note(&stamps, 7, 50, 1);
    assert_eq!(stamps.least(PageId(7), Lsn(99)).0, 50, "the note counts");
    assert_eq!(least(&open_at(SEQ), [7, 600]), [100, 200], "a crash before the superblock");
    let stamps = open_at(SEQ - 1);
    assert!(stamps.stats().is_new);
    assert_eq!(least(&stamps, [7, 600]), [0, 0]);
    assert_eq!(least(&open_at(SEQ + 1), [7, 600]), [0, 0], "they are gone");
}

/// A file whose second block cannot be read, as long as it was not written.
#[derive(Debug)]
struct Unreadable(Arc<dyn File>, OnceLock<()>);

impl FileLayer for Unreadable {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if offset == BLOCK as u64 && self.1.get().is_none() {
            return Err(Error::io("read", self.path(), std::io::Error::from_raw_os_error(5)));
        }
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        if offset == BLOCK as u64 {
            let _ = self.1.set(());
        }
        self.0.write_at(buf, offset)
    }
}

#[test]
fn a_block_that_cannot_be_read_has_no_stamps_until_it_is_written() {
    let fs = damaged(|_| {});
    let file = Arc::new(Unreadable(fs.open(Path::new(PATH)).unwrap(), OnceLock::new()));
    let stamps = Stamps::new(64);
    stamps.open(FoundStamps::Sound(file), &fs, Path::new(PATH), UUID, true);
    for _ in 0..3 {
        assert_eq!(least(&stamps, [7, 600]), [0, 200]);
    }
    assert_eq!(stamps.stats().failures, 1, "it is read once");
    stamps.note_rebuilt(PageId(7), Lsn(101));
    assert!(stamps.has_rebuilt(), "its stamp is not known");
    stamps.end_redo();
    note(&stamps, 8, 90, 1);
    stamps.write(GroupNo(2), SEQ + 1);
    assert_eq!(least(&stamps, [7, 8, 600]), [0, 90, 200]);
    assert_eq!((least(&open(&fs), [7, 8, 600]), stamps.stats().failures), ([0, 90, 200], 1));
}

#[test]
fn a_file_of_another_database_or_of_a_newer_format_is_refused() {
    let fs = damaged(|_| {});
    assert!(matches!(open_for(&fs, Uuid([2; 16])), Err(Error::Foreign { path, .. }) if path.ends_with("stamps")));
    let newer = damaged(|bytes| {
        bytes[12] = 9;
        crate::format::seal_block(&mut bytes[..BLOCK]);
    });
    assert!(matches!(open_for(&newer, UUID), Err(Error::Newer { found: 9, .. })));
}

#[test]
fn a_file_that_must_not_be_created_is_not() {
    let (fs, path) = (fs(), PathBuf::from(PATH));
    let stamps = Stamps::new(64);
    stamps.open(Stamps::find(&fs, &path, UUID, SEQ).unwrap(), &fs, &path, UUID, false);
    note(&stamps, 7, 100, 1);
    stamps.write(GroupNo(2), SEQ + 1);
    assert_eq!((least(&stamps, [7]), stamps.stats()), ([0], StampStats::default()));
    assert!(fs.list(Path::new("db")).unwrap().is_empty());
}

/// A file that counts the blocks of each write, and its syncs as zero.
#[derive(Debug)]
struct Counting(Arc<dyn File>, Arc<std::sync::Mutex<Vec<usize>>>);

impl FileLayer for Counting {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.1.lock().unwrap().push(buf.len() / BLOCK);
        self.0.write_at(buf, offset)
    }

    fn sync(&self) -> Result<()> {
        self.1.lock().unwrap().push(0);
        self.0.sync()
    }
}

#[test]
fn adjacent_blocks_are_written_at_once_and_with_one_sync() {
    let fs = fs();
    drop(open(&fs));
    let counts = Arc::default();
    let file = Counting(fs.open(Path::new(PATH)).unwrap(), Arc::clone(&counts));
    let stamps = Stamps::new(1 << 14);
    stamps.open(FoundStamps::Sound(Arc::new(file)), &fs, Path::new(PATH), UUID, true);
    let pids: Vec<u64> = (0..80).chain([90]).flat_map(|block| (0..250).map(move |at| 256 * block + at)).collect();
    for round in [1, 2] {
        pids.iter().for_each(|&pid| note(&stamps, pid, 1000 * round + pid, round));
        stamps.write(GroupNo(round + 1), SEQ + 1);
        assert_eq!(stamps.stats().dropped, 0);
        let reopened = open(&fs);
        for &pid in &pids {
            assert_eq!((least(&stamps, [pid]), least(&reopened, [pid])), ([1000 * round + pid], [1000 * round + pid]));
        }
    }
    // The header, the first 16,384 notes, which end in block 65, and the others.
    assert_eq!(*counts.lock().unwrap(), [[1, 32, 32, 2, 0, 15, 1, 0]; 2].concat());
}

/// A file of which a block is read again just before it is written, as by other threads.
#[derive(Debug)]
struct Evicting(Arc<dyn File>, Arc<OnceLock<Arc<Stamps>>>);

impl FileLayer for Evicting {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        if let (Some(stamps), true) = (self.1.get(), offset >= BLOCK as u64) {
            // The other page has its block in the same slot.
            assert_eq!(least(stamps, [256 * MIN_BLOCKS as u64, 7])[0], 0);
        }
        self.0.write_at(buf, offset)
    }
}

#[test]
fn a_block_that_is_read_during_its_write_does_not_lack_what_is_written() {
    let fs = fs();
    drop(open(&fs));
    let users = Arc::<OnceLock<_>>::default();
    let file = Evicting(fs.open(Path::new(PATH)).unwrap(), Arc::clone(&users));
    let stamps = Arc::new(Stamps::new(64));
    stamps.open(FoundStamps::Sound(Arc::new(file)), &fs, Path::new(PATH), UUID, true);
    users.set(Arc::clone(&stamps)).unwrap();
    note(&stamps, 7, 100, 1);
    stamps.write(GroupNo(2), SEQ + 1);
    assert_eq!(least(&stamps, [7]), [100]);
    note(&stamps, 8, 110, 2);
    stamps.write(GroupNo(3), SEQ + 1);
    assert_eq!((least(&stamps, [7, 8]), least(&open(&fs), [7, 8])), ([100, 110], [100, 110]));
}

/// A file of which the third block cannot be written.
#[derive(Debug)]
struct Unwritable(Arc<dyn File>);

impl FileLayer for Unwritable {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        if (offset..offset + buf.len() as u64).contains(&block_offset(2)) {
            return Err(Error::io("write to", self.path(), std::io::Error::from_raw_os_error(5)));
        }
        self.0.write_at(buf, offset)
    }
}

#[test]
fn a_block_that_cannot_be_written_costs_no_stamp_of_another() {
    let fs = fs();
    drop(open(&fs));
    let file = Unwritable(fs.open(Path::new(PATH)).unwrap());
    let stamps = Stamps::new(64);
    stamps.open(FoundStamps::Sound(Arc::new(file)), &fs, Path::new(PATH), UUID, true);
    let pids = [7, 300, 600, 800];
    pids.iter().for_each(|&pid| note(&stamps, pid, 100, 1));
    stamps.write(GroupNo(2), SEQ + 1);
    assert_eq!((least(&open(&fs), pids), stamps.stats().failures), ([100, 100, 0, 100], 2));
}
