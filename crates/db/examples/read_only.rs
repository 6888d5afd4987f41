//! A closed database that several readers open at once: they change no byte of its files, and each has its own pool.
//!
//! ```text
//! cargo run -p foreshore --example read_only
//! ```

use foreshore::{Db, Error, TableDef};
use std::thread;
use std::time::Duration;

const CITIES: TableDef<&str, u64> = TableDef::new("cities");

fn main() -> Result<(), Error> {
    let dir = std::env::temp_dir().join(format!("foreshore-read-only-{}", std::process::id()));
    let db = Db::open(&dir)?;
    db.run(|tx| {
        let cities = tx.open(CITIES)?;
        [("Bari", 316_000), ("Lyon", 522_000), ("Roma", 2_750_000)]
            .into_iter()
            .try_for_each(|(city, inhabitants)| cities.put(city, inhabitants))
    })?;
    // While a process has it open for writing, no other one reads it.
    assert!(matches!(Db::open_read_only(&dir), Err(Error::Locked { .. })));
    db.close(Duration::from_secs(1))?;

    // Readers may be in any number of processes. Here they are threads, each with a handle of its own.
    let sums = thread::scope(|scope| {
        let read = || {
            let db = Db::open_read_only(&dir)?;
            let reader = db.read();
            reader.open(CITIES)?.iter().map(|row| row.map(|(_, inhabitants)| inhabitants)).sum::<Result<u64, Error>>()
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    })?;
    println!("each reader finds {} inhabitants", sums[0]);
    assert_eq!(sums, [3_588_000; 3]);

    // Writes are refused, and so is a writer while readers have the database open.
    let reader = Db::open_read_only(&dir)?;
    let refused = reader.run(|tx| tx.open(CITIES)?.put("Oban", 8_000));
    assert!(matches!(refused, Err(Error::ReadOnly)));
    assert!(matches!(Db::open(&dir), Err(Error::Locked { .. })));
    drop(reader);
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", dir, error))
}
