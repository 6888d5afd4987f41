//! Every acknowledged commit survives a power loss at every operation, and a second one during the recovery.
//!
//! `FORESHORE_SIM_STRIDE=1` visits every operation of the first history, and every fourth of the others, which replace
//! pages by all policies in turn; `FORESHORE_SIM_SEED` chooses others.

use foreshore_classics::replacement::ReplacementKind;
use foreshore_sim::{Script, crash, open};

/// Every policy has one at least.
const HISTORIES: u64 = 8;
const _: () = assert!(HISTORIES >= ReplacementKind::ALL.len() as u64);
const STRIDE: u64 = 100;
/// Of the histories but for the first.
const OTHERS: u64 = 4;
const ROUNDS: u32 = 130;
const LEAST_OPERATIONS: u64 = 500;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn power_lost_at_every_operation() {
    let (stride, seed) = (number("FORESHORE_SIM_STRIDE", STRIDE), number("FORESHORE_SIM_SEED", 1));
    lose_power(seed, stride);
    (seed + 1..seed + HISTORIES).for_each(|seed| lose_power(seed, OTHERS * stride));
}

fn lose_power(seed: u64, stride: u64) {
    let (sim, contents) = Script::loaded().unwrap();
    let mut script = Script::new(&sim, seed, contents);
    let db = open(&sim, seed).unwrap();
    script.run(&db, ROUNDS).unwrap();
    let marks = script.marks(&db);
    marks.assert_complete();
    assert!(marks.operations >= LEAST_OPERATIONS, "{marks:?}");
    assert!(script.oracle.acknowledged() > 50, "{} commits acknowledged", script.oracle.acknowledged());
    script.oracle.forget_tickets();
    drop(db);
    let images = crash::lose_power(&script.oracle, &sim, seed, stride).unwrap_or_else(|why| panic!("{why}"));
    println!("{marks:?}; {} crash images, half of them in recoveries", 2 * images);
    assert!(images >= marks.operations / stride * crash::POLICIES.len() as u64);
}
