//! Deleted rows leave their leaves: in the background, and where a row needs the space.

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
/// Log that a purge takes.
const PURGE_COST: usize = change_cost(1, MAX_PURGE_BODY);

/// Of so many rows of a leaf one at least is deleted where the purge changes the page at once: each change is a log
/// record, and a page to write.
const FEW: usize = 8;

/// What [`Tree::purge_leaf`] has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgedLeaf {
    /// The page of the leaf.
    pub page: PageId,
    /// Deleted rows that went.
    pub purged: usize,
    /// Deleted rows that may go, and were too few for a change of the page.
    pub few: usize,
    /// Deleted rows that had to stay.
    pub held: usize,
    /// The first of their writers: when its end is settled some may go.
    pub oldest: Xid,
    /// The key at which the next leaf begins.
    pub next: Option<Vec<u8>>,
    /// Whether less than three quarters of the leaf are in use, and it is not the only one.
    pub is_thin: bool,
    /// Whether less than a third of the leaf is in use, and it is not the only one.
    pub is_sparse: bool,
    /// If the leaf is thin: a writer of one of its rows that may be rolled back, and then may need the space that the
    /// row had.
    pub live: Option<Xid>,
}

/// Deleted rows of a leaf.
struct Ghosts {
    /// The body of the record that takes those out that may go.
    body: Vec<u8>,
    held: usize,
    oldest: Xid,
}

