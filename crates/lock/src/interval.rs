//! Intervals of keys, and the disjoint intervals that one owner has in one table.

use crate::bound_key::BoundKey;
use foreshore_base::Few;
use std::ops::Bound;

/// The keys from `low` up to but excluding `high`. Without a `high` the interval reaches to the end of the table.
///
/// Every pair of bounds has this form, because the smallest key above `k` is `k` followed by a zero byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    low: BoundKey,
    high: Option<BoundKey>,
}

impl Interval {
    /// Returns the interval of the keys between two bounds.
    #[must_use]
    pub fn between(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Self {
        let low = match lower {
            Bound::Included(key) => key.into(),
            Bound::Excluded(key) => BoundKey::above(key),
            Bound::Unbounded => BoundKey::default(),
        };
        let high = match upper {
            Bound::Included(key) => Some(BoundKey::above(key)),
            Bound::Excluded(key) => Some(key.into()),
            Bound::Unbounded => None,
        };
        Self { low, high }
    }

    /// Returns the interval that contains only `key`.
    #[must_use]
    pub fn of_key(key: &[u8]) -> Self {
        Self { low: key.into(), high: Some(BoundKey::above(key)) }
    }

    /// Returns the interval with these bounds, as [`low`](Self::low) and [`high`](Self::high) give them; `None` if no
    /// key lies in it.
    #[must_use]
    pub fn from_parts(low: &[u8], high: Option<&[u8]>) -> Option<Self> {
        let interval = Self { low: low.into(), high: high.map(BoundKey::from) };
        (!interval.is_empty()).then_some(interval)
    }

    /// Returns the smallest key of the interval.
    #[must_use]
    pub fn low(&self) -> &[u8] {
        &self.low
    }

    /// Returns the smallest key above the interval; `None` if the interval reaches to the end of the table.
    #[must_use]
    pub fn high(&self) -> Option<&[u8]> {
        self.high.as_deref()
    }

    /// Returns whether the interval contains no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }

    /// Returns the only key of the interval; `None` if it has none or several.
    #[must_use]
    pub fn as_key(&self) -> Option<&[u8]> {
        let (last, key) = self.high.as_ref()?.split_last()?;
        (*last == 0 && *key == *self.low).then_some(&self.low)
    }

    /// Returns whether `key` lies in the interval.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        &self.low[..] <= key && !self.ends_at_or_before(key)
    }

    /// Returns whether all keys of `other` lie in the interval.
    fn covers(&self, other: &Self) -> bool {
        self.low <= other.low && !other.ends_behind(self)
    }

    /// Returns whether the interval contains neither `key` nor any larger key.
    pub(crate) fn ends_at_or_before(&self, key: &[u8]) -> bool {
        self.high.as_ref().is_some_and(|high| &high[..] <= key)
    }

    /// Returns whether the interval ends after the end of `other`.
    pub(crate) fn ends_behind(&self, other: &Self) -> bool {
        match (&self.high, &other.high) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(mine), Some(high)) => mine > high,
        }
    }

    /// Widens the interval to the end of `other`, if that is later than its own.
    fn reach_end_of(&mut self, other: Self) {
        if other.ends_behind(self) {
            self.high = other.high;
        }
    }

    /// Widens the interval to the smallest one that contains both.
    pub(crate) fn widen_to(&mut self, mut other: Self) {
        if other.low < self.low {
            std::mem::swap(&mut self.low, &mut other.low);
        }
        self.reach_end_of(other);
    }

    /// Returns the bytes of memory that the bounds have besides the interval itself.
    fn heap_bytes(&self) -> usize {
        self.low.heap_bytes() + self.high.as_ref().map_or(0, BoundKey::heap_bytes)
    }
}

/// Disjoint intervals in the order of their low bounds. No two touch: touching ones are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals {
    list: Vec<Interval>,
    /// Bytes of memory that the bounds have besides the list.
    heap_bytes: usize,
}

/// A change of a set of intervals. The `removed` ones are gone, and the `added` ones contain all of their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub(crate) removed: Few<Interval>,
    pub(crate) added: Few<Interval>,
}

impl Intervals {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Interval> {
        self.list.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the bytes of memory that the bounds have besides the list.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// Returns the number of places in memory.
    pub(crate) fn capacity(&self) -> usize {
        self.list.capacity()
    }

    /// Removes all intervals. The memory of the list stays.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.heap_bytes = 0;
    }

    /// Returns the last interval that begins at or before `key`.
    fn at(&self, key: &[u8]) -> Option<&Interval> {
        let behind = self.list.partition_point(|interval| &interval.low[..] <= key);
        self.list[..behind].last()
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.at(key).is_some_and(|interval| interval.contains(key))
    }

