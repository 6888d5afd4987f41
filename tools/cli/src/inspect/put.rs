//! `foreshore put`: writes one row.

use super::database::{Database, Table};
use crate::exit::Failure;
use clap::Args;
use foreshore::Transaction;

/// Set the value of a key
///
/// The table must exist. The commit is durable when the program ends.
#[derive(Args)]
pub(crate) struct PutArguments {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    put: Put,
}

/// The row.
#[derive(Args)]
pub(crate) struct Put {
    #[command(flatten)]
    table: Table,
    /// The key: a word, or JSON for options and tuples
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// The value, written as a key is
    #[arg(allow_negative_numbers = true)]
    value: String,
}

pub(crate) fn run(arguments: &PutArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    db.run(|tx| arguments.put.run(tx))
}

impl Put {
    pub(crate) fn run(&self, tx: &Transaction) -> Result<(), Failure> {
        let types = self.table.types(&tx.tables()?)?;
        let (key, value) = (types.read_key(&self.key)?, types.read_value(&self.value)?);
        Ok(tx.open_raw(self.table.name())?.put(&*key, &*value)?)
    }
}
