//! Changes whose rows lie behind a quarantined page: a rollback skips them for good, logs that, and ends.

use crate::quarantine::{Kind, WIDE, damage, on_sim, options, pages, wide};
use crate::support::{DIR, NUMBERS, Snapshot};
use foreshore::{Db, Error, Place, TableDef, Transaction};
use foreshore_base::codec::{u16_at, u64_at};
use foreshore_base::crc32c;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_io::sim::Persist;
use foreshore_io::{Fs, Mem, Sim};
use std::sync::Arc;

/// So many that the log of a rollback goes home in several groups, also if undo is the first to read the pages.
const ROWS: u64 = 3000;
const NAME: &str = "changed";

/// With a pool that is smaller than the table, so that the log of a rollback goes home in many groups.
fn open(fs: &Arc<dyn Fs>) -> Result<Db, Error> {
    options(fs).memory_limit(4 << 20).spill_limit(64 << 20).open(DIR)
}

/// A transaction has changed all rows. `prepared`: it is prepared; otherwise it runs when the process is killed.
fn changed(prepared: bool) -> Snapshot {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = open(&fs).unwrap();
    db.run(|tx| (0..ROWS).try_for_each(|n| tx.open(WIDE)?.insert(n, &wide(n, 0)[..]).map(drop))).unwrap();
    db.checkpoint().unwrap();
    let tx = db.begin();
    let wides = tx.open(WIDE).unwrap();
    (0..ROWS).for_each(|n| drop(wides.insert(n, &wide(n, 7)[..]).unwrap()));
    match prepared {
        true => tx.prepare(NAME).unwrap(),
        false => std::mem::forget(tx),
    }
    db.sync().unwrap();
    Snapshot::of(&fs)
}

/// The same on a simulated disk, with one leaf in the middle of the table damaged.
fn damaged(prepared: bool) -> (Sim, u64) {
    let mut files = changed(prepared);
    let leaves: Vec<_> =
        pages(&files).into_iter().filter(|&(page, kind, level)| page > 3 && (kind, level) == (3, 0)).collect();
    let (page, ..) = leaves[leaves.len() / 2];
    damage(&mut files, page, Kind::Flip);
    (on_sim(&files), page)
}

/// Every row is as before the transaction, but for those on the damaged page. Returns how many are lost.
fn read_back(db: &Db, page: u64, what: &str) -> u64 {
    let mut lost = 0;
    for n in 0..ROWS {
        match db.read().open(WIDE).and_then(|table| table.get(n)) {
            Ok(value) => assert_eq!(value, Some(wide(n, 0)), "{what}: row {n}"),
            Err(Error::Corrupted { place: Place::Page(met), .. }) if met.0 == page => lost += 1,
            Err(error) => panic!("{what}: row {n}: {error:?}"),
        }
    }
    lost
}

/// Loses power at some operations of a rollback, and reopens. Returns how often the rollback had been completed in
/// part.
fn lose_power(sim: &Sim, page: u64, all: u64) -> u32 {
    let (mut in_part, mut points) = (0, sim.crash_points());
    let mut last = u64::MAX;
    loop {
        let what = format!("power lost in operation {}", points.op());
        let image: Arc<dyn Fs> = Arc::new(points.image(&Persist::All, page));
        let db = open(&image).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let recovery = db.stats().recovery;
        assert_eq!((recovery.parked, db.stats().txn.parked), (0, 0), "{what}: {recovery:?}");
        if recovery.prepared == 0 {
            assert_eq!(read_back(&db, page, &what), ROWS - all, "{what}");
            in_part += u32::from((1..all).contains(&recovery.undone) && recovery.undone != last);
            last = recovery.undone;
        }
        drop(db);
        if !(0..sim.ops() / 50).all(|_| points.advance()) {
            return in_part;
        }
    }
}

