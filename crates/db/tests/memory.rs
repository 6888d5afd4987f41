//! Guards the promise that the engine stays within its memory limit, whatever the size of the data.
//!
//! A program of its own, since resident memory is counted for a whole process.

use foreshore::{Db, Device, Error, Options, TableDef};
use std::{fs, path::Path};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");

const LIMIT: u64 = 16 << 20;
/// What threads, allocator and the caller's own buffers may take beside it.
const SLACK: u64 = 32 << 20;

fn main() -> Result<(), Error> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("memory-{}", std::process::id()));
    // A buffered device: what the kernel caches is not the engine's.
    let db = Options::new().memory_limit(LIMIT).device(Device::Buffered).log_budget(256 << 20).open(&dir)?;
    let open = resident();
    load(&db, 30_000)?;
    let loaded = resident();
    let rows = db.run(|tx| tx.open(ROWS)?.iter().try_fold(0, |count, row| row.map(|_| count + 1)))?;
    assert_eq!(rows, 30_000_u64);
    let stats = db.stats();
    assert!(stats.space.used_pages * 8192 > 2 * LIMIT, "the data is larger than the memory: {:?}", stats.space);
    assert!(stats.pool.evictions > 0, "{:?}", stats.pool);
    let most = loaded.max(resident());
    println!("{open} bytes resident when opened, {most} after, limit {LIMIT}");
    assert!(most <= open + LIMIT + SLACK, "{most} bytes resident, {open} when opened");
    drop(db);
    fs::remove_dir_all(&dir).expect("the directory can be removed");
    Ok(())
}

fn load(db: &Db, count: u64) -> Result<(), Error> {
    let value = [7; 1500];
    for from in (0..count).step_by(200) {
        db.run(|tx| {
            let rows = tx.open(ROWS)?;
            (from..from + 200).try_for_each(|id| rows.insert_new(id, &value[..]))
        })?;
    }
    Ok(())
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages: u64 = status.split(' ').nth(1).and_then(|text| text.parse().ok()).expect("the second number");
    pages * 4096
}
