//! S3-FIFO on the words of the frames, in shards.
//!
//! | part | holds | evicted first | size |
//! |---|---|---|---|
//! | SMALL | pages loaded for the first time, in the order of arrival | the oldest: to MAIN if it was used twice meanwhile, else to the ghosts | a tenth of the frames |
//! | ghosts | ids of pages evicted from SMALL | the oldest | nine tenths as many as frames |
//! | MAIN | pages used twice in SMALL, or loaded while a ghost | the first whose uses the hand has counted down; three count | the rest |
//!
//! A page that is read once is evicted from SMALL and displaces no page of MAIN, even if its reader does not say that
//! it scans. `buffer-hits` measures the cost of such scans.
//!
//! The shard of the next victim is drawn at random. Most policies evict a loop that is a little larger than the memory
//! in the very order of its next reads, so that every read misses. Here that is improbable.

use super::ghosts::Ghosts;
use super::list::{Links, List};
use super::policy::{Frames, ReplacementPolicy};
use crate::frame::FrameNo;
use foreshore_base::PageId;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex, available_parallelism};
use std::io;
use std::ops::ControlFlow;

/// Uses that a frame counts.
const CAP: u8 = 3;
/// The uses in SMALL that make a page hot.
const HOT: u8 = 2;
/// Pages that one part of one shard names in a row. The clean ones among them are evicted first.
const CANDIDATES: usize = 8;
/// Fewest frames of a shard.
const MIN_SHARD: usize = 64;

/// Frame `no` belongs to shard `no % shards`, where it has the index `no / shards`.
#[derive(Debug)]
pub(crate) struct S3c {
    shards: Box<[CachePadded<Shard>]>,
    ghosts: Ghosts,
    lot: CachePadded<AtomicU64>,
}

#[derive(Debug)]
struct Shard {
    small: Mutex<Small>,
    /// The hand of MAIN: counts the frames of the shard that it has passed.
    hand: AtomicUsize,
    frames: usize,
    /// The number of pages in SMALL from which its pages are evicted first.
    quota: usize,
}

#[derive(Debug)]
struct Small {
    links: Links,
    list: List,
    /// Whether the frame is on the list.
    listed: Box<[bool]>,
}

impl S3c {
    pub(crate) fn new(frames: usize) -> io::Result<Self> {
        let most = if MODEL { 1 } else { (2 * available_parallelism()).next_power_of_two() };
        let shards = (frames / MIN_SHARD).clamp(1, most);
        let shard = |index: usize| {
            let own = (frames - index).div_ceil(shards);
            let small = Small { links: Links::new(own), list: List::default(), listed: vec![false; own].into() };
            let (small, hand) = (Mutex::new(LockRank::Leaf, small), AtomicUsize::new(0));
            CachePadded::new(Shard { small, hand, frames: own, quota: (own / 10).max(1) })
        };
        Ok(Self {
            shards: (0..shards).map(shard).collect(),
            ghosts: Ghosts::new(frames * 9 / 10)?,
            lot: CachePadded::new(AtomicU64::new(0)),
        })
    }

    fn shard(&self, no: FrameNo) -> (&Shard, FrameNo) {
        let shards = self.shards.len() as FrameNo;
        (&self.shards[(no % shards) as usize], no / shards)
    }

    /// Returns the frame with an index in a shard.
    fn frame(&self, shard: usize, index: FrameNo) -> FrameNo {
        index * self.shards.len() as FrameNo + shard as FrameNo
    }

    fn draw(&self) -> usize {
        // ORDERING: Relaxed, any number will do.
        let n = self.lot.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 32) as usize % self.shards.len()
    }

    /// Adds candidates of a shard, except those `named`: from SMALL if it has reached its quota, else from MAIN. Hot
    /// pages of SMALL move to MAIN instead.
    fn add_candidates(&self, frames: Frames<'_>, shard: usize, named: &[FrameNo], out: &mut Vec<FrameNo>) {
        out.clear();
        let own = &self.shards[shard];
        // Another thread that has the lock is picking candidates of this shard, or is done in a moment.
        let Some(mut small) = own.small.try_lock() else { return };
        let Small { links, list, listed } = &mut *small;
        while list.len() >= own.quota && out.is_empty() {
            let is_new = |&index: &FrameNo| !named.contains(&self.frame(shard, index));
            let excess = list.oldest_first(links).take(list.len() + 1 - own.quota);
            let oldest: Vec<_> = excess.filter(is_new).take(CANDIDATES).collect();
            if oldest.is_empty() {
                break;
            }
            for index in oldest {
                let no = self.frame(shard, index);
                if frames.uses(no) < HOT {
                    out.push(no);
                    continue;
                }
                list.remove(links, index);
                listed[index as usize] = false;
                frames.frame(no).set_policy_bits(0, true);
            }
        }
        drop(small);
        if out.is_empty() {
            self.add_main_candidates(frames, shard, out);
        }
    }

    /// Adds candidates from MAIN.
    fn add_main_candidates(&self, frames: Frames<'_>, shard: usize, out: &mut Vec<FrameNo>) {
        let own = &self.shards[shard];
        for _ in 0..(usize::from(CAP) + 1) * own.frames {
            // ORDERING: Relaxed, the hand guards nothing.
            let index = own.hand.fetch_add(1, Ordering::Relaxed) % own.frames;
            let no = self.frame(shard, index as FrameNo);
            let frame = frames.frame(no);
            if frame.is_main() && !frame.is_pinned() && !frame.take_use() {
                return out.push(no);
            }
        }
    }
}

impl ReplacementPolicy for S3c {
    fn use_cap(&self) -> Option<u8> {
        Some(CAP)
    }

    fn on_load(&self, frames: Frames<'_>, no: FrameNo, pid: PageId) {
        let main = self.ghosts.take(pid).is_some();
        frames.frame(no).set_policy_bits(0, main);
        if !main {
            let (shard, index) = self.shard(no);
            let Small { links, list, listed } = &mut *shard.small.lock();
            listed[index as usize] = true;
            list.push(links, index);
        }
    }

    fn on_evict(&self, frames: Frames<'_>, no: FrameNo, pid: PageId) {
        let (shard, index) = self.shard(no);
        let Small { links, list, listed } = &mut *shard.small.lock();
        if std::mem::take(&mut listed[index as usize]) {
            list.remove(links, index);
            self.ghosts.add(pid, false);
        }
        frames.frame(no).set_policy_bits(0, false);
    }

    fn sweep(&self, frames: Frames<'_>, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()> {
        // Pages that cannot be evicted stay in SMALL, and must not keep younger ones from being named.
        let (mut named, mut candidates) = (Vec::new(), Vec::with_capacity(CANDIDATES));
        // Draws as many shards as suffice to name all frames. The frames that are left out come last.
        for _ in 0..frames.len().div_ceil(CANDIDATES) {
            self.add_candidates(frames, self.draw(), &named, &mut candidates);
            named.extend_from_slice(&candidates);
            for &no in &candidates {
                consider(no)?;
            }
        }
        let first = self.draw() * MIN_SHARD;
        for no in 0..frames.len() {
            let no = ((no + first) % frames.len()) as FrameNo;
            if frames.page(no) != PageId::ZERO {
                consider(no)?;
            }
        }
        ControlFlow::Continue(())
    }
}
