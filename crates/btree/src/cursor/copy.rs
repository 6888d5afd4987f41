//! Steps of a snapshot scan.

use super::left::LeftEntries;
use super::span::{End, Rest, Rows, Span};
use super::{Cursor, HAS_TREE};
use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::format::{GHOST, OVERFLOW, RowHeader};
use crate::node::{Damage, NO_VERSION, NodeView, Place};
use crate::tree::{Structure, Tree};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Result, Xid};
use foreshore_buffer::OptimisticGuard;
use foreshore_txn::{Seen, Snapshot, Txn, UndoPtr};
use std::ops::Range;

/// The most rows of a step that are prefetched.
const AHEAD: usize = 16;

impl Cursor {
    /// Copies the rows of a leaf as the snapshot sees them, at most one step.
    pub(super) fn copy_leaf<const ONCE: bool>(
        &mut self,
        txn: &mut Txn,
        snapshot: &Snapshot,
        span: &Span,
        end: End,
    ) -> Result<Rest> {
        let mut restarts = Restarts::default();
        if !self.spilled.begin_leaf(span, end, txn.fetched_is_over()) {
            txn.forget_fetched();
        }
        txn.unwant(0);
        loop {
            let tree = self.tree.as_ref().expect(HAS_TREE);
            let (step, memory) = (self.steps.size(), self.keys.spare());
            let rows = if end == End::Front { &mut self.copied.front } else { &mut self.copied.back };
            let (leaf, left) = match self.resume.left.take().and_then(|left| left.enter(tree.pool(), end)) {
                Some((leaf, left)) => (leaf, Some(left)),
                None => (tree.find_again(&mut Structure::of_reader(txn), span.goal(end), 0, 0, &mut restarts)?, None),
            };
            let leaf: ReadGuard<'_, ONCE> = leaf;
            let (pid, mut versions) = (leaf.pid(), Versions::default());
            // This reads without a latch. The copy is valid if the page is unchanged after the versions have been read.
            let copied = tree.copy_rows(&leaf, rows, (span, end, step), (left, memory), |header, image| {
                versions.find(txn, snapshot, header, image, || leaf.holds())
            });
            if leaf.holds() {
                txn.check_snapshot(snapshot)?;
                if let Some(holder) = versions.earlier {
                    drop(leaf);
                    txn.unwant(0);
                    let key = rows.first_key().to_vec();
                    rows.clear();
                    txn.wait_earlier(snapshot, tree.table(), &key, holder)?;
                    continue;
                }
                let copied = copied.map_err(|why| tree.corrupted(pid, why));
                if versions.is_spilled && !versions.is_unfinished {
                    drop(leaf);
                    let needed = txn.wanted();
                    if let Ok((rest, _)) = copied {
                        self.spilled.want_ahead::<ONCE>(tree, txn, snapshot, (span, end), rest);
                    }
                    txn.fetch(snapshot, needed)?;
                    continue;
                }
                if !versions.is_unfinished {
                    let (rest, left) = copied?;
                    self.resume.left = left;
                    return Ok(rest);
                }
            }
            txn.unwant(0);
            tree.restart(&mut restarts);
        }
    }
}

/// The versions of rows that a step finds.
#[derive(Default)]
struct Versions {
    /// Another transaction whose newest versions the snapshot sees. Adjacent rows often have one writer.
    seen: Option<Xid>,
    /// Whether a version must be fetched from the spill file first.
    is_spilled: bool,
    /// Whether a version cannot be read yet. The step then starts again.
    is_unfinished: bool,
    /// A transaction of the previous run that must be undone first. Then the step starts again, too.
    earlier: Option<Xid>,
}

impl Versions {
    /// Finds the version of a row that the snapshot sees, by the row's header. An older version is put into `image`.
    #[inline]
    fn find(
        &mut self,
        txn: &mut Txn,
        snapshot: &Snapshot,
        header: RowHeader,
        image: &mut Vec<u8>,
        holds: impl Fn() -> bool,
    ) -> Result<Copied, Damage> {
        if self.is_unfinished {
            return Ok(Copied::Nothing);
        }
        let RowHeader { xid, undo, .. } = header;
        if self.seen == Some(xid) && !header.is_ghost() {
            return Ok(Copied::Newest);
        }
        Ok(match txn.see(snapshot, xid, UndoPtr::from_bits(undo), image, holds) {
            Seen::Newest if header.is_ghost() => Copied::Ghost,
            Seen::Newest => {
                // A row that the transaction itself has only locked may be seen by an older version.
                if txn.xid() != Some(xid) {
                    self.seen = Some(xid);
                }
                Copied::Newest
            }
            Seen::Older(flags) if flags & GHOST == 0 => Copied::Older(flags),
            Seen::Older(_) | Seen::Nothing => Copied::Nothing,
            Seen::Spilled => {
                self.is_spilled = true;
                Copied::Nothing
            }
            Seen::Unfinished => {
                self.is_unfinished = true;
                Copied::Nothing
            }
            Seen::Earlier(holder) => {
                self.earlier = Some(holder);
                Copied::Waits
            }
            Seen::Lost => return Err(NO_VERSION),
        })
    }
}

