//! `foreshore put`: writes one row.

use super::database::{Database, Table};
use crate::exit::Failure;
use clap::Args;

/// Set the value of a key
///
/// The table must exist. The commit is durable when the program ends.
#[derive(Args)]
pub(crate) struct PutArguments {
    #[command(flatten)]
    database: Database,
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
    db.run(|tx| {
        let types = arguments.table.types(&tx.tables()?)?;
        let (key, value) = (types.read_key(&arguments.key)?, types.read_value(&arguments.value)?);
        Ok::<_, Failure>(tx.open_raw(arguments.table.name())?.put(&*key, &*value)?)
    })
}
