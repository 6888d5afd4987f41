//! Creating a database: private files, and no moment at which a crash leaves an empty database in the place of a full one.

use crate::support::{DIR, NUMBERS, TempDir, closed_database, open, small};
use foreshore::Error;
use foreshore_io::{Fs, Mem};
use std::{os::unix::fs::PermissionsExt, path::Path, sync::Arc};

#[test]
fn directories_are_0700_and_files_0600() {
    let dir = TempDir::new("create");
    let path = dir.path().join("new");
    let db = small().open(&path).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("log")), 0o700);
    let mut files = 0;
    for dir in [path.clone(), path.join("log")] {
        for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            assert_eq!(mode(&entry), 0o600, "{}", entry.display());
            files += 1;
        }
    }
    assert!(files >= 5, "{files} files");
    drop(db);
}

#[test]
fn a_creation_that_was_cut_short_is_begun_anew() {
    // Every mixture of files that creation may leave, under its marker.
    let sound = closed_database();
    for kept in 0..=sound.0.len() {
        let mut files = sound.clone();
        files.0.truncate(kept);
        let fs = files.restore();
        fs.create(&Path::new(DIR).join("UNFINISHED")).unwrap();
        let db = open(&fs).unwrap();
        assert_eq!(db.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap(), None, "nothing had been acknowledged");
        assert_eq!(fs.kind(&Path::new(DIR).join("UNFINISHED")).unwrap(), None);
        db.check().unwrap();
    }
}

#[test]
fn files_that_are_missing_are_not_a_creation() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    fs.create_dir(Path::new(DIR)).unwrap();
    fs.create(&Path::new(DIR).join("dw")).unwrap();
    assert!(matches!(open(&fs), Err(Error::Corrupted { file, .. }) if file.starts_with(DIR)));
}

#[test]
fn a_directory_with_other_files_may_hold_a_database() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    fs.create_dir(Path::new(DIR)).unwrap();
    fs.create(&Path::new(DIR).join("notes.txt")).unwrap().write_at(b"mine", 0).unwrap();
    drop(open(&fs).unwrap());
    assert_eq!(crate::support::read(&fs, "notes.txt"), b"mine");
}