impl Tree {
    /// Makes free space of `need` more bytes in the leaf of `key`: by taking out ghosts, else by a split.
    pub(crate) fn room_for_row(&self, txn: &mut Txn, key: &[u8], need: usize) -> Result<()> {
        let leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of(txn), key, 0, PURGE_COST)?;
        let body = self.to_purge(&leaf, need, |xid| txn.is_settled(xid))?;
        if self.purge_for(&mut Structure::of(txn), leaf, need, &body)? {
            return Ok(());
        }
        txn.with_space(|txn| self.make_room(&mut Structure::of(txn), key, 0, need))
    }

    /// As [`room_for_row`](Self::room_for_row), for a row that comes back. A purge needs no page, which a full disk may
    /// not have. What it logs is less than what is charged for the bytes that it frees (see
    /// [`structure_cost`](crate::split::structure_cost)).
    pub(crate) fn room_for_undo(&self, context: &mut UndoContext<'_>, key: &[u8], need: usize) -> Result<()> {
        let leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of_undo(context), key, 0, PURGE_COST)?;
        let body = self.to_purge(&leaf, need, |xid| context.is_settled(xid))?;
        if self.purge_for(&mut Structure::of_undo(context), leaf, need, &body)? {
            return Ok(());
        }
        self.make_room(&mut Structure::of_undo(context), key, 0, need)
    }

    /// The body of a purge of the ghosts in a leaf that are not needed; empty if there are none, or `need` bytes are
    /// free.
    fn to_purge(&self, leaf: &ExclusiveGuard<'_>, need: usize, is_settled: impl Fn(Xid) -> bool) -> Result<Vec<u8>> {
        let node = self.parse(leaf.pid(), leaf)?;
        if node.free() >= need {
            return Ok(Vec::new());
        }
        Ok(ghosts_of(&node, is_settled).map_err(|why| self.corrupted(leaf.pid(), why))?.body)
    }

    /// Logs a purge with that body, if it has one, and says whether the leaf has `need` free bytes now.
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

    /// Takes the ghosts out of the leaf of `key` that may go: those whose deletion is durable, and whose row no
    /// snapshot sees. Without `all` it leaves them where they are fewer than one in eight rows. Takes the log space
    /// that is kept back on a full disk. A leaf that stays as it is passes through the pool as that of a scan does.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Corrupted`, `OutOfFrames`, `Poisoned`.
    pub fn purge_leaf(&self, txn: &mut Txn, key: &[u8], all: bool) -> Result<PurgedLeaf> {
        txn.freeing(|txn| {
            let mut page = [0; PAGE_SIZE];
            let pid = self.copy_node::<true>(&mut Structure::of_freeing(txn), Goal::At(key), 0, &mut page)?;
            let (found, body) = self.survey(pid, &page, all, txn)?;
            if body.is_empty() {
                return Ok(found);
            }
            let mut leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of_freeing(txn), key, 0, PURGE_COST)?;
            let (mut found, body) = self.survey(leaf.pid(), &leaf, all, txn)?;
            if !body.is_empty() {
                self.log_purge(&mut Structure::of_freeing(txn), &mut leaf, &body)?;
                self.weigh(&mut found, &self.parse(leaf.pid(), &leaf)?, txn)?;
            }
            Ok(found)
        })
    }

    /// What a purge of a leaf has to leave, and the body of the record that does it; empty if there is nothing to do.
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

    /// Notes how much a leaf holds, and for whom.
    fn weigh(&self, found: &mut PurgedLeaf, leaf: &Node<'_>, txn: &Txn) -> Result<()> {
        let damage = |why| self.corrupted(found.page, why);
        let is_thin = found.page != self.root && leaf.is_thin().map_err(damage)?;
        let is_sparse = is_thin && leaf.is_sparse().map_err(damage)?;
        let live = if is_thin { live_writer(leaf, txn).map_err(damage)? } else { None };
        (found.is_thin, found.is_sparse, found.live) = (is_thin, is_sparse, live);
        Ok(())
    }

    fn log_purge(&self, structure: &mut Structure<'_>, leaf: &mut ExclusiveGuard<'_>, body: &[u8]) -> Result<()> {
        assert_fits(body, MAX_PURGE_BODY, "a purge");
        let (pid, before) = (leaf.pid(), self.parse(leaf.pid(), leaf)?.len());
        let was_sound = all_sound(&[leaf]);
        let record = record(TreeKind::Purge, 0, 0, self.table, &[pid], body);
        structure.apply(&self.trees, &record, &mut [leaf], Dep::none())?;
        let left = self.parse(pid, leaf)?.len();
        assert_eq!(left + body.len() / 2, before, "rows of {pid} that a purge has left and taken out");
        assert_sound(was_sound, &[leaf], "the purge", pid);
        self.trees.counters().purges.add(1);
        Ok(())
    }

    /// As [`note_ghost`](Self::note_ghost) for a row that a scan has met.
    #[inline]
    pub(crate) fn note_if_ghost(&self, pid: PageId, row: &Row<'_>) {
        if row.header.is_ghost() {
            self.note_ghost(pid, row.key);
        }
    }

    /// As [`note_ghost`](Self::note_ghost) for a leaf that got rows of another one, if a deleted one is among them.
    pub(crate) fn note_ghosts_of(&self, pid: PageId, leaf: &Node<'_>) {
        if !leaf.is_leaf() {
            return;
        }
        let rows = (0..leaf.len()).filter_map(|at| leaf.row(at).ok());
        if let Some(ghost) = rows.into_iter().find(|row| row.header.is_ghost()) {
            self.note_ghost(pid, ghost.key);
        }
    }

    /// Has the background purge look at a leaf in page `pid` unless `key` has a row there: a rollback has left a ghost,
    /// or less than there was.
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

    /// Has the background purge look at a leaf in page `pid` that has no row, unless its table is dropped.
    pub(crate) fn note_if_empty<P: PageRead>(&self, pid: PageId, leaf: &NodeView<P>) {
        if leaf.len() == 0 && pid != self.root && leaf.is_leaf() && !self.is_retired() {
            self.trees.queue().add(self.table, pid, || leaf.copy_low().unwrap_or_default());
        }
    }

    /// The key at which the leaf in page `pid` begins; `None` if the page is no leaf of this tree any more.
    ///
    /// # Errors
    /// What a read can fail with.
    pub fn first_key_of(&self, pid: PageId) -> Result<Option<Vec<u8>>> {
        let page = match self.pool().shared_as(pid, AccessPattern::Scan) {
            Ok(page) => page,
            // A page that was freed may lie beyond the end of the file.
            Err(Error::Corrupted { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Ok(node) = Node::parse(&page) else { return Ok(None) };
        if node.table() != self.table || !node.is_leaf() {
            return Ok(None);
        }
        Ok(node.low().ok().map(<[u8]>::to_vec))
    }

    /// Has the background purge look at the leaf of `key`, in page `pid`, which has a deleted row or little else. A
    /// dropped table that older snapshots still read is not purged: its pages go as they are.
    #[inline]
    pub(crate) fn note_ghost(&self, pid: PageId, key: &[u8]) {
        if !self.is_retired() {
            self.trees.queue().add(self.table, pid, || key.to_vec());
        }
    }
}

/// A writer of a row in a leaf that may be rolled back, and then may need the space that the row had. An inner node has
/// none.
pub(crate) fn live_writer(node: &Node<'_>, txn: &Txn) -> Result<Option<Xid>, Damage> {
    for at in 0..if node.is_leaf() { node.len() } else { 0 } {
        let xid = node.row(at)?.header.xid;
        if txn.is_live(xid) {
            return Ok(Some(xid));
        }
    }
    Ok(None)
}

/// Collects the deleted rows of a leaf.
///
/// A ghost goes when its deletion is durable: a reader that then finds nothing where it was relies on nothing that may
/// be lost. Locks go by keys and need no ghost. No snapshot sees what was there before it, so no reader looks for its
/// undo; at restart, where that is not yet so, nothing is purged.
fn ghosts_of(node: &Node<'_>, is_settled: impl Fn(Xid) -> bool) -> Result<Ghosts, Damage> {
    let mut ghosts = Ghosts { body: Vec::new(), held: 0, oldest: Xid(u64::MAX) };
    for at in 0..node.len() {
        let Row { header, .. } = node.row(at)?;
        if !header.is_ghost() {
            continue;
        }
        if is_settled(header.xid) {
            ghosts.body.put_u16(at as u16);
        } else {
            ghosts.held += 1;
            ghosts.oldest = ghosts.oldest.min(header.xid);
        }
    }
    Ok(ghosts)
}
