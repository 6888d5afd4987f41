//! What a table takes on disk after many inserts, over the bytes of its keys and values, by the order of the inserts.
//! A row has 24 bytes beside its key and its value, so short rows take more.
//!
//! ```text
//! cargo run --release -p foreshore --example space_of_inserts -- [ROWS [VALUE_BYTES]]
//! ```

use foreshore::{Db, Durability, Error, Options, TableDef, TxnOptions};
use std::path::Path;
use std::time::Duration;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const KEY: u64 = 8;
const RUNS: u64 = 100;
/// Rows of a transaction.
const BATCH: u64 = 1000;

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let (rows, value) = (args.next().unwrap_or(100_000), args.next().unwrap_or(100));
    println!("{rows} rows of {KEY} + {value} bytes");
    println!("{:16}  data file  pages of the table  fill of leaves", "order");
    let each = rows / RUNS;
    show("ascending", (rows, value), |n| n)?;
    show("descending", (rows, value), |n| u64::MAX - n)?;
    // The runs take turns: row by row, and ten rows at a time.
    show("100 runs", (rows, value), |n| (n % RUNS) * each + n / RUNS)?;
    show("100 runs by ten", (rows, value), |n| (n / 10 % RUNS) * each + n / 10 / RUNS * 10 + n % 10)?;
    show("random", (rows, value), |n| {
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15).swap_bytes().wrapping_mul(0xD134_2543_DE82_EF95)
    })
}

/// Inserts rows in the order of `key`, and prints their space.
fn show(order: &str, (rows, value): (u64, u64), key: impl Fn(u64) -> u64) -> Result<(), Error> {
    let dir = std::env::temp_dir().join(format!("foreshore-space-of-inserts-{}", std::process::id()));
    let db = Options::new().memory_limit(512 << 20).open(&dir)?;
    let options = TxnOptions::new().durability(Durability::Relaxed);
    for first in (0..rows).step_by(BATCH as usize) {
        db.run_with(options, |tx| {
            let table = tx.open(ROWS)?;
            (first..rows.min(first + BATCH)).try_for_each(|n| table.put(key(n), &vec![n as u8; value as usize][..]))
        })?;
    }
    db.sync()?;
    let stats = db.read().open(ROWS)?.stats()?;
    assert_eq!(stats.rows, rows, "each key is drawn once");
    db.vacuum()?;
    let bytes = (rows * (KEY + value)) as f64;
    let (file, pages) = (data(&db, &dir)? as f64 / bytes, stats.bytes as f64 / bytes);
    println!("{order:16}  {file:9.3}  {pages:18.3}  {:13.1}%", stats.fill_permille as f64 / 10.0);
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", dir, error))
}

/// Closes the database and returns the bytes of its data file.
fn data(db: &Db, dir: &Path) -> Result<u64, Error> {
    db.close(Duration::from_secs(10))?;
    let file = dir.join("data");
    let len = std::fs::metadata(&file).map(|file| file.len());
    len.map_err(|error| Error::io("look at", file, error))
}
