//! Failed write-backs: the page cache keeps bytes that the medium does not have, the database starts again from it, and
//! power is lost afterwards.

use crate::{Contents, Random, Script, open};
use foreshore::{Db, Error};
use foreshore_io::Sim;
use foreshore_io::sim::{Fault, FaultKind, Persist};

/// Operations in which the first failure of a history strikes.
const SPAN: u64 = 300;
/// Starts after a failure, with a history behind each.
const STARTS: u32 = 2;

/// What a start can see of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// It reads past the cache.
    Passed,
    /// It sees the cache alone, and homes are written again from the doublewrite file.
    Opaque,
}

/// Runs histories of `rounds` rounds on a copy of `disk` with a page cache, whose write-back fails for a while in each.
/// The database starts again with the cache as it is, in the same process or as if in another one. The last history
/// meets no failure and ends with a power loss. Returns how many histories ended early.
///
/// # Errors
/// Says what is lost or wrong.
pub fn fail_and_lose_power(
    disk: &Sim,
    contents: &Contents,
    cache: Cache,
    seed: u64,
    rounds: u32,
) -> Result<u32, String> {
    let sim = disk.fork();
    sim.set_buffered(true);
    sim.set_cache_opaque(cache == Cache::Opaque);
    let mut random = Random::new(seed);
    let (mut contents, mut cut) = (contents.clone(), 0);
    let mut db = open(&sim, seed).map_err(|error| format!("open: {error}"))?;
    for start in 0..STARTS {
        let kind = if random.below(4) == 0 { FaultKind::LateEnospc } else { FaultKind::LateEio };
        sim.inject(Fault { at: sim.ops() + random.below(SPAN), kind, sticky: true });
        let mut script = Script::new(&sim, seed + u64::from(start), contents);
        let outcome = script.run(&db, rounds).and_then(|()| db.checkpoint());
        script.oracle.poll(sim.ops());
        script.oracle.forget_tickets();
        cut += u32::from(outcome.is_err());
        let place = format!("start {start} after {outcome:?}");
        db = start_again(&sim, db, &mut random).map_err(|error| format!("{place}: {error}"))?;
        script.oracle.verify(&db, sim.ops()).map_err(|why| format!("{place}: {why}"))?;
        contents = script.oracle.rows(&db)?;
    }
    let mut script = Script::new(&sim, seed + u64::from(STARTS), contents);
    script.run(&db, rounds).and_then(|()| db.checkpoint()).map_err(|error| format!("no failure is left: {error}"))?;
    script.oracle.poll(sim.ops());
    script.oracle.forget_tickets();
    let policy = Persist::ALL[random.below(Persist::ALL.len() as u64) as usize];
    let lost = sim.crash_image(&policy, seed);
    drop(db);
    let place = format!("after power loss, {policy:?}");
    let db = open(&lost, seed).map_err(|error| format!("open {place}: {error}"))?;
    script.oracle.verify(&db, sim.ops()).map_err(|why| format!("{place}: {why}"))?;
    Ok(cut)
}

/// Starts the database again, once write-backs work. Half of the starts meet one more failure that the kernel has not
/// reported yet.
fn start_again(sim: &Sim, db: Db, random: &mut Random) -> Result<Db, Error> {
    sim.clear_faults();
    if random.below(2) == 0 {
        sim.fail_write_back(["db/data", "db/dw", "db/log/ctl"][random.below(3) as usize].as_ref())?;
    }
    if random.below(2) == 0 {
        return db.reopen();
    }
    drop(db);
    open(sim, random.below(100))
}
