//! A restore brings back exactly the commits up to a position, whole or not at all, and refuses what it cannot reach.
//!
//! `FORESHORE_CRASH_STRIDE=1` loses power at each operation, and `FORESHORE_POSITIONS=1000` restores to so many
//! positions.

use crate::script::{Loss, Random, Script, disk, lose_power, options, read};
use crate::support::{DIR, NUMBERS, SetOnDrop, TempDir, fill, numbers, small};
use foreshore::{Db, Error, Lsn, Options, Restore, RestoreRefusal, Restored, Timestamp, Until, restore};
use foreshore_io::{Fs, Kind, Mem};
use foreshore_sync::{Nanos, pause};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

pub(crate) const ARCHIVE: &str = "/archive";
pub(crate) const BACKUP: &str = "/backup";
pub(crate) const TARGET: &str = "/restored";

/// Rows by key.
type Rows = BTreeMap<u64, i64>;

/// A commit: the LSN of its record, and what it wrote. `None` is a removed row.
type Commit = (Lsn, Vec<(u64, Option<i64>)>);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

pub(crate) fn restore_on(fs: &Arc<dyn Fs>, target: &str, until: Until) -> Restore {
    restore(BACKUP, target).archive(ARCHIVE).until(until).lab(Arc::clone(fs), 64 << 10)
}

fn on(fs: &Arc<dyn Fs>) -> Options {
    small().lab(|lab| lab.fs = Some(Arc::clone(fs)))
}

fn archived(fs: &Arc<dyn Fs>) -> Options {
    on(fs).archive(ARCHIVE)
}

fn memory() -> Arc<dyn Fs> {
    Arc::new(Mem::null())
}

/// The rows after all commits up to a position.
fn rows_at(commits: &[Commit], position: Lsn) -> Rows {
    let mut rows = Rows::new();
    for (key, value) in commits.iter().take_while(|(lsn, _)| *lsn <= position).flat_map(|(_, writes)| writes) {
        match value {
            Some(value) => drop(rows.insert(*key, *value)),
            None => drop(rows.remove(key)),
        }
    }
    rows
}

/// Runs a transaction of a few writes to few keys, and returns it.
fn commit_one(db: &Db, random: &mut Random) -> Commit {
    // In order, so that no deadlock is met often.
    let keys: BTreeSet<u64> = (0..=random.below(3)).map(|_| random.below(60)).collect();
    let draws: Vec<u64> = keys.iter().map(|_| random.below(1000)).collect();
    let (writes, ticket) = db
        .run_pipelined(|tx| {
            let table = tx.open(NUMBERS)?;
            let mut writes = Vec::new();
            for (&key, &draw) in keys.iter().zip(&draws) {
                let old = table.get_for_update(key)?;
                let new = (draw % 4 != 0 || old.is_none()).then(|| old.unwrap_or(0) * 3 % 1_000_003 + draw as i64);
                match new {
                    Some(new) => drop(table.insert(key, new)?),
                    None => drop(table.remove(key)?),
                }
                writes.push((key, new));
            }
            Ok::<_, Error>(writes)
        })
        .unwrap();
    let lsn = ticket.record_lsn();
    if random.below(3) == 0 {
        ticket.wait().unwrap();
    }
    (lsn, writes)
}

