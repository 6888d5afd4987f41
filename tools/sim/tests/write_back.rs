//! A write-back that fails for a while in buffered mode, a start from the cache that it leaves, and then a power loss: nothing
//! acknowledged is lost, and nothing wrong is read.
//!
//! `FORESHORE_SIM_SEED` chooses other histories.

use foreshore_sim::{Script, write_back};

const HISTORIES: u64 = 200;
const ROUNDS: u32 = 24;

#[test]
fn a_failed_write_back_loses_nothing_in_two_hundred_histories() {
    let seed = std::env::var("FORESHORE_SIM_SEED").map_or(1, |text| text.parse().expect("a number"));
    let (disk, contents) = Script::loaded().unwrap();
    disk.stop_recording();
    let (mut cut, mut wrong) = (0, Vec::new());
    for seed in seed..seed + HISTORIES {
        match write_back::fail_and_lose_power(&disk, &contents, seed, ROUNDS) {
            Ok(times) => cut += times,
            Err(why) => wrong.push(format!("seed {seed}: {why}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {HISTORIES} histories: {wrong:#?}", wrong.len());
    assert!(u64::from(cut) > HISTORIES, "{cut} failures were met");
}
