//! A full backup and its increments hold what a full backup would, whatever happened between them. What is refused is
//! in `increments_refused.rs`.
//!
//! `FORESHORE_CHAINS=200` makes so many chains, and `FORESHORE_CRASH_STRIDE=1` loses power at each operation.

use crate::restore::{ARCHIVE, BACKUP, TARGET};
use crate::script::{Loss, Model, Random, Script, disk, lose_power, options, read};
use crate::support::{DIR, NUMBERS, POLICIES, SetOnDrop, TempDir, fill, numbers, small, stride};
use foreshore::{Db, Device, Error, Options, Restore, TableDef, Transaction, Until, restore};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{Fs, Mem, Sim};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

pub(crate) const FIRST: &str = "/first";
pub(crate) const SECOND: &str = "/second";
pub(crate) const THIRD: &str = "/third";
const MOVES: TableDef<(u64, u64), u64> = TableDef::new("moves");
const LARGE: TableDef<u64, &[u8]> = TableDef::new("large");

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A restore of the full backup and these increments.
pub(crate) fn chain(fs: &Arc<dyn Fs>, target: &str, increments: &[&str]) -> Restore {
    let restore = restore(BACKUP, target).lab(Arc::clone(fs), 64 << 10);
    increments.iter().fold(restore, Restore::increment)
}

/// Everything in a database: the tables of the script, of numbers, and of large values.
type Contents = (Model, Vec<(u64, i64)>, Vec<(u64, Vec<u8>)>);

fn contents(db: &Db) -> Contents {
    let large = db.run(|tx| tx.open(LARGE)?.iter().collect::<Result<Vec<_>, Error>>()).unwrap();
    (read(db).unwrap(), numbers(db), large)
}

/// Changes few pages or many: loads, clears, drops, compacts, truncates and grows the file.
fn change(db: &Db, random: &mut Random, script: &mut Script) {
    for _ in 0..random.below(5) {
        match random.below(9) {
            0 => fill(db, random.below(4000)),
            1 => drop(db.run(|tx| tx.clear_table("numbers")).unwrap()),
            2 => drop(db.run(|tx| tx.drop_table("numbers")).unwrap()),
            3 => {
                let rows = random.below(9000);
                let load = |tx: &Transaction| -> Result<(), Error> {
                    let table = tx.open(NUMBERS)?;
                    let first = table.last()?.map_or(0, |(last, _)| last + 1);
                    table.load((first..first + rows).map(|n| (n, -(n as i64)))).map(drop)
                };
                db.run(load).unwrap();
            }
            4 => db.run(|tx| tx.open(LARGE)?.put(random.below(9), &vec![random.0 as u8; 40_000][..])).unwrap(),
            5 => drop(db.run(|tx| tx.open(LARGE)?.remove(random.below(9))).unwrap()),
            6 => drop(db.compact().unwrap()),
            7 => drop(db.vacuum().unwrap()),
            _ => script.run(db, random.below(12) as u32).unwrap(),
        }
        (0..random.below(6)).for_each(|_| db.step());
        if random.below(4) == 0 {
            db.checkpoint().unwrap();
        }
    }
}

