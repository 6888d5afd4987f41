//! The tables that are known to be committed, found by name without a lock.

use crate::format::{IndexRow, TableRow, split_index_key};
use crate::index_state::IndexState;
use foreshore_base::hash::SeededHash;
use foreshore_base::{Csn, TableId};
use foreshore_btree::Tree;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{LockRank, Mutex};
use std::{
    any::TypeId,
    collections::HashMap,
    sync::{Arc, OnceLock},
};

/// A table of the catalogue, or an index.
#[derive(Debug)]
pub(crate) struct TableInfo {
    /// The key in the catalogue.
    pub(crate) name: Arc<str>,
    /// The number of its naming: the id of the table, or a larger one that a rename has drawn.
    pub(crate) naming: TableId,
    /// A rename gives the table another one, and retires this one.
    pub(crate) tree: Tree,
    pub(crate) key_type: Box<str>,
    /// For an index: the type of the table's primary key.
    pub(crate) value_type: Box<str>,
    /// The commit that created it or gave it this name, or a later one. Zero if that was before the database was
    /// opened, or is still to come. A transaction that uses the table depends on this commit.
    pub(crate) created: Csn,
    /// Present if this is an index.
    pub(crate) index: Option<IndexRow>,
    /// The state of the table's indexes. Handles that the creating transaction has opened share it.
    pub(crate) indexes: Arc<IndexState>,
    /// The types that first matched the stored names, so that a later open compares no text.
    matched: OnceLock<(TypeId, TypeId)>,
}

impl TableInfo {
    /// Returns its name and the name of its key type, for errors and statistics. An index is named `table.index`. The
    /// key of an index that is not unique is a pair of index key and primary key.
    pub(crate) fn names(&self) -> (Arc<str>, Arc<str>) {
        let Some((table, index)) = split_index_key(&self.name) else {
            return (Arc::clone(&self.name), (&*self.key_type).into());
        };
        let key_type = match self.index {
            Some(IndexRow { is_unique: false, .. }) => format!("({},{})", self.key_type, self.value_type).into(),
            _ => (&*self.key_type).into(),
        };
        (format!("{table}.{index}").into(), key_type)
    }

    pub(crate) fn new(name: &str, tree: Tree, row: TableRow, created: Csn, indexes: IndexState) -> Self {
        Self {
            name: name.into(),
            naming: row.naming,
            tree,
            key_type: row.key_type.into(),
            value_type: row.value_type.into(),
            created,
            index: row.index,
            indexes: Arc::new(indexes),
            matched: OnceLock::new(),
        }
    }

    /// Returns its row of the catalogue.
    pub(crate) fn row(&self) -> TableRow {
        TableRow {
            table: self.tree.table(),
            naming: self.naming,
            root: self.tree.root(),
            key_type: self.key_type.to_string(),
            value_type: self.value_type.to_string(),
            is_dropped: false,
            index: self.index,
        }
    }

    /// Returns whether a rename gave it its name.
    pub(crate) fn is_renamed(&self) -> bool {
        self.naming != self.tree.table()
    }

    /// Returns whether types with these ids have been found to match.
    pub(crate) fn has_matched(&self, types: (TypeId, TypeId)) -> bool {
        self.matched.get() == Some(&types)
    }

    pub(crate) fn remember_match(&self, types: (TypeId, TypeId)) {
        // Other types that match as well are compared as text each time.
        let _ = self.matched.set(types);
    }
}

/// Stores in each table's [`IndexState`] how many indexes it has. `known` has all tables and indexes of the catalogue.
/// No transaction is running.
pub(crate) fn settle_indexes(known: &[&TableInfo]) {
    let mut counts = HashMap::<TableId, usize>::new();
    known.iter().filter_map(|info| info.index).for_each(|index| *counts.entry(index.of).or_default() += 1);
    for info in known {
        info.indexes.settle(info.indexes.word(), counts.get(&info.tree.table()).copied().unwrap_or_default());
    }
}

/// A table that [`Tables`] can list.
pub(crate) trait Named {
    /// Its name.
    fn name(&self) -> &str;
    /// Its id.
    fn id(&self) -> TableId;
    /// The number of its naming. A later table of the same name has a larger one.
    fn naming(&self) -> TableId;
    /// Whether the table was dropped, or has got another name.
    fn is_dropped(&self) -> bool;
}

impl Named for TableInfo {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> TableId {
        self.tree.table()
    }

    fn naming(&self) -> TableId {
        self.naming
    }

