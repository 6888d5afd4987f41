//! Guards the promise that a warm transaction allocates nothing. It begins, reads, scans and updates rows whose types
//! need no memory of their own, with and without an index, and its commit is acknowledged. A value that is written and
//! read in parts needs little memory.
//!
//! A program of its own, because it counts what its allocator is asked for.

use foreshore::{Db, Device, Error, IndexDef, Options, Table, TableDef};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{self, Read};
use std::{fs, path::Path};

/// The allocator of the system, which counts the requests of each thread.
struct Counting;

std::thread_local! {
    static REQUESTS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that the thread has requested and not freed.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    /// The most that `BYTES` has been.
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// Counts a request, and the bytes that it adds.
fn count(requests: u64, bytes: i64) {
    // A thread that ends may have no counters any more.
    let _ = REQUESTS.try_with(|all| all.set(all.get() + requests));
    let _ = BYTES.try_with(|all| {
        all.set(all.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(all.get())));
    });
}

// SAFETY: all calls go to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");
/// A row with its index key, and a number that is not indexed.
type Member = (u64, u64);
const BY_NUMBER: IndexDef<u64, Member, u64> =
    IndexDef::unique("by number", |_, member: &Member, keys| keys.add(member.0));
const MEMBERS: TableDef<u64, Member> = TableDef::new("members").with_indexes(&[&BY_NUMBER]);
/// Two rows have one index key.
const BY_PAIR: IndexDef<u64, u64, u64> = IndexDef::new("by pair", |_, number: &u64, keys| keys.add(number / 2));
const PAIRS: TableDef<u64, u64> = TableDef::new("pairs").with_indexes(&[&BY_PAIR]);
const COUNT: u64 = 1000;
/// Transactions before the first that counts.
const WARM: u64 = 3000;
/// Transactions that count.
const COUNTED: u64 = 500;
/// A session that begins a chunk of undo looks at all readers anew, and shares what it finds in new memory. A chunk
/// holds the entries of more transactions than this.
const NEW_VIEW: u64 = 16;

fn key(row: u64) -> u64 {
    row * 7919 % COUNT
}

fn reads(db: &Db, round: u64) -> Result<(), Error> {
    let reader = db.read();
    let rows = reader.open(ROWS)?;
    let found = rows.get(key(round))?;
    assert!(found.is_some());
    reader.finish()?.wait()
}

/// Reads some rows of a range, and all of another one.
fn scans(db: &Db, round: u64) -> Result<(), Error> {
    let reader = db.read();
    let rows = reader.open(ROWS)?;
    for (range, most) in [(key(round)..COUNT, 10), (COUNT / 2..COUNT / 2 + 10, 20)] {
        let mut sum = 0;
        for row in rows.range(range).take(most) {
            sum += row?.1;
        }
        assert!(sum > 0);
    }
    reader.finish()?.wait()
}

/// Finds a row of each table by its index, in the row and in the index alone.
fn look_up(members: &Table<'_, u64, Member>, pairs: &Table<'_, u64, u64>, number: u64) -> Result<(), Error> {
    let by_number = members.by_index(BY_NUMBER)?;
    assert_eq!(by_number.get(COUNT + number)?.map(|(row, _)| row), Some(number));
    let mut entries = by_number.keys(COUNT + number..=COUNT + number);
    assert_eq!(entries.next().transpose()?, Some((COUNT + number, number)));
    drop(entries);
    assert!(by_number.get(number)?.is_none());
    assert_eq!(pairs.by_index(BY_PAIR)?.range(number / 2..=number / 2).count(), 2);
    Ok(())
}

/// Finds rows by index, in a transaction that locks what it reads.
fn index_lookups(db: &Db, round: u64) -> Result<(), Error> {
    let tx = db.begin();
    look_up(&tx.open(MEMBERS)?, &tx.open(PAIRS)?, key(round))?;
    tx.commit().map(drop)
}

/// Scans two short ranges and looks for a row that is absent, in a transaction that locks what it reads.
fn locked_scans(db: &Db, round: u64) -> Result<(), Error> {
    let tx = db.begin();
    let rows = tx.open(ROWS)?;
    let first = key(round) / 2;
    assert_eq!(rows.range(first..=first).count(), 1);
    let mut sum = 0;
    for row in rows.range(COUNT / 2..COUNT / 2 + 3) {
        sum += row?.1;
    }
    assert!(sum > 0 && rows.get(COUNT + round)?.is_none());
    drop(rows);
    tx.commit().map(drop)
}

