//! Splits of nodes in two steps, and growth of the root.
//!
//! 1. *Split*: the right half of a node moves to a new sibling, and the node is marked incomplete. One record covers
//!    the two nodes and the map page, and also allocates the sibling.
//! 2. *Link*: the parent gets a separator for the sibling, and the mark is cleared. One record covers the parent and
//!    the left node.
//!
//! A crash between the two steps leaves a valid tree, and any operation may do the second step. Neither step is part of
//! a transaction, so a rollback does not undo it.
//!
//! Source: the B-link tree (Lehman and Yao 1981) and the Foster B-tree (Graefe, Kimura and Kuno 2012).

use crate::access::ReadGuard;
use crate::cut::{choose_cut, cut_before};
use crate::descend::{Restarts, Unlinked};
use crate::format::{INNER_HEADER, MAX_INNER_ENTRY, SLOT};
use crate::node::{CAPACITY, Goal, build_part, encode_image};
use crate::record::{Link, Split, TreeKind};
use crate::sound::{all_sound, assert_fits, assert_incomplete, assert_linked, assert_sound};
use crate::tree::{Structure, Tree, Trees, record};
use foreshore_base::limits::{MAX_INLINE_VALUE, MAX_KEY, PAGE_SIZE};
use foreshore_base::{Error, PageId, Result};
use foreshore_buffer::{ExclusiveGuard, Pinned, change_cost};
use foreshore_space::Space;
use foreshore_sync::pause;
use foreshore_txn::MAX_STRUCTURE;
use foreshore_wal::Dep;

/// Largest body of a record of a split or a growth.
const MAX_SPLIT_BODY: usize = 16 + MAX_KEY + PAGE_SIZE;
/// Largest body of a record that links a sibling.
pub(crate) const MAX_LINK_BODY: usize = 8 + MAX_KEY;

/// Returns the log space that splits may take before an undone row can grow by `grows` bytes. A row takes at most three
/// eighths of a page. So a split leaves at least a quarter of a page free in the row's node. A rollback therefore needs
/// one split for each quarter page that its rows grow by, and one more for each page. The latter use the common
/// reserve. If that is used up, the rollback is parked.
pub(crate) const fn structure_cost(grows: usize) -> u64 {
    let split = change_cost(3, MAX_SPLIT_BODY) + change_cost(2, MAX_LINK_BODY);
    (grows * split).div_ceil(PAGE_SIZE / 4) as u64
}

const _: () = assert!(structure_cost(MAX_INLINE_VALUE) <= MAX_STRUCTURE);

/// A new page with a frame, and its map page in memory. It is allocated before the first latch, and freed if it is not
/// linked. Until it is linked the page keeps its former bytes, which a crash may bring back.
pub(crate) struct NewPage<'p> {
    space: &'p Space,
    pub(crate) page: Pinned<'p>,
    pub(crate) map: Pinned<'p>,
    linked: bool,
}

impl<'p> NewPage<'p> {
    pub(crate) fn take(trees: &'p Trees, structure: &mut Structure<'_>) -> Result<Self> {
        let pid = trees.space().take(structure.session.number(), structure.pages)?;
        Self::resident(trees, structure, pid)
    }

    /// Takes a page below `limit`; `None` if none is free there. The file does not grow for it.
    pub(crate) fn take_below(trees: &'p Trees, structure: &mut Structure<'_>, limit: PageId) -> Result<Option<Self>> {
        trees.space().take_below(limit).map(|pid| Self::resident(trees, structure, pid)).transpose()
    }

    fn resident(trees: &'p Trees, structure: &mut Structure<'_>, pid: PageId) -> Result<Self> {
        let space = trees.space();
        let mut resident = || -> Result<(Pinned<'p>, Pinned<'p>)> {
            let map = space.map_page(pid, structure.session, structure.purpose)?;
            Ok((trees.pool().pin_unread(pid)?, map))
        };
        let (page, map) = resident().inspect_err(|_| space.give_back(pid))?;
        Ok(Self { space, page, map, linked: false })
    }

    /// Marks the page as linked: the record that links it is logged.
    pub(crate) fn linked(&mut self) {
        assert!(!self.linked, "page {} enters a tree twice", self.page.pid());
        self.linked = true;
    }
}

impl Drop for NewPage<'_> {
    fn drop(&mut self) {
        if !self.linked {
            self.space.give_back(self.page.pid());
        }
    }
}

/// The reason for a split.
#[derive(Clone, Copy)]
enum Aim {
    /// That many bytes must become free in the node that covers the key, slot included.
    Fit(usize),
    /// The entry of the key becomes the first one of its leaf.
    Apart,
    /// The root is no leaf.
    Grown,
}

