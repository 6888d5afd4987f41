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
//! of each use. None of them hears of pages that scans read: see [`crate::passing`].

mod batched;
mod clock;
mod ghosts;
mod list;
mod locked;
mod lru;
mod nbgclock;
mod s3c;
mod two_q;

pub(crate) use ghosts::Ghosts;

use crate::frame::{Frame, FrameNo, MAX_USES, enough};
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
    /// A hand that goes round and counts the uses of each page down.
    GClock(ReplacementWeights),
    /// [`ReplacementKind::GClock`] without locks: every fix pins, and pages leave by one exchange.
    NbGClock(ReplacementWeights),
    /// New pages pass through a small queue; those used twice in it, or wanted again soon after it, are hot, and a hand
    /// counts their uses down.
    #[default]
    S3c,
}

/// How many uses of a page `gclock` and `nbgclock` count. Written `W:C`, as in `gclock:1:5`, which is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacementWeights {
    initial: u8,
    cap: u8,
}

impl ReplacementWeights {
    /// A new page has one use, and five count.
    pub const DEFAULT: Self = Self { initial: 1, cap: 5 };

    /// A new page has `initial` uses, at least one, and `cap` count, at most fifteen; `None` for other numbers.
    #[must_use]
    pub fn new(initial: u8, cap: u8) -> Option<Self> {
        (1 <= initial && initial <= cap && cap <= MAX_USES).then_some(Self { initial, cap })
    }

    fn parse(text: &str) -> Option<Self> {
        let (initial, cap) = text.split_once(':')?;
        Self::new(initial.parse().ok()?, cap.parse().ok()?)
    }
}

impl ReplacementKind {
    /// Every policy, with the weights that it has if none are given.
    pub const ALL: [Self; 8] =
        [Self::Lru, Self::TwoQ, Self::BpLru, Self::BpTwoQ, Self::Clock, Self::GCLOCK, Self::NB_GCLOCK, Self::S3c];
    /// `gclock` with the weights that it has if none are given.
    pub const GCLOCK: Self = Self::GClock(ReplacementWeights::DEFAULT);
    /// `nbgclock` with the weights that it has if none are given.
    pub const NB_GCLOCK: Self = Self::NbGClock(ReplacementWeights::DEFAULT);

    fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::TwoQ => "2q",
            Self::BpLru => "bp-lru",
            Self::BpTwoQ => "bp-2q",
            Self::Clock => "clock",
            Self::GClock(_) => "gclock",
            Self::NbGClock(_) => "nbgclock",
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
            Self::GClock(ReplacementWeights { initial, cap }) => Box::new(clock::Clock::new(cap, initial)),
            Self::NbGClock(ReplacementWeights { initial, cap }) => Box::new(nbgclock::NbGClock::new(cap, initial)),
            Self::S3c => Box::new(s3c::S3c::new(frames)?),
        })
    }
}

impl fmt::Display for ReplacementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GClock(weights) | Self::NbGClock(weights) if *weights != ReplacementWeights::DEFAULT => {
                write!(f, "{}:{}:{}", self.name(), weights.initial, weights.cap)
            }
            _ => f.write_str(self.name()),
        }
    }
}

impl FromStr for ReplacementKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let (base, weights) = name.split_once(':').map_or((name, None), |(base, weights)| (base, Some(weights)));
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == base);
        let found = match (kind, weights) {
            (Some(Self::GClock(_)), Some(weights)) => ReplacementWeights::parse(weights).map(Self::GClock),
            (Some(Self::NbGClock(_)), Some(weights)) => ReplacementWeights::parse(weights).map(Self::NbGClock),
            (kind, None) => kind,
            (_, Some(_)) => None,
        };
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            let expected = format!("{names}, or gclock:W:C or nbgclock:W:C with 1 <= W <= C <= {MAX_USES}");
            Error::InvalidOption { name: "replacement", value: name.into(), expected }
        })
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
            Self::Counted { cap } => enough(cap),
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
