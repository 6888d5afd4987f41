//! Repairs: of good, empty, live, damaged and foreign databases.

use crate::support::{Dir, close, contents, fill, foreshore};
use serde_json::json;
use std::fs;

/// A database with a backup beside it, and rows since.
fn with_backup(name: &str) -> (Dir, Dir, String) {
    let (dir, beside) = (Dir::new(name), Dir::new(&format!("{name}-backup")));
    let backup = beside.path().join("backup").to_str().unwrap().to_owned();
    let db = dir.open();
    db.backup(&backup).unwrap();
    fill(&db);
    close(db);
    (dir, beside, backup)
}

/// Changes a byte of a page, and leaves no image of it.
fn damage(dir: &Dir, page: usize) {
    let data = dir.path().join("data");
    let mut bytes = fs::read(&data).unwrap();
    bytes[page * 8192 + 4000] ^= 1;
    fs::write(&data, bytes).unwrap();
    let doublewrite = dir.path().join("dw");
    let mut bytes = fs::read(&doublewrite).unwrap();
    bytes[4096..].fill(0);
    fs::write(&doublewrite, bytes).unwrap();
}

#[test]
fn a_database_without_damage_stays_as_it_is() {
    let (dir, _beside, backup) = with_backup("repair-good");
    let before = contents(dir.path());
    let printed = dir.prints("repair", &["--backup", &backup]);
    assert!(printed.starts_with("pages: ") && printed.ends_with(", repaired: 0, damaged: 0\n"), "{printed}");
    let json = &dir.json("repair", &["--backup", &backup], 0)[0];
    assert_eq!((&json["repaired"], &json["dry_run"]), (&json!([]), &json!(false)));
    assert!(before == contents(dir.path()));
}

#[test]
fn damaged_pages_are_repaired_and_listed() {
    let (dir, _beside, backup) = with_backup("repair-damaged");
    let rows = dir.prints("dump", &[]);
    [3, 5].into_iter().for_each(|page| damage(&dir, page));
    let before = contents(dir.path());
    let dry = dir.prints("repair", &["--backup", &backup, "--dry-run"]);
    assert!(dry.contains("page 3: the checksum of the page does not fit: can be repaired from the "), "{dry}");
    assert!(before == contents(dir.path()));
    let json = &dir.json("repair", &["--backup", &backup], 0)[0];
    let pages: Vec<_> = json["repaired"].as_array().unwrap().iter().map(|page| page["page"].clone()).collect();
    assert_eq!(pages, [json!(3), json!(5)]);
    assert_eq!(dir.prints("dump", &[]), rows);
    assert_eq!(dir.run("check", &[]).code, 0);
}

#[test]
fn a_page_that_is_not_repaired_ends_it_with_1() {
    let (dir, beside, backup) = with_backup("repair-left");
    damage(&dir, 3);
    let image = beside.path().join("backup/data");
    let mut bytes = fs::read(&image).unwrap();
    bytes[3 * 8192 + 4000] ^= 1;
    fs::write(&image, bytes).unwrap();
    let before = contents(dir.path());
    let ran = dir.run("repair", &["--backup", &backup]);
    assert_eq!((ran.code, &*ran.errors), (1, ""), "{ran:?}");
    assert!(ran.output.contains(": not repaired: the backup has no sound image"), "{ran:?}");
    let json = &dir.json("repair", &["--backup", &backup], 1)[0];
    assert_eq!((&json["repaired"], &json["unrepaired"][0]["page"]), (&json!([]), &json!(3)));
    assert!(before == contents(dir.path()));
}

#[test]
fn live_absent_and_foreign_directories_are_refused() {
    let (dir, _beside, backup) = with_backup("repair-refused");
    let none = Dir::new("repair-none");
    none.run("repair", &["--backup", &backup]).is_refused(3, "there is no database in");
    assert!(contents(none.path()).is_empty());
    let (other, nothing) = (Dir::with_database("repair-other"), none.path().to_str().unwrap());
    let before = contents(other.path());
    other.run("repair", &["--backup", &backup]).is_refused(4, "backup/data does not belong to this database");
    other.run("repair", &["--backup", nothing]).is_refused(4, "there is no database in");
    assert!(before == contents(other.path()));
    let within = dir.path().join("within");
    fs::create_dir(&within).unwrap();
    dir.run("repair", &["--backup", within.to_str().unwrap()]).is_refused(4, "there is no database in");
    fs::remove_dir(&within).unwrap();
    let db = dir.open();
    for words in [&["--backup", backup.as_str()][..], &["--backup", &backup, "--dry-run"]] {
        dir.run("repair", words).is_refused(3, "is already open");
    }
    close(db);
    (0..2).for_each(|slot| {
        let data = dir.path().join("data");
        let mut bytes = fs::read(&data).unwrap();
        bytes[slot * 8192 + 100] ^= 1;
        fs::write(data, bytes).unwrap();
    });
    dir.run("repair", &["--backup", &backup]).is_refused(3, "no superblock is sound");
    assert_eq!(foreshore(["repair".as_ref(), dir.path().as_os_str()].into_iter(), None).code, 2, "no backup is named");
}
