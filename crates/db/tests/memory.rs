//! Guards the promise that the engine stays within its memory limit, whatever the size of the data.
//!
//! A program of its own, since resident memory is counted for a whole process.

use foreshore::{Db, Device, Durability, Error, Options, TableDef, TxnOptions};
use std::{env, fs, path::Path, process::Command};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");

const LIMIT: u64 = 16 << 20;
/// Bytes of a large row, and changes of it.
const LARGE: usize = 2000;
const CHANGES: u64 = 40_000;
/// Bytes beside the limit for threads, the allocator and the caller's own buffers.
const SLACK: u64 = 32 << 20;

fn main() -> Result<(), Error> {
    if let Ok(role) = env::var("FORESHORE_MEMORY_CHILD") {
        return restart_child(&role, Path::new(&env::var("FORESHORE_MEMORY_DIR").expect("given with the role")));
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("memory-{}", std::process::id()));
    // A buffered device: what the kernel caches is not the engine's.
    let db = Options::new().memory_limit(LIMIT).device(Device::Buffered).log_budget(256 << 20).open(&dir)?;
    let open = resident();
    load(&db, 30_000, 1500)?;
    let loaded = resident();
    let rows = db.run(|tx| {
        let table = tx.open(ROWS)?;
        table.lock_against_writes()?;
        table.iter().try_fold(0, |count, row| row.map(|_| count + 1))
    })?;
    assert_eq!(rows, 30_000_u64);
    let stats = db.stats();
    assert!(stats.space.used_pages * 8192 > 2 * LIMIT, "the data is larger than the memory: {:?}", stats.space);
    assert!(stats.pool.evictions > 0, "{:?}", stats.pool);
    let most = loaded.max(resident());
    println!("{open} bytes resident when opened, {most} after, limit {LIMIT}");
    assert!(most <= open + LIMIT + SLACK, "{most} bytes resident, {open} when opened");
    drop(db);
    fs::remove_dir_all(&dir).expect("the directory can be removed");
    many_transactions(&dir)?;
    fs::remove_dir_all(&dir).expect("the directory can be removed");
    tables_come_and_go(&dir)?;
    fs::remove_dir_all(&dir).expect("the directory can be removed");
    restart_rolls_back_more_than_memory_holds(&dir);
    restart_takes_over_many_changes_of_a_large_row(&dir);
    Ok(())
}

/// As many transactions as possible, all open at once, each with its own changes, log session, undo and locks.
fn many_transactions(dir: &Path) -> Result<(), Error> {
    const COUNT: u64 = 1024;
    let db = Options::new().memory_limit(LIMIT).device(Device::Buffered).log_budget(256 << 20).open(dir)?;
    load(&db, 2 * COUNT, 100)?;
    let before = resident();
    let open: Vec<_> = (0..COUNT).map(|_| db.begin()).collect();
    // In rounds, so that all are in the middle of something.
    for round in 0..2_u8 {
        for (id, tx) in (0..).zip(&open) {
            let rows = tx.open(ROWS)?;
            rows.insert(2 * id, &[round; 60][..])?;
            rows.insert(2 * id + 1, &[round; 60][..])?;
        }
    }
    assert!(matches!(db.begin().open(ROWS), Err(Error::TooManyTransactions { .. })), "one more is refused");
    let (most, stats) = (resident(), db.stats());
    let (used, limit) = (stats.memory_use, stats.memory);
    println!("{COUNT} transactions: {before} bytes resident before, {most} after, {used:?}");
    assert!(used.log > 0 && used.log <= limit.log_buffer, "{used:?} {limit:?}");
    assert!(used.undo > 0 && used.undo <= limit.undo, "{used:?} {limit:?}");
    assert!(used.status <= limit.status && used.locks <= limit.locks && used.pool <= limit.pool, "{used:?} {limit:?}");
    assert!(most <= before + LIMIT, "{most} bytes resident, {before} before");
    for (id, tx) in (0..COUNT).zip(open) {
        if id % 2 == 0 { tx.commit().map(drop)? } else { tx.rollback()? }
    }
    let rows = db.run(|tx| {
        let table = tx.open(ROWS)?;
        table.lock_against_writes()?;
        table.iter().collect::<Result<Vec<_>, _>>()
    })?;
    assert_eq!(rows.len() as u64, 2 * COUNT);
    for (id, row) in rows {
        let expected = if id / 2 % 2 == 0 { vec![1; 60] } else { vec![7; 100] };
        assert_eq!(row, expected, "row {id}");
    }
    db.check().map(drop)
}

