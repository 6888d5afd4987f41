//! The part of a check that looks at large values.

use super::listed::Known;
use super::pages::ChainPages;
use super::{Check, TRIES};
use foreshore_base::{PageId, Result, TableId};
use foreshore_btree::ChainRef;
use foreshore_btree::format::CHAINS;
use foreshore_buffer::format::page_table;
use foreshore_space::UNREACHED;
use std::collections::HashSet;

impl Check<'_> {
    /// Notes a page that no walk has met, if it is one of a chain. Returns whether it is.
    pub(super) fn suspect(&mut self, pid: PageId) -> bool {
        let Ok(Some(chain)) = self.engine.catalogue.trees().chain_of(pid) else { return false };
        let table = self.engine.storage.pool().shared(pid).map(|page| page_table(&page));
        self.suspects.extend(table.ok().map(|table| (pid, (chain, table))));
        true
    }

    /// Walks the table of chains.
    pub(super) fn walk_chains(&mut self) -> Result<()> {
        let engine = self.engine;
        let (tree, mut chains) = (engine.catalogue.trees().chains(), ChainPages::default());
        let walked = {
            let _walk = engine.purger.walk(CHAINS);
            let refers = &mut |found: &ChainRef<'_>| {
                chains.add(&tree, found, &mut |pid| {
                    engine.admission.check_open()?;
                    engine.storage.space().verify_in_use(pid)
                })
            };
            let in_use = &mut |pid| engine.storage.space().verify_in_use(pid);
            tree.verify_with(in_use, &mut |error| self.note(error), refers)
        };
        self.met(chains)?;
        match walked {
            Ok(found) => self.owned.extend(found.pages),
            Err(error) => self.note(error)?,
        }
        Ok(())
    }

    /// Notes what a walk has found of chains.
    pub(super) fn met(&mut self, chains: ChainPages) -> Result<()> {
        let (pages, damage) = chains.into_parts();
        self.owned.extend(pages);
        damage.into_iter().try_for_each(|error| self.note(error))
    }

    /// Looks again for what leads to the pages of chains that no walk has met.
    pub(super) fn clear_suspects(&mut self) -> Result<()> {
        let engine = self.engine;
        let is_settled = |xid| engine.admission.txns().visibility().is_settled(xid);
        for _ in 0..TRIES {
            let mut tables = HashSet::new();
            // A damaged leaf hides the rows that lead to a chain.
            let hides = |table: &TableId| self.hurt.contains(table) || self.hurt.contains(&CHAINS);
            self.suspects.retain(|_, (_, table)| !hides(table));
            let suspects = std::mem::take(&mut self.suspects);
            let suspects: Vec<_> = suspects.into_iter().filter(|(pid, _)| !self.owned.contains(pid)).collect();
            for (pid, (chain, table)) in suspects {
                let is_gone = !engine.storage.space().is_in_use(pid)?
                    || engine.catalogue.trees().chain_of(pid).is_ok_and(|found| found != Some(chain));
                let is_cleared = is_gone
                    || match engine.catalogue.trees().has_chain(chain, &is_settled) {
                        Err(error) => self.note(error).map(|()| true)?,
                        has => has?,
                    };
                if !is_cleared {
                    self.suspects.insert(pid, (chain, table));
                    tables.insert(table);
                }
            }
            for table in tables {
                match self.listed.tables.get(&table).cloned() {
                    Some(known) => {
                        self.walk_table(&known)?;
                        if matches!(&known, Known::Live(tree) if tree.is_retired()) {
                            // Dropped since it was listed: its chains are freed with its rows.
                            self.suspects.retain(|_, (_, named)| *named != table);
                        }
                    }
                    // Damage hides the table, or it was created later.
                    // The page was read after the id was drawn.
                    None if self.listed.is_partial
                        || table > self.listed.last && table <= engine.catalogue.last_drawn() =>
                    {
                        self.suspects.retain(|_, (_, named)| *named != table);
                    }
                    None => {}
                }
            }
            self.suspects.retain(|pid, _| !self.owned.contains(pid));
            if self.suspects.is_empty() {
                return Ok(());
            }
        }
        for pid in std::mem::take(&mut self.suspects).into_keys() {
            match engine.storage.space().may_be_unused(pid)? {
                true => self.report.unused += 1,
                false => self.note(engine.storage.space().corrupted(pid, UNREACHED))?,
            }
        }
        Ok(())
    }
}
