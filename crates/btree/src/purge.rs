//! The purge: removal of deleted rows (ghosts) from their leaves, in the background and when a row needs the space.

use crate::format::SLOT;
use crate::node::{Damage, Goal, Node, NodeView, Row};
use crate::record::TreeKind;
use crate::sound::{all_sound, assert_fits, assert_sound};
use crate::tree::{Structure, Tree, record};
use foreshore_base::codec::Put;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result, Xid};
use foreshore_buffer::{AccessPattern, ExclusiveGuard, PageRead, change_cost};
use foreshore_txn::{Txn, UndoContext};
use foreshore_wal::Dep;

/// Largest body of a purge: every slot of a page.
const MAX_PURGE_BODY: usize = PAGE_SIZE / SLOT * 2;
/// Log space that a purge takes.
const PURGE_COST: usize = change_cost(1, MAX_PURGE_BODY);

/// A purge changes a page only if at least one in `FEW` rows is removable, because each change costs a log record and a
/// page write.
const FEW: usize = 8;

/// The result of [`Tree::purge_leaf`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgedLeaf {
    /// The page of the leaf.
    pub page: PageId,
    /// Deleted rows that were removed.
    pub purged: usize,
    /// Removable deleted rows that were too few for a change of the page.
    pub few: usize,
    /// Deleted rows that had to stay.
    pub held: usize,
    /// The oldest writer of these rows. When its end is settled, some of them may be removed.
    pub oldest: Xid,
    /// The key at which the next leaf begins.
    pub next: Option<Vec<u8>>,
    /// Whether less than three quarters of the leaf are in use, and the leaf is not the root.
    pub is_thin: bool,
    /// Whether less than a third of the leaf is in use, and the leaf is not the root.
    pub is_sparse: bool,
    /// A live writer of a row in a thin leaf. If it is rolled back, it may need the space that the row had.
    pub live: Option<Xid>,
}

/// Deleted rows of a leaf.
struct Ghosts {
    /// The body of the record that removes the removable ones.
    body: Vec<u8>,
    held: usize,
    oldest: Xid,
}

