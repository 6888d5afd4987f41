//! A two-phase commit over two databases: both are prepared, the process stops, and both commit after the restart. A
//! prepared transaction keeps its rows locked until it is resolved.
//!
//! ```text
//! cargo run -p foreshore --example two_phase_commit
//! ```

use foreshore::{Db, Error, RowLock, TableDef};
use std::path::Path;
use std::time::Duration;

const BALANCES: TableDef<&str, i64> = TableDef::new("balances");
/// The name of the transfer in both databases.
const TRANSFER: &str = "transfer-1";

fn main() -> Result<(), Error> {
    let dir = std::env::temp_dir().join(format!("foreshore-two-phase-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|error| Error::io("create", &dir, error))?;
    let (north, south) = (dir.join("north"), dir.join("south"));

    // Phase one: each database does its part and prepares it. From here on each can commit after any crash.
    begin_part(&north, -30)?;
    begin_part(&south, 30)?;

    // Phase two: the coordinator has decided to commit, and opens each database again.
    for path in [&north, &south] {
        let db = Db::open(path)?;
        for prepared in db.prepared()? {
            println!("{}: {} waits for its decision", path.display(), prepared.name);
        }
        let tx = db.begin();
        let blocked = tx.open(BALANCES)?.get_locked("till", RowLock::update().no_wait());
        assert!(matches!(blocked, Err(Error::RowLocked { .. })), "the row is still locked");
        drop(tx);
        println!("balance before: {:?}", db.read().open(BALANCES)?.get("till")?);
        db.commit_prepared(TRANSFER)?;
        println!("balance after:  {:?}", db.read().open(BALANCES)?.get("till")?);
        db.close(Duration::from_secs(1))?;
    }
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", dir, error))
}

/// Creates a database with one balance, prepares a change of it, and closes the database.
fn begin_part(path: &Path, change: i64) -> Result<(), Error> {
    let db = Db::open(path)?;
    db.run(|tx| tx.open(BALANCES)?.insert("till", 100).map(drop))?;
    let tx = db.begin();
    let balances = tx.open(BALANCES)?;
    let balance = balances.get_for_update("till")?.unwrap_or(0);
    balances.insert("till", balance + change)?;
    // Durable when it returns, with its locks. `rollback_prepared` would take it back.
    tx.prepare(TRANSFER)?;
    db.close(Duration::from_secs(1))
}
