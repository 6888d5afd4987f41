//! The database lives with an archive that is damaged or forged, and what the archive lacks is named.

use crate::archive::{lost, read_blobs, update};
use crate::failing::{Failing, assert_later_restores, change, files};
use crate::restore::{ARCHIVE, BACKUP, TARGET, restore_on};
use crate::script::{disk, options};
use crate::support::{DIR, TempDir, fill, small};
use foreshore::{Db, Error, Until};
use foreshore_base::crc32c;
use foreshore_io::Fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Damages a file.
type Damage = fn(&mut Vec<u8>);

/// An old file that is not sound is counted and named, and the database opens. Restores that need it name it.
#[test]
fn a_damaged_old_file_does_not_stop_an_open() {
    let damages: [(&str, Damage); 4] = [
        ("a byte of the header", |bytes| bytes[40] ^= 1),
        ("cut short", |bytes| bytes.truncate(8192)),
        ("empty", Vec::clear),
        ("another version", |bytes| {
            bytes[8] = 2;
            let crc = crc32c(&bytes[..4092]);
            bytes[4092..4096].copy_from_slice(&crc.to_le_bytes());
        }),
    ];
    for (what, damage) in damages {
        let sim = disk(12);
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        let open = || options(&sim).archive(ARCHIVE).open(DIR).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let db = open();
        update(&db, 0);
        db.backup(BACKUP).unwrap();
        (0..300).for_each(|n| update(&db, n));
        drop(db);
        let files = files(&*fs);
        assert!(files.len() > 4);
        change(&*fs, &files[1], damage);
        let db = open();
        let stats = db.stats();
        let archive = stats.archive.unwrap();
        assert_eq!((archive.unsound_files, archive.files), (1, files.len() as u64 - 1), "{what}");
        assert!(archive.lost_groups > 0, "{what}: {archive:?}");
        let named = stats.archive_damage.unwrap().to_string();
        assert!(named.contains(files[1].to_str().unwrap()), "{what}: {named}");
        let refused = restore_on(&fs, TARGET, Until::End).run().unwrap_err().to_string();
        assert!(refused.contains(files[1].to_str().unwrap()), "{what}: {refused}");
        (0..300).for_each(|n| update(&db, n));
        db.archive().unwrap();
        assert!(db.stats().archive_failure.is_none(), "{what}");
    }
}

/// The log still has the groups of the newest file when that is found to be damaged. They are archived again.
#[test]
fn a_damaged_new_file_is_written_again() {
    let sim = disk(13);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let open = || options(&sim).archive(ARCHIVE).open(DIR).unwrap();
    let db = open();
    update(&db, 0);
    db.backup(BACKUP).unwrap();
    (0..100).for_each(|n| update(&db, n));
    db.archive().unwrap();
    (0..5).for_each(|n| update(&db, n + 50));
    drop(db);
    let newest = files(&*fs).pop().unwrap();
    change(&*fs, &newest, |bytes| bytes[40] ^= 1);
    let db = open();
    let archive = db.stats().archive.unwrap();
    assert_eq!((archive.unsound_files, archive.lost_groups), (1, 0), "{archive:?}");
    db.archive().unwrap();
    restore_on(&fs, TARGET, Until::End).run().unwrap();
    assert_eq!(read_blobs(&options(&sim).open(TARGET).unwrap()), read_blobs(&db));
    let aside = format!("{}.unsound", newest.display());
    assert!(fs.kind(Path::new(&aside)).unwrap().is_some(), "the damaged file is there");
    assert_eq!(db.reopen().unwrap().stats().archive.unwrap().unsound_files, 0);
}

/// Files that cannot be read for a while are no damage. They stay, and the archive goes on behind them once they can.
#[test]
fn files_that_cannot_be_read_for_a_while_stay() {
    let failing = Failing::new(17, io::ErrorKind::PermissionDenied);
    let fs: Arc<dyn Fs> = Arc::new(failing.below.clone());
    let db = failing.open();
    update(&db, 0);
    db.backup(BACKUP).unwrap();
    (0..100).for_each(|n| update(&db, n));
    drop(db);
    let before = files(&*fs);
    failing.fail(&["read"], u64::MAX);
    let db = failing.open();
    let stats = db.stats();
    assert_eq!(stats.archive.unwrap().unsound_files, before.len() as u64);
    assert!(matches!(stats.archive_failure, Some(Error::Io { op: "read", .. })), "{:?}", stats.archive_failure);
    update(&db, 7);
    assert!(matches!(db.archive(), Err(Error::Io { op: "read", .. })));
    assert_eq!(files(&*fs), before);
    failing.mend();
    db.archive().unwrap();
    let stats = db.stats();
    let archive = stats.archive.unwrap();
    assert_eq!((archive.unsound_files, archive.lost_groups), (0, 0), "{archive:?}");
    assert!(stats.archive_failure.is_none() && stats.archive_damage.is_none(), "{stats:?}");
    assert!(files(&*fs).starts_with(&before), "the files are there, and others behind them");
    restore_on(&fs, TARGET, Until::End).run().unwrap();
    assert_eq!(read_blobs(&options(&failing.below).open(TARGET).unwrap()), read_blobs(&db));
}