/// The version of a row that a reader finds.
enum Copied {
    /// The version in the leaf.
    Newest,
    /// An older version, which was put into the buffer, and its flags.
    Older(u16),
    /// A row that is deleted for this and all later readers.
    Ghost,
    /// No version.
    Nothing,
    /// A row that the reader has to wait for.
    Waits,
}

impl Tree {
    /// Copies the rows of a leaf that lie in a span, from one end, at most one step. `left` is the entries in the span,
    /// if they are known. `memory` becomes a key. `see` returns what the reader finds of a row by its header. If that
    /// is a row to wait for, only that row is copied. Also returns the entries that the step leaves. The result is
    /// valid only if the leaf then validates.
    fn copy_rows<const ONCE: bool>(
        &self,
        leaf: &ReadGuard<'_, ONCE>,
        rows: &mut Rows,
        (span, end, step): (&Span, End, usize),
        (left, memory): (Option<Range<usize>>, &mut Vec<u8>),
        mut see: impl FnMut(RowHeader, &mut Vec<u8>) -> Result<Copied, Damage>,
    ) -> Result<(Rest, Option<LeftEntries>), Damage> {
        let node = NodeView::view(leaf.page())?;
        if node.table() != self.table() {
            return Err("a node of another table");
        }
        if node.len() == 0 && leaf.holds() {
            self.note_if_empty(leaf.pid(), &node);
        }
        let is_new = left.is_none();
        let all = left.map_or_else(|| span.entries(&node, end), Ok)?;
        let inside = match end {
            End::Front => all.start..all.end.min(all.start + step),
            End::Back => all.start.max(all.end.saturating_sub(step))..all.end,
        };
        if is_new {
            prefetch_rows(leaf, &node, inside.clone());
        }
        rows.clear();
        let (mut image, mut taken) = (Vec::new(), 0);
        for at in inside.clone() {
            let Place { header, key, value } = node.place(at)?;
            // A page that is not a node, or that changes, could name the same bytes repeatedly.
            taken += key.len() + value.len();
            if taken > PAGE_SIZE {
                return Err("the entries of a node overlap");
            }
            match see(header, &mut image)? {
                Copied::Newest => {
                    if rows.is_empty() {
                        rows.make_room(inside.len(), key.len() + value.len());
                    }
                    rows.push(&node, key, value);
                    if header.flags & OVERFLOW != 0 {
                        rows.mark_large();
                    }
                }
                Copied::Older(flags) => {
                    rows.push_older(&node, key, &image);
                    if flags & OVERFLOW != 0 {
                        rows.mark_large();
                    }
                }
                Copied::Ghost => {
                    image.clear();
                    node.append_to(key, &mut image);
                    if leaf.holds() {
                        self.note_ghost(leaf.pid(), &image);
                    }
                }
                Copied::Nothing => {}
                Copied::Waits => {
                    rows.push_alone(&node, key, value);
                    return Ok((Rest::Nothing, None));
                }
            }
        }
        if inside == all {
            return Ok((span.rest_of(&node, &inside, end, memory)?, None));
        }
        let last = if end == End::Front { inside.end - 1 } else { inside.start };
        let left = LeftEntries::of(leaf.position(), &all, &inside, end);
        Ok((span.rest_behind(&node, last, end, memory)?, Some(left)))
    }
}

/// Prefetches the rows of a step, so that their cache misses overlap.
fn prefetch_rows<const ONCE: bool>(
    leaf: &ReadGuard<'_, ONCE>,
    node: &NodeView<&OptimisticGuard<'_>>,
    inside: Range<usize>,
) {
    inside.take(AHEAD).for_each(|at| leaf.page().prefetch(node.tuple_ahead(at).unwrap_or_default()));
}
