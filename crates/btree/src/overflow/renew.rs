//! Large values in pages at the end of the file are written again, to lower pages.
//!
//! A chain never changes, and old versions of a row lead to it. So it does not move: a transaction replaces it by a
//! copy, as if the row got the same value again. The old chain is retired, and its pages become free past the last
//! snapshot that needs them.

use super::read::ChainReader;
use super::stream::ValueWriter;
use super::write::ChainWriter;
use crate::chain::ChainPage;
use crate::format::{CHAIN_DATA, CHAIN_ROOT, OVERFLOW, Stub};
use crate::intent::{Done, Intent};
use crate::node::Goal;
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result};
use foreshore_buffer::AccessPattern;
use foreshore_lock::LockWait;
use foreshore_txn::Txn;

/// Bytes that are copied at once.
const PIECE: u64 = 64 << 10;

/// Large values in the pages from some page on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FarValues {
    /// The keys of their rows, and the pages of each value.
    pub rows: Vec<(Vec<u8>, u64)>,
    /// The key of the leaf to continue with; `None` at the end of the table.
    pub next: Option<Vec<u8>>,
}

impl Tree {
    /// Finds the rows in the leaf of `key` whose large values have a page at or behind `limit`. The caller prevents a
    /// drop of the table. A value that is replaced meanwhile may be missed.
    ///
    /// # Errors
    /// `Corrupted` for a damaged leaf; `Io`, `OutOfFrames`, `Poisoned`.
    pub fn far_values(&self, txn: &mut Txn, key: &[u8], limit: PageId) -> Result<FarValues> {
        let mut page = [0; PAGE_SIZE];
        let pid = self.copy_node::<true>(&mut Structure::of_freeing(txn), Goal::At(key), 0, &mut page)?;
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, &page)?;
        let next = node.high().map_err(damage)?.map(<[u8]>::to_vec);
        let mut found = FarValues { rows: Vec::new(), next };
        for at in 0..if self.is_of_chains() { 0 } else { node.len() } {
            let row = node.row(at).map_err(damage)?;
            if row.header.is_ghost() || row.header.flags & OVERFLOW == 0 {
                continue;
            }
            let stub = Stub::decode(row.value).map_err(damage)?;
            match self.is_far(&stub, limit) {
                Ok(true) => found.rows.push((row.key.to_vec(), stub.pages())),
                // A chain that was freed meanwhile, or damage, which a check reports.
                Ok(false) | Err(Error::Corrupted { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Returns whether a page of a chain lies at or behind `limit`. Reads no data page.
    fn is_far(&self, stub: &Stub, limit: PageId) -> Result<bool> {
        if stub.pages() == 1 {
            return Ok(stub.chain.head >= limit);
        }
        let mut ahead = vec![(stub.chain.head, CHAIN_ROOT + 1)];
        while let Some((pid, above)) = ahead.pop() {
            if pid >= limit {
                return Ok(true);
            }
            let page = self.named(self.pool().shared_as(pid, AccessPattern::Scan))?;
            let damage = |why| self.corrupted(pid, why);
            let view = ChainPage::parse(&page, stub.chain).map_err(damage)?;
            if view.level >= above {
                return Err(damage("a page of a large value is in the wrong place"));
            }
            if view.level == CHAIN_DATA {
                continue;
            }
            let (level, ids) = (view.level, view.ids().map_err(damage)?);
            drop(page);
            if ids.iter().any(|&id| id >= limit) {
                return Ok(true);
            }
            // Only a root leads to pages with ids, and these follow its data pages.
            let indexes = ids.iter().skip(crate::format::DIRECT);
            ahead.extend(indexes.take(if level == CHAIN_ROOT { usize::MAX } else { 0 }).map(|&id| (id, level)));
        }
        Ok(false)
    }

    /// Gives the row of `key` a copy of its large value, if one of its pages lies at or behind `limit`. Returns false
    /// if there is nothing to do, or if another transaction has locked the row.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); `DiskFull` if there are too few free pages before `limit`. The transaction then has
    /// to be rolled back.
    pub fn renew_value(&self, txn: &mut Txn, key: &[u8], limit: PageId) -> Result<bool> {
        let mut held = Vec::new();
        let found = self.write_by(txn, (key, Intent::Take), LockWait::SkipLocked, &mut held)?;
        if found != Done::Large {
            return Ok(false);
        }
        let stub = self.stub(&held)?;
        // The lock keeps the chain.
        if !self.is_far(&stub, limit)? {
            return Ok(false);
        }
        let mut writer = ValueWriter { tree: self, chain: ChainWriter::below(self, txn, limit)? };
        let (mut reader, mut bytes) = (ChainReader::new(stub), Vec::new());
        for from in (0..stub.len).step_by(PIECE as usize) {
            bytes.clear();
            let read = reader.read(self, from..stub.len.min(from + PIECE), &mut |_| Ok(()), &mut |part| {
                bytes.extend_from_slice(part);
            });
            read.and_then(|()| writer.write(txn, &bytes)).inspect_err(|_| writer.discard(txn))?;
        }
        assert_eq!(writer.chain.len(), stub.len, "bytes of the copy of a large value");
        self.check_crc(&stub, writer.chain.crc()).inspect_err(|_| writer.discard(txn))?;
        writer.finish(txn, key, &mut held)
    }
}
