//! Freeing chains.
//!
//! A chain of the table of chains may go if, under the latch of the leaf of its row,
//!
//! - the row exists,
//! - its writer is settled, or it has none: a retired chain is needed by no version that a reader may see,
//! - the transaction that has built it is settled: no row will refer to it any more.
//!
//! A transaction that is rolled back changes its rows of the table of chains, under their latches, before it ends. So a
//! row that is found after its writer has ended stays, and no operation changes it but the one that frees the chain. A
//! claim keeps out others ([`crate::claims`]).
//!
//! Pages are freed from the end of the value, each group of them by one record that shortens their index page. The
//! last record removes the row and frees the first page. An interrupted freeing leaves a shorter chain, and the next
//! one continues. As for dropped tables, freed pages may be used again at once (see [`crate::drop`]). The last change
//! of a data page is the record that linked it, and that one changed the index page too: its LSN stands for theirs.
//!
//! Rows of a dropped table refer to their chains until these are freed, in the same way.

use crate::chain::ChainPage;
use crate::format::{CHAIN_DATA, CHAIN_ID, ChainId, DIRECT, OVERFLOW, Stub};
use crate::node::{Damage, Goal};
use crate::record::{DropTable, RowChange, TreeKind};
use crate::recover::{GHOST_BODY, to_ghost};
use crate::sound::assert_fits;
use crate::tree::{Structure, Tree, Trees, record};
use foreshore_base::codec::Put;
use foreshore_base::limits::{MAX_KEY, PAGE_SIZE};
use foreshore_base::{Error, Lsn, PageId, Result, TableId, Xid};
use foreshore_buffer::format::page_table;
use foreshore_buffer::{AccessPattern, ExclusiveGuard, change_cost};
use foreshore_space::{is_allocated, map_of};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use foreshore_txn::Txn;
use foreshore_wal::Dep;

/// Most pages that one record frees.
const MAX_CUT: usize = 512;
/// Largest body of the record that ends a chain.
const MAX_END_BODY: usize = 16 + MAX_KEY + GHOST_BODY;

/// The result of [`Trees::free_chains`].
#[derive(Clone, Debug, Default)]
pub struct FreedChains {
    /// The key to continue with; `None` at the end of the table.
    pub next: Option<Vec<u8>>,
    /// Chains that were freed.
    pub freed: usize,
    /// Chains that something needs.
    pub left: usize,
    /// The damage that keeps a chain from being freed, of the first one.
    pub damage: Option<Error>,
}

/// The row that refers to a chain while it is freed.
#[derive(Clone, Copy)]
struct Holder<'a> {
    tree: &'a Tree,
    key: &'a [u8],
}

impl Trees {
    /// Returns whether a chain was noted since the last call.
    #[must_use]
    pub fn take_chain_note(&self) -> bool {
        self.claims().take_note()
    }

    /// Returns whether the table of chains may have a row.
    ///
    /// # Errors
    /// `Corrupted`; errors of a read.
    pub fn has_chains(&self) -> Result<bool> {
        let chains = self.chains();
        let root = chains.named(self.pool().shared(chains.root()))?;
        let node = chains.parse(chains.root(), &root)?;
        Ok(!node.is_leaf() || node.len() > 0)
    }

    /// Frees chains that nothing needs, in one leaf of the table of chains from key `from` on, with at most about
    /// `records` changes. What is freed cannot be rolled back.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `OutOfFrames`, `Poisoned`. Freed pages stay free, and the next try continues.
    pub fn free_chains(&self, txn: &mut Txn, from: &[u8], records: usize) -> Result<FreedChains> {
        txn.freeing(|txn| self.free_chains_of(txn, from, records))
    }

    fn free_chains_of(&self, txn: &mut Txn, from: &[u8], records: usize) -> Result<FreedChains> {
        // A snapshot that an older view counts may have ended.
        txn.refresh_view();
        match self.free_chains_in_leaf(txn, from, records) {
            // Its chains stay, and those behind it too if the path to them is lost.
            Err(error @ Error::Corrupted { .. }) => {
                let next = self.chains().next_after_damage(from)?;
                Ok(FreedChains { next, damage: Some(error), ..FreedChains::default() })
            }
            found => found,
        }
    }

