//! The tables that are known to be committed, found by name without a lock.

use crate::format::{IndexRow, TableRow, split_index_key};
use crate::index_state::IndexState;
use foreshore_base::hash::SeededHash;
use foreshore_base::{Csn, TableId};
use foreshore_btree::{TableEnd, Tree};
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{LockRank, Mutex};
use foreshore_txn::Snapshot;
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
    pub(crate) tree: Tree,
    pub(crate) key_type: Box<str>,
    pub(crate) value_type: Box<str>,
    /// The commit that created it. A transaction that uses the table depends on that commit.
    pub(crate) created: Csn,
    /// Present if this is an index.
    pub(crate) index: Option<IndexRow>,
    /// The indexes of the table. The creator of the table shares it with the tables that it has opened.
    pub(crate) indexes: Arc<IndexState>,
    /// The number of the name: it grows from one table of a name to the next.
    pub(crate) named: TableId,
    /// The end of the use of this name for the table, by a rename.
    pub(crate) name_end: Arc<TableEnd>,
    /// The types that first matched the stored names, so that a later open compares no text.
    checked: OnceLock<(TypeId, TypeId)>,
}

impl TableInfo {
    /// Returns its name and the name of its key type, for errors. An index has the name of its table before its own.
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
            tree,
            key_type: row.key_type.into(),
            value_type: row.value_type.into(),
            created,
            index: row.index,
            indexes: Arc::new(indexes),
            named: row.named,
            name_end: Arc::default(),
            checked: OnceLock::new(),
        }
    }

    /// Returns the same table under another name.
    pub(crate) fn renamed(&self, name: &str, named: TableId, created: Csn) -> Self {
        Self {
            name: name.into(),
            tree: self.tree.clone(),
            key_type: self.key_type.clone(),
            value_type: self.value_type.clone(),
            created,
            index: self.index,
            indexes: Arc::clone(&self.indexes),
            named,
            name_end: Arc::default(),
            checked: OnceLock::new(),
        }
    }

    /// Whether it got its name by a rename.
    pub(crate) fn is_renamed(&self) -> bool {
        self.named != self.tree.table()
    }

    /// Returns whether the table was dropped, or its creation rolled back, or it has another name.
    pub(crate) fn is_over(&self) -> bool {
        self.tree.is_retired() || self.name_end.is_over()
    }

    /// Returns the commit after which the name no longer means this table, if `snapshot` sees it; zero if no commit
    /// has to become durable for that.
    pub(crate) fn gone_at(&self, snapshot: &Snapshot) -> Option<Csn> {
        self.tree.gone_at(snapshot).or_else(|| self.name_end.gone_at(snapshot))
    }

    /// Returns whether types with these ids have been found to match.
    pub(crate) fn fits(&self, types: (TypeId, TypeId)) -> bool {
        self.checked.get() == Some(&types)
    }

    pub(crate) fn remember_fit(&self, types: (TypeId, TypeId)) {
        // Other types that fit as well are compared as text each time.
        let _ = self.checked.set(types);
    }
}

/// Settles the indexes of all tables, while no transaction runs and no damage hides any.
pub(crate) fn settle_indexes(known: &[&TableInfo]) {
    let mut counts = HashMap::<TableId, usize>::new();
    known.iter().filter_map(|info| info.index).for_each(|index| *counts.entry(index.of).or_default() += 1);
    for info in known {
        info.indexes.settle(info.indexes.word(), counts.get(&info.tree.table()).copied().unwrap_or_default());
    }
}

/// What a [`Tables`] holds.
pub(crate) trait Named {
    /// The name it is found by.
    fn name(&self) -> &str;
    /// Grows from one table of that name to the next.
    fn number(&self) -> TableId;
    /// The table.
    fn table(&self) -> TableId;
    /// Whether the name means the table no longer.
    fn is_over(&self) -> bool;
}

impl Named for TableInfo {
    fn name(&self) -> &str {
        &self.name
    }

    fn number(&self) -> TableId {
        self.named
    }

    fn table(&self) -> TableId {
        self.tree.table()
    }

    fn is_over(&self) -> bool {
        Self::is_over(self)
    }
}

/// Slots of the first level; each next level has four times as many.
const FIRST: usize = 64;
/// Slots that a name may lie in, per level.
const PROBES: usize = 8;
/// Levels: more than there can be table ids.
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
/// in memory until the database is closed, since readers may refer to it. That costs some hundred bytes each.
pub(crate) struct Tables<T> {
    hasher: SeededHash,
    levels: [OnceLock<Box<[OnceLock<Entry>]>>; LEVELS],
    list: [OnceLock<Chunk<T>>; CHUNKS],
    /// Tables in the list.
    writer: Mutex<usize>,
}

impl<T: Named> Tables<T> {
    pub(crate) fn new() -> Self {
        Self {
            hasher: SeededHash::new(),
            levels: [const { OnceLock::new() }; LEVELS],
            list: [const { OnceLock::new() }; CHUNKS],
            writer: Mutex::new(LockRank::Catalogue, 0),
        }
    }

