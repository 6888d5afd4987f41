//! `foreshore tables`: names and types.

use super::database::Database;
use crate::exit::Failure;
use crate::output::{Output, in_line};
use clap::Args;
use serde_json::json;

/// List the tables with their types
///
/// Prints a line for each table: its name, the type of its keys and the type of its values, separated by tabs.
#[derive(Args)]
pub(crate) struct TablesArguments {
    #[command(flatten)]
    database: Database,
    /// Print an object (schema/tables.json)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &TablesArguments) -> Result<(), Failure> {
    let tables = arguments.database.open()?.read().tables()?;
    let mut out = Output::new();
    if arguments.json {
        let table = |table: &foreshore::ListedTable| json!({ "name": table.name, "key_type": table.key_type, "value_type": table.value_type });
        out.json(&json!({ "tables": tables.iter().map(table).collect::<Vec<_>>() }))?;
    } else {
        for table in &tables {
            out.line(&[&table.name, &table.key_type, &table.value_type].map(|name| in_line(name)).join("\t"))?;
        }
    }
    out.end()
}
