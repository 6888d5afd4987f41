//! Merges of thin nodes in two steps, and the collapse of the root.
//!
//! 1. *Unlink*: the parent loses the separator of the right node, and the left node is marked incomplete. One record
//!    covers the parent and the left node. The tree is now in the state after the first step of a split, and any
//!    traverser may finish that split instead.
//! 2. *Merge*: the left node takes the entries, the high fence and the sibling of the right one and loses the mark. The
//!    right page becomes free in the map. One record covers the left node and the map page, and carries the content of
//!    the right node.
//!
//! The left node stays latched from the first step to the second. If the right node then holds too much, the two are
//! linked again. Both nodes of a pair belong to one parent. So a node that is the only child of its parent can be
//! merged only after that parent has been merged.
//!
//! A root with one child takes the child's content and sinks one level (*collapse*). If no two of three leaves fit in
//! one, the three are redistributed to two (see [`crate::redistribute`]).
//!
//! **Why no reader is misled.** A reader finds a page by an id in its parent or left sibling, and validates that node
//! afterwards (see [`crate::descend`]). Step 1 changes the parent and step 2 the left node. So a reader that reaches
//! the page later fails there. A reader that reached it before fails at the page itself. Step 2 latches the page
//! exclusively, which changes its version although its bytes stay.
//!
//! **Why the page may be reused at once.** The record of step 2 depends on the last change of the page and on the map
//! page, as the records of [`crate::drop`] do.

use crate::descend::Unlinked;
use crate::neighbours::{Content, Pair, are_neighbours, pairs_of};
use crate::node::{CAPACITY, Damage, Goal, Node, build_part, encode_image};
use crate::purge::live_writer;
use crate::record::{Absorb, Link, TreeKind};
use crate::sound::{all_sound, assert_fits, assert_incomplete, assert_linked, assert_sound};
use crate::split::MAX_LINK_BODY;
use crate::tree::{Structure, Tree, record};
use foreshore_base::{PageId, Result, Xid, limits::PAGE_SIZE};
use foreshore_buffer::{AccessPattern, ExclusiveGuard, Pinned, change_cost};
use foreshore_space::is_allocated;
use foreshore_sync::{model::mutant, pause};
use foreshore_txn::Txn;
use foreshore_wal::Dep;

/// Largest body of a merge or a collapse.
pub(crate) const MAX_ABSORB_BODY: usize = 16 + PAGE_SIZE;
/// Most bytes that a merge leaves in use, so that the next row does not split the node again.
pub(crate) const MOST: usize = CAPACITY * 15 / 16;

/// The result of [`Tree::merge_leaf`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// The number of pages that were freed.
    pub pages: usize,
    /// A leaf that stays thin, and a live writer of a row in it or in a neighbour. If that writer is rolled back, it
    /// may need the space that the row had.
    pub live: Option<(PageId, Xid)>,
}

/// The merges of one transaction.
pub(crate) struct Merging<'t> {
    txn: &'t mut Txn,
    /// The writer with a live row that the last attempts met.
    live: Option<Xid>,
    /// Most bytes that a merge leaves in use.
    pub(crate) most: usize,
}

impl<'t> Merging<'t> {
    /// Returns merges of `txn` that leave at most `most` bytes of a node in use.
    pub(crate) const fn new(txn: &'t mut Txn, most: usize) -> Self {
        Self { txn, live: None, most }
    }

    pub(crate) fn structure(&mut self) -> Structure<'_> {
        Structure::of_freeing(self.txn)
    }

    /// Returns whether some row of a node has a writer that may be rolled back. Then its leaf is not merged.
    pub(crate) fn is_live(&mut self, node: &Node<'_>) -> Result<bool, Damage> {
        let live = live_writer(node, self.txn)?;
        self.live = self.live.or(live);
        Ok(live.is_some())
    }
}

/// The position of a thin node below its parent.
struct Family {
    /// The node.
    page: PageId,
    /// Pairs that the node is part of, the better one first.
    pairs: Vec<Pair>,
    /// Whether the parent is the root.
    is_top: bool,
}

