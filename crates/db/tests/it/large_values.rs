//! Values of more than 2 KiB: every operation, every version, and the space that they leave.

use crate::script::{Random, disk};
use crate::support::{DIR, POLICIES, small};
use foreshore::limits::MAX_INLINE_VALUE;
use foreshore::{Db, Error, Options, RowLock, TableDef, TxnOptions};
use foreshore_io::sim::Persist;
use foreshore_io::{Fs, Mem, Sim};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

const FILES: TableDef<u32, &[u8]> = TableDef::new("files");
/// Bytes of a value in one page.
const PAGE: usize = 8136;
/// Lengths around each change of shape: in the leaf, one page, a root with several, and index pages below it.
const LENGTHS: [usize; 9] =
    [0, MAX_INLINE_VALUE, MAX_INLINE_VALUE + 1, PAGE, PAGE + 1, 3 * PAGE, 200_000, 1906 * PAGE, 1907 * PAGE + 5];

/// Returns a value that differs from that of any other seed in each page.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut value = Vec::with_capacity(len + 8);
    while value.len() < len {
        value.extend_from_slice(&random.below(u64::MAX).to_le_bytes());
    }
    value.truncate(len);
    value
}

/// Options without threads: what is freed depends on the calls of a test alone.
fn on(fs: &Arc<dyn Fs>) -> Options {
    small().lab(|lab| {
        lab.background = false;
        lab.fs = Some(Arc::clone(fs));
    })
}

fn in_memory() -> (Db, Arc<dyn Fs>) {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    (on(&fs).open(DIR).unwrap(), fs)
}

fn put(db: &Db, key: u32, value: &[u8]) {
    db.run(|tx| tx.open(FILES)?.insert(key, value).map(drop)).unwrap();
}

fn get(db: &Db, key: u32) -> Option<Vec<u8>> {
    db.read().open(FILES).unwrap().get(key).unwrap()
}

/// Frees what can be freed, checks the database, and returns the pages in use.
fn used(db: &Db) -> u64 {
    db.vacuum().unwrap();
    db.check().unwrap();
    db.stats().space.used_pages
}

#[test]
fn values_of_every_shape_are_read_back_and_leave_no_page() {
    let (db, fs) = in_memory();
    put(&db, 0, b"small");
    let before = used(&db);
    for (seed, &len) in (1..).zip(&LENGTHS) {
        let value = bytes(seed, len);
        put(&db, 1, &value);
        assert_eq!(get(&db, 1), Some(value), "{len} bytes");
        db.check().unwrap();
    }
    db.close(Duration::from_secs(10)).unwrap();
    let db = on(&fs).open(DIR).unwrap();
    let value = bytes(LENGTHS.len() as u64, *LENGTHS.last().unwrap());
    let old = db.run(|tx| tx.open(FILES)?.remove(1)).unwrap();
    assert!(old == Some(value), "the old value of a removal");
    assert_eq!(used(&db), before);
}

#[test]
fn every_read_and_write_knows_large_values() {
    let (db, _) = in_memory();
    let value = |key: u32| bytes(u64::from(key), if key.is_multiple_of(3) { 100 } else { 5000 + 9000 * key as usize });
    db.run(|tx| {
        let files = tx.open(FILES)?;
        (0..20).try_for_each(|key| files.insert_new(key, &*value(key)))?;
        let refused = files.insert_new(4, &*value(5));
        assert!(matches!(refused, Err(Error::KeyExists { .. })), "{refused:?}");
        assert_eq!(files.get(4)?, Some(value(4)));
        assert_eq!(files.get_for_update(7)?, Some(value(7)));
        assert_eq!(files.get_for_share(8)?, Some(value(8)));
        Ok::<_, Error>(())
    })
    .unwrap();
    let rows: Vec<_> = (0..20).map(|key| (key, value(key))).collect();
    for isolation in [foreshore::Isolation::Serializable, foreshore::Isolation::ReadCommitted] {
        let tx = db.begin_with(TxnOptions::new().isolation(isolation));
        let files = tx.open(FILES).unwrap();
        assert_eq!(files.iter().collect::<Result<Vec<_>, _>>().unwrap(), rows);
        let mut back: Vec<_> = files.iter().rev().collect::<Result<_, _>>().unwrap();
        back.reverse();
        assert_eq!(back, rows);
        let locked = files.range_locked(.., RowLock::update());
        assert_eq!(locked.collect::<Result<Vec<_>, _>>().unwrap(), rows);
        let mut ends = files.iter();
        for key in 0..10 {
            assert_eq!(ends.next().unwrap().unwrap(), rows[key]);
            assert_eq!(ends.next_back().unwrap().unwrap(), rows[19 - key]);
        }
        assert!(ends.next().is_none());
    }
    let keys = [3_u32, 99, 1, 19];
    let many = db.read().open(FILES).unwrap().get_many(&keys).unwrap();
    assert_eq!(many, [Some(value(3)), None, Some(value(1)), Some(value(19))]);
    let old = db.run(|tx| tx.open(FILES)?.insert(19, b"".as_slice())).unwrap();
    assert_eq!(old, Some(value(19)));
    db.vacuum().unwrap();
    db.check().unwrap();
}