/// A file of the archive whose groups have an incarnation before that of the backup, with right checksums.
#[test]
fn an_archive_with_a_falling_incarnation_is_refused() {
    let sim = disk(14);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let mut db = options(&sim).archive(ARCHIVE).open(DIR).unwrap();
    update(&db, 0);
    db = db.reopen().unwrap();
    db.backup(BACKUP).unwrap();
    db.archive().unwrap();
    update(&db, 1);
    db.archive().unwrap();
    let newest = files(&*fs).pop().unwrap();
    change(&*fs, &newest, |bytes| {
        let (mut at, mut last) = (4096, None);
        while at < bytes.len() {
            let len = u32::from_le_bytes(bytes[at + 60..at + 64].try_into().unwrap()) as usize;
            bytes[at + 12..at + 16].fill(0);
            if let Some(before) = last {
                bytes[at + 64..at + 68].copy_from_slice(&u32::to_le_bytes(before));
            }
            let crc = crc32c(&bytes[at..at + 92]);
            bytes[at + 92..at + 96].copy_from_slice(&crc.to_le_bytes());
            last = Some(crc);
            at += len;
        }
        bytes[76..80].copy_from_slice(&last.unwrap().to_le_bytes());
        let crc = crc32c(&bytes[..4092]);
        bytes[4092..4096].copy_from_slice(&crc.to_le_bytes());
    });
    for refused in [restore_on(&fs, TARGET, Until::End).run(), restore_on(&fs, TARGET, Until::End).verify()] {
        assert!(matches!(&refused, Err(Error::Corrupted { file, .. }) if *file == newest), "{refused:?}");
    }
}

#[test]
fn a_link_in_an_archive_is_not_of_another_database() {
    let dir = TempDir::new("archive-link");
    let (data, archive) = (dir.path().join("db"), dir.path().join("archive"));
    let open = || small().archive(&archive).open(&data).unwrap();
    let db = open();
    fill(&db, 10);
    db.archive().unwrap();
    db.close(Duration::from_secs(20)).unwrap();
    let link = archive.join("09999999999999999999.arc");
    std::os::unix::fs::symlink("elsewhere", &link).unwrap();
    let db = open();
    let stats = db.stats();
    assert_eq!(stats.archive.unwrap().unsound_files, 1);
    let damage = stats.archive_damage.expect("the link");
    assert!(matches!(&damage, Error::Corrupted { .. }) && damage.to_string().contains("symbolic link"), "{damage}");
    assert!(!link.is_symlink(), "it was put aside");
    fill(&db, 20);
    db.archive().unwrap();
}

/// Returns a database whose archive ends with small files. Its log still has their groups.
fn with_small_files(open: impl Fn() -> Db) -> Db {
    let mut db = open();
    update(&db, 0);
    db.backup(BACKUP).unwrap();
    (0..100).for_each(|n| update(&db, n));
    for n in 0..4 {
        update(&db, n);
        db.archive().unwrap();
    }
    db = db.reopen().unwrap();
    db
}

/// Files between others are damaged, and the log still has their groups. They are archived again, and those behind them
/// stay as they are.
#[test]
fn a_hole_that_the_log_covers_is_filled() {
    let sim = disk(21);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let open = || options(&sim).archive(ARCHIVE).open(DIR).unwrap();
    drop(with_small_files(open));
    let before = files(&*fs);
    let [.., first, second, sound, third, _] = &before[..] else { panic!("{before:?}") };
    [first, second, third].into_iter().for_each(|path| change(&*fs, path, |bytes| bytes[40] ^= 1));
    let read = || {
        let mut all = Vec::new();
        change(&*fs, sound, |bytes| all.clone_from(bytes));
        all
    };
    let kept = read();
    let db = open();
    let archive = db.stats().archive.unwrap();
    assert_eq!((archive.unsound_files, archive.lost_groups), (3, 0), "{archive:?}");
    db.archive().unwrap();
    let archive = db.stats().archive.unwrap();
    assert_eq!(archive.lost_groups, 0, "{archive:?}");
    assert!(read() == kept, "a sound file stays");
    restore_on(&fs, TARGET, Until::End).run().unwrap();
    assert_eq!(read_blobs(&options(&sim).open(TARGET).unwrap()), read_blobs(&db));
    let archive = db.reopen().unwrap().stats().archive.unwrap();
    assert_eq!((archive.unsound_files, archive.lost_groups), (0, 0), "{archive:?}");
}

