//! Policies without a pool: frames, a map of pages, and what goes for what.

use super::*;
use std::collections::{HashMap, HashSet};

/// One thread that reads pages.
struct Reader {
    policy: Box<dyn Replacer>,
    frames: Box<Frames>,
    pages: HashMap<u64, FrameNo>,
}

impl Reader {
    fn new(kind: ReplacementKind, frames: usize) -> Self {
        let policy = kind.build(frames).expect("memory");
        let frames: Box<Frames> = (0..frames).map(|_| Frame::new()).collect();
        if policy.uses().with_pin().is_some() {
            frames.iter().for_each(|frame| frame.start_evicted());
        }
        Self { policy, frames, pages: HashMap::new() }
    }

    fn set(&self, no: FrameNo, pid: u64) {
        let frame = &self.frames[no as usize];
        assert!(frame.latch.try_lock_exclusive(), "one thread");
        frame.set_pid(PageId(pid));
        frame.latch.unlock_exclusive(&foreshore_sync::ParkTable::new());
    }

    /// Uses the page; the page that it pushes out.
    fn read(&mut self, pid: u64) -> Option<u64> {
        if let Some(&no) = self.pages.get(&pid) {
            let frame = &self.frames[no as usize];
            match self.policy.uses() {
                Uses::Told => self.policy.on_use(&self.frames, no),
                Uses::Counted { cap } => frame.count_use(cap),
                Uses::WithPin { cap, .. } => {
                    assert!(frame.fix(cap), "it has a page");
                    frame.unpin();
                }
            }
            return None;
        }
        let out = (self.pages.len() == self.frames.len()).then(|| self.evict());
        let free = (0..).find(|&no| self.frames[no as usize].pid() == PageId::ZERO).expect("a free frame");
        self.set(free, pid);
        self.pages.insert(pid, free);
        if let Uses::WithPin { cap, initial } = self.policy.uses() {
            let frame = &self.frames[free as usize];
            frame.enter(initial);
            assert!(frame.fix(cap), "it has a page");
            frame.loaded();
            frame.unpin();
        }
        self.policy.on_load(&self.frames, free, PageId(pid));
        out
    }

    fn evict(&mut self) -> u64 {
        let mut victim = None;
        let broke = self.policy.sweep(&self.frames, &mut |no| {
            victim = Some(no);
            ControlFlow::Break(())
        });
        let no = victim.expect("somebody may go");
        assert!(broke.is_break());
        let pid = self.frames[no as usize].pid();
        assert!(
            self.policy.uses().with_pin().is_none() || self.frames[no as usize].try_evict().is_ok(),
            "it was counted down"
        );
        self.policy.on_evict(&self.frames, no, pid);
        self.set(no, 0);
        assert_eq!(self.pages.remove(&pid.0), Some(no));
        pid.0
    }

    /// Uses these pages in turn.
    fn use_all(&mut self, pids: impl IntoIterator<Item = u64>) {
        for pid in pids {
            self.read(pid);
        }
    }

    /// What goes as these pages are read, 0 for nothing.
    fn read_all<const N: usize>(&mut self, pids: [u64; N]) -> [u64; N] {
        pids.map(|pid| self.read(pid).unwrap_or(0))
    }
}

#[test]
fn every_name_is_read_as_it_is_printed() {
    for kind in ReplacementKind::ALL {
        assert_eq!(kind.to_string().parse::<ReplacementKind>().expect("known"), kind);
    }
    for text in ["gclock:1:1", "gclock:3:15", "nbgclock:2:7"] {
        assert_eq!(text.parse::<ReplacementKind>().expect("sound weights").to_string(), text);
    }
    assert_eq!("gclock:1:5".parse::<ReplacementKind>().expect("the default"), ReplacementKind::GCLOCK);
    for text in ["gclock:", "gclock:1", "gclock:0:5", "gclock:6:5", "nbgclock:1:16", "gclock:1:5:9", "lru:1:5", ":1:5"]
    {
        text.parse::<ReplacementKind>().expect_err(text);
    }
    let refused = "fifo".parse::<ReplacementKind>().expect_err("not built").to_string();
    assert!(ReplacementKind::ALL.iter().all(|kind| refused.contains(kind.name())), "{refused}");
}

#[test]
fn a_sweep_names_every_page_however_often_it_was_used() {
    for kind in ReplacementKind::ALL {
        let mut reader = Reader::new(kind, 40);
        // Old and new, hot and cold.
        (0..3).for_each(|_| reader.use_all(1..=70));
        (0..20).for_each(|_| reader.use_all(45..=70));
        let mut named = HashSet::new();
        let swept = reader.policy.sweep(&reader.frames, &mut |no| {
            named.insert(no);
            ControlFlow::Continue(())
        });
        assert!(swept.is_continue() && named.len() == 40, "{kind} names {} of 40", named.len());
    }
}