    pub(crate) fn covers(&self, other: &Interval) -> bool {
        self.at(&other.low).is_some_and(|interval| interval.covers(other))
    }

    /// Adds an interval that is not empty, and merges it with all intervals that it touches.
    pub(crate) fn add(&mut self, mut new: Interval) -> Change {
        assert!(!new.is_empty(), "an interval without keys is added: {new:?}");
        let first = self.list.partition_point(|old| old.high.as_ref().is_some_and(|high| *high < new.low));
        let touches = |old: &Interval| new.high.as_ref().is_none_or(|high| *high >= old.low);
        let behind = first + self.list[first..].partition_point(touches);
        for old in &self.list[first..behind] {
            new.widen_to(old.clone());
        }
        self.heap_bytes += new.heap_bytes();
        let removed: Few<Interval> = self.list.splice(first..behind, [new.clone()]).collect();
        self.heap_bytes -= removed.iter().map(Interval::heap_bytes).sum::<usize>();
        debug_assert!(self.is_sound(), "{new:?} was added: {self:?}");
        Change { removed, added: Few::One(new) }
    }

    /// Undoes an [`add`](Self::add). The caller undoes the newest one first. Returns false, and changes nothing, if the
    /// added interval was merged since.
    pub(crate) fn undo_add(&mut self, change: &Change) -> bool {
        let [whole] = &change.added[..] else { return false };
        let at = self.list.partition_point(|interval| interval.low < whole.low);
        if self.list.get(at) != Some(whole) {
            return false;
        }
        let restored: usize = change.removed.iter().map(Interval::heap_bytes).sum();
        self.heap_bytes = self.heap_bytes - whole.heap_bytes() + restored;
        self.list.splice(at..=at, change.removed.iter().cloned());
        debug_assert!(self.is_sound(), "{change:?} was undone: {self:?}");
        true
    }

    /// Removes the last intervals, at most `most`, and returns them.
    pub(crate) fn take_last(&mut self, most: usize) -> Self {
        if self.list.len() <= most {
            return std::mem::take(self);
        }
        let list = self.list.split_off(self.list.len() - most);
        let heap_bytes = list.iter().map(Interval::heap_bytes).sum();
        self.heap_bytes -= heap_bytes;
        Self { list, heap_bytes }
    }

    /// Merges neighbours, the nearest ones first, until there are at most `most` intervals. Distances are compared by
    /// the first eight bytes behind the common prefix.
    pub(crate) fn merge_down_to(&mut self, most: usize) -> Change {
        let most = most.max(1);
        let Some(surplus) = self.list.len().checked_sub(most).filter(|&surplus| surplus > 0) else {
            return Change::default();
        };
        let shared = self.shared_prefix();
        let distance = |at: usize| {
            let end = self.list[at - 1].high.as_deref().unwrap_or_default();
            leading(&self.list[at].low[shared..]) - leading(&end[shared.min(end.len())..])
        };
        let mut gaps: Vec<(u64, usize)> = (1..self.list.len()).map(|at| (distance(at), at)).collect();
        gaps.select_nth_unstable(surplus - 1);
        let mut goes = vec![false; self.list.len()];
        gaps[..surplus].iter().for_each(|&(_, at)| goes[at] = true);

        let (mut removed, mut added) = (Vec::new(), Vec::new());
        let mut kept: Vec<Interval> = Vec::with_capacity(most);
        let mut rest = std::mem::take(&mut self.list).into_iter().zip(goes).peekable();
        while let Some((mut whole, _)) = rest.next() {
            let before = removed.len();
            while let Some((next, _)) = rest.next_if(|&(_, goes)| goes) {
                if removed.len() == before {
                    removed.push(whole.clone());
                }
                whole.reach_end_of(next.clone());
                removed.push(next);
            }
            if removed.len() > before {
                added.push(whole.clone());
            }
            kept.push(whole);
        }
        self.list = kept;
        let change = Change { removed: Few::Many(removed), added: Few::Many(added) };
        self.heap_bytes = self.list.iter().map(Interval::heap_bytes).sum();
        debug_assert!(self.is_sound() && self.list.len() == most, "{change:?} left {self:?}, {most} were to stay");
        change
    }

    /// Returns whether the intervals are in order, no two touch, and their bytes are counted correctly.
    fn is_sound(&self) -> bool {
        let apart = |pair: &[Interval]| pair[0].high.as_ref().is_some_and(|high| *high < pair[1].low);
        self.list.windows(2).all(apart) && self.heap_bytes == self.list.iter().map(Interval::heap_bytes).sum::<usize>()
    }

