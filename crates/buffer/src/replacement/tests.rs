//! The engine's own policy without a pool.

use super::{Replay, S3c};
use std::collections::HashSet;

fn reader() -> Replay {
    Replay::new(Box::new(S3c::new(40).expect("memory")), 40)
}

#[test]
fn s3c_names_every_page_however_often_it_was_used() {
    let mut reader = reader();
    // Old and new, hot and cold.
    (0..3).for_each(|_| reader.use_all(1..=70));
    (0..20).for_each(|_| reader.use_all(45..=70));
    assert_eq!(reader.names(usize::MAX).into_iter().collect::<HashSet<_>>().len(), 40);
}

#[test]
fn s3c_does_not_name_free_frames() {
    let mut reader = reader();
    reader.use_all(1..=40);
    let gone: HashSet<u64> = (0..40).map(|_| reader.evict()).collect();
    assert_eq!((gone.len(), reader.names(usize::MAX)), (40, vec![]));
}

#[test]
fn s3c_keeps_hot_pages_from_a_scan() {
    let mut reader = reader();
    // Four hot pages, used twice while they are new.
    (0..3).for_each(|_| reader.use_all(1..=4));
    let scan: Vec<_> = (100..1000).filter_map(|pid| reader.read(pid)).collect();
    assert!(scan.len() == 900 + 4 - 40 && scan.iter().all(|&pid| pid > 4), "{scan:?}");
    // A page that is loaded again soon after its eviction stays too, though it was never used twice.
    let last = *scan.last().expect("a scan");
    assert!(reader.read(last).is_some());
    assert!((2000..2030).all(|pid| reader.read(pid) != Some(last)));
}

#[test]
fn s3c_goes_on_to_younger_pages_when_the_oldest_cannot_go() {
    let mut reader = reader();
    // Hot pages in frames of low numbers, and new ones in the others.
    (0..3).for_each(|_| reader.use_all(1..=4));
    reader.use_all(5..=40);
    let named: Vec<_> = reader.names(32).into_iter().map(|no| reader.page(no)).collect();
    assert_eq!(named, (5..=36).collect::<Vec<_>>(), "each once, in the order of arrival");
}