impl Tree {
    /// Makes space for an entry of `need` bytes, slot included, in the node on `level` that covers `key`. It splits at
    /// most once, and the caller checks again. No latch is held.
    pub(crate) fn make_room(&self, structure: &mut Structure<'_>, key: &[u8], level: u8, need: usize) -> Result<()> {
        if need > CAPACITY {
            // A change in a damaged log may require this.
            return Err(self.corrupted(self.root(), "a row is larger than a node"));
        }
        self.split_for(structure, key, level, Aim::Fit(need))
    }

    /// Puts the row of `key` and the rows before it into different leaves. If the root is a leaf, one call only gives
    /// it a child.
    pub(crate) fn split_before(&self, structure: &mut Structure<'_>, key: &[u8]) -> Result<()> {
        self.split_for(structure, key, 0, Aim::Apart)
    }

    /// Gives the root a child if it is a leaf.
    pub(crate) fn grow_root(&self, structure: &mut Structure<'_>) -> Result<()> {
        self.split_for(structure, &[], 0, Aim::Grown)
    }

    fn split_for(&self, structure: &mut Structure<'_>, key: &[u8], level: u8, aim: Aim) -> Result<()> {
        let mut new = NewPage::take(self.trees(), structure)?;
        let mut linked = None;
        let open = loop {
            let mut node: ExclusiveGuard<'_> = self.find(structure, key, level, change_cost(3, MAX_SPLIT_BODY))?;
            let pid = node.pid();
            let view = self.parse(pid, &node)?;
            let is_done = match aim {
                Aim::Fit(need) => view.free() >= need,
                Aim::Apart => !view.search(key).is_ok_and(|found| found.is_ok_and(|at| at > 0)),
                Aim::Grown => pid != self.root(),
            };
            if is_done || view.level() != level {
                return Ok(());
            }
            if pid == self.root() {
                return self.grow(structure, new, node);
            }
            if view.is_incomplete() {
                let separator = view.high().map_err(|why| self.corrupted(pid, why))?.unwrap_or_default().to_vec();
                // The link changes the node, and so does an operation that opens the split again. Neither can change a
                // damaged node, so an unchanged LSN means damage.
                if linked.replace((pid, node.lsn())) == Some((pid, node.lsn())) {
                    return Err(self.corrupted(pid, "the split of a node stays open"));
                }
                drop(node);
                self.link(structure, &Unlinked { left: pid, level, separator })?;
                continue;
            }
            let separator = self.split(structure, &mut node, &mut new, (key, aim))?;
            break Unlinked { left: pid, level, separator };
        };
        drop(new);
        match self.link(structure, &open) {
            // The split stays unlinked. The next operation that finds the space links it.
            Err(Error::DiskFull { .. } | Error::LogSpace) => Ok(()),
            other => other,
        }
    }

