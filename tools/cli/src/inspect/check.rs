//! `foreshore check`: verifies a whole database.

use super::database::Database;
use crate::exit::Failure;
use crate::output::Output;
use clap::Args;
use foreshore::{Error, Place};
use serde_json::{Value as Json, json};

/// Verify every page of a database
///
/// Checks every page, in memory and on disk, and the order and links of every table. Prints a line for each finding,
/// and a summary. Exit status 1 if anything is damaged.
#[derive(Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    database: Database,
    /// Print an object (schema/check.json)
    #[arg(long)]
    json: bool,
}

/// Damage, with its place.
struct Finding {
    line: String,
    json: Json,
}

pub(crate) fn run(arguments: &CheckArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    let (report, findings) = match db.examine() {
        Ok(report) => {
            let found = report.damaged.iter().map(|page| Finding {
                line: page.to_string(),
                json: finding(page.table.as_ref().and_then(|table| table.name.as_deref()), Some(page.page.0), page.why),
            });
            let found = found.collect();
            (Some(report), found)
        }
        // Damage outside of pages ends the check.
        Err(error) => (None, vec![outside(error)?]),
    };
    let mut out = Output::new();
    if arguments.json {
        let damaged: Vec<_> = findings.iter().map(|finding| &finding.json).collect();
        let mut json = json!({ "sound": findings.is_empty(), "complete": report.is_some(), "damaged": damaged });
        if let Some(report) = &report {
            json["tables"] = report.tables.into();
            json["rows"] = report.rows.into();
            json["pages"] = report.pages.into();
            json["unused"] = report.unused.into();
        }
        out.json(&json)?;
    } else {
        findings.iter().try_for_each(|finding| out.line(&finding.line))?;
        out.line(&report.as_ref().map_or_else(
            || "the check ended at this damage".to_owned(),
            |report| {
                let (tables, rows, pages) = (report.tables, report.rows, report.pages);
                format!("tables: {tables}, rows: {rows}, pages: {pages}, damaged: {}", findings.len())
            },
        ))?;
    }
    out.end()?;
    if findings.is_empty() { Ok(()) } else { Err(Failure::No) }
}

fn finding(table: Option<&str>, page: Option<u64>, why: &str) -> Json {
    json!({ "table": table, "page": page, "why": why })
}

/// Returns damage that no page has; any other error is a failure.
fn outside(error: Error) -> Result<Finding, Failure> {
    let line = error.to_string();
    let json = match &error {
        Error::Corrupted { table, place, why, .. } => {
            let table = table.as_ref().and_then(|table| table.name.as_deref());
            let page = if let Place::Page(page) = place { Some(page.0) } else { None };
            finding(table, page, why)
        }
        Error::Truncated { .. } | Error::LostLog { .. } => finding(None, None, &line),
        _ => return Err(error.into()),
    };
    Ok(Finding { line, json })
}
