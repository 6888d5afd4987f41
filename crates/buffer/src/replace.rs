//! Replacement policies: which page gives up its frame.
//!
//! | name | a hit costs | a victim is | from |
//! |---|---|---|---|
//! | `lru` | a mutex and list surgery | the page not used for longest | Mattson et al., "Evaluation techniques for storage hierarchies" (1970) |
//! | `2q` | a mutex, and list surgery for hot pages | the oldest of a quarter kept for new pages, else the hot page not used for longest | Johnson and Shasha, "2Q" (VLDB 1994), the full version |
//! | `bp-lru`, `bp-2q` | an entry in a queue of the thread, the mutex once in 32 hits | as above, a little late | BP-Wrapper: Ding, Jiang and Zhang, "BP-Wrapper" (ICDE 2009) |
//! | `clock` | one load, one RMW per lap of the hand | the first frame not used since the hand came by | Corbató, "A Paging Experiment with the Multics System" (1968) |
//! | `gclock` | one RMW, one load at the cap | the first frame whose uses the hand has counted down | Smith, "Sequentiality and prefetching" (TODS 1978) |
//! | `nbgclock` | one RMW for pin and use, one for the unpin | as `gclock`, and leaves without a lock or latch | Yui et al., "Nb-GCLOCK" (ICDE 2010), see `nb.rs` |
//! | `s3c` | one RMW, one load at the cap | the oldest of a tenth kept for new pages, unless used twice, else the first hot page whose uses the hand has counted down | S3-FIFO: Yang et al., "FIFO queues are all you need for cache eviction" (SOSP 2023); on frames, in shards, in a random order |
//!
//! Policies that are content with a count of uses find it in the word of the frame ([`Uses`]); the others hear
//! of each use.

mod batched;
mod clock;
mod ghosts;
mod list;
mod locked;
mod lru;
mod nbgclock;
mod s3c;
mod two_q;

use crate::frame::{Frame, FrameNo, USE};
use foreshore_base::{Error, PageId};
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::str::FromStr;

/// Names a replacement policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplacementKind {
    /// The page not used for longest goes.
    Lru,
    /// New pages pass through a queue; those that come back after it are hot, and go in the order of their last use.
    TwoQ,
    /// [`ReplacementKind::Lru`] that hears of uses in batches.
    BpLru,
    /// [`ReplacementKind::TwoQ`] that hears of uses in batches.
    BpTwoQ,
    /// A hand that goes round and gives every used page a second chance.
    Clock,
    /// A hand that goes round and counts the uses of each page down; five uses count, and a new page has one.
    GClock,
    /// [`ReplacementKind::GClock`] without locks: every fix pins, and pages leave by one exchange.
    NbGClock,
    /// New pages pass through a small queue; those used twice in it, or wanted again soon after it, are hot, and a hand
    /// counts their uses down.
    #[default]
    S3c,
}

impl ReplacementKind {
    /// Every policy.
    pub const ALL: [Self; 8] =
        [Self::Lru, Self::TwoQ, Self::BpLru, Self::BpTwoQ, Self::Clock, Self::GClock, Self::NbGClock, Self::S3c];

    fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::TwoQ => "2q",
            Self::BpLru => "bp-lru",
            Self::BpTwoQ => "bp-2q",
            Self::Clock => "clock",
            Self::GClock => "gclock",
            Self::NbGClock => "nbgclock",
            Self::S3c => "s3c",
        }
    }

    pub(crate) fn build(self, frames: usize) -> io::Result<Box<dyn Replacer>> {
        Ok(match self {
            Self::Lru => Box::new(locked::Locked::new(lru::Lru::new(frames))),
            Self::TwoQ => Box::new(locked::Locked::new(two_q::TwoQ::new(frames))),
            Self::BpLru => Box::new(batched::Batched::new(lru::Lru::new(frames))),
            Self::BpTwoQ => Box::new(batched::Batched::new(two_q::TwoQ::new(frames))),
            Self::Clock => Box::new(clock::Clock::new(1, 1)),
            Self::GClock => Box::new(clock::Clock::new(5, 1)),
            Self::NbGClock => Box::new(nbgclock::NbGClock::default()),
            Self::S3c => Box::new(s3c::S3c::new(frames)?),
        })
    }
}

impl fmt::Display for ReplacementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ReplacementKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let unknown = || Error::InvalidOption {
            name: "replacement",
            value: name.into(),
            expected: Self::ALL.map(Self::name).join(", "),
        };
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)
    }
}

/// How a policy learns of uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uses {
    /// By a call for each.
    Told,
    /// The pool counts them in the word of the frame, up to `cap`.
    Counted { cap: u8 },
    /// As `Counted`, together with the pin that every guard takes: see [`crate::nb`].
    WithPin {
        cap: u8,
        /// Uses of a page that has just got its frame.
        initial: u8,
    },
}

impl Uses {
    /// [`Frame::use_bits`] from which on one more use makes no difference.
    pub(crate) fn enough(self) -> u32 {
        match self {
            Self::Told => u32::MAX,
            Self::Counted { cap } => u32::from(cap) * USE,
            // The pin has counted it.
            Self::WithPin { .. } => 0,
        }
    }

    /// The cap, if guards pin.
    #[inline]
    pub(crate) fn with_pin(self) -> Option<u8> {
        match self {
            Self::WithPin { cap, .. } => Some(cap),
            _ => None,
        }
    }
}

/// The frames of a pool.
pub(crate) type Frames = [Frame];

/// A policy. It only nominates: whether a page may go (no pin, no latch, clean) is decided by the pool.
///
/// `on_load` and `on_evict` are called with the exclusive latch of the frame held, in turns for each frame; `on_use` may come
/// late, when the frame holds another page.
pub(crate) trait Replacer: Send + Sync + fmt::Debug {
    /// How the policy learns of uses.
    fn uses(&self) -> Uses {
        Uses::Told
    }

    /// The page in the frame is used. Called for [`Uses::Told`] only.
    fn on_use(&self, _frames: &Frames, _no: FrameNo) {}

    /// Page `pid` has come into the frame.
    fn on_load(&self, frames: &Frames, no: FrameNo, pid: PageId);

    /// Page `pid` leaves the frame.
    fn on_evict(&self, _frames: &Frames, _no: FrameNo, _pid: PageId) {}

    /// Hands frames to `consider`, the one to give up first, until it breaks or the policy has nobody left to name.
    /// Bounded, holds nothing over `consider`, and may run in several threads at once.
    fn sweep(&self, frames: &Frames, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()>;
}

#[cfg(test)]
mod tests;
