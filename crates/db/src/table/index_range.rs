//! Iteration over the entries of an index, and over the rows that they lead to.

use super::codec::undecodable;
use super::index::Index;
use super::scan::{End, Scan};
use crate::Result;
use foreshore_base::key::{Key, Value};
use std::{fmt, iter::FusedIterator};

/// Iterator over index keys and primary keys, from either end or both. It ends after an error. [`ByIndex::keys`] makes
/// it.
///
/// [`ByIndex::keys`]: crate::ByIndex::keys
#[must_use = "iterators read nothing unless they are advanced"]
pub struct IndexEntries<'tx, K: Key, V: Value, I: Key> {
    index: Index<'tx, K, V, I>,
    scan: Scan<'tx>,
}

impl<'tx, K: Key + 'static, V: Value + 'static, I: Key + 'static> IndexEntries<'tx, K, V, I> {
    pub(super) const fn new(index: Index<'tx, K, V, I>, scan: Scan<'tx>) -> Self {
        Self { index, scan }
    }

    fn step(&mut self, end: End) -> Option<Result<(I::Owned, K::Owned)>> {
        let index = &self.index;
        let entry = self.scan.next_with(end, |entry, value| {
            let (key, primary) = index.split(entry, value)?;
            let undecodable = || undecodable(index.tree().table(), entry, "primary key");
            Ok((key, K::decode_key(primary).ok_or_else(undecodable)?))
        });
        entry.transpose()
    }
}

impl<K: Key + 'static, V: Value + 'static, I: Key + 'static> Iterator for IndexEntries<'_, K, V, I> {
    type Item = Result<(I::Owned, K::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(End::Front)
    }
}

impl<K: Key + 'static, V: Value + 'static, I: Key + 'static> DoubleEndedIterator for IndexEntries<'_, K, V, I> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(End::Back)
    }
}

impl<K: Key + 'static, V: Value + 'static, I: Key + 'static> FusedIterator for IndexEntries<'_, K, V, I> {}

impl<K: Key, V: Value, I: Key> fmt::Debug for IndexEntries<'_, K, V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexEntries").field("index", &self.index).finish_non_exhaustive()
    }
}

/// Iterator over rows by an index, from either end or both. It ends after an error.
/// [`ByIndex::range`](crate::ByIndex::range) makes it.
#[must_use = "iterators read nothing unless they are advanced"]
pub struct IndexRange<'tx, K: Key, V: Value, I: Key> {
    entries: IndexEntries<'tx, K, V, I>,
    is_over: bool,
}

impl<'tx, K: Key + 'static, V: Value + 'static, I: Key + 'static> IndexRange<'tx, K, V, I> {
    pub(super) const fn new(entries: IndexEntries<'tx, K, V, I>) -> Self {
        Self { entries, is_over: false }
    }

    fn next_row(&mut self, end: End) -> Result<Option<(K::Owned, V::Owned)>> {
        let IndexEntries { index, scan } = &mut self.entries;
        while let Some(row) = scan.next_live(end, |live, entry, value| {
            let (_, primary) = index.split(entry, value)?;
            index.row_of(live, entry, primary)
        })? {
            if row.is_some() {
                return Ok(row);
            }
        }
        Ok(None)
    }

    fn step(&mut self, end: End) -> Option<Result<(K::Owned, V::Owned)>> {
        if self.is_over {
            return None;
        }
        let row = self.next_row(end);
        self.is_over = !matches!(row, Ok(Some(_)));
        row.transpose()
    }
}

impl<K: Key + 'static, V: Value + 'static, I: Key + 'static> Iterator for IndexRange<'_, K, V, I> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(End::Front)
    }
}

impl<K: Key + 'static, V: Value + 'static, I: Key + 'static> DoubleEndedIterator for IndexRange<'_, K, V, I> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(End::Back)
    }
}

impl<K: Key + 'static, V: Value + 'static, I: Key + 'static> FusedIterator for IndexRange<'_, K, V, I> {}

impl<K: Key, V: Value, I: Key> fmt::Debug for IndexRange<'_, K, V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexRange").field("index", &self.entries.index).finish_non_exhaustive()
    }
}