#[test]
fn a_restart_cut_short_goes_on_behind_the_changes_that_it_passed_over() {
    let (sim, page) = damaged(false);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let db = open(&fs).unwrap();
    let recovery = db.stats().recovery;
    assert_eq!((recovery.losers, recovery.parked), (1, 0), "{recovery:?}");
    let lost = read_back(&db, page, "first");
    assert!(lost > 0 && recovery.undone == ROWS - lost, "{lost} lost, {recovery:?}");
    let scan_start = db.stats().checkpoint.scan_start;
    db.checkpoint().unwrap();
    assert!(db.stats().checkpoint.scan_start > scan_start, "its log is given up");
    drop(db);
    let in_part = lose_power(&sim, page, ROWS - lost);
    assert!(in_part > 2, "{in_part} restarts cut short");
}

#[test]
fn a_prepared_transaction_is_rolled_back_behind_the_changes_that_it_passed_over() {
    let (sim, page) = damaged(true);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let db = open(&fs).unwrap();
    db.rollback_prepared(NAME).unwrap();
    let lost = read_back(&db, page, "first");
    assert!(lost > 0, "{lost} lost");
    assert_eq!(db.stats().txn.parked, 0);
    db.sync().unwrap();
    drop(db);
    let in_part = lose_power(&sim, page, ROWS - lost);
    assert!(in_part > 2, "{in_part} rollbacks cut short");
}

/// A transaction has loaded rows, and then the root of the table is damaged. No change since the checkpoint rebuilds
/// it.
fn loaded_below_a_damaged_root(is_prepared: bool) -> (Arc<dyn Fs>, u64) {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = open(&fs).unwrap();
    let rows: Vec<_> = (0..600).map(|n| (n, wide(n, 0))).collect();
    let load =
        |tx: &Transaction, rows: &[(u64, Vec<u8>)]| tx.open(WIDE)?.load(rows.iter().map(|(n, row)| (n, &row[..])));
    db.run(|tx| load(tx, &rows[..300])).unwrap();
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
    db.checkpoint().unwrap();
    let tx = db.begin();
    load(&tx, &rows[300..]).unwrap();
    match is_prepared {
        true => tx.prepare(NAME).unwrap(),
        false => std::mem::forget(tx),
    }
    db.sync().unwrap();
    let mut files = Snapshot::of(&fs);
    let roots: Vec<_> = pages(&files).into_iter().filter(|&(_, kind, level)| (kind, level) == (3, 1)).collect();
    let &[(root, ..)] = &roots[..] else { panic!("{roots:?}") };
    damage(&mut files, root, Kind::Flip);
    (files.restore(), root)
}

