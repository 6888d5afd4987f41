//! The tables that are known to be committed, found without a lock.

use foreshore_base::Csn;
use foreshore_btree::Tree;
use foreshore_sync::{LockRank, Mutex};
use std::{
    any::TypeId,
    hash::{BuildHasher, RandomState},
    sync::OnceLock,
};

/// A table of the catalogue.
#[derive(Debug)]
pub(crate) struct TableInfo {
    pub(crate) name: Box<str>,
    pub(crate) tree: Tree,
    pub(crate) key_type: Box<str>,
    pub(crate) value_type: Box<str>,
    /// The commit that created it. Who uses the table rests on that commit.
    pub(crate) created: Csn,
    /// The types that were found equal to the stored ones first, so that opening need not compare text.
    checked: OnceLock<(TypeId, TypeId)>,
}

impl TableInfo {
    pub(crate) fn new(name: &str, tree: Tree, key_type: String, value_type: String, created: Csn) -> Self {
        Self {
            name: name.into(),
            tree,
            key_type: key_type.into(),
            value_type: value_type.into(),
            created,
            checked: OnceLock::new(),
        }
    }

    /// Whether types with these ids have been found to fit.
    pub(crate) fn fits(&self, types: (TypeId, TypeId)) -> bool {
        self.checked.get() == Some(&types)
    }

    pub(crate) fn remember_fit(&self, types: (TypeId, TypeId)) {
        // Other types that fit as well are compared as text each time.
        let _ = self.checked.set(types);
    }
}

/// What a [`Tables`] holds.
pub(crate) trait Named {
    /// The name it is found by.
    fn name(&self) -> &str;
}

impl Named for TableInfo {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Slots of the first level; each next level has four times as many.
const FIRST: usize = 64;
/// Slots that a name may lie in, per level.
const PROBES: usize = 8;
/// Levels: more than there can be table ids.
const LEVELS: usize = 16;

/// Name to table. Entries are only ever added, since a committed table stays: a reader follows set-once cells and writes
/// nothing, so that opening a table costs no contended memory access.
pub(crate) struct Tables<T> {
    hasher: RandomState,
    levels: [OnceLock<Box<[OnceLock<T>]>>; LEVELS],
    writer: Mutex<()>,
}

impl<T: Named> Tables<T> {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            levels: [const { OnceLock::new() }; LEVELS],
            writer: Mutex::new(LockRank::Catalogue, ()),
        }
    }

    /// The table with that name, if it is known.
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        let hash = self.hasher.hash_one(name);
        for level in &self.levels {
            for slot in probe(level.get()?, hash) {
                // An empty slot ends the search: entries go to the first free one and never leave.
                let info = slot.get()?;
                if info.name() == name {
                    return Some(info);
                }
            }
        }
        None
    }

    /// Adds a table unless it is there, and returns the one that is.
    pub(crate) fn add(&self, info: T) -> &T {
        let _writer = self.writer.lock();
        let hash = self.hasher.hash_one(info.name());
        for (depth, level) in self.levels.iter().enumerate() {
            let slots = level.get_or_init(|| (0..FIRST << (2 * depth)).map(|_| OnceLock::new()).collect());
            for slot in probe(slots, hash) {
                match slot.get() {
                    Some(known) if known.name() == info.name() => return known,
                    Some(_) => {}
                    None => return slot.get_or_init(|| info),
                }
            }
        }
        unreachable!("sixteen levels hold more tables than there are ids")
    }
}

fn probe<T>(slots: &[OnceLock<T>], hash: u64) -> impl Iterator<Item = &OnceLock<T>> {
    let mask = slots.len() - 1;
    (0..PROBES).map(move |i| &slots[(hash as usize).wrapping_add(i) & mask])
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Entry(String, u32);

    impl Named for Entry {
        fn name(&self) -> &str {
            &self.0
        }
    }

    #[test]
    fn thousands_of_tables_are_each_found_once() {
        let tables = Tables::new();
        let name = |n: u32| format!("table {n}");
        for n in 0..3000 {
            assert!(tables.get(&name(n)).is_none());
            assert_eq!(tables.add(Entry(name(n), n)).1, n);
        }
        for n in 0..3000 {
            assert_eq!(tables.get(&name(n)).map(|entry| entry.1), Some(n));
            assert_eq!(tables.add(Entry(name(n), 9999)).1, n, "the first entry stays");
        }
    }
}
