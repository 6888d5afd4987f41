//! Least recently used first.

use super::locked::Order;
use foreshore_base::PageId;
use foreshore_buffer::replacement::{FrameNo, Links, List};

#[derive(Debug)]
pub(super) struct Lru {
    links: Links,
    list: List,
    /// Whether the frame is on the list.
    listed: Box<[bool]>,
}

impl Lru {
    pub(super) fn new(frames: usize) -> Self {
        Self { links: Links::new(frames), list: List::default(), listed: vec![false; frames].into() }
    }
}

impl Order for Lru {
    fn on_use(&mut self, no: FrameNo) {
        if self.listed[no as usize] {
            self.list.renew(&mut self.links, no);
        }
    }

    fn on_load(&mut self, no: FrameNo, _: PageId) {
        self.listed[no as usize] = true;
        self.list.push(&mut self.links, no);
    }

    fn on_evict(&mut self, no: FrameNo, _: PageId) {
        self.listed[no as usize] = false;
        self.list.remove(&mut self.links, no);
    }

    fn victims(&self) -> impl Iterator<Item = FrameNo> {
        self.list.oldest_first(&self.links)
    }
}