/// Chains of three, with restarts, crashes and page writes between them. Each part of a chain is what was there.
#[test]
fn a_chain_holds_what_the_database_held() {
    let (mut shorter, mut stored, mut most) = (0, 0, 0);
    for seed in 0..number("FORESHORE_CHAINS", 40) {
        let mut sim = disk(seed);
        let open = |sim: &Sim| options(sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
        let (mut db, mut random) = (open(&sim), Random(seed));
        let mut expected: Vec<Contents> = Vec::new();
        let mut last = 0;
        let mut script = Script::new(&sim, seed);
        for (n, dir) in [BACKUP, FIRST, SECOND, THIRD].into_iter().enumerate() {
            if n == 0 || random.below(8) > 0 {
                change(&db, &mut random, &mut script);
            }
            db.sync().unwrap();
            expected.push(contents(&db));
            let backup = match n {
                0 => db.backup(dir).unwrap(),
                _ => db.backup_since(dir, [BACKUP, FIRST, SECOND][n - 1]).unwrap(),
            };
            shorter += u32::from(backup.pages < last);
            last = backup.pages;
            (stored, most) = if n > 0 { (stored + backup.stored_pages, most + backup.pages) } else { (stored, most) };
            match random.below(4) {
                0 => db = db.reopen().unwrap(),
                1 => {
                    db.sync().unwrap();
                    let kept = contents(&db);
                    drop(db);
                    sim = sim.crash_image(&POLICIES[random.below(9) as usize], seed);
                    db = open(&sim);
                    assert!(contents(&db) == kept, "seed {seed}");
                    // The history of a script is that of one disk.
                    script = Script::new(&sim, seed + 1000);
                    for table in ["rows", "others", "deep"] {
                        db.run(|tx| tx.drop_table(table)).unwrap();
                    }
                }
                _ => {}
            }
        }
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        for (n, expected) in expected.iter().enumerate() {
            let (what, increments) = (format!("seed {seed}, {n} increments"), &[FIRST, SECOND, THIRD][..n]);
            let verified = chain(&fs, TARGET, increments).verify().unwrap_or_else(|error| panic!("{what}: {error:?}"));
            let target = format!("{TARGET}-{n}");
            assert_eq!(chain(&fs, &target, increments).run().unwrap(), verified, "{what}");
            let copy = options(&sim).open(&target).unwrap();
            copy.check().unwrap_or_else(|error| panic!("{what}: {error:?}"));
            assert!(contents(&copy) == *expected, "{what}");
        }
    }
    assert!(shorter > 3, "the file became shorter {shorter} times");
    assert!(3 * stored < 2 * most, "{stored} of {most} pages are in increments");
}

/// Few changed rows are few pages, and none are none but those that were not home.
#[test]
fn an_increment_has_the_pages_that_have_changed() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = small().lab(|lab| lab.fs = Some(Arc::clone(&fs))).open(DIR).unwrap();
    fill(&db, 30_000);
    db.checkpoint().unwrap();
    let full = db.backup(BACKUP).unwrap();
    assert!(full.stored_pages > 80 && full.stored_pages <= full.pages, "{full:?}");
    let none = db.backup_since(FIRST, BACKUP).unwrap();
    assert!(none.stored_pages <= 2 && none.pages == full.pages, "{none:?}");
    db.run(|tx| tx.open(NUMBERS)?.put(7, -7)).unwrap();
    db.checkpoint().unwrap();
    let few = db.backup_since(SECOND, FIRST).unwrap();
    assert!((1..=3).contains(&few.stored_pages), "{few:?}");
    let bytes = fs.open(&Path::new(SECOND).join("increment")).unwrap().len().unwrap();
    assert!(bytes < (3 + few.stored_pages) * PAGE_SIZE as u64, "{bytes} bytes");
    // Of the full backup as well: the pages of both.
    assert!(db.backup_since(THIRD, BACKUP).unwrap().stored_pages >= few.stored_pages);
    for increments in [&[FIRST, SECOND][..], &[THIRD]] {
        let target = format!("{TARGET}-{}", increments.len());
        chain(&fs, &target, increments).run().unwrap();
        let copy = small().lab(|lab| lab.fs = Some(Arc::clone(&fs))).open(&target).unwrap();
        assert_eq!(numbers(&copy), numbers(&db));
    }
}

/// An increment soon after its base takes little space, however much log a restart of the database would read. It has
/// no segment for log to come, and neither changed rows nor a transaction that has ended keep the older log.
#[test]
fn an_increment_after_little_change_is_small() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let on = || small().log_budget(8 << 20).lab(|lab| lab.fs = Some(Arc::clone(&fs)));
    let db = on().open(DIR).unwrap();
    fill(&db, 1);
    let older = db.begin();
    older.open(NUMBERS).unwrap().insert(1 << 40, 1).unwrap();
    fill(&db, 30_000);
    let full = db.backup(BACKUP).unwrap();
    older.rollback().unwrap();
    db.run(|tx| tx.open(NUMBERS)?.put(7, -7)).unwrap();
    let increment = db.backup_since(FIRST, BACKUP).unwrap();
    let bytes = [bytes_in(&*fs, BACKUP), bytes_in(&*fs, FIRST)];
    assert!(bytes[1] < 128 << 10 && bytes[0] > 1 << 20, "{bytes:?} bytes: {full:?}, {increment:?}");
    chain(&fs, TARGET, &[FIRST]).run().unwrap();
    assert_eq!(numbers(&on().open(TARGET).unwrap()), numbers(&db));
}

/// The bytes of all files of a backup.
fn bytes_in(fs: &dyn Fs, dir: &str) -> u64 {
    let files = |dir: &Path| -> Vec<_> { fs.list(dir).unwrap().into_iter().map(|name| dir.join(name)).collect() };
    let log = Path::new(dir).join("log");
    let all = files(Path::new(dir)).into_iter().filter(|path| *path != log).chain(files(&log));
    all.map(|path| fs.open(&path).unwrap().len().unwrap()).sum()
}

