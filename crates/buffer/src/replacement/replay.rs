//! Policies without a pool: one thread reads pages, and the victims are observed.

use super::policy::{Frames, ReplacementPolicy};
use crate::frame::{Frame, FrameNo};
use foreshore_base::PageId;
use foreshore_sync::ParkTable;
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Reads pages into the frames of a policy's victims, for tests of the policy.
#[derive(Debug)]
pub struct Replay {
    policy: Box<dyn ReplacementPolicy>,
    frames: Box<[Frame]>,
    places: HashMap<u64, FrameNo>,
}

impl Replay {
    /// Returns `frames` free frames and their policy.
    #[must_use]
    pub fn new(policy: Box<dyn ReplacementPolicy>, frames: usize) -> Self {
        Self { policy, frames: (0..frames).map(|_| Frame::new()).collect(), places: HashMap::new() }
    }

    /// Returns the frame of a page, if it has one.
    #[must_use]
    pub fn place(&self, pid: u64) -> Option<FrameNo> {
        self.places.get(&pid).copied()
    }

    /// Uses a page. Returns the page that it pushes out.
    pub fn read(&mut self, pid: u64) -> Option<u64> {
        if let Some(no) = self.place(pid) {
            match self.policy.use_cap() {
                None => self.policy.on_use(Frames::new(&self.frames), no),
                Some(cap) => self.frames[no as usize].count_use(cap),
            }
            return None;
        }
        let out = (self.places.len() == self.frames.len()).then(|| self.evict());
        let free = self.frames.iter().position(|frame| frame.pid() == PageId::ZERO).expect("a free frame");
        self.enter(free as FrameNo, pid);
        out
    }

    /// Puts a page into a free frame.
    pub fn enter(&mut self, no: FrameNo, pid: u64) {
        self.set_page(no, PageId(pid));
        self.places.insert(pid, no);
        self.policy.on_load(Frames::new(&self.frames), no, PageId(pid));
    }

    /// Evicts the page in a frame.
    pub fn evict_frame(&mut self, no: FrameNo) {
        let pid = self.frames[no as usize].pid();
        self.policy.on_evict(Frames::new(&self.frames), no, pid);
        self.set_page(no, PageId::ZERO);
        assert_eq!(self.places.remove(&pid.0), Some(no), "page {pid} leaves its frame");
    }

    /// Evicts the page that the policy names first, and returns it.
    pub fn evict(&mut self) -> u64 {
        let no = *self.names(1).first().expect("a page may go");
        let pid = self.frames[no as usize].pid();
        self.evict_frame(no);
        pid.0
    }

    /// Returns the frames that the policy names, `most` at most.
    #[must_use]
    pub fn names(&self, most: usize) -> Vec<FrameNo> {
        let mut named = Vec::new();
        let flow = self.policy.sweep(Frames::new(&self.frames), &mut |no| {
            named.push(no);
            if named.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(flow.is_break(), named.len() == most, "a sweep ends when it is told, and says so");
        named
    }

    /// Returns the page in a frame, 0 if it is free.
    #[must_use]
    pub fn page(&self, no: FrameNo) -> u64 {
        self.frames[no as usize].pid().0
    }

    /// Uses these pages in turn.
    pub fn use_all(&mut self, pids: impl IntoIterator<Item = u64>) {
        for pid in pids {
            self.read(pid);
        }
    }

    /// Reads these pages and returns the victim of each, 0 for none.
    pub fn read_all<const N: usize>(&mut self, pids: [u64; N]) -> [u64; N] {
        pids.map(|pid| self.read(pid).unwrap_or(0))
    }

    fn set_page(&self, no: FrameNo, pid: PageId) {
        let latch = self.frames[no as usize].latch();
        assert!(latch.try_lock_exclusive(), "frame {no} is latched");
        self.frames[no as usize].set_pid(pid);
        latch.unlock_exclusive(&ParkTable::new());
    }
}
