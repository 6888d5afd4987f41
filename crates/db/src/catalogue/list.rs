//! All tables of the catalogue, in the order of their names.

use super::{Catalogue, decode};
use crate::format::{IndexRow, TableRow, dropped_key, split_index_key};
use crate::live::Live;
use crate::{Error, Result};
use foreshore_base::{Error as Storage, Place, TableId};
use foreshore_txn::Txn;
use std::collections::HashSet;
use std::ops::Bound;
use std::path::Path;

/// A table of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedTable {
    /// Its name.
    pub name: String,
    /// The name of its key type.
    pub key_type: String,
    /// The name of its value type.
    pub value_type: String,
    /// Its indexes, by name.
    pub indexes: Vec<ListedIndex>,
}

/// An index of a table of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedIndex {
    /// Its name.
    pub name: String,
    /// The name of the type of the index keys.
    pub key_type: String,
    /// Whether no two rows have the same key.
    pub is_unique: bool,
    /// The version of the key function that it was built with.
    pub version: u64,
}

impl Catalogue {
    /// Returns the tables that the transaction sees, by name.
    pub(crate) fn list(&self, live: &mut Live) -> Result<Vec<ListedTable>> {
        let (tables, damage) = self.list_readable(live)?;
        damage.into_iter().next().map_or(Ok(tables), Err)
    }

    /// Returns those of the tables that no damaged page hides, and the error of each such page.
    pub(crate) fn list_readable(&self, live: &mut Live) -> Result<(Vec<ListedTable>, Vec<Error>)> {
        let (mut tables, mut damage) = (Vec::<ListedTable>::new(), Vec::new());
        let learn = |name: Option<&str>, TableRow { key_type, value_type, index, .. }: TableRow| {
            let Some(name) = name else { return };
            let (Some((table, name)), Some(IndexRow { version, is_unique, .. })) = (split_index_key(name), index)
            else {
                tables.push(ListedTable { name: name.to_owned(), key_type, value_type, indexes: Vec::new() });
                return;
            };
            // The indexes of a table follow it, unless damage hides it.
            if let Some(listed) = tables.last_mut().filter(|listed| listed.name == table) {
                listed.indexes.push(ListedIndex { name: name.to_owned(), key_type, is_unique, version });
            }
        };
        self.each_row(&mut live.txn, learn, |error| {
            // The leaf before a damaged one ends in the same error.
            if damage.iter().all(|known: &Error| known.damaged_page() != error.damaged_page()) {
                damage.push(error);
            }
        })?;
        Ok((tables, damage))
    }

    /// Calls `learn` for each catalogue row that `txn` sees, and `damage` for each `Corrupted` that hides others. A
    /// dropped table has no name. No table id comes twice: a dropped table must free no page of another one.
    ///
    /// A damaged inner node hides no row if [`Catalogue::passes_damage`]: the leaves are found without it.
    pub(crate) fn each_row(
        &self,
        txn: &mut Txn,
        mut learn: impl FnMut(Option<&str>, TableRow),
        mut damage: impl FnMut(Error),
    ) -> Result<()> {
        let (mut tree, mut from, mut ids) = (self.tree.clone(), Vec::new(), HashSet::new());
        loop {
            let mut cursor = tree.range(txn, Bound::Included(&from), Bound::Unbounded)?;
            let error = loop {
                match cursor.next(txn) {
                    Ok(Some((key, value))) => {
                        let (name, row) = sound_row(&self.data, key, value, &mut ids)?;
                        learn(name, row);
                        // The smallest key above.
                        from.clear();
                        from.extend_from_slice(key);
                        from.push(0);
                    }
                    Ok(None) => return Ok(()),
                    Err(error) => break error,
                }
            };
            if error.damaged_page().is_none() {
                return Err(error.into());
            }
            let next = match self.passes_damage {
                true => tree.next_leaf_after_damage(&from)?,
                false => tree.separator_after_damage(&from)?,
            };
            if next.as_ref() != Some(&from) {
                damage(error.into());
            }
            match next {
                Some(key) => from = key,
                None => return Ok(()),
            }
        }
    }
}

/// Decodes a catalogue row and checks it against its key and the ids of earlier rows. Returns the name of the table,
/// `None` for a dropped one.
fn sound_row<'k>(
    data: &Path,
    key: &'k [u8],
    row: &[u8],
    ids: &mut HashSet<TableId>,
) -> Result<(Option<&'k str>, TableRow), Storage> {
    let row = decode(data, row)?;
    let damage = |why| Storage::corrupted(data, Place::File, why);
    if !ids.insert(row.table) {
        return Err(damage("two rows of the catalogue have one table"));
    }
    if !row.is_dropped {
        let name = std::str::from_utf8(key).map_err(|_| damage("a name in the catalogue is not UTF-8"))?;
        if split_index_key(name).is_some() != row.index.is_some() {
            return Err(damage("the name of a row of the catalogue is not that of a table or index"));
        }
        return Ok((Some(name), row));
    }
    if *key != dropped_key(row.table) {
        return Err(damage("a dropped table has a name in the catalogue"));
    }
    Ok((None, row))
}
