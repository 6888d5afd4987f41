//! Transactions in an asynchronous program: 256 tasks on a runtime of two threads contend for four rows, and none of
//! them blocks the runtime. A task with a timer, on the same two threads, measures that.
//!
//! ```text
//! cargo run --release -p foreshore --example async_tokio -- 10
//! ```
//!
//! The argument is the time in seconds. `Db::submit` runs each transaction on a thread of the database, so a wait for a
//! lock or for the disk never stops a thread of the runtime.

use foreshore::{Db, Error, TableDef};
use std::time::{Duration, Instant};
use tokio::{runtime::Builder, time};

const COUNTERS: TableDef<u64, u64> = TableDef::new("counters");
const TASKS: u64 = 256;
const ROWS: u64 = 4;
const TICK: Duration = Duration::from_millis(5);

/// What the tasks have measured.
pub(crate) struct Figures {
    pub(crate) transactions: u64,
    /// Longest time from a call of `submit` to its result.
    pub(crate) longest_wait: Duration,
    /// Most that a timer of the runtime was late.
    pub(crate) latest_timer: Duration,
}

#[allow(dead_code, reason = "the test of examples calls the rest")]
fn main() -> Result<(), Error> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10);
    let dir = std::env::temp_dir().join(format!("foreshore-async-{}", std::process::id()));
    let db = Db::open(&dir)?;
    let Figures { transactions, longest_wait, latest_timer } = contend(&db, Duration::from_secs(seconds))?;
    println!("{:.0} durable transactions a second", transactions as f64 / seconds as f64);
    println!("longest wait of a task for its transaction: {:.1} ms", longest_wait.as_secs_f64() * 1e3);
    println!("a timer of the runtime was late by at most {:.1} ms", latest_timer.as_secs_f64() * 1e3);
    db.close(Duration::from_secs(1))?;
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", dir, error))
}

/// Increments the counters for some time. The timer runs as long as the tasks do.
pub(crate) fn contend(db: &Db, time: Duration) -> Result<Figures, Error> {
    db.run(|tx| {
        let counters = tx.open(COUNTERS)?;
        (0..ROWS).try_for_each(|row| counters.put(row, 0))
    })?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.map_err(|error| Error::io("start", "the runtime", error))?;
    let until = Instant::now() + time;
    let figures = runtime.block_on(async {
        let timer = tokio::spawn(measure_timers(until));
        let tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(increment(db.clone(), task, until))).collect();
        let (mut transactions, mut longest_wait) = (0, Duration::ZERO);
        for task in tasks {
            let (count, longest) = task.await.expect("no panic")?;
            transactions += count;
            longest_wait = longest_wait.max(longest);
        }
        Ok::<_, Error>(Figures { transactions, longest_wait, latest_timer: timer.await.expect("no panic") })
    })?;
    let sum: u64 = db.read().open(COUNTERS)?.iter().map(|row| row.map(|(_, count)| count)).sum::<Result<_, _>>()?;
    assert_eq!(sum, figures.transactions, "each increment counts once");
    Ok(figures)
}

/// Increments one counter again and again. Returns how often, and the longest wait for a transaction.
async fn increment(db: Db, task: u64, until: Instant) -> Result<(u64, Duration), Error> {
    let (mut count, mut longest) = (0, Duration::ZERO);
    while Instant::now() < until {
        let begun = Instant::now();
        let row = (task + count) % ROWS;
        // Durable when it resolves. The closure may run again, if another transaction ended it.
        db.submit(move |tx| {
            tx.open(COUNTERS)?.update_with(row, |count| Some(count.unwrap_or(0) + 1))?;
            Ok::<_, Error>(())
        })
        .await?;
        longest = longest.max(begun.elapsed());
        count += 1;
    }
    Ok((count, longest))
}

/// Sleeps for short times. Returns how late it woke at most.
async fn measure_timers(until: Instant) -> Duration {
    let mut latest = Duration::ZERO;
    while Instant::now() < until {
        let begun = Instant::now();
        time::sleep(TICK).await;
        latest = latest.max(begun.elapsed().saturating_sub(TICK));
    }
    latest
}
