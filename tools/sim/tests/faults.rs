//! An operation of the disk fails: no wrong acknowledgement, a typed error, and a reopen that works.
//!
//! `FORESHORE_SIM_STRIDE=1` strikes every operation of the history.

use foreshore_io::sim::{Fault, FaultKind};
use foreshore_sim::{Script, faults, open};

const STRIDE: u64 = 40;
const ROUNDS: u32 = 40;
const SEED: u64 = 1;

/// Strikes operations with `kind` in turn and returns how many met it.
fn strike_all(kind: FaultKind, sticky: bool, step: u64) -> u64 {
    let stride = std::env::var("FORESHORE_SIM_STRIDE").map_or(STRIDE, |text| text.parse().expect("a number")) * step;
    let (sim, contents) = Script::loaded().unwrap();
    let whole = sim.fork();
    let mut script = Script::new(&whole, SEED, contents.clone());
    let db = open(&whole, SEED).unwrap();
    script.run(&db, ROUNDS).unwrap();
    let operations = sim.ops()..whole.ops();
    script.oracle.forget_tickets();
    drop(db);
    let mut met = 0;
    for at in operations.step_by(usize::try_from(stride).unwrap()) {
        let fault = Fault { at, kind, sticky };
        match faults::strike(&sim, &contents, SEED, ROUNDS, fault) {
            Ok(struck) => met += u64::from(struck),
            Err(why) => panic!("seed {SEED}, {fault:?}: {why}"),
        }
    }
    met
}

#[test]
fn an_input_output_error_stops_the_database() {
    assert!(strike_all(FaultKind::Eio, false, 1) > 5);
}

#[test]
fn a_device_that_fails_for_good_stops_the_database() {
    assert!(strike_all(FaultKind::Eio, true, 3) > 2);
}

#[test]
fn a_full_disk_refuses_the_writer() {
    strike_all(FaultKind::Enospc, false, 1);
}

#[test]
fn a_disk_that_stays_full_refuses_writers() {
    assert!(strike_all(FaultKind::Enospc, true, 3) > 0);
}

#[test]
fn signals_lose_nothing() {
    assert!(strike_all(FaultKind::Eintr, false, 2) > 2);
}

#[test]
fn short_writes_go_unnoticed() {
    assert!(strike_all(FaultKind::ShortWrite(1024), false, 1) > 2);
}