#[test]
fn free_frames_are_not_asked_for_twice() {
    for kind in ReplacementKind::ALL {
        let mut reader = Reader::new(kind, 24);
        reader.use_all(1..=24);
        let gone: HashSet<u64> = (0..24).map(|_| reader.evict()).collect();
        assert_eq!(gone.len(), 24, "{kind}");
        assert!(
            reader.policy.sweep(&reader.frames, &mut |no| panic!("{kind} names the free frame {no}")).is_continue()
        );
    }
}

#[test]
fn lru_gives_up_the_page_not_used_for_longest() {
    let mut reader = Reader::new(ReplacementKind::Lru, 3);
    assert_eq!(reader.read_all([1, 2, 3, 1, 4, 2, 1, 5]), [0, 0, 0, 0, 2, 3, 0, 4]);
}

#[test]
fn two_q_keeps_pages_that_come_back_after_the_queue_from_a_scan() {
    let mut reader = Reader::new(ReplacementKind::TwoQ, 8);
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
    let mut reader = Reader::new(ReplacementKind::Clock, 3);
    // All have been used as they came: the hand takes that away, and comes by again.
    assert_eq!(reader.read_all([1, 2, 3, 4]), [0, 0, 0, 1]);
    assert_eq!(reader.read_all([2, 5]), [0, 3], "2 was used since, 3 was not");
}

#[test]
fn the_generalised_clock_counts_up_to_five_uses() {
    let mut reader = Reader::new(ReplacementKind::GCLOCK, 2);
    reader.read_all([1, 2]);
    reader.use_all([1; 100]);
    // The hand passes the hot page twice for each new one: five uses last for two of them, a hundred would for fifty.
    assert_eq!(reader.read_all([3, 4, 5, 6]), [2, 3, 1, 4]);
}

#[test]
fn weights_say_how_many_uses_count_and_how_many_a_new_page_has() {
    for nonblocking in [false, true] {
        let kind = |initial, cap| {
            let weights = ReplacementWeights::new(initial, cap).expect("sound weights");
            if nonblocking { ReplacementKind::NbGClock(weights) } else { ReplacementKind::GClock(weights) }
        };
        // How many new pages a page used for ever outlives, beside one more frame.
        let outlives = |kind| {
            let mut reader = Reader::new(kind, 2);
            reader.read_all([1, 2]);
            reader.use_all([1; 100]);
            (3..100).take_while(|&pid| reader.read(pid) != Some(1)).count()
        };
        assert_eq!([(1, 5), (1, 9), (3, 9), (2, 4)].map(|(w, c)| outlives(kind(w, c))), [2, 4, 2, 1]);
    }
}

#[test]
fn s3c_keeps_hot_pages_from_a_scan() {
    let mut reader = Reader::new(ReplacementKind::S3c, 40);
    // Four hot pages, used twice while they are new.
    (0..3).for_each(|_| reader.use_all(1..=4));
    let scan: Vec<_> = (100..1000).filter_map(|pid| reader.read(pid)).collect();
    assert!(scan.len() == 900 + 4 - 40 && scan.iter().all(|&pid| pid > 4), "{scan:?}");
    // A page that comes back soon after it has left stays too, though it was never used twice.
    let last = *scan.last().expect("a scan");
    assert!(reader.read(last).is_some());
    assert!((2000..2030).all(|pid| reader.read(pid) != Some(last)));
}

#[test]
fn s3c_goes_on_to_younger_pages_when_the_oldest_cannot_go() {
    let mut reader = Reader::new(ReplacementKind::S3c, 40);
    // Hot pages in frames of low numbers, and new ones in the others.
    (0..3).for_each(|_| reader.use_all(1..=4));
    reader.use_all(5..=40);
    let mut named = Vec::new();
    let _ = reader.policy.sweep(&reader.frames, &mut |no| {
        named.push(reader.frames[no as usize].pid().0);
        if named.len() == 32 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(named, (5..=36).collect::<Vec<_>>(), "each once, in the order of arrival");
}

#[test]
fn uses_are_told_in_batches_and_not_for_pages_that_left() {
    let mut reader = Reader::new(ReplacementKind::BpLru, 3);
    reader.use_all([1, 2, 3]);
    // Far more than a queue holds.
    reader.use_all((0..1000).map(|n| 1 + n % 2));
    assert_eq!(reader.read_all([4, 5]), [3, 1], "in the order of the last uses");
    let no = reader.pages[&4];
    reader.use_all([4]);
    // The use of 4 is in the queue when the frame changes hands.
    reader.policy.on_evict(&reader.frames, no, PageId(4));
    reader.set(no, 6);
    reader.policy.on_load(&reader.frames, no, PageId(6));
    reader.pages.remove(&4);
    reader.pages.insert(6, no);
    assert_eq!(reader.read_all([7, 8]), [2, 5]);
}
