//! Files that are not what they should be are refused with an error that says so, and nothing is written.

use crate::support::{DIR, Snapshot, closed_database, fill, in_memory, open, small};
use foreshore::{Error, Place};
use foreshore_base::crc32c;
use foreshore_io::{Fs, Mem};
use std::{path::Path, sync::Arc, time::Duration};

/// Opens `files`, which must fail, and checks that they stay as they are.
fn refused(files: &Snapshot) -> Error {
    let fs = files.restore();
    let error = open(&fs).expect_err("the files are not sound");
    let after = Snapshot::of(&fs);
    for ((name, before), (_, after)) in files.0.iter().zip(&after.0) {
        assert!(before == after, "{name} was written although it was refused with {error:?}");
    }
    assert_eq!(after.names(), files.names());
    error
}

fn segment(files: &Snapshot) -> String {
    files.names().into_iter().find(|name| name.ends_with(".seg")).unwrap()
}

#[test]
fn a_file_in_the_place_of_the_directory() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    fs.create(Path::new(DIR)).unwrap();
    assert!(matches!(open(&fs), Err(Error::Foreign { path, .. } | Error::Io { path, .. }) if path == Path::new(DIR)));
}

#[test]
fn a_file_in_the_place_of_the_log() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    fs.create_dir(Path::new(DIR)).unwrap();
    fs.create(&Path::new(DIR).join("log")).unwrap();
    assert!(matches!(open(&fs), Err(Error::Foreign { path, .. }) if path.ends_with("log")));
}

#[test]
fn files_of_something_else() {
    let sound = closed_database();
    for name in ["data".to_owned(), "dw".to_owned(), "log/ctl".to_owned(), segment(&sound)] {
        for foreign in [b"SQLite format 3\0".repeat(4096), vec![0; 64 << 10], b"short".to_vec()] {
            let mut files = sound.clone();
            *files.file(&name) = foreign;
            match refused(&files) {
                Error::Foreign { path, .. }
                | Error::Truncated { file: path, .. }
                | Error::Corrupted { file: path, .. } => {
                    assert!(path.starts_with(DIR), "{}", path.display());
                }
                Error::LostLog { .. } if name.ends_with(".seg") => {}
                error => panic!("{name}: {error:?}"),
            }
        }
    }
}

#[test]
fn files_of_another_database() {
    let (sound, mut other) = (closed_database(), closed_database());
    for name in ["data".to_owned(), "dw".to_owned(), "log/ctl".to_owned(), segment(&sound)] {
        let mut files = sound.clone();
        *files.file(&name) = other.file(&name).clone();
        match refused(&files) {
            Error::Foreign { path, .. } => assert!(path.starts_with(DIR), "{}", path.display()),
            error => panic!("{name}: {error:?}"),
        }
    }
}

#[test]
fn a_newer_version_in_the_data_file_and_the_doublewrite_file() {
    let sound = closed_database();
    let mut files = sound.clone();
    for slot in [0, 8192] {
        let block = &mut files.file("data")[slot..slot + 4096];
        block[8..12].copy_from_slice(&99_u32.to_le_bytes());
        let crc = crc32c(&block[..4092]);
        block[4092..].copy_from_slice(&crc.to_le_bytes());
    }
    assert!(matches!(refused(&files), Error::Newer { path, found: 99, .. } if path.ends_with("data")));
    let mut files = sound;
    let block = &mut files.file("dw")[..4096];
    block[12..16].copy_from_slice(&99_u32.to_le_bytes());
    let crc = crc32c(&block[12..]);
    block[8..12].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(refused(&files), Error::Newer { path, found: 99, .. } if path.ends_with("dw")));
}

#[test]
fn a_data_file_that_was_cut() {
    let sound = closed_database();
    let len = sound.clone().file("data").len();
    for keep in [len - 8192, 5 * 8192] {
        let mut files = sound.clone();
        files.file("data").truncate(keep);
        match refused(&files) {
            Error::Truncated { file, len, expected } => {
                assert!(file.ends_with("data") && len == keep as u64 && expected > len);
            }
            error => panic!("{keep} bytes kept: {error:?}"),
        }
    }
}

#[test]
fn a_missing_file() {
    let sound = closed_database();
    let mut names = sound.names();
    // Segments that were made ahead hold nothing.
    let segments: Vec<_> = names.iter().filter(|name| name.ends_with(".seg")).cloned().collect();
    // Without stamps it opens.
    names.retain(|name| (!segments.contains(name) || *name == segments[0]) && name != "stamps");
    for name in names {
        let mut files = sound.clone();
        files.0.retain(|(known, _)| *known != name);
        match refused(&files) {
            Error::Corrupted { file, place: Place::File, .. } => assert!(file.starts_with(DIR), "{}", file.display()),
            Error::LostLog { .. } | Error::Foreign { .. } | Error::Io { .. } if name.starts_with("log/") => {}
            error => panic!("{name}: {error:?}"),
        }
    }
}

#[test]
fn without_its_log_a_database_is_refused() {
    let mut files = closed_database();
    files.0.retain(|(name, _)| !name.ends_with(".seg"));
    refused(&files);
}

#[test]
fn one_damaged_superblock_is_repaired_from_the_other() {
    let (db, fs) = in_memory();
    fill(&db, 300);
    db.checkpoint().unwrap();
    fill(&db, 500);
    db.checkpoint().unwrap();
    db.close(Duration::ZERO).unwrap();
    for slot in [0, 8192] {
        let mut files = Snapshot::of(&fs);
        files.file("data")[slot + 60] ^= 1;
        let db = open(&files.restore()).unwrap();
        assert_eq!(crate::support::numbers(&db).len(), 500, "slot at {slot}");
        db.check().unwrap();
    }
}

#[test]
fn on_a_real_disk_a_foreign_file_is_refused() {
    let dir = crate::support::TempDir::new("foreign");
    small().open(dir.path()).unwrap();
    std::fs::write(dir.path().join("data"), b"SQLite format 3\0".repeat(4096)).unwrap();
    assert!(matches!(small().open(dir.path()), Err(Error::Foreign { path, .. }) if path.ends_with("data")));
}
