//! `foreshore del`: removes one row.

use super::database::{Database, Table};
use crate::exit::Failure;
use clap::Args;

/// Remove the row of a key
///
/// The commit is durable when the program ends. Exit status 1 if there is no such row.
#[derive(Args)]
pub(crate) struct DelArguments {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    table: Table,
    /// The key: a word, or JSON for options and tuples
    #[arg(allow_negative_numbers = true)]
    key: String,
}

pub(crate) fn run(arguments: &DelArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    let name = arguments.table.name();
    let absent = db.run(|tx| {
        let types = arguments.table.types(&tx.tables()?)?;
        let key = types.read_key(&arguments.key)?;
        let is_there = tx.open_raw(name)?.remove(&*key)?.is_some();
        Ok::<_, Failure>((!is_there).then(|| types.key(&key)))
    })?;
    let Some(key) = absent else { return Ok(()) };
    eprintln!("table {name:?} has no row of key {key}");
    Err(Failure::No)
}
