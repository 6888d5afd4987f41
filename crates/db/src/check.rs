//! Checking a whole database.

use crate::catalogue::decode;
use crate::engine::Engine;
use crate::transaction::Live;
use crate::{Db, TxnOptions};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Place, Result};
use foreshore_btree::Tree;
use foreshore_buffer::format::verify_page;
use foreshore_io::AlignedBuf;
use foreshore_lock::TableMode;
use std::{collections::HashSet, ops::Bound};

/// What [`Db::check`] has found in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Tables, without the catalogue.
    pub tables: u64,
    /// Rows in them.
    pub rows: u64,
    /// Pages in use: those of all trees, the maps and the superblocks.
    pub pages: u64,
}

pub(crate) fn check(db: &Db) -> Result<Report> {
    db.run_with(TxnOptions::new().label("check"), |tx| tx.with(check_in))
}

fn check_in(engine: &Engine, live: &mut Live) -> Result<Report> {
    // No table is created or changed until the transaction ends, so pages stay as they are found.
    live.txn.lock_table(engine.catalogue.table(), TableMode::Shared)?;
    let found = tables(engine, live)?;
    for (tree, _) in &found {
        live.txn.lock_table(tree.table(), TableMode::Shared)?;
    }
    let mut report = Report::default();
    let mut owned = HashSet::new();
    let mut own = |pages: HashSet<PageId>| {
        let twice = pages.into_iter().find(|&pid| !owned.insert(pid));
        twice.map_or(Ok(()), |pid| Err(engine.space.corrupted(pid, "two trees own the page")))
    };
    own(engine.catalogue.verify()?.pages)?;
    for (tree, is_dropped) in &found {
        if *is_dropped {
            // It has lost pages, and nothing reads the others any more.
            own(tree.pages()?)?;
            continue;
        }
        let tree = tree.verify()?;
        report.tables += 1;
        report.rows += tree.rows;
        own(tree.pages)?;
    }
    let map = engine.space.verify(&owned)?;
    report.pages = map.allocated;
    engine.pool.flush_all()?;
    check_homes(engine, &owned)?;
    Ok(report)
}

/// The trees of all tables but the catalogue, and whether they were dropped.
fn tables(engine: &Engine, live: &mut Live) -> Result<Vec<(Tree, bool)>> {
    let mut cursor = engine.catalogue.range(&mut live.txn, Bound::Unbounded, Bound::Unbounded)?;
    let mut found = Vec::new();
    while let Some((_, row)) = cursor.next(&mut live.txn)? {
        let row = decode(&engine.files, row)?;
        found.push((engine.trees.tree(row.table, row.root), row.is_dropped));
    }
    Ok(found)
}

/// Reads each page from the file, past the pool: a page that is resident hides what became of its home.
fn check_homes(engine: &Engine, pages: &HashSet<PageId>) -> Result<()> {
    let mut pages: Vec<_> = pages.iter().copied().collect();
    pages.sort_unstable();
    let mut buffer = AlignedBuf::new(PAGE_SIZE);
    for pid in pages {
        let len = engine.data.read_at(&mut buffer, pid.offset())?;
        verify_page(&buffer[..len], pid, engine.log.durable())
            .map_err(|flaw| Error::corrupted(&engine.files.data, Place::Page(pid), flaw.why()))?;
    }
    Ok(())
}
