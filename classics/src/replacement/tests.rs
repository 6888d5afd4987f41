//! Policies without a pool.

use super::*;
use foreshore_buffer::replacement::Replay;
use std::collections::HashSet;

fn reader(kind: ReplacementKind, frames: usize) -> Replay {
    Replay::new(kind.maker().expect("not the engine's own").make(frames).expect("memory"), frames)
}

/// The policies here: all but the engine's own.
fn all() -> impl Iterator<Item = ReplacementKind> {
    ReplacementKind::ALL.into_iter().filter(|kind| kind.maker().is_some())
}

#[test]
fn every_name_is_read_as_it_is_printed() {
    for kind in ReplacementKind::ALL {
        assert_eq!(kind.to_string().parse::<ReplacementKind>().expect("known"), kind);
    }
    for text in ["gclock:1:1", "gclock:3:15"] {
        assert_eq!(text.parse::<ReplacementKind>().expect("sound weights").to_string(), text);
    }
    assert_eq!("gclock:1:5".parse::<ReplacementKind>().expect("the default"), ReplacementKind::GCLOCK);
    for text in ["gclock:", "gclock:1", "gclock:0:5", "gclock:6:5", "gclock:1:16", "gclock:1:5:9", "lru:1:5", ":1:5"] {
        text.parse::<ReplacementKind>().expect_err(text);
    }
    let refused = "fifo".parse::<ReplacementKind>().expect_err("not built").to_string();
    assert!(ReplacementKind::ALL.iter().all(|kind| refused.contains(kind.name())), "{refused}");
    let refused = "nbgclock:1:5".parse::<ReplacementKind>().expect_err("a pool").to_string();
    assert!(refused.contains("buffer-*"), "{refused}");
}

#[test]
fn a_sweep_names_every_page_however_often_it_was_used() {
    for kind in all() {
        let mut reader = reader(kind, 40);
        // Old and new, hot and cold.
        (0..3).for_each(|_| reader.use_all(1..=70));
        (0..20).for_each(|_| reader.use_all(45..=70));
        let named: HashSet<_> = reader.names(usize::MAX).into_iter().collect();
        assert_eq!(named.len(), 40, "{kind} names {} of 40", named.len());
    }
}

#[test]
fn free_frames_are_not_asked_for_twice() {
    for kind in all() {
        let mut reader = reader(kind, 24);
        reader.use_all(1..=24);
        let gone: HashSet<u64> = (0..24).map(|_| reader.evict()).collect();
        assert_eq!(gone.len(), 24, "{kind}");
        assert_eq!(reader.names(usize::MAX), [], "{kind} names a free frame");
    }
}

#[test]
fn lru_gives_up_the_page_not_used_for_longest() {
    let mut reader = reader(ReplacementKind::Lru, 3);
    assert_eq!(reader.read_all([1, 2, 3, 1, 4, 2, 1, 5]), [0, 0, 0, 0, 2, 3, 0, 4]);
}

#[test]
fn two_q_keeps_pages_that_come_back_after_the_queue_from_a_scan() {
    let mut reader = reader(ReplacementKind::TwoQ, 8);
    // A1in takes 2 of 8 frames once all are in use; uses while there do not count.
    assert_eq!(reader.read_all([1, 2, 1, 1, 3, 4, 5, 6, 7, 8]), [0; 10]);
    assert_eq!(reader.read_all([9, 10]), [1, 2], "in the order of arrival");
    assert_eq!(reader.read_all([1, 2]), [3, 4], "back from the ghosts, for good");
    let scan: Vec<_> = (100..200).filter_map(|pid| reader.read(pid)).collect();
    assert!(scan.len() == 100 && !scan.contains(&1) && !scan.contains(&2), "{scan:?}");
    assert_eq!(reader.read_all([1, 2]), [0, 0]);
}

#[test]
fn the_clock_gives_used_pages_one_more_lap() {
    let mut reader = reader(ReplacementKind::Clock, 3);
    // All have been used on arrival: the hand counts that down, and passes again.
    assert_eq!(reader.read_all([1, 2, 3, 4]), [0, 0, 0, 1]);
    assert_eq!(reader.read_all([2, 5]), [0, 3], "2 was used since, 3 was not");
}

#[test]
fn the_generalised_clock_counts_up_to_five_uses() {
    let mut reader = reader(ReplacementKind::GCLOCK, 2);
    reader.read_all([1, 2]);
    reader.use_all([1; 100]);
    // The hand passes the hot page twice for each new one: five uses last for two of them, a hundred would for fifty.
    assert_eq!(reader.read_all([3, 4, 5, 6]), [2, 3, 1, 4]);
}

#[test]
fn weights_say_how_many_uses_count_and_how_many_a_new_page_has() {
    // Returns how many new pages a used page outlives.
    let outlives = |(initial, cap)| {
        let weights = Weights::new(initial, cap).expect("sound weights");
        let mut reader = reader(ReplacementKind::GClock(weights), 2);
        reader.read_all([1, 2]);
        reader.use_all([1; 100]);
        (3..100).take_while(|&pid| reader.read(pid) != Some(1)).count()
    };
    assert_eq!([(1, 5), (1, 9), (3, 9), (2, 4)].map(outlives), [2, 4, 2, 1]);
}

#[test]
fn uses_are_told_in_batches_and_not_for_pages_that_left() {
    let mut reader = reader(ReplacementKind::BpLru, 3);
    reader.use_all([1, 2, 3]);
    // Far more than a queue holds.
    reader.use_all((0..1000).map(|n| 1 + n % 2));
    assert_eq!(reader.read_all([4, 5]), [3, 1], "in the order of the last uses");
    let no = reader.place(4).expect("in a frame");
    reader.use_all([4]);
    // The use of 4 is in the queue when the frame changes hands.
    reader.evict_frame(no);
    reader.enter(no, 6);
    assert_eq!(reader.read_all([7, 8]), [2, 5]);
}
