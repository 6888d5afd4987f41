//! A read transaction that threads use one after another.

use super::ReadTable;
use crate::{CommitTicket, ListedTable, Result, TableDef, Transaction};
use foreshore_base::key::{Key, Value};

/// A read transaction that moves between threads together with its tables and scans, as the bindings for other
/// languages need it. Its methods are those of [`ReadTransaction`](crate::ReadTransaction).
#[doc(hidden)]
#[derive(Debug)]
pub struct SingleReader(pub(super) Transaction);

#[doc(hidden)]
#[allow(missing_docs, clippy::missing_errors_doc, reason = "see the type")]
impl SingleReader {
    #[doc(hidden)]
    pub fn open<K: Key + 'static, V: Value + 'static>(&self, def: TableDef<'_, K, V>) -> Result<ReadTable<'_, K, V>> {
        self.0.open_known(def).map(|table| ReadTable { table })
    }

    #[doc(hidden)]
    pub fn open_raw(&self, name: &str) -> Result<ReadTable<'_, &'static [u8], &'static [u8]>> {
        self.0.open_known_raw(name).map(|table| ReadTable { table })
    }

    #[doc(hidden)]
    pub fn tables(&self) -> Result<Vec<ListedTable>> {
        self.0.tables()
    }

    #[doc(hidden)]
    pub fn finish(self) -> Result<CommitTicket> {
        self.0.commit_pipelined()
    }
}
