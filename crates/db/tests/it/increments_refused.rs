//! An increment is made of a base of the database's own history alone, and is restored behind its base alone. Nothing
//! else in the directories of databases and backups is trusted, and nothing locks a user out.

use crate::increments::{FIRST, SECOND, THIRD, chain};
use crate::restore::{BACKUP, TARGET};
use crate::script::{disk, options};
use crate::support::{DIR, NUMBERS, fill, numbers, small};
use foreshore::{Db, Error, Options, RestoreRefusal, Restored, TableDef, restore};
use foreshore_base::crc32c;
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_io::{Fs, Kind, Mem};
use foreshore_sync::pause;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const OTHER: &str = "/other";
const MORE: TableDef<u64, u64> = TableDef::new("more");

fn memory() -> Arc<dyn Fs> {
    Arc::new(Mem::null())
}

fn on(fs: &Arc<dyn Fs>) -> Options {
    small().lab(|lab| lab.fs = Some(Arc::clone(fs)))
}

fn bytes(fs: &Arc<dyn Fs>, path: &Path) -> Vec<u8> {
    let file = fs.open(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn write(fs: &Arc<dyn Fs>, path: &Path, bytes: &[u8]) {
    if fs.kind(path).unwrap().is_some() {
        fs.remove(path).unwrap();
    }
    fs.create(path).unwrap().write_at(bytes, 0).unwrap();
}

/// Copies the files of a closed database over those in another directory, except for some names.
fn copy_files(fs: &Arc<dyn Fs>, from: &str, to: &str, except: &[&str]) {
    copy_between((fs, from), (fs, to), except);
}

fn copy_between((of, from): (&Arc<dyn Fs>, &str), (fs, to): (&Arc<dyn Fs>, &str), except: &[&str]) {
    let (from, to) = (Path::new(from), Path::new(to));
    for dir in [to.to_owned(), to.join("log")] {
        fs.create_dir(&dir).unwrap();
        let names = fs.list(&dir).unwrap();
        for name in names.iter().filter(|name| *name != "log" && !except.contains(&&***name)) {
            fs.remove(&dir.join(name)).unwrap();
        }
    }
    let log = of.list(&from.join("log")).unwrap().into_iter().map(|name| format!("log/{name}"));
    let names: Vec<String> = of.list(from).unwrap().into_iter().filter(|name| name != "log").chain(log).collect();
    for name in names.iter().filter(|name| !except.contains(&&***name)) {
        write(fs, &to.join(name), &bytes(of, &from.join(name)));
    }
}

#[track_caller]
fn is_unknown(db: &Db, base: &str, dir: &str) {
    match db.backup_since("/refused", base) {
        Err(Error::UnknownBase(why)) => {
            assert_eq!((&*why.base, &*why.dir), (Path::new(base), Path::new(dir)));
            let text = Error::UnknownBase(why).to_string();
            assert!(text.contains(base) && text.contains(dir) && text.contains("take a full backup"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

fn restored_is(fs: &Arc<dyn Fs>, increments: &[&str], db: &Db) {
    let target = format!("{TARGET}{}", increments.concat().replace('/', "-"));
    chain(fs, &target, increments).run().unwrap();
    let copy = on(fs).open(&target).unwrap();
    copy.check().unwrap();
    assert!(numbers(&copy) == numbers(db), "{increments:?}");
}

/// A copy of the files of a closed database has the same uuid, and both go on. Each knows the backups from before the
/// copy was made, and its own. What they have made since does not mix.
#[test]
fn two_copies_of_a_database_go_on_with_their_own_increments() {
    let fs = memory();
    let db = on(&fs).open(DIR).unwrap();
    fill(&db, 3000);
    db.backup(BACKUP).unwrap();
    fill(&db, 6000);
    db.close(Duration::ZERO).unwrap();
    copy_files(&fs, DIR, OTHER, &[]);
    let [one, other] = [DIR, OTHER].map(|dir| on(&fs).open(dir).unwrap());
    one.run(|tx| (0..1000).try_for_each(|n| tx.open(NUMBERS)?.put(n, 1))).unwrap();
    other.run(|tx| (500..1500).try_for_each(|n| tx.open(NUMBERS)?.put(n, 2))).unwrap();
    for db in [&one, &other] {
        db.checkpoint().unwrap();
    }
    one.backup_since(FIRST, BACKUP).unwrap();
    other.backup_since(SECOND, BACKUP).unwrap();
    restored_is(&fs, &[FIRST], &one);
    restored_is(&fs, &[SECOND], &other);
    is_unknown(&other, FIRST, OTHER);
    is_unknown(&one, SECOND, DIR);
    one.backup_since(THIRD, FIRST).unwrap();
    restored_is(&fs, &[FIRST, THIRD], &one);
}

/// Files that are put back to a state from before a backup do not know it, even if the list of backups stays.
#[test]
fn files_that_are_put_back_know_no_later_backup() {
    for kept in [&[][..], &["backups"]] {
        let fs = memory();
        let db = on(&fs).open(DIR).unwrap();
        fill(&db, 1000);
        db.backup(BACKUP).unwrap();
        db.close(Duration::ZERO).unwrap();
        copy_files(&fs, DIR, OTHER, &[]);
        let db = on(&fs).open(DIR).unwrap();
        db.run(|tx| (0..1000).try_for_each(|n| tx.open(NUMBERS)?.put(n, 5))).unwrap();
        db.backup_since(FIRST, BACKUP).unwrap();
        db.close(Duration::ZERO).unwrap();
        copy_files(&fs, OTHER, DIR, kept);
        let mut db = on(&fs).open(DIR).unwrap();
        for _ in 0..2 {
            is_unknown(&db, FIRST, DIR);
            // The log is longer now than that of the backup.
            fill(&db, 4000);
            db = db.reopen().unwrap();
        }
        db.backup_since(SECOND, BACKUP).unwrap();
        restored_is(&fs, &[SECOND], &db);
    }
}

/// A copy of the files that has gone on by itself, further than the backup, takes their place. The list stays.
#[test]
fn files_of_another_history_know_no_backup_even_if_its_list_stays() {
    for is_closed in [true, false] {
        let fs = memory();
        let db = on(&fs).open(DIR).unwrap();
        fill(&db, 1000);
        db.backup(BACKUP).unwrap();
        db.close(Duration::ZERO).unwrap();
        copy_files(&fs, DIR, OTHER, &["backups"]);
        let db = on(&fs).open(DIR).unwrap();
        db.run(|tx| (0..1000).try_for_each(|n| tx.open(NUMBERS)?.put(n, 5))).unwrap();
        let first = db.backup_since(FIRST, BACKUP).unwrap();
        db.close(Duration::ZERO).unwrap();
        // Without threads its files stay as they are while they are copied.
        let other = on(&fs).lab(|lab| lab.background = is_closed).open(OTHER).unwrap();
        for n in 0..2000 {
            other.run(|tx| tx.open(NUMBERS)?.put(n % 900, 6)).unwrap();
        }
        other.sync().unwrap();
        if is_closed {
            other.close(Duration::ZERO).unwrap();
        }
        copy_files(&fs, OTHER, DIR, &["backups"]);
        let db = on(&fs).open(DIR).unwrap();
        assert!(db.backup(SECOND).unwrap().lsn > first.lsn);
        is_unknown(&db, FIRST, DIR);
        db.backup_since(THIRD, SECOND).unwrap();
    }
}

/// A state of the files from the middle of a backup, as a file system takes it, does not know the backup: it may have
/// pages from later. One from its end does.
#[test]
fn a_state_from_the_middle_of_a_backup_does_not_know_it() {
    for (point, is_known) in [("backup: the log is copied", false), ("backup: the database knows it", true)] {
        let sim = disk(1);
        let db = options(&sim).open(DIR).unwrap();
        fill(&db, 2000);
        let (taken, hooked, of) = (Rc::new(RefCell::new(None)), db.clone(), sim.clone());
        let image = Rc::clone(&taken);
        pause::set(point, move || {
            *image.borrow_mut() = Some(of.crash_image(&Persist::All, 1));
            fill(&hooked, 3000);
        });
        db.backup(BACKUP).unwrap();
        pause::set("nowhere", || ());
        let image: Arc<dyn Fs> = Arc::new(taken.borrow_mut().take().unwrap());
        image.remove(&Path::new(BACKUP).join("data")).unwrap();
        copy_between((&(Arc::new(sim) as Arc<dyn Fs>), BACKUP), (&image, BACKUP), &[]);
        let db = on(&image).open(DIR).unwrap();
        db.run(|tx| (0..1500).try_for_each(|n| tx.open(NUMBERS)?.put(n, 5))).unwrap();
        if is_known {
            db.backup_since(FIRST, BACKUP).unwrap();
            restored_is(&image, &[FIRST], &db);
        } else {
            is_unknown(&db, BACKUP, DIR);
        }
    }
}

/// An error of the list does not keep the database from being copied. The copy is no base.
#[test]
fn a_backup_that_the_database_cannot_remember_is_no_base() {
    let base = disk(2);
    let db = options(&base).open(DIR).unwrap();
    fill(&db, 100);
    db.close(Duration::ZERO).unwrap();
    let mut forgotten = [0; 2];
    for (n, kind) in (0..60).flat_map(|n| [(n, FaultKind::Enospc), (n, FaultKind::Eio)]) {
        let sim = base.fork();
        let db = options(&sim).open(DIR).unwrap();
        sim.inject(Fault { at: sim.ops() + n, kind, sticky: false });
        if let Ok(backup) = db.backup(BACKUP)
            && !backup.is_base
        {
            forgotten[usize::from(kind == FaultKind::Eio)] += 1;
            is_unknown(&db, BACKUP, DIR);
            assert!(db.backup(FIRST).unwrap().is_base);
            db.backup_since(SECOND, FIRST).unwrap();
            restore(BACKUP, TARGET).lab(Arc::new(sim.clone()), 64 << 10).run().unwrap();
        }
    }
    assert!(forgotten[0] > 0 && forgotten[1] > 0, "{forgotten:?}");
}

/// A restored database, an opened backup and another database know none of the backups; and only the last ones are
/// known.
#[test]
fn bases_of_another_history_are_refused() {
    let fs = memory();
    let db = on(&fs).open(DIR).unwrap();
    fill(&db, 1000);
    db.backup(BACKUP).unwrap();
    db.backup_since(FIRST, BACKUP).unwrap();
    let other = on(&fs).open(OTHER).unwrap();
    is_unknown(&other, BACKUP, OTHER);
    is_unknown(&db, "/nothing", DIR);
    is_unknown(&db, OTHER, DIR);
    chain(&fs, TARGET, &[FIRST]).run().unwrap();
    assert_eq!(fs.kind(&Path::new(TARGET).join("backups")).unwrap(), None::<Kind>);
    let restored = on(&fs).open(TARGET).unwrap();
    is_unknown(&restored, BACKUP, TARGET);
    is_unknown(&restored, FIRST, TARGET);
    // Unfinished.
    fs.create(&Path::new(FIRST).join("UNFINISHED_BACKUP")).unwrap();
    assert!(matches!(db.backup_since(SECOND, FIRST), Err(Error::UnfinishedBackup { .. })));
    fs.remove(&Path::new(FIRST).join("UNFINISHED_BACKUP")).unwrap();
    for n in 0..15 {
        db.backup_since(format!("/more-{n}"), FIRST).unwrap();
    }
    is_unknown(&db, BACKUP, DIR);
    db.backup_since(SECOND, FIRST).unwrap();
    // Opened as a database: it knows no backup, and is no base any more.
    let opened = on(&fs).open(BACKUP).unwrap();
    is_unknown(&opened, FIRST, BACKUP);
    drop(opened);
    db.backup("/full").unwrap();
    drop(on(&fs).open("/full").unwrap());
    assert!(matches!(db.backup_since(THIRD, "/full"), Err(Error::Foreign { .. })));
}

/// A full backup that was opened has undone what committed later, and was cut off before its first superblock. Its log
/// does not say so. The LSNs of its pages are not behind the end of the increment, and the increment lacks these pages.
#[test]
fn a_full_backup_that_was_opened_is_refused_before_its_first_superblock() {
    let sim = disk(4);
    let db = options(&sim).open(DIR).unwrap();
    fill(&db, 1000);
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().put(7, -7).unwrap();
    db.checkpoint().unwrap();
    db.backup(BACKUP).unwrap();
    tx.commit().unwrap();
    (0..50).for_each(|n| db.run(|tx| tx.open(MORE)?.put(n, n)).unwrap());
    db.backup_since(FIRST, BACKUP).unwrap();
    let taken = Rc::new(RefCell::new(None));
    let (image, of) = (Rc::clone(&taken), sim.clone());
    pause::set("checkpoint: the record is durable", move || {
        image.borrow_mut().get_or_insert_with(|| of.crash_image(&Persist::All, 1));
    });
    drop(options(&sim).open(BACKUP).unwrap());
    pause::set("nowhere", || ());
    let image: Arc<dyn Fs> = Arc::new(taken.borrow_mut().take().unwrap());
    let refused = |why: &str| {
        for restored in [chain(&image, TARGET, &[FIRST]).run(), chain(&image, TARGET, &[FIRST]).verify()] {
            match restored {
                Err(Error::Foreign { path, why: found }) => {
                    assert_eq!((&*path, found), (Path::new("/backup/data"), why));
                }
                Err(Error::Corrupted { file, why: found, .. }) => {
                    assert_eq!((&*file, found), (Path::new("/backup/data"), why));
                }
                other => panic!("{other:?}"),
            }
        }
    };
    refused("it was opened as a database since the backup was made");
    // Even if the file that shows the open is gone, a page does.
    image.remove(&Path::new(BACKUP).join("stamps")).unwrap();
    refused("the page holds a change that the log has lost");
}

/// A database whose pages were all changed between the backups, so that no wrong chain is right by chance.
fn with_chain() -> (Arc<dyn Fs>, Db) {
    let fs = memory();
    let db = on(&fs).open(DIR).unwrap();
    for (n, dir) in [BACKUP, FIRST, SECOND, THIRD].into_iter().enumerate() {
        for rows in (0..20_000).step_by(2000).map(|from| from..from + 2000) {
            db.run(|tx| rows.clone().try_for_each(|key| tx.open(NUMBERS)?.put(key, n as i64))).unwrap();
        }
        db.checkpoint().unwrap();
        match n {
            0 => db.backup(dir).unwrap(),
            _ => db.backup_since(dir, [BACKUP, FIRST, SECOND][n - 1]).unwrap(),
        };
    }
    (fs, db)
}

fn refusal(restored: Result<Restored, Error>) -> RestoreRefusal {
    match restored {
        Err(Error::Restore(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_chain_with_a_missing_or_misplaced_part_is_refused() {
    let (fs, db) = with_chain();
    let wrong =
        |increment: &str, base: &str| RestoreRefusal::WrongBase { increment: increment.into(), base: base.into() };
    let refused = |increments: &[&str]| {
        let of_run = refusal(chain(&fs, TARGET, increments).run());
        assert_eq!(of_run, refusal(chain(&fs, TARGET, increments).verify()));
        of_run
    };
    assert_eq!(refused(&[SECOND]), wrong(SECOND, BACKUP));
    assert_eq!(refused(&[FIRST, THIRD]), wrong(THIRD, FIRST));
    assert_eq!(refused(&[SECOND, FIRST]), wrong(SECOND, BACKUP));
    assert_eq!(refused(&[FIRST, FIRST]), wrong(FIRST, FIRST));
    assert_eq!(refused(&[FIRST, BACKUP]), wrong(BACKUP, FIRST));
    db.backup("/full").unwrap();
    assert_eq!(refused(&["/full"]), wrong("/full", BACKUP));
    let alone = restore(FIRST, TARGET).lab(Arc::clone(&fs), 64 << 10);
    assert_eq!(refusal(alone.run()), RestoreRefusal::MissingBase { increment: FIRST.into() });
    let of_full = restore("/full", TARGET).increment(FIRST).lab(Arc::clone(&fs), 64 << 10);
    assert_eq!(refusal(of_full.verify()), wrong(FIRST, "/full"));
    // A base whose name is lost can be restored, but not continued.
    fs.remove(&Path::new(BACKUP).join("token")).unwrap();
    assert_eq!(refused(&[FIRST]), wrong(FIRST, BACKUP));
    chain(&fs, TARGET, &[]).run().unwrap();
}

/// Each byte of an increment that counts, in each part of a chain, is checked; so is its whole length.
#[test]
fn damage_is_refused_and_named() {
    let (fs, db) = with_chain();
    let check = |path: &Path, changed: &[u8], what: &str| {
        let sound = bytes(&fs, path);
        assert!(changed != sound, "{what}");
        write(&fs, path, changed);
        for restored in
            [chain(&fs, TARGET, &[FIRST, SECOND, THIRD]).run(), chain(&fs, TARGET, &[FIRST, SECOND, THIRD]).verify()]
        {
            match restored {
                Err(Error::Corrupted { file, .. }) => assert_eq!(file, path, "{what}"),
                Err(Error::Foreign { path: file, .. }) => assert_eq!(file, path, "{what}"),
                Err(Error::Restore(RestoreRefusal::WrongBase { .. })) if path.ends_with("token") => {}
                other => panic!("{what}: {other:?}"),
            }
        }
        write(&fs, path, &sound);
    };
    let packs = 2 * PAGE_SIZE;
    let of_full = Path::new(BACKUP).join("data");
    let mut without_page = bytes(&fs, &of_full);
    without_page[4 * PAGE_SIZE..][..PAGE_SIZE].fill(0);
    check(&of_full, &without_page, "a page of zeros in the full backup");
    for dir in [FIRST, THIRD] {
        for (name, offsets) in [
            ("token", vec![0, 9, 12, 30, 40, 50, 65, 85, 4095]),
            (
                "increment",
                vec![
                    packs,
                    packs + 9,
                    packs + 13,
                    packs + 20,
                    packs + 33,
                    packs + 41,
                    packs + 49,
                    packs + BLOCK,
                    packs + BLOCK + 100,
                    packs + BLOCK + 3 * PAGE_SIZE + 8000,
                ],
            ),
        ] {
            let path = Path::new(dir).join(name);
            for offset in offsets {
                let mut changed = bytes(&fs, &path);
                changed[offset] ^= 1;
                check(&path, &changed, &format!("byte {offset} of {path:?}"));
            }
        }
        let path = Path::new(dir).join("increment");
        let sound = bytes(&fs, &path);
        check(&path, &sound[..sound.len() - PAGE_SIZE], "a page is missing");
        check(&path, &sound[..packs], "all pages are missing");
        check(&path, &vec![0; sound.len()], "no superblock");
        // Packs of another increment, whose pages are all sound. Their ids and their number are the same.
        let of_other = bytes(&fs, &Path::new(SECOND).join("increment"));
        let mixed = [&sound[..packs], &of_other[packs..]].concat();
        check(&path, &mixed, "packs of another increment");
        let mut mixed = sound.clone();
        mixed[packs + BLOCK..][..PAGE_SIZE].copy_from_slice(&of_other[packs + BLOCK..][..PAGE_SIZE]);
        check(&path, &mixed, "a page of another increment");
    }
    restored_is(&fs, &[FIRST, SECOND, THIRD], &db);
    // The log of another increment, of which the same restart could read.
    db.run(|tx| tx.open(NUMBERS)?.put(1, -1)).unwrap();
    db.backup_since("/fourth", THIRD).unwrap();
    copy_files(&fs, THIRD, "/fourth", &["LOCK", "token", "increment"]);
    let mixed = chain(&fs, "/mixed", &[FIRST, SECOND, THIRD, "/fourth"]).run();
    assert!(matches!(&mixed, Err(Error::Corrupted { why, .. }) if why.contains("another backup")), "{mixed:?}");
}

/// A page that was quarantined since the base keeps its LSN, and is in the increment all the same.
#[test]
fn quarantined_pages_are_in_every_increment() {
    let fs = memory();
    let db = on(&fs).open(DIR).unwrap();
    fill(&db, 3000);
    db.checkpoint().unwrap();
    db.backup(BACKUP).unwrap();
    db.backup_since(FIRST, BACKUP).unwrap();
    db.close(Duration::ZERO).unwrap();
    let path = Path::new(DIR).join("data");
    let mut data = bytes(&fs, &path);
    let is_leaf = |page: &&mut [u8]| page[4] == 3 && page[5] == 0 && u16::from_le_bytes([page[32], page[33]]) > 100;
    let page = data.chunks_exact_mut(PAGE_SIZE).filter(is_leaf).nth(1).unwrap();
    page[4] = 4;
    let crc = crc32c(&page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
    write(&fs, &path, &data);
    // No start restores the page from its image.
    let images = Path::new(DIR).join("dw");
    let mut dw = bytes(&fs, &images);
    dw[BLOCK..].fill(0);
    write(&fs, &images, &dw);
    let db = on(&fs).open(DIR).unwrap();
    assert_eq!(db.backup_since(SECOND, FIRST).unwrap().quarantined, 1);
    assert_eq!(chain(&fs, TARGET, &[FIRST]).run().unwrap().quarantined, 0);
    assert_eq!(chain(&fs, "/second-target", &[FIRST, SECOND]).run().unwrap().quarantined, 1);
}

/// An increment is no database, however it is opened. A stray file of any of these names beside a database, or what is
/// no file, keeps it from nothing.
#[test]
fn an_increment_does_not_open_and_a_stray_file_locks_no_user_out() {
    let (fs, db) = with_chain();
    let names = |dir: &str| fs.list(Path::new(dir)).unwrap();
    let before = names(FIRST);
    for opened in [on(&fs).open(FIRST), on(&fs).open_existing(FIRST), on(&fs).open_read_only(FIRST)] {
        match opened.map(drop) {
            Err(Error::Foreign { path, why }) => {
                assert!(path.starts_with(FIRST) && why.contains("an incremental backup"), "{path:?}: {why}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(names(FIRST), before);
    let expected = numbers(&db);
    db.close(Duration::ZERO).unwrap();
    for is_dir in [false, true] {
        for name in ["increment", "token", "backups"] {
            let path = Path::new(DIR).join(name);
            if fs.kind(&path).unwrap().is_some() {
                fs.remove(&path).unwrap();
            }
            if is_dir { fs.create_dir(&path).unwrap() } else { write(&fs, &path, b"stray") }
        }
        let db = on(&fs).open(DIR).unwrap();
        assert!(numbers(&db) == expected);
        is_unknown(&db, THIRD, DIR);
        if !is_dir {
            // Its list takes the place of the file.
            let (full, more) = ("/full", "/of-full");
            db.backup(full).unwrap();
            db.backup_since(more, full).unwrap();
        }
        db.close(Duration::ZERO).unwrap();
    }
    // A directory with nothing but these is none of a database.
    fs.create_dir(Path::new("/new")).unwrap();
    fs.create_dir(Path::new("/new/increment")).unwrap();
    on(&fs).open("/new").unwrap();
    fs.create_dir(Path::new("/stray")).unwrap();
    write(&fs, Path::new("/stray/increment"), b"stray");
    on(&fs).open("/stray").unwrap();
}
