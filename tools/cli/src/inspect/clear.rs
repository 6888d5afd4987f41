//! `foreshore clear`: removes all rows of a table.

use super::database::Database;
use crate::exit::Failure;
use clap::Args;
use foreshore::{Error, Transaction};

/// Remove all rows of a table, whatever their number
///
/// The table stays, with its types, its indexes and the numbers for new rows. Its damaged pages are not read. The
/// commit is durable when the program ends.
#[derive(Args)]
pub(crate) struct ClearArguments {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    clear: Clear,
}

/// The table.
#[derive(Args)]
pub(crate) struct Clear {
    /// Name of the table
    table: String,
}

pub(crate) fn run(arguments: &ClearArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    db.run(|tx| arguments.clear.run(tx))
}

impl Clear {
    pub(crate) fn run(&self, tx: &Transaction) -> Result<(), Failure> {
        let is_there = tx.clear_table(&self.table)?;
        if is_there { Ok(()) } else { Err(Error::NoTable { name: self.table.clone() }.into()) }
    }
}