    /// Runs the first step of a split. Returns the separator.
    fn split<'p>(
        &'p self,
        structure: &mut Structure<'_>,
        left: &mut ExclusiveGuard<'p>,
        new: &mut NewPage<'p>,
        (key, aim): (&[u8], Aim),
    ) -> Result<Vec<u8>> {
        let pid = left.pid();
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, left)?;
        let cut = match aim {
            Aim::Fit(need) => choose_cut(&node, key, need),
            Aim::Apart => cut_before(&node, key),
            Aim::Grown => Err("a leaf that is no root grows"),
        };
        let cut = cut.map_err(damage)?;
        let first = cut.from + usize::from(!node.is_leaf());
        let fences = (&cut.separator[..], node.high().map_err(damage)?);
        let image = build_part(&node, first..node.len(), fences, node.right(), cut.leftmost).map_err(damage)?;
        let mut body = Vec::with_capacity(MAX_SPLIT_BODY);
        Split::encode_front(&mut body, cut.from, &cut.separator);
        encode_image(&mut body, &image).map_err(damage)?;
        assert_fits(&body, MAX_SPLIT_BODY, "a split");
        let was_sound = all_sound(&[left]) && node.low().is_ok_and(|low| low < fences.0);
        let mut right = new.page.exclusive();
        let mut map = new.map.exclusive();
        let pages = [pid, right.pid(), map.pid()];
        let record = record(TreeKind::Split, 0, 0b010, self.table(), &pages, &body);
        structure.apply(self.trees(), &record, &mut [left, &mut right, &mut map], Dep::none())?;
        assert_sound(was_sound, &[left, &right], "the split", pid);
        assert_incomplete(left, right.pid());
        pause::point("btree: a node is split");
        new.linked();
        self.note_ghosts_of(right.pid(), &self.parse(right.pid(), &right)?);
        let counters = self.trees().counters();
        let splits = if first == cut.from { &counters.leaf_splits } else { &counters.inner_splits };
        splits.add(1);
        Ok(cut.separator)
    }

    /// Moves the root's contents to a new child.
    fn grow<'p>(
        &'p self,
        structure: &mut Structure<'_>,
        mut new: NewPage<'p>,
        mut root: ExclusiveGuard<'p>,
    ) -> Result<()> {
        let damage = |why| self.corrupted(self.root(), why);
        let node = self.parse(self.root(), &root)?;
        if node.level() >= crate::format::MAX_LEVEL {
            return Err(damage("the root is too high"));
        }
        let leftmost = if node.is_leaf() { None } else { Some(node.leftmost().map_err(damage)?) };
        let copy = build_part(&node, 0..node.len(), (&[], None), PageId::ZERO, leftmost).map_err(damage)?;
        let mut body = Vec::with_capacity(MAX_SPLIT_BODY);
        encode_image(&mut body, &copy).map_err(damage)?;
        let was_sound = all_sound(&[&root]);
        assert_fits(&body, MAX_SPLIT_BODY, "the growth of a root");
        {
            let mut child = new.page.exclusive();
            let mut map = new.map.exclusive();
            let pages = [self.root(), child.pid(), map.pid()];
            let record = record(TreeKind::Grow, 0, 0b010, self.table(), &pages, &body);
            structure.apply(self.trees(), &record, &mut [&mut root, &mut child, &mut map], Dep::none())?;
            assert_sound(was_sound, &[&root, &child], "the growth", self.root());
            pause::point("btree: the root has grown");
            new.linked();
            self.note_ghosts_of(child.pid(), &self.parse(child.pid(), &child)?);
        }
        self.trees().counters().root_splits.add(1);
        Ok(())
    }

    /// Runs the second step of a split, unless it is done already. Any operation may call it. No latch is held.
    pub(crate) fn link(&self, structure: &mut Structure<'_>, open: &Unlinked) -> Result<()> {
        // Keeps the left node in memory between tries.
        let mut pin: Option<Pinned<'_>> = None;
        let mut is_refused = false;
        loop {
            pause::point("btree: a split is to be linked");
            let mut parent: ExclusiveGuard<'_> =
                self.find(structure, &open.separator, open.level + 1, change_cost(2, MAX_LINK_BODY))?;
            let pid = parent.pid();
            let damage = |why| self.corrupted(pid, why);
            let view = self.parse(pid, &parent)?;
            if view.level() != open.level + 1 {
                // The root has taken over the contents of the nodes on that level, with the separators of all splits.
                return Ok(());
            }
            if view.child_for(&open.separator).map_err(damage)? != open.left {
                drop(parent);
                // The split is linked already, or that of a sibling further left is not and comes first.
                match self.descend::<ReadGuard<'_>>(
                    Goal::At(&open.separator),
                    open.level,
                    true,
                    &mut Restarts::default(),
                )? {
                    Ok(_) => return Ok(()),
                    Err(earlier) => {
                        self.link(structure, &earlier)?;
                        continue;
                    }
                }
            }
            if view.free() < SLOT + INNER_HEADER + open.separator.len() {
                drop(parent);
                self.make_room(structure, &open.separator, open.level + 1, MAX_INNER_ENTRY)?;
                continue;
            }
            let Some(mut left) = self.pool().try_exclusive(open.left)? else {
                drop(parent);
                pause::point("btree: the left node of a split is to be pinned");
                match self.pool().pin(open.left) {
                    Ok(pinned) => pin = Some(pinned),
                    // The page may have been merged away since the parent was latched, and truncated. If not, the
                    // parent still leads to it.
                    Err(Error::Corrupted { .. }) if !is_refused => is_refused = true,
                    Err(error) => return Err(error.in_table(self.table())),
                }
                continue;
            };
            let node = self.parse(open.left, &left)?;
            let high = node.high().map_err(|why| self.corrupted(open.left, why))?;
            if !node.is_incomplete() || high != Some(&open.separator) {
                return Ok(());
            }
            let mut body = Vec::with_capacity(MAX_LINK_BODY);
            Link { right: node.right(), separator: &open.separator }.encode(&mut body);
            assert_fits(&body, MAX_LINK_BODY, "a link");
            let begins = view.low().is_ok_and(|low| low <= &open.separator[..]);
            let (were_sound, sibling) = (begins && all_sound(&[&parent, &left]), node.right());
            let pages = [pid, open.left];
            let record = record(TreeKind::Link, 0, 0, self.table(), &pages, &body);
            // The left node's LSN is that of the split or later. The record depends on it through the page, so no link
            // is recovered without its split.
            structure.apply(self.trees(), &record, &mut [&mut parent, &mut left], Dep::none())?;
            assert_sound(were_sound, &[&parent, &left], "the link", open.left);
            assert_linked(&left, sibling);
            pause::point("btree: a split is linked");
            drop(pin);
            return Ok(());
        }
    }
}
