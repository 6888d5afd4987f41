//! An operation of the disk fails: no wrong acknowledgement, a typed error, and a reopen that works.
//!
//! `FORESHORE_SIM_STRIDE=1` strikes every operation of the history, and every eighth read; `FORESHORE_SIM_SEED`
//! chooses another one.

use foreshore_io::Sim;
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_sim::faults::{self, Strike};
use foreshore_sim::{Contents, Script, open, spills};
use std::ops::Range;

const STRIDE: u64 = 40;
/// Rounds of a history of more than [`LEAST_OPERATIONS`].
const LONG: u32 = 130;
const LEAST_OPERATIONS: u64 = 500;
/// Rounds for faults that matter less.
const SHORT: u32 = 40;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// A history to strike.
struct History {
    seed: u64,
    disk: Sim,
    contents: Contents,
    rounds: u32,
    operations: Range<u64>,
    space_ops: Vec<u64>,
    reads: Range<u64>,
}

impl History {
    fn new(rounds: u32) -> Self {
        Self::of(number("FORESHORE_SIM_SEED", 1), rounds)
    }

    fn of(seed: u64, rounds: u32) -> Self {
        let (disk, contents) = Script::loaded().unwrap();
        let whole = disk.fork();
        let mut script = Script::new(&whole, seed, contents.clone());
        let db = open(&whole, seed).unwrap();
        script.run(&db, rounds).unwrap();
        let (operations, reads) = (disk.ops()..whole.ops(), disk.reads()..whole.reads());
        let space_ops = whole.space_ops();
        assert_eq!(spills(seed), script.marks(&db).undo_fetches > 0, "undo is read back where it goes to a file");
        script.oracle.forget_tickets();
        Self { seed, disk, contents, rounds, operations, space_ops, reads }
    }

    /// Strikes every `step`-th of `numbers` and returns how many strikes were met. The stride of the environment comes
    /// on top.
    fn strike_all(&self, numbers: &Range<u64>, step: u64, strike: impl Fn(u64) -> Strike) -> u64 {
        let step = usize::try_from(number("FORESHORE_SIM_STRIDE", STRIDE) * step).unwrap();
        numbers.clone().step_by(step).map(strike).map(|strike| self.strike(strike)).sum()
    }

    fn strike(&self, strike: Strike) -> u64 {
        match faults::strike(&self.disk, &self.contents, self.seed, self.rounds, strike) {
            Ok(met) => u64::from(met),
            Err(why) => panic!("seed {}, {strike:?}: {why}", self.seed),
        }
    }

    /// Strikes operations.
    fn fail(&self, kind: FaultKind, sticky: bool, step: u64) -> u64 {
        self.strike_all(&self.operations, step, |at| Strike::Operation(Fault { at, kind, sticky }))
    }
}

#[test]
fn an_input_output_error_stops_the_database() {
    let history = History::new(LONG);
    assert!(history.operations.clone().count() as u64 >= LEAST_OPERATIONS);
    assert!(history.fail(FaultKind::Eio, false, 1) > 5);
}

/// Few operations need space; all of them are struck whatever the stride.
#[test]
fn a_full_disk_refuses_the_writer() {
    let history = History::new(LONG);
    assert!(history.space_ops.len() > 5, "{:?}", history.space_ops);
    for &at in &history.space_ops {
        let fault = Fault { at, kind: FaultKind::Enospc, sticky: false };
        assert_eq!(history.strike(Strike::Operation(fault)), 1, "{fault:?} is not met");
    }
}

#[test]
fn a_read_that_fails_ends_the_transaction() {
    let history = History::new(LONG);
    assert!(history.strike_all(&history.reads, 8, Strike::Read) > 5);
}

#[test]
fn a_device_that_fails_for_good_stops_the_database() {
    assert!(History::new(SHORT).fail(FaultKind::Eio, true, 3) > 2);
}

#[test]
fn a_disk_that_stays_full_refuses_writers() {
    assert!(History::new(SHORT).fail(FaultKind::Enospc, true, 3) > 0);
}

#[test]
fn signals_lose_nothing() {
    assert!(History::new(SHORT).fail(FaultKind::Eintr, false, 2) > 2);
}

#[test]
fn short_writes_go_unnoticed() {
    assert!(History::new(SHORT).fail(FaultKind::ShortWrite(1024), false, 1) > 2);
}

/// A seed of a history whose undo goes to a file.
const SPILLS: u64 = 2;

#[test]
fn a_history_with_undo_in_a_file_is_the_same_each_time() {
    let [first, second] = [(); 2].map(|()| History::of(SPILLS, SHORT));
    assert_eq!((first.operations, first.reads), (second.operations, second.reads));
}

#[test]
fn a_disk_that_fails_under_undo_in_a_file_loses_nothing() {
    let history = History::of(SPILLS, SHORT);
    assert!(history.fail(FaultKind::Eio, false, 1) > 2);
    assert!(history.fail(FaultKind::Enospc, true, 3) > 0);
    assert!(history.strike_all(&history.reads, 8, Strike::Read) > 2);
}
