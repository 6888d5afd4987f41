//! Redistribution: three leaves become two if no two of them fit in one. The left leaf takes rows of the middle one,
//! and the rest is merged with the right one.
//!
//! 1. *Unlink* the middle leaf, as for a merge (see [`crate::merge`]).
//! 2. *Shift*: the left leaf takes the first rows of the middle one. Its high fence becomes the key at which the other
//!    rows begin. One record with both leaves. The tree is still in the state after the first step of a split, with
//!    another separator.
//! 3. *Link* the middle leaf, as in the second step of a split.
//! 4. *Merge* the right leaf into the middle one.
//!
//! **Why no reader is misled.** A reader of a moved row has come through the parent, the left or the middle leaf. Step
//! 1 changes the parent and step 2 both leaves, under their exclusive latches. The left leaf stays latched from the
//! first step to the second.
//!
//! With as many random inserts as removes, leaves stay 75 to 80 % full instead of 65 %, because random differences are
//! evened out. This is the redistribution of B*-trees (Knuth, *The Art of Computer Programming*, volume 3, section
//! 6.2.4), applied to removes instead of inserts.

use crate::descend::Unlinked;
use crate::merge::{MAX_ABSORB_BODY, MOST, Merging, has_open_split};
use crate::neighbours::Pair;
use crate::node::{Damage, Node, build_part, encode_image, give_away, separator};
use crate::record::{Absorb, TreeKind};
use crate::sound::{all_sound, assert_fits, assert_incomplete, assert_sound};
use crate::split::MAX_LINK_BODY;
use crate::tree::{Structure, Tree, record};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{PageId, Result};
use foreshore_buffer::{AccessPattern, ExclusiveGuard, Pinned, change_cost};
use foreshore_wal::Dep;

impl Tree {
    /// Makes two leaves out of three. `first` is the left and the middle one, `second` the middle and the right one.
    /// Returns false if they hold too much, have changed, or have a row with a live writer.
    pub(crate) fn redistribute(&self, merging: &mut Merging<'_>, first: &Pair, second: &Pair) -> Result<bool> {
        let pages = [first.left, first.right, second.right];
        let [left, middle, right] = pages.map(|pid| self.named(self.pool().pin_as(pid, AccessPattern::Scan)));
        let (left, middle, right) = (left?, middle?, right?);
        let Some(most) = self.plan(merging, [&left, &middle, &right])? else { return Ok(false) };
        if !self.shift(&mut merging.structure(), first, &middle, (most, MOST))? {
            return Ok(false);
        }
        self.merge(merging, second, 0)
    }

    /// Returns how many bytes the left leaf gets when two leaves share the rows of three. `None` if they cannot, or if
    /// a rollback may need the free space.
    fn plan(&self, merging: &mut Merging<'_>, leaves: [&Pinned<'_>; 3]) -> Result<Option<usize>> {
        let mut copies = [[0; PAGE_SIZE]; 3];
        for (copy, page) in copies.iter_mut().zip(leaves) {
            copy.copy_from_slice(&page.shared());
        }
        let [Ok(left), Ok(middle), Ok(right)] = copies.each_ref().map(|copy| Node::parse(copy)) else {
            return Ok(None);
        };
        let damage = |why| self.corrupted(self.root(), why);
        let most = plan(&left, &middle, &right).map_err(damage)?;
        for leaf in [left, middle, right] {
            if most.is_some() && merging.is_live(&leaf).map_err(damage)? {
                return Ok(None);
            }
        }
        Ok(most)
    }

    /// Runs steps 1 to 3 with the leaves of `pair`, the right one being the middle one above. Afterwards the rows of
    /// the left leaf have at most `most` bytes, and with the fences at most `limit`. Returns false if no row moves.
    pub(crate) fn shift<'p>(
        &'p self,
        structure: &mut Structure<'_>,
        pair: &Pair,
        right: &Pinned<'p>,
        (most, limit): (usize, usize),
    ) -> Result<bool> {
        let bytes = change_cost(2, MAX_LINK_BODY) + change_cost(2, MAX_ABSORB_BODY);
        let Some(mut left) = self.unlink(structure, pair, 0, bytes)? else { return Ok(false) };
        let shifted = self.shift_rows(structure, pair.right, &mut left, &mut right.exclusive(), (most, limit));
        drop(left);
        let low = shifted?;
        let is_done = low.is_some();
        let separator = low.unwrap_or_else(|| pair.separator.clone());
        self.link(structure, &Unlinked { left: pair.left, level: 0, separator }).map(|()| is_done)
    }

    /// Runs step 2. Returns the key at which the right leaf then begins; `None` if it stays as it is.
    fn shift_rows<'p>(
        &self,
        structure: &mut Structure<'_>,
        pid: PageId,
        left: &mut ExclusiveGuard<'p>,
        right: &mut ExclusiveGuard<'p>,
        (most, limit): (usize, usize),
    ) -> Result<Option<Vec<u8>>> {
        let damage = |why| self.corrupted(pid, why);
        let from = self.parse(pid, right)?;
        let moved = moved(&self.parse(left.pid(), left)?, &from, (most, limit)).map_err(damage)?;
        let Some(Moved { image, low }) = moved else { return Ok(None) };
        let mut body = Vec::with_capacity(MAX_ABSORB_BODY);
        Absorb::encode_front(&mut body, pid);
        let front = body.len();
        encode_image(&mut body, &image).map_err(damage)?;
        // Damage of the right leaf is found before the left one is changed.
        let mut copy = [0; PAGE_SIZE];
        copy.copy_from_slice(right);
        give_away(&mut copy, &body[front..]).map_err(damage)?;
        let were_sound = all_sound(&[left, right]);
        assert_fits(&body, MAX_ABSORB_BODY, "a shift");
        assert_incomplete(left, pid);
        let record = record(TreeKind::Shift, 0, 0, self.table(), &[left.pid(), pid], &body);
        structure.apply(self.trees(), &record, &mut [left, right], Dep::none())?;
        assert_sound(were_sound, &[left, right], "the shift", pid);
        assert_incomplete(left, pid);
        self.note_ghosts_of(left.pid(), &self.parse(left.pid(), left)?);
        self.trees().counters().shifts.add(1);
        Ok(Some(low))
    }
}

