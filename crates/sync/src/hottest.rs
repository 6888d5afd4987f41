//! The keys that most time is spent on, in little memory.
//!
//! The space-saving sketch of Metwally, Agrawal and El Abbadi (2005), with time as the weight. A new key replaces the
//! lightest one and inherits its weight. So every key with more than one part in [`KEPT`] of all the time is kept, and
//! a weight is too large by at most [`Hot::overestimate`].

use crate::{LockRank, Mutex};
use std::time::Duration;

/// Keys that are kept.
const KEPT: usize = 64;

/// A key and what was spent on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hot<K> {
    /// The key.
    pub key: K,
    /// How often it was added.
    pub times: u64,
    /// Upper bound of the time spent on it.
    pub spent: Duration,
    /// How much of that may belong to earlier keys in its place.
    pub overestimate: Duration,
}

/// A sketch of the keys that most time is spent on.
#[derive(Debug)]
pub struct Hottest<K>(Mutex<Vec<Hot<K>>>);

impl<K: Clone + PartialEq> Hottest<K> {
    /// Makes an empty sketch.
    #[expect(clippy::new_without_default, reason = "it is made where it is owned")]
    pub fn new() -> Self {
        Self(Mutex::new(LockRank::Leaf, Vec::new()))
    }

    /// Adds time spent on `key`.
    pub fn add(&self, key: K, spent: Duration) {
        let mut kept = self.0.lock();
        if let Some(hot) = kept.iter_mut().find(|hot| hot.key == key) {
            hot.times += 1;
            hot.spent += spent;
        } else if kept.len() < KEPT {
            kept.push(Hot { key, times: 1, spent, overestimate: Duration::ZERO });
        } else if let Some(lightest) = kept.iter_mut().min_by_key(|hot| hot.spent) {
            let overestimate = lightest.spent;
            *lightest = Hot { key, times: 1, spent: overestimate + spent, overestimate };
        }
    }

    /// Returns the kept keys, the hottest first.
    pub fn list(&self) -> Vec<Hot<K>> {
        let mut list = self.0.lock().clone();
        list.sort_by_key(|hot| std::cmp::Reverse(hot.spent));
        list
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_has_its_part_of_the_time_is_kept_among_many_others() {
        let hottest = Hottest::new();
        for n in 0..10_000_u64 {
            hottest.add(n + 10, Duration::from_nanos(10));
            hottest.add(n % 3, Duration::from_nanos(5));
        }
        let list = hottest.list();
        assert_eq!(list.len(), KEPT);
        let mut first: Vec<u64> = list[..3].iter().map(|hot| hot.key).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2]);
        for hot in &list[..3] {
            let true_time = Duration::from_nanos(5 * 3333);
            assert!(
                hot.spent >= true_time && hot.spent - hot.overestimate <= true_time + Duration::from_nanos(5),
                "{hot:?}"
            );
        }
    }
}
