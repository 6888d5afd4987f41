//! Checks of a whole database while it is in use.
//!
//! 1. *List.* The tables are read from the catalogue under its shared lock, which is released at once. A table with a
//!    larger id than any drawn by then was created later and is not checked.
//! 2. *Walk.* Each tree is walked beside its readers and writers. A shared intent prevents a drop of the table. It is
//!    renewed every few pages, so a transaction that drops the table waits for only one piece of the walk. The walk
//!    then ends. Each page must be allocated when the walk comes to it. A table that was renamed meanwhile is walked by
//!    its new name, which another list has.
//! 3. *Compare.* Each page that the maps have as allocated must be accounted for. A walk has met it, or its table was
//!    created later, or the keys of its tree lead to it. A page is allocated by the log record that makes it a node of
//!    its table. So a page that was allocated before it is read names its table, unless the table was dropped and the
//!    page freed in between.
//! 4. *Large values.* A row may have got or lost one behind the walk. A page of a chain that no walk has met is a
//!    suspect. It is cleared if the table of chains has its chain, or if another walk of its table meets it. A table
//!    that was dropped since it was listed has no suspects.
//! 5. *Homes.* The pages and their maps are read from the file, not from the pool.
//!
//! **Merges.** A merge of nodes would free pages behind a walk. The purge merges no nodes of a table that is walked,
//! and none of a table whose pages are being compared, until that piece of the comparison ends (see [`crate::purge`]).
//!
//! **Damage** of a page is noted, and the check continues. Pages below a damaged node are not walked, nor are tables
//! that a damaged leaf of the catalogue hides. They do not count as unused pages.

mod chains;
mod hold;
mod home;
mod listed;
mod pages;

use self::hold::{Hold, PIECE, dropped};
use self::home::check_home;
use self::listed::{Known, Listed, list};
use self::pages::ChainPages;
use crate::engine::Engine;
use crate::format::SEQUENCES;
use crate::purge::Walk;
use crate::{DamagedPage, Db, TxnOptions};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Place, Result, TableId};
use foreshore_btree::Tree;
use foreshore_btree::format::{CHAINS, ChainId};
use foreshore_buffer::format::page_table;
use foreshore_io::AlignedBuf;
use foreshore_space::{UNREACHED, map_of};
use foreshore_sync::pause;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// Reads of a page until an error counts: a single one may meet a page that is freed, truncated and reused.
const TRIES: u32 = 4;

/// Result of [`Db::check`] and [`Db::examine`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Tables, without the catalogue.
    pub tables: u64,
    /// Rows in them, as far as they can be read.
    pub rows: u64,
    /// Indexes of tables.
    pub indexes: u64,
    /// Entries in them, as far as they can be read.
    pub entries: u64,
    /// Pages in use: those of all trees, the maps and the superblocks.
    pub pages: u64,
    /// Pages among those that no tree uses, in parts of the file whose map was damaged once and is rebuilt.
    pub unused: u64,
    /// The pages that are damaged, in the order in which they were met.
    pub damaged: Vec<DamagedPage>,
}

