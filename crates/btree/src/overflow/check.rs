//! Checking chains while others read and write large values.
//!
//! A chain may be retired and freed while it is walked. Damage counts only if the row that led to the chain still does.

use crate::access::{Access, ReadGuard};
use crate::chain::{ChainPage, chain_of};
use crate::descend::Restarts;
use crate::format::{CHAIN_DATA, CHAIN_ROOT, ChainId, OVERFLOW, RowHeader, Stub};
use crate::node::{Goal, NodeView, Row};
use crate::tree::{Tree, Trees};
use foreshore_base::{Error, PageId, Result, Xid, crc32c_append};
use foreshore_buffer::AccessPattern;
use std::collections::HashSet;

/// A row that refers to a chain: one with a large value, or one of the table of chains.
#[derive(Clone, Copy, Debug)]
pub struct ChainRef<'a> {
    /// The key of the row.
    pub key: &'a [u8],
    /// The chain.
    pub chain: ChainId,
    stub: Option<Stub>,
}

impl Tree {
    /// Returns what a row that is not deleted refers to.
    pub(crate) fn chain_ref<'a>(&self, row: &Row<'a>) -> std::result::Result<Option<ChainRef<'a>>, &'static str> {
        let key = row.key;
        if self.is_of_chains() {
            return ChainId::from_row(key, row.value).map(|chain| Some(ChainRef { key, chain, stub: None }));
        }
        if row.header.flags & OVERFLOW == 0 {
            return Ok(None);
        }
        Stub::decode(row.value).map(|stub| Some(ChainRef { key, chain: stub.chain, stub: Some(stub) }))
    }

    /// Reads the chain of a row, and calls `met` before each page is read. A chain of a large value is whole.
    ///
    /// # Errors
    /// `Corrupted` if the row still refers to the chain; what `met` returns; `Io`, `OutOfFrames`, `Poisoned`.
    pub fn verify_chain(&self, found: &ChainRef<'_>, met: &mut dyn FnMut(PageId) -> Result<()>) -> Result<()> {
        let walked = match &found.stub {
            Some(stub) => self.read_whole(stub, met),
            None => self.walk_rest(found.chain, met),
        };
        match walked {
            Err(Error::Corrupted { .. }) if !self.refers_to(found.key, found.chain, &|_| false)? => Ok(()),
            walked => walked,
        }
    }

    fn read_whole(&self, stub: &Stub, met: &mut dyn FnMut(PageId) -> Result<()>) -> Result<()> {
        let mut crc = 0;
        self.read_chain(stub, met, &mut |bytes| crc = crc32c_append(crc, bytes))?;
        self.check_crc(stub, crc)
    }

    /// Walks what is there of a chain that is being built or freed. Damage of a page counts only if the page above it
    /// still names it: pages are freed by the records that shorten that one.
    fn walk_rest(&self, chain: ChainId, met: &mut dyn FnMut(PageId) -> Result<()>) -> Result<()> {
        let mut ahead = vec![(chain.head, CHAIN_ROOT + 1, None)];
        while let Some((pid, above, parent)) = ahead.pop() {
            let below = met(pid).and_then(|()| self.ids_below(pid, chain, above));
            match (below, parent) {
                (Ok((level, ids)), _) => ahead.extend(ids.into_iter().map(|id| (id, level, Some(pid)))),
                (Err(Error::Corrupted { .. }), Some(parent)) if !self.names(parent, chain, pid)? => {}
                (Err(error), _) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the level of a page of a chain, which is below `above`, and the ids in it.
    fn ids_below(&self, pid: PageId, chain: ChainId, above: u8) -> Result<(u8, Vec<PageId>)> {
        let page = self.named(self.pool().shared_as(pid, AccessPattern::Scan))?;
        let ids = ChainPage::parse(&page, chain).and_then(|view| match view.level {
            level if level >= above => Err("a page of a large value is in the wrong place"),
            CHAIN_DATA => Ok((CHAIN_DATA, Vec::new())),
            level => Ok((level, view.ids()?)),
        });
        ids.map_err(|why| self.corrupted(pid, why))
    }

    /// Returns whether an index page of a chain that was sound a moment ago still names `pid`.
    fn names(&self, index: PageId, chain: ChainId, pid: PageId) -> Result<bool> {
        match self.ids_below(index, chain, CHAIN_ROOT + 1) {
            Ok((_, ids)) => Ok(ids.contains(&pid)),
            // It is free too.
            Err(Error::Corrupted { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Walks what is left of the chains that the rows of a dropped table refer to. `pages` are its pages, and none is
    /// freed meanwhile.
    ///
    /// # Errors
    /// `Corrupted`; what `met` returns; errors of a read.
    pub fn verify_dropped_chains(
        &self,
        pages: &HashSet<PageId>,
        met: &mut dyn FnMut(PageId) -> Result<()>,
    ) -> Result<()> {
        for &pid in pages {
            let page = self.copy_page(pid)?;
            let damage = |why| self.corrupted(pid, why);
            let node = self.parse(pid, &page)?;
            for at in 0..if node.is_leaf() { node.len() } else { 0 } {
                let row = node.row(at).map_err(damage)?;
                if !row.header.is_ghost()
                    && let Some(found) = self.chain_ref(&row).map_err(damage)?
                {
                    self.walk_rest(found.chain, met)?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether the row of `key` exists and refers to a chain. A ghost counts if `keeps` says so of its writer.
    fn refers_to(&self, key: &[u8], chain: ChainId, keeps: &dyn Fn(Xid) -> bool) -> Result<bool> {
        let mut restarts = Restarts::default();
        loop {
            let leaf = self.descend::<ReadGuard<'_>>(Goal::At(key), 0, false, &mut restarts)?;
            // An open split leads to the right.
            let Ok(leaf) = leaf else { return Ok(true) };
            let mut value = Vec::new();
            let header = NodeView::view(leaf.page()).and_then(|node| {
                let Ok(at) = node.search_covered(key)? else { return Ok(None) };
                let row = node.place(at)?;
                node.append_to(row.value, &mut value);
                Ok(Some(row.header))
            });
            if leaf.holds() {
                let header: Option<RowHeader> = header.map_err(|why| self.corrupted(leaf.pid(), why))?;
                let is_there = |header: &RowHeader| !header.is_ghost() || keeps(header.xid);
                let Some(header) = header.filter(is_there) else { return Ok(false) };
                let found = self.chain_ref(&Row { header, key, value: &value });
                return Ok(found.is_ok_and(|found| found.is_some_and(|found| found.chain == chain)));
            }
            self.restart(&mut restarts);
        }
    }
}

impl Trees {
    /// Returns the chain that a page says it belongs to; `None` if it is no page of a chain.
    ///
    /// # Errors
    /// Errors of a read.
    pub fn chain_of(&self, pid: PageId) -> Result<Option<ChainId>> {
        Ok(chain_of(&self.pool().shared_as(pid, AccessPattern::Scan)?))
    }

    /// Returns whether the table of chains has a row of a chain. One that was deleted counts until its writer is
    /// settled, which may be about to write the row that refers to the chain.
    ///
    /// # Errors
    /// `Corrupted` for damage on the path to the row; errors of a read.
    pub fn has_chain(&self, chain: ChainId, is_settled: &dyn Fn(Xid) -> bool) -> Result<bool> {
        self.chains().refers_to(&chain.key(), chain, &|writer| writer != Xid::ZERO && !is_settled(writer))
    }
}
