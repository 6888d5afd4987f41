//! Promise: a scan returns the rows of its snapshot and the transaction's own changes, wherever the old versions lie,
//! or an error.
//!
//! Memory is tiny, so nearly all old versions and the changes of large transactions go to the file. Writers commit and
//! roll back beside the readers. The model of a reader is the map of committed rows, copied under the mutex under
//! which writers commit.

use crate::script::Random;
use crate::support::{DIR, small};
use foreshore::{Db, Device, Error, Isolation, Range, Savepoint, Table, TableDef, Transaction, TxnOptions};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
/// Writers have the even ones of so many keys, each its own, and readers the odd ones.
const KEYS: u64 = 2400;
const WRITERS: u64 = 2;
const READERS: u64 = 2;
/// Rounds of each reader.
const ROUNDS: u64 = 12;
/// Commits before the first scan of a round, and in the course of one.
const BEFORE: u64 = 40;
const BESIDE: u64 = 60;

type Model = BTreeMap<u64, Vec<u8>>;

impl Random {
    fn is_one_of(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn value(&mut self) -> Vec<u8> {
        let (byte, len) = (self.below(256), self.below(300));
        vec![byte as u8; len as usize]
    }
}

struct World {
    db: Db,
    committed: Mutex<Model>,
    commits: AtomicU64,
    /// Writers wait at so many commits, for each reader.
    pauses: [AtomicU64; READERS as usize],
    is_over: AtomicBool,
}

impl World {
    /// Commits one transaction after another, or rolls it back.
    fn write(&self, me: u64) {
        let mut random = Random(0x9e37_79b9 + me * 7919);
        // ORDERING: SeqCst throughout, in a test.
        while !self.is_over.load(Ordering::SeqCst) {
            let pause = self.pauses.iter().map(|pause| pause.load(Ordering::SeqCst)).min();
            if pause <= Some(self.commits.load(Ordering::SeqCst)) {
                thread::yield_now();
                continue;
            }
            let tx = self.db.begin_with(TxnOptions::new().isolation(Isolation::ReadCommitted));
            let count = if random.is_one_of(8) { 400 } else { 1 + random.below(40) };
            let mut changes: Vec<(u64, Option<Vec<u8>>)> = (0..count)
                .map(|_| (2 * random.below(KEYS / 2), (!random.is_one_of(5)).then(|| random.value())))
                .collect();
            let done = tx.open(ROWS).and_then(|rows| {
                let mut tried = Ok(());
                changes.retain(|(key, value)| {
                    tried.is_ok() && {
                        // At this level a remove that finds nothing locks nothing: another writer may add the row next.
                        let changed = match value {
                            Some(value) => rows.insert(*key, &value[..]).map(|_| true),
                            None => rows.remove(*key).map(|old| old.is_some()),
                        };
                        changed.unwrap_or_else(|error| {
                            tried = Err(error);
                            false
                        })
                    }
                });
                tried
            });
            match done {
                Ok(()) if !random.is_one_of(5) => {
                    let mut committed = self.committed.lock().unwrap();
                    tx.commit().unwrap();
                    apply(&mut committed, changes);
                    self.commits.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) if !error.is_retryable() => panic!("writer {me}: {error}"),
                _ => tx.rollback().unwrap(),
            }
        }
    }

    /// Waits until there were so many commits from now on, while writers go on for so many more.
    fn wait_for_writers(&self, me: u64, beside: u64) {
        let now = self.commits.load(Ordering::SeqCst);
        self.pauses[me as usize].store(now + BEFORE + beside, Ordering::SeqCst);
        while self.commits.load(Ordering::SeqCst) < now + BEFORE {
            let pause = self.pauses.iter().map(|pause| pause.load(Ordering::SeqCst)).min();
            if pause <= Some(self.commits.load(Ordering::SeqCst)) {
                // The other reader has stopped them.
                return;
            }
            thread::yield_now();
        }
    }