    fn free_chains_in_leaf(&self, txn: &mut Txn, from: &[u8], records: usize) -> Result<FreedChains> {
        let chains = self.chains();
        let mut page = [0; PAGE_SIZE];
        let pid = chains.copy_node::<true>(&mut Structure::of_freeing(txn), Goal::At(from), 0, &mut page)?;
        let damage = |why| chains.corrupted(pid, why);
        let node = chains.parse(pid, &page)?;
        let next = node.high().map_err(damage)?.map(<[u8]>::to_vec);
        let (mut found, mut records) = (FreedChains { next, ..FreedChains::default() }, records);
        for at in 0..node.len() {
            let row = node.row(at).map_err(damage)?;
            if row.header.is_ghost() || row.key < from {
                continue;
            }
            let freed = match ChainId::from_row(row.key, row.value) {
                Ok(chain) => self.free_unneeded(txn, chain, &mut records),
                Err(why) => Err(damage(why)),
            };
            match freed {
                Ok(None) => found.left += 1,
                Ok(Some(true)) => found.freed += 1,
                Ok(Some(false)) => {
                    found.next = Some(row.key.to_vec());
                    break;
                }
                Err(error @ Error::Corrupted { .. }) => drop(found.damage.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Frees a chain, as far as `records` go, and returns whether all of it is free; `None` if it has to stay.
    fn free_unneeded(&self, txn: &mut Txn, chain: ChainId, records: &mut usize) -> Result<Option<bool>> {
        let claim = self.claims().claim(chain.head);
        if claim.is_none() && !mutant("sabotage: two threads free one large value") {
            return Ok(None);
        }
        let chains = self.chains();
        let Some(lsn) = chains.may_free(txn, chain)? else { return Ok(None) };
        let key = chain.key();
        let structure = &mut Structure::of_freeing(txn);
        // What is freed is not recovered without the state of the row that allows it.
        let dep = Dep::none().page(lsn);
        chains.free_from_end(structure, Holder { tree: &chains, key: &key }, (chain, dep), records).map(Some)
    }

    /// Frees a chain that this transaction has begun, and that no row refers to.
    pub(crate) fn free_own(&self, txn: &mut Txn, chain: ChainId) -> Result<()> {
        let (chains, key) = (self.chains(), chain.key());
        txn.freeing(|txn| {
            let holder = Holder { tree: &chains, key: &key };
            let structure = &mut Structure::of_freeing(txn);
            chains.free_from_end(structure, holder, (chain, Dep::none()), &mut usize::MAX.clone())
        })?;
        Ok(())
    }
}

impl Tree {
    /// Returns the LSN of the leaf with the row of a chain that may go; `None` if it has to stay. See the head of the
    /// module.
    fn may_free(&self, txn: &mut Txn, chain: ChainId) -> Result<Option<Lsn>> {
        let leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of_freeing(txn), &chain.key(), 0, 0)?;
        let damage = |why| self.corrupted(leaf.pid(), why);
        let node = self.parse(leaf.pid(), &leaf)?;
        let Ok(at) = node.search(&chain.key()).map_err(damage)? else { return Ok(None) };
        let row = node.row(at).map_err(damage)?;
        if row.header.is_ghost() || row.value != chain.value() {
            return Ok(None);
        }
        let writer = row.header.xid;
        let is_unneeded = writer == Xid::ZERO
            || txn.is_settled(writer)
            || mutant("sabotage: a large value goes that a snapshot needs");
        let is_built = txn.is_settled(chain.birth) || mutant("sabotage: a large value goes while it is written");
        Ok((is_unneeded && is_built).then(|| leaf.lsn()))
    }

    /// Frees the last chain that a leaf of a dropped table refers to. Returns false if there is none.
    pub(crate) fn free_last_chain(&self, structure: &mut Structure<'_>, leaf: PageId, dep: Dep) -> Result<bool> {
        let (key, chain) = {
            let page = self.named(self.pool().shared(leaf))?;
            let damage = |why| self.corrupted(leaf, why);
            let node = self.parse(leaf, &page)?;
            let mut last = None;
            for at in (0..node.len()).rev() {
                let row = node.row(at).map_err(damage)?;
                // A deleted row has retired its chain.
                if !row.header.is_ghost() && row.header.flags & OVERFLOW != 0 {
                    last = Some((row.key.to_vec(), Stub::decode(row.value).map_err(damage)?.chain));
                    break;
                }
            }
            match last {
                Some(found) => found,
                None => return Ok(false),
            }
        };
        let holder = Holder { tree: self, key: &key };
        self.named(self.free_from_end(structure, holder, (chain, dep), &mut 1)).map(|_| true)
    }

    /// Frees pages of a chain from its end, as far as `records` go, and returns whether all of it is free.
    fn free_from_end(
        &self,
        structure: &mut Structure<'_>,
        holder: Holder<'_>,
        (chain, dep): (ChainId, Dep),
        records: &mut usize,
    ) -> Result<bool> {
        while *records > 0 {
            *records -= 1;
            let (table, ids) = self.ids_of(chain.head, chain)?;
            let Some((&last, before)) = ids.split_last() else {
                self.end_chain(structure, holder, (chain, dep))?;
                return Ok(true);
            };
            if before.len() < DIRECT {
                self.cut_chain(structure, (table, chain.head, &ids), dep)?;
                continue;
            }
            let (_, below) = self.ids_of(last, chain)?;
            if below.is_empty() {
                // Its ids were cut by records that need not have touched the pages of this one.
                let dep = dep.freed(self.leave_page(last)?);
                self.cut_chain(structure, (table, chain.head, &[last]), dep)?;
            } else {
                self.cut_chain(structure, (table, last, &below), dep)?;
            }
            pause::point("btree: pages of a chain are free");
        }
        Ok(false)
    }

    /// Returns the table in the header of a page of a chain, and its ids; none of a data page.
    fn ids_of(&self, pid: PageId, chain: ChainId) -> Result<(TableId, Vec<PageId>)> {
        let page = self.pool().shared_as(pid, AccessPattern::Scan)?;
        let ids = |page: &ChainPage<'_>| if page.level == CHAIN_DATA { Ok(Vec::new()) } else { page.ids() };
        let ids = ChainPage::parse(&page, chain).and_then(|page| ids(&page));
        Ok((page_table(&page), ids.map_err(|why: Damage| self.trees().corrupted(pid, why))?))
    }

    /// Frees the last pages below an index page: as many as have their bits in one map page.
    fn cut_chain(
        &self,
        structure: &mut Structure<'_>,
        (table, parent, ids): (TableId, PageId, &[PageId]),
        dep: Dep,
    ) -> Result<()> {
        let Some(&last) = ids.last() else { return Ok(()) };
        let count = ids.iter().rev().take(MAX_CUT).take_while(|&&id| map_of(id) == map_of(last)).count();
        let ids = &ids[ids.len() - count..];
        assert!(ids.iter().all(|&id| map_of(id) == map_of(last)), "one record frees pages of two maps");
        let mut body = Vec::with_capacity(count * CHAIN_ID);
        ids.iter().for_each(|id| body.put_u32(u32::try_from(id.0).expect("page ids have 31 bits")));
        let map = self.trees().space().map_page(last, structure.session, structure.purpose)?;
        let parent = self.pool().pin(parent)?;
        structure.reserve(change_cost(2, body.len()))?;
        {
            let (mut parent, mut map) = (parent.exclusive(), map.exclusive());
            self.check_allocated(&map, ids)?;
            let record = record(TreeKind::ChainCut, 0, 0, table, &[parent.pid(), map.pid()], &body);
            structure.apply(self.trees(), &record, &mut [&mut parent, &mut map], dep)?;
        }
        ids.iter().for_each(|&id| self.trees().space().give_back(id));
        Ok(())
    }

    /// Checks that a map page has the bits of pages, before a record that clears them changes any page.
    fn check_allocated(&self, map: &ExclusiveGuard<'_>, ids: &[PageId]) -> Result<()> {
        let are_allocated = ids.iter().try_fold(true, |all, &id| Ok(all && is_allocated(map, id)?));
        match are_allocated {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.trees().corrupted(map.pid(), "a page of a large value is free")),
            Err(why) => Err(self.trees().corrupted(map.pid(), why)),
        }
    }

    /// Removes the row that refers to a chain of which only the first page is left, and frees that page.
    fn end_chain(
        &self,
        structure: &mut Structure<'_>,
        Holder { tree, key }: Holder<'_>,
        (chain, dep): (ChainId, Dep),
    ) -> Result<()> {
        let lsn = self.leave_page(chain.head)?;
        let map = self.trees().space().map_page(chain.head, structure.session, structure.purpose)?;
        let mut erase = Vec::with_capacity(2 + key.len());
        erase.put_short_bytes(key);
        let ghost = to_ghost(key);
        {
            let mut leaf: ExclusiveGuard<'_> = tree.find(structure, key, 0, change_cost(2, MAX_END_BODY))?;
            let pid = leaf.pid();
            // As after a rollback: otherwise searches for the next key would pass many empty leaves.
            let is_last = tree.parse(pid, &leaf)?.len() == 1 && pid != tree.root() && !tree.is_retired();
            let row = if is_last {
                RowChange { kind: TreeKind::RowRestore, body: &ghost }
            } else {
                RowChange { kind: TreeKind::RowErase, body: &erase }
            };
            let mut body = Vec::with_capacity(MAX_END_BODY);
            DropTable { root: chain.head, row }.encode(&mut body);
            assert_fits(&body, MAX_END_BODY, "the end of a chain");
            let mut map = map.exclusive();
            self.check_allocated(&map, &[chain.head])?;
            let record = record(TreeKind::ChainEnd, 0, 0, tree.table(), &[pid, map.pid()], &body);
            structure.apply(self.trees(), &record, &mut [&mut leaf, &mut map], dep.freed(lsn))?;
            let node = tree.parse(pid, &leaf)?;
            tree.note_unless_row(pid, &node, key).map_err(|why| tree.corrupted(pid, why))?;
        }
        self.trees().space().give_back(chain.head);
        self.trees().counters().chains_freed.add(1);
        pause::point("btree: a chain is free");
        Ok(())
    }
}
