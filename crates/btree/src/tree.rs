//! The trees of a database, and the parts that they share.

use crate::claims::Claims;
use crate::contention::Contention;
use crate::leaf_list::LeafList;
use crate::node::{Damage, Node};
use crate::queue::{LeafQueue, QueuedLeaf, QueuedRange};
use crate::record::TreeKind;
use crate::stage::TableEnd;
use foreshore_base::limits::{MAX_INLINE_VALUE, MAX_KEY};
use foreshore_base::{Error, PageId, Result, TableId};
use foreshore_buffer::{Change, ChangeRecord, ExclusiveGuard, Pool, change};
use foreshore_space::{Purpose, Space};
use foreshore_sync::{ShardedCounter, Signal};
use foreshore_txn::{Txn, UndoContext};
use foreshore_wal::{Dep, Session};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All trees of a database. It implements redo and undo of their records, as the [`foreshore_txn::ResourceManager`].
/// Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Trees {
    base: Arc<Base>,
}

/// The parts below the trees.
#[derive(Debug)]
struct Base {
    pool: Pool,
    space: Arc<Space>,
    counters: Counters,
    queue: LeafQueue,
    claims: Claims,
    contention: Contention,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) leaf_splits: ShardedCounter,
    pub(crate) loaded_leaves: ShardedCounter,
    pub(crate) contention_splits: ShardedCounter,
    pub(crate) inner_splits: ShardedCounter,
    pub(crate) root_splits: ShardedCounter,
    pub(crate) purges: ShardedCounter,
    pub(crate) merges: ShardedCounter,
    pub(crate) shifts: ShardedCounter,
    pub(crate) collapses: ShardedCounter,
    pub(crate) moves: ShardedCounter,
    pub(crate) chains_built: ShardedCounter,
    pub(crate) chains_freed: ShardedCounter,
    pub(crate) restarts: ShardedCounter,
}

/// Counters of structure changes and restarts since the trees were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeStats {
    /// Leaves that were split.
    pub leaf_splits: u64,
    /// Leaves that were built whole, from rows that were loaded.
    pub loaded_leaves: u64,
    /// Splits of leaves, or of roots before, because several threads changed rows of one leaf at once.
    pub contention_splits: u64,
    /// Inner nodes that were split.
    pub inner_splits: u64,
    /// Roots that moved their contents to a child.
    pub root_splits: u64,
    /// Purges of ghosts from a leaf.
    pub purges: u64,
    /// Nodes that were merged into a neighbour; their pages were freed.
    pub merges: u64,
    /// Leaves that gave rows to their left neighbour, so that three became two.
    pub shifts: u64,
    /// Roots that took the content of their only child.
    pub collapses: u64,
    /// Nodes that were moved to another page.
    pub moves: u64,
    /// Large values whose pages were written, also those of transactions that were rolled back.
    pub chains_built: u64,
    /// Large values whose pages were freed.
    pub chains_freed: u64,
    /// Reads of nodes that were repeated because the node changed meanwhile.
    pub restarts: u64,
}

