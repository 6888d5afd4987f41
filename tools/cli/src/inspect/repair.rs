//! `foreshore repair`: damaged pages from a backup and the log since.

use crate::exit::Failure;
use crate::output::{Output, in_line};
use clap::Args;
use foreshore::{Error, PageId, RepairSource, Repaired, TableRef, repair};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// Repair the damaged pages of a database from a backup and the log since
///
/// Reads all pages of DIR. Each one that is damaged, stale or quarantined is rebuilt: from its image in the backup, the
/// log in the archive, and the log of DIR. Prints a line for each page, and a summary. Exit status 1 if a damaged page
/// was not repaired: the line says why, and the page is as it was. Run `check` afterwards.
///
/// Without damage nothing is written. Backup and archive are only read. If the repair does not finish, run it again.
#[derive(Args)]
pub(crate) struct RepairArguments {
    /// Directory of the database; no other process may have it open
    dir: PathBuf,
    /// Directory of a backup of this database
    #[arg(long)]
    backup: PathBuf,
    /// Directory to which the log was archived
    #[arg(long)]
    archive: Option<PathBuf>,
    /// Say what would be repaired, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print an object (schema/repair.json)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &RepairArguments) -> Result<(), Failure> {
    let mut repair = repair(&arguments.dir, &arguments.backup);
    if let Some(archive) = &arguments.archive {
        repair = repair.archive(archive);
    }
    let repaired = if arguments.dry_run { repair.dry_run() } else { repair.run() };
    let repaired = repaired.map_err(|error| failure(arguments, error))?;
    print(&repaired, arguments)?;
    if repaired.unrepaired.is_empty() { Ok(()) } else { Err(Failure::No) }
}

/// An error of the database is that of an open. One of backup or archive is a failure.
fn failure(arguments: &RepairArguments, error: Error) -> Failure {
    let path = match &error {
        Error::NoDatabase { path } | Error::Foreign { path, .. } | Error::Newer { path, .. } => path,
        Error::Corrupted { file, .. } | Error::Truncated { file, .. } | Error::LostLog { file, .. } => file,
        Error::UnfinishedBackup { dir: path } | Error::Locked { path } => path,
        _ => return error.into(),
    };
    let is_in = |dir: &PathBuf| path.starts_with(dir);
    match is_in(&arguments.dir) && !is_in(&arguments.backup) && !arguments.archive.iter().any(is_in) {
        true => Failure::unopened(error),
        false => error.into(),
    }
}

fn print(repaired: &Repaired, arguments: &RepairArguments) -> Result<(), Failure> {
    let mut out = Output::new();
    if arguments.json {
        let page = |page: PageId, table: &Option<TableRef>, damage: &str| json!({ "page": page.0, "table": table.as_ref().map(|table| table.id.0), "damage": damage });
        let done = repaired.repaired.iter().map(|done| {
            let mut json = page(done.page, &done.table, done.damage);
            json["from"] = source(done.source).into();
            json["changes"] = done.changes.into();
            json["lsn"] = done.lsn.0.into();
            json
        });
        let left = repaired.unrepaired.iter().map(|left| {
            let mut json = page(left.page, &left.table, left.damage);
            json["why"] = left.why.to_string().into();
            json
        });
        let (done, left): (Vec<Json>, Vec<Json>) = (done.collect(), left.collect());
        let is_dry = arguments.dry_run;
        out.json(&json!({ "dry_run": is_dry, "pages": repaired.pages, "repaired": done, "unrepaired": left }))?;
    } else {
        let done = if arguments.dry_run { "can be repaired" } else { "repaired" };
        for page in &repaired.repaired {
            let (damage, from) = (page.damage, source(page.source));
            let place = place(page.page, page.table.as_ref());
            out.line(&format!("{place}: {damage}: {done} from the {from}, changes: {}", page.changes))?;
        }
        for page in &repaired.unrepaired {
            let place = place(page.page, page.table.as_ref());
            out.line(&format!("{place}: {}: not repaired: {}", page.damage, page.why))?;
        }
        let (done, left) = (repaired.repaired.len(), repaired.unrepaired.len());
        out.line(&format!("pages: {}, repaired: {done}, damaged: {left}", repaired.pages))?;
    }
    out.end()
}

fn place(page: PageId, table: Option<&TableRef>) -> String {
    table.map_or_else(|| format!("page {page}"), |table| in_line(&format!("table {table} page {page}")))
}

const fn source(source: RepairSource) -> &'static str {
    match source {
        RepairSource::Backup => "backup",
        _ => "log",
    }
}