    fn is_dropped(&self) -> bool {
        self.tree.is_retired()
    }
}

/// Slots of the first level; each next level has four times as many.
const FIRST: usize = 64;
/// Slots that a name may lie in, per level.
const PROBES: usize = 8;
/// A name may lie in `LEVELS * PROBES` slots. The hash is seeded, so in practice they are never all taken.
const LEVELS: usize = 16;
/// Tables in the first chunk; each next chunk has twice as many.
const CHUNK: usize = 32;
/// Chunks: as many as table ids need.
const CHUNKS: usize = 28;

/// A name, and its newest table.
struct Entry {
    name: Box<str>,
    /// Place of the table in the list.
    newest: AtomicUsize,
}

/// A table in the list.
struct Listed<T> {
    table: T,
    /// Place of the table that had the name before.
    before: Option<usize>,
}

/// A part of the list.
type Chunk<T> = Box<[OnceLock<Listed<T>>]>;

/// A map from names to tables, to which entries are only added.
///
/// A reader follows set-once cells and writes nothing, so opening a table causes no contention. A dropped table stays
/// in memory until the database is closed, since readers may refer to it. That costs a few hundred bytes each.
pub(crate) struct Tables<T> {
    hasher: SeededHash,
    levels: [OnceLock<Box<[OnceLock<Entry>]>>; LEVELS],
    list: [OnceLock<Chunk<T>>; CHUNKS],
    /// The number of tables in the list. A thread that adds one holds the mutex.
    len: Mutex<usize>,
}

impl<T: Named> Tables<T> {
    pub(crate) fn new() -> Self {
        Self {
            hasher: SeededHash::new(),
            levels: [const { OnceLock::new() }; LEVELS],
            list: [const { OnceLock::new() }; CHUNKS],
            len: Mutex::new(LockRank::Catalogue, 0),
        }
    }

    /// Returns the table with that name, if it is known and not dropped.
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.all(name).next().filter(|table| !table.is_dropped())
    }

    /// Returns all tables that have had that name, dropped or not, the newest first.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &T> {
        let newest = self.entry(name).map(|entry| self.newest(entry));
        let all = std::iter::successors(newest, |listed| listed.before.map(|at| self.at(at)));
        all.map(|listed| &listed.table)
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.slot(name, false)?.get()
    }

    /// Returns the slot of `name`, or the empty slot where its entry belongs. `None` if that slot is in a level that
    /// does not exist yet, unless `grows` is true.
    fn slot(&self, name: &str, grows: bool) -> Option<&OnceLock<Entry>> {
        let hash = self.hasher.hash(0, name.as_bytes());
        for (depth, level) in self.levels.iter().enumerate() {
            let slots = match grows {
                true => level.get_or_init(|| (0..FIRST << (2 * depth)).map(|_| OnceLock::new()).collect()),
                false => level.get()?,
            };
            // An empty slot ends the search: entries go to the first free one and never leave.
            let mut slots = probe(slots, hash);
            if let Some(slot) = slots.find(|slot| slot.get().is_none_or(|entry| *entry.name == *name)) {
                return Some(slot);
            }
        }
        None
    }

    fn newest(&self, entry: &Entry) -> &Listed<T> {
        // ORDERING: Acquire, pairs with the publishing store in `add`.
        self.at(entry.newest.load(Ordering::Acquire))
    }

    fn at(&self, index: usize) -> &Listed<T> {
        let (chunk, at) = place(index);
        self.list[chunk].get().and_then(|chunk| chunk[at].get()).expect("a table is in the list before its name")
    }

    /// Returns the table with that id by its newest name, if it is known, dropped or not. Searches all of them.
    pub(crate) fn by_id(&self, id: TableId) -> Option<&T> {
        self.iter().filter(|table| table.id() == id).max_by_key(|table| table.naming())
    }

    /// Returns the tables, in the order in which they became known, dropped or not.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let known = (0..).map(place).map_while(|(chunk, at)| self.list.get(chunk)?.get()?[at].get());
        known.map(|listed| &listed.table)
    }

    /// Adds a table, unless it or a later one of its name is known. Returns the newest table of that name.
    pub(crate) fn add(&self, table: T) -> &T {
        let mut len = self.len.lock();
        let slot = self.slot(table.name(), true).expect("sixteen levels hold more tables than there are ids");
        let Some(entry) = slot.get() else {
            let name = table.name().into();
            let newest = AtomicUsize::new(self.push(&mut len, Listed { table, before: None }));
            return &self.newest(slot.get_or_init(|| Entry { name, newest })).table;
        };
        let known = &self.newest(entry).table;
        // The creator of a table may add it after another transaction has dropped it.
        if known.naming() >= table.naming() {
            return known;
        }
        // ORDERING: Relaxed, stored under the lock.
        let before = Some(entry.newest.load(Ordering::Relaxed));
        let at = self.push(&mut len, Listed { table, before });
        // ORDERING: publish, pairs with `newest`.
        entry.newest.store(at, Ordering::Release);
        &self.newest(entry).table
    }

    /// Appends to the list and returns the place.
    fn push(&self, len: &mut usize, table: Listed<T>) -> usize {
        let (chunk, at) = place(*len);
        let slots = self.list[chunk].get_or_init(|| (0..CHUNK << chunk).map(|_| OnceLock::new()).collect());
        assert!(slots[at].set(table).is_ok(), "a place is given once");
        *len += 1;
        *len - 1
    }
}

