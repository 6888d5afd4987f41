//! Many writers with pipelined commits: each writer goes on while the disk is busy, and a ticket tells when a commit is
//! durable. A blocking commit waits for the disk each time.
//!
//! ```text
//! cargo run --release -p foreshore --example pipelined_commits
//! ```

use foreshore::{CommitTicket, Db, Error, TableDef};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const EVENTS: TableDef<(u64, u64), u64> = TableDef::new("events");
const WRITERS: u64 = 4;
const COMMITS: u64 = 1_000;
/// Commits of a writer that may wait for the disk.
const IN_FLIGHT: usize = 64;

fn main() -> Result<(), Error> {
    let dir = std::env::temp_dir().join(format!("foreshore-pipelined-{}", std::process::id()));
    let db = Db::open(&dir)?;
    // The table is created first, so that the writers do not wait for its creation.
    db.run(|tx| tx.open(EVENTS).map(drop))?;

    for (name, in_flight) in [("blocking", 0), ("pipelined", IN_FLIGHT)] {
        let began = Instant::now();
        std::thread::scope(|scope| {
            let db = &db;
            let writers: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || write(db, writer, in_flight))).collect();
            writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))
        })?;
        let rate = (WRITERS * COMMITS) as f64 / began.elapsed().as_secs_f64();
        println!("{name:9}: {rate:8.0} durable commits a second by {WRITERS} threads");
    }

    let rows = db.read().open(EVENTS)?.iter().count() as u64;
    assert_eq!(rows, WRITERS * COMMITS);
    db.close(Duration::from_secs(1))?;
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", dir, error))
}

/// Commits the rows of one writer, with at most `in_flight` commits that are not durable yet.
fn write(db: &Db, writer: u64, in_flight: usize) -> Result<(), Error> {
    let mut tickets: VecDeque<CommitTicket> = VecDeque::new();
    for number in 0..COMMITS {
        let tx = db.begin();
        tx.open(EVENTS)?.insert((writer, number), number)?;
        // The order is fixed and the locks are free. The ticket stands for the disk.
        tickets.push_back(tx.commit_pipelined()?);
        if tickets.len() > in_flight {
            tickets.pop_front().expect("just added").wait()?;
        }
    }
    // A ticket is also a future, and `on_durable` takes a callback.
    tickets.iter().try_for_each(CommitTicket::wait)
}
