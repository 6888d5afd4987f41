//! A table as a transaction has opened it.

use crate::index_state::IndexState;
use crate::tables::TableInfo;
use foreshore_btree::Tree;
use std::ops::Deref;
use std::sync::Arc;

/// The tree of an open table: one that all transactions may see, or one that only its creator knows.
#[derive(Clone, Debug)]
pub(crate) enum TreeRef<'e> {
    Known(&'e TableInfo),
    Created { tree: Tree, name: Arc<str>, indexes: Arc<IndexState> },
}

impl TreeRef<'_> {
    /// The tree of a table that the transaction has created.
    pub(super) fn created(info: &TableInfo) -> Self {
        let (tree, name, indexes) = (info.tree.clone(), Arc::clone(&info.name), Arc::clone(&info.indexes));
        Self::Created { tree, name, indexes }
    }

    /// Returns the state of the indexes of the table.
    #[inline]
    pub(crate) fn indexes(&self) -> &Arc<IndexState> {
        match self {
            Self::Known(info) => &info.indexes,
            Self::Created { indexes, .. } => indexes,
        }
    }

    /// Returns the key of the table in the catalogue.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Known(info) => &info.name,
            Self::Created { name, .. } => name,
        }
    }
}

impl Deref for TreeRef<'_> {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        match self {
            Self::Known(info) => &info.tree,
            Self::Created { tree, .. } => tree,
        }
    }
}
