//! A salvage brings back every row that lies on sound pages, whatever happened to the others.
//!
//! What lies where is read from the file, by a reader of its own (docs/format.md). A row lies on its leaf, and on the
//! pages of its large value. The row of its table in the catalogue has to be sound, too.
//!
//! `FORESHORE_DAMAGED=1000` damages so many databases.

use crate::script::{Random, disk, options};
use crate::support::DIR;
use foreshore::limits::PAGE_SIZE;
use foreshore::{Db, IndexDef, Salvaged, TableDef};
use foreshore_base::codec::{u32_at, u64_at};
use foreshore_io::Sim;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

const DATA: &str = "/db/data";
/// Long keys, so that few rows make several levels.
const DEEP: TableDef<&str, u64> = TableDef::new("deep");
const WIDE: TableDef<u64, &[u8]> = TableDef::new("wide");
const BY_LENGTH: IndexDef<u64, &[u8], u64> =
    IndexDef::new("by length", |_, value: &Vec<u8>, keys| keys.add(value.len() as u64));
const LARGE: TableDef<u64, &[u8]> = TableDef::<u64, &[u8]>::new("large").with_indexes(&[&BY_LENGTH]);

const MAP: u64 = 2;
const CATALOGUE_ROOT: u64 = 3;
const CATALOGUE: u32 = 1;
const TREE: u8 = 3;
const CHAIN: u8 = 5;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a salvage finds of a table.
#[derive(Default)]
struct Found {
    rows: Rows,
    lost_values: BTreeSet<Vec<u8>>,
    /// Ranges of lost keys.
    lost_keys: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Found {
    fn is_lost(&self, key: &[u8]) -> bool {
        let is_in =
            |(from, to): &(Vec<u8>, Option<Vec<u8>>)| **from <= *key && to.as_ref().is_none_or(|to| *key < **to);
        self.lost_values.contains(key) || self.lost_keys.iter().any(is_in)
    }
}

/// A page of the data file.
#[derive(Clone, Copy)]
struct Page<'d>(&'d [u8]);

impl<'d> Page<'d> {
    fn short(self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.0[at], self.0[at + 1]]))
    }

    fn kind(self) -> u8 {
        self.0[4]
    }

    fn level(self) -> u8 {
        self.0[5]
    }

    fn table(self) -> u32 {
        u32_at(self.0, 24)
    }

    fn is_node(self, table: u32) -> bool {
        self.kind() == TREE && self.table() == table
    }

    /// The offset of each tuple, and the length of its key.
    fn tuples(self) -> impl Iterator<Item = (usize, usize)> + 'd {
        (0..self.short(32)).map(move |slot| (self.short(64 + 8 * slot), self.short(66 + 8 * slot)))
    }

    /// The rows of a leaf that are not deleted: the flags, the key, and the value or its stub.
    fn rows(self) -> impl Iterator<Item = (usize, &'d [u8], &'d [u8])> + 'd {
        let row = move |(at, key): (usize, usize)| {
            let (value, behind) = (at + 16 + key, self.short(at + 8));
            (self.short(at), &self.0[at + 16..value], &self.0[value..value + behind])
        };
        self.tuples().map(row).filter(|(flags, ..)| flags & 1 == 0)
    }

    /// The children of an inner node.
    fn children(self) -> impl Iterator<Item = u64> + 'd {
        [u64_at(self.0, 48)].into_iter().chain(self.tuples().map(move |(at, _)| u64_at(self.0, at)))
    }
}

/// A row, and the pages that it lies on.
struct Placed {
    key: Vec<u8>,
    leaf: u64,
    pages: Vec<u64>,
}

/// A table, and the leaf of the catalogue that names it.
struct Table {
    name: String,
    named_by: u64,
    root: u64,
    rows: Rows,
    placed: Vec<Placed>,
}

/// A sound database that was closed.
struct Sound {
    sim: Sim,
    data: Vec<u8>,
    /// The pages of an earlier moment.
    older: Vec<u8>,
    tables: Vec<Table>,
}

fn page(data: &[u8], number: u64) -> Page<'_> {
    Page(&data[number as usize * PAGE_SIZE..][..PAGE_SIZE])
}

/// The pages that the map has in use.
fn allocated(data: &[u8]) -> Vec<u64> {
    let map = page(data, MAP).0;
    let is_set = |number: u64| map[32 + number as usize / 8] & (1 << (number % 8)) != 0;
    (MAP..(data.len() / PAGE_SIZE) as u64).filter(|&number| is_set(number)).collect()
}

/// What a reader finds of each table.
fn read(db: &Db) -> BTreeMap<String, Rows> {
    let reader = db.read();
    let rows = |name: &str| reader.open_raw(name).unwrap().iter().collect::<Result<Rows, _>>().unwrap();
    reader.tables().unwrap().into_iter().map(|table| (table.name.clone(), rows(&table.name))).collect()
}