impl Tree {
    /// Makes space for `need` bytes in the leaf of `key`: by a purge of ghosts, otherwise by a split.
    pub(crate) fn room_for_row(&self, txn: &mut Txn, key: &[u8], need: usize) -> Result<()> {
        let leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of(txn), key, 0, PURGE_COST)?;
        let body = self.to_purge(&leaf, need, |xid| txn.is_settled(xid))?;
        if self.purge_for(&mut Structure::of(txn), leaf, need, &body)? {
            return Ok(());
        }
        txn.with_space(|txn| self.make_room(&mut Structure::of(txn), key, 0, need))
    }

    /// Does the same as [`room_for_row`](Self::room_for_row) for a row that a rollback restores. A purge needs no new
    /// page, which a full disk may not have. It logs less than what is charged for the bytes that it frees (see
    /// [`structure_cost`](crate::split::structure_cost)).
    pub(crate) fn room_for_undo(&self, context: &mut UndoContext<'_>, key: &[u8], need: usize) -> Result<()> {
        let leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of_undo(context), key, 0, PURGE_COST)?;
        let body = self.to_purge(&leaf, need, |xid| context.is_settled(xid))?;
        if self.purge_for(&mut Structure::of_undo(context), leaf, need, &body)? {
            return Ok(());
        }
        self.make_room(&mut Structure::of_undo(context), key, 0, need)
    }

    /// Returns the body of a purge of the unneeded ghosts in a leaf; empty if there are none, or if `need` bytes are
    /// free.
    fn to_purge(&self, leaf: &ExclusiveGuard<'_>, need: usize, is_settled: impl Fn(Xid) -> bool) -> Result<Vec<u8>> {
        let node = self.parse(leaf.pid(), leaf)?;
        if node.free() >= need {
            return Ok(Vec::new());
        }
        Ok(ghosts_of(&node, is_settled).map_err(|why| self.corrupted(leaf.pid(), why))?.body)
    }

    /// Logs a purge with `body` unless that is empty. Returns whether the leaf then has `need` free bytes.
    fn purge_for(
        &self,
        structure: &mut Structure<'_>,
        mut leaf: ExclusiveGuard<'_>,
        need: usize,
        body: &[u8],
    ) -> Result<bool> {
        let pid = leaf.pid();
        if !body.is_empty() {
            self.log_purge(structure, &mut leaf, body)?;
        }
        Ok(Node::parse(&leaf).map_err(|why| self.corrupted(pid, why))?.free() >= need)
    }

    /// Removes the removable ghosts from the leaf of `key`. A ghost is removable if its deletion is durable and no
    /// snapshot sees its row. Without `all`, ghosts stay if they are fewer than one in eight rows. It uses the log
    /// space that is reserved on a full disk. An unchanged leaf is evicted early, like the leaves of a scan.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Corrupted`, `OutOfFrames`, `Poisoned`.
    pub fn purge_leaf(&self, txn: &mut Txn, key: &[u8], all: bool) -> Result<PurgedLeaf> {
        txn.freeing(|txn| {
            let mut page = [0; PAGE_SIZE];
            let (pid, position) =
                self.copy_node_at::<true>(&mut Structure::of_freeing(txn), Goal::At(key), 0, &mut page)?;
            let (mut found, mut body) = self.survey(pid, &page, all, txn)?;
            if body.is_empty() {
                return Ok(found);
            }
            Structure::of_freeing(txn).reserve(PURGE_COST)?;
            let mut leaf = match self.pool().exclusive_at(position) {
                Some(unchanged) => unchanged,
                None => {
                    let leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of_freeing(txn), key, 0, PURGE_COST)?;
                    (found, body) = self.survey(leaf.pid(), &leaf, all, txn)?;
                    leaf
                }
            };
            if !body.is_empty() {
                self.log_purge(&mut Structure::of_freeing(txn), &mut leaf, &body)?;
                self.weigh(&mut found, &self.parse(leaf.pid(), &leaf)?, txn)?;
            }
            Ok(found)
        })
    }

    /// Returns the findings of a purge of a leaf, and the body of its record; the body is empty if there is nothing to
    /// do.
    fn survey(&self, pid: PageId, page: &[u8], all: bool, txn: &Txn) -> Result<(PurgedLeaf, Vec<u8>)> {
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, page)?;
        let next = node.high().map_err(damage)?.map(<[u8]>::to_vec);
        let Ghosts { mut body, held, oldest } = ghosts_of(&node, |xid| txn.is_settled(xid)).map_err(damage)?;
        let (settled, mut few) = (body.len() / 2, 0);
        if !all && settled * FEW < node.len() {
            few = settled;
            body.clear();
        }
        let mut leaf =
            PurgedLeaf { page: pid, purged: settled - few, few, held, oldest, next, ..PurgedLeaf::default() };
        self.weigh(&mut leaf, &node, txn)?;
        Ok((leaf, body))
    }

    /// Sets how full a leaf is, and the live writer of a thin one.
    fn weigh(&self, found: &mut PurgedLeaf, leaf: &Node<'_>, txn: &Txn) -> Result<()> {
        let damage = |why| self.corrupted(found.page, why);
        let is_thin = found.page != self.root() && leaf.is_thin().map_err(damage)?;
        let is_sparse = is_thin && leaf.is_sparse().map_err(damage)?;
        let live = if is_thin { live_writer(leaf, txn).map_err(damage)? } else { None };
        (found.is_thin, found.is_sparse, found.live) = (is_thin, is_sparse, live);
        Ok(())
    }

    fn log_purge(&self, structure: &mut Structure<'_>, leaf: &mut ExclusiveGuard<'_>, body: &[u8]) -> Result<()> {
        assert_fits(body, MAX_PURGE_BODY, "a purge");
        let (pid, before) = (leaf.pid(), self.parse(leaf.pid(), leaf)?.len());
        let was_sound = all_sound(&[leaf]);
        let record = record(TreeKind::Purge, 0, 0, self.table(), &[pid], body);
        structure.apply(self.trees(), &record, &mut [leaf], Dep::none())?;
        let left = self.parse(pid, leaf)?.len();
        assert_eq!(left + body.len() / 2, before, "rows of {pid} that a purge has left and taken out");
        assert_sound(was_sound, &[leaf], "the purge", pid);
        self.trees().counters().purges.add(1);
        Ok(())
    }

    /// Calls [`note_ghost`](Self::note_ghost) if a row that a scan has met is deleted.
    #[inline]
    pub(crate) fn note_if_ghost(&self, pid: PageId, row: &Row<'_>) {
        if row.header.is_ghost() {
            self.note_ghost(pid, row.key);
        }
    }

    /// Calls [`note_ghost`](Self::note_ghost) if a leaf that got rows of another one has a deleted row.
    pub(crate) fn note_ghosts_of(&self, pid: PageId, leaf: &Node<'_>) {
        if !leaf.is_leaf() {
            return;
        }
        let rows = (0..leaf.len()).filter_map(|at| leaf.row(at).ok());
        if let Some(ghost) = rows.into_iter().find(|row| row.header.is_ghost()) {
            self.note_ghost(pid, ghost.key);
        }
    }

    /// Queues a leaf in page `pid` for the background purge unless `key` has a row there. Without a row, a rollback has
    /// left a ghost or fewer rows.
    pub(crate) fn note_unless_row(&self, pid: PageId, leaf: &Node<'_>, key: &[u8]) -> Result<(), Damage> {
        let is_row = match leaf.search(key)? {
            Ok(at) => !leaf.row(at)?.header.is_ghost(),
            Err(_) => false,
        };
        if !is_row {
            self.note_ghost(pid, key);
        }
        Ok(())
    }

    /// Queues a leaf without rows for the background purge, unless it is the root or its table is dropped.
    pub(crate) fn note_if_empty<P: PageRead>(&self, pid: PageId, leaf: &NodeView<P>) {
        if leaf.len() == 0 && pid != self.root() && leaf.is_leaf() && !self.is_retired() {
            self.trees().queue().add(self.table(), pid, || leaf.copy_low(Vec::new()).unwrap_or_default());
        }
    }

    /// Returns the key at which the leaf in page `pid` begins; `None` if the page is no longer a leaf of this tree.
    ///
    /// # Errors
    /// Errors of a read.
    pub fn first_key_of(&self, pid: PageId) -> Result<Option<Vec<u8>>> {
        let page = match self.pool().shared_as(pid, AccessPattern::Scan) {
            Ok(page) => page,
            // A page that was freed may lie beyond the end of the file.
            Err(Error::Corrupted { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Ok(node) = Node::parse(&page) else { return Ok(None) };
        if node.table() != self.table() || !node.is_leaf() {
            return Ok(None);
        }
        Ok(node.low().ok().map(<[u8]>::to_vec))
    }

    /// Queues the leaf of `key`, in page `pid`, for the background purge, because it has a deleted row or few rows. A
    /// dropped table that older snapshots still read is not purged, because its pages are freed as they are.
    #[inline]
    pub(crate) fn note_ghost(&self, pid: PageId, key: &[u8]) {
        if !self.is_retired() {
            self.trees().queue().add(self.table(), pid, || key.to_vec());
        }
    }
}

/// Returns a live writer of a row in a leaf. If it is rolled back, it may need the space that the row had. An inner
/// node has none.
pub(crate) fn live_writer(node: &Node<'_>, txn: &Txn) -> Result<Option<Xid>, Damage> {
    let mut ended = Xid::ZERO;
    for at in 0..if node.is_leaf() { node.len() } else { 0 } {
        let xid = node.row(at)?.header.xid;
        if xid == ended {
            continue;
        }
        if txn.is_live(xid) {
            return Ok(Some(xid));
        }
        ended = xid;
    }
    Ok(None)
}

/// Collects the deleted rows of a leaf.
///
/// A ghost is removed only when two conditions hold:
///
/// - Its deletion is durable, so a reader that finds no row depends on nothing that may be lost.
/// - No snapshot sees the row before it, so no reader looks for its undo.
///
/// Locks refer to keys and need no ghost. At a restart the conditions do not hold yet, and nothing is purged.
fn ghosts_of(node: &Node<'_>, is_settled: impl Fn(Xid) -> bool) -> Result<Ghosts, Damage> {
    let mut ghosts = Ghosts { body: Vec::new(), held: 0, oldest: Xid(u64::MAX) };
    // Neighbours have mostly been deleted by one transaction.
    let mut known = (Xid(u64::MAX), false);
    for at in 0..node.len() {
        let Row { header, .. } = node.row(at)?;
        if !header.is_ghost() {
            continue;
        }
        if known.0 != header.xid {
            known = (header.xid, is_settled(header.xid));
        }
        if known.1 {
            ghosts.body.put_u16(at as u16);
        } else {
            ghosts.held += 1;
            ghosts.oldest = ghosts.oldest.min(header.xid);
        }
    }
    Ok(ghosts)
}
