//! Reads the log of another process while it is written. Run one of the other examples beside it.
//!
//! `cargo run --release -p foreshore-wal --example follow -- DIR`

use foreshore_wal::{Follower, Fs, GroupNo, ReadOnly, Result, Uuid};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Prints records as they become durable, until none has come for `timeout`. Returns how many there were.
pub(crate) fn run(dir: &Path, timeout: Duration) -> Result<u64> {
    let fs: Arc<dyn Fs> = Arc::new(ReadOnly::new(dir)?);
    let mut follower = Follower::open(&fs, dir, Uuid(*b"log of examples!"), GroupNo::ZERO)?;
    let mut count = 0;
    loop {
        while let Some(record) = follower.read()? {
            println!("{}: tag {}, {} bytes", record.lsn, record.tag, record.payload.len());
            count += 1;
        }
        // The records of the last group are returned when the next one is written: until then a crash could drop them.
        if !follower.wait(timeout)? {
            return Ok(count);
        }
    }
}

#[allow(dead_code, reason = "the test of examples calls the rest")]
fn main() -> Result<()> {
    let dir = std::env::args_os().nth(1).unwrap_or_else(|| "wal-example".into());
    run(dir.as_ref(), Duration::from_secs(60)).map(|count| println!("{count} records"))
}
