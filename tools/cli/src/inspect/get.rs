//! `foreshore get`: one row.

use super::database::{Database, Table};
use super::reader::Reader;
use crate::exit::Failure;
use crate::output::Output;
use clap::Args;
use serde_json::{Value as Json, json};

/// Print the value of a key
///
/// Text and bytes are printed without quotes, any other value as JSON. Exit status 1 if there is no such row.
#[derive(Args)]
pub(crate) struct GetArguments {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    get: Get,
}

/// The row, and how it is printed.
#[derive(Args)]
pub(crate) struct Get {
    #[command(flatten)]
    table: Table,
    /// The key: a word, or JSON for options and tuples
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// Print an object (schema/get.json), also if there is no such row
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &GetArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    arguments.get.run(&db.read())
}

impl Get {
    pub(crate) fn run(&self, from: &impl Reader) -> Result<(), Failure> {
        let name = self.table.name();
        let types = self.table.types(&from.tables()?)?;
        let key = types.read_key(&self.key)?;
        let value = from.get(name, &key)?.map(|value| types.value(&value));
        let mut out = Output::new();
        match (&value, self.json) {
            (Some(value), true) => out.json(&json!({ "found": true, "key": types.key(&key), "value": value }))?,
            (None, true) => out.json(&json!({ "found": false, "key": types.key(&key) }))?,
            (Some(Json::String(text)), false) => out.line(text)?,
            (Some(value), false) => out.json(value)?,
            (None, false) => eprintln!("table {name:?} has no row of key {}", types.key(&key)),
        }
        out.end()?;
        value.map(drop).ok_or(Failure::No)
    }
}
