//! The examples do what they say.

#[path = "../../examples/append_force.rs"]
mod append_force;
#[path = "../../examples/follow.rs"]
mod follow;
#[path = "../../examples/pipelined.rs"]
mod pipelined;

use std::path::Path;
use std::time::Duration;

#[test]
fn every_example_runs_on_the_log_of_the_others() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples");
    let _ = std::fs::remove_dir_all(&dir);
    assert_eq!(append_force::run(&dir).unwrap(), 1);
    assert_eq!(append_force::run(&dir).unwrap(), 2);
    // The last group is not confirmed.
    assert_eq!(follow::run(&dir, Duration::ZERO).unwrap(), 1);
    let (acknowledged, groups) = pipelined::run(&dir, 1000).unwrap();
    assert_eq!(acknowledged, 1000);
    assert!((1..=1000).contains(&groups));
    let followed = follow::run(&dir, Duration::ZERO).unwrap();
    assert!((2..1002).contains(&followed), "{followed}");
    assert_eq!(append_force::run(&dir).unwrap(), 1003);
    std::fs::remove_dir_all(&dir).unwrap();
}
