//! Assertions about the pages of a structure change: before it, before its record is logged, and after it.

use crate::node::{Node, is_sound};
use foreshore_base::PageId;

/// Returns whether a node is marked incomplete, and its right sibling.
pub(crate) fn link_of(page: &[u8]) -> Option<(bool, PageId)> {
    Node::parse(page).ok().map(|node| (node.is_incomplete(), node.right()))
}

/// Asserts that the left node of a pair is marked and has `right` as its sibling, so that no parent leads to `right`.
pub(crate) fn assert_marked(left: &[u8], right: PageId) {
    debug_assert_eq!(link_of(left), Some((true, right)), "mark and sibling of a node whose sibling has no parent");
}

/// Asserts that a node has no mark and has `right` as its sibling: a parent leads to `right`, or the node took it over.
pub(crate) fn assert_linked(left: &[u8], right: PageId) {
    debug_assert_eq!(link_of(left), Some((false, right)), "mark and sibling of a node that is linked");
}

/// Returns whether all of the nodes are sound. Only debug builds check.
pub(crate) fn all_sound(nodes: &[&[u8]]) -> bool {
    cfg!(debug_assertions) && nodes.iter().all(|node| is_sound(node))
}

/// Asserts that a change has left the nodes sound, if all of them were sound before it.
pub(crate) fn assert_sound(were_sound: bool, nodes: &[&[u8]], what: &str, page: PageId) {
    debug_assert!(!were_sound || all_sound(nodes), "{what} of page {page} has damaged it or a node beside it");
}

/// Asserts that a record is no longer than the log space that was reserved for it.
pub(crate) fn assert_fits(body: &[u8], most: usize, what: &str) {
    assert!(body.len() <= most, "{what} logs {} bytes, {most} are reserved", body.len());
}