/// Finds a row by its index, and updates it. Its index key stays.
fn indexed_updates(db: &Db, round: u64) -> Result<(), Error> {
    let tx = db.begin();
    let members = tx.open(MEMBERS)?;
    let number = key(round);
    let found = members.by_index(BY_NUMBER)?.get(COUNT + number)?;
    assert!(found.is_some());
    members.put(number, (COUNT + number, round))?;
    drop(members);
    tx.commit().map(drop)
}

/// Reads two rows and updates two others.
fn updates(db: &Db, round: u64, is_pipelined: bool) -> Result<(), Error> {
    let tx = db.begin();
    let rows = tx.open(ROWS)?;
    for row in 0..2 {
        assert!(rows.get(key(4 * round + row))?.is_some());
    }
    for row in 2..4 {
        assert!(rows.insert(key(4 * round + row), round)?.is_some());
    }
    if is_pipelined { tx.commit_pipelined()?.wait() } else { tx.commit().map(drop) }
}

/// Runs transactions until they are warm, then counts what those that follow ask for.
fn requests(mut transaction: impl FnMut(u64) -> Result<(), Error>) -> Result<u64, Error> {
    (0..WARM).try_for_each(&mut transaction)?;
    let before = REQUESTS.get();
    (WARM..WARM + COUNTED).try_for_each(&mut transaction)?;
    Ok(REQUESTS.get() - before)
}

/// A large value that is written and read leaves no memory with the session.
fn keeps_little(db: &Db) -> Result<(), Error> {
    db.run(|tx| tx.open(BLOBS).map(drop))?;
    let value = vec![1; 64 << 20];
    let before = BYTES.get();
    let tx = db.begin();
    let blobs = tx.open(BLOBS)?;
    blobs.put(1, &value[..])?;
    assert!(blobs.get(1)?.is_some_and(|found| found == value));
    drop(blobs);
    tx.commit()?;
    let kept = BYTES.get() - before;
    assert!(kept < 1 << 20, "{kept} bytes are kept");
    Ok(())
}

/// A value that is larger than the memory of a database passes through it in parts.
fn streams_in_parts() -> Result<(), Error> {
    const LEN: u64 = 100 << 20;
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("streams-{}", std::process::id()));
    let db = Options::new().memory_limit(16 << 20).device(Device::Buffered).open(&dir)?;
    db.run(|tx| tx.open(BLOBS).map(drop))?;
    let before = BYTES.get();
    PEAK.set(before);
    for round in 0..3 {
        db.run(|tx| tx.open(BLOBS)?.insert_reader(1, io::repeat(round).take(LEN), Some(LEN)))?;
        let tx = db.read();
        let mut reader = tx.open(BLOBS)?.get_reader(1)?.expect("it was written");
        assert_eq!(io::copy(&mut reader, &mut io::sink()).expect("it is there"), LEN);
    }
    let most = PEAK.get() - before;
    assert!(most < 1 << 20, "{most} bytes were needed at once");
    drop(db);
    fs::remove_dir_all(&dir).expect("the directory can be removed");
    Ok(())
}

fn main() -> Result<(), Error> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("allocations-{}", std::process::id()));
    let db = Options::new().memory_limit(256 << 20).device(Device::Buffered).open(&dir)?;
    db.run(|tx| {
        let rows = tx.open(ROWS)?;
        (0..COUNT).try_for_each(|row| rows.insert_new(row, row))?;
        let (members, pairs) = (tx.open(MEMBERS)?, tx.open(PAIRS)?);
        (0..COUNT).try_for_each(|row| {
            members.insert_new(row, (COUNT + row, 0))?;
            pairs.insert_new(row, row)
        })
    })?;
    let counts = [
        ("reads", requests(|round| reads(&db, round))?),
        ("scans", requests(|round| scans(&db, round))?),
        ("index lookups", requests(|round| index_lookups(&db, round))?),
        ("locked scans", requests(|round| locked_scans(&db, round))?),
        ("indexed updates", requests(|round| indexed_updates(&db, round))?),
        ("durable updates", requests(|round| updates(&db, round, false))?),
        ("pipelined updates", requests(|round| updates(&db, round, true))?),
    ];
    println!("requests of {COUNTED} transactions: {counts:?}");
    for (what, count) in counts {
        let most = if what.ends_with("updates") { COUNTED / NEW_VIEW } else { 0 };
        assert!(count <= most, "{what} ask for memory {count} times, and may {most} times");
    }
    keeps_little(&db)?;
    streams_in_parts()?;
    drop(db);
    fs::remove_dir_all(&dir).expect("the directory can be removed");
    Ok(())
}
