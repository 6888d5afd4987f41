//! Trees of a database, and what they share.

use crate::end::TableEnd;
use crate::node::{Damage, Node};
use crate::queue::{LeafQueue, QueuedLeaf, QueuedRange};
use crate::record::TreeKind;
use foreshore_base::limits::{MAX_KEY, MAX_VALUE};
use foreshore_base::{Error, PageId, Result, TableId};
use foreshore_buffer::{Change, ChangeRecord, ExclusiveGuard, Pool, change};
use foreshore_space::{Purpose, Space};
use foreshore_sync::{ShardedCounter, Signal};
use foreshore_txn::{Txn, UndoContext};
use foreshore_wal::{Dep, Session};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All trees of a database. Redo and undo of their records are its [`foreshore_txn::ResourceManager`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Trees {
    base: Arc<Base>,
}

/// What trees stand on.
#[derive(Debug)]
struct Base {
    pool: Pool,
    space: Arc<Space>,
    counters: Counters,
    queue: LeafQueue,
}

#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) leaf_splits: ShardedCounter,
    pub(crate) inner_splits: ShardedCounter,
    pub(crate) root_splits: ShardedCounter,
    pub(crate) purges: ShardedCounter,
    pub(crate) merges: ShardedCounter,
    pub(crate) shifts: ShardedCounter,
    pub(crate) collapses: ShardedCounter,
    pub(crate) restarts: ShardedCounter,
}

/// Changes of structure, and what they and others disturbed, since the trees were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeStats {
    /// Leaves split.
    pub leaf_splits: u64,
    /// Inner nodes split.
    pub inner_splits: u64,
    /// Roots that handed their contents down.
    pub root_splits: u64,
    /// Leaves that ghosts were taken out of.
    pub purges: u64,
    /// Nodes that a neighbour took the entries of, and whose pages are free.
    pub merges: u64,
    /// Leaves that gave rows to their left neighbour, so that three became two.
    pub shifts: u64,
    /// Roots that took what their only child had.
    pub collapses: u64,
    /// Reads of nodes that were in vain because the node changed meanwhile.
    pub restarts: u64,
}

impl Trees {
    /// Trees in the pages of `pool`, which `space` hands out.
    #[must_use]
    pub fn new(pool: Pool, space: Arc<Space>) -> Self {
        let counters = Counters {
            leaf_splits: ShardedCounter::new(),
            inner_splits: ShardedCounter::new(),
            root_splits: ShardedCounter::new(),
            purges: ShardedCounter::new(),
            merges: ShardedCounter::new(),
            shifts: ShardedCounter::new(),
            collapses: ShardedCounter::new(),
            restarts: ShardedCounter::new(),
        };
        Self { base: Arc::new(Base { pool, space, counters, queue: LeafQueue::new() }) }
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> TreeStats {
        let Counters { leaf_splits, inner_splits, root_splits, purges, merges, shifts, collapses, restarts } =
            self.counters();
        TreeStats {
            leaf_splits: leaf_splits.sum(),
            inner_splits: inner_splits.sum(),
            root_splits: root_splits.sum(),
            purges: purges.sum(),
            merges: merges.sum(),
            shifts: shifts.sum(),
            collapses: collapses.sum(),
            restarts: restarts.sum(),
        }
    }

    /// The tree of `table`, whose root is page `root`.
    #[must_use]
    pub fn tree(&self, table: TableId, root: PageId) -> Tree {
        Tree { trees: self.clone(), table, root, end: Arc::default() }
    }

    /// The signal of the thread that grows the data file.
    #[must_use]
    pub fn space_signal(&self) -> Signal {
        self.base.space.signal()
    }

    /// The signal of the thread that purges: given when a leaf is queued and [`purge_sleeps`](Self::purge_sleeps) has
    /// said yes.
    #[must_use]
    pub fn purge_signal(&self) -> Signal {
        self.queue().signal()
    }

    /// Says that the thread that purges is awake and needs no signal, and returns whether a leaf is queued.
    #[must_use]
    pub fn wake_purge(&self) -> bool {
        self.queue().wake();
        !self.queue().is_empty()
    }

    /// Takes out the leaves, about `most` at most, and all ranges of leaves that have deleted rows or little else.
    pub fn take_queued(&self, most: usize, out: impl FnMut(QueuedLeaf)) -> BTreeMap<TableId, QueuedRange> {
        self.queue().wake();
        self.queue().take(most, out);
        self.queue().take_ranges()
    }

    /// Says that the thread that purges waits for its signal. False if a leaf is queued: then it does not.
    #[must_use]
    pub fn purge_sleeps(&self) -> bool {
        self.queue().sleep()
    }

    pub(crate) fn queue(&self) -> &LeafQueue {
        &self.base.queue
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.base.counters
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.base.pool
    }

    pub(crate) fn space(&self) -> &Space {
        &self.base.space
    }

    pub(crate) fn corrupted(&self, pid: PageId, why: Damage) -> Error {
        self.space().corrupted(pid, why)
    }
}

/// One table: a B+-tree. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tree {
    pub(crate) trees: Trees,
    pub(crate) table: TableId,
    pub(crate) root: PageId,
    /// Shared by clones.
    pub(crate) end: Arc<TableEnd>,
}

impl Tree {
    /// The table that the tree holds.
    #[must_use]
    pub const fn table(&self) -> TableId {
        self.table
    }

