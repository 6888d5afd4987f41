//! Replacement policies: which page is evicted.
//!
//! | name | a hit costs | a victim is | from |
//! |---|---|---|---|
//! | `lru` | a mutex and list surgery | the page not used for longest | Mattson et al., "Evaluation techniques for storage hierarchies" (1970) |
//! | `2q` | a mutex, and list surgery for hot pages | the oldest of a quarter kept for new pages, else the hot page not used for longest | Johnson and Shasha, "2Q" (VLDB 1994), the full version |
//! | `bp-lru`, `bp-2q` | an entry in a queue of the thread, the mutex once in 32 hits | as above, a little late | BP-Wrapper: Ding, Jiang and Zhang, "BP-Wrapper" (ICDE 2009) |
//! | `clock` | one load, one RMW per lap of the hand | the first frame not used since the hand passed | Corbató, "A Paging Experiment with the Multics System" (1968) |
//! | `gclock` | one RMW, one load at the cap | the first frame whose uses the hand has counted down | Smith, "Sequentiality and prefetching" (TODS 1978) |
//! | `s3c` | one RMW, one load at the cap | the oldest of a tenth kept for new pages, unless used twice, else the first hot page whose uses the hand has counted down | the engine's own: S3-FIFO, Yang et al., "FIFO queues are all you need for cache eviction" (SOSP 2023), on frames, in shards, in a random order |
//!
//! `nbgclock` has its own way of fixing pages, so it is a pool and no policy: see [`nbgclock`](crate::nbgclock).

mod batched;
mod clock;
mod locked;
mod lru;
mod two_q;

use foreshore_base::{InvalidOption, Result};
use foreshore_buffer::replacement::{MAX_USES, MakeReplacementPolicy, ReplacementPolicy};
use std::str::FromStr;
use std::sync::Arc;
use std::{fmt, io};

/// Names a replacement policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplacementKind {
    /// Evicts the page not used for longest.
    Lru,
    /// New pages pass through a queue; those that return after it are hot, and are evicted in the order of their last
    /// use.
    TwoQ,
    /// [`ReplacementKind::Lru`] that learns of uses in batches.
    BpLru,
    /// [`ReplacementKind::TwoQ`] that learns of uses in batches.
    BpTwoQ,
    /// A hand that circles and gives every used page a second chance.
    Clock,
    /// A hand that circles and counts the uses of each page down.
    GClock(Weights),
    /// The engine's own: new pages pass through a small queue. Those used twice in it, or wanted again soon after it,
    /// are hot, and a hand counts their uses down.
    #[default]
    S3c,
}

/// How many uses of a page `gclock` and `nbgclock` count. Written `W:C`, as in `gclock:1:5`, which is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    initial: u8,
    cap: u8,
}

impl Weights {
    /// A new page has one use, and five count.
    pub const DEFAULT: Self = Self { initial: 1, cap: 5 };

    /// Returns the weights with which a new page has `initial` uses, at least one, and uses are counted up to `cap`,
    /// at most fifteen; `None` for other numbers.
    #[must_use]
    pub fn new(initial: u8, cap: u8) -> Option<Self> {
        (1 <= initial && initial <= cap && cap <= MAX_USES).then_some(Self { initial, cap })
    }

    /// Returns the uses of a page that has just come in, its first one included.
    #[must_use]
    pub fn initial(self) -> u8 {
        self.initial
    }

    /// Returns up to how many uses are counted.
    #[must_use]
    pub fn cap(self) -> u8 {
        self.cap
    }

    fn parse(text: &str) -> Option<Self> {
        let (initial, cap) = text.split_once(':')?;
        Self::new(initial.parse().ok()?, cap.parse().ok()?)
    }
}

impl ReplacementKind {
    /// Every policy, with its default weights.
    pub const ALL: [Self; 7] = [Self::Lru, Self::TwoQ, Self::BpLru, Self::BpTwoQ, Self::Clock, Self::GCLOCK, Self::S3c];
    /// `gclock` with its default weights.
    pub const GCLOCK: Self = Self::GClock(Weights::DEFAULT);

    fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::TwoQ => "2q",
            Self::BpLru => "bp-lru",
            Self::BpTwoQ => "bp-2q",
            Self::Clock => "clock",
            Self::GClock(_) => "gclock",
            Self::S3c => "s3c",
        }
    }

    /// Returns the factory of the policy, for
    /// [`PoolOptions::replacement`](foreshore_buffer::PoolOptions::replacement); `None` for the engine's own.
    #[must_use]
    pub fn maker(self) -> Option<Arc<dyn MakeReplacementPolicy>> {
        (self != Self::S3c).then(|| Arc::new(Maker(self)) as Arc<dyn MakeReplacementPolicy>)
    }
}

/// Makes one of the policies that are not the engine's own.
#[derive(Debug)]
struct Maker(ReplacementKind);

impl MakeReplacementPolicy for Maker {
    fn make(&self, frames: usize) -> io::Result<Box<dyn ReplacementPolicy>> {
        Ok(match self.0 {
            ReplacementKind::Lru => Box::new(locked::Locked::new(lru::Lru::new(frames))),
            ReplacementKind::TwoQ => Box::new(locked::Locked::new(two_q::TwoQ::new(frames))),
            ReplacementKind::BpLru => Box::new(batched::Batched::new(lru::Lru::new(frames))),
            ReplacementKind::BpTwoQ => Box::new(batched::Batched::new(two_q::TwoQ::new(frames))),
            ReplacementKind::Clock => Box::new(clock::Clock::new(1, 1)),
            ReplacementKind::GClock(Weights { initial, cap }) => Box::new(clock::Clock::new(cap, initial)),
            ReplacementKind::S3c => unreachable!("s3c has no maker"),
        })
    }
}

impl fmt::Display for ReplacementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GClock(weights) if *weights != Weights::DEFAULT => {
                write!(f, "{}:{}:{}", self.name(), weights.initial, weights.cap)
            }
            _ => f.write_str(self.name()),
        }
    }
}

impl FromStr for ReplacementKind {
    type Err = InvalidOption;

    fn from_str(name: &str) -> Result<Self, InvalidOption> {
        let (base, weights) = name.split_once(':').map_or((name, None), |(base, weights)| (base, Some(weights)));
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == base);
        let found = match (kind, weights) {
            (Some(Self::GClock(_)), Some(weights)) => Weights::parse(weights).map(Self::GClock),
            (kind, None) => kind,
            (_, Some(_)) => None,
        };
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            let mut expected = format!("{names}, or gclock:W:C with 1 <= W <= C <= {MAX_USES}");
            if base == "nbgclock" {
                expected
                    .push_str("; nbgclock fixes pages in a way of its own, and runs in the experiments buffer-* alone");
            }
            InvalidOption { name: "replacement", value: name.into(), expected }
        })
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
