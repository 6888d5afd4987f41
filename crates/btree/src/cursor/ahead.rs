//! Read-ahead: the pool reads leaves before a long scan reaches them.

use super::span::{End, Span};
use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::node::{Damage, Goal, Node};
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{PageId, Result};
use foreshore_buffer::{AccessPattern, PagePosition, Scan};
use foreshore_txn::{Snapshot, Txn};

/// The state of read-ahead. It does not start at the first leaf, because most scans are short. Then it doubles its
/// window each time.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Its share of the read-ahead of all scans, once it reads ahead.
    scan: Option<Scan>,
    /// The end that the read-ahead is for.
    end: End,
    /// Number of leaves in the last request.
    window: usize,
    /// Number of those leaves that have not been scanned.
    left: usize,
}

impl ReadAhead {
    /// Returns the access pattern of the cursor: `Scan` once it is long enough to read ahead. The pages of a short scan
    /// count as used like any others.
    pub(super) fn pattern(&self) -> AccessPattern {
        if self.scan.is_some() { AccessPattern::Scan } else { AccessPattern::Random }
    }

    /// Requests that the next leaves be read in the background, when half of those requested before have been scanned.
    /// They are the first ones of `span`, the unread keys, from one end. `snapshot` is that of the scan.
    pub(super) fn request(
        &mut self,
        txn: &mut Txn,
        tree: &Tree,
        snapshot: Option<&Snapshot>,
        (span, end): (&Span, End),
    ) {
        if self.end != end {
            (self.end, self.window, self.left) = (end, 0, 0);
        }
        self.left = self.left.saturating_sub(1);
        if 2 * self.left > self.window {
            return;
        }
        if self.window == 0 {
            self.window = 1;
            return;
        }
        let pool = tree.pool();
        let most = self.scan.get_or_insert_with(|| pool.scan()).depth();
        if most == 0 {
            return;
        }
        self.window = (2 * self.window).min(most);
        // An error is ignored, because the scan meets it itself if it gets there.
        let leaves = match snapshot {
            None => tree.leaves_of(&mut Structure::of(txn), span, end, self.window),
            Some(snapshot) => tree
                .begin_read(txn, snapshot)
                .and_then(|_operation| tree.leaves_of(&mut Structure::of_reader(txn), span, end, self.window)),
        };
        let leaves = leaves.unwrap_or_default();
        // The request may be shorter than the window at the end of a node.
        self.left = leaves.len();
        pool.prefetch(&leaves);
    }
}

impl Tree {
    /// Copies the node on `level` that covers the goal; the root if that level is gone. With `ONCE` the node is not
    /// needed again (see [`AccessPattern::Scan`]).
    pub(crate) fn copy_node<const ONCE: bool>(
        &self,
        structure: &mut Structure<'_>,
        goal: Goal<'_>,
        level: u8,
        page: &mut [u8; PAGE_SIZE],
    ) -> Result<PageId> {
        self.copy_node_at::<ONCE>(structure, goal, level, page).map(|(pid, _)| pid)
    }

    /// Does the same as [`copy_node`](Self::copy_node), and returns the position of the page, too.
    pub(crate) fn copy_node_at<const ONCE: bool>(
        &self,
        structure: &mut Structure<'_>,
        goal: Goal<'_>,
        level: u8,
        page: &mut [u8; PAGE_SIZE],
    ) -> Result<(PageId, PagePosition)> {
        let mut restarts = Restarts::default();
        loop {
            let node: ReadGuard<'_, ONCE> = self.find_again(structure, goal, level, 0, &mut restarts)?;
            node.page().copy_to(0..PAGE_SIZE, page);
            if node.holds() {
                return Ok((node.pid(), node.position()));
            }
            self.restart(&mut restarts);
        }
    }

    /// Returns up to `most` adjacent leaves, starting at one end of a span, which is a leaf boundary. They all have one
    /// parent, and only the first may lie beyond the other end.
    fn leaves_of(&self, structure: &mut Structure<'_>, span: &Span, end: End, most: usize) -> Result<Vec<PageId>> {
        let (goal, mut page) = (span.goal(end), [0; PAGE_SIZE]);
        let pid = self.copy_node::<false>(structure, goal, 1, &mut page)?;
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, &page)?;
        if node.level() != 1 {
            // The root has become the only leaf.
            return Ok(Vec::new());
        }
        let leaves = match end {
            End::Front => leaves_up(&node, goal, span, most),
            End::Back => leaves_down(&node, goal, span, most),
        };
        leaves.map_err(damage)
    }
}

fn leaves_up(node: &Node<'_>, goal: Goal<'_>, span: &Span, most: usize) -> Result<Vec<PageId>, Damage> {
    let first = node.entries_to(goal)?;
    let mut leaves = vec![node.child_toward(goal)?];
    for index in first..node.len().min(first + most - 1) {
        if span.ends_before(node.key(index)?) {
            break;
        }
        leaves.push(node.child(index)?);
    }
    Ok(leaves)
}

fn leaves_down(node: &Node<'_>, goal: Goal<'_>, span: &Span, most: usize) -> Result<Vec<PageId>, Damage> {
    let mut leaves = vec![node.child_toward(goal)?];
    for index in (0..node.entries_to(goal)?).rev().take(most - 1) {
        // This leaf ends where the leaf listed before it begins.
        if span.begins_from(node.key(index)?) {
            break;
        }
        leaves.push(if index == 0 { node.leftmost()? } else { node.child(index - 1)? });
    }
    Ok(leaves)
}
