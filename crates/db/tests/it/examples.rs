//! The examples do what they say.

#[path = "../../examples/async_tokio.rs"]
mod async_tokio;

use crate::support::in_memory;
use foreshore::Db;
use std::time::Duration;

/// The example counts the increments itself. How long they take depends on the machine, so only a run that asks for it
/// checks that. With `FORESHORE_CONTEND_SECS=60` the tasks contend for a minute, in a database on disk.
#[test]
fn tasks_of_a_runtime_contend_for_rows() {
    let asked = std::env::var("FORESHORE_CONTEND_SECS").ok();
    let figures = match &asked {
        None => async_tokio::contend(&in_memory().0, Duration::from_secs(1)).unwrap(),
        Some(seconds) => {
            let dir = std::env::temp_dir().join(format!("foreshore-contend-{}", std::process::id()));
            let db = Db::open(&dir).unwrap();
            let time = Duration::from_secs(seconds.parse().expect("a number of seconds"));
            let figures = async_tokio::contend(&db, time).unwrap();
            db.close(Duration::from_secs(10)).unwrap();
            std::fs::remove_dir_all(&dir).unwrap();
            figures
        }
    };
    println!("{} transactions, {:?}, {:?}", figures.transactions, figures.longest_wait, figures.latest_timer);
    assert!(figures.transactions >= 256, "each task has done one");
    if asked.is_some() {
        assert!(figures.longest_wait <= Duration::from_secs(1), "a task has waited for {:?}", figures.longest_wait);
        assert!(figures.latest_timer < Duration::from_millis(50), "a timer was late by {:?}", figures.latest_timer);
    }
}