/// A file between others cannot be read, and the log still has its groups. It stays until it can be read.
#[test]
fn a_hole_that_cannot_be_read_waits() {
    let failing = Failing::new(22, io::ErrorKind::PermissionDenied);
    let fs: Arc<dyn Fs> = Arc::new(failing.below.clone());
    drop(with_small_files(|| failing.open()));
    let before = files(&*fs);
    failing.fail_of(&["read"], &before[before.len() - 3]);
    let db = failing.open();
    assert_eq!(lost(&db), 0);
    assert!(matches!(db.archive(), Err(Error::Io { op: "read", .. })));
    assert_eq!(files(&*fs), before);
    failing.mend();
    db.archive().unwrap();
    let archive = db.stats().archive.unwrap();
    assert_eq!((archive.unsound_files, archive.lost_groups), (0, 0), "{archive:?}");
    assert!(files(&*fs).starts_with(&before));
    restore_on(&fs, TARGET, Until::End).run().unwrap();
}

/// The budget is used up while a file waits to be read. The log is given up, the file stays, and the archive goes on.
#[test]
fn log_is_given_up_for_a_file_that_stays_unreadable() {
    let failing = Failing::new(23, io::ErrorKind::PermissionDenied);
    let fs: Arc<dyn Fs> = Arc::new(failing.below.clone());
    drop(with_small_files(|| failing.open()));
    let before = files(&*fs);
    failing.fail_of(&["read"], before.last().unwrap());
    let mut db = failing.open();
    (0..2000).for_each(|n| update(&db, n));
    let gap = lost(&db);
    assert!(gap > 0);
    db.archive().unwrap();
    assert!(files(&*fs).starts_with(&before), "it stays");
    assert!(files(&*fs).len() > before.len());
    failing.mend();
    db = db.reopen().unwrap();
    assert!((1..=gap).contains(&lost(&db)), "{} of {gap}", lost(&db));
    assert_later_restores(&failing, &db);
}

/// A file vanishes while another one waits to be read. What it had is lost, and the archive goes on.
#[test]
fn a_file_that_vanishes_while_another_waits_is_named() {
    let failing = Failing::new(24, io::ErrorKind::PermissionDenied);
    let fs: Arc<dyn Fs> = Arc::new(failing.below.clone());
    drop(with_small_files(|| failing.open()));
    let before = files(&*fs);
    let [.., gone, unread] = &before[..] else { panic!("{before:?}") };
    failing.fail_of(&["read"], unread);
    let mut db = failing.open();
    assert!(db.archive().is_err());
    fs.remove(gone).unwrap();
    failing.mend();
    update(&db, 1);
    db.archive().unwrap();
    let gap = lost(&db);
    assert!(gap > 0);
    db = db.reopen().unwrap();
    assert_eq!(lost(&db), gap);
    assert_later_restores(&failing, &db);
}

/// The oldest file is damaged, and the log has its groups no longer. They count as lost.
#[test]
fn a_damaged_first_file_is_a_gap() {
    let sim = disk(25);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let open = || options(&sim).archive(ARCHIVE).open(DIR).unwrap();
    let db = open();
    (0..300).for_each(|n| update(&db, n));
    drop(db);
    change(&*fs, &files(&*fs)[0], |bytes| bytes[40] ^= 1);
    let gap = lost(&open());
    assert!(gap > 0);
    assert_eq!(lost(&open()), gap);
}

/// The limit of an archive counts files that are not sound, and drops them like others.
#[test]
fn the_limit_drops_files_that_are_not_sound() {
    let sim = disk(26);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let limit = 512 << 10;
    let open = || options(&sim).archive(ARCHIVE).archive_limit(limit).open(DIR).unwrap();
    drop(with_small_files(open));
    let all = files(&*fs);
    // The oldest ones stay under their names, and the last one is put aside.
    all[..3].iter().chain(all.last()).for_each(|path| change(&*fs, path, |bytes| bytes[40] ^= 1));
    let db = open();
    let bytes = || {
        let names = fs.list(Path::new(ARCHIVE)).unwrap();
        names.iter().map(|name| fs.open(&Path::new(ARCHIVE).join(name)).unwrap().len().unwrap()).sum::<u64>()
    };
    db.archive().unwrap();
    assert_eq!(db.stats().archive.unwrap().bytes, bytes());
    for n in 0..600 {
        update(&db, n);
        assert!(bytes() <= limit + (64 << 10) + 4096, "{}", bytes());
    }
    db.archive().unwrap();
    assert_eq!(db.stats().archive.unwrap().bytes, bytes());
    assert!(fs.list(Path::new(ARCHIVE)).unwrap().iter().all(|name| !name.ends_with(".unsound")));
    assert_eq!(lost(&db), 0, "the gap is dropped");
}