/// Opened anew, so that a read of a value shows as reads of its pages.
#[test]
fn operations_of_keys_read_no_large_value() {
    let (db, fs) = in_memory();
    let value = bytes(1, 100 * PAGE);
    (0..3).for_each(|key| put(&db, key, &value));
    db.close(Duration::from_secs(10)).unwrap();
    let db = on(&fs).open(DIR).unwrap();
    let before = db.stats().pool.pages_read;
    let pages_read = || db.stats().pool.pages_read - before;
    let reader = db.read();
    let files = reader.open(FILES).unwrap();
    assert!(files.contains(1).unwrap() && !files.contains(9).unwrap() && !files.is_empty().unwrap());
    assert_eq!(files.keys(..).rev().collect::<Result<Vec<_>, _>>().unwrap(), [2, 1, 0]);
    assert_eq!(files.count(1..).unwrap(), 2);
    let stats = files.stats().unwrap();
    assert_eq!((stats.rows, stats.large_values, stats.large_pages), (3, 3, 3 * 101));
    assert_eq!(stats.row_bytes, 3 * (4 + value.len() as u64));
    drop(files);
    drop(reader);
    let tx = db.begin();
    let files = tx.open(FILES).unwrap();
    assert!(files.contains(0).unwrap() && files.len().unwrap() == 3);
    files.put(0, b"small".as_slice()).unwrap();
    assert_eq!(files.remove_range(1..).unwrap(), 2);
    assert_eq!(files.len().unwrap(), 1);
    tx.rollback().unwrap();
    assert!(pages_read() < 100, "{} pages read", pages_read());
    assert_eq!(get(&db, 2).as_ref(), Some(&value));
    assert!(pages_read() >= 100, "{} pages read", pages_read());
    let full = used(&db);
    assert_eq!(db.run(|tx| tx.open(FILES)?.retain(|&key, _| key != 0)).unwrap(), 1);
    assert_eq!(db.run(|tx| tx.open(FILES)?.pop_last()).unwrap(), Some((2, value)));
    assert_eq!(db.run(|tx| tx.open(FILES)?.clear()).unwrap(), 1);
    assert!(used(&db) + 3 * 101 <= full, "the chains of rows that are gone are free");
}

#[test]
fn a_rollback_of_any_kind_restores_the_value_and_leaves_no_page() {
    let (db, _) = in_memory();
    let (first, second, third) = (bytes(1, 30_000), bytes(2, 70_000), bytes(3, 2500));
    put(&db, 1, &first);
    put(&db, 2, b"small");
    let before = used(&db);
    let tx = db.begin();
    let files = tx.open(FILES).unwrap();
    files.insert(1, &*second).unwrap();
    let savepoint = tx.savepoint().unwrap();
    assert_eq!(files.insert(1, &*third).unwrap().as_ref(), Some(&second));
    files.insert(2, &*first).unwrap();
    files.insert(3, &*first).unwrap();
    tx.rollback_to(&savepoint).unwrap();
    assert_eq!(files.get(1).unwrap().as_ref(), Some(&second));
    assert_eq!(files.remove(1).unwrap().as_ref(), Some(&second));
    assert_eq!(files.insert(1, &*third).unwrap(), None);
    tx.rollback_to(&savepoint).unwrap();
    assert_eq!(files.get(3).unwrap(), None);
    assert_eq!(get(&db, 1).as_ref(), Some(&first), "a snapshot beside it");
    // Nothing is free for others yet: the transaction still needs both values of the row.
    db.vacuum().unwrap();
    assert_eq!(files.get(1).unwrap().as_ref(), Some(&second));
    tx.rollback().unwrap();
    assert_eq!((get(&db, 1).as_ref(), get(&db, 2).as_deref()), (Some(&first), Some(&b"small"[..])));
    assert_eq!(used(&db), before);
    // A dropped transaction is rolled back.
    db.begin().open(FILES).unwrap().insert(1, &*second).unwrap();
    assert_eq!((get(&db, 1).as_ref(), used(&db)), (Some(&first), before));
}

