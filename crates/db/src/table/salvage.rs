//! A scan that skips damaged pages.
//!
//! Each leaf is scanned by itself, up to the key at which the next leaf begins according to the inner nodes. So a leaf
//! whose own fence is wrong hides no other leaf. An error of the cursor that names a page has one of two causes:
//!
//! 1. *A large value.* The leaf of its row is sound, so the key can be read. Only the value is lost.
//! 2. *The leaf, or a node above it.* Its keys are lost, up to the key at which the next leaf or subtree begins.
//!
//! In a database that is only read, no leaf changes its place. There the leaves below a damaged inner node are found by
//! a read of all pages ([`Tree::next_leaf`]), unless their map was damaged, too. If a page was quarantined this is not
//! done: a restart may have skipped the undo of changes to leaves below it. These look committed.

use super::Table;
use crate::live::Live;
use crate::{Result, Transaction};
use foreshore_base::key::{Key, Value};
use foreshore_base::{Error as Storage, PageId};
use foreshore_btree::{Cursor, Tree};
use foreshore_txn::Txn;
use std::{fmt, iter::FusedIterator, ops::Bound};

/// What is wrong with a leaf whose keys do not ascend, or are not those of its parent.
const OUT_OF_ORDER: &str = "keys of a leaf are out of order";

/// Rows of a table with damaged pages, and what is missing between them. [`ReadTable::salvage`] makes it.
///
/// It ends after an error.
///
/// [`ReadTable::salvage`]: crate::ReadTable::salvage
#[must_use = "iterators read nothing unless they are advanced"]
pub struct Salvage<'tx> {
    tx: &'tx Transaction,
    scan: Scan,
}

/// An item of [`Salvage`]. Keys and values are encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Salvaged {
    /// A row.
    Row {
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// A row whose large value cannot be read.
    LostValue {
        /// Its key.
        key: Vec<u8>,
        /// The damaged page.
        page: PageId,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Keys whose rows, if there are any, cannot be read.
    LostKeys {
        /// The smallest key, which may be that of no row.
        from: Vec<u8>,
        /// The key before which they end; `None` if they reach the end of the table.
        to: Option<Vec<u8>>,
        /// The damaged page; the root of the table, if keys of a leaf are out of order.
        page: PageId,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// A key and its value, encoded.
type Row = (Vec<u8>, Vec<u8>);

/// State of the scan.
struct Scan {
    tree: Tree,
    /// The smallest key that has not been passed.
    from: Vec<u8>,
    /// The scan of the leaf of `from`.
    cursor: Option<Box<Cursor>>,
    /// Where the next leaf begins, or the next subtree if the path to this leaf is damaged.
    to: Option<Vec<u8>>,
    /// Whether leaves below damaged inner nodes are read.
    passes_damage: bool,
    is_over: bool,
}

impl<'tx, K: Key, V: Value> Table<'tx, K, V> {
    /// Begins a scan that skips damaged pages.
    pub(crate) fn salvage(&self) -> Salvage<'tx> {
        let tree = Tree::clone(&self.tree);
        let scan = Scan { tree, from: Vec::new(), cursor: None, to: None, passes_damage: false, is_over: false };
        Salvage { tx: self.tx, scan }
    }
}

impl Iterator for Salvage<'_> {
    type Item = Result<Salvaged>;

    fn next(&mut self) -> Option<Self::Item> {
        let scan = &mut self.scan;
        // Damage is no error of the operation, so the transaction goes on.
        let item = self.tx.with(|engine, Live { txn, .. }| {
            scan.passes_damage = engine.catalogue.passes_damage();
            Ok(scan.next(txn)?)
        });
        self.scan.is_over |= !matches!(item, Ok(Some(_)));
        item.transpose()
    }
}

impl FusedIterator for Salvage<'_> {}

impl Scan {
    fn next(&mut self, txn: &mut Txn) -> Result<Option<Salvaged>, Storage> {
        while !self.is_over {
            let (page, why) = match self.row(txn) {
                Ok(Some((key, value))) if self.covers(&key) => {
                    self.set_passed(&key);
                    return Ok(Some(Salvaged::Row { key, value }));
                }
                Ok(Some(_)) => {
                    // The rest of the leaf is not trusted, so no further key of it is read.
                    self.cursor = None;
                    (self.tree.root(), OUT_OF_ORDER)
                }
                Ok(None) => {
                    self.pass();
                    continue;
                }
                Err(error) => damage(error)?,
            };
            if let Some(key) = self.key_at_hand(txn)? {
                return Ok(Some(Salvaged::LostValue { key, page, why }));
            }
            let (from, to) = (self.from.clone(), self.to.clone());
            self.pass();
            return Ok(Some(Salvaged::LostKeys { from, to, page, why }));
        }
        Ok(None)
    }

    /// Returns the next row of the leaf.
    fn row(&mut self, txn: &mut Txn) -> Result<Option<Row>, Storage> {
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            none => {
                self.to = match self.passes_damage {
                    true => self.tree.next_leaf(&self.from)?,
                    false => self.tree.next_after_damage(&self.from)?,
                };
                let upper = self.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                none.insert(Box::new(self.tree.range(txn, Bound::Included(&self.from), upper)?))
            }
        };
        let row = cursor.next(txn)?;
        Ok(row.map(|(key, value)| (key.to_vec(), value.to_vec())))
    }

    /// Returns whether a row of this key may come next in the leaf.
    fn covers(&self, key: &[u8]) -> bool {
        self.from[..] <= *key && self.to.as_deref().is_none_or(|to| key < to)
    }

    /// Notes that a row was returned.
    fn set_passed(&mut self, key: &[u8]) {
        self.from.clear();
        self.from.extend_from_slice(key);
        self.from.push(0);
    }

    /// Returns the key of the next row, after its value could not be read, and passes it.
    fn key_at_hand(&mut self, txn: &mut Txn) -> Result<Option<Vec<u8>>, Storage> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        match cursor.next_key(txn) {
            Ok(None) => Ok(None),
            Ok(Some(key)) => {
                let key = key.to_vec();
                self.set_passed(&key);
                Ok(Some(key))
            }
            Err(error) => damage(error).map(|_| None),
        }
    }

    /// Goes on behind the leaf.
    fn pass(&mut self) {
        self.cursor = None;
        match self.to.take() {
            Some(to) => self.from = to,
            None => self.is_over = true,
        }
    }
}

/// Returns the page that an error names, and what is wrong with it; any other error is returned.
fn damage(error: Storage) -> Result<(PageId, &'static str), Storage> {
    match (error.damaged_page(), &error) {
        (Some(page), Storage::Corrupted { why, .. }) => Ok((page, why)),
        _ => Err(error),
    }
}

impl fmt::Debug for Salvage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salvage").field("is_over", &self.scan.is_over).finish_non_exhaustive()
    }
}
