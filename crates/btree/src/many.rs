//! Lookups of many keys at once, whose waits for memory overlap.
//!
//! A lookup in a large table mostly waits for cache lines of its leaf. Keys that are read by a snapshot are looked up
//! [`AT_ONCE`]. All of these pass one stage before the next one begins:
//!
//! 1. The descent to the leaf. The pool prefetches the lines of its slots.
//! 2. The search among the heads of its keys. The lines of the row that it leads to are prefetched.
//! 3. The comparison of the key, the copy of the value, the validation of the leaf.
//!
//! A key that meets anything unusual is looked up alone. Its page may be out of memory, or have changed.
//!
//! **Invariant:** the version of a leaf is noted before its parent is validated. What is read in the leaf counts only
//! if that version holds after stage 3. So each row is read as [`Tree::get_at`] reads it.
//!
//! Sources: group prefetching is by Chen, Ailamaki, Gibbons and Mowry, "Improving Hash Join Performance through
//! Prefetching" (ICDE 2004). Psaropoulos, Legler, May and Ailamaki apply it to indexes, "Interleaving with Coroutines"
//! (VLDB 2017).

use crate::access::{Access, ReadGuard, Reading};
use crate::descend::Halt;
use crate::format::{GHOST, OVERFLOW};
use crate::node::Goal;
use crate::tree::Tree;
use foreshore_base::Result;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_txn::{Seen, Snapshot, Txn, UndoPtr};
use std::ops::Range;

/// Keys that are looked up at once: enough to fill the processor's queue of cache misses, and few enough for its
/// first-level cache.
const AT_ONCE: usize = if MODEL { 2 } else { 16 };

/// Keys to look up, and the values found. The next batch reuses its memory.
#[derive(Debug, Default)]
pub struct Batch {
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    values: Vec<u8>,
    /// The range of each value in `values`; `None` if the key does not exist.
    found: Vec<Option<Range<usize>>>,
}

impl Batch {
    /// Empties the batch, and makes space for `count` keys.
    pub fn clear(&mut self, count: usize) {
        self.keys.clear();
        self.key_ends.clear();
        self.values.clear();
        self.found.clear();
        self.key_ends.reserve(count);
        self.found.reserve(count);
    }

    /// Empties the batch, and frees memory beyond `bytes` of each of its parts.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.clear(0);
        self.keys.shrink_to(bytes);
        self.values.shrink_to(bytes);
        self.key_ends.shrink_to(bytes / size_of::<usize>());
        self.found.shrink_to(bytes / size_of::<Option<Range<usize>>>());
    }

    /// Adds the key that `encode` appends.
    pub fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        assert!(self.found.is_empty(), "a key is added to a batch that was looked up");
        encode(&mut self.keys);
        self.key_ends.push(self.keys.len());
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.key_ends.len()
    }

    /// Returns whether the batch has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.key_ends.is_empty()
    }

    /// Returns key `index`.
    #[must_use]
    pub fn key(&self, index: usize) -> &[u8] {
        key(&self.keys, &self.key_ends, index)
    }

    /// Returns the value of key `index`, after a lookup; `None` if the key does not exist.
    #[must_use]
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        self.found[index].clone().map(|range| &self.values[range])
    }
}

fn key<'k>(keys: &'k [u8], ends: &[usize], index: usize) -> &'k [u8] {
    let start = index.checked_sub(1).map_or(0, |before| ends[before]);
    &keys[start..ends[index]]
}

/// A key being looked up: its leaf, and the entry that the search among heads leads to.
struct Lookup<'p> {
    leaf: ReadGuard<'p>,
    hint: usize,
}

