//! A way back to a savepoint that leaves something behind is found out, while the transaction runs or afterwards.

use foreshore_sim::{Script, open};

const ROUNDS: u32 = 20;

fn run(forgets: bool) {
    let (sim, contents) = Script::loaded().unwrap();
    let script = Script::new(&sim, 1, contents);
    let mut script = if forgets { script.forgetful() } else { script };
    let db = open(&sim, 1).unwrap();
    script.run(&db, ROUNDS).unwrap();
    assert!(script.marks(&db).went_back > 4);
    script.oracle.verify(&db, sim.ops()).unwrap_or_else(|why| panic!("not as the script has left it: {why}"));
}

#[test]
fn what_is_taken_back_to_a_savepoint_is_gone() {
    run(false);
}

#[test]
#[should_panic(expected = "as the script has left it")]
fn a_change_that_is_forgotten_is_found_out() {
    run(true);
}
