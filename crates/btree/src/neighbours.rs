//! Neighbours below one parent, which merges and shifts bring together.

use crate::format::{INNER_HEADER, SLOT};
use crate::node::{CAPACITY, Damage, Goal, Node};
use foreshore_base::PageId;

/// Two neighbours below one parent.
pub(crate) struct Pair {
    pub(crate) left: PageId,
    pub(crate) right: PageId,
    pub(crate) separator: Vec<u8>,
}

/// Returns the pairs below `parent` of the node that covers `key`, which is page `thin`.
pub(crate) fn pairs_of(parent: &Node<'_>, key: &[u8], thin: PageId) -> Result<Vec<Pair>, Damage> {
    let entries = parent.entries_to(Goal::At(key))?;
    let child = |entries: usize| match entries {
        0 => parent.leftmost(),
        entries => parent.child(entries - 1),
    };
    let mut pairs = Vec::new();
    // The node was split or merged meanwhile.
    if child(entries)? != thin {
        return Ok(pairs);
    }
    let pair = |entries: usize| {
        let (left, right) = (child(entries - 1)?, child(entries)?);
        Ok::<_, Damage>(Pair { left, right, separator: parent.key(entries - 1)?.to_vec() })
    };
    // The merge into the left neighbour comes first, because it moves little.
    if entries > 0 {
        pairs.push(pair(entries)?);
    }
    if entries < parent.len() {
        pairs.push(pair(entries + 1)?);
    }
    Ok(pairs)
}

/// Returns whether the parent leads to both nodes of a pair, side by side.
pub(crate) fn are_neighbours(parent: &Node<'_>, pair: &Pair) -> Result<bool, Damage> {
    let Ok(at) = parent.search(&pair.separator)? else { return Ok(false) };
    let left = if at == 0 { parent.leftmost()? } else { parent.child(at - 1)? };
    Ok(left == pair.left && parent.child(at)? == pair.right)
}

/// Returns whether `left` can take the content of `right` and then has at most `most` bytes in use. An empty left node
/// takes anything.
pub(crate) fn fits(left: &Node<'_>, right: &Node<'_>, most: usize) -> Result<bool, Damage> {
    let separator = if right.is_leaf() { 0 } else { SLOT + INNER_HEADER + right.low()?.len() };
    let entries = [left.entry_bytes()?, right.entry_bytes()?];
    let fences = left.low()?.len() + right.high()?.map_or(0, <[u8]>::len);
    let sum = entries[0] + entries[1] + separator + fences;
    let most = if entries.contains(&0) { CAPACITY } else { most };
    Ok(sum <= most)
}
