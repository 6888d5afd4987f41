//! `foreshore info`: what the files say, without opening the database.

use super::superblock::Directory;
use crate::exit::Failure;
use crate::output::Output;
use clap::Args;
use foreshore::limits::PAGE_SIZE;
use foreshore_space::format::SUPERBLOCK_VERSION;
use serde_json::json;
use std::path::PathBuf;

/// Print identity, format and sizes of a database, without opening it
///
/// It reads files only: it recovers nothing, writes nothing, and works while another process has the database open.
#[derive(Args)]
pub(crate) struct InfoArguments {
    /// Directory of the database
    dir: PathBuf,
    /// Print an object (schema/info.json)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &InfoArguments) -> Result<(), Failure> {
    let directory = Directory::open(&arguments.dir)?;
    let segments = directory.fs.list(&directory.log()).map_err(Failure::unopened)?;
    let segments: Vec<_> = segments.into_iter().filter(|name| name.ends_with(".seg")).collect();
    let mut log_bytes = 0;
    for name in &segments {
        log_bytes += directory.len(&format!("log/{name}"))?;
    }
    let superblock = &directory.superblock;
    let quarantined: Vec<u64> = superblock.quarantined.iter().map(|page| page.0).collect();
    let json = json!({
        "uuid": superblock.uuid.to_string(),
        "format_version": SUPERBLOCK_VERSION,
        "features": superblock.features,
        "write_features": superblock.write_features,
        "page_size": PAGE_SIZE,
        "closed": superblock.clean,
        "checkpoint": { "lsn": superblock.checkpoint_lsn.0, "group": superblock.checkpoint_group.0 },
        "restart": { "scan_group": superblock.scan_start.0, "redo_group": superblock.redo_start.0 },
        "xid_ceiling": superblock.xid_ceiling.0,
        "data": { "pages": superblock.data_pages, "bytes": directory.len("data")? },
        "log": { "segments": segments.len(), "bytes": log_bytes },
        "doublewrite_bytes": directory.len("dw")?,
        "quarantined_pages": quarantined,
    });
    let mut out = Output::new();
    if arguments.json {
        out.json(&json)?
    } else {
        out.fields(&json)?
    }
    out.end()
}
