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

/// Reads of a page's home until what is found there counts.
const HOME_TRIES: u32 = 4;

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
    let (report, owned) = db.run_with(TxnOptions::new().label("check"), |tx| tx.with(check_in))?;
    // Nobody waits any more while the file is read.
    let engine = db.engine();
    engine.pool.flush_all()?;
    check_homes(engine, owned)?;
    Ok(report)
}

/// Checks trees and maps, and returns all pages of the trees, too.
fn check_in(engine: &Engine, live: &mut Live) -> Result<(Report, HashSet<PageId>)> {
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
    Ok((report, owned))
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
fn check_homes(engine: &Engine, pages: HashSet<PageId>) -> Result<()> {
    let mut pages: Vec<_> = pages.into_iter().collect();
    pages.sort_unstable();
    let mut buffer = AlignedBuf::new(PAGE_SIZE);
    pages.into_iter().try_for_each(|pid| check_home(engine, pid, &mut buffer))
}

/// Checks the home of one page, which others may be writing, or may have freed since it was found in a tree.
fn check_home(engine: &Engine, pid: PageId, buffer: &mut AlignedBuf) -> Result<()> {
    for tries in 1.. {
        let len = engine.data.read_at(buffer, pid.offset())?;
        // The log is asked after the read: a page is written only once its changes are durable.
        let Err(flaw) = verify_page(&buffer[..len], pid, engine.log.durable()) else { break };
        if !engine.space.is_in_use(pid)? {
            break;
        }
        if tries == HOME_TRIES {
            return Err(Error::corrupted(&engine.files.data, Place::Page(pid), flaw.why()));
        }
        // Waits for the write that may have been met, and writes a page that is in use again.
        engine.pool.flush_all()?;
    }
    Ok(())
}
