//! A first transaction: open a database, write rows of a typed table, read a range in key order, commit, and reopen.
//!
//! ```text
//! cargo run -p foreshore --example first_transaction
//! ```

use foreshore::{Db, Error, TableDef};
use std::time::Duration;

/// A key is a year and a place: rows are sorted by year, then by place. A value is a temperature in degrees.
const RECORDS: TableDef<(u16, &str), i32> = TableDef::new("records");

fn main() -> Result<(), Error> {
    let dir = std::env::temp_dir().join(format!("foreshore-first-{}", std::process::id()));

    // One directory is one database. `open` creates it if it is missing.
    let db = Db::open(&dir)?;
    let tx = db.begin();
    let records = tx.open(RECORDS)?;
    for (year, place, degrees) in [(2024, "Oban", 24), (2025, "Oban", 26), (2025, "Ayr", 25), (2026, "Ayr", 27)] {
        records.insert((year, place), degrees)?;
    }
    // The transaction sees its own uncommitted rows. A range returns them in key order.
    for row in records.range((2025, "")..(2026, "")) {
        let ((year, place), degrees) = row?;
        println!("{year} {place}: {degrees}");
    }
    // `commit` returns when the commit is durable. The CSN is its place in the commit order.
    let csn = tx.commit()?;
    println!("commit {csn} is durable");

    // A transaction that is dropped is rolled back.
    let tx = db.begin();
    tx.open(RECORDS)?.remove((2024, "Oban"))?;
    drop(tx);

    db.close(Duration::from_secs(1))?;
    let db = Db::open(&dir)?;
    let rows = db.read().open(RECORDS)?.iter().count();
    println!("after reopening: {rows} rows");
    assert_eq!(rows, 4, "the commit was kept, and the removal was rolled back");

    db.close(Duration::from_secs(1))?;
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", dir, error))
}
