//! The database lives with an archive that fails, and what the archive lacks is named.

use crate::archive::{lost, read_blobs, update};
use crate::failing::{Failing, WRITES, assert_gap, assert_later_restores, files};
use crate::restore::{ARCHIVE, BACKUP, TARGET, restore_on};
use crate::script::{disk, options};
use crate::support::DIR;
use foreshore::{Error, Until};
use foreshore_io::Fs;
use foreshore_io::sim::{Fault, FaultKind, Persist};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Log waits for an archive that fails, up to the budget, and goes there when it works again. No writer fails.
#[test]
fn an_archive_that_fails_for_a_while_has_no_gap() {
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::TimedOut] {
        let failing = Failing::new(8, kind);
        let db = failing.open();
        update(&db, 0);
        db.backup(BACKUP).unwrap();
        for round in 0..4 {
            failing.fail(WRITES, u64::MAX);
            let before = db.stats().log_retained_bytes;
            // Each commit is a group of 4 KiB.
            (0..45).for_each(|n| update(&db, n));
            let stats = db.stats();
            assert!(matches!(stats.archive_failure, Some(Error::DiskFull { .. } | Error::Io { .. })), "round {round}");
            let archive = stats.archive.unwrap();
            assert!(archive.failures > 0 && archive.behind_bytes > 64 << 10 && archive.lost_groups == 0, "{archive:?}");
            assert!(stats.log_retained_bytes > before, "the log is kept");
            assert!(db.archive().is_err());
            failing.mend();
            (0..100).for_each(|n| update(&db, n));
            db.archive().unwrap();
            let stats = db.stats();
            assert!(stats.archive_failure.is_none() && stats.archive.unwrap().behind_bytes < 64 << 10, "{stats:?}");
        }
        update(&db, 77);
        db.archive().unwrap();
        let rows = read_blobs(&db);
        restore_on(&failing.fs(), TARGET, Until::End).run().unwrap();
        assert_eq!(read_blobs(&options(&failing.below).open(TARGET).unwrap()), rows);
    }
}

/// An archive that fails for longer does not stop the database, and the log stays within twice its budget. What the
/// archive lacks is counted, also by later starts, and no restore passes it. A later backup restores.
#[test]
fn an_archive_that_fails_for_long_has_a_gap_that_is_named() {
    let failing = Failing::new(8, io::ErrorKind::StorageFull);
    let mut db = failing.open();
    (0..100).for_each(|n| update(&db, n));
    db.backup(BACKUP).unwrap();
    db.archive().unwrap();
    failing.fail(WRITES, u64::MAX);
    let mut most = 0;
    for n in 0..4000 {
        update(&db, n);
        most = most.max(db.stats().log_retained_bytes);
    }
    let archive = db.stats().archive.unwrap();
    assert!(archive.lost_groups > 0 && archive.lost_upto.0 >= archive.lost_groups, "{archive:?}");
    // Budget and a quarter for restarts, once the budget for the archive, and segments that are not full.
    assert!(most > 300 << 10 && most < (256 << 10) * 9 / 4 + (256 << 10), "{most} bytes of log");
    failing.mend();
    (0..100).for_each(|n| update(&db, n));
    db.archive().unwrap();
    let archive = db.stats().archive.unwrap();
    assert_gap(&failing.fs());
    db = db.reopen().unwrap();
    let again = db.stats().archive.unwrap();
    assert_eq!((again.lost_groups, again.lost_upto), (archive.lost_groups, archive.lost_upto));
    assert_later_restores(&failing, &db);
}

/// One error while much log waits is no failure of the archive: the attempt is repeated, and nothing is lost.
#[test]
fn one_error_of_an_archive_that_is_behind_leaves_no_gap() {
    let failing = Failing::new(9, io::ErrorKind::TimedOut);
    let db = failing.open();
    update(&db, 0);
    db.backup(BACKUP).unwrap();
    let put = |n: u64| db.run(|tx| tx.open(crate::archive::BLOBS)?.put(n % 50, &[n as u8; 500][..])).unwrap();
    // No step of the archiver runs.
    (0..300).for_each(put);
    assert!(db.stats().archive.unwrap().behind_bytes > 1 << 20);
    failing.fail(WRITES, 1);
    (0..3).for_each(|_| db.checkpoint().unwrap());
    let archive = db.stats().archive.unwrap();
    assert_eq!((archive.failures, archive.lost_groups), (1, 0));
    db.archive().unwrap();
    restore_on(&failing.fs(), TARGET, Until::End).run().unwrap();
    assert_eq!(read_blobs(&options(&failing.below).open(TARGET).unwrap()), read_blobs(&db));
}

