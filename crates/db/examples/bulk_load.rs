//! A table that is filled from sorted rows: `load` packs them into full pages, and is all or nothing.
//!
//! ```text
//! cargo run --release -p foreshore --example bulk_load -- 5000000
//! ```

use foreshore::{Db, Error, LoadOptions, Options, TableDef};
use std::time::{Duration, Instant};

/// Number to a value of 92 bytes, so that a row has 100.
const ROWS: TableDef<u64, [u8; 92]> = TableDef::new("rows");

fn main() -> Result<(), Error> {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200_000);
    let db = match std::env::args().nth(2) {
        Some(dir) => Options::new().memory_limit(1 << 30).open(dir)?,
        None => Options::in_memory().open("rows")?,
    };
    let begin = Instant::now();
    let loaded = db.run(|tx| tx.open(ROWS)?.load(rows(0..count)))?;
    let seconds = begin.elapsed().as_secs_f64();
    println!("{loaded} rows in {seconds:.2} s, {:.0} rows a second", loaded as f64 / seconds);

    // More rows follow at the end. With free space in the pages, rows can be inserted between them without splits.
    let options = LoadOptions::new().fill_percent(80);
    db.run(|tx| tx.open(ROWS)?.load_with(options, rows(count..count + 1000)))?;

    refused(&db, count)?;
    let stats = db.stats();
    let bytes = (count + 1000) * 100;
    println!("{:.3} bytes of pages for each byte", (stats.space.used_pages * 8192) as f64 / bytes as f64);
    db.close(Duration::from_secs(60))
}

fn rows(numbers: std::ops::Range<u64>) -> impl Iterator<Item = (u64, [u8; 92])> {
    numbers.map(|number| (number, [number as u8; 92]))
}

/// Rows that are not sorted are refused. The transaction goes on, with nothing of that load.
fn refused(db: &Db, count: u64) -> Result<(), Error> {
    let tx = db.begin();
    let table = tx.open(ROWS)?;
    let before = table.len()?;
    let unsorted = rows(count + 1000..count + 1500).chain(rows(7..8));
    match table.load(unsorted) {
        Err(Error::LoadOrder { row, .. }) => println!("row {row} is not above the others"),
        other => panic!("{other:?}"),
    }
    assert_eq!(table.len()?, before);
    tx.commit().map(drop)
}
