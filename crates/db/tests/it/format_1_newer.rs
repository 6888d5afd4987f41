//! A file of a newer version, or with a feature that this build does not know, is refused by name, and nothing is
//! written.

use crate::format_1::{BACKUPS, CLOSED, on};
use crate::format_1_files::Files;
use crate::format_1_rows::{NUMBERS, check};
use crate::support::DIR;
use foreshore::{Db, Error};
use foreshore_base::codec::u64_at;
use foreshore_base::crc32c;
use foreshore_io::Fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const BLOCK: usize = 4096;
/// Place of the checksum in superblocks and in the blocks of a log.
const LAST: usize = BLOCK - 4;
/// Place in superblocks of the features that writers have to know.
const WRITE_FEATURES: usize = 4056;

/// A change of a block.
type Change<'c> = &'c dyn Fn(&mut [u8]);

/// Sets a field of four bytes.
fn set(block: &mut [u8], at: usize, field: u32) {
    block[at..at + 4].copy_from_slice(&field.to_le_bytes());
}

/// Does what must be refused, and checks that the error names the file and that no file has changed.
fn is_refused<T: std::fmt::Debug>(files: &Files, path: &str, work: impl FnOnce(&Arc<dyn Fs>) -> Result<T, Error>) {
    let fs = files.restore();
    match work(&fs) {
        Err(Error::Newer { path: named, found: 2, supported: 1 }) => assert_eq!(named, Path::new(path)),
        other => panic!("{path}: {other:?}"),
    }
    assert!(files.again(&fs) == *files, "{path}: a file was written");
}

fn open(fs: &Arc<dyn Fs>) -> Result<Db, Error> {
    on(fs).open(DIR)
}

/// Refuses to open the database for reading and writing, and for reading only.
fn is_not_opened(files: &Files, path: &str) {
    is_refused(files, path, open);
    is_refused(files, path, |fs| on(fs).open_read_only(DIR));
}

#[test]
fn a_superblock_with_a_newer_version_an_unknown_flag_or_a_feature() {
    for (at, field) in [(8, 2), (80, 2), (80, 1 << 31 | 1), (84, 1), (84, 1 << 31)] {
        // Either slot, whatever the other one says.
        for slot in [0, 2 * BLOCK] {
            let mut files = CLOSED[1].clone();
            files.forge("/db/data", slot, LAST, |block| set(block, at, field));
            is_not_opened(&files, "/db/data");
        }
    }
}

/// Such a database is read, and nothing else.
#[test]
fn a_feature_that_only_writers_have_to_know() {
    for field in [1, 1 << 31] {
        for slot in [0, 2 * BLOCK] {
            let mut files = CLOSED[1].clone();
            files.forge("/db/data", slot, LAST, |block| set(block, WRITE_FEATURES, field));
            is_refused(&files, "/db/data", open);
            is_refused(&files, "/db/data", |fs| on(fs).open_existing(DIR));
            let fs = files.restore();
            let db = on(&fs).open_read_only(DIR).unwrap();
            check(&db, 1);
            let db = db.reopen().unwrap();
            check(&db, 1);
            db.close(Duration::from_secs(10)).unwrap();
            assert!(files.again(&fs) == files, "a file was written");
        }
    }
}

#[test]
fn a_newer_doublewrite_file_and_newer_stamps() {
    for path in ["/db/dw", "/db/stamps"] {
        let mut files = CLOSED[1].clone();
        files.forge(path, 0, 8, |block| set(block, 12, 2));
        is_not_opened(&files, path);
    }
}

#[test]
fn a_newer_control_file_and_a_newer_segment() {
    for slot in [0, BLOCK] {
        let mut files = CLOSED[1].clone();
        files.forge("/db/log/ctl", slot, LAST, |block| set(block, 8, 2));
        is_not_opened(&files, "/db/log/ctl");
    }
    let mut files = CLOSED[1].clone();
    let (path, _) = last_group(&files);
    files.forge(&path, 0, LAST, |block| set(block, 8, 2));
    is_not_opened(&files, &path);
}