/// The disk of the log is full, and the archive fails. Writers go on, and the archive has a gap that is named. A full
/// disk that is mended soon leaves none.
#[test]
fn writers_on_a_full_disk_go_on_when_the_archive_fails() {
    for (seed, fails) in [(10, true), (11, false)] {
        let failing = Failing::new(seed, io::ErrorKind::TimedOut);
        let db = failing.open();
        (0..300).for_each(|n| update(&db, n));
        db.backup(BACKUP).unwrap();
        db.archive().unwrap();
        let at = failing.below.ops();
        failing.below.inject(Fault { at, kind: FaultKind::Enospc, sticky: true });
        if fails {
            failing.fail(WRITES, u64::MAX);
            (0..2000).for_each(|n| update(&db, n));
            assert!(lost(&db) > 0);
            failing.mend();
        } else {
            // Without space nothing is archived, until there is some.
            (0..40).for_each(|n| update(&db, n));
        }
        failing.below.clear_faults();
        (0..300).for_each(|n| update(&db, n));
        db.archive().unwrap();
        assert!(db.stats().archive_failure.is_none());
        if fails {
            assert_gap(&failing.fs());
            assert_later_restores(&failing, &db);
        } else {
            assert_eq!(lost(&db), 0);
            restore_on(&failing.fs(), TARGET, Until::End).run().unwrap();
        }
        db.check().unwrap();
    }
}

/// A close archives the end of the log, also when transactions are left.
#[test]
fn a_close_with_open_transactions_archives_the_end() {
    let sim = disk(15);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let db = options(&sim).archive(ARCHIVE).open(DIR).unwrap();
    update(&db, 0);
    db.backup(BACKUP).unwrap();
    (0..10).for_each(|n| update(&db, n));
    let rows = read_blobs(&db);
    let tx = db.begin();
    tx.open(crate::archive::BLOBS).unwrap().put(1, &[9; 10][..]).unwrap();
    db.close(Duration::from_millis(1)).unwrap();
    drop(tx);
    restore_on(&fs, TARGET, Until::End).run().unwrap();
    assert_eq!(read_blobs(&options(&sim).open(TARGET).unwrap()), rows);
}

/// Old files that cannot be removed, or were removed by hand, do not stop the archive.
#[test]
fn files_that_the_limit_cannot_drop_do_not_stop_the_archive() {
    let failing = Failing::new(16, io::ErrorKind::PermissionDenied);
    let db = failing.options().archive_limit(512 << 10).open(DIR).unwrap();
    failing.fail(&["remove"], u64::MAX);
    (0..400).for_each(|n| update(&db, n));
    db.archive().unwrap();
    let stats = db.stats();
    let archive = stats.archive.unwrap();
    assert!(archive.bytes > 512 << 10 && archive.dropped_files == 0 && archive.failures == 0, "{archive:?}");
    assert!(archive.lost_groups == 0 && archive.behind_bytes < 64 << 10, "{archive:?}");
    assert!(matches!(stats.archive_failure, Some(Error::Io { op: "remove", .. })), "{:?}", stats.archive_failure);
    failing.mend();
    failing.below.remove(&files(&failing.below)[0]).unwrap();
    update(&db, 1);
    db.archive().unwrap();
    let stats = db.stats();
    let archive = stats.archive.unwrap();
    assert!(archive.bytes <= 512 << 10 && archive.dropped_files > 1 && stats.archive_failure.is_none(), "{stats:?}");
    assert_eq!(files(&failing.below).len() as u64, archive.files);
}

/// A start finds a file whose name is in memory only, as the sync of its directory had failed. It gives up the log of
/// that file only when the name is durable.
#[test]
fn a_start_syncs_the_names_that_it_finds() {
    let failing = Failing::new(17, io::ErrorKind::TimedOut);
    let db = failing.open();
    (0..100).for_each(|n| update(&db, n));
    db.backup(BACKUP).unwrap();
    db.archive().unwrap();
    failing.fail(&["sync_dir"], u64::MAX);
    (0..45).for_each(|n| update(&db, n));
    assert!(db.archive().is_err());
    drop(db);
    failing.mend();
    let named = files(&failing.below);
    let db = failing.open();
    let rows = read_blobs(&db);
    let image = failing.below.crash_image(&Persist::None, 0);
    let fs: Arc<dyn Fs> = Arc::new(image.clone());
    assert_eq!(files(&*fs), named);
    let db = options(&image).archive(ARCHIVE).open(DIR).unwrap();
    assert_eq!(lost(&db), 0);
    db.archive().unwrap();
    restore_on(&fs, TARGET, Until::End).run().unwrap();
    assert_eq!(read_blobs(&options(&image).open(TARGET).unwrap()), rows);
}