impl Tree {
    /// Merges the leaf of `key` with a neighbour if it is thin. Parents that become thin are merged too, and the root
    /// collapses. Nothing is done if no neighbour has the space, or if a rollback may need that space. The caller
    /// prevents a drop of the table and a concurrent check of the tree.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Corrupted`, `OutOfFrames`, `Poisoned`. Freed pages stay free.
    pub fn merge_leaf(&self, txn: &mut Txn, key: &[u8]) -> Result<Merged> {
        txn.freeing(|txn| {
            let mut merged = Merged::default();
            loop {
                // Retried for a leaf that had no neighbour below its parent, or is still thin after a merge.
                let Merged { pages, live } = self.merge_path(&mut Merging::new(txn, MOST), key, 0)?;
                merged = Merged { pages: merged.pages + pages, live };
                if pages == 0 {
                    return Ok(merged);
                }
            }
        })
    }

    /// Merges the nodes that cover `key`, from level `from` up, as long as they are thin and lose entries.
    pub(crate) fn merge_path(&self, merging: &mut Merging<'_>, key: &[u8], from: u8) -> Result<Merged> {
        let (mut freed, mut live, mut level) = (0, None, from);
        while let Some(Family { page, pairs, is_top }) = self.family(&mut merging.structure(), key, level)? {
            let mut merged = false;
            for pair in &pairs {
                merged = self.merge(merging, pair, level)?;
                if merged {
                    freed += 1;
                    break;
                }
            }
            if let ([first, second], false, 0) = (&pairs[..], merged, level) {
                merged = self.redistribute(merging, first, second)?;
                freed += usize::from(merged);
            }
            live = live.or(merging.live.take().filter(|_| !merged).map(|xid| (page, xid)));
            if !merged && !pairs.is_empty() {
                break;
            }
            if is_top {
                freed += self.collapse(&mut merging.structure())?;
                break;
            }
            // The parent has lost an entry, or this node had no neighbour below it.
            level += 1;
        }
        Ok(Merged { pages: freed, live })
    }

    /// Returns the pairs in which the node on `level` that covers `key` may be merged; `None` if it is the root, or
    /// not thin.
    fn family(&self, structure: &mut Structure<'_>, key: &[u8], level: u8) -> Result<Option<Family>> {
        let mut page = [0; PAGE_SIZE];
        let pid = self.copy_node::<true>(structure, Goal::At(key), level, &mut page)?;
        let damage = |why| self.corrupted(pid, why);
        let thin = self.parse(pid, &page)?;
        if pid == self.root() || thin.level() != level || !thin.is_thin().map_err(damage)? {
            return Ok(None);
        }
        let above = self.copy_node::<false>(structure, Goal::At(key), level + 1, &mut page)?;
        let parent = self.parse(above, &page)?;
        if parent.level() != level + 1 {
            return Ok(None);
        }
        let pairs = pairs_of(&parent, key, pid).map_err(|why| self.corrupted(above, why))?;
        Ok(Some(Family { page: pid, pairs, is_top: above == self.root() }))
    }

    /// Merges two neighbours on `level`; returns false if they changed, hold too much, or have a row with a live
    /// writer.
    pub(crate) fn merge(&self, merging: &mut Merging<'_>, pair: &Pair, level: u8) -> Result<bool> {
        let pins = [pair.left, pair.right].map(|pid| self.named(self.pool().pin_as(pid, AccessPattern::Scan)));
        let [left_pin, right_pin] = pins;
        let (left_pin, right_pin) = (left_pin?, right_pin?);
        if !self.would_fit(merging, &left_pin, &right_pin)? {
            return Ok(false);
        }
        let most = merging.most;
        let structure = &mut merging.structure();
        let map = self.map_of(structure, pair.right)?;
        let bytes = change_cost(2, MAX_LINK_BODY) + change_cost(2, MAX_ABSORB_BODY);
        let Some(mut left) = self.unlink(structure, pair, level, bytes)? else { return Ok(false) };
        let merged = self.absorb(structure, pair, &mut left, (&right_pin, most), &map);
        drop(left);
        if merged? {
            self.trees().space().give_back(pair.right);
            return Ok(true);
        }
        let open = Unlinked { left: pair.left, level, separator: pair.separator.clone() };
        self.link(structure, &open).map(|()| false)
    }