/// An increment goes on with the archive like a full backup, to the end and to a position.
#[test]
fn the_archive_continues_a_chain() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let on = || small().lab(|lab| lab.fs = Some(Arc::clone(&fs)));
    let db = on().archive(ARCHIVE).open(DIR).unwrap();
    fill(&db, 1000);
    db.backup(BACKUP).unwrap();
    fill(&db, 3000);
    let increment = db.backup_since(FIRST, BACKUP).unwrap();
    let put = |n: i64| db.run_pipelined(|tx| tx.open(NUMBERS)?.put(7, n)).unwrap().1;
    let position = put(1).record_lsn();
    put(2).wait().unwrap();
    fill(&db, 6000);
    db.archive().unwrap();
    for (until, rows, value) in [(Until::Lsn(position), 3000, 1), (Until::End, 6000, 7)] {
        let target = format!("{TARGET}-{rows}");
        let restored = chain(&fs, &target, &[FIRST]).archive(ARCHIVE).until(until).run().unwrap();
        assert_eq!(restored.backup_lsn, increment.lsn);
        let copy = on().open(&target).unwrap();
        assert_eq!((numbers(&copy).len(), numbers(&copy)[7].1), (rows, value));
        copy.check().unwrap();
    }
}

/// Moves between accounts keep their sum, and each thread numbers its own. Increments are made beside them.
#[test]
fn chains_beside_many_writers_have_every_acknowledged_commit_and_the_right_sum() {
    const THREADS: u64 = 3;
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options = || small().lab(|lab| lab.fs = Some(Arc::clone(&fs)));
    let db = options().open(DIR).unwrap();
    fill(&db, 2000);
    let sum: i64 = numbers(&db).iter().map(|row| row.1).sum();
    db.run(|tx| tx.open(MOVES).map(drop)).unwrap();
    let (is_over, acknowledged) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; THREADS as usize]);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, is_over, acknowledged) = (&db, &is_over, &acknowledged[thread as usize]);
            scope.spawn(move || {
                let mut random = Random(thread);
                for number in 1.. {
                    let (from, to) = (random.below(2000), random.below(2000));
                    let moved = db.run(|tx| {
                        let accounts = tx.open(NUMBERS)?;
                        accounts.update_with(from, |balance| balance.map(|balance| balance - 10))?;
                        accounts.update_with(to, |balance| balance.map(|balance| balance + 10))?;
                        tx.open(MOVES)?.put((thread, number), number)
                    });
                    moved.unwrap();
                    acknowledged.store(number, Ordering::Release);
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let _ends = SetOnDrop(&is_over);
        db.backup(BACKUP).unwrap();
        let dirs: Vec<String> = (0..8).map(|n| format!("/increment-{n}")).collect();
        for (n, dir) in dirs.iter().enumerate() {
            let least: Vec<u64> = acknowledged.iter().map(|number| number.load(Ordering::Acquire)).collect();
            db.backup_since(dir, n.checked_sub(1).map_or(BACKUP, |n| &dirs[n])).unwrap();
            let (increments, target): (Vec<&str>, _) =
                (dirs[..=n].iter().map(|dir| &**dir).collect(), format!("/to-{n}"));
            chain(&fs, &target, &increments).run().unwrap();
            let copy = options().open(&target).unwrap();
            copy.check().unwrap();
            assert_eq!(numbers(&copy).iter().map(|row| row.1).sum::<i64>(), sum, "increment {n}");
            let moves: Vec<_> = copy.read().open(MOVES).unwrap().iter().map(|row| row.unwrap().0).collect();
            for thread in 0..THREADS {
                let own: Vec<u64> = moves.iter().filter(|of| of.0 == thread).map(|of| of.1).collect();
                assert!(
                    own == (1..=own.len() as u64).collect::<Vec<_>>(),
                    "increment {n}: thread {thread} has {own:?}"
                );
                assert!(own.len() as u64 >= least[thread as usize], "increment {n}: {} of {least:?}", own.len());
            }
        }
    });
}

