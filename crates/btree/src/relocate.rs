//! Moves of nodes to lower pages, so that the file can end earlier.
//!
//! One record moves a node. It initialises the new page with the content of the node. It changes what leads there: the
//! entry of the parent, and the sibling of the node on its left, which may belong to another parent. It allocates the
//! new page and frees the old one. So there is no state in between, and a crash leaves the node at one of two places.
//!
//! Latches are taken from the root down and from left to right, as everywhere: parent, left node, node. Then come the
//! new page, to which nothing leads yet, and the map pages. A node whose split is open stays until that is finished.
//!
//! **Why no reader is misled.** A reader finds a node by an id in its parent or in its left sibling, and validates that
//! node afterwards (see [`crate::descend`]). The record changes both of them. A reader that has reached the old page
//! before fails there, because its version changes although its bytes stay. Rows are found by their keys, so locks and
//! undo do not depend on pages.
//!
//! **Why the old page may be reused at once:** see [`crate::merge`].
//!
//! The page of a root never changes. It is in the catalogue, in the log and in the undo of each change of a row.

use crate::access::{Access, ReadGuard};
use crate::descend::{Restarts, Unlinked};
use crate::merge::{expire, image_of};
use crate::node::{Damage, Goal, Node, encode_image};
use crate::record::{Move, TreeKind};
use crate::sound::{all_sound, assert_fits, assert_sound};
use crate::split::NewPage;
use crate::tree::{Structure, Tree, record};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result};
use foreshore_buffer::{AccessPattern, ExclusiveGuard, Pinned, change_cost};
use foreshore_sync::pause;
use foreshore_txn::Txn;
use foreshore_wal::Dep;

/// Largest body of a move.
const MAX_MOVE_BODY: usize = 16 + PAGE_SIZE;
/// Tries to move one node: the first may only finish a split.
const TRIES: u32 = 3;

/// A place in a tree: a level, and a key on it.
pub type NodePlace = (u8, Vec<u8>);

/// The result of [`Tree::move_nodes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovedNodes {
    /// Nodes that were moved.
    pub moved: u64,
    /// Nodes that stay, because they changed meanwhile or are damaged.
    pub stuck: u64,
    /// Whether no page below the limit is free.
    pub is_full: bool,
    /// The place to continue at; `None` at the end.
    pub next: Option<NodePlace>,
}

enum Outcome {
    Moved,
    /// The node or one beside it has changed.
    Changed,
    /// The split of the node is open.
    Open(Unlinked),
    /// No lower page is free.
    Full,
}

impl Tree {
    /// Moves nodes in pages from `limit` on to free pages below it: up to `most` children of one node. `place` begins
    /// with level 0 and the empty key. The caller prevents a drop of the table, a concurrent check of the tree, and
    /// concurrent merges. Other threads read and write rows meanwhile.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `OutOfFrames`, `Poisoned`; `Corrupted` for damage on the path to the nodes. Moved nodes stay
    /// where they are.
    pub fn move_nodes(&self, txn: &mut Txn, (level, from): &NodePlace, limit: PageId, most: u64) -> Result<MovedNodes> {
        txn.with_space(|txn| {
            let structure = &mut Structure::of_freeing(txn);
            let mut page = [0; PAGE_SIZE];
            let pid = self.copy_node::<false>(structure, Goal::At(from), level + 1, &mut page)?;
            let node = self.parse(pid, &page)?;
            if node.level() != level + 1 {
                return Ok(MovedNodes::default());
            }
            let damage = |why| self.corrupted(pid, why);
            let next = match node.high().map_err(damage)? {
                Some(high) => (*level, high.to_vec()),
                None => (level + 1, Vec::new()),
            };
            let mut found = MovedNodes { next: Some(next), ..MovedNodes::default() };
            for at in node.entries_to(Goal::At(from)).map_err(damage)?..=node.len() {
                let (child, low) = child_at(&node, at).map_err(damage)?;
                if child < limit {
                    continue;
                }
                if found.moved + found.stuck >= most {
                    found.next = Some((*level, low.to_vec()));
                    break;
                }
                match self.try_to_move(structure, (child, low), *level, limit) {
                    Ok(Outcome::Moved) => found.moved += 1,
                    Ok(Outcome::Full) => return Ok(MovedNodes { is_full: true, next: None, ..found }),
                    Ok(_) | Err(Error::Corrupted { .. }) => found.stuck += 1,
                    Err(error) => return Err(error),
                }
            }
            Ok(found)
        })
    }

    /// Moves the node that begins at `low`, page `pid`, after its split is finished.
    fn try_to_move(
        &self,
        structure: &mut Structure<'_>,
        at: (PageId, &[u8]),
        level: u8,
        limit: PageId,
    ) -> Result<Outcome> {
        for _ in 0..TRIES {
            match self.move_node(structure, at, level, limit)? {
                Outcome::Open(open) => self.link(structure, &open)?,
                outcome => return Ok(outcome),
            }
        }
        Ok(Outcome::Changed)
    }

