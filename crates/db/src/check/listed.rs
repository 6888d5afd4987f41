//! The tables of a check.

use crate::engine::Engine;
use crate::format::TableRow;
use crate::live::Live;
use foreshore_base::TableId;
use foreshore_btree::Tree;
use foreshore_lock::TableMode;
use std::collections::{HashMap, HashSet};

/// A table as the catalogue listed it.
#[derive(Clone)]
pub(super) enum Known {
    Live(Tree),
    /// Its pages are being freed, and no transaction reads those that are left.
    Dropped(Tree),
}

/// The tables of the catalogue.
pub(super) struct Listed {
    pub(super) tables: HashMap<TableId, Known>,
    /// Those among them that are indexes.
    pub(super) indexes: HashSet<TableId>,
    /// Largest id drawn when the list was read. Tables with larger ids were created later.
    pub(super) last: TableId,
    /// Whether damage hides further tables.
    pub(super) is_partial: bool,
}

/// Returns the tables, and the damage that hides others.
pub(super) fn list(engine: &Engine, live: &mut Live) -> crate::Result<(Listed, Vec<crate::Error>)> {
    // When the lock is granted, each transaction that created or dropped a table has committed or was rolled back.
    live.txn.lock_table(engine.catalogue.table(), TableMode::Shared)?;
    let created = live.txn.observed();
    let (mut tables, mut indexes, mut hidden) = (HashMap::new(), HashSet::new(), Vec::new());
    let learn = |name: Option<&str>, row: TableRow| {
        let id = row.table;
        if row.index.is_some() {
            indexes.insert(id);
        }
        let known = match name {
            None => Known::Dropped(engine.catalogue.trees().tree(id, row.root)),
            // This tree learns of a drop of the table. The creator of the table may not have published it yet.
            Some(name) => Known::Live(engine.catalogue.learn(name, row, created)),
        };
        tables.insert(id, known);
    };
    engine.catalogue.each_row(&mut live.txn, learn, |error| hidden.push(error))?;
    let last = engine.catalogue.last_drawn();
    Ok((Listed { tables, indexes, last, is_partial: !hidden.is_empty() }, hidden))
}