    /// Returns the table with that name, if it is known and has the name still.
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.all(name).next().filter(|table| !table.is_over())
    }

    /// Returns all tables that have had that name, the newest first.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &T> {
        let newest = self.entry(name).map(|entry| self.newest(entry));
        let all = std::iter::successors(newest, |listed| listed.before.map(|at| self.at(at)));
        all.map(|listed| &listed.table)
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        let hash = self.hasher.hash(0, name.as_bytes());
        for level in &self.levels {
            for slot in probe(level.get()?, hash) {
                // An empty slot ends the search: entries go to the first free one and never leave.
                let entry = slot.get()?;
                if *entry.name == *name {
                    return Some(entry);
                }
            }
        }
        None
    }

    fn newest(&self, entry: &Entry) -> &Listed<T> {
        // ORDERING: consume, pairs with the store in `add`.
        self.at(entry.newest.load(Ordering::Acquire))
    }

    fn at(&self, index: usize) -> &Listed<T> {
        let (chunk, at) = place(index);
        self.list[chunk].get().and_then(|chunk| chunk[at].get()).expect("a table is in the list before its name")
    }

    /// Returns the table with that id under its newest name, if it is known, dropped or not. Searches all of them.
    pub(crate) fn by_id(&self, id: TableId) -> Option<&T> {
        self.iter().filter(|table| table.table() == id).last()
    }

    /// Returns the tables, in the order in which they became known, dropped or not.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let known = (0..).map(place).map_while(|(chunk, at)| self.list.get(chunk)?.get()?[at].get());
        known.map(|listed| &listed.table)
    }

    /// Adds a table, unless it or a later one of that name is known. Returns the one that is known then.
    pub(crate) fn add(&self, table: T) -> &T {
        let mut count = self.writer.lock();
        let hash = self.hasher.hash(0, table.name().as_bytes());
        for (depth, level) in self.levels.iter().enumerate() {
            let slots = level.get_or_init(|| (0..FIRST << (2 * depth)).map(|_| OnceLock::new()).collect());
            for slot in probe(slots, hash) {
                match slot.get() {
                    Some(entry) if *entry.name == *table.name() => {
                        let known = &self.newest(entry).table;
                        // The creator of a table may add it after another transaction has dropped it.
                        if known.number() < table.number() {
                            // ORDERING: Relaxed, stored under the lock.
                            let before = Some(entry.newest.load(Ordering::Relaxed));
                            let at = self.push(&mut count, Listed { table, before });
                            // ORDERING: publish, pairs with `newest`.
                            entry.newest.store(at, Ordering::Release);
                            return &self.newest(entry).table;
                        }
                        return known;
                    }
                    Some(_) => {}
                    None => {
                        let name = table.name().into();
                        let newest = AtomicUsize::new(self.push(&mut count, Listed { table, before: None }));
                        return &self.newest(slot.get_or_init(|| Entry { name, newest })).table;
                    }
                }
            }
        }
        unreachable!("sixteen levels hold more tables than there are ids")
    }

    /// Appends to the list and returns the place.
    fn push(&self, count: &mut usize, table: Listed<T>) -> usize {
        let (chunk, at) = place(*count);
        let slots = self.list[chunk].get_or_init(|| (0..CHUNK << chunk).map(|_| OnceLock::new()).collect());
        assert!(slots[at].set(table).is_ok(), "a place is given once");
        *count += 1;
        *count - 1
    }
}

fn probe<T>(slots: &[OnceLock<T>], hash: u64) -> impl Iterator<Item = &OnceLock<T>> {
    let mask = slots.len() - 1;
    (0..PROBES).map(move |i| &slots[(hash as usize).wrapping_add(i) & mask])
}

/// Chunk of a place in the list, and the place in the chunk.
const fn place(index: usize) -> (usize, usize) {
    let chunk = (index / CHUNK + 1).ilog2() as usize;
    (chunk, index - CHUNK * ((1 << chunk) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Entry(String, u32, AtomicUsize);

    impl Named for Entry {
        fn name(&self) -> &str {
            &self.0
        }

        fn number(&self) -> TableId {
            TableId(self.1)
        }

        fn table(&self) -> TableId {
            TableId(self.1)
        }

        fn is_over(&self) -> bool {
            self.2.load(Ordering::Relaxed) != 0
        }
    }

    fn entry(name: &str, id: u32) -> Entry {
        Entry(name.to_owned(), id, AtomicUsize::new(0))
    }

    #[test]
    fn thousands_of_tables_are_each_found_once() {
        let tables = Tables::new();
        let name = |n: u32| format!("table {n}");
        for n in 0..3000 {
            assert!(tables.get(&name(n)).is_none());
            assert_eq!(tables.add(entry(&name(n), n)).1, n);
        }
        for n in 0..3000 {
            assert_eq!(tables.get(&name(n)).map(|entry| entry.1), Some(n));
            assert_eq!(tables.add(entry(&name(n), n)).1, n, "the first entry stays");
            assert_eq!(tables.by_id(TableId(n)).map(|entry| &*entry.0), Some(&*name(n)));
        }
        assert!(tables.by_id(TableId(3000)).is_none());
    }

    #[test]
    fn a_dropped_table_gives_way_to_later_ones_and_never_comes_back() {
        let tables = Tables::new();
        for id in 1..500 {
            assert_eq!(tables.add(entry("again", id)).1, id);
            let found = tables.get("again").unwrap();
            assert_eq!(found.1, id);
            found.2.store(1, Ordering::Relaxed);
            assert!(tables.get("again").is_none());
            assert_eq!(tables.add(entry("again", id)).2.load(Ordering::Relaxed), 1, "its creator comes late");
            assert!(tables.get("again").is_none());
            assert!(tables.all("again").map(|entry| entry.1).eq((1..=id).rev()), "the newest first");
        }
        assert_eq!(tables.all("never").count(), 0);
    }
}
