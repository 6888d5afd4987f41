//! `foreshore scan`: the rows of a table in key order.

use super::database::{Database, Table};
use crate::exit::Failure;
use crate::output::Output;
use crate::types::RowTypes;
use clap::Args;
use foreshore::ReadTransaction;
use serde_json::json;
use std::ops::Bound;

/// Print the rows of a table in key order
///
/// Prints a line for each row: key and value as JSON, separated by a tab. All rows are those of one moment.
#[derive(Args)]
pub(crate) struct ScanArguments {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    table: Table,
    /// The first key, itself included
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    from: Option<String>,
    /// The key before which the scan ends
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    to: Option<String>,
    /// Only keys that begin with these characters or bytes; of tuples, a JSON array of the first parts
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
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
    let tx = db.read();
    let types = arguments.table.types(&tx.tables()?)?;
    let mut out = Output::new();
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    each_row(arguments, &tx, &types, |key, value| {
        if left == 0 {
            return Ok(false);
        }
        left -= 1;
        print(arguments, &types, (key, value), &mut out)?;
        Ok(true)
    })?;
    out.end()
}

/// Calls `row` for each row, until it returns false.
fn each_row(
    arguments: &ScanArguments,
    tx: &ReadTransaction,
    types: &RowTypes,
    mut row: impl FnMut(&[u8], &[u8]) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let table = tx.open_raw(arguments.table.name())?;
    let mut rows = match &arguments.prefix {
        Some(prefix) => table.prefix(&*types.read_prefix(prefix)?),
        None => {
            let key = |word: &Option<String>| word.as_deref().map(|word| types.read_key(word)).transpose();
            let (from, to) = (key(&arguments.from)?, key(&arguments.to)?);
            let lower = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let upper = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            table.range((lower, upper))
        }
    };
    while let Some(next) = if arguments.reverse { rows.next_back() } else { rows.next() } {
        let (key, value) = next?;
        if !row(&key, &value)? {
            break;
        }
    }
    Ok(())
}

fn print(
    arguments: &ScanArguments,
    types: &RowTypes,
    (key, value): (&[u8], &[u8]),
    out: &mut Output,
) -> Result<(), Failure> {
    let key = types.key(key);
    match (arguments.json, arguments.keys) {
        (true, true) => out.json(&json!({ "key": key })),
        (true, false) => out.json(&json!({ "key": key, "value": types.value(value) })),
        (false, true) => out.json(&key),
        (false, false) => out.line(&format!("{key}\t{}", types.value(value))),
    }
}