impl Db {
    /// Checks the whole database while it is in use.
    ///
    /// - Every page has a sound checksum, in memory and on disk.
    /// - The order and the links of every tree hold.
    /// - Each page belongs to exactly one owner or is free.
    ///
    /// Readers and writers of rows do not wait for a check. A transaction that drops a table waits for a few pages of
    /// its walk. The check waits for transactions that have created or dropped tables. Checks run one after another; a
    /// check also runs when the maximum number of transactions is running.
    ///
    /// An index is checked as a tree. Whether it has an entry for each row is up to its key function, which is not
    /// stored: [`ByIndex::check`](crate::ByIndex::check) compares the two.
    ///
    /// Each row is counted as the walk meets it, so the rows of the report are not those of one moment.
    ///
    /// # Errors
    /// `Corrupted` with the first damage; otherwise those of a transaction.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
    /// let report = db.check()?;
    /// assert_eq!((report.tables, report.rows), (1, 1));
    /// // After damage, this one names every page.
    /// assert!(db.examine()?.damaged.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn check(&self) -> crate::Result<Report> {
        let report = self.examine()?;
        let Some(DamagedPage { page, table, why }) = report.damaged.first().cloned() else { return Ok(report) };
        Err(crate::Error::Corrupted {
            table,
            file: self.engine().storage.files().data.clone(),
            place: Place::Page(page),
            why,
        })
    }

    /// Checks the database as [`check`](Self::check) does, and continues after damage. The report names every damaged
    /// page, with its table if that is known.
    ///
    /// # Errors
    /// `Corrupted` for damage outside of pages; otherwise those of a transaction.
    pub fn examine(&self) -> crate::Result<Report> {
        let engine = self.engine();
        // WAIT: park - for the check that runs.
        let _turn = engine.queues.take_check();
        let (listed, hidden) = self.run_with(TxnOptions::check(), |tx| tx.with(list))?;
        let (owned, suspects, hurt, report) = (HashSet::new(), HashMap::new(), HashSet::new(), Report::default());
        let mut check = Check { engine, listed, owned, suspects, hurt, report };
        hidden.into_iter().try_for_each(|error| check.note(error))?;
        let mut missed = check.walk_all()?;
        for _ in 1..TRIES {
            if missed.is_empty() {
                break;
            }
            let (listed, _) = self.run_with(TxnOptions::check(), |tx| tx.with(list))?;
            missed = check.walk_renamed(missed, listed)?;
        }
        // Last: a chain that a row has lost by now has a row there.
        check.walk_chains()?;
        check.compare_maps()?;
        check.clear_suspects()?;
        check.engine.storage.pool().flush_all()?;
        check.homes()?;
        Ok(check.report)
    }
}

/// What the walk of a table has found.
enum Walked {
    /// A table in use, with so many rows.
    Rows(u64),
    /// The pages of a dropped table, or damage.
    Pages,
    /// The table was dropped or renamed since it was listed.
    Ended,
}

struct Check<'e> {
    engine: &'e Engine,
    listed: Listed,
    /// Pages that the walks have met.
    owned: HashSet<PageId>,
    /// Pages of chains that no walk has met, with the chain and the table that they name.
    suspects: HashMap<PageId, (ChainId, TableId)>,
    /// Tables with damage. It may hide rows with large values.
    hurt: HashSet<TableId>,
    report: Report,
}

impl<'e> Check<'e> {
    /// Notes the page that an error names, once, and returns any other error.
    fn note<E: Clone + Into<crate::Error>>(&mut self, error: E) -> Result<(), E> {
        let found = error.clone().into();
        let crate::Error::Corrupted { ref table, place: Place::Page(page), why, .. } = found else { return Err(error) };
        self.engine.damage.note(&found);
        self.hurt.extend(table.as_ref().map(|table| table.id));
        if self.report.damaged.iter().all(|known| known.page != page) {
            let table = table.as_ref().map(|table| table.id);
            self.report.damaged.push(DamagedPage::new(&self.engine.catalogue, page, table, why));
        }
        Ok(())
    }

    /// Walks all tables. Returns those of [`walk_each`](Self::walk_each).
    fn walk_all(&mut self) -> Result<Vec<TableId>> {
        let engine = self.engine;
        let in_use = &mut |pid| engine.storage.space().verify_in_use(pid);
        for tree in [engine.catalogue.tree(), engine.catalogue.sequences().tree()] {
            let _walk = engine.purger.walk(tree.table());
            match tree.verify_with(in_use, &mut |error| self.note(error), &mut |_| Ok(())) {
                Ok(found) => self.owned.extend(found.pages),
                Err(error) => self.note(error)?,
            }
        }
        self.walk_each(self.listed.tables.keys().copied().collect())
    }

