//! The validation of a node.

use super::{Damage, Node, common};
use crate::format::key_head;
use foreshore_base::PageId;
use foreshore_base::limits::PAGE_SIZE;

impl Node<'_> {
    /// Checks everything that a node alone shows: bounds, order, fences, and that no byte of the heap is used twice.
    pub(crate) fn validate(&self) -> Result<(), Damage> {
        let (low, high) = (self.low()?, self.high()?);
        if high.is_some_and(|high| low >= high) {
            return Err("the fences are out of order");
        }
        if high.is_none() && (self.right() != PageId::ZERO || self.is_incomplete()) {
            return Err("the last node of a level has a sibling");
        }
        if high.is_some() {
            self.sibling()?;
        }
        if self.shared() > high.map_or(0, |high| common(low, high)) {
            return Err("the fences do not begin as all keys of the node are said to");
        }
        let mut used = low.len() + high.map_or(0, <[u8]>::len);
        let mut previous: Option<&[u8]> = None;
        for index in 0..self.len() {
            let key = self.key(index)?;
            if previous.is_some_and(|previous| previous >= key) {
                return Err("keys are out of order");
            }
            if key < low || high.is_some_and(|high| key >= high) {
                return Err("a key lies outside the fences");
            }
            if self.slot(index)?.head != key_head(key, self.shared()) {
                return Err("the head of a slot does not fit its key");
            }
            used += self.tuple(index)?.1.len();
            if self.is_leaf() {
                self.row(index)?;
            } else {
                self.child(index)?;
            }
            previous = Some(key);
        }
        if !self.is_leaf() {
            self.leftmost()?;
        }
        if used + self.garbage() != PAGE_SIZE - self.heap() {
            return Err("the heap of the node does not add up");
        }
        Ok(())
    }
}

/// Returns whether a page is a valid node. Assertions use it, because a change keeps a node valid.
pub(crate) fn is_sound(page: &[u8]) -> bool {
    Node::parse(page).is_ok_and(|node| node.validate().is_ok())
}
