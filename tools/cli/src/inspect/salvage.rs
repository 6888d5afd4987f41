//! `foreshore salvage`: the rows that are left of a damaged database, in a new one.

mod missing;
mod source;
mod spool;
mod target;

use self::missing::{Rows, line};
use self::source::open;
use self::spool::Spool;
use self::target::Target;
use crate::exit::Failure;
use crate::output::{Output, in_line};
use clap::Args;
use foreshore::{Db, Error, ListedTable, LoadOptions, Options, ReadTransaction};
use foreshore_bench::units;
use serde_json::{Value as Json, json};
use std::ops::Range;
use std::path::PathBuf;

/// Bytes of keys and values after which a transaction takes no further row.
const MAX_BYTES: usize = 64 << 20;

/// Copy the rows that are left of a damaged database to a new one
///
/// DIR is only read. Prints a line for each table with its count of rows, and a line for whatever is missing: the
/// damaged page, and the keys between which rows are missing. Exit status 1 if anything is missing.
///
/// Below a damaged inner node of a table, rows are found by a read of all pages, which lists the leaves of the table.
/// A leaf takes about 150 bytes and twice a key. When the list takes a quarter as much as the page cache, the other
/// leaves need another read of all pages.
///
/// These rows are missing if their map is damaged, too, or if a transaction is prepared. They are also missing if a
/// restart has quarantined a page: changes that never committed may be there.
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
    missing: u64,
    /// The bytes of the spool that list them.
    listed: Range<u64>,
}

pub(crate) fn run(arguments: &SalvageArguments) -> Result<(), Failure> {
    let options = Options::new().memory_limit(arguments.memory);
    let target = Target::create(&arguments.dir, &arguments.out)?;
    let from = open(&options, &arguments.dir, &target.dir("copy"))?;
    let to = options.open(target.dir("new"))?;
    let prepared: Vec<String> = from.prepared()?.into_iter().map(|txn| txn.name).collect();
    let reader = from.read();
    let (tables, hidden) = reader.readable_tables()?;
    let mut spool = Spool::create(&target.dir("missing"))?;
    let copied: Result<Vec<_>, _> = tables.into_iter().map(|table| copy(&reader, &to, table, &mut spool)).collect();
    let copied = copied?;
    to.close(std::time::Duration::from_secs(60))?;
    drop((reader, from));
    target.finish("new")?;
    let is_whole = hidden.is_empty() && prepared.is_empty() && copied.iter().all(|table| table.missing == 0);
    let report = Report { copied, hidden, prepared, spool };
    if arguments.json {
        report.print_json(is_whole)?
    } else {
        report.print()?
    }
    if is_whole { Ok(()) } else { Err(Failure::No) }
}

/// Copies the rows of a table in transactions of limited size.
fn copy(from: &ReadTransaction, to: &Db, table: ListedTable, spool: &mut Spool) -> Result<Copied, Failure> {
    let begin = spool.len();
    let source = from.open_raw(&table.name)?;
    let mut rows = Rows::new(source.salvage(), &table, spool);
    let mut copied = 0;
    while !rows.is_over() {
        let tx = to.begin();
        let new = tx.create_raw(&table.name, &table.key_type, &table.value_type)?;
        copied += new.load_owned(LoadOptions::new(), rows.next_part(MAX_BYTES))?;
        rows.check()?;
        tx.commit()?;
    }
    let missing = rows.missing();
    Ok(Copied { table, rows: copied, missing, listed: begin..spool.len() })
}

/// What the salvage has found.
struct Report {
    copied: Vec<Copied>,
    hidden: Vec<Error>,
    prepared: Vec<String>,
    spool: Spool,
}

impl Report {
    /// Prints an object, in parts: what is missing may be more than fits in memory.
    fn print_json(mut self, is_whole: bool) -> Result<(), Failure> {
        let mut out = Output::new();
        out.part(&format!("{{\"whole\":{is_whole},\"tables\":["))?;
        let mut comma = "";
        for Copied { table, rows, listed, .. } in self.copied {
            let indexes: Vec<_> = table.indexes.iter().map(|index| &index.name).collect();
            let (name, indexes) = (json!(table.name), json!(indexes));
            out.part(&format!("{comma}{{\"name\":{name},\"rows\":{rows},\"indexes\":{indexes},\"missing\":["))?;
            comma = "";
            self.spool.each(listed, |missing| out.part(&format!("{}{missing}", std::mem::replace(&mut comma, ","))))?;
            out.part("]}")?;
            comma = ",";
        }
        let hidden: Vec<_> = self.hidden.iter().map(hidden_json).collect();
        out.line(&format!("],\"hidden\":{},\"prepared\":{}}}", json!(hidden), json!(self.prepared)))?;
        out.end()
    }

    fn print(mut self) -> Result<(), Failure> {
        let mut out = Output::new();
        for Copied { table, rows, missing, listed } in self.copied {
            let name = in_line(&table.name);
            out.line(&format!("{name}\trows: {rows}, missing: {missing}"))?;
            self.spool.each(listed, |missing| out.line(&format!("{name}\t{}", line(&missing))))?;
        }
        self.hidden.iter().try_for_each(|error| out.line(&format!("tables are missing: {error}")))?;
        let left_out = |name: &String| format!("the changes of the prepared transaction {} are missing", in_line(name));
        self.prepared.iter().try_for_each(|name| out.line(&left_out(name)))?;
        out.end()
    }
}

fn hidden_json(error: &Error) -> Json {
    let why = if let Error::Corrupted { why, .. } = error { (*why).to_owned() } else { error.to_string() };
    json!({ "page": error.damaged_page().map(|page| page.0), "why": why })
}
