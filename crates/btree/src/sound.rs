//! What is asserted of the pages of a change of structure: before and after it, and before it is logged.

use crate::node::{Node, is_sound};
use foreshore_base::PageId;

/// Whether a node is marked incomplete, and its right sibling.
pub(crate) fn link_of(page: &[u8]) -> Option<(bool, PageId)> {
    Node::parse(page).ok().map(|node| (node.is_incomplete(), node.right()))
}

/// Asserts that the mark of the left node of a pair stands, so that no parent leads to the right one.
pub(crate) fn assert_marked(left: &[u8], right: PageId) {
    debug_assert_eq!(link_of(left), Some((true, right)), "mark and sibling of a node whose sibling has no parent");
}

/// Asserts that a parent leads to the sibling of a node, or that the node has taken it over.
pub(crate) fn assert_linked(left: &[u8], right: PageId) {
    debug_assert_eq!(link_of(left), Some((false, right)), "mark and sibling of a node that is linked");
}

/// Whether all of the nodes are sound, which debug builds alone look for.
pub(crate) fn all_sound(nodes: &[&[u8]]) -> bool {
    cfg!(debug_assertions) && nodes.iter().all(|node| is_sound(node))
}

/// Asserts that a change has left the nodes sound if all that it began with were.
pub(crate) fn assert_sound(were_sound: bool, nodes: &[&[u8]], what: &str, page: PageId) {
    debug_assert!(!were_sound || all_sound(nodes), "{what} of page {page} has damaged it or a node beside it");
}

/// Asserts that a record is no longer than the log space that was reserved for it.
pub(crate) fn assert_fits(body: &[u8], most: usize, what: &str) {
    assert!(body.len() <= most, "{what} logs {} bytes, {most} are reserved", body.len());
}