impl Trees {
    /// Opens the trees in the pages of `pool`, which `space` allocates.
    #[must_use]
    pub fn new(pool: Pool, space: Arc<Space>) -> Self {
        let counters = Counters::default();
        let (queue, claims, contention) = (LeafQueue::new(), Claims::new(), Contention::new());
        Self { base: Arc::new(Base { pool, space, counters, queue, claims, contention }) }
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> TreeStats {
        let Counters {
            leaf_splits,
            loaded_leaves,
            contention_splits,
            inner_splits,
            root_splits,
            purges,
            merges,
            shifts,
            collapses,
            moves,
            chains_built,
            chains_freed,
            restarts,
        } = self.counters();
        TreeStats {
            leaf_splits: leaf_splits.sum(),
            loaded_leaves: loaded_leaves.sum(),
            contention_splits: contention_splits.sum(),
            inner_splits: inner_splits.sum(),
            root_splits: root_splits.sum(),
            purges: purges.sum(),
            merges: merges.sum(),
            shifts: shifts.sum(),
            collapses: collapses.sum(),
            moves: moves.sum(),
            chains_built: chains_built.sum(),
            chains_freed: chains_freed.sum(),
            restarts: restarts.sum(),
        }
    }

    /// Returns the tree of `table`, whose root is page `root`.
    #[must_use]
    pub fn tree(&self, table: TableId, root: PageId) -> Tree {
        Tree { trees: self.clone(), table, root, end: Arc::default(), leaf_list: None }
    }

    /// Returns the signal of the thread that grows the data file.
    #[must_use]
    pub fn space_signal(&self) -> Signal {
        self.base.space.signal()
    }

    /// Returns the signal of the purge thread: sent when a leaf is queued after [`purge_sleeps`](Self::purge_sleeps)
    /// returned true.
    #[must_use]
    pub fn purge_signal(&self) -> Signal {
        self.queue().signal()
    }

    /// Marks the purge thread as awake, so that it gets no signal, and returns whether a leaf is queued.
    #[must_use]
    pub fn wake_purge(&self) -> bool {
        self.queue().wake();
        !self.queue().is_empty()
    }

    /// Takes out about `most` queued leaves, and all queued ranges. Queued leaves have deleted rows or few rows.
    pub fn take_queued(&self, most: usize, out: impl FnMut(QueuedLeaf)) -> BTreeMap<TableId, QueuedRange> {
        self.queue().wake();
        self.queue().take(most, out);
        self.queue().take_ranges()
    }

    /// Marks the purge thread as waiting for its signal. Returns false if a leaf is queued; then the thread must not
    /// wait.
    #[must_use]
    pub fn purge_sleeps(&self) -> bool {
        self.queue().sleep()
    }

    pub(crate) fn queue(&self) -> &LeafQueue {
        &self.base.queue
    }

    pub(crate) fn claims(&self) -> &Claims {
        &self.base.claims
    }

    pub(crate) fn contention(&self) -> &Contention {
        &self.base.contention
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

/// One table: a B+-tree. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Tree {
    trees: Trees,
    table: TableId,
    root: PageId,
    /// The state of the table, shared by all clones.
    end: Arc<TableEnd>,
    /// Leaves that a descent finds although a node above them is damaged.
    leaf_list: Option<Arc<LeafList>>,
}

impl Tree {
    /// Returns the id of the table.
    #[inline]
    #[must_use]
    pub const fn table(&self) -> TableId {
        self.table
    }

    /// Returns the page of the root. It stays the same as long as the table exists.
    #[inline]
    #[must_use]
    pub const fn root(&self) -> PageId {
        self.root
    }

    #[inline]
    pub(crate) const fn trees(&self) -> &Trees {
        &self.trees
    }

    /// Returns the state of the table, which all clones share.
    #[inline]
    pub(crate) fn end(&self) -> &TableEnd {
        &self.end
    }

    /// Returns whether the other tree is a clone of this one.
    pub(crate) fn leaf_list(&self) -> Option<&LeafList> {
        self.leaf_list.as_deref()
    }

    pub(crate) fn with_leaf_list(&self, list: LeafList) -> Self {
        Self { leaf_list: Some(Arc::new(list)), ..self.clone() }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.end, &other.end)
    }

    pub(crate) fn pool(&self) -> &Pool {
        self.trees.pool()
    }

    #[cold]
    pub(crate) fn corrupted(&self, pid: PageId, why: Damage) -> Error {
        self.trees.corrupted(pid, why).in_table(self.table)
    }

    /// Adds this table to an error that names one of its pages.
    pub(crate) fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.in_table(self.table))
    }

    /// Returns a view of a page of this tree.
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
            ..=MAX_INLINE_VALUE => Ok(()),
            len => Err(Error::ValueTooLarge { table: Some(self.table.into()), len, max: MAX_INLINE_VALUE }),
        }
    }
}

/// The context of a structure change, which belongs to no transaction and is never undone. It uses the session of the
/// operation that needs it.
pub(crate) struct Structure<'s> {
    pub(crate) session: &'s mut Session,
    /// Purpose of its log space.
    pub(crate) purpose: Purpose,
    /// Purpose of its pages.
    pub(crate) pages: Purpose,
    /// Whether the operation finishes open splits on its path.
    pub(crate) links: bool,
}

impl<'s> Structure<'s> {
    /// Returns the context of operations that read or write data. They finish splits on their path.
    pub(crate) fn of(txn: &'s mut Txn) -> Self {
        Self { session: txn.session(), purpose: Purpose::Data, pages: Purpose::Data, links: true }
    }

    /// Returns the context of snapshot readers. They hold no lock of the table, which may be dropped meanwhile, and do
    /// not change it.
    pub(crate) fn of_reader(txn: &'s mut Txn) -> Self {
        Self { links: false, ..Self::of(txn) }
    }

    /// Returns the context of operations that free pages. They may use a reserved page to finish a split that a full
    /// disk has left open.
    pub(crate) fn of_freeing(txn: &'s mut Txn) -> Self {
        Self { pages: Purpose::Rollback, ..Self::of(txn) }
    }

    /// Returns the context of a rollback.
    pub(crate) fn of_undo(context: &'s mut UndoContext<'_>) -> Self {
        Self { session: context.session(), purpose: Purpose::Rollback, pages: Purpose::Rollback, links: true }
    }

    /// Reserves log space for records of `bytes` together (see [`change_cost`]). Called before the first latch.
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

/// Returns the part of a record that is logged.
pub(crate) const fn to_log<'a>(record: &ChangeRecord<'_>, body: &'a [&'a [u8]]) -> Change<'a> {
    Change { kind: record.kind, flags: record.flags, init_mask: record.init_mask, table: record.table, body }
}

/// Returns a record of a tree with its body in one piece, as recovery will read it.
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
    /// Applies a record to its pages, which are latched in the record's order.
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
