//! Threads undo a loser beside others that read, write and take checkpoints, and the process is killed or the database
//! is closed in the middle of it.

use crate::script::{Random, disk, options};
use crate::support::{DIR, POLICIES};
use foreshore::{Db, Options, TableDef};
use foreshore_io::Sim;
use foreshore_sync::pause;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const OTHERS: TableDef<u64, &[u8]> = TableDef::new("others");
/// Rows that the loser has changed, every second one, are below.
const ROWS: u64 = 60_000;

fn left(db: &Db) -> u64 {
    db.stats().recovery.pending_losers
}

fn threaded(sim: &Sim) -> Options {
    let options = options(sim).memory_limit(64 << 20).log_budget(8 << 20);
    options.lab(|lab| (lab.background, lab.segment_bytes) = (true, 1 << 20))
}

/// What a killed process leaves: a large transaction has no end.
fn killed(seed: u64) -> Sim {
    let sim = disk(seed);
    let db = threaded(&sim).open(DIR).unwrap();
    let fill = |from: u64| {
        db.run(|tx| (from..from + 1000).try_for_each(|key| tx.open(OTHERS)?.put(key, &key.to_le_bytes()[..]))).unwrap();
    };
    (0..ROWS).step_by(1000).for_each(fill);
    let loser = db.begin();
    let table = loser.open(OTHERS).unwrap();
    (0..ROWS).step_by(2).for_each(|key| table.put(key, &[3; 20][..]).unwrap());
    db.sync().unwrap();
    sim.kill()
}

/// Checks that the rows are as they were before the loser, and returns how many rows other transactions have added.
fn verify(db: &Db, what: &str) -> u64 {
    let reader = db.read();
    let mut next = 0;
    for row in reader.open(OTHERS).unwrap().iter() {
        let (key, value) = row.unwrap();
        assert!(key == next && value[..] == key.to_le_bytes(), "{what}: row {key} in place of {next}");
        next += 1;
    }
    assert!(next >= ROWS, "{what}: {next} rows");
    db.check().unwrap();
    next - ROWS
}

fn undone(db: &Db) -> u64 {
    db.stats().recovery.undone
}

/// Waits until a thread has undone so many changes.
fn until_undone(db: &Db, changes: u64) {
    while undone(db) < changes {
        assert!(left(db) > 0 || undone(db) >= changes, "{} changes are undone, and none is left", undone(db));
        thread::yield_now();
    }
}

/// A thread undoes a large transaction, while many read and write.
#[test]
fn threads_find_every_row_undone() {
    let image = killed(10);
    let db = threaded(&image).open(DIR).unwrap();
    assert_eq!(left(&db), 1, "the open does not wait for so many changes");
    thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                let mut random = Random(thread);
                for n in 0..300 {
                    let key = random.below(ROWS);
                    let found = match (n + thread) % 3 {
                        0 => db.read().open(OTHERS).unwrap().get(key).unwrap(),
                        1 => db.run(|tx| tx.open(OTHERS)?.get_for_update(key)).unwrap(),
                        _ => db.run(|tx| tx.open(OTHERS)?.insert(key, &key.to_le_bytes()[..])).unwrap(),
                    };
                    assert_eq!(found.as_deref(), Some(&key.to_le_bytes()[..]), "row {key}");
                }
            });
        }
    });
    db.close(Duration::from_secs(600)).unwrap();
    let db = threaded(&image).open(DIR).unwrap();
    assert!(db.stats().recovery.was_clean);
    assert_eq!(verify(&db, "closed"), 0);
}

/// The process is killed while a thread undoes the loser beside commits and checkpoints, and again while the next start
/// undoes what is left.
#[test]
fn a_kill_in_the_middle_leaves_the_rest_to_the_next_start() {
    let (sim, mut middles) = (killed(11), 0);
    for (round, policy) in (0..).zip(&POLICIES) {
        let what = format!("round {round}, {policy:?}");
        let disk = sim.fork();
        let db = threaded(&disk).open(DIR).unwrap();
        assert_eq!(left(&db), 1, "{what}");
        let (durable, stops) = (AtomicU64::new(0), AtomicBool::new(false));
        let (image, least) = thread::scope(|scope| {
            scope.spawn(|| {
                let add = |n: u64| db.run(|tx| tx.open(OTHERS)?.put(ROWS + n, &(ROWS + n).to_le_bytes()[..]));
                for n in 0.. {
                    if stops.load(Ordering::Relaxed) || add(n).is_err() {
                        return;
                    }
                    durable.store(n + 1, Ordering::Relaxed);
                    if n % 40 == 20 {
                        // The process may be dead.
                        drop(db.checkpoint());
                    }
                }
            });
            until_undone(&db, 1 + round * 3000);
            let least = durable.load(Ordering::Relaxed);
            let image = if round % 3 == 0 { disk.kill() } else { disk.crash_image(policy, round) };
            middles += left(&db);
            stops.store(true, Ordering::Relaxed);
            (image, least)
        });
        drop(db);
        let (again, taken, disk) = (Rc::default(), Rc::new(RefCell::new(Vec::new())), image.clone());
        let (count, images): (Rc<Cell<u64>>, _) = (again, Rc::clone(&taken));
        pause::set("restart: a change is taken back", move || {
            count.set(count.get() + 1);
            if count.get() % 5000 == 100 {
                images.borrow_mut().push(disk.crash_image(policy, count.get()));
            }
        });
        let db = threaded(&image).open(DIR).unwrap();
        pause::set("nowhere", || ());
        assert_eq!(left(&db), 0, "{what}: a second start for one log undoes first");
        let found = verify(&db, &what);
        assert!(found >= least, "{what}: {found} rows of {least} durable ones");
        for (n, image) in taken.take().iter().enumerate() {
            let found = verify(&threaded(image).open(DIR).unwrap(), &format!("{what}, image {n}"));
            assert!(found >= least, "{what}, image {n}: {found} rows of {least} durable ones");
        }
    }
    assert!(middles > 2, "{middles} of the kills came in the middle");
}

#[test]
fn a_close_in_the_middle_ends_the_undo_if_it_has_the_time() {
    let sim = killed(12);
    for round in 0..6 {
        let disk = sim.fork();
        let db = threaded(&disk).open(DIR).unwrap();
        until_undone(&db, 1 + round * 4000);
        let is_patient = round % 2 == 0;
        db.close(if is_patient { Duration::from_secs(600) } else { Duration::ZERO }).unwrap();
        let db = threaded(&disk).open(DIR).unwrap();
        let recovery = db.stats().recovery;
        assert_eq!(recovery.pending_losers, 0, "round {round}");
        assert!(recovery.was_clean || !is_patient, "round {round}: {recovery:?}");
        assert_eq!(verify(&db, &format!("round {round}")), 0);
    }
}
