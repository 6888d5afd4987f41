//! Back to the moment before a mistake: a backup, an archive of the log, and a restore up to one commit.
//!
//! ```text
//! cargo run -p foreshore --example point_in_time
//! ```

use foreshore::{Db, Error, Options, TableDef, Until, restore};
use std::path::Path;
use std::time::Duration;

const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");

fn main() -> Result<(), Error> {
    let dir = std::env::temp_dir().join(format!("foreshore-point-in-time-{}", std::process::id()));
    std::fs::create_dir(&dir).map_err(|error| Error::io("create", &dir, error))?;
    run(&dir)?;
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", dir, error))
}

fn run(dir: &Path) -> Result<(), Error> {
    let [backup, archive, restored] = ["backup", "archive", "restored"].map(|name| dir.join(name));
    // The log is copied to the archive before its segments are reused.
    let db = Options::new().archive(&archive).open(dir.join("db"))?;
    db.run(|tx| (0..100).try_for_each(|account| tx.open(ACCOUNTS)?.put(account, 10)))?;
    db.backup(&backup)?;

    // Work after the backup. Its ticket names the last commit before the mistake.
    let (_, ticket) = db.run_pipelined(|tx| {
        let accounts = tx.open(ACCOUNTS)?;
        accounts.put(7, 30)?;
        accounts.put(8, -10)
    })?;
    ticket.wait()?;
    let removed = db.run(|tx| tx.open(ACCOUNTS)?.remove_range(..50))?;
    println!("the mistake has removed {removed} accounts");
    // Copies what the archive does not have yet. A close does the same.
    db.archive()?;
    db.close(Duration::from_secs(1))?;

    let until = Until::Lsn(ticket.record_lsn());
    // Reads and checks the backup and the archive, and writes nothing.
    let verified = restore(&backup, &restored).archive(&archive).until(until).verify()?;
    println!("the restore ends at {}, the backup at {}", verified.lsn, verified.backup_lsn);
    restore(&backup, &restored).archive(&archive).until(until).run()?;

    let db = Db::open(&restored)?;
    db.check()?;
    let reader = db.read();
    let accounts = reader.open(ACCOUNTS)?;
    println!("{} accounts are back", accounts.len()?);
    assert_eq!((accounts.len()?, accounts.get(7)?, accounts.get(8)?), (100, Some(30), Some(-10)));
    drop(reader);
    // The restored database is another one: it needs a backup and an archive of its own.
    db.close(Duration::from_secs(1))
}
