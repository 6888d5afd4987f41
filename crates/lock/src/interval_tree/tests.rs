use super::{IntervalTree, NONE};
use crate::interval::Interval;
use std::cell::Cell;
use std::ops::Bound;

thread_local! {
    /// Nodes that searches of this thread have visited.
    pub(super) static VISITED: Cell<usize> = const { Cell::new(0) };
}

fn interval(low: u64, high: Option<u64>) -> Interval {
    let high = high.map(u64::to_be_bytes);
    let upper = high.as_ref().map_or(Bound::Unbounded, |high| Bound::Excluded(&high[..]));
    Interval::between(Bound::Included(&low.to_be_bytes()), upper)
}

/// A generator of numbers below a given bound.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % n
    }
}

fn owners_at(tree: &IntervalTree, key: u64) -> Vec<u32> {
    let mut owners = Vec::new();
    tree.covering(&key.to_be_bytes(), |owner| {
        owners.push(owner);
        true
    });
    owners.sort_unstable();
    owners
}

/// Compares the tree with a list while intervals are added, widened and removed. Intervals of one owner may overlap
/// here.
#[test]
fn a_look_finds_the_owners_that_cover_the_key() {
    let mut random = Random(1);
    for _ in 0..300 {
        let (mut tree, mut all) = (IntervalTree::default(), Vec::<(u32, u64, Option<u64>)>::new());
        for _ in 0..60 {
            let (owner, low) = (random.below(4) as u32, random.below(40));
            let high = (random.below(8) > 0).then(|| low + 1 + random.below(12));
            match all.iter().position(|&(of, from, _)| (of, from) == (owner, low)) {
                None => {
                    tree.insert(owner, interval(low, high));
                    all.push((owner, low, high));
                }
                Some(at) if random.below(2) == 0 => {
                    tree.replace(owner, &interval(low, high));
                    all[at].2 = high;
                }
                Some(at) => {
                    tree.remove(owner, &low.to_be_bytes());
                    all.swap_remove(at);
                }
            }
            for key in 0..54 {
                let covers =
                    |&&(_, low, high): &&(u32, u64, Option<u64>)| low <= key && high.is_none_or(|high| key < high);
                let mut expected: Vec<u32> = all.iter().filter(covers).map(|&(owner, ..)| owner).collect();
                expected.sort_unstable();
                assert_eq!(owners_at(&tree, key), expected, "{key} in {all:?}");
            }
        }
        for (owner, low, _) in all {
            tree.remove(owner, &low.to_be_bytes());
        }
        assert!(tree.root == NONE && tree.free.len() == tree.nodes.len(), "nothing is left");
    }
}

/// Tests many owners with many intervals each, and owners with one wide interval each, followed by many others.
#[test]
fn a_look_visits_few_nodes() {
    let mut random = Random(2);
    for (owners, each) in [(1_u32, 1000), (100, 16), (1000, 1), (100, 1000)] {
        let mut tree = IntervalTree::default();
        for owner in 0..owners {
            for n in 0..each {
                let low = n * (1 << 24) + random.below(1 << 23);
                tree.insert(owner, interval(low, Some(low + 1)));
            }
        }
        let count = f64::from(owners) * each as f64;
        // The depth of a treap is 2 ln n on average. A search visits one node below and one beside it at each level.
        let most = (12.0 * count.log2() + 12.0) as usize;
        for key in 0..2000 {
            VISITED.set(0);
            let _ = owners_at(&tree, key * (1 << 23));
            assert!(VISITED.get() <= most, "{} of {count} nodes, {most} expected at most", VISITED.get());
        }
    }
}
