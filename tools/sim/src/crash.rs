//! Power losses: at every operation of a history, with every policy, and once more during the recovery or before its
//! checkpoint.

use crate::{Oracle, Random, open};
use foreshore::{Db, Error, TableDef};
use foreshore_io::sim::{CrashPoints, Persist};
use foreshore_io::{Fs, Sim};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// What survives of the unsynced effects. Power losses during recovery add torn sectors and the rest of
/// [`Persist::ALL`].
pub const POLICIES: [Persist; 6] =
    [Persist::None, Persist::All, Persist::Prefix, Persist::DropOne, Persist::RandomHalf, Persist::MetadataFirst];

/// Every how many images the recovered database is written to and crashed a third time.
const WRITE_EVERY: u64 = 16;
/// Steps of background work, at most, behind a recovery that is lost again.
const MOST_STEPS: u64 = 16;
/// Threads that work on the images of a history.
const WORKERS: u64 = 2;

/// Recovers from power losses at every `stride`-th operation of the history of `oracle`, which has ended, with each of
/// [`POLICIES`]. Each recovery is itself interrupted once, and the next one must find the same. Returns the number of
/// images.
///
/// # Errors
/// Says which image was recovered wrongly: seed, operation, policy, operation of the recovery.
pub fn lose_power(oracle: &Oracle, sim: &Sim, seed: u64, stride: u64) -> Result<u64, String> {
    look_for(oracle, sim, seed, (0, stride, &POLICIES), &|_| true)
}

/// As [`lose_power`], but at the operations that are `from` modulo `stride`, with these policies, and goes on when what
/// is wrong with an image is not what is `wanted`.
///
/// # Errors
/// The recovery of the earliest operation that is wrong in the way that is wanted.
pub fn look_for(
    oracle: &Oracle,
    sim: &Sim,
    seed: u64,
    (from, stride, policies): (u64, u64, &[Persist]),
    wanted: &(dyn Fn(&str) -> bool + Sync),
) -> Result<u64, String> {
    let (points, earliest) = (sim.crash_points(), AtomicU64::new(u64::MAX));
    let visited: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (points, earliest) = (points.clone(), &earliest);
                let places =
                    Places { stride: stride * WORKERS, first: stride * worker + from % stride, policies, earliest };
                scope.spawn(move || visit(oracle, points, seed, &places, wanted))
            })
            .collect();
        let failed = |_| Err((0, "a worker panicked".to_owned()));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(failed)).collect()
    });
    let wrong = visited.iter().filter_map(|visited| visited.as_ref().err()).min();
    wrong.map_or_else(|| Ok(visited.iter().flatten().sum()), |(_, why)| Err(why.clone()))
}

/// The operations of which power is lost in every `stride`-th, from `first` on, and with what policies.
struct Places<'p> {
    stride: u64,
    first: u64,
    policies: &'p [Persist],
    /// The earliest operation that a worker has found wrong. No worker looks behind it.
    earliest: &'p AtomicU64,
}

/// Returns the number of images, or the operation that is wrong, and why.
fn visit(
    oracle: &Oracle,
    mut points: CrashPoints,
    seed: u64,
    &Places { stride, first, policies, earliest }: &Places<'_>,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<u64, (u64, String)> {
    let mut images = 0;
    loop {
        let op = points.op();
        // ORDERING: Relaxed, a hint that saves work.
        if op > earliest.load(Ordering::Relaxed) {
            return Ok(images);
        }
        if op % stride == first {
            for (at, policy) in policies.iter().enumerate() {
                // A policy that stands there twice draws twice.
                let before = policies[..at].iter().filter(|&before| before == policy).count() as u64;
                images += 1;
                let place = format!("seed {seed}, power lost in operation {op}, {policy:?}");
                match recover(oracle, &points.image(policy, op | before << 32), op, images) {
                    Err(why) if wanted(&why) => {
                        // ORDERING: Relaxed, see above.
                        earliest.fetch_min(op, Ordering::Relaxed);
                        return Err((op, format!("{place}: {why}")));
                    }
                    _ => {}
                }
            }
        }
        if !points.advance() {
            return Ok(images);
        }
    }
}

fn recover(oracle: &Oracle, image: &Sim, op: u64, number: u64) -> Result<(), String> {
    let seed = op.wrapping_mul(31).wrapping_add(number);
    let db = reopen(image, seed, "after the loss")?;
    let found = oracle.verify(&db, op)?;
    let mut random = Random::new(seed);
    // The checkpoint of the start comes in one of these, or later.
    (0..random.below(MOST_STEPS)).for_each(|_| db.step());
    let recovery = image.ops();
    drop(db);
    let mut points = image.crash_points();
    (0..random.below(recovery.max(1))).for_each(|_| _ = points.advance());
    let policy = Persist::ALL[random.below(Persist::ALL.len() as u64) as usize];
    let nested = format!("power lost again in operation {} of the recovery, {policy:?}", points.op());
    let again = points.image(&policy, seed);
    let db = reopen(&again, seed, &nested)?;
    let second = oracle.verify(&db, op).map_err(|why| format!("{nested}: {why}"))?;
    // More may be there: what a torn group lacks may be the zeros that the first recovery was about to write over it.
    if second.last < found.first {
        return Err(format!("{nested}: the second recovery found less, {second:?} and not {found:?}"));
    }
    if number.is_multiple_of(WRITE_EVERY) {
        write_and_lose(oracle, &again, db).map_err(|why| format!("{nested}, then written to: {why}"))?;
    }
    Ok(())
}

/// The recovered database takes writes, and keeps them over another loss.
fn write_and_lose(oracle: &Oracle, disk: &Sim, db: Db) -> Result<(), String> {
    const EXTRA: TableDef<'static, u64, u64> = TableDef::new("after the crash");
    let before = oracle.read(&db)?;
    let write = |db: &Db| db.run(|tx| tx.open(EXTRA)?.insert(1, 42).map(drop));
    write(&db).map_err(|error: Error| format!("write: {error}"))?;
    let image = disk.crash_image(&Persist::None, 1);
    drop(db);
    let db = reopen(&image, 1, "a third time")?;
    db.check().map_err(|error| format!("check: {error}"))?;
    let kept = db.run(|tx| tx.open(EXTRA)?.get(1)).map_err(|error: Error| error.to_string())?;
    if kept != Some(42) || oracle.read(&db)? != before {
        return Err("an acknowledged write after the recovery is lost".to_owned());
    }
    Ok(())
}

fn reopen(image: &Sim, seed: u64, when: &str) -> Result<Db, String> {
    open(image, seed).map_err(|error| {
        let names = image.list(Path::new("db")).unwrap_or_default();
        format!("open {when}: {error} ({error:?}); files {names:?}")
    })
}