    /// Walks the tables among `missed` that are in use. `listed` has the tables by now, and so by their new names.
    /// Returns those that end again.
    fn walk_renamed(&mut self, mut missed: Vec<TableId>, listed: Listed) -> Result<Vec<TableId>> {
        missed.retain(|id| matches!(listed.tables.get(id), Some(Known::Live(_))));
        self.listed.tables.extend(listed.tables.into_iter().filter(|(id, _)| missed.contains(id)));
        self.walk_each(missed)
    }

    /// Walks tables, also those that are renamed meanwhile. Returns the tables that a commit in progress ends, which
    /// may give them names that are not known yet.
    fn walk_each(&mut self, mut tables: Vec<TableId>) -> Result<Vec<TableId>> {
        let mut missed = Vec::new();
        while let Some(id) = tables.pop() {
            let known = self.listed.tables[&id].clone();
            match self.walk_table(&known)? {
                Walked::Rows(rows) => {
                    let is_index = self.listed.indexes.contains(&id);
                    let Report { tables, rows: in_tables, indexes, entries, .. } = &mut self.report;
                    let (trees, sum) = if is_index { (indexes, entries) } else { (tables, in_tables) };
                    *trees += 1;
                    *sum += rows;
                }
                Walked::Ended => match self.engine.catalogue.by_id(id).map(|info| &info.tree) {
                    Some(tree) if tree.is_ending() => missed.push(id),
                    Some(tree) if !tree.is_retired() => {
                        self.listed.tables.insert(id, Known::Live(tree.clone()));
                        tables.push(id);
                    }
                    // It was dropped.
                    _ => {}
                },
                Walked::Pages => {}
            }
        }
        Ok(missed)
    }

    /// Walks a table, and notes the damage that it meets.
    fn walk_table(&mut self, known: &Known) -> Result<Walked> {
        let engine = self.engine;
        let mut chains = ChainPages::default();
        let walked = match known {
            Known::Live(tree) => walk(engine, tree, &mut |error| self.note(error), &mut chains)
                .map(|(rows, pages)| (Walked::Rows(rows), pages)),
            Known::Dropped(tree) => walk_dropped(engine, tree, &mut chains).map(|pages| (Walked::Pages, pages)),
        };
        self.met(chains)?;
        match walked {
            Ok((walked, pages)) => {
                self.owned.extend(pages);
                Ok(walked)
            }
            Err(Error::TableDropped { .. }) => Ok(Walked::Ended),
            Err(error) => self.note(error).map(|()| Walked::Pages),
        }
    }

    fn compare_maps(&mut self) -> Result<()> {
        let space = self.engine.storage.space();
        // Walks of the tables of this piece. They are kept, because the begin of a walk may wait for a step of the
        // purge.
        let (mut walks, mut pages) = (HashMap::new(), 0_u32);
        let compared = space.each_allocated(&mut |pid| {
            pages = pages.wrapping_add(1);
            if pages.is_multiple_of(PIECE) {
                walks.clear();
            }
            if self.owned.contains(&pid) {
                return Ok(());
            }
            if self.suspect(pid) {
                return Ok(());
            }
            match self.unmet(pid, &mut walks) {
                Ok(()) | Err(Error::TableDropped { .. }) => Ok(()),
                Err(error) if error.damaged_page() == Some(pid) && space.may_be_unused(pid)? => {
                    self.report.unused += 1;
                    Ok(())
                }
                Err(error) => self.note(error),
            }
        });
        match compared {
            Ok(map) => self.report.pages = map.allocated,
            // A map is damaged.
            Err(error) => self.note(error)?,
        }
        Ok(())
    }

