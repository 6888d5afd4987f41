//! A work queue on one table: workers claim the first job that no other worker has locked. A worker that fails leaves
//! its job to the others.
//!
//! ```text
//! cargo run -p foreshore --example work_queue
//! ```

use foreshore::{Db, Error, Options, RowLock, TableDef, Transaction};
use std::time::Duration;

const JOBS: TableDef<u64, &str> = TableDef::new("jobs");
const DONE: TableDef<u64, u64> = TableDef::new("done");
const JOB_COUNT: u64 = 200;

fn main() -> Result<(), Error> {
    let db = Options::in_memory().open("queue")?;
    db.run(|tx| {
        tx.open(DONE)?;
        let jobs = tx.open(JOBS)?;
        (0..JOB_COUNT).try_for_each(|job| jobs.insert(job, "sweep").map(drop))
    })?;

    // A worker that claims the first job and then fails: the rollback leaves the job in the queue.
    let failed = db.begin();
    let first = claim(&failed)?;
    // While that worker holds the job, another one passes over it and waits for nothing.
    let beside = db.begin();
    println!("first worker claims {first:?}, second worker claims {:?}", claim(&beside)?);
    drop((failed, beside));

    let done: Vec<u64> = std::thread::scope(|scope| {
        let db = &db;
        let workers: Vec<_> = (0..4_u64).map(|number| scope.spawn(move || work(db, number))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect::<Result<_, _>>()
    })?;
    println!("jobs by worker: {done:?}");

    let read = db.read();
    assert_eq!(read.open(DONE)?.iter().count() as u64, JOB_COUNT, "each job is done");
    assert_eq!(done.iter().sum::<u64>(), JOB_COUNT, "and done once");
    assert_eq!(read.open(JOBS)?.iter().count(), 0);
    drop(read);
    db.close(Duration::from_secs(1))
}

/// Claims the first job that is not locked, and removes it. The removal counts when the transaction commits.
fn claim(tx: &Transaction) -> Result<Option<u64>, Error> {
    let jobs = tx.open(JOBS)?;
    let mut free = jobs.range_locked(.., RowLock::update().skip_locked());
    let Some((job, _)) = free.next().transpose()? else { return Ok(None) };
    jobs.remove(job)?;
    Ok(Some(job))
}

/// Does jobs until none is left, each in a transaction of its own. Returns how many.
fn work(db: &Db, number: u64) -> Result<u64, Error> {
    let mut count = 0;
    loop {
        let claimed = db.run(|tx| {
            let job = claim(tx)?;
            if let Some(job) = job {
                tx.open(DONE)?.insert(job, number)?;
            }
            Ok::<_, Error>(job)
        })?;
        if claimed.is_none() {
            return Ok(count);
        }
        count += 1;
    }
}
