//! A work queue on one table: workers claim the first job that no other worker has locked, and wait for inserts when
//! there is none. A worker that fails leaves its job to the others.
//!
//! ```text
//! cargo run -p foreshore --example work_queue
//! ```

use foreshore::{Db, Error, Options, ReadOptions, RowLock, TableDef, Transaction};
use std::time::Duration;

/// The jobs to do, by number.
const JOBS: TableDef<u64, &str> = TableDef::new("jobs");
/// The worker that did each job.
const DONE: TableDef<u64, u64> = TableDef::new("done");
const JOB_COUNT: u64 = 200;

fn main() -> Result<(), Error> {
    let db = Options::in_memory().open("queue")?;
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let db = &db;
        let workers: Vec<_> = (0..4_u64).map(|worker| scope.spawn(move || work(db, worker))).collect();
        let produced = produce(db);
        // Closes the database, which ends the waits of the workers.
        let closed = db.close(Duration::from_secs(1));
        produced?;
        closed?;
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect::<Result<_, _>>()
    })?;
    println!("jobs by worker: {counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), JOB_COUNT, "each job is done once");
    Ok(())
}

/// Inserts jobs one by one, and waits until all are done.
fn produce(db: &Db) -> Result<(), Error> {
    let mut done = db.watch_inserts(DONE)?;
    for job in 0..JOB_COUNT {
        db.run(|tx| tx.open(JOBS)?.put(job, "sweep"))?;
        if job % 50 == 0 {
            // The transaction is dropped after the claim, which rolls it back. That frees the job and wakes the
            // workers.
            println!("rolled back: {:?}", claim(&db.begin())?);
        }
    }
    // `latest`, since a watch is signalled before the commit is durable.
    while (db.read_with(ReadOptions::new().latest()).open(DONE)?.iter().count() as u64) < JOB_COUNT {
        done.wait(Duration::MAX)?;
    }
    assert_eq!(db.begin().open(JOBS)?.iter().count(), 0);
    Ok(())
}

/// Claims the first job that is not locked, and removes it. The removal counts when the transaction commits.
fn claim(tx: &Transaction) -> Result<Option<u64>, Error> {
    let jobs = tx.open(JOBS)?;
    let mut free = jobs.range_locked(.., RowLock::update().skip_locked());
    let Some((job, _)) = free.next().transpose()? else { return Ok(None) };
    jobs.remove(job)?;
    Ok(Some(job))
}

/// Does jobs until the database is closed, each in a transaction of its own. Returns the number of jobs done.
fn work(db: &Db, worker: u64) -> Result<u64, Error> {
    let mut jobs = db.watch_inserts(JOBS)?;
    let mut count = 0;
    loop {
        let claimed = db.run(|tx| {
            let job = claim(tx)?;
            if let Some(job) = job {
                tx.open(DONE)?.insert(job, worker)?;
            }
            Ok::<_, Error>(job)
        });
        match claimed {
            Ok(Some(_)) => count += 1,
            // The wait ends when a job was inserted, or a claim was rolled back, since the last wait. The timeout
            // covers rows that become free without a signal.
            Ok(None) => match jobs.wait(Duration::from_secs(1)) {
                Err(Error::Closed) => return Ok(count),
                Err(error) => return Err(error),
                Ok(_) => {}
            },
            Err(Error::Closed) => return Ok(count),
            Err(error) => return Err(error),
        }
    }
}