/// The list of backups is advice. It is made anew, and the next increment has no base.
#[test]
fn a_newer_list_of_backups_counts_as_empty() {
    let fs = CLOSED[1].restore();
    let db = open(&fs).unwrap();
    db.backup("/backup").unwrap();
    db.close(Duration::from_secs(10)).unwrap();
    let mut files = Files::of(&fs, &[DIR, "/db/log", "/backup", "/backup/log"]);
    let increment = |files: &Files| open(&files.restore()).unwrap().backup_since("/increment", "/backup");
    assert!(increment(&files).is_ok());
    files.forge("/db/backups", 0, 8, |block| set(block, 12, 2));
    let refused = increment(&files);
    assert!(matches!(refused, Err(Error::UnknownBase(_))), "{refused:?}");
}

/// The segment with the last group, and where the group begins.
fn last_group(files: &Files) -> (String, usize) {
    let groups = files.ending(".seg").into_iter().flat_map(|path| {
        let bytes = &files.0[&path];
        let starts = (BLOCK..bytes.len()).step_by(BLOCK).filter(|&at| bytes[at..].starts_with(b"FSHORGRP"));
        starts.map(|at| (u64_at(bytes, at + 32), path.clone(), at)).collect::<Vec<_>>()
    });
    groups.max().map(|(_, path, at)| (path, at)).unwrap()
}

#[test]
fn a_newer_group_of_the_log() {
    let mut files = CLOSED[1].clone();
    let (path, at) = last_group(&files);
    files.forge(&path, at, 92, |block| block[8] = 2);
    is_not_opened(&files, &path);
}

/// Its row, in the root of the catalogue, says so.
#[test]
fn a_newer_row_of_the_catalogue_or_one_with_an_unknown_flag() {
    for (at, byte) in [(0, 2), (1, 16)] {
        let mut files = CLOSED[1].clone();
        // The images of the doublewrite file would be put in the place of a page that differs.
        files.0.get_mut("/db/dw").unwrap()[BLOCK..].fill(0);
        let data = files.0.get_mut("/db/data").unwrap();
        let name = b"numbers";
        let rows: Vec<_> = (0..data.len() - 16).filter(|&at| data[at..].starts_with(b"numbers\x01\0\0\0")).collect();
        assert!(!rows.is_empty());
        for row in rows {
            data[row + name.len() + at] = byte;
            let page = row / 8192 * 8192;
            let crc = crc32c(&data[page + 4..page + 8192]);
            set(data, page, crc);
        }
        let opened = |db: Result<Db, Error>| db?.read().open(NUMBERS).map(drop);
        is_refused(&files, "/db/data", |fs| opened(on(fs).open_read_only(DIR)));
        // The row is read when the table is.
        let refused = opened(open(&files.restore()));
        assert!(matches!(refused, Err(Error::Newer { found: 2, .. })), "{refused:?}");
    }
}

#[test]
fn a_newer_backup_increment_or_archive() {
    let files = &BACKUPS[1];
    let chain = |fs: &Arc<dyn Fs>| {
        let full = foreshore::restore("/backup", "/restored").lab(Arc::clone(fs), 64 << 10);
        full.increment("/increment").archive("/archive").run()
    };
    chain(&files.restore()).unwrap();
    let token = |block: &mut [u8]| set(block, 12, 2);
    let version = |block: &mut [u8]| set(block, 8, 2);
    let feature = |block: &mut [u8]| set(block, 84, 1);
    let write_feature = |block: &mut [u8]| set(block, WRITE_FEATURES, 1);
    let mut changed: Vec<(String, usize, usize, Change<'_>)> = vec![
        ("/backup/token".into(), 0, 8, &token),
        ("/increment/token".into(), 0, 8, &token),
        ("/increment/log/ctl".into(), 0, LAST, &version),
    ];
    for data in ["/backup/data", "/increment/increment"] {
        let slot = if files.0[data].starts_with(b"FORESHOR") { 0 } else { 2 * BLOCK };
        changed.push((data.into(), slot, LAST, &version));
        changed.push((data.into(), slot, LAST, &feature));
        changed.push((data.into(), slot, LAST, &write_feature));
    }
    // The files before the last one have nothing behind the increment.
    changed.extend(files.ending(".arc").into_iter().next_back().map(|path| (path, 0, LAST, &version as _)));
    for (path, at, crc, change) in changed {
        let mut files = files.clone();
        files.forge(&path, at, crc, change);
        is_refused(&files, &path, chain);
        let fs = files.restore();
        chain(&fs).unwrap_err();
        let left = on(&fs).open_existing("/restored");
        assert!(left.is_err(), "{path}: {left:?}");
    }
}
