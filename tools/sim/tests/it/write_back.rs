//! A write-back that fails for a while in buffered mode, then a start from the cache that it leaves, then a power loss.
//! No acknowledged commit is lost, and no wrong byte is read.
//!
//! `FORESHORE_SIM_SEED` chooses other histories, and `FORESHORE_SIM_HISTORIES` how many.

use foreshore_sim::Script;
use foreshore_sim::write_back::{Cache, fail_and_lose_power};

const ROUNDS: u32 = 24;
const HISTORIES: u64 = 40;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Runs every `step`-th of the histories and returns what is wrong with some.
fn run(cache: Cache, step: usize) -> Vec<String> {
    let first = number("FORESHORE_SIM_SEED", 1);
    let seeds = (first..first + number("FORESHORE_SIM_HISTORIES", HISTORIES)).step_by(step);
    let histories = seeds.clone().count() as u64;
    let (disk, contents) = Script::loaded().unwrap();
    disk.stop_recording();
    let (mut cut, mut wrong) = (0, Vec::new());
    for seed in seeds {
        match fail_and_lose_power(&disk, &contents, cache, seed, ROUNDS) {
            Ok(times) => cut += u64::from(times),
            Err(why) => wrong.push(format!("seed {seed}: {why}")),
        }
    }
    assert!(cut + 2 * wrong.len() as u64 > histories, "only {cut} failures were met");
    wrong
}

#[test]
fn a_failed_write_back_loses_nothing() {
    let wrong = run(Cache::Passed, 1);
    assert!(wrong.is_empty(), "{} are wrong: {wrong:#?}", wrong.len());
}

/// Without direct I/O, and where the cache keeps its pages whatever it is told.
#[test]
fn a_start_that_sees_the_cache_alone_writes_homes_again() {
    let wrong = run(Cache::Opaque, 2);
    assert!(wrong.is_empty(), "{} are wrong: {wrong:#?}", wrong.len());
}
