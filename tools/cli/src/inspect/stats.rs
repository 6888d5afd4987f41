//! `foreshore stats`: sizes of the tables and of the files.

use super::database::{Database, chosen};
use crate::exit::Failure;
use crate::output::Output;
use clap::Args;
use foreshore::{ListedTable, Stats, TableStats, metrics};
use serde_json::{Value as Json, json};

/// Print sizes of the tables and of the files
///
/// It reads each page of the tables once, and prints what recovery did to open the database, too.
#[derive(Args)]
pub(crate) struct StatsArguments {
    #[command(flatten)]
    database: Database,
    /// Only these tables [default: all]
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,
    /// Print an object (schema/stats.json)
    #[arg(long)]
    json: bool,
    /// Print metrics as Prometheus reads them
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

pub(crate) fn run(arguments: &StatsArguments) -> Result<(), Failure> {
    let db = arguments.database.open()?;
    let tx = db.read();
    let tables = chosen(tx.tables()?, &arguments.tables)?;
    let measured = tables.into_iter().map(|listed| {
        let stats = tx.open_raw(&listed.name)?.stats()?;
        Ok::<_, Failure>((listed, stats))
    });
    let measured = measured.collect::<Result<Vec<_>, _>>()?;
    let mut out = Output::new();
    if arguments.prometheus {
        let named: Vec<_> = measured.iter().map(|(listed, stats)| (&listed.name, *stats)).collect();
        let text = metrics::render(&db.stats()) + &metrics::render_tables(&named);
        text.lines().try_for_each(|line| out.line(line))?;
        return out.end();
    }
    let mut json = engine(&db.stats());
    json["tables"] = measured.iter().map(|(listed, stats)| table(listed, stats)).collect();
    if arguments.json {
        out.json(&json)?
    } else {
        out.fields(&json)?
    }
    out.end()
}

fn engine(stats: &Stats) -> Json {
    let Stats { space, recovery, damage, .. } = stats;
    json!({
        "backend": stats.backend,
        "data": { "pages": space.file_pages, "used_pages": space.used_pages, "free_pages": space.free_pages },
        "log": { "retained_bytes": stats.log_retained_bytes },
        "prepared_transactions": stats.prepared,
        "damaged_pages": damage.pages,
        "recovery": {
            "was_clean": recovery.was_clean,
            "records": recovery.records,
            "redone": recovery.redone,
            "pending_pages": recovery.pending_pages,
            "undone": recovery.undone,
            "losers": recovery.losers,
            "restored_pages": recovery.restored,
            "quarantined_pages": recovery.quarantined,
        },
    })
}

fn table(listed: &ListedTable, stats: &TableStats) -> Json {
    json!({
        "name": listed.name,
        "key_type": listed.key_type,
        "value_type": listed.value_type,
        "rows": stats.rows,
        "deleted_rows": stats.ghosts,
        "row_bytes": stats.row_bytes,
        "large_values": stats.large_values,
        "large_pages": stats.large_pages,
        "leaf_pages": stats.leaf_pages,
        "inner_pages": stats.inner_pages,
        "levels": stats.levels,
        "bytes": stats.bytes,
        "fill_permille": stats.fill_permille,
    })
}