    /// Checks a page that was allocated a moment ago and that no walk has met.
    fn unmet(&self, pid: PageId, walks: &mut HashMap<TableId, Walk<'e>>) -> Result<()> {
        let engine = self.engine;
        let chains = &engine.catalogue.trees().chains();
        let unreached = || Err(engine.storage.space().corrupted(pid, UNREACHED));
        let table_of = || engine.storage.pool().shared(pid).map(|page| page_table(&page));
        let mut failed = 0;
        while engine.storage.space().is_in_use(pid)? {
            let table = match table_of() {
                Ok(table) => table,
                Err(_) if failed < TRIES => {
                    failed += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let tree = match self.listed.tables.get(&table) {
                _ if table == engine.catalogue.table() => engine.catalogue.tree(),
                _ if table == CHAINS => chains,
                _ if table == SEQUENCES => engine.catalogue.sequences().tree(),
                Some(Known::Live(tree) | Known::Dropped(tree)) => tree,
                // The page was read after the id was drawn.
                None if table > self.listed.last && table <= engine.catalogue.last_drawn() => {
                    return Ok(());
                }
                None if self.listed.is_partial => return Ok(()),
                None => return unreached(),
            };
            walks.entry(table).or_insert_with(|| engine.purger.walk(table));
            // The catalogue is not dropped.
            let _hold = self.listed.tables.get(&table).map(|_| Hold::take(engine, tree)).transpose()?;
            // From here on the tree keeps its pages. A page that is allocated before it is read belongs to the table
            // that it names.
            if !engine.storage.space().is_in_use(pid)? {
                return Ok(());
            }
            if table_of().ok() != Some(table) {
                failed += 1;
                continue;
            }
            pause::point("check: a page that no walk has met is in use");
            return match self.listed.tables.get(&table) {
                None | Some(Known::Live(_)) if tree.reaches(pid)? => Ok(()),
                // Its pages are about to be freed, or the last one has just been freed.
                Some(Known::Dropped(_)) if !engine.reclaimer.has(table) => Ok(()),
                // The table lost no page before the walk left it out.
                Some(Known::Dropped(_)) if tree.pages()?.contains(&pid) => Ok(()),
                _ => unreached(),
            };
        }
        Ok(())
    }

    /// Reads each page and each map from the file. A resident page says nothing about its home.
    fn homes(&mut self) -> Result<()> {
        let mut pages: Vec<_> = self.owned.iter().flat_map(|&pid| [map_of(pid), pid]).collect();
        pages.sort_unstable();
        pages.dedup();
        let mut buffers = [(); 2].map(|()| AlignedBuf::new(PAGE_SIZE));
        pages.into_iter().try_for_each(|pid| match check_home(self.engine, pid, &mut buffers) {
            Err(error) => self.note(error),
            Ok(()) => Ok(()),
        })
    }
}

/// Walks a tree whose table is in use, and returns its rows and pages.
fn walk(
    engine: &Engine,
    tree: &Tree,
    damage: &mut dyn FnMut(Error) -> Result<()>,
    chains: &mut ChainPages,
) -> Result<(u64, HashSet<PageId>)> {
    let _walk = engine.purger.walk(tree.table());
    let hold = RefCell::new(Hold::take(engine, tree)?);
    let in_use = |pid| {
        hold.borrow_mut().next_page()?;
        engine.storage.space().verify_in_use(pid)
    };
    let found =
        tree.verify_with(&mut |pid| in_use(pid), damage, &mut |found| chains.add(tree, found, &mut |pid| in_use(pid)))?;
    Ok((found.rows, found.pages))
}

/// Returns the pages that are left of a dropped table. None is freed meanwhile.
fn walk_dropped(engine: &Engine, tree: &Tree, chains: &mut ChainPages) -> Result<HashSet<PageId>> {
    let _hold = Hold::take(engine, tree)?;
    if !engine.reclaimer.has(tree.table()) {
        return Err(dropped(tree));
    }
    let pages = tree.pages()?;
    pages.iter().try_for_each(|&pid| engine.storage.space().verify_in_use(pid))?;
    // The chains that it refers to are freed with their rows.
    tree.verify_dropped_chains(&pages, &mut |pid| {
        engine.storage.space().verify_in_use(pid)?;
        chains.note(pid);
        Ok(())
    })?;
    Ok(pages)
}
