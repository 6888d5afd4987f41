//! `foreshore scan`: the rows of a table in key order.

use super::bounds::Bounds;
use super::database::{Database, Table};
use super::reader::Reader;
use crate::exit::Failure;
use crate::output::Output;
use crate::types::RowTypes;
use clap::Args;
use serde_json::json;

/// Print the rows of a table in key order
///
/// Prints a line for each row: key and value as JSON, separated by a tab. All rows are those of one moment.
#[derive(Args)]
pub(crate) struct ScanArguments {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    scan: Scan,
}

/// The rows, and how they are printed.
#[derive(Args)]
pub(crate) struct Scan {
    #[command(flatten)]
    pub(crate) table: Table,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
    #[command(flatten)]
    pub(crate) lines: Lines,
}

/// How rows are printed.
#[derive(Args)]
pub(crate) struct Lines {
    /// At most so many rows
    #[arg(long, value_name = "ROWS")]
    limit: Option<u64>,
    /// In descending order
    #[arg(long)]
    reverse: bool,
    /// Only the keys
    #[arg(long)]
    keys: bool,
    /// Print an object for each row (schema/scan.json)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ScanArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    let Scan { table, bounds, lines } = &arguments.scan;
    print(&db.read(), table, bounds, lines)
}

/// Prints the rows of `table` within `bounds`.
pub(crate) fn print(from: &impl Reader, table: &Table, bounds: &Bounds, lines: &Lines) -> Result<(), Failure> {
    let types = table.types(&from.tables()?)?;
    let bounds = bounds.encode(&types)?;
    let mut rows = from.range(table.name(), bounds.keys())?;
    let mut out = Output::new();
    for _ in 0..lines.limit.unwrap_or(u64::MAX) {
        let Some(next) = (if lines.reverse { rows.next_back() } else { rows.next() }) else { break };
        let (key, value) = next?;
        lines.one(&types, (&key, &value), &mut out)?;
    }
    out.end()
}

/// Prints how many rows of `table` are within `bounds`.
pub(crate) fn count(from: &impl Reader, table: &Table, bounds: &Bounds) -> Result<(), Failure> {
    let types = table.types(&from.tables()?)?;
    let count = from.count(table.name(), bounds.encode(&types)?.keys())?;
    let mut out = Output::new();
    out.line(&count.to_string())?;
    out.end()
}

impl Lines {
    fn one(&self, types: &RowTypes, (key, value): (&[u8], &[u8]), out: &mut Output) -> Result<(), Failure> {
        let key = types.key(key);
        match (self.json, self.keys) {
            (true, true) => out.json(&json!({ "key": key })),
            (true, false) => out.json(&json!({ "key": key, "value": types.value(value) })),
            (false, true) => out.json(&key),
            (false, false) => out.line(&format!("{key}\t{}", types.value(value))),
        }
    }
}
