//! `foreshore tables`: names and types.

use super::database::Database;
use super::reader::Reader;
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
    #[command(flatten)]
    tables: Tables,
}

/// How tables are printed.
#[derive(Args)]
pub(crate) struct Tables {
    /// Print an object (schema/tables.json)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &TablesArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    arguments.tables.run(&db.read())
}

impl Tables {
    pub(crate) fn run(&self, from: &impl Reader) -> Result<(), Failure> {
        let tables = from.tables()?;
        let mut out = Output::new();
        if self.json {
            let table = |table: &foreshore::ListedTable| json!({ "name": table.name, "key_type": table.key_type, "value_type": table.value_type });
            out.json(&json!({ "tables": tables.iter().map(table).collect::<Vec<_>>() }))?;
        } else {
            for table in &tables {
                out.line(&[&table.name, &table.key_type, &table.value_type].map(|name| in_line(name)).join("\t"))?;
            }
        }
        out.end()
    }
}