/// Returns the total bytes and the number of the first rows of a leaf that fit in `most` bytes. At least one row stays.
pub(crate) fn first_rows(leaf: &Node<'_>, most: usize) -> Result<(usize, usize), Damage> {
    let (mut sum, mut count) = (0, 0);
    while count + 1 < leaf.len() {
        let more = leaf.entry_size(count)?;
        if sum + more > most {
            break;
        }
        (sum, count) = (sum + more, count + 1);
    }
    assert!(sum <= most && count <= leaf.len(), "{count} of {} rows with {sum} of {most} bytes go", leaf.len());
    Ok((sum, count))
}

fn plan(left: &Node<'_>, middle: &Node<'_>, right: &Node<'_>) -> Result<Option<usize>, Damage> {
    let nodes = [left, middle, right];
    if nodes.iter().any(|node| !node.is_leaf() || node.len() == 0) || has_open_split(middle) || has_open_split(right) {
        return Ok(None);
    }
    let (before, rest) = (left.entry_bytes()?, middle.entry_bytes()? + right.entry_bytes()?);
    let most = (before + rest) / 2;
    let (sum, count) = first_rows(middle, most.saturating_sub(before))?;
    if count == 0 {
        return Ok(None);
    }
    // The separator between the two leaves is no longer than this key.
    let separator = middle.key(count)?.len();
    let (low, high) = (left.low()?.len(), right.high()?.map_or(0, <[u8]>::len));
    // Bytes of the two leaves afterwards: fences and entries.
    let sizes = [low + before + sum + separator, separator + rest - sum + high];
    Ok(sizes.iter().all(|&bytes| bytes <= MOST).then_some(most))
}

/// Rows that move from a leaf to its left neighbour.
struct Moved {
    image: [u8; PAGE_SIZE],
    /// The key at which the remaining rows begin.
    low: Vec<u8>,
}

/// Returns the rows that the left leaf takes, up to `most` bytes including its own rows, and up to `limit` with the
/// fences; `None` if it has no space.
fn moved(left: &Node<'_>, right: &Node<'_>, (most, limit): (usize, usize)) -> Result<Option<Moved>, Damage> {
    let before = left.entry_bytes()?;
    let (mut sum, mut count) = first_rows(right, most.saturating_sub(before))?;
    if has_open_split(right) {
        return Ok(None);
    }
    let low = loop {
        if count == 0 {
            return Ok(None);
        }
        let low = separator(right.key(count - 1)?, right.key(count)?)?;
        if left.low()?.len() + before + sum + low.len() <= limit {
            break low.to_vec();
        }
        count -= 1;
        sum -= right.entry_size(count)?;
    };
    let fences = (right.low()?, Some(&low[..]));
    let image = build_part(right, 0..count, fences, left.right(), None)?;
    Ok(Some(Moved { image, low }))
}