#[test]
fn a_snapshot_keeps_the_values_that_it_sees() {
    let (db, _) = in_memory();
    let (first, second) = (bytes(1, 40_000), bytes(2, 20_000));
    put(&db, 1, &first);
    put(&db, 2, &first);
    let before = used(&db);
    let reader = db.read();
    assert_eq!(reader.open(FILES).unwrap().get(2).unwrap().as_ref(), Some(&first));
    put(&db, 1, &second);
    db.run(|tx| tx.open(FILES)?.remove(2)).unwrap();
    put(&db, 1, b"");
    db.vacuum().unwrap();
    assert_eq!(reader.open(FILES).unwrap().get(1).unwrap().as_ref(), Some(&first));
    assert_eq!(
        reader.open(FILES).unwrap().iter().map(Result::unwrap).collect::<Vec<_>>(),
        [(1, first.clone()), (2, first)]
    );
    drop(reader);
    assert!(used(&db) + 10 <= before);
}

#[test]
fn a_dropped_table_takes_its_values_with_it() {
    let (db, _) = in_memory();
    put(&db, 0, b"");
    db.run(|tx| tx.drop_table(FILES.name()).map(drop)).unwrap();
    let before = used(&db);
    for round in 0..3 {
        for key in 0..40 {
            put(&db, key, &bytes(u64::from(key), 2000 * key as usize));
        }
        let tx = db.begin();
        tx.open(FILES).unwrap().insert(5, &*bytes(9, 50_000)).unwrap();
        tx.open(FILES).unwrap().remove(39).unwrap();
        tx.drop_table(FILES.name()).unwrap();
        if round == 1 {
            tx.rollback().unwrap();
            db.check().unwrap();
            db.run(|tx| tx.drop_table(FILES.name()).map(drop)).unwrap();
        } else {
            tx.commit().unwrap();
        }
        assert_eq!(used(&db), before, "round {round}");
    }
}

#[test]
fn the_pages_of_a_dropped_table_hold_large_values_again() {
    for reopens in [false, true] {
        let (mut db, fs) = in_memory();
        (0..20).for_each(|key| put(&db, key, &bytes(u64::from(key), 3000)));
        if reopens {
            db.close(Duration::from_secs(10)).unwrap();
            db = on(&fs).open(DIR).unwrap();
        }
        db.run(|tx| tx.drop_table(FILES.name()).map(drop)).unwrap();
        let used = used(&db);
        for key in 0..40 {
            put(&db, key, &bytes(u64::from(key), 5000));
            assert_eq!(get(&db, key), Some(bytes(u64::from(key), 5000)), "reopened: {reopens}");
        }
        db.check().unwrap();
        db.run(|tx| tx.drop_table(FILES.name()).map(drop)).unwrap();
        assert_eq!(self::used(&db), used, "reopened: {reopens}");
    }
}

/// The check has listed the table when it is dropped, and walks it afterwards.
#[cfg(debug_assertions)]
#[test]
fn a_check_beside_a_drop_blames_no_large_value() {
    let (db, _) = in_memory();
    (0..3).for_each(|key| put(&db, key, &bytes(u64::from(key), 30_000)));
    let dropper = db.clone();
    let mut is_dropped = false;
    foreshore_sync::pause::set("check: has a transaction", move || {
        if !is_dropped {
            is_dropped = true;
            dropper.run(|tx| tx.drop_table(FILES.name()).map(drop)).unwrap();
        }
    });
    let report = db.examine().unwrap();
    foreshore_sync::pause::set("nowhere", || ());
    assert_eq!((report.damaged.as_slice(), report.tables), (&[][..], 0));
    used(&db);
}

#[test]
fn a_prepared_transaction_keeps_its_values_across_restarts() {
    for commits in [true, false] {
        let (db, fs) = in_memory();
        let (first, second) = (bytes(1, 40_000), bytes(2, 90_000));
        put(&db, 1, &first);
        put(&db, 2, &first);
        let tx = db.begin();
        let files = tx.open(FILES).unwrap();
        files.insert(1, &*second).unwrap();
        files.remove(2).unwrap();
        drop(files);
        tx.prepare("it").unwrap();
        db.close(Duration::from_secs(10)).unwrap();
        let db = on(&fs).open(DIR).unwrap();
        db.vacuum().unwrap();
        db.check().unwrap();
        assert_eq!((get(&db, 1).as_ref(), get(&db, 2).as_ref()), (Some(&first), Some(&first)));
        if commits {
            db.commit_prepared("it").unwrap();
        } else {
            db.rollback_prepared("it").unwrap();
        }
        used(&db);
        let expected = if commits { (Some(&second), None) } else { (Some(&first), Some(&first)) };
        assert_eq!((get(&db, 1).as_ref(), get(&db, 2).as_ref()), expected);
        db.run(|tx| {
            tx.open(FILES)?.remove(1)?;
            tx.open(FILES)?.remove(2)
        })
        .unwrap();
        let empty = used(&db);
        put(&db, 1, &first);
        db.run(|tx| tx.open(FILES)?.remove(1)).unwrap();
        assert_eq!(used(&db), empty);
    }
}