    /// Reads in rounds. Returns how many of them came to their end.
    fn read(&self, me: u64) -> u64 {
        let (mut random, mut ended) = (Random(0x51ed_270b + me * 104_729), 0);
        for round in 0..ROUNDS {
            let done = match (round + me) % 3 {
                0 => self.read_all(me, &mut random),
                1 => self.read_beside_own(me, Isolation::Snapshot, &mut random),
                _ => self.read_beside_own(me, Isolation::ReadCommitted, &mut random),
            };
            self.pauses[me as usize].store(u64::MAX, Ordering::SeqCst);
            match done {
                Ok(()) => ended += 1,
                Err(error) => assert!(error.is_retryable(), "reader {me}, round {round}: {error}"),
            }
        }
        ended
    }

    /// A snapshot has the same rows from both ends, and from one and the other in turns.
    fn read_all(&self, me: u64, random: &mut Random) -> Result<(), Error> {
        let (reader, model) = {
            let committed = self.committed.lock().unwrap();
            (self.db.read(), committed.clone())
        };
        self.wait_for_writers(me, BESIDE);
        let table = reader.open(ROWS)?;
        let expected: Vec<(u64, Vec<u8>)> = model.clone().into_iter().collect();
        let all: Vec<_> = table.iter().collect::<Result<_, _>>()?;
        assert!(all == expected, "forward");
        let mut all: Vec<_> = table.iter().rev().collect::<Result<_, _>>()?;
        all.reverse();
        assert!(all == expected, "backward");
        for _ in 0..20 {
            let (from, len) = (random.below(KEYS), random.below(KEYS));
            let some: Vec<_> = table.range(from..from + len).take(200).collect::<Result<_, _>>()?;
            let known = model.range(from..from + len).take(200);
            assert!(some.iter().map(|(key, value)| (key, value)).eq(known), "{len} from {from}");
        }
        reader.finish().map(drop)
    }

    /// Two cursors of a transaction that changes and locks rows between their steps, and rolls back to savepoints.
    fn read_beside_own(&self, me: u64, isolation: Isolation, random: &mut Random) -> Result<(), Error> {
        let (tx, model) = {
            let committed = self.committed.lock().unwrap();
            (self.db.begin_with(TxnOptions::new().isolation(isolation)), committed.clone())
        };
        self.wait_for_writers(me, BESIDE);
        let table = tx.open(ROWS)?;
        let start = |own: &Model| -> Result<Cursor<'_>, Error> {
            if isolation == Isolation::Snapshot {
                return Ok(Cursor::new(table.iter(), model.clone()));
            }
            // The first step takes its snapshot.
            let committed = self.committed.lock().unwrap();
            let mut cursor = Cursor::new(table.iter(), committed.clone());
            cursor.step(own, false).map(|_| cursor)
        };
        let mut own = Own { tx: &tx, rows: Model::new(), savepoints: Vec::new(), since: 0 };
        let mut cursors = [start(&own.rows)?, start(&own.rows)?];
        let (mut ended, mut is_back) = (0, false);
        while ended < 3 {
            is_back ^= random.is_one_of(400);
            let cursor = random.below(2) as usize;
            if cursors[cursor].step(&own.rows, is_back)? {
                ended += 1;
                cursors[cursor] = start(&own.rows)?;
            }
            if random.is_one_of(1000) {
                // Half-way.
                cursors[cursor] = start(&own.rows)?;
            }
            // Long runs of steps without a change, too.
            if (ended == 1 && random.is_one_of(3)) || random.is_one_of(30) {
                own.change(&table, me, random)?;
            }
            if isolation == Isolation::ReadCommitted && random.is_one_of(300) {
                table.get_for_update(2 * random.below(KEYS / 2))?;
            }
        }
        tx.rollback()
    }
}

fn apply(model: &mut Model, changes: Vec<(u64, Option<Vec<u8>>)>) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }
}

/// What a transaction has changed.
struct Own<'a> {
    tx: &'a Transaction,
    rows: Model,
    savepoints: Vec<(Savepoint, Model)>,
    /// Changes since the first of them.
    since: u64,
}