    /// Returns the map page of a page that is about to be freed. A map that has the page as free is damaged, and that
    /// is found before anything is changed. The result stays valid, because only this thread frees pages of the tree.
    pub(crate) fn map_of(&self, structure: &mut Structure<'_>, pid: PageId) -> Result<Pinned<'_>> {
        let map = self.trees().space().map_page(pid, structure.session, structure.purpose)?;
        let is_allocated = is_allocated(&map.shared(), pid).and_then(|found| match found {
            true => Ok(()),
            false => Err("the map has a page as free that is in use"),
        });
        is_allocated.map_err(|why| self.corrupted(map.pid(), why))?;
        Ok(map)
    }

    /// Estimates, without holding both latches, whether the left of two nodes can take the content of the right one.
    /// Returns false if a rollback may need the free space.
    fn would_fit(&self, merging: &mut Merging<'_>, left: &Pinned<'_>, right: &Pinned<'_>) -> Result<bool> {
        // A page may have been freed meanwhile, and may now belong to another tree.
        let damage = |why| self.corrupted(right.pid(), why);
        let content = match Node::parse(&right.shared()) {
            Ok(second) if !has_open_split(&second) => Content::of(&second).map_err(damage)?,
            _ => return Ok(false),
        };
        let takes = |first: Node<'_>| Ok(content.fits(&first, merging.most)? && !merging.is_live(&first)?);
        match Node::parse(&left.shared()).map(takes) {
            Ok(Ok(true)) => {}
            Ok(Err(why)) => return Err(self.corrupted(left.pid(), why)),
            Ok(Ok(false)) | Err(_) => return Ok(false),
        }
        if content.entries == 0 {
            return Ok(true);
        }
        Node::parse(&right.shared())
            .map_or(Ok(false), |second| merging.is_live(&second).map(|live| !live))
            .map_err(damage)
    }

    /// Runs the first step. Returns the left node, latched; `None` if the two are no longer neighbours.
    pub(crate) fn unlink<'p>(
        &'p self,
        structure: &mut Structure<'_>,
        pair: &Pair,
        level: u8,
        bytes: usize,
    ) -> Result<Option<ExclusiveGuard<'p>>> {
        let mut parent: ExclusiveGuard<'_> = self.find(structure, &pair.separator, level + 1, bytes)?;
        let pid = parent.pid();
        let damage = |why| self.corrupted(pid, why);
        let view = self.parse(pid, &parent)?;
        if view.level() != level + 1 || !are_neighbours(&view, pair).map_err(damage)? {
            return Ok(None);
        }
        // The page is pinned, so this waits only for the holder of its latch.
        let Some(mut left) = self.pool().try_exclusive(pair.left)? else { return Ok(None) };
        let node = self.parse(pair.left, &left)?;
        let high = node.high().map_err(|why| self.corrupted(pair.left, why))?;
        if node.is_incomplete() || node.right() != pair.right || high != Some(&pair.separator) {
            return Ok(None);
        }
        let mut body = Vec::with_capacity(MAX_LINK_BODY);
        Link { right: pair.right, separator: &pair.separator }.encode(&mut body);
        assert_fits(&body, MAX_LINK_BODY, "an unlink");
        let were_sound = all_sound(&[&parent, &left]);
        let record = record(TreeKind::Unlink, 0, 0, self.table(), &[pid, pair.left], &body);
        structure.apply(self.trees(), &record, &mut [&mut parent, &mut left], Dep::none())?;
        assert_sound(were_sound, &[&parent, &left], "the unlink", pair.right);
        assert_incomplete(&left, pair.right);
        pause::point("btree: a node is unlinked");
        Ok(Some(left))
    }

    /// Runs the second step. Returns false if the right node holds too much or has an open split. The mark of the left
    /// node belongs to this merge alone.
    fn absorb<'p>(
        &'p self,
        structure: &mut Structure<'_>,
        pair: &Pair,
        left: &mut ExclusiveGuard<'p>,
        (right, most): (&Pinned<'p>, usize),
        map: &Pinned<'p>,
    ) -> Result<bool> {
        let damage = |why| self.corrupted(pair.right, why);
        let mut right = right.exclusive();
        let node = self.parse(pair.right, &right)?;
        let content = Content::of(&node).map_err(damage)?;
        if has_open_split(&node) || !content.fits(&self.parse(pair.left, left)?, most).map_err(damage)? {
            return Ok(false);
        }
        let mut body = Vec::with_capacity(MAX_ABSORB_BODY);
        Absorb::encode_front(&mut body, pair.right);
        encode_image(&mut body, &image_of(&node).map_err(damage)?).map_err(damage)?;
        assert_fits(&body, MAX_ABSORB_BODY, "a merge");
        assert_incomplete(left, pair.right);
        let (were_sound, sibling) = (all_sound(&[left, &right]), node.right());
        let mut map = map.exclusive();
        let record = record(TreeKind::Merge, 0, 0, self.table(), &[pair.left, map.pid()], &body);
        let dep = Dep::none().freed(right.lsn());
        structure.apply(self.trees(), &record, &mut [left, &mut map], dep)?;
        assert_sound(were_sound, &[left], "the merge", pair.right);
        assert_linked(left, sibling);
        pause::point("btree: nodes are merged");
        expire(&mut right);
        self.note_ghosts_of(pair.left, &self.parse(pair.left, left)?);
        self.trees().counters().merges.add(1);
        Ok(true)
    }

    /// Replaces the root by its only child, repeatedly while it has only one. Returns how many pages were freed.
    pub(crate) fn collapse(&self, structure: &mut Structure<'_>) -> Result<usize> {
        let mut freed = 0;
        while let Some(child) = self.only_child()? {
            let pin = self.named(self.pool().pin(child))?;
            let map = self.map_of(structure, child)?;
            structure.reserve(change_cost(2, MAX_ABSORB_BODY))?;
            {
                let mut root = self.named(self.pool().exclusive(self.root()))?;
                let view = self.parse(self.root(), &root)?;
                let damage = |why| self.corrupted(self.root(), why);
                if view.is_leaf() || view.len() > 0 || view.leftmost().map_err(damage)? != child {
                    break;
                }
                let mut page = pin.exclusive();
                let node = self.parse(child, &page)?;
                let damage = |why| self.corrupted(child, why);
                if node.level() + 1 != view.level() {
                    return Err(damage("a node on the wrong level"));
                }
                if !node.is_root() {
                    // The child's split is open.
                    break;
                }
                let mut body = Vec::with_capacity(MAX_ABSORB_BODY);
                Absorb::encode_front(&mut body, child);
                encode_image(&mut body, &image_of(&node).map_err(damage)?).map_err(damage)?;
                assert_fits(&body, MAX_ABSORB_BODY, "a collapse");
                let was_sound = all_sound(&[&page]);
                let mut map = map.exclusive();
                let record = record(TreeKind::Collapse, 0, 0, self.table(), &[self.root(), map.pid()], &body);
                let dep = Dep::none().freed(page.lsn());
                structure.apply(self.trees(), &record, &mut [&mut root, &mut map], dep)?;
                assert_sound(was_sound, &[&root], "the collapse", child);
                expire(&mut page);
            }
            self.trees().space().give_back(child);
            self.trees().counters().collapses.add(1);
            freed += 1;
        }
        Ok(freed)
    }

    /// Returns the child of a root that has only one.
    fn only_child(&self) -> Result<Option<PageId>> {
        let root = self.named(self.pool().shared(self.root()))?;
        let view = self.parse(self.root(), &root)?;
        if view.is_leaf() || view.len() > 0 {
            return Ok(None);
        }
        view.leftmost().map(Some).map_err(|why| self.corrupted(self.root(), why))
    }
}

/// Returns whether the right node of a pair has an open split.
pub(crate) fn has_open_split(right: &Node<'_>) -> bool {
    right.is_incomplete() && !mutant("btree: a merge takes a node whose split is open")
}

/// Makes optimistic readers of a freed page fail.
pub(crate) fn expire(page: &mut ExclusiveGuard<'_>) {
    if !mutant("btree: a page is freed behind its readers") {
        page.expire_reads();
    }
}

/// Returns a copy of a node without garbage. The node has no open split.
pub(crate) fn image_of(node: &Node<'_>) -> Result<[u8; PAGE_SIZE], Damage> {
    let leftmost = if node.is_leaf() { None } else { Some(node.leftmost()?) };
    let fences = (node.low()?, node.high()?);
    build_part(node, 0..node.len(), fences, node.right(), leftmost)
}