/// Writers beside a backup and three increments, rollbacks and an open transaction. Each position restores the commits
/// up to it, no more and no less: those of all threads, in the order of their records. So does each chain before it.
#[test]
fn each_position_is_exactly_the_commits_up_to_it() {
    let fs = memory();
    let db = archived(&fs).open(DIR).unwrap();
    db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
    let commits = Mutex::new(Vec::new());
    let (is_over, is_backed_up) = (AtomicBool::new(false), AtomicBool::new(false));
    // The backup, then its increments.
    let dirs = [BACKUP, "/first", "/second", "/third"];
    let mut ends = Vec::new();
    thread::scope(|scope| {
        for seed in 0..4 {
            let (db, commits, is_over, is_backed_up) = (&db, &commits, &is_over, &is_backed_up);
            scope.spawn(move || {
                let (mut random, mut later) = (Random(seed), 0);
                let open = db.begin();
                open.open(NUMBERS).unwrap().insert(1000 + seed, -1).unwrap();
                // Each of them has enough work for all backups.
                while later < 150 || !is_over.load(Ordering::Relaxed) {
                    later += u64::from(is_backed_up.load(Ordering::Relaxed));
                    let commit = commit_one(db, &mut random);
                    commits.lock().unwrap().push(commit);
                    if random.below(10) == 0 {
                        let tx = db.begin();
                        tx.open(NUMBERS).unwrap().insert(2000 + seed, 7).unwrap();
                        tx.rollback().unwrap();
                    }
                    if random.below(60) == 0 {
                        db.checkpoint().unwrap();
                    }
                }
                open.rollback().unwrap();
            });
        }
        let _ends = SetOnDrop(&is_over);
        let wait_for = |count| {
            while commits.lock().unwrap().len() < count {
                thread::yield_now();
            }
        };
        wait_for(100);
        ends.push(db.backup(BACKUP).unwrap().lsn);
        is_backed_up.store(true, Ordering::Relaxed);
        for pair in dirs.windows(2) {
            let before = commits.lock().unwrap().len();
            wait_for(before + 50);
            ends.push(db.backup_since(pair[1], pair[0]).unwrap().lsn);
        }
        let before = commits.lock().unwrap().len();
        wait_for(before + 50);
    });
    let backup_lsn = ends[0];
    db.sync().unwrap();
    let end = db.archive().unwrap();
    let mut commits = commits.into_inner().unwrap();
    commits.sort_by_key(|commit| commit.0);
    let of_db: Rows = numbers(&db).into_iter().collect();
    assert_eq!(rows_at(&commits, end), of_db);

    let all: Vec<Lsn> = commits.iter().map(|commit| commit.0).filter(|&lsn| lsn > backup_lsn).collect();
    assert!(all.len() > 500, "{} commits behind the backup", all.len());
    let (mut random, mut sizes, mut chains) = (Random(9), BTreeSet::new(), [0; 4]);
    for round in 0..number("FORESHORE_POSITIONS", 100) {
        // As many behind each backup of the chain, although few commits are behind all.
        let behind = all.partition_point(|&lsn| lsn <= ends[round as usize % ends.len()]);
        let lsn = all[behind + random.below((all.len() - behind) as u64) as usize];
        // Between two commit records too.
        let position = if round % 3 == 2 { Lsn(lsn.0 - 1).max(backup_lsn) } else { lsn };
        let dir = format!("{TARGET}-{round}");
        let chain = ends.iter().filter(|&&end| end <= position).count();
        let increments = if round / 4 % 2 == 0 { chain - 1 } else { random.below(chain as u64) as usize };
        chains[increments] += 1;
        let restore = restore_on(&fs, &dir, Until::Lsn(position));
        let restored = dirs[1..=increments].iter().fold(restore, Restore::increment).run().unwrap();
        assert!(restored.lsn == position && restored.backup_lsn == ends[increments], "{restored:?}, {position}");
        let copy = on(&fs).open(&dir).unwrap();
        let rows: Rows = numbers(&copy).into_iter().collect();
        assert_eq!(rows, rows_at(&commits, position), "round {round}, position {position}");
        copy.check().unwrap();
        sizes.insert(restored.log_bytes);
    }
    assert!(sizes.len() > 20, "{} different lengths of log", sizes.len());
    assert!(chains.iter().all(|&count| count > 4), "{chains:?} restores by their increments");
    let restored = restore_on(&fs, TARGET, Until::End).run().unwrap();
    assert!(restored.lsn >= *all.last().unwrap());
    assert_eq!(numbers(&on(&fs).open(TARGET).unwrap()).into_iter().collect::<Rows>(), of_db);
}

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// The commits written by a time are restored, also over a restart and a clock that was set back.
#[test]
fn a_time_restores_the_commits_written_by_then() {
    const SECOND: u64 = 1_000_000_000;
    let sim = disk(3);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let open = || {
        let options = options(&sim).lab(|lab| lab.wall_clock = Some(|| Nanos(NOW.get()))).archive(ARCHIVE);
        options.open(DIR).unwrap()
    };
    let time = |seconds: u64| Until::Time(Timestamp::from(Duration::from_secs(seconds)));
    NOW.set(100 * SECOND);
    let mut db = open();
    db.run(|tx| tx.open(NUMBERS)?.put(0, 0)).unwrap();
    db.backup(BACKUP).unwrap();
    for n in 1..=40 {
        if n == 20 {
            db = db.reopen().unwrap();
        }
        // The clock is set back, and goes on from there.
        NOW.set(if n == 30 { 50 } else { 100 + n } * SECOND);
        db.run(|tx| tx.open(NUMBERS)?.put(0, n as i64)).unwrap();
    }
    db.archive().unwrap();
    for (seconds, expected) in [(101, 1), (110, 10), (119, 19), (120, 20), (129, 30), (130, 30), (131, 31), (139, 39)] {
        let dir = format!("{TARGET}-{seconds}");
        let restored = restore_on(&fs, &dir, time(seconds)).run().unwrap();
        assert!(restored.time <= Some(Timestamp::from(Duration::from_secs(seconds))), "{restored:?}");
        assert_eq!(numbers(&self::options(&sim).open(&dir).unwrap()), [(0, expected)], "{seconds} s");
    }
    let early = restore_on(&fs, TARGET, time(99)).run();
    assert!(matches!(early, Err(Error::Restore(RestoreRefusal::BeforeBackup { .. }))), "{early:?}");
    let late = restore_on(&fs, TARGET, time(141)).run();
    assert!(matches!(late, Err(Error::Restore(RestoreRefusal::BeyondLog { .. }))), "{late:?}");
}

