//! Read-ahead: the pool reads leaves before a long scan reaches them.

use super::Cursor;
use super::span::{End, Span};
use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::node::{Damage, Goal, Node};
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{PageId, Result};
use foreshore_buffer::{AccessPattern, Scan};
use foreshore_txn::Txn;

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
}

impl Cursor {
    /// Requests that the next leaves be read in the background, when half of those requested before have been scanned.
    pub(super) fn read_ahead(&mut self, txn: &mut Txn, end: End) {
        let Some(span) = self.keys.unread() else { return };
        let ahead = &mut self.ahead;
        if ahead.end != end {
            (ahead.end, ahead.window, ahead.left) = (end, 0, 0);
        }
        ahead.left = ahead.left.saturating_sub(1);
        if 2 * ahead.left > ahead.window {
            return;
        }
        if ahead.window == 0 {
            ahead.window = 1;
            return;
        }
        let pool = self.tree.pool();
        let most = ahead.scan.get_or_insert_with(|| pool.scan()).depth();
        if most == 0 {
            return;
        }
        ahead.window = (2 * ahead.window).min(most);
        // An error is ignored, because the scan meets it itself if it gets there.
        let leaves = match &self.snapshot {
            None => self.tree.leaves_of(&mut Structure::of(txn), span, end, ahead.window),
            Some(snapshot) => self
                .tree
                .begin_read(txn, snapshot)
                .and_then(|_operation| self.tree.leaves_of(&mut Structure::of_reader(txn), span, end, ahead.window)),
        };
        let leaves = leaves.unwrap_or_default();
        // The request may be shorter than the window at the end of a node.
        ahead.left = leaves.len();
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
        let mut restarts = Restarts::default();
        loop {
            let node: ReadGuard<'_, ONCE> = self.find_again(structure, goal, level, 0, &mut restarts)?;
            node.page().copy_to(0..PAGE_SIZE, page);
            if node.holds() {
                return Ok(node.pid());
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
