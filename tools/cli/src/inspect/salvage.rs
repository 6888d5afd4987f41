//! `foreshore salvage`: the rows that are left of a damaged database, in a new one.

mod missing;
mod source;
mod target;

use self::missing::Rows;
use self::source::open;
use self::target::Target;
use crate::exit::Failure;
use crate::output::{Output, in_line};
use clap::Args;
use foreshore::{Db, Error, ListedTable, LoadOptions, Options, ReadTransaction};
use foreshore_bench::units;
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// Bytes of keys and values after which a transaction takes no further row.
const MAX_BYTES: usize = 64 << 20;

/// Copy the rows that are left of a damaged database to a new one
///
/// DIR is only read. Prints a line for each table with its count of rows, and a line for whatever is missing: the
/// damaged page, and the keys between which rows are missing. Exit status 1 if anything is missing.
///
/// Below a damaged inner node of a table, rows are found by a read of all pages. It takes about 150 bytes of memory and
/// twice a key for each leaf of the table. These rows are missing if their map is damaged, too, or if a transaction is
/// prepared. They are also missing if a restart has quarantined a page: changes that never committed may be there.
///
/// A page that the disk cannot read ends it: copy DIR with a tool that fills unreadable blocks with zeros before.
///
/// Indexes are left out: the next open of a table that declares them builds them. Numbers that `next_id` has drawn are
/// left out, too. So are the changes of prepared transactions, which are listed.
///
/// If the salvage does not finish, OUT is no database, and the directory OUT.unfinished can be removed.
///
/// A database that was not closed is recovered in a copy of its files, in OUT.unfinished. One whose data file lost its
/// end is copied there, too.
#[derive(Args)]
pub(crate) struct SalvageArguments {
    /// Directory of the database; no other process may have it open
    dir: PathBuf,
    /// Directory of the new database: empty, or absent
    out: PathBuf,
    /// The engine's memory limit, for each of the two databases
    #[arg(long, default_value = "256MiB", value_parser = |text: &str| units::size("memory", text))]
    memory: u64,
    /// Print an object (schema/salvage.json)
    #[arg(long)]
    json: bool,
}

/// What was made of a table.
struct Copied {
    table: ListedTable,
    rows: u64,
    missing: Vec<Json>,
    lines: Vec<String>,
}

pub(crate) fn run(arguments: &SalvageArguments) -> Result<(), Failure> {
    let options = Options::new().memory_limit(arguments.memory);
    let target = Target::create(&arguments.dir, &arguments.out)?;
    let from = open(&options, &arguments.dir, &target.dir("copy"))?;
    let to = options.open(target.dir("new"))?;
    let prepared: Vec<String> = from.prepared()?.into_iter().map(|txn| txn.name).collect();
    let reader = from.read();
    let (tables, hidden) = reader.readable_tables()?;
    let copied = tables.into_iter().map(|table| copy(&reader, &to, table)).collect::<Result<Vec<_>, _>>()?;
    to.close(std::time::Duration::from_secs(60))?;
    drop((reader, from));
    target.finish("new")?;
    let is_whole = hidden.is_empty() && prepared.is_empty() && copied.iter().all(|table| table.missing.is_empty());
    print(&copied, &hidden, &prepared, (is_whole, arguments.json))?;
    if is_whole { Ok(()) } else { Err(Failure::No) }
}

/// Copies the rows of a table in transactions of limited size.
fn copy(from: &ReadTransaction, to: &Db, table: ListedTable) -> Result<Copied, Failure> {
    let mut rows = Rows::new(from.open_raw(&table.name)?.salvage(), &table);
    let mut copied = 0;
    while !rows.is_over() {
        let tx = to.begin();
        let new = tx.create_raw(&table.name, &table.key_type, &table.value_type)?;
        copied += new.load_owned(LoadOptions::new(), rows.next_part(MAX_BYTES))?;
        rows.check()?;
        tx.commit()?;
    }
    let (missing, lines) = rows.missing();
    Ok(Copied { table, rows: copied, missing, lines })
}

fn print(
    copied: &[Copied],
    hidden: &[Error],
    prepared: &[String],
    (is_whole, is_json): (bool, bool),
) -> Result<(), Failure> {
    let mut out = Output::new();
    if is_json {
        let table = |Copied { table, rows, missing, .. }: &Copied| {
            let indexes: Vec<_> = table.indexes.iter().map(|index| &index.name).collect();
            json!({ "name": table.name, "rows": rows, "indexes": indexes, "missing": missing })
        };
        let hidden: Vec<_> = hidden.iter().map(hidden_json).collect();
        let tables: Vec<_> = copied.iter().map(table).collect();
        out.json(&json!({ "whole": is_whole, "tables": tables, "hidden": hidden, "prepared": prepared }))?;
    } else {
        for Copied { table, rows, lines, .. } in copied {
            let name = in_line(&table.name);
            out.line(&format!("{name}\trows: {rows}, missing: {}", lines.len()))?;
            lines.iter().try_for_each(|line| out.line(&format!("{name}\t{line}")))?;
        }
        hidden.iter().try_for_each(|error| out.line(&format!("tables are missing: {error}")))?;
        let left_out = |name: &String| format!("the changes of the prepared transaction {} are missing", in_line(name));
        prepared.iter().try_for_each(|name| out.line(&left_out(name)))?;
    }
    out.end()
}

fn hidden_json(error: &Error) -> Json {
    let why = if let Error::Corrupted { why, .. } = error { (*why).to_owned() } else { error.to_string() };
    json!({ "page": error.damaged_page().map(|page| page.0), "why": why })
}