/// Power is lost at any operation of a restore. Then the target is no database, or all of it.
#[test]
fn power_loss_leaves_a_whole_database_or_none() {
    let stride = number("FORESHORE_CRASH_STRIDE", 5);
    let (mut unfinished, mut whole, mut images) = (0, 0, 0);
    for seed in 0..2 {
        let sim = disk(seed);
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        let db = options(&sim).archive(ARCHIVE).open(DIR).unwrap();
        let mut script = Script::new(&sim, seed);
        script.run(&db, 20).unwrap();
        db.backup(BACKUP).unwrap();
        script.run(&db, 60).unwrap();
        db.sync().unwrap();
        db.archive().unwrap();
        let expected = read(&db).unwrap();
        drop(db);
        let first = sim.ops();
        restore_on(&fs, TARGET, Until::End).run().unwrap();
        images += lose_power(&sim, (first, stride), |Loss { image, op, is_last, what }| {
            match options(image).open_existing(TARGET) {
                Ok(copy) => {
                    copy.check().unwrap_or_else(|error| panic!("seed {seed}, {what}: {error:?}"));
                    assert!(read(&copy).unwrap() == expected, "seed {seed}, {what}");
                    whole += 1;
                }
                Err(Error::UnfinishedBackup { .. } | Error::NoDatabase { .. }) if !is_last => unfinished += 1,
                Err(error) => panic!("seed {seed}, {what}: {error:?}"),
            }
            // What it was made from is there.
            let fs: Arc<dyn Fs> = Arc::new(image.clone());
            if op.is_multiple_of(8) {
                let again = restore_on(&fs, "/again", Until::End).run();
                again.unwrap_or_else(|error| panic!("seed {seed}, {what}: {error:?}"));
            }
        });
    }
    assert!(unfinished > 5 && whole > 1, "{unfinished} unfinished, {whole} whole of {images}");
}

/// A failed operation leaves no files, and the restore works when it is repeated.
#[test]
fn a_restore_that_fails_leaves_nothing() {
    use foreshore_io::sim::{Fault, FaultKind};
    let base = disk(5);
    let db = options(&base).archive(ARCHIVE).open(DIR).unwrap();
    fill(&db, 300);
    db.backup(BACKUP).unwrap();
    fill(&db, 600);
    db.archive().unwrap();
    drop(db);
    let mut failed = 0;
    for (n, kind) in (0..).flat_map(|n| [(n, FaultKind::Eio), (n, FaultKind::Enospc)]) {
        let sim = base.fork();
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        sim.inject(Fault { at: sim.ops() + n, kind, sticky: kind == FaultKind::Enospc });
        match restore_on(&fs, TARGET, Until::End).run() {
            Ok(_) if kind == FaultKind::Eio => break,
            Ok(_) => continue,
            Err(Error::Io { .. } | Error::DiskFull { .. }) => failed += 1,
            Err(error) => panic!("operation {n}: {error:?}"),
        }
        sim.clear_faults();
        if sim.kind(Path::new(TARGET).join("data").as_path()).unwrap().is_none() {
            restore_on(&fs, TARGET, Until::End).run().unwrap_or_else(|error| panic!("operation {n}: {error:?}"));
        }
        match options(&sim).open_existing(TARGET) {
            Ok(copy) => assert_eq!(numbers(&copy).len(), 600, "operation {n}"),
            Err(Error::UnfinishedBackup { .. }) => {}
            Err(error) => panic!("operation {n}: {error:?}"),
        }
    }
    assert!(failed > 10, "{failed} failures");
}

