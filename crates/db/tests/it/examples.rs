//! The examples do what they say.

#[path = "../../examples/async_tokio.rs"]
mod async_tokio;

use crate::support::in_memory;
use std::time::Duration;

/// The example counts the increments itself. How long they take depends on the machine.
#[test]
fn tasks_of_a_runtime_contend_for_rows() {
    let (db, _) = in_memory();
    let figures = async_tokio::contend(&db, Duration::from_secs(1)).unwrap();
    assert!(figures.transactions >= 256, "each task has done one");
    println!("{} transactions, {:?}, {:?}", figures.transactions, figures.longest_wait, figures.latest_timer);
}