impl Tree {
    /// Looks up all keys of `batch` as [`get`](Self::get) does: by one snapshot, or each under its lock, in order.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_many(&self, txn: &mut Txn, batch: &mut Batch) -> Result<()> {
        batch.values.clear();
        batch.found.clear();
        (0..batch.len()).try_for_each(|index| self.check_key(batch.key(index)))?;
        let Some(snapshot) = txn.reads_at()? else {
            let mut value = Vec::new();
            return (0..batch.len()).try_for_each(|index| {
                let is_there = self.get_newest(txn, batch.key(index), &mut value)?;
                batch.add(is_there.then_some(&value));
                Ok(())
            });
        };
        let found = self.get_many_at(txn, &snapshot, batch);
        txn.end_reads_at(snapshot);
        found
    }

    fn get_many_at(&self, txn: &mut Txn, snapshot: &Snapshot, batch: &mut Batch) -> Result<()> {
        let _operation = self.begin_read(txn, snapshot)?;
        txn.forget_fetched();
        let firsts = (0..batch.len()).step_by(AT_ONCE);
        let mut looked_up = firsts.map(|first| self.read_together(txn, snapshot, batch, first));
        looked_up.try_for_each(|done| done).map_err(|error| self.judge(txn, snapshot, error))
    }

    /// Looks up the keys from `first` on.
    fn read_together(&self, txn: &mut Txn, snapshot: &Snapshot, batch: &mut Batch, first: usize) -> Result<()> {
        let count = AT_ONCE.min(batch.len() - first);
        let mut lookups: [Option<Lookup<'_>>; AT_ONCE] = [const { None }; AT_ONCE];
        for (at, lookup) in lookups[..count].iter_mut().enumerate() {
            // An error is reported by the lookup of that key alone.
            *lookup = self.leaf_ahead(batch.key(first + at)).ok().map(|leaf| Lookup { leaf, hint: 0 });
        }
        for (at, lookup) in lookups[..count].iter_mut().enumerate() {
            let searched = lookup.take().map(|Lookup { leaf, .. }| self.search_ahead(leaf, batch.key(first + at)));
            *lookup = searched.and_then(std::result::Result::ok);
        }
        let mut image = Vec::new();
        for (at, lookup) in lookups.into_iter().take(count).enumerate() {
            if let Some(lookup) = lookup
                && self.finish_lookup(txn, snapshot, &lookup, (batch, first + at), &mut image)?
            {
                continue;
            }
            let is_there = self.read_at(txn, snapshot, batch.key(first + at), &mut image)?;
            batch.add(is_there.then_some(&image));
        }
        assert_eq!(batch.found.len(), first + count, "each key has one answer");
        Ok(())
    }

    /// Finds the leaf of `key` from its parent, and prefetches the first lines of the leaf.
    fn leaf_ahead(&self, key: &[u8]) -> Result<ReadGuard<'_>, Halt> {
        let goal = Goal::At(key);
        let mut current: ReadGuard<'_> = ReadGuard::fix(self.pool(), self.root(), Reading::Optimistic)?;
        let levels = self.sound(&current, self.node(&current)?.root_level())?;
        for below in (1..levels).rev() {
            current = self.step_down(current, goal, below, false, Reading::Optimistic)?;
        }
        if levels == 0 {
            return Ok(current);
        }
        self.step_to_child(current, goal, 0, Reading::Optimistic)
    }

    /// Searches the heads in a leaf, or in its sibling if the leaf has an open split, and prefetches the row.
    fn search_ahead<'p>(&'p self, leaf: ReadGuard<'p>, key: &[u8]) -> Result<Lookup<'p>, Halt> {
        let leaf = self.move_right(leaf, Goal::At(key), 0, false, Reading::Optimistic)?;
        let node = self.node(&leaf)?;
        let hint = node.search_heads(key);
        let tuple = self.sound(&leaf, node.tuple_ahead(hint))?;
        leaf.page().prefetch(tuple);
        Ok(Lookup { leaf, hint })
    }

    /// Copies the row of key `index` from its leaf. Returns `false` if the key has to be looked up alone.
    fn finish_lookup(
        &self,
        txn: &mut Txn,
        snapshot: &Snapshot,
        Lookup { leaf, hint }: &Lookup<'_>,
        (batch, index): (&mut Batch, usize),
        image: &mut Vec<u8>,
    ) -> Result<bool> {
        let Ok(node) = self.node(leaf) else { return Ok(false) };
        let Ok(at) = node.search_from(batch.key(index), *hint) else { return Ok(false) };
        let start = batch.values.len();
        let seen = match at {
            Err(_) => Seen::Nothing,
            Ok(at) => {
                let Ok(row) = node.place(at) else { return Ok(false) };
                let (xid, undo) = (row.header.xid, UndoPtr::from_bits(row.header.undo));
                match txn.see(snapshot, xid, undo, image, || leaf.holds()) {
                    Seen::Newest if row.header.is_ghost() => Seen::Nothing,
                    Seen::Newest if row.header.flags & OVERFLOW != 0 => return Ok(false),
                    Seen::Newest => {
                        node.append_to(row.value, &mut batch.values);
                        Seen::Newest
                    }
                    seen => seen,
                }
            }
        };
        if !leaf.holds() && !mutant("btree: the rows of a batch are not validated") {
            batch.values.truncate(start);
            return Ok(false);
        }
        txn.check_snapshot(snapshot)?;
        match seen {
            Seen::Newest => batch.found.push(Some(start..batch.values.len())),
            Seen::Older(flags) if flags & (GHOST | OVERFLOW) == OVERFLOW => return Ok(false),
            Seen::Older(flags) => batch.add((flags & GHOST == 0).then_some(image)),
            Seen::Nothing => batch.found.push(None),
            Seen::Spilled | Seen::Unfinished | Seen::Earlier(_) | Seen::Lost => return Ok(false),
        }
        Ok(true)
    }
}

impl Batch {
    /// Adds the result for the next key.
    fn add(&mut self, value: Option<&Vec<u8>>) {
        assert!(self.found.len() < self.key_ends.len(), "{} answers for fewer keys", self.found.len() + 1);
        let start = self.values.len();
        self.found.push(value.map(|value| {
            self.values.extend_from_slice(value);
            start..self.values.len()
        }));
    }
}
