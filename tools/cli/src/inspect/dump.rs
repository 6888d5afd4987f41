//! `foreshore dump`: tables as text that `load` reads.

use super::csv;
use super::database::{Bytes, Database, chosen};
use super::dump_format::{Line, VERSION};
use crate::exit::Failure;
use crate::output::Output;
use clap::Args;
use foreshore::{ListedTable, ReadTransaction};

/// Print tables as text that `load` reads
///
/// All rows are those of one moment. The text is JSON, one item a line (schema/dump.json). It begins with the version
/// of the format. Each table precedes its rows. A row is `["KEY","VALUE"]`, encoded, in hex digits. The counts come
/// last, unless the dump fails. Indexes are left out: the next open of a table that declares them builds them.
///
/// CSV is for other programs. It has a header and no types, and does not show whether it was cut off. A tuple has a
/// column for each part. Null is an empty cell, and empty text is `""`.
#[derive(Args)]
pub(crate) struct DumpArguments {
    #[command(flatten)]
    database: Database,
    /// Only this table; may be given several times [default: all]
    #[arg(long = "table", value_name = "TABLE")]
    tables: Vec<String>,
    /// Print the one table that --table names as CSV
    #[arg(long, requires = "tables")]
    csv: bool,
    #[command(flatten)]
    bytes: Bytes,
}

pub(crate) fn run(arguments: &DumpArguments) -> Result<(), Failure> {
    arguments.bytes.check_for_csv(arguments.csv)?;
    let db = arguments.database.open()?;
    let tx = db.read();
    let tables = chosen(tx.tables()?, &arguments.tables)?;
    let mut out = Output::new();
    match (&tables[..], arguments.csv) {
        (_, false) => dump(&tx, tables, &mut out)?,
        ([table], true) => dump_csv(&tx, table, &arguments.bytes, &mut out)?,
        (_, true) => return Err(Failure::Refused("CSV is of one table: give --table once".to_owned())),
    }
    out.end()
}

fn dump(tx: &ReadTransaction, tables: Vec<ListedTable>, out: &mut Output) -> Result<(), Failure> {
    let (count, mut rows) = (tables.len() as u64, 0);
    out.line(&Line::Version(VERSION).text())?;
    for listed in tables {
        let table = tx.open_raw(&listed.name)?;
        let (name, key_type, value_type) = (listed.name, listed.key_type, listed.value_type);
        out.line(&Line::Table { name, key_type, value_type }.text())?;
        for row in table.iter() {
            let (key, value) = row?;
            out.line(&Line::Row { key, value }.text())?;
            rows += 1;
        }
    }
    out.line(&Line::End { tables: count, rows }.text())
}

fn dump_csv(tx: &ReadTransaction, table: &ListedTable, bytes: &Bytes, out: &mut Output) -> Result<(), Failure> {
    let columns = bytes.columns(&table.key_type, &table.value_type)?;
    out.line(&csv::record(&columns.names().into_iter().map(Some).collect::<Vec<_>>()))?;
    for row in tx.open_raw(&table.name)?.iter() {
        let (key, value) = row?;
        let cells = columns.show(&key, &value);
        let undecodable = || Failure::Refused(format!("a row does not decode to the types of table {:?}", table.name));
        out.line(&csv::record(&cells.ok_or_else(undecodable)?))?;
    }
    Ok(())
}
