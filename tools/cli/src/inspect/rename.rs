//! `foreshore rename`: gives a table another name.

use super::database::Database;
use crate::exit::Failure;
use clap::Args;
use foreshore::{Error, Transaction};

/// Give a table another name
///
/// Its rows, its indexes and the numbers for new rows stay with it. No table may have the new name. The commit is
/// durable when the program ends.
#[derive(Args)]
pub(crate) struct RenameArguments {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    rename: Rename,
}

/// The names.
#[derive(Args)]
pub(crate) struct Rename {
    /// Name of the table
    table: String,
    /// The new name
    new_name: String,
}

pub(crate) fn run(arguments: &RenameArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    db.run(|tx| arguments.rename.run(tx))
}

impl Rename {
    pub(crate) fn run(&self, tx: &Transaction) -> Result<(), Failure> {
        let is_there = tx.rename_table(&self.table, &self.new_name)?;
        if is_there { Ok(()) } else { Err(Error::NoTable { name: self.table.clone() }.into()) }
    }
}