fn refused(restored: Result<Restored, Error>) -> RestoreRefusal {
    match restored {
        Err(Error::Restore(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// A database with a backup, and an archive of three files or more.
fn with_archive() -> (Arc<dyn Fs>, Lsn, Lsn) {
    let fs = memory();
    let db = archived(&fs).open(DIR).unwrap();
    fill(&db, 1000);
    // The backup has log of its own, although a checkpoint comes first.
    let within = db.clone();
    pause::set("backup: the pages are copied", move || {
        (0..5).for_each(|n| within.run(|tx| tx.open(NUMBERS)?.put(n, n as i64)).unwrap());
    });
    let backup = db.backup(BACKUP).unwrap();
    pause::set("nowhere", || ());
    fill(&db, 4000);
    db.archive().unwrap();
    assert!(db.stats().archive.unwrap().files > 3);
    // The close archives its checkpoint.
    drop(db);
    let end = restore_on(&fs, TARGET, Until::End).verify().unwrap().lsn;
    (fs, backup.lsn, end)
}

fn archive_files(fs: &Arc<dyn Fs>) -> Vec<String> {
    fs.list(Path::new(ARCHIVE)).unwrap().into_iter().filter(|name| name.ends_with(".arc")).collect()
}

#[test]
fn positions_out_of_reach_are_refused_and_leave_no_database() {
    let (fs, begin, end) = with_archive();
    let at = |lsn| restore_on(&fs, TARGET, Until::Lsn(lsn));
    assert_eq!(refused(at(Lsn(begin.0 - 1)).run()), RestoreRefusal::BeforeBackup { end: begin });
    assert_eq!(refused(at(Lsn(end.0 + 1)).run()), RestoreRefusal::BeyondLog { end });
    assert_eq!(refused(at(Lsn(end.0 + 1)).verify()), RestoreRefusal::BeyondLog { end });
    let alone = restore(BACKUP, TARGET).until(Until::Lsn(end)).lab(Arc::clone(&fs), 64 << 10);
    assert_eq!(refused(alone.run()), RestoreRefusal::BeyondLog { end: begin });
    // The ends themselves are in reach.
    for (lsn, dir) in [(begin, "/begin"), (end, "/end")] {
        restore_on(&fs, dir, Until::Lsn(lsn)).run().unwrap();
    }
    assert_eq!(numbers(&on(&fs).open("/begin").unwrap()).len(), 1000);
    assert_eq!(numbers(&on(&fs).open("/end").unwrap()).len(), 4000);
}

/// A directory without a file of an archive is most likely the wrong one. The backup alone is restored when no archive
/// is named, or when the position is in it.
#[test]
fn an_archive_without_a_file_is_refused() {
    let (fs, begin, end) = with_archive();
    fs.create_dir(Path::new("/empty")).unwrap();
    fs.create(Path::new("/empty/letter")).unwrap();
    let empty = RestoreRefusal::EmptyArchive { dir: "/empty".into() };
    for until in [Until::End, Until::Lsn(end), Until::Time(Timestamp::from(Duration::from_secs(1 << 32)))] {
        let restore = || restore_on(&fs, TARGET, until).archive("/empty");
        assert_eq!((refused(restore().run()), refused(restore().verify())), (empty.clone(), empty.clone()));
    }
    let in_backup = restore_on(&fs, "/begin", Until::Lsn(begin)).archive("/empty").run().unwrap();
    let alone = restore(BACKUP, TARGET).lab(Arc::clone(&fs), 64 << 10).run().unwrap();
    assert_eq!((in_backup.lsn, alone.lsn, alone.backup_lsn), (begin, begin, begin));
}

#[test]
fn a_gap_is_refused_and_named() {
    let (fs, begin, end) = with_archive();
    let files = archive_files(&fs);
    let last = &files[files.len() - 2];
    fs.rename(&Path::new(ARCHIVE).join(last), Path::new("/kept")).unwrap();
    let gap = refused(restore_on(&fs, TARGET, Until::End).run());
    let missing = last.trim_end_matches(".arc").parse().unwrap();
    assert!(matches!(gap, RestoreRefusal::Gap { missing: from, .. } if from.0 == missing), "{gap:?}");
    assert!(matches!(refused(restore_on(&fs, TARGET, Until::Lsn(end)).verify()), RestoreRefusal::Gap { .. }));
    // Positions before it are in reach.
    let restored = restore_on(&fs, TARGET, Until::Lsn(Lsn(begin.0 + 1000))).run().unwrap();
    assert_eq!(restored.lsn, Lsn(begin.0 + 1000));
    on(&fs).open(TARGET).unwrap().check().unwrap();
    // The end of the archive may be missing: that is no gap.
    fs.rename(Path::new("/kept"), &Path::new(ARCHIVE).join(last)).unwrap();
    fs.remove(&Path::new(ARCHIVE).join(files.last().unwrap())).unwrap();
    assert!(restore_on(&fs, "/shorter", Until::End).run().unwrap().lsn < end);
}

/// Each byte of the archive that counts, and each of a page or group of the backup, is checked.
#[test]
fn damage_is_refused_and_named() {
    let (fs, _, _) = with_archive();
    let files = archive_files(&fs);
    let flip = |path: &Path, offset: u64| {
        let file = fs.open(path).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, offset).unwrap();
        file.write_at(&[byte[0] ^ 1], offset).unwrap();
    };
    let mut refused = 0;
    let newest = Path::new(ARCHIVE).join(files.last().unwrap());
    let data = Path::new(BACKUP).join("data");
    for (path, offsets) in [(newest, vec![9, 40, 70, 200, 4000, 4100, 4150, 4300, 8191]), (data, vec![50_000, 100_001])]
    {
        for offset in offsets {
            flip(&path, offset);
            for restored in [restore_on(&fs, TARGET, Until::End).run(), restore_on(&fs, TARGET, Until::End).verify()] {
                match restored {
                    Err(Error::Corrupted { file, .. }) => assert_eq!(file, path, "byte {offset}"),
                    other => panic!("byte {offset} of {path:?}: {other:?}"),
                }
                refused += 1;
            }
            assert!(fs.list(Path::new(TARGET)).unwrap_or_default().iter().all(|name| name == "LOCK" || name == "log"));
            flip(&path, offset);
        }
    }
    assert!(refused > 20);
    restore_on(&fs, TARGET, Until::End).run().unwrap();
}

/// A damaged group looks like the end of the log. Later groups say that it was durable.
#[test]
fn damage_of_the_log_of_a_backup_is_refused() {
    let (fs, _, _) = with_archive();
    let log = Path::new(BACKUP).join("log");
    let mut groups = Vec::new();
    let mut names = fs.list(&log).unwrap();
    names.sort();
    for name in names.into_iter().filter(|name| name.ends_with(".seg")) {
        let path = log.join(name);
        let file = fs.open(&path).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        for at in (4096..bytes.len()).step_by(4096).filter(|&at| bytes[at..].starts_with(b"FSHORGRP")) {
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            groups.push((path.clone(), at as u64, number(at + 32), number(at + 48)));
        }
    }
    let confirmed = groups.iter().map(|group| group.3).max().unwrap();
    let durable: Vec<_> = groups.iter().filter(|group| group.2 <= confirmed).collect();
    assert!(durable.len() > 2, "{groups:?}");
    for (path, at, number, _) in durable {
        let file = fs.open(path).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, at + 100).unwrap();
        file.write_at(&[byte[0] ^ 1], at + 100).unwrap();
        for restored in [restore_on(&fs, TARGET, Until::End).run(), restore_on(&fs, TARGET, Until::End).verify()] {
            let is_refused = matches!(restored, Err(Error::LostLog { .. } | Error::Corrupted { .. }));
            assert!(is_refused, "group {number}: {restored:?}");
        }
        file.write_at(&byte, at + 100).unwrap();
    }
    restore_on(&fs, TARGET, Until::End).run().unwrap();
}

#[test]
fn newer_foreign_and_unfinished_sources_are_refused() {
    let (fs, _, _) = with_archive();
    // A version above the one that this build reads, with the right checksum.
    let first = Path::new(ARCHIVE).join(archive_files(&fs).last().unwrap());
    let file = fs.open(&first).unwrap();
    let mut block = vec![0; 4096];
    file.read_at(&mut block, 0).unwrap();
    let sound = block.clone();
    block[8] = 2;
    let crc = foreshore_base::crc32c(&block[..4092]);
    block[4092..].copy_from_slice(&crc.to_le_bytes());
    file.write_at(&block, 0).unwrap();
    let newer = restore_on(&fs, TARGET, Until::End).run();
    assert!(matches!(&newer, Err(Error::Newer { path, found: 2, supported: 1 }) if *path == first), "{newer:?}");
    file.write_at(&sound, 0).unwrap();

    // The archive of another database.
    drop(on(&fs).archive("/other-archive").open("/other").unwrap());
    let foreign = restore_on(&fs, TARGET, Until::End).archive("/other-archive").run();
    assert!(matches!(foreign, Err(Error::Foreign { .. })), "{foreign:?}");
    let refused = on(&fs).archive("/other-archive").open("/third");
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");

    // Neither a database, nor a directory without one, nor a backup that did not finish is a backup.
    let used = restore(DIR, TARGET).lab(Arc::clone(&fs), 64 << 10).run();
    assert!(matches!(used, Err(Error::Foreign { .. } | Error::Locked { .. })), "{used:?}");
    let none = restore("/nothing", TARGET).lab(Arc::clone(&fs), 64 << 10).run();
    assert!(matches!(none, Err(Error::NoDatabase { .. })), "{none:?}");
    fs.create(&Path::new(BACKUP).join("UNFINISHED_BACKUP")).unwrap();
    let unfinished = restore_on(&fs, TARGET, Until::End).run();
    assert!(matches!(unfinished, Err(Error::UnfinishedBackup { .. })), "{unfinished:?}");
    assert_eq!(fs.kind(&Path::new(TARGET).join("data")).unwrap(), None::<Kind>);
}

#[test]
fn a_target_in_use_is_refused_and_stays_as_it_is() {
    let (fs, _, _) = with_archive();
    fs.create_dir(Path::new(TARGET)).unwrap();
    fs.create(&Path::new(TARGET).join("letter")).unwrap();
    let refused = restore_on(&fs, TARGET, Until::End).run();
    assert!(matches!(refused, Err(Error::NotEmpty { dir }) if dir == Path::new(TARGET)));
    assert_eq!(fs.list(Path::new(TARGET)).unwrap(), ["letter"]);
    assert!(matches!(restore_on(&fs, DIR, Until::End).run(), Err(Error::NotEmpty { .. })));
}

/// A file of the archive whose name does not fit its content, and names that lead elsewhere.
#[test]
fn names_are_not_believed() {
    let (fs, _, end) = with_archive();
    for name in ["../db/data", "00000000000000000001.arc.old", "1.arc", "+0000000000000000001.arc"] {
        let path = Path::new(ARCHIVE).join(name.replace('/', "_"));
        fs.create(&path).unwrap().write_at(b"../../db", 0).unwrap();
    }
    assert_eq!(restore_on(&fs, TARGET, Until::End).run().unwrap().lsn, end);
    let files = archive_files(&fs);
    let files: Vec<_> = files.iter().filter(|name| name.len() == 24 && !name.starts_with('+')).collect();
    let path = |name: &str| Path::new(ARCHIVE).join(name);
    fs.rename(&path(files[files.len() - 2]), &path(files[files.len() - 1])).unwrap();
    let renamed = restore_on(&fs, "/second", Until::End).run();
    assert!(matches!(renamed, Err(Error::Corrupted { .. })), "{renamed:?}");
}

/// A restored database has an id of its own. It does not go into the old archive, and its archive goes to no other.
#[test]
fn a_restored_database_is_another_timeline() {
    let (fs, begin, _) = with_archive();
    restore_on(&fs, TARGET, Until::Lsn(begin)).run().unwrap();
    let mixed = archived(&fs).open(TARGET);
    assert!(matches!(&mixed, Err(Error::Foreign { path, .. }) if path.starts_with(ARCHIVE)), "{mixed:?}");
    let copy = on(&fs).archive("/second-archive").open(TARGET).unwrap();
    fill(&copy, 2000);
    copy.backup("/second-backup").unwrap();
    fill(&copy, 3000);
    copy.archive().unwrap();
    let second = |archive| restore("/second-backup", "/twice").archive(archive).lab(Arc::clone(&fs), 64 << 10).run();
    assert!(matches!(second(ARCHIVE), Err(Error::Foreign { .. })));
    second("/second-archive").unwrap();
    assert_eq!(numbers(&on(&fs).open("/twice").unwrap()).len(), 3000);
}

/// A backup that is opened has the id of the original, and writes other groups under the same numbers.
#[test]
fn an_opened_backup_does_not_go_into_the_archive_of_the_original() {
    let (fs, _, _) = with_archive();
    // The archive has groups behind the end of the backup.
    let fork = archived(&fs).open(BACKUP);
    assert!(matches!(&fork, Err(Error::Foreign { .. } | Error::Locked { .. })), "{fork:?}");
    drop(archived(&fs).open(DIR).unwrap());
    let fork = archived(&fs).open(BACKUP);
    assert!(matches!(&fork, Err(Error::Foreign { path, .. }) if path.starts_with(ARCHIVE)), "{fork:?}");
    // It has grown beyond the archive, with other groups.
    let fork = on(&fs).open(BACKUP).unwrap();
    fill(&fork, 30_000);
    drop(fork);
    let fork = archived(&fs).open(BACKUP);
    match fork {
        Err(Error::Foreign { path, .. }) => assert!(path.starts_with(ARCHIVE)),
        // What the archive has was recycled. A gap is left, and no restore passes it.
        Ok(fork) => assert!(fork.stats().archive.unwrap().lost_groups > 0),
        Err(error) => panic!("{error:?}"),
    }
    let used = restore_on(&fs, TARGET, Until::End).run();
    assert!(matches!(used, Err(Error::Foreign { .. })), "{used:?}");
}

/// So does one that a killed process has opened, before its background has taken a checkpoint.
#[test]
fn a_backup_that_a_killed_process_has_opened_is_refused() {
    let sim = disk(12);
    let db = options(&sim).archive(ARCHIVE).open(DIR).unwrap();
    fill(&db, 100);
    db.backup(BACKUP).unwrap();
    db.close(Duration::ZERO).unwrap();
    drop(db);
    let fork = options(&sim).open(BACKUP).unwrap();
    fork.run(|tx| tx.open(NUMBERS)?.insert(1, -1).map(drop)).unwrap();
    let fs: Arc<dyn Fs> = Arc::new(sim.kill());
    let used = restore_on(&fs, TARGET, Until::End).run();
    assert!(matches!(used, Err(Error::Foreign { .. })), "{used:?}");
}

/// Files of the operating system are read past its cache.
#[test]
fn a_restore_on_a_real_disk() {
    let dir = TempDir::new("restore");
    let [db, backup, archive, target] = ["db", "backup", "archive", "target"].map(|name| dir.path().join(name));
    let db = small().archive(&archive).open(db).unwrap();
    fill(&db, 500);
    db.backup(&backup).unwrap();
    fill(&db, 3000);
    db.close(Duration::ZERO).unwrap();
    // The close has archived the end.
    let verified = restore(&backup, &target).archive(&archive).verify().unwrap();
    assert_eq!(restore(&backup, &target).archive(&archive).run().unwrap(), verified);
    assert!(verified.time.unwrap() > Timestamp::new(1_700_000_000, 0).unwrap());
    let copy = Db::open(&target).unwrap();
    copy.check().unwrap();
    assert_eq!(numbers(&copy).len(), 3000);
}