    /// Returns the length of the prefix that the first and the last low bound share, and so all bounds between them.
    fn shared_prefix(&self) -> usize {
        let (Some(first), Some(last)) = (self.list.first(), self.list.last()) else { return 0 };
        first.low.iter().zip(&last.low[..]).take_while(|(a, b)| a == b).count()
    }
}

/// Returns the first eight bytes as a number, so that numbers compare like keys.
fn leading(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = bytes.len().min(8);
    first[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(first)
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn interval(low: u8, high: u8) -> Interval {
        Interval::between(Bound::Included(&[low]), Bound::Excluded(&[high]))
    }

    #[test]
    fn bounds_of_every_kind_hold_the_keys_between_them() {
        let bounds = [Bound::Unbounded, Bound::Included(&b"b"[..]), Bound::Excluded(&b"b"[..])];
        let upper = [Bound::Unbounded, Bound::Included(&b"d"[..]), Bound::Excluded(&b"d"[..])];
        let keys: [&[u8]; 9] = [b"", b"a", b"a\xff", b"b", b"b\0", b"c", b"d", b"d\0", b"e"];
        for (lower, upper) in bounds.into_iter().flat_map(|lower| upper.map(|upper| (lower, upper))) {
            let interval = Interval::between(lower, upper);
            for key in keys {
                use std::ops::RangeBounds;
                let expected = (lower, upper).contains(key);
                assert_eq!(interval.contains(key), expected, "{key:?} in {lower:?}..{upper:?}");
            }
        }
        assert!(Interval::between(Bound::Excluded(b"b"), Bound::Included(b"b")).is_empty());
        assert_eq!(Interval::of_key(b"b").as_key(), Some(&b"b"[..]));
        assert_eq!(Interval::between(Bound::Included(b"b"), Bound::Excluded(b"c")).as_key(), None);
    }

    #[test]
    fn a_set_has_the_keys_of_all_that_were_added_and_no_two_that_touch() {
        let mut seed = 1_u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) % n) as u8
        };
        for _ in 0..2_000 {
            let (mut set, mut keys) = (Intervals::default(), BTreeSet::new());
            for _ in 0..8 {
                let low = below(40);
                let high = low + 1 + below(6);
                let before = set.clone();
                let change = set.add(interval(low, high));
                let after = set.clone();
                assert!(set.undo_add(&change) && set == before, "{before:?} with {change:?} is {after:?}");
                assert!(change.removed[..] == change.added[..] || !set.undo_add(&change), "once");
                set.add(interval(low, high));
                keys.extend(low..high);
                assert!((0..60).all(|key| set.contains(&[key]) == keys.contains(&key)), "{set:?}");
                assert!(set.list.windows(2).all(|pair| pair[0].high.as_ref().unwrap() < &pair[1].low), "{set:?}");
                assert!(set.covers(&interval(low, high)));
            }
            let (before, most) = (set.clone(), 1 + usize::from(below(8)));
            let change = set.merge_down_to(most);
            assert!(set.len() == before.len().min(most), "{before:?} {set:?}");
            assert!(keys.iter().all(|key| set.contains(&[*key])), "{before:?} {set:?}");
            // The change reports which intervals were replaced by which.
            let kept = before.iter().filter(|old| !change.removed.contains(old)).chain(&*change.added);
            let mut kept: Vec<_> = kept.cloned().collect();
            kept.sort_by(|a, b| a.low.cmp(&b.low));
            assert_eq!(kept, set.list, "{before:?}");
            assert_eq!(set.heap_bytes, set.iter().map(Interval::heap_bytes).sum::<usize>());
        }
    }

    #[test]
    fn the_nearest_neighbours_are_merged_first() {
        let mut set = Intervals::default();
        for low in [1, 10, 12, 30] {
            set.add(Interval::of_key(&[7, 7, low]));
        }
        set.merge_down_to(3);
        assert!(set.contains(&[7, 7, 11]) && !set.contains(&[7, 7, 5]) && !set.contains(&[7, 7, 20]));
        set.merge_down_to(2);
        assert!(set.contains(&[7, 7, 5]) && !set.contains(&[7, 7, 20]));
        set.merge_down_to(0);
        assert!(set.len() == 1 && set.contains(&[7, 7, 20]) && !set.contains(&[7, 7, 31]));
        set.add(Interval::between(Bound::Included(&[9]), Bound::Unbounded));
        set.add(Interval::between(Bound::Unbounded, Bound::Included(&[1])));
        set.merge_down_to(1);
        assert_eq!(set.list, [Interval::between(Bound::Unbounded, Bound::Unbounded)]);
    }
}
