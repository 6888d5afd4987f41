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

/// The bytes of a node that its left neighbour takes in a merge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) entries: usize,
    /// The separator, which an inner node takes as an entry, and the high fence.
    fences: usize,
}

impl Content {
    pub(crate) fn of(right: &Node<'_>) -> Result<Self, Damage> {
        let separator = if right.is_leaf() { 0 } else { SLOT + INNER_HEADER + right.low()?.len() };
        Ok(Self { entries: right.entry_bytes()?, fences: separator + right.high()?.map_or(0, <[u8]>::len) })
    }

    /// Returns whether `left` can take the content and then has at most `most` bytes in use. If one of the two nodes is
    /// empty, the other may be full.
    pub(crate) fn fits(self, left: &Node<'_>, most: usize) -> Result<bool, Damage> {
        let entries = left.entry_bytes()?;
        let sum = entries + self.entries + left.low()?.len() + self.fences;
        let most = if entries == 0 || self.entries == 0 { CAPACITY } else { most };
        Ok(sum <= most)
    }
}
