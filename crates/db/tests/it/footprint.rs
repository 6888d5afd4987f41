//! What a database takes that holds nothing: blocks of the disk, and address space.

use crate::support::{NUMBERS, TempDir};
use foreshore::{Db, Error, Options};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

const MIB: u64 = 1 << 20;
/// What an empty database with default options may take of the disk.
const EMPTY: u64 = 64 * MIB;

/// Says to the child which directory to open, and by how many MiB of memory.
const CHILD_DIR: &str = "FORESHORE_FOOTPRINT_DIR";
const CHILD_MEMORY: &str = "FORESHORE_FOOTPRINT_MEMORY";

/// Bytes of the disk that the files below `dir` have.
fn blocks(dir: &Path) -> u64 {
    let of_entry = |entry: fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => blocks(&entry.path()),
        // One that is renamed meanwhile is counted under its new name, or next time.
        false => entry.metadata().map_or(0, |file| file.blocks() * 512),
    };
    fs::read_dir(dir).unwrap().map(|entry| of_entry(entry.unwrap())).sum()
}

/// Waits for the threads that prepare segments: they make as many as the steps of a database without threads.
fn wait_for_segments(db: &Db, made: u64) {
    let end = Instant::now() + Duration::from_secs(60);
    while db.stats().log.segments_made < made {
        assert!(Instant::now() < end, "{made} segments, not {:?}", db.stats().log);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_empty_default_database_takes_few_blocks_of_the_disk() {
    let steps = |db: &Db| (0..500).for_each(|_| db.step());
    let by_steps = TempDir::new("footprint-steps");
    let db = Options::new().lab(|lab| lab.background = false).open(by_steps.path()).unwrap();
    steps(&db);
    let made = db.stats().log.segments_made;
    assert!(made >= 1, "segments are prepared ahead of need");
    let open = blocks(by_steps.path());
    assert!((16 * MIB..=EMPTY).contains(&open), "{open} bytes when opened");
    db.close(Duration::ZERO).unwrap();

    let by_threads = TempDir::new("footprint-threads");
    let db = Options::new().open(by_threads.path()).unwrap();
    wait_for_segments(&db, made);
    let open = blocks(by_threads.path());
    assert!((16 * MIB..=EMPTY).contains(&open), "{open} bytes when opened");
    db.close(Duration::ZERO).unwrap();
    let closed = blocks(by_threads.path());
    assert!((16 * MIB..=EMPTY).contains(&closed), "{closed} bytes when closed");
    // What was ready is found again.
    let db = Options::new().lab(|lab| lab.background = false).open(by_threads.path()).unwrap();
    steps(&db);
    let again = blocks(by_threads.path());
    assert!((16 * MIB..=EMPTY).contains(&again), "{again} bytes when opened again");
    assert_eq!(db.stats().log.segments_made, 0);
}

/// What a child does under a limit of its address space.
fn use_database(dir: &Path, memory: u64) -> Result<(), Error> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let limit = limits.lines().find(|line| line.starts_with("Max address space")).unwrap();
    assert!(limit.contains(&((memory + 1024) * MIB).to_string()), "{limit}");
    let db = Options::new().memory_limit(memory * MIB).open(dir)?;
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 11).map(drop))?;
    thread::scope(|scope| {
        for thread in 2..10 {
            let db = &db;
            scope.spawn(move || db.run(|tx| tx.open(NUMBERS)?.insert(thread, 11).map(drop)).unwrap());
        }
    });
    db.check()?;
    db.close(Duration::ZERO)?;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    println!("{memory} MiB of memory: {}", status.lines().find(|line| line.starts_with("VmPeak")).unwrap());
    Ok(())
}

/// The page table and other arrays are reserved for much more than is ever used. That is address space, too.
#[test]
fn a_database_opens_in_an_address_space_of_its_memory_and_a_gibibyte() {
    if let Ok(dir) = env::var(CHILD_DIR) {
        let memory = env::var(CHILD_MEMORY).unwrap().parse().unwrap();
        return use_database(Path::new(&dir), memory).unwrap();
    }
    for memory in [4, 64, 1024] {
        let dir = TempDir::new(&format!("address-space-{memory}"));
        let limited = format!("ulimit -v {} && exec \"$0\" \"$@\"", (memory + 1024) * 1024);
        let child = Command::new("sh")
            .args(["-c", &limited])
            .arg(env::current_exe().unwrap())
            .args(["--exact", "footprint::a_database_opens_in_an_address_space_of_its_memory_and_a_gibibyte"])
            .args(["--nocapture", "--test-threads", "1"])
            // Each arena of the allocator reserves as much as 64 MiB, and there may be eight for each processor.
            .env("MALLOC_ARENA_MAX", "1")
            .envs([(CHILD_DIR, dir.path().as_os_str()), (CHILD_MEMORY, memory.to_string().as_ref())])
            .output()
            .unwrap();
        let (out, errors) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        assert!(child.status.success() && out.contains("1 passed"), "{memory} MiB: {out}{errors}");
        print!("{out}");
    }
}