/// The rows after each commit, and how many operations the disk had done when it was acknowledged.
type History = Vec<(u64, BTreeMap<u32, Vec<u8>>)>;

fn options(sim: &Sim, seed: u64) -> Options {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    on(&fs).lab(|lab| lab.step_seed = seed)
}

/// A reader that gives a page at a time, and runs background work before each.
struct Steps<'a> {
    left: &'a [u8],
    db: &'a Db,
}

impl Read for Steps<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.db.step();
        let most = buffer.len().min(PAGE);
        self.left.read(&mut buffer[..most])
    }
}

/// Runs transactions with large values, of which some are rolled back, and a drop.
fn script(db: &Db, sim: &Sim, seed: u64) -> History {
    let mut random = Random(seed);
    let mut rows = BTreeMap::new();
    let mut history = vec![(sim.ops(), rows.clone())];
    for n in 0..24 {
        let tx = db.begin();
        let mut after = rows.clone();
        for _ in 0..1 + random.below(3) {
            let files = tx.open(FILES).unwrap();
            let key = random.below(6) as u32;
            if random.below(4) == 0 {
                assert_eq!(files.remove(key).unwrap(), after.remove(&key));
                continue;
            }
            let value = bytes(random.below(1 << 40), [100, 3000, 9000, 60_000][random.below(4) as usize]);
            let savepoint = tx.savepoint().unwrap();
            if random.below(3) == 0 {
                let given = Steps { left: &value, db };
                files.insert_reader(key, given, None).unwrap();
            } else {
                assert_eq!(files.insert(key, &*value).unwrap().as_ref(), after.get(&key));
            }
            if random.below(4) == 0 {
                tx.rollback_to(&savepoint).unwrap();
            } else {
                after.insert(key, value);
            }
        }
        if n == 15 {
            tx.drop_table(FILES.name()).unwrap();
            after.clear();
        }
        if random.below(4) == 0 {
            tx.rollback().unwrap();
        } else {
            tx.commit().unwrap();
            rows = after;
            history.push((sim.ops(), rows.clone()));
        }
        (0..random.below(8)).for_each(|_| db.step());
    }
    db.vacuum().unwrap();
    history
}

/// Checks that a database holds the rows of an acknowledged commit or of the next one, and that no page is lost.
fn verify(db: &Db, history: &History, op: u64) {
    let last = history.iter().rposition(|(at, _)| *at <= op).unwrap_or(0);
    db.check().unwrap_or_else(|error| panic!("check after operation {op}: {error}"));
    let tx = db.begin();
    let found: BTreeMap<_, _> = tx.open(FILES).unwrap().iter().collect::<Result<_, _>>().unwrap();
    tx.rollback().unwrap();
    let is_known = history[last..].iter().take(2).any(|(_, rows)| *rows == found);
    assert!(is_known, "other rows after operation {op}: {:?}", found.keys());
    db.vacuum().unwrap();
    db.check().unwrap_or_else(|error| panic!("check after operation {op} and a vacuum: {error}"));
}

#[test]
fn power_loss_at_any_operation_loses_no_value_and_no_page() {
    for seed in 1..4 {
        let sim = disk(seed);
        let db = options(&sim, seed).open(DIR).unwrap();
        let history = script(&db, &sim, seed);
        db.close(Duration::from_secs(10)).unwrap();
        let mut points = sim.crash_points();
        let mut images = 0;
        loop {
            let op = points.op();
            if op >= history[0].0 && (op + seed).is_multiple_of(2) {
                let policy: &Persist = &POLICIES[images % POLICIES.len()];
                images += 1;
                let lost = points.image(policy, op);
                let db = options(&lost, op).open(DIR).unwrap_or_else(|error| panic!("open after {op}: {error}"));
                verify(&db, &history, op);
            }
            if !points.advance() {
                break;
            }
        }
        assert!(images > 100, "{images} images");
    }
}
