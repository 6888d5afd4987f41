//! `foreshore clear`: removes all rows of a table.

use super::database::Database;
use crate::exit::Failure;
use clap::Args;
use foreshore::Error;

/// Remove all rows of a table, whatever their number
///
/// The table stays, with its types, its indexes and the numbers for new rows. Its damaged pages are not read. The
/// commit is durable when the program ends.
#[derive(Args)]
pub(crate) struct ClearArguments {
    #[command(flatten)]
    database: Database,
    /// Name of the table
    table: String,
}

pub(crate) fn run(arguments: &ClearArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    db.run(|tx| {
        let is_there = tx.clear_table(&arguments.table)?;
        if is_there { Ok(()) } else { Err(Error::NoTable { name: arguments.table.clone() }.into()) }
    })
}
