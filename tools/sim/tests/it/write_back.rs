//! A write-back that fails for a while in buffered mode, then a start from the cache that it leaves, then a power loss.
//! No acknowledged commit is lost, and no wrong byte is read.
//!
//! `FORESHORE_SIM_SEED` chooses other histories.

use foreshore_sim::Script;
use foreshore_sim::write_back::{Cache, fail_and_lose_power};

const ROUNDS: u32 = 24;

/// Runs `histories` and returns what is wrong with some.
fn run(cache: Cache, histories: u64) -> Vec<String> {
    let first = std::env::var("FORESHORE_SIM_SEED").map_or(1, |text| text.parse().expect("a number"));
    let (disk, contents) = Script::loaded().unwrap();
    disk.stop_recording();
    let (mut cut, mut wrong) = (0, Vec::new());
    for seed in first..first + histories {
        match fail_and_lose_power(&disk, &contents, cache, seed, ROUNDS) {
            Ok(times) => cut += u64::from(times),
            Err(why) => wrong.push(format!("seed {seed}: {why}")),
        }
    }
    assert!(cut + 2 * wrong.len() as u64 > histories, "only {cut} failures were met");
    wrong
}

#[test]
fn a_failed_write_back_loses_nothing_in_two_hundred_histories() {
    let wrong = run(Cache::Passed, 200);
    assert!(wrong.is_empty(), "{} are wrong: {wrong:#?}", wrong.len());
}

/// Without direct I/O, and where the cache keeps its pages whatever it is told.
#[test]
fn a_start_that_sees_the_cache_alone_writes_homes_again() {
    let wrong = run(Cache::Opaque, 100);
    assert!(wrong.is_empty(), "{} are wrong: {wrong:#?}", wrong.len());
}