fn probe<T>(slots: &[OnceLock<T>], hash: u64) -> impl Iterator<Item = &OnceLock<T>> {
    let mask = slots.len() - 1;
    (0..PROBES).map(move |i| &slots[(hash as usize).wrapping_add(i) & mask])
}

/// Returns the chunk of a place in the list, and the index in that chunk.
const fn place(index: usize) -> (usize, usize) {
    let chunk = (index / CHUNK + 1).ilog2() as usize;
    (chunk, index - CHUNK * ((1 << chunk) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore_sync::primitive::atomic::AtomicBool;

    struct FakeTable {
        name: String,
        id: u32,
        naming: u32,
        is_dropped: AtomicBool,
    }

    impl Named for FakeTable {
        fn name(&self) -> &str {
            &self.name
        }

        fn id(&self) -> TableId {
            TableId(self.id)
        }

        fn naming(&self) -> TableId {
            TableId(self.naming)
        }

        fn is_dropped(&self) -> bool {
            self.is_dropped.load(Ordering::Relaxed)
        }
    }

    fn table(name: &str, id: u32, is_dropped: bool) -> FakeTable {
        FakeTable { name: name.to_owned(), id, naming: id, is_dropped: AtomicBool::new(is_dropped) }
    }

    #[test]
    fn a_table_that_gets_a_name_back_is_found_by_it() {
        let tables = Tables::new();
        let named = |name: &str, naming: u32| FakeTable { naming, ..table(name, 1, false) };
        let leave = |table: &FakeTable| table.is_dropped.store(true, Ordering::Relaxed);
        leave(tables.add(named("first", 1)));
        leave(tables.add(table("second", 2, false)));
        assert!(tables.get("second").is_none());
        leave(tables.add(named("second", 3)));
        assert_eq!(tables.add(named("first", 4)).naming, 4);
        assert!(tables.add(named("second", 3)).is_dropped(), "its namer comes late");
        assert_eq!(tables.get("first").map(|table| table.naming), Some(4));
        assert_eq!(tables.by_id(TableId(1)).map(|table| table.naming), Some(4));
        assert!(tables.get("second").is_none());
    }

    #[test]
    fn thousands_of_tables_are_each_found_once() {
        let tables = Tables::new();
        let name = |n: u32| format!("table {n}");
        for n in 0..3000 {
            assert!(tables.get(&name(n)).is_none());
            assert_eq!(tables.add(table(&name(n), n, false)).id, n);
        }
        for n in 0..3000 {
            assert_eq!(tables.get(&name(n)).map(|table| table.id), Some(n));
            assert!(!tables.add(table(&name(n), n, true)).is_dropped(), "the first table of {n} stays");
            assert_eq!(tables.by_id(TableId(n)).map(|table| &*table.name), Some(&*name(n)));
        }
        assert!(tables.by_id(TableId(3000)).is_none());
    }

    #[test]
    fn a_dropped_table_gives_way_to_later_ones_and_never_comes_back() {
        let tables = Tables::new();
        for id in 1..500 {
            assert_eq!(tables.add(table("again", id, false)).id, id);
            let found = tables.get("again").unwrap();
            assert_eq!(found.id, id);
            found.is_dropped.store(true, Ordering::Relaxed);
            assert!(tables.get("again").is_none());
            assert!(tables.add(table("again", id, false)).is_dropped(), "its creator comes late");
            assert!(tables.get("again").is_none());
            assert!(tables.all("again").map(|table| table.id).eq((1..=id).rev()), "the newest first");
        }
        assert_eq!(tables.all("never").count(), 0);
    }
}
