//! Counters as text for Prometheus and programs that read its format.
//!
//! The functions are pure: from plain data to text in the exposition format of Prometheus, version 0.0.4. An
//! application serves the text itself, beside metrics of its own; the example `serve_metrics` does so with nothing but
//! `std`. The content type is [`CONTENT_TYPE`].
//!
//! | function | of | costs |
//! |---|---|---|
//! | [`render`] | [`Db::stats`](crate::Db::stats) | microseconds |
//! | [`render_profile`] | [`Db::profile`](crate::Db::profile): times of waits by class and label | microseconds |
//! | [`render_tables`] | [`Table::stats`](crate::Table::stats) of tables of your choice | reads every page of these tables |
//!
//! Their outputs have no name in common, so they may be appended to each other. Every name begins with `foreshore_`. A
//! name that ends with `_total` is a counter since the open of the database, any other a gauge. Sizes are in bytes and
//! times in seconds. The guide lists all names in its chapter "Watching".
//!
//! ```
//! use foreshore::{Db, Error, TableDef, metrics};
//!
//! # fn main() -> Result<(), Error> {
//! const STOCK: TableDef<u64, i64> = TableDef::new("stock");
//! let db = Db::in_memory()?;
//! db.set_profiling(true)?;
//! db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
//!
//! let mut text = metrics::render(&db.stats());
//! text += &metrics::render_profile(&db.profile());
//! let stock = db.read().open(STOCK)?.stats()?;
//! text += &metrics::render_tables(&[("stock", stock)]);
//!
//! assert!(text.contains("# TYPE foreshore_commits_total counter\nforeshore_commits_total 1\n"));
//! assert!(text.contains("foreshore_table_rows{table=\"stock\"} 1\n"));
//! # Ok(())
//! # }
//! ```

mod engine;
mod exposition;

use crate::{Profile, Stats, TableStats};
use exposition::Exposition;

/// The content type of the text, for the header of an HTTP response.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the counters of the engine as text.
///
/// Metrics of the archive are absent if there is none, and those of the oldest transaction and snapshot while there is
/// none. See the [module](self) for an example.
#[must_use]
pub fn render(stats: &Stats) -> String {
    let mut out = Exposition::default();
    engine::all(&mut out, stats);
    out.into_text()
}

/// Returns the time of the measured transactions as text, by label and by class: seven classes inside the engine and
/// `caller` outside.
///
/// Only one in [`Profile::ONE_IN`] transactions is measured, so shares and quotients say more than sums. Empty while
/// nothing was measured. See the [module](self) for an example.
#[must_use]
pub fn render_profile(profile: &Profile) -> String {
    let mut out = Exposition::default();
    let transactions = profile.labels.iter().map(|(label, split)| ([("label", *label)], split.transactions));
    out.family("profile_transactions_total", "Transactions that were measured, by label.", transactions);
    let times = profile.labels.iter().flat_map(|(label, split)| {
        let classes = [
            ("work", split.work),
            ("log_insert", split.log_insert),
            ("log_wait", split.log_wait),
            ("lock_wait", split.lock_wait),
            ("latch_wait", split.latch_wait),
            ("io", split.io),
            ("retry", split.retry),
            ("caller", split.caller),
        ];
        classes.map(|(class, time)| ([("label", *label), ("class", class)], time))
    });
    out.family("profile_seconds_total", "Time of the measured transactions, by label and class.", times);
    out.into_text()
}

/// Returns the sizes of tables as text, with the label `table`. Each table has a name of its own.
///
/// See the [module](self) for an example.
#[must_use]
pub fn render_tables(tables: &[(impl AsRef<str>, TableStats)]) -> String {
    let mut out = Exposition::default();
    let mut family = |name, help, of: fn(&TableStats) -> u64| {
        let samples = tables.iter().map(|(table, stats)| ([("table", table.as_ref())], of(stats)));
        out.family(name, help, samples);
    };
    family("table_rows", "Rows of a table.", |stats| stats.rows);
    family("table_deleted_rows", "Deleted rows of a table that are still in their pages.", |stats| stats.ghosts);
    family("table_row_bytes", "Encoded keys and values of a table.", |stats| stats.row_bytes);
    family("table_large_values", "Values of a table that lie in pages of their own.", |stats| stats.large_values);
    family("table_leaf_pages", "Pages of a table with rows.", |stats| stats.leaf_pages);
    family("table_inner_pages", "Pages of a table above those with rows.", |stats| stats.inner_pages);
    family("table_large_pages", "Pages of the large values of a table.", |stats| stats.large_pages);
    family("table_levels", "Levels of pages of a table.", |stats| stats.levels);
    family("table_bytes", "All pages of a table.", |stats| stats.bytes);
    out.into_text()
}
