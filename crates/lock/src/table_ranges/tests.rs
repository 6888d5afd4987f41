use super::{Change, MAX_INTERVALS, TableRanges};
use crate::interval::Interval;
use std::ops::Bound;

const KEYS: u64 = 4_000;
const OWNERS: u32 = 5;

fn interval(low: u64, len: u64) -> Interval {
    let (low, high) = (low.to_be_bytes(), (low + len).to_be_bytes());
    Interval::between(Bound::Included(&low), Bound::Excluded(&high))
}

/// Checks that the tree and the lists of the owners agree on each key.
fn check(ranges: &TableRanges, at: &str) {
    for key in (0..KEYS + 40).step_by(3).map(u64::to_be_bytes) {
        let covering: Vec<u32> = (0..OWNERS).filter(|&owner| ranges.covers_key(owner, &key)).collect();
        for asks in 0..=OWNERS {
            let mut others = Vec::new();
            ranges.others_at(asks, &key, &mut others);
            others.sort_unstable();
            let expected: Vec<u32> = covering.iter().copied().filter(|&owner| owner != asks).collect();
            assert_eq!(others, expected, "{at}: key {key:?} of {asks}");
            let other = ranges.other_at(asks, &key);
            assert!(other.map_or(expected.is_empty(), |other| expected.contains(&other)), "{at}: {other:?} at {key:?}");
        }
    }
    let held: usize = ranges.held.iter().map(|(_, held)| held.len()).sum();
    assert_eq!(ranges.by_key.len(), held, "{at}");
    assert!(ranges.held.iter().all(|(_, held)| !held.is_empty()), "{at}");
}

/// Checks that both structures keep the same intervals through additions, merges, undos and partial releases.
#[test]
fn the_intervals_by_owner_and_by_key_are_the_same() {
    let mut seed = 7_u64;
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    for round in 0..12 {
        let mut ranges = TableRanges::default();
        let most = [3, 100, MAX_INTERVALS][round % 3];
        let mut news: Vec<(u32, Change)> = Vec::new();
        for step in 0..1_500 {
            let owner = below(u64::from(OWNERS)) as u32;
            match below(40) {
                0 if ranges.of(owner).is_some() => {
                    let (before, keeps) = (ranges.of(owner).cloned().unwrap_or_default(), step % 2 == 0);
                    let mut removed: Vec<Interval> = Vec::new();
                    loop {
                        let removal = ranges.remove_some(owner, keeps);
                        removed.splice(0..0, removal.intervals.iter().cloned());
                        if removal.is_done {
                            break;
                        }
                        check(&ranges, "released in part");
                    }
                    assert!(keeps || removed.iter().eq(before.iter()), "{removed:?} of {before:?}");
                    assert!(ranges.of(owner).is_none());
                    news.retain(|&(of, _)| of != owner);
                }
                1..10 => {
                    // Additions of one owner are undone newest first.
                    if let Some(at) = news.iter().rposition(|&(of, _)| of == owner) {
                        let (_, change) = news.remove(at);
                        if ranges.undo_add(owner, &change).is_none() {
                            assert!(ranges.of(owner).is_none());
                            news.retain(|&(of, _)| of != owner);
                        }
                    }
                }
                _ => {
                    let most_keys = if below(20) == 0 { 400 } else { 3 };
                    let new = interval(below(KEYS), 1 + below(most_keys));
                    let is_first = ranges.of(owner).is_none();
                    let added = ranges.add(owner, new.clone(), most);
                    assert_eq!(added.is_first, is_first);
                    assert!(ranges.of(owner).is_some_and(|held| held.covers(&new) && held.len() <= most));
                    match added.is_merged {
                        true => news.retain(|&(of, _)| of != owner),
                        false => news.push((owner, added.change)),
                    }
                }
            }
            if step % 150 == 0 {
                check(&ranges, "step");
            }
        }
        check(&ranges, &format!("round {round}"));
    }
}