/// The device of the archive hangs while the disk of the log is full. Writers go on, and the archive has a gap that is
/// named.
#[test]
fn writers_on_a_full_disk_go_on_when_the_archive_hangs() {
    let failing = Failing::new(18, io::ErrorKind::TimedOut);
    // The budget is so large that the disk is full before it is used up.
    let options = failing.options().memory_limit(16 << 20).log_budget(4 << 20).lab(|lab| lab.background = true);
    let db = options.open(DIR).unwrap();
    let put = |n: u64| db.run(|tx| tx.open(crate::archive::BLOBS)?.put(n % 50, &[n as u8; 500][..]));
    (0..300).try_for_each(put).unwrap();
    db.backup(BACKUP).unwrap();
    db.archive().unwrap();
    let before = lost(&db);
    failing.hang(&["create"]);
    failing.below.inject(Fault { at: failing.below.ops(), kind: FaultKind::Enospc, sticky: true });
    let went_on = (0..600).try_for_each(put);
    let gap = lost(&db);
    // A close waits for the device.
    failing.mend();
    went_on.unwrap();
    assert!(before == 0 && gap > 0, "{before} and {gap} groups are lost");
    failing.below.clear_faults();
    (0..300).try_for_each(put).unwrap();
    db.archive().unwrap();
    assert!(db.stats().archive_failure.is_none());
    let gap = lost(&db);
    assert_gap(&failing.fs());
    let db = db.reopen().unwrap();
    assert_eq!(lost(&db), gap);
    assert_later_restores(&failing, &db);
}

/// A creation that failed on a full disk, with an archive that it has begun, is repeated.
#[test]
fn a_creation_that_fails_is_repeated_with_its_archive() {
    let mut failed = 0;
    for at in (0..150).step_by(3) {
        let sim = disk(27);
        sim.inject(Fault { at: sim.ops() + at, kind: FaultKind::Enospc, sticky: true });
        let open = || options(&sim).archive(ARCHIVE).open(DIR);
        failed += u64::from(open().is_err());
        sim.clear_faults();
        let db = open().unwrap_or_else(|error| panic!("operation {at}: {error:?}"));
        update(&db, 1);
        db.archive().unwrap();
        assert_eq!(lost(&db), 0, "operation {at}");
    }
    assert!(failed > 3, "{failed} failed");
}

/// Writers on a full disk get the log that is archived first. Only then the archive loses some.
#[test]
fn archived_log_is_given_up_before_other_log() {
    let failing = Failing::new(19, io::ErrorKind::TimedOut);
    let db = failing.options().memory_limit(16 << 20).log_budget(4 << 20).open(DIR).unwrap();
    (0..200).for_each(|n| update(&db, n));
    db.archive().unwrap();
    assert!(db.stats().log_retained_bytes > 512 << 10, "no checkpoint was due");
    failing.fail(WRITES, u64::MAX);
    failing.below.inject(Fault { at: failing.below.ops(), kind: FaultKind::Enospc, sticky: true });
    let before = db.stats();
    while db.stats().checkpoint.checkpoints == before.checkpoint.checkpoints {
        update(&db, 1);
    }
    let stats = db.stats();
    assert!(stats.log_retained_bytes < before.log_retained_bytes, "{stats:?}");
    assert_eq!(lost(&db), 0);
    (0..2000).for_each(|n| update(&db, n));
    assert!(lost(&db) > 0);
}

/// An archive that has failed from the start has a gap before its first file. Later starts count it, too.
#[test]
fn a_gap_before_the_first_file_is_named() {
    let failing = Failing::new(20, io::ErrorKind::TimedOut);
    let mut db = failing.open();
    db.backup(BACKUP).unwrap();
    failing.fail(WRITES, u64::MAX);
    (0..2000).for_each(|n| update(&db, n));
    let gap = lost(&db);
    assert!(gap > 0);
    db = db.reopen().unwrap();
    assert!(lost(&db) >= gap);
    let gap = lost(&db);
    failing.mend();
    (0..100).for_each(|n| update(&db, n));
    db.archive().unwrap();
    assert_gap(&failing.fs());
    assert_eq!(lost(&db), gap);
    db = db.reopen().unwrap();
    assert_eq!(lost(&db), gap);
    assert_later_restores(&failing, &db);
}