/// Power is lost at any operation of an increment. Then its directory is refused, or holds all of it. The original goes
/// on, and knows the base.
#[test]
fn power_loss_leaves_a_whole_increment_or_none() {
    let stride = stride(5);
    let (mut refused, mut whole) = (0, 0);
    for seed in 0..2 {
        let sim = disk(seed);
        let db = options(&sim).open(DIR).unwrap();
        let mut script = Script::new(&sim, seed);
        script.run(&db, 40).unwrap();
        db.backup(BACKUP).unwrap();
        script.run(&db, 40).unwrap();
        db.sync().unwrap();
        let expected = read(&db).unwrap();
        let first = sim.ops();
        db.backup_since(FIRST, BACKUP).unwrap();
        lose_power(&sim, (first, stride), |Loss { image, op, is_last, what }| {
            let what = format!("seed {seed}, {what}");
            let fs: Arc<dyn Fs> = Arc::new(image.clone());
            match chain(&fs, TARGET, &[FIRST]).run() {
                Ok(_) => {
                    let copy = options(image).open(TARGET).unwrap();
                    copy.check().unwrap_or_else(|error| panic!("{what}: {error:?}"));
                    assert!(read(&copy).unwrap() == expected, "{what}");
                    whole += 1;
                }
                Err(Error::UnfinishedBackup { .. } | Error::Restore(_)) => {
                    assert!(!is_last, "{what}");
                    refused += 1;
                }
                // The directory is not there yet, or nothing is in it.
                Err(error) => {
                    let names = image.list(Path::new(FIRST)).unwrap_or_default();
                    assert!(names.iter().all(|name| name == "LOCK"), "{what}: {error:?} and {names:?}");
                }
            }
            if op.is_multiple_of(4) {
                let original = options(image).open(DIR).unwrap();
                script.verify(&original, *op).unwrap_or_else(|why| panic!("{what}: {why}"));
                original.backup_since("/again", BACKUP).unwrap_or_else(|error| panic!("{what}: {error:?}"));
                restore(BACKUP, "/twice").increment("/again").lab(fs, 64 << 10).run().unwrap();
                assert!(read(&options(image).open("/twice").unwrap()).unwrap() == read(&original).unwrap(), "{what}");
            }
        });
    }
    assert!(refused > 5 && whole > 1, "{refused} refused, {whole} whole");
}

/// A failed operation fails the increment alone, and leaves no files.
#[test]
fn a_failing_operation_fails_the_increment_alone() {
    let base = disk(3);
    let db = options(&base).open(DIR).unwrap();
    fill(&db, 500);
    db.backup(BACKUP).unwrap();
    fill(&db, 900);
    db.close(Duration::ZERO).unwrap();
    let mut failed = 0;
    for (n, kind) in (0..).flat_map(|n| [(n, FaultKind::Enospc), (n, FaultKind::Eio)]) {
        let sim = base.fork();
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        let db = options(&sim).open(DIR).unwrap();
        sim.inject(Fault { at: sim.ops() + n, kind, sticky: kind == FaultKind::Enospc });
        match db.backup_since(FIRST, BACKUP) {
            Ok(made) if kind == FaultKind::Eio && made.is_base => break,
            // It is whole, and no base if the list could not be written.
            Ok(_) => continue,
            Err(Error::Io { .. } | Error::DiskFull { .. }) => failed += 1,
            Err(error) => panic!("operation {n}: {error:?}"),
        }
        sim.clear_faults();
        db.run(|tx| tx.open(NUMBERS)?.put(1, 77)).unwrap();
        let target = if sim.kind(&Path::new(FIRST).join("increment")).unwrap().is_none() { FIRST } else { SECOND };
        db.backup_since(target, BACKUP).unwrap_or_else(|error| panic!("operation {n}: {error:?}"));
        chain(&fs, TARGET, &[target]).run().unwrap_or_else(|error| panic!("operation {n}: {error:?}"));
        let copy = options(&sim).open(TARGET).unwrap();
        assert_eq!(numbers(&copy), numbers(&db), "operation {n}");
    }
    assert!(failed > 15, "{failed} failures");
}

/// On files of the operating system, of a database in memory too, and by a reader.
#[test]
fn increments_on_a_real_disk() {
    let dir = TempDir::new("increments");
    let path = |name: &str| dir.path().join(name);
    let memory = Options::new().device(Device::Null).open(path("memory")).unwrap();
    for (name, db) in [("disk", small().open(path("db")).unwrap()), ("memory", memory)] {
        let [full, increment, target] = ["full", "increment", "target"].map(|of| path(&format!("{name}-{of}")));
        fill(&db, 2000);
        db.backup(&full).unwrap();
        fill(&db, 3000);
        db.backup_since(&increment, &full).unwrap();
        restore(&full, &target).increment(&increment).run().unwrap();
        let copy = Options::new().open(&target).unwrap();
        copy.check().unwrap();
        assert_eq!(numbers(&copy).len(), 3000);
        db.close(Duration::ZERO).unwrap();
    }
    let reader = Options::new().open_read_only(path("db")).unwrap();
    let [full, read, target] = ["disk-full", "read", "of-read"].map(path);
    reader.backup_since(&read, &full).unwrap();
    restore(&full, &target).increment(&read).run().unwrap();
    assert_eq!(numbers(&Db::open(&target).unwrap()).len(), 3000);
    drop(reader);
    // The reader has changed nothing, so the database does not know its backups.
    let refused = Db::open(path("db")).unwrap().backup_since(path("after"), &read);
    assert!(matches!(refused, Err(Error::UnknownBase(_))), "{refused:?}");
}
