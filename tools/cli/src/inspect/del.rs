//! `foreshore del`: removes one row.

use super::database::{Database, Table};
use crate::exit::Failure;
use clap::Args;
use foreshore::Transaction;
use serde_json::Value as Json;

/// Remove the row of a key
///
/// The commit is durable when the program ends. Exit status 1 if there is no such row.
#[derive(Args)]
pub(crate) struct DelArguments {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    del: Del,
}

/// The row.
#[derive(Args)]
pub(crate) struct Del {
    #[command(flatten)]
    table: Table,
    /// The key: a word, or JSON for options and tuples
    #[arg(allow_negative_numbers = true)]
    key: String,
}

pub(crate) fn run(arguments: &DelArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    let absent = db.run(|tx| arguments.del.run(tx))?;
    arguments.del.report(absent)
}

impl Del {
    /// Removes the row. Returns the key if there is no such row.
    pub(crate) fn run(&self, tx: &Transaction) -> Result<Option<Json>, Failure> {
        let types = self.table.types(&tx.tables()?)?;
        let key = types.read_key(&self.key)?;
        let is_there = tx.open_raw(self.table.name())?.remove(&*key)?.is_some();
        Ok((!is_there).then(|| types.key(&key)))
    }

    /// Says that there was no row of the key `absent`.
    pub(crate) fn report(&self, absent: Option<Json>) -> Result<(), Failure> {
        let Some(key) = absent else { return Ok(()) };
        eprintln!("table {:?} has no row of key {key}", self.table.name());
        Err(Failure::No)
    }
}
