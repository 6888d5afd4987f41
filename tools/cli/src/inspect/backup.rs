//! `foreshore backup`: a copy that can be opened, or the changes since another one.

use super::database::Database;
use crate::exit::Failure;
use crate::output::Output;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Copy a database to a new directory, whole or since another backup
///
/// The copy can be opened in place of the database. It has the same id, so never mix files of the two. An application
/// that has the database open calls `Db::backup` itself. With `--since` it is an incremental backup, which has only the
/// pages that have changed since the base and cannot be opened: `restore` needs the full backup, too.
#[derive(Args)]
pub(crate) struct BackupArguments {
    #[command(flatten)]
    database: Database,
    /// Directory of the copy: empty, or absent
    out: PathBuf,
    /// Directory of the base: a full or incremental backup of this database, one of its last 16
    #[arg(long, value_name = "BASE")]
    since: Option<PathBuf>,
    /// Print an object (schema/backup.json)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &BackupArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    let backup = match &arguments.since {
        Some(base) => db.backup_since(&arguments.out, base)?,
        None => db.backup(&arguments.out)?,
    };
    let json = json!({
        "csn": backup.csn.0,
        "lsn": backup.lsn.0,
        "pages": backup.pages,
        "stored_pages": backup.stored_pages,
        "log_bytes": backup.log_bytes,
        "quarantined_pages": backup.quarantined,
        "is_base": backup.is_base,
    });
    let mut out = Output::new();
    if arguments.json {
        out.json(&json)?;
    } else {
        out.fields(&json)?;
    }
    out.end()
}