/// What a salvage finds of each table.
fn salvage(sim: &Sim) -> Result<BTreeMap<String, Found>, foreshore::Error> {
    let db = options(sim).memory_limit(16 << 20).open_read_only(DIR)?;
    let reader = db.read();
    let mut found = BTreeMap::new();
    for table in reader.readable_tables()?.0 {
        let (mut of_table, mut last) = (Found::default(), None);
        for item in reader.open_raw(&table.name)?.salvage() {
            match item? {
                Salvaged::Row { key, value } => {
                    assert!(last < Some(key.clone()), "rows of {:?} are out of order", table.name);
                    last = Some(key.clone());
                    of_table.rows.insert(key, value);
                }
                Salvaged::LostValue { key, .. } => drop(of_table.lost_values.insert(key)),
                Salvaged::LostKeys { from, to, .. } => of_table.lost_keys.push((from, to)),
                other => panic!("{other:?}"),
            }
        }
        found.insert(table.name, of_table);
    }
    Ok(found)
}

impl Sound {
    fn new() -> Self {
        let sim = disk(1);
        let db = options(&sim).memory_limit(16 << 20).log_budget(4 << 20).open(DIR).unwrap();
        let mut random = Random(1);
        let name = |n: u64| format!("{n:0900}");
        (0..700).for_each(|n| db.run(|tx| tx.open(DEEP)?.put(&*name(n * 7919 % 1000), n)).unwrap());
        db.run(|tx| tx.open(WIDE)?.load((0..5000).map(|n| (n, &[7; 100][..])))).unwrap();
        let put_large = |n: u64, len: usize| {
            let value: Vec<u8> = (0..len).map(|at| (at as u64 * 31 + n) as u8).collect();
            db.run(|tx| tx.open(LARGE)?.put(n, &value[..])).unwrap();
        };
        (0..30).for_each(|n| put_large(n, 100 << (n % 10)));
        for n in 0..120 {
            let name = format!("table {n:03} {}", "x".repeat(100));
            db.run(|tx| tx.open(TableDef::<u64, u64>::new(&name))?.put(n, n)).unwrap();
        }
        db.checkpoint().unwrap();
        let older = sim.contents(Path::new(DATA)).unwrap();
        // Leaves are split, emptied and merged, and their pages are used again.
        for _ in 0..40 {
            let (from, large) = (random.below(1000), random.below(30));
            db.run(|tx| {
                let deep = tx.open(DEEP)?;
                (from..from + 30).try_for_each(|n| deep.remove(&*name(n)).map(drop))?;
                (0..20).try_for_each(|n| deep.put(&*name((from * 3 + n * 11) % 1000), n))?;
                tx.open(WIDE)?.remove_range(from..from + 40).map(drop)
            })
            .unwrap();
            put_large(large, 50 << random.below(11));
            (0..40).for_each(|_| db.step());
        }
        let expected = read(&db);
        db.close(Duration::ZERO).unwrap();
        let (data, found) = (sim.contents(Path::new(DATA)).unwrap(), salvage(&sim).unwrap());
        assert!(found.iter().map(|(name, of_table)| (name, &of_table.rows)).eq(&expected), "the sound database");
        let tables = tables(&data, found);
        Self { sim, data, older, tables }
    }
}

/// Finds where the rows of all tables lie.
fn tables(data: &[u8], mut found: BTreeMap<String, Found>) -> Vec<Table> {
    let pages = allocated(data);
    let leaves = |table: u32| {
        pages.iter().copied().filter(move |&at| page(data, at).is_node(table) && page(data, at).level() == 0)
    };
    let mut tables = Vec::new();
    for named_by in leaves(CATALOGUE) {
        for (_, name, row) in page(data, named_by).rows().filter(|(_, _, row)| row[1] & 7 == 0) {
            let name = String::from_utf8(name.to_vec()).unwrap();
            let rows = found.remove(&name).expect("a table of the catalogue is listed").rows;
            let mut placed = Vec::new();
            for leaf in leaves(u32_at(row, 4)) {
                for (flags, key, stub) in page(data, leaf).rows() {
                    let of_chain =
                        |at: &u64| page(data, *at).kind() == CHAIN && page(data, *at).0[32..48] == stub[..16];
                    let chain =
                        if flags & 2 == 0 { Vec::new() } else { pages.iter().copied().filter(of_chain).collect() };
                    placed.push(Placed { key: key.to_vec(), leaf, pages: chain });
                }
            }
            let mut keys: Vec<_> = placed.iter().map(|row| row.key.clone()).collect();
            keys.sort_unstable();
            assert!(keys.iter().eq(rows.keys()), "the rows of {name} are not those of its leaves");
            tables.push(Table { name, named_by, root: u64_at(row, 8), rows, placed });
        }
    }
    assert!(found.is_empty() && tables.len() > 100, "{} tables", tables.len());
    tables
}

/// The pages below `root` that are reached through sound ones.
fn reached(data: &[u8], root: u64, damaged: &BTreeSet<u64>, into: &mut BTreeSet<u64>) {
    if !damaged.contains(&root) && into.insert(root) && page(data, root).level() > 0 {
        page(data, root).children().for_each(|child| reached(data, child, damaged, into));
    }
}