    fn move_node(
        &self,
        structure: &mut Structure<'_>,
        (pid, low): (PageId, &[u8]),
        level: u8,
        limit: PageId,
    ) -> Result<Outcome> {
        if pid == self.root() {
            return Err(self.corrupted(pid, "a node leads to the root"));
        }
        let Some(new) = NewPage::take_below(self.trees(), structure, limit)? else { return Ok(Outcome::Full) };
        assert!(new.page.pid() < pid, "node {pid} would move to {}", new.page.pid());
        let old = self.named(self.pool().pin_as(pid, AccessPattern::Scan))?;
        let old_map = self.map_of(structure, pid)?;
        let left = if low.is_empty() { None } else { Some(self.pin_before(structure, low, level)?) };
        let bytes = change_cost(5, MAX_MOVE_BODY);
        let parent: ExclusiveGuard<'_> = self.find(structure, low, level + 1, bytes)?;
        let damage = |why| self.corrupted(parent.pid(), why);
        let view = self.parse(parent.pid(), &parent)?;
        if view.level() != level + 1 || view.child_for(low).map_err(damage)? != pid {
            return Ok(Outcome::Changed);
        }
        // A thread that latches a page twice would wait for itself.
        let known = left.as_ref().map(Pinned::pid);
        if parent.pid() == pid || known.is_some_and(|left| left == pid || left == parent.pid()) {
            return Err(damage("a node leads to itself"));
        }
        if new.page.pid() == parent.pid() || known == Some(new.page.pid()) {
            return Err(damage("in use, but free by the map"));
        }
        // All three are pinned, so this waits only for the holders of their latches.
        let left = left.map(|left| left.exclusive());
        if let Some(left) = &left {
            let node = self.parse(left.pid(), left)?;
            let high = node.high().map_err(|why| self.corrupted(left.pid(), why))?;
            if node.is_incomplete() || node.level() != level || node.right() != pid || high != Some(low) {
                return Ok(Outcome::Changed);
            }
        }
        let old = old.exclusive();
        let node = self.parse(pid, &old)?;
        let damage = |why| self.corrupted(pid, why);
        if node.level() != level || node.low().map_err(damage)? != low {
            return Err(damage("the low fence is not what leads to the node"));
        }
        if node.is_incomplete() {
            let separator = node.high().map_err(damage)?.unwrap_or_default().to_vec();
            return Ok(Outcome::Open(Unlinked { left: pid, level, separator }));
        }
        self.log_move(structure, (parent, left, old), new, &old_map)?;
        self.trees().space().give_back(pid);
        self.trees().counters().moves.add(1);
        Ok(Outcome::Moved)
    }

    /// Pins the node on `level` that ends where `low` begins. Finishes its split.
    fn pin_before(&self, structure: &mut Structure<'_>, low: &[u8], level: u8) -> Result<Pinned<'_>> {
        let left: ReadGuard<'_> = self.find_again(structure, Goal::Before(low), level, 0, &mut Restarts::default())?;
        let pid = left.pid();
        drop(left);
        // No other thread frees a node of the tree.
        self.named(self.pool().pin(pid))
    }

    fn log_move<'p>(
        &'p self,
        structure: &mut Structure<'_>,
        (mut parent, mut left, mut old): (ExclusiveGuard<'p>, Option<ExclusiveGuard<'p>>, ExclusiveGuard<'p>),
        mut new: NewPage<'p>,
        old_map: &Pinned<'p>,
    ) -> Result<()> {
        let damage = |why| self.corrupted(old.pid(), why);
        let node = self.parse(old.pid(), &old)?;
        let mut body = Vec::with_capacity(MAX_MOVE_BODY);
        Move::encode_front(&mut body, old.pid(), left.is_some());
        encode_image(&mut body, &image_of(&node).map_err(damage)?).map_err(damage)?;
        assert_fits(&body, MAX_MOVE_BODY, "a move");
        let were_sound = all_sound(&[&parent, &old]);
        let mut page = new.page.exclusive();
        let (mut map, mut old_map) = latch_maps(&new.map, old_map);
        let pid = page.pid();
        let mut pages = vec![&mut parent, &mut page, &mut map];
        pages.extend(left.as_mut());
        pages.extend(old_map.as_mut());
        let pids: Vec<_> = pages.iter().map(|page| page.pid()).collect();
        assert!((3..=5).contains(&pids.len()), "a node of {} moves with the pages {pids:?}", self.table().0);
        let record = record(TreeKind::Move, 0, 0b010, self.table(), &pids, &body);
        structure.apply(self.trees(), &record, &mut pages, Dep::none().freed(old.lsn()))?;
        assert_sound(were_sound, &[&parent, &page], "the move", old.pid());
        pause::point("btree: a node has moved");
        expire(&mut old);
        new.linked();
        // The queue of the purge has leaves by their pages.
        self.note_ghosts_of(pid, &self.parse(pid, &page)?);
        Ok(())
    }
}

/// Latches the map of a new page and, if it is another one, that of an old page: the first one of the file first.
fn latch_maps<'p>(new: &Pinned<'p>, old: &Pinned<'p>) -> (ExclusiveGuard<'p>, Option<ExclusiveGuard<'p>>) {
    if new.pid() == old.pid() {
        return (new.exclusive(), None);
    }
    let before = (old.pid() < new.pid()).then(|| old.exclusive());
    let map = new.exclusive();
    (map, Some(before.unwrap_or_else(|| old.exclusive())))
}

/// Returns child `at` of an inner node, counted from the leftmost, and the key at which it begins.
fn child_at<'n>(node: &Node<'n>, at: usize) -> Result<(PageId, &'n [u8]), Damage> {
    match at {
        0 => Ok((node.leftmost()?, node.low()?)),
        at => Ok((node.child(at - 1)?, node.key(at - 1)?)),
    }
}
