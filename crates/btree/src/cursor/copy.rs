//! Copying rows of a leaf without a latch.

use super::span::{End, Rest, Rows, Span};
use crate::access::{Access, ReadGuard};
use crate::format::{OVERFLOW, RowHeader};
use crate::node::{Damage, NodeView, Place};
use crate::tree::Tree;
use foreshore_base::limits::PAGE_SIZE;

/// Tuples of a step that are prefetched before the first is read.
const AHEAD: usize = 16;

/// The version of a row that a reader finds.
pub(super) enum Copied {
    /// The version in the leaf.
    Newest,
    /// An older version, which was put into the buffer, and its flags.
    Older(u16),
    /// A row that is deleted for this and all later readers.
    Ghost,
    /// No version.
    Nothing,
}

impl Tree {
    /// Copies the rows of a leaf that lie in a span, from one end, at most one step. `see` returns what the reader
    /// finds of a row by its header. The result is valid only if the leaf then validates.
    pub(super) fn copy_rows<const ONCE: bool>(
        &self,
        leaf: &ReadGuard<'_, ONCE>,
        rows: &mut Rows,
        (span, end, step): (&Span, End, usize),
        mut see: impl FnMut(RowHeader, &mut Vec<u8>) -> Result<Copied, Damage>,
    ) -> Result<Rest, Damage> {
        let node = NodeView::view(leaf.page())?;
        if node.table() != self.table {
            return Err("a node of another table");
        }
        if node.len() == 0 && leaf.holds() {
            self.note_if_empty(leaf.pid(), &node);
        }
        let all = span.entries(&node)?;
        let inside = match end {
            End::Front => all.start..all.end.min(all.start + step),
            End::Back => all.start.max(all.end.saturating_sub(step))..all.end,
        };
        // Their cache misses then overlap.
        for at in inside.clone().take(AHEAD) {
            leaf.page().prefetch(node.tuple_ahead(at)?);
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
            }
        }
        if inside == all {
            return span.rest_of(&node, &inside, end);
        }
        let last = if end == End::Front { inside.end - 1 } else { inside.start };
        let key = node.copy_key(last)?;
        node.must_lead_to(&key, last)?;
        Ok(Rest::Row(key))
    }
}