/// Little is kept of tables that were dropped, and nothing else grows with their number.
fn tables_come_and_go(dir: &Path) -> Result<(), Error> {
    const COUNT: u64 = 3000;
    let db = Options::new()
        .memory_limit(LIMIT)
        .device(Device::Buffered)
        .lab(|lab| lab.segment_bytes = 1 << 20)
        .log_budget(16 << 20)
        .open(dir)?;
    let relaxed = TxnOptions::new().durability(Durability::Relaxed);
    let come_and_go = |from: u64, count: u64| {
        (from..from + count).try_for_each(|n| {
            let name = format!("table {n}");
            db.run_with(relaxed, |tx| tx.open(TableDef::<u64, &[u8]>::new(&name))?.insert(n, &[7; 100][..]).map(drop))?;
            db.run_with(relaxed, |tx| tx.drop_table(&name).map(drop))
        })
    };
    come_and_go(0, COUNT)?;
    db.vacuum()?;
    let (before, used) = (resident(), db.stats().space.used_pages);
    come_and_go(COUNT, COUNT)?;
    db.vacuum()?;
    // The purge of the catalogue may have freed more than the tables took.
    let (more, pages) = (resident().saturating_sub(before), db.stats().space.used_pages.saturating_sub(used));
    println!("{COUNT} tables that are gone: {more} bytes resident, {pages} pages");
    assert!(more <= COUNT * 2000, "{more} bytes for {COUNT} tables");
    assert!(pages <= COUNT / 50, "{pages} pages for {COUNT} tables");
    db.check().map(drop)
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// The loser of a restart logs many times the memory limit. `FORESHORE_RESTART_ROWS` and `FORESHORE_RESTART_LIMIT`
/// (bytes) set another size, such as 500000 and 67108864.
fn restart_rolls_back_more_than_memory_holds(dir: &Path) {
    let empty = dir.with_extension("empty");
    run("load", dir);
    run("open", &empty);
    let (base, most, limit) = (run("open", &empty), run("restart", dir), restart_limit());
    fs::remove_dir_all(dir).expect("the directory can be removed");
    fs::remove_dir_all(&empty).expect("the directory can be removed");
    println!("restart: {most} bytes resident at most, {base} of an empty database, limit {limit}");
    assert!(most <= base + limit * 13 / 10, "{most} bytes resident in a restart, {base} in that of an empty database");
}

/// A restart takes over a transaction that was prepared after many small changes of one large row. Undo keeps only the
/// bytes that each change replaced, not the whole row.
fn restart_takes_over_many_changes_of_a_large_row(dir: &Path) {
    let empty = dir.with_extension("empty");
    run("prepare", dir);
    run("open", &empty);
    let (base, most) = (run("open", &empty), run("hold", dir));
    fs::remove_dir_all(dir).expect("the directory can be removed");
    fs::remove_dir_all(&empty).expect("the directory can be removed");
    let rows = CHANGES * LARGE as u64;
    println!("restart with a large row: {most} bytes resident at most, {base} of an empty database, {rows} in rows");
    assert!(most <= base + rows / 2, "{most} bytes resident in a restart, {base} in that of an empty database");
}

/// Runs a child process in `role`, and returns its peak.
fn run(role: &str, dir: &Path) -> u64 {
    let mut child = Command::new(env::current_exe().expect("it runs"));
    let output =
        child.env("FORESHORE_MEMORY_CHILD", role).env("FORESHORE_MEMORY_DIR", dir).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{role}: {text} {}", String::from_utf8_lossy(&output.stderr));
    print!("{text}");
    let last = text.lines().last().and_then(|line| line.split(' ').next_back()?.parse().ok());
    last.expect("the peak comes last")
}

fn restart_limit() -> u64 {
    number("FORESHORE_RESTART_LIMIT", LIMIT)
}

/// Runs in a child process of the restart tests, so that its peak memory is its own.
fn restart_child(role: &str, dir: &Path) -> Result<(), Error> {
    let options = Options::new().memory_limit(restart_limit()).spill_limit(4 << 30).device(Device::Buffered);
    let (db, rows) = (options.open(dir)?, number("FORESHORE_RESTART_ROWS", 40_000));
    if role == "load" {
        let tx = db.begin();
        let table = tx.open(ROWS)?;
        (0..rows).try_for_each(|id| table.insert_new(id, &[id as u8; 2000][..]))?;
        db.sync()?;
        println!("{rows} rows not committed, peak {}", peak());
        // As if killed.
        std::process::exit(0);
    }
    if role == "prepare" {
        db.run(|tx| tx.open(ROWS)?.insert(1, &[0; LARGE][..]).map(drop))?;
        let tx = db.begin();
        let (table, mut value) = (tx.open(ROWS)?, [0; LARGE]);
        for change in 1..=CHANGES {
            value[LARGE / 2..][..8].copy_from_slice(&change.to_le_bytes());
            table.insert(1, &value[..])?;
        }
        tx.prepare("often")?;
        println!("{CHANGES} changes prepared, peak {}", peak());
        std::process::exit(0);
    }
    if role == "hold" {
        assert_eq!(db.prepared()?.len(), 1);
        println!("hold: {:?}, peak {}", db.stats().memory_use, peak());
        db.rollback_prepared("often")?;
        assert_eq!(db.read().open(ROWS)?.get(1)?.as_deref(), Some(&[0; LARGE][..]));
        println!("and rolled back, peak {}", peak());
        return Ok(());
    }
    let recovery = db.stats().recovery;
    // The creation of the table is rolled back, too.
    assert_eq!(recovery.undone, if role == "restart" { rows + 1 } else { 0 }, "{recovery:?}");
    println!("{role}: {recovery:?}, peak {}", peak());
    Ok(())
}

/// The most bytes that this process has had resident.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says the peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

fn load(db: &Db, count: u64, len: usize) -> Result<(), Error> {
    let value = vec![7; len];
    for from in (0..count).step_by(200) {
        db.run(|tx| {
            let rows = tx.open(ROWS)?;
            (from..count.min(from + 200)).try_for_each(|id| rows.insert_new(id, &value[..]))
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
