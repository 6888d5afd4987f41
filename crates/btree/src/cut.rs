//! Where a split cuts a node.

use crate::format::SLOT;
use crate::node::{Damage, Node, separator};
use foreshore_base::{PageId, Xid};

/// The cut of a node. Entries from `from` on go to the right node, and so do keys from `separator` on.
pub(crate) struct Cut {
    pub(crate) from: usize,
    pub(crate) separator: Vec<u8>,
    /// Leftmost child of the right node, for an inner node. The entry of that child moves up.
    pub(crate) leftmost: Option<PageId>,
}

/// Returns the cut of a leaf before the entry of `key`, which is not the first.
pub(crate) fn cut_before(node: &Node<'_>, key: &[u8]) -> Result<Cut, Damage> {
    match node.search(key)? {
        Ok(from) if from > 0 => {
            let separator = separator(node.key(from - 1)?, node.key(from)?)?.to_vec();
            Ok(Cut { from, separator, leftmost: None })
        }
        _ => Err("a leaf is cut before its first entry"),
    }
}

/// Tenths of a node that stay in the left half if keys come in about ascending order. The rest of the left node is
/// space for late keys.
const RUN_TENTHS: usize = 9;
/// Rows that show whether keys come late.
const SAMPLE: usize = 32;

/// Returns whether the rows before `at` were written in the order of their keys, as far as their xids tell. So it is
/// unlikely that a smaller key comes later, from another transaction.
fn are_in_order(leaf: &Node<'_>, at: usize) -> Result<bool, Damage> {
    let mut newest = Xid::ZERO;
    for index in at.saturating_sub(SAMPLE)..at {
        let xid = leaf.row(index)?.header.xid;
        if xid < newest {
            return Ok(false);
        }
        newest = xid;
    }
    Ok(true)
}

/// Chooses the cut of a node in which an entry of `need` bytes for `key` does not fit.
///
/// | position of the key | the left node keeps |
/// |---|---|
/// | at the right end of the level, or of a node after the key inserted last | all but one entry, or nine tenths |
/// | after the key inserted last, with others on its right | the entries on its left, up to as much |
/// | elsewhere | half of the bytes |
///
/// So ascending runs leave full nodes behind, wherever in the tree they are. In the second case the keys on the right
/// do not belong to the run, and the run continues in the left node. Nine tenths are for inner nodes, and for leaves
/// into which keys come late.
pub(crate) fn choose_cut(node: &Node<'_>, key: &[u8], need: usize) -> Result<Cut, Damage> {
    let len = node.len();
    let found = node.search(key)?;
    let at = found.unwrap_or_else(|at| at);
    let mut sizes = Vec::with_capacity(len);
    for index in 0..len {
        sizes.push(SLOT + node.tuple(index)?.1.len());
    }
    let total: usize = sizes.iter().sum();
    let is_run = found.is_err() && node.is_run_end(at);
    let is_inside = is_run && at < len;
    let is_ascending = is_run || at == len && node.high()?.is_none();
    let share = match is_ascending {
        true if node.is_leaf() && are_in_order(node, at)? => total,
        true => total * RUN_TENTHS / 10,
        false => total / 2,
    };
    let mut left = 0;
    let reach = sizes.iter().take_while(|&&size| {
        left += size;
        left <= share
    });
    let from = reach.count().max(1);
    if node.is_leaf() {
        let (from, separator) = match len {
            0 => return Err("a leaf without entries is full"),
            // The leaf has one large row, so the new row gets its own leaf.
            1 if at == 0 => (0, separator(key, node.key(0)?)?),
            1 => (1, separator(node.key(0)?, key)?),
            _ if is_inside && at <= from => {
                let before: usize = sizes[..at].iter().sum();
                let fits = before + need <= total + node.free();
                let (previous, next) = (node.key(at - 1)?, node.key(at)?);
                let beside = if fits { separator(key, next)? } else { separator(previous, key)? };
                // A separator beside the new key may be longer than all that leaves one of the halves.
                let left = total - before + node.high()?.map_or(0, <[u8]>::len);
                let right = before + node.low()?.len();
                let has_space = beside.len() <= left.min(right) + node.free();
                (at, if has_space { beside } else { separator(previous, next)? })
            }
            _ => {
                let from = from.min(len - 1);
                (from, separator(node.key(from - 1)?, node.key(from)?)?)
            }
        };
        return Ok(Cut { from, separator: separator.to_vec(), leftmost: None });
    }
    if len < 3 {
        return Err("an inner node with few entries is full");
    }
    // The entry in the middle moves up. Its key separates the halves, and its child is the leftmost of the right half.
    let from = if is_inside { from.min(at) } else { from }.min(len - 2);
    Ok(Cut { from, separator: node.key(from)?.to_vec(), leftmost: Some(node.child(from)?) })
}
