//! Assertions about a structure change: its pages before and after it (debug builds), and the length of its log record
//! (all builds).

use crate::node::{Node, is_sound};
use foreshore_base::PageId;

/// Returns the incomplete flag and the right sibling of a node; `None` if the page is no node.
pub(crate) fn link_of(page: &[u8]) -> Option<(bool, PageId)> {
    Node::parse(page).ok().map(|node| (node.is_incomplete(), node.right()))
}

/// Asserts that a node is incomplete and has `right` as its sibling: no parent leads to `right` yet, or any more.
pub(crate) fn assert_incomplete(left: &[u8], right: PageId) {
    debug_assert_eq!(link_of(left), Some((true, right)), "incomplete flag and right sibling");
}

/// Asserts that a node is complete and has `right` as its sibling, to which a parent leads.
pub(crate) fn assert_linked(left: &[u8], right: PageId) {
    debug_assert_eq!(link_of(left), Some((false, right)), "incomplete flag and right sibling");
}

/// Returns whether all of the nodes are valid. Returns false in release builds.
pub(crate) fn all_sound(nodes: &[&[u8]]) -> bool {
    cfg!(debug_assertions) && nodes.iter().all(|node| is_sound(node))
}

/// Asserts that a change has left the nodes valid, if all of them were valid before it.
pub(crate) fn assert_sound(were_sound: bool, nodes: &[&[u8]], what: &str, page: PageId) {
    debug_assert!(!were_sound || all_sound(nodes), "{what} of page {page} has damaged it or a node beside it");
}

/// Asserts that a record is no longer than the log space that was reserved for it.
pub(crate) fn assert_fits(body: &[u8], most: usize, what: &str) {
    assert!(body.len() <= most, "{what} logs {} bytes, {most} are reserved", body.len());
}
