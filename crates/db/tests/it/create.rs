//! Creating a database: private files, and a crash never leaves an empty database in place of a full one.

use crate::support::{DIR, POLICIES, Snapshot, TempDir, fill, numbers, open, small};
use foreshore::Error;
use foreshore_base::crc32c;
use foreshore_io::sim::Persist;
use foreshore_io::{Fs, Mem, Sim};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

fn marker() -> PathBuf {
    Path::new(DIR).join("UNFINISHED")
}

/// A disk on which a database was created, from its first operation on.
fn creation(seed: u64) -> (Sim, foreshore::Db) {
    let sim = Sim::new(seed);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let db = small()
        .lab(|lab| {
            lab.background = false;
            lab.fs = Some(fs);
        })
        .open(DIR)
        .unwrap();
    (sim, db)
}

/// The marker of a creation, as it is while the creation goes on.
fn written_marker(sim: &Sim) -> Vec<u8> {
    let mut points = sim.crash_points();
    loop {
        let image = points.image(&Persist::All, 1);
        if image.kind(&Path::new(DIR).join("dw")).unwrap().is_some() {
            return image.contents(&marker()).unwrap();
        }
        assert!(points.advance());
    }
}

#[test]
fn a_creation_that_is_cut_short_anywhere_is_finished_or_begun_anew() {
    let (sim, db) = creation(1);
    drop(db);
    let (mut points, mut begun, mut done, mut again) = (sim.crash_points(), 0, 0, 0);
    loop {
        for policy in POLICIES {
            let image = points.image(&policy, points.op());
            let is_marked = image.kind(&marker()).unwrap().is_some();
            let is_made = image.kind(&Path::new(DIR).join("data")).unwrap().is_some();
            *(if is_marked { &mut begun } else { &mut done }) += u64::from(is_made);
            let open = |sim: &Sim| {
                small()
                    .lab(|lab| {
                        lab.background = false;
                        lab.fs = Some(Arc::new(sim.clone()));
                    })
                    .open(DIR)
            };
            let what = format!("operation {}, {policy:?}", points.op());
            let first = image.ops();
            let db = open(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(image.kind(&marker()).unwrap(), None, "{what}");
            fill(&db, 3);
            db.check().unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(db);
            // Power is lost once more, while what was left is removed or the creation goes on.
            let (mut second, ops) = (image.crash_points(), image.ops() - first);
            for at in [points.op() % 16, (points.op() * 7) % ops] {
                while second.op() < first + at && second.advance() {}
                let image = second.image(&policy, points.op());
                let db = open(&image).unwrap_or_else(|error| panic!("{what}, then {}: {error}", second.op()));
                db.check().unwrap();
                again += 1;
            }
        }
        if !points.advance() {
            break;
        }
    }
    assert!(begun > 20 && done > 20 && again > 100, "{begun} begun, {done} done, {again} cut short again");
}

/// Opening is refused, and nothing has changed.
fn refused(fs: &Arc<dyn Fs>, what: &str) {
    let before = (Snapshot::of(fs), fs.list(Path::new(DIR)).unwrap());
    let error = open(fs).expect_err(what);
    let is_typed = match &error {
        Error::Foreign { path, .. } => path.starts_with(DIR),
        Error::Corrupted { file, .. } | Error::Truncated { file, .. } => file.starts_with(DIR),
        Error::LostLog { .. } => true,
        _ => false,
    };
    assert!(is_typed, "{what}: {error:?}");
    let mut names = fs.list(Path::new(DIR)).unwrap();
    names.retain(|name| name != "LOCK" || before.1.contains(name));
    assert!((Snapshot::of(fs), names) == before, "{what}: files were changed");
}

#[test]
fn a_stray_marker_costs_nothing_whatever_else_is_wrong() {
    let (sim, db) = creation(2);
    fill(&db, 300);
    drop(db);
    let others = written_marker(&creation(3).0);
    let own = written_marker(&sim);
    let fs: Arc<dyn Fs> = Arc::new(sim);
    let sound = Snapshot::of(&fs);
    let zeros = |files: &mut Snapshot, range: std::ops::Range<usize>| files.file("data")[range].fill(0);
    let strays: [(&str, &[u8]); 4] =
        [("empty", b""), ("text", b"not finished\n"), ("another's", &others), ("its own", &own)];
    for (stray, bytes) in strays {
        let check = |what: &str, spoil: &dyn Fn(&mut Snapshot)| {
            let mut files = sound.clone();
            spoil(&mut files);
            let fs = files.restore();
            fs.create(&marker()).unwrap().write_at(bytes, 0).unwrap();
            refused(&fs, &format!("{stray} marker, {what}"));
        };
        check("sound", &|_| {});
        check("slot 0 zero", &|files| zeros(files, 0..4096));
        check("slot 1 zero", &|files| zeros(files, 8192..8192 + 4096));
        check("both slots zero", &|files| zeros(files, 0..16384));
        check("both slots damaged", &|files| (0..2).for_each(|slot| files.file("data")[slot * 8192 + 50] ^= 1));
        check("data empty", &|files| files.file("data").clear());
        check("data missing", &|files| files.0.retain(|(name, _)| name != "data"));
        check("data and dw missing", &|files| files.0.retain(|(name, _)| name.starts_with("log/")));
        check("log missing", &|files| files.0.retain(|(name, _)| !name.starts_with("log/")));
        check("log and dw missing", &|files| files.0.retain(|(name, _)| name == "data"));
    }
    let db = open(&sound.restore()).unwrap();
    assert_eq!(numbers(&db).len(), 300, "it was a sound database");
}

/// Both slots, of a later version.
fn newer_superblocks() -> Vec<u8> {
    let mut bytes = written_marker(&creation(4).0);
    bytes.copy_within(8192..8192 + 4096, 0);
    for slot in [0, 8192] {
        bytes[slot + 8] = 99;
        let crc = crc32c(&bytes[slot..slot + 4092]);
        bytes[slot + 4092..slot + 4096].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

#[test]
fn a_marker_with_nothing_beside_it_is_no_obstacle() {
    for bytes in [&b""[..], b"not finished\n", &newer_superblocks()] {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        fs.create_dir(Path::new(DIR)).unwrap();
        fs.create(&marker()).unwrap().write_at(bytes, 0).unwrap();
        drop(open(&fs).unwrap());
        assert_eq!(fs.kind(&marker()).unwrap(), None);
    }
}

#[test]
fn a_directory_with_files_of_something_else_is_foreign() {
    let foreign = |name: &str, bytes: &[u8]| {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let path = Path::new(DIR).join(name);
        fs.create_dir(path.parent().unwrap()).unwrap();
        fs.create(&path).unwrap().write_at(bytes, 0).unwrap();
        match open(&fs) {
            Err(Error::Foreign { path: named, .. }) => assert!(path.starts_with(named)),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(crate::support::read(&fs, name), bytes);
    };
    foreign("data", b"a,b\n1,2\n");
    foreign("data", &[7; 64 << 10]);
    foreign("data", b"");
    foreign("log/server.txt", b"started");
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