impl Own<'_> {
    /// Changes a row, reads one, notes a savepoint, or goes back to the last.
    fn change(&mut self, table: &Table<'_, u64, &[u8]>, me: u64, random: &mut Random) -> Result<(), Error> {
        let key = 2 * (READERS * random.below(KEYS / 2 / READERS) + me) + 1;
        // Changes since a savepoint in use stay in memory, where few have space beside what the spill file books.
        self.since = if self.savepoints.is_empty() { 0 } else { self.since + 1 };
        if self.since > 200 {
            self.savepoints.clear();
        }
        match random.below(20) {
            0 => self.savepoints.push((self.tx.savepoint()?, self.rows.clone())),
            1 => {
                if let Some((savepoint, then)) = self.savepoints.pop() {
                    self.tx.rollback_to(&savepoint)?;
                    self.rows = then;
                }
            }
            2..4 => assert_eq!(table.get(key)?, self.rows.get(&key).cloned(), "row {key}"),
            4..8 => assert_eq!(table.remove(key)?, self.rows.remove(&key), "row {key}"),
            _ => {
                let value = vec![key as u8; random.below(40) as usize];
                assert_eq!(table.insert(key, &value[..])?, self.rows.insert(key, value), "row {key}");
            }
        }
        Ok(())
    }
}

/// A scan, and what it is to hand out.
struct Cursor<'tx> {
    scan: Range<'tx, u64, &'static [u8]>,
    committed: Model,
    /// What has not been handed out.
    left: (Bound<u64>, Bound<u64>),
}

impl<'tx> Cursor<'tx> {
    fn new(scan: Range<'tx, u64, &'static [u8]>, committed: Model) -> Self {
        Self { scan, committed, left: (Bound::Unbounded, Bound::Unbounded) }
    }

    /// Takes a row from one end. Whether there was none.
    fn step(&mut self, own: &Model, is_back: bool) -> Result<bool, Error> {
        let found = if is_back { self.scan.next_back() } else { self.scan.next() }.transpose()?;
        let is_empty = match self.left {
            (Bound::Excluded(low), Bound::Excluded(high)) => low >= high,
            _ => false,
        };
        let expected = if is_empty {
            None
        } else {
            let (mut one, mut two) = (self.committed.range(self.left), own.range(self.left));
            if is_back {
                one.next_back().into_iter().chain(two.next_back()).max()
            } else {
                one.next().into_iter().chain(two.next()).min()
            }
        };
        let same = found.as_ref().map(|(key, value)| (key, value)) == expected;
        let keys = (found.as_ref().map(|row| row.0), expected.map(|row| row.0));
        assert!(same, "found and expected: {keys:?} of {:?}", self.left);
        let Some((key, _)) = found else { return Ok(true) };
        *if is_back { &mut self.left.1 } else { &mut self.left.0 } = Bound::Excluded(key);
        Ok(false)
    }
}

#[test]
fn scans_of_versions_in_the_file_have_the_rows_of_their_snapshots() {
    let options = small().lab(|lab| lab.undo_limit = Some(128 << 10)).spill_limit(16 << 20).device(Device::Null);
    let db = options.open(DIR).unwrap();
    let mut committed = Model::new();
    let mut random = Random(77);
    db.run(|tx| {
        let rows = tx.open(ROWS)?;
        (0..KEYS).step_by(2).try_for_each(|key| {
            let value = random.value();
            rows.insert(key, &value[..])?;
            committed.insert(key, value);
            Ok::<_, Error>(())
        })
    })
    .unwrap();
    let world = World {
        db,
        committed: Mutex::new(committed),
        commits: AtomicU64::new(0),
        pauses: [const { AtomicU64::new(u64::MAX) }; READERS as usize],
        is_over: AtomicBool::new(false),
    };
    let ended: u64 = thread::scope(|scope| {
        let world = &world;
        (0..WRITERS).for_each(|me| drop(scope.spawn(move || world.write(me))));
        let readers: Vec<_> = (0..READERS).map(|me| scope.spawn(move || world.read(me))).collect();
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        world.is_over.store(true, Ordering::SeqCst);
        ended.into_iter().map(|ended| ended.unwrap()).sum()
    });
    let World { db, committed, .. } = world;
    let txn = db.stats().txn;
    // The others were cancelled, or met deadlocks.
    assert!(4 * ended > READERS * ROUNDS, "{ended} rounds came to their end: {txn:?}");
    assert!(txn.undo_fetches > 1000, "{txn:?}");
    let last: Model = db.read().open(ROWS).unwrap().iter().collect::<Result<_, _>>().unwrap();
    assert!(last == committed.into_inner().unwrap());
    db.check().unwrap();
}
