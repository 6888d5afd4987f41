//! `foreshore compact`: a data file as short as its rows allow.

use super::database::Database;
use crate::exit::Failure;
use crate::output::Output;
use clap::Args;
use foreshore::{CompactOptions, Compaction};
use serde_json::json;
use std::ops::ControlFlow;

/// Make the data file as short as its rows allow
///
/// Rows of sparse pages are brought together, pages at the end of the file move to its front, and the end is truncated.
/// If the run is ended early, what it has done stays done. An application that has the database open calls
/// `Db::compact` itself.
#[derive(Args)]
pub(crate) struct CompactArguments {
    #[command(flatten)]
    database: Database,
    /// Percent of one thread's time that is used
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
    share: u8,
    /// Print an object (schema/compact.json)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &CompactArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    let options = CompactOptions::new().share(arguments.share);
    let done = db.compact_with(options, |_: &Compaction| ControlFlow::Continue(()))?;
    let json = json!({
        "freed_pages": done.freed,
        "moved_pages": done.moved,
        "stuck_pages": done.stuck,
        "skipped_tables": done.skipped,
        "truncated_bytes": done.truncated,
        "log_removed_bytes": done.log_removed,
        "data_pages": db.stats().space.file_pages,
    });
    let mut out = Output::new();
    if arguments.json {
        out.json(&json)?;
    } else {
        out.fields(&json)?;
    }
    out.end()
}
