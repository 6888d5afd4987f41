//! `foreshore restore` and `foreshore verify`: a database from a backup, its increments and an archive, and the check
//! of all.

use crate::exit::Failure;
use crate::output::Output;
use clap::Args;
use foreshore::{Lsn, Restore, Restored, Timestamp, Until, restore};
use serde_json::json;
use std::path::PathBuf;

/// The source of a restore, and its end.
#[derive(Args)]
struct Source {
    /// Directory of the backup, then those of its increments in their order
    #[arg(required = true)]
    backup: Vec<PathBuf>,
    /// Directory to which the log was archived
    #[arg(long)]
    archive: Option<PathBuf>,
    /// Restore the commits whose records have LSNs up to this one, instead of all
    #[arg(long, value_name = "LSN", conflicts_with = "until_time")]
    until_lsn: Option<u64>,
    /// Restore the commits written up to this time, in seconds since 1970
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    until_time: Option<Timestamp>,
    /// Print an object (schema/restore.json)
    #[arg(long)]
    json: bool,
}

/// Restore a backup, its increments, and the log in an archive, to a new directory
///
/// Backups and archive are only read. The result is a database with another id: give it an archive of its own. If the
/// restore does not finish, the directory cannot be opened.
#[derive(Args)]
pub(crate) struct RestoreArguments {
    #[command(flatten)]
    source: Source,
    /// Directory of the database: empty, or absent
    out: PathBuf,
}

/// Verify a backup, its increments, and the log in an archive, without a restore
///
/// It reads each page and each group that a restore would read, and writes nothing.
#[derive(Args)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    source: Source,
}

pub(crate) fn run(arguments: &RestoreArguments) -> Result<(), Failure> {
    let restored = arguments.source.restore(arguments.out.clone()).run()?;
    arguments.source.print(&restored)
}

pub(crate) fn verify(arguments: &VerifyArguments) -> Result<(), Failure> {
    let restored = arguments.source.restore(PathBuf::new()).verify()?;
    arguments.source.print(&restored)
}

impl Source {
    fn restore(&self, out: PathBuf) -> Restore {
        let until = match (self.until_lsn, self.until_time) {
            (Some(lsn), _) => Until::Lsn(Lsn(lsn)),
            (None, Some(time)) => Until::Time(time),
            (None, None) => Until::End,
        };
        let (full, increments) = self.backup.split_first().expect("one is required");
        let restore = increments.iter().fold(restore(full, out).until(until), Restore::increment);
        match &self.archive {
            Some(archive) => restore.archive(archive),
            None => restore,
        }
    }

    fn print(&self, restored: &Restored) -> Result<(), Failure> {
        let json = json!({
            "lsn": restored.lsn.0,
            "csn": restored.csn.0,
            "backup_lsn": restored.backup_lsn.0,
            "time": restored.time.map(|time| time.secs()),
            "pages": restored.pages,
            "log_bytes": restored.log_bytes,
            "quarantined_pages": restored.quarantined,
        });
        let mut out = Output::new();
        if self.json {
            out.json(&json)?;
        } else {
            out.fields(&json)?;
        }
        out.end()
    }
}

/// Parses seconds since 1970, perhaps with a fraction.
fn seconds(text: &str) -> Result<Timestamp, String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let nanos = format!("{fraction:0<9}");
    let is_fraction = fraction.len() <= 9 && nanos.bytes().all(|digit| digit.is_ascii_digit());
    let time = whole.parse().ok().zip(nanos.parse().ok()).filter(|_| is_fraction);
    let time = time.and_then(|(whole, nanos)| Timestamp::new(whole, nanos));
    time.ok_or_else(|| "a number of seconds since 1970, with at most nine decimals".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_a_fraction() {
        assert_eq!(seconds("1700000000"), Ok(Timestamp::new(1_700_000_000, 0).unwrap()));
        assert_eq!(seconds("12.05"), Ok(Timestamp::new(12, 50_000_000).unwrap()));
        for wrong in ["", "x", "1.x", "1.0000000001", "1.-5", "today"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