    /// The page of the root. It stays the same for as long as the table exists.
    #[must_use]
    pub const fn root(&self) -> PageId {
        self.root
    }

    pub(crate) fn pool(&self) -> &Pool {
        self.trees.pool()
    }

    #[cold]
    pub(crate) fn corrupted(&self, pid: PageId, why: Damage) -> Error {
        self.trees.corrupted(pid, why).in_table(self.table)
    }

    /// Passes `result` on, with this table in an error that names a page of it.
    pub(crate) fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.in_table(self.table))
    }

    /// A view of a page of this tree.
    #[inline]
    pub(crate) fn parse<'p>(&self, pid: PageId, page: &'p [u8]) -> Result<Node<'p>> {
        let node = Node::parse(page).map_err(|why| self.corrupted(pid, why))?;
        if node.table() != self.table {
            return Err(self.corrupted(pid, "a node of another table"));
        }
        Ok(node)
    }

    /// Refuses a key over the limit.
    #[inline]
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        match key.len() {
            ..=MAX_KEY => Ok(()),
            len => Err(Error::KeyTooLarge { table: self.table.into(), len, max: MAX_KEY }),
        }
    }

    /// Refuses a value over the limit.
    #[inline]
    pub(crate) fn check_value(&self, value: &[u8]) -> Result<()> {
        match value.len() {
            ..=MAX_VALUE => Ok(()),
            len => Err(Error::ValueTooLarge { table: Some(self.table.into()), len, max: MAX_VALUE }),
        }
    }
}

/// Changes of structure: not part of any transaction and never undone. Run on the session of whoever needs them.
pub(crate) struct Structure<'s> {
    pub(crate) session: &'s mut Session,
    /// What log space is taken for.
    pub(crate) purpose: Purpose,
    /// What pages are taken for.
    pub(crate) pages: Purpose,
    /// Whether open splits on the way are finished.
    pub(crate) links: bool,
}

impl<'s> Structure<'s> {
    /// For those who read or write data, and help on their way.
    pub(crate) fn of(txn: &'s mut Txn) -> Self {
        Self { session: txn.session(), purpose: Purpose::Data, pages: Purpose::Data, links: true }
    }

    /// For readers by a snapshot. They hold no lock of the table, which may be dropped meanwhile, and leave it as it
    /// is.
    pub(crate) fn of_reader(txn: &'s mut Txn) -> Self {
        Self { links: false, ..Self::of(txn) }
    }

    /// For those who free pages. They may need one to link what a full disk has left open, and give back more.
    pub(crate) fn of_freeing(txn: &'s mut Txn) -> Self {
        Self { pages: Purpose::Rollback, ..Self::of(txn) }
    }

    /// For those who take a transaction back.
    pub(crate) fn of_undo(context: &'s mut UndoContext<'_>) -> Self {
        Self { session: context.session(), purpose: Purpose::Rollback, pages: Purpose::Rollback, links: true }
    }

    /// Makes sure that records of `bytes` together (see [`change_cost`]) can be appended. Before the first latch.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<()> {
        match self.purpose {
            Purpose::Data => self.session.reserve(bytes),
            Purpose::Rollback => self.session.reserve_rollback(bytes),
        }
    }

    /// Applies a record to its pages and logs it.
    pub(crate) fn apply(
        &mut self,
        trees: &Trees,
        record: &ChangeRecord<'_>,
        pages: &mut [&mut ExclusiveGuard<'_>],
        dep: Dep,
    ) -> Result<()> {
        trees.apply(record, pages)?;
        change(self.session, dep, 0, &to_log(record, &[record.body]), pages);
        Ok(())
    }
}

/// What is logged of a record.
pub(crate) const fn to_log<'a>(record: &ChangeRecord<'_>, body: &'a [&'a [u8]]) -> Change<'a> {
    Change { kind: record.kind, flags: record.flags, init_mask: record.init_mask, table: record.table, body }
}

/// A record of a tree with its body in one piece, as it will be read again.
pub(crate) fn record<'a>(
    kind: TreeKind,
    flags: u8,
    init_mask: u8,
    table: TableId,
    pages: &[PageId],
    body: &'a [u8],
) -> ChangeRecord<'a> {
    let count = pages.len();
    assert!(u32::from(init_mask) >> count == 0, "a record of {count} pages makes the pages {init_mask:#b} new");
    let mut record = ChangeRecord::new(kind as u8, flags, init_mask, table, pages);
    record.body = body;
    record
}

impl Trees {
    /// Applies a record to its pages, which are latched in its order.
    ///
    /// A damaged page is refused before it is changed. If an earlier page of the record has been changed by then,
    /// memory and log contradict each other, and the log stops.
    pub(crate) fn apply(&self, record: &ChangeRecord<'_>, pages: &mut [&mut ExclusiveGuard<'_>]) -> Result<()> {
        assert_eq!(record.pages().len(), pages.len(), "a record names the pages that it changes");
        for (index, page) in pages.iter_mut().enumerate() {
            let pid = page.pid();
            assert_eq!(record.pages()[index], pid, "pages in the order of the record");
            crate::apply::apply(record, index, *page).map_err(|why| {
                let error = self.corrupted(pid, why);
                if index > 0 {
                    self.pool().log().poison(&error);
                }
                error
            })?;
        }
        Ok(())
    }
}