/// The table with the damaged root is lost, and nothing else.
fn only_the_table_is_lost(db: &Db, root: u64) {
    assert_eq!(db.stats().txn.parked, 0);
    match db.read().open(WIDE).and_then(|table| table.get(7)) {
        Err(Error::Corrupted { place: Place::Page(page), .. }) => assert_eq!(page.0, root),
        other => panic!("{other:?}"),
    }
    assert_eq!(db.read().open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
    db.run(|tx| tx.open(NUMBERS)?.insert(2, 2).map(drop)).unwrap();
    db.checkpoint().unwrap();
}

#[test]
fn the_undo_of_a_load_below_a_damaged_root_is_skipped() {
    let (fs, root) = loaded_below_a_damaged_root(false);
    for losers in [1, 0] {
        let db = open(&fs).unwrap();
        let recovery = db.stats().recovery;
        assert_eq!((recovery.losers, recovery.parked), (losers, 0), "{recovery:?}");
        only_the_table_is_lost(&db, root);
    }
}

#[test]
fn a_prepared_load_below_a_damaged_root_is_resolved() {
    for commits in [false, true] {
        let (fs, root) = loaded_below_a_damaged_root(true);
        for prepared in [1, 0] {
            let db = open(&fs).unwrap();
            assert_eq!(db.prepared().unwrap().len(), prepared);
            match commits {
                _ if prepared == 0 => {}
                true => drop(db.commit_prepared(NAME).unwrap()),
                false => db.rollback_prepared(NAME).unwrap(),
            }
            only_the_table_is_lost(&db, root);
        }
    }
}

const LONG_KEYS: TableDef<&str, u64> = TableDef::new("long keys");
/// Rows in the table before the load.
const BEFORE: u64 = 100;
/// Rows whose keys begin with the same number.
const GROUP: u64 = 12;

/// Few of these keys fit in a node, also of those that separate leaves. The heads of most of the latter differ.
fn long_key(n: u64) -> String {
    format!("{:04}{:0890}{:02}", n / GROUP, 0, n % GROUP)
}

/// The first number of a key that starts at `at` in a node.
fn group_at(page: &[u8], at: usize) -> Option<u64> {
    std::str::from_utf8(page.get(at..at + 4)?).ok()?.parse().ok()
}

/// A transaction runs when the process is killed. It has loaded `rows` rows. Then a node of level 1 is lost, and the
/// node above it has a sound checksum but hides where the next one begins.
fn loaded_below_two_damaged_nodes(rows: u64) -> Snapshot {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = open(&fs).unwrap();
    let load = |tx: &Transaction, from: u64, to: u64| {
        let rows: Vec<_> = (from..to).map(|n| (long_key(n), n)).collect();
        tx.open(LONG_KEYS)?.load(rows.iter().map(|(key, n)| (&**key, *n)))
    };
    db.run(|tx| load(tx, 0, BEFORE)).unwrap();
    let tx = db.begin();
    load(&tx, BEFORE, BEFORE + rows).unwrap();
    std::mem::forget(tx);
    db.checkpoint().unwrap();
    let mut files = Snapshot::of(&fs);
    let inner = pages(&files).into_iter().filter(|&(_, kind, level)| (kind, level) == (3, 2));
    let lost = inner.map(|(above, ..)| hide_a_child(&mut files, above)).find_map(|lost| lost);
    damage(&mut files, lost.expect("a node with loaded rows"), Kind::Flip);
    files
}

/// Makes the key behind a child with loaded rows end outside the page `above`, and returns that child.
fn hide_a_child(files: &mut Snapshot, above: u64) -> Option<u64> {
    let page = &mut files.file("data")[above as usize * PAGE_SIZE..][..PAGE_SIZE];
    let tuple = |slot: usize| usize::from(u16_at(page, 64 + 8 * slot));
    let is_loaded = |slot: &usize| group_at(page, tuple(*slot) + 8).is_some_and(|group| group > BEFORE / GROUP);
    let slot = (0..usize::from(u16_at(page, 32)).saturating_sub(1)).find(is_loaded)?;
    let lost = u64_at(page, tuple(slot));
    let behind = 64 + 8 * (slot + 1);
    page[behind + 2..behind + 4].copy_from_slice(&(PAGE_SIZE as u16).to_le_bytes());
    let crc = crc32c(&page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
    Some(lost)
}

#[test]
fn no_row_of_an_undone_load_is_readable_behind_two_damaged_nodes() {
    const LOADED: u64 = 900;
    let fs = loaded_below_two_damaged_nodes(LOADED).restore();
    for losers in [1, 0] {
        let db = open(&fs).unwrap();
        let recovery = db.stats().recovery;
        assert_eq!((recovery.losers, recovery.parked), (losers, 0), "{recovery:?}");
        let mut lost = 0;
        for n in 0..BEFORE + LOADED {
            match db.read().open(LONG_KEYS).and_then(|table| table.get(&*long_key(n))) {
                Ok(value) => assert_eq!(value, (n < BEFORE).then_some(n), "row {n}"),
                Err(Error::Corrupted { .. }) => lost += 1,
                Err(error) => panic!("row {n}: {error:?}"),
            }
        }
        assert!((1..BEFORE + LOADED).contains(&lost), "{lost} lost");
    }
}
