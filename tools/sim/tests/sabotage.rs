//! The rig sees what it is for: a disk that does not keep its promises is found out.

use foreshore_sim::{Script, crash, open};

/// Syncs that do nothing lose acknowledged commits, and the oracle says so.
#[test]
fn a_lying_disk_is_found_out() {
    let (sim, contents) = Script::loaded().unwrap();
    let mut script = Script::new(&sim, 1, contents);
    let db = open(&sim, 1).unwrap();
    sim.set_lying(true);
    script.run(&db, 20).unwrap();
    script.oracle.forget_tickets();
    drop(db);
    let verdict = crash::lose_power(&script, &sim, 1, 50);
    assert!(verdict.is_err(), "{verdict:?}");
}
