//! 2Q, the full version: new pages pass through a queue, and only those that are wanted again afterwards count as hot.
//!
//! | queue | holds | order | size |
//! |---|---|---|---|
//! | A1in | pages loaded for the first time | arrival | a quarter of the frames |
//! | A1out | ids of pages that left A1in | departure | as many as half the frames |
//! | Am | pages loaded while in A1out | last use | the rest |

use super::locked::Order;
use foreshore_base::PageId;
use foreshore_buffer::replacement::{FrameNo, Links, List};
use std::collections::{HashMap, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    In,
    Main,
}

#[derive(Debug)]
pub(super) struct TwoQ {
    links: Links,
    places: Box<[Place]>,
    a1in: List,
    am: List,
    a1out: Ghosts,
    /// Pages of A1in above which they are evicted first.
    in_target: usize,
}

impl TwoQ {
    pub(super) fn new(frames: usize) -> Self {
        Self {
            links: Links::new(frames),
            places: vec![Place::Nowhere; frames].into(),
            a1in: List::default(),
            am: List::default(),
            a1out: Ghosts::new(frames / 2),
            in_target: frames / 4,
        }
    }
}

impl Order for TwoQ {
    fn on_use(&mut self, no: FrameNo) {
        // A page of A1in stays where it is: uses soon after the first say nothing about the long run.
        if self.places[no as usize] == Place::Main {
            self.am.renew(&mut self.links, no);
        }
    }

    fn on_load(&mut self, no: FrameNo, pid: PageId) {
        let (place, list) =
            if self.a1out.take(pid) { (Place::Main, &mut self.am) } else { (Place::In, &mut self.a1in) };
        self.places[no as usize] = place;
        list.push(&mut self.links, no);
    }

    fn on_evict(&mut self, no: FrameNo, pid: PageId) {
        match std::mem::replace(&mut self.places[no as usize], Place::Nowhere) {
            Place::In => {
                self.a1in.remove(&mut self.links, no);
                self.a1out.add(pid);
            }
            Place::Main => self.am.remove(&mut self.links, no),
            Place::Nowhere => debug_assert!(false, "frame {no} has a page and no place"),
        }
    }

    fn victims(&self) -> impl Iterator<Item = FrameNo> {
        let excess = self.a1in.len().saturating_sub(self.in_target);
        let a1in = || self.a1in.oldest_first(&self.links);
        a1in().take(excess).chain(self.am.oldest_first(&self.links)).chain(a1in().skip(excess))
    }
}

/// The ids of the last pages that were added and not taken.
#[derive(Debug)]
struct Ghosts {
    cap: usize,
    /// In the order of their serial numbers. A taken one stays until it is met or half of the queue is of that kind.
    queue: VecDeque<(PageId, u64)>,
    present: HashMap<PageId, u64>,
    next_serial: u64,
}

impl Ghosts {
    fn new(cap: usize) -> Self {
        Self { cap, queue: VecDeque::new(), present: HashMap::new(), next_serial: 0 }
    }

    fn add(&mut self, pid: PageId) {
        self.queue.push_back((pid, self.next_serial));
        self.present.insert(pid, self.next_serial);
        self.next_serial += 1;
        while self.present.len() > self.cap {
            let Some((pid, serial)) = self.queue.pop_front() else { break };
            if self.present.get(&pid) == Some(&serial) {
                self.present.remove(&pid);
            }
        }
        if self.queue.len() > 2 * self.cap {
            self.queue.retain(|(pid, serial)| self.present.get(pid) == Some(serial));
        }
    }

    /// Removes `pid`, and returns whether it was there.
    fn take(&mut self, pid: PageId) -> bool {
        self.present.remove(&pid).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ghosts_are_the_last_ones_and_take_no_more_room_than_twice_their_number() {
        let mut ghosts = Ghosts::new(3);
        (1..=4).for_each(|pid| ghosts.add(PageId(pid)));
        assert!(!ghosts.take(PageId(1)) && ghosts.take(PageId(3)) && !ghosts.take(PageId(3)));
        // One old ghost stays while others come and are taken.
        for pid in 10..1000 {
            ghosts.add(PageId(pid));
            assert!(ghosts.take(PageId(pid)));
        }
        assert!(ghosts.queue.len() <= 6 && ghosts.take(PageId(4)));
    }
}