/// Damages the page `at` of `data`.
fn hurt(data: &mut [u8], sound: &Sound, at: u64, random: &mut Random) {
    let (from, of) = (at as usize * PAGE_SIZE, allocated(&sound.data));
    let other = of[random.below(of.len() as u64) as usize] as usize * PAGE_SIZE;
    match random.below(6) {
        0 => data[from..from + PAGE_SIZE].fill(0),
        1 => data[from + random.below(PAGE_SIZE as u64) as usize] ^= 1 << random.below(8),
        // Torn: its end is missing, or is that of another page.
        2 => data[from + 512 * (1 + random.below(15) as usize)..from + PAGE_SIZE].fill(0),
        3 => data.copy_within(other + PAGE_SIZE / 2..other + PAGE_SIZE, from + PAGE_SIZE / 2),
        4 => (0..PAGE_SIZE).for_each(|byte| data.swap(from + byte, other + byte)),
        // A write of it was lost.
        _ if from + PAGE_SIZE <= sound.older.len() => {
            data[from..from + PAGE_SIZE].copy_from_slice(&sound.older[from..from + PAGE_SIZE]);
        }
        _ => data[from..from + PAGE_SIZE].fill(0xff),
    }
}

/// Draws a page of a drawn kind: any, an inner node, a leaf, a node of the catalogue, a page of a large value, the map.
fn draw(sound: &Sound, random: &mut Random) -> u64 {
    let kind = random.below(12);
    let is_wanted = |page: Page<'_>| match kind {
        0..4 => true,
        4..6 => page.kind() == TREE && page.level() > 0,
        6..8 => page.kind() == TREE && page.level() == 0,
        8 => page.is_node(CATALOGUE),
        9..11 => page.kind() == CHAIN,
        _ => page.kind() == 2,
    };
    let pages: Vec<u64> = allocated(&sound.data).into_iter().filter(|&at| is_wanted(page(&sound.data, at))).collect();
    pages[random.below(pages.len() as u64) as usize]
}

#[test]
fn every_row_on_sound_pages_comes_back() {
    let sound = Sound::new();
    let (mut back, mut lost, mut below_damage) = (0, 0, 0);
    for seed in 0..std::env::var("FORESHORE_DAMAGED").map_or(100, |text| text.parse().unwrap()) {
        let (mut random, sim, mut data) = (Random(seed), sound.sim.fork(), sound.data.clone());
        for _ in 0..=random.below(8) {
            let at = draw(&sound, &mut random);
            hurt(&mut data, &sound, at, &mut random);
        }
        let damaged: BTreeSet<u64> =
            (0..(data.len() / PAGE_SIZE) as u64).filter(|&at| page(&data, at).0 != page(&sound.data, at).0).collect();
        sim.patch(Path::new(DATA), 0, &data).unwrap();
        let images = sim.contents(Path::new("/db/dw")).unwrap().len();
        sim.patch(Path::new("/db/dw"), 4096, &vec![0; images - 4096]).unwrap();
        let found = salvage(&sim).unwrap_or_else(|error| panic!("seed {seed}, {damaged:?}: {error:?}"));
        let mut named = BTreeSet::new();
        reached(&sound.data, CATALOGUE_ROOT, &damaged, &mut named);
        for table in &sound.tables {
            let what = format!("seed {seed}, {damaged:?}, table {}", table.name);
            let Some(of_table) = found.get(&table.name) else {
                let is_found = named.contains(&table.named_by) || !damaged.contains(&MAP);
                assert!(damaged.contains(&table.named_by) || !is_found, "{what} is hidden");
                continue;
            };
            let (rows, mut near) = (&of_table.rows, BTreeSet::new());
            reached(&sound.data, table.root, &damaged, &mut near);
            for Placed { key, leaf, pages } in &table.placed {
                let is_reached = near.contains(leaf);
                // Behind a damaged inner node, leaves are found by the map.
                let is_sound = !damaged.contains(leaf)
                    && !pages.iter().any(|at| damaged.contains(at))
                    && (is_reached || !damaged.contains(&MAP));
                match rows.get(key) {
                    Some(value) => {
                        assert!(*value == table.rows[key], "{what}: another value of {key:?}");
                        back += 1;
                        below_damage += u32::from(!is_reached);
                    }
                    None => {
                        assert!(!is_sound, "{what}: {key:?} on {leaf} and {pages:?} is missing");
                        assert!(of_table.is_lost(key), "{what}: {key:?} on {leaf} is lost in silence");
                        lost += 1;
                    }
                }
            }
            assert!(rows.keys().all(|key| table.rows.contains_key(key)), "{what}: a row that was not there");
        }
    }
    assert!(
        back > 100_000 && lost > 1000 && below_damage > 1000,
        "{back} back, {lost} lost, {below_damage} below damage"
    );
}
