//! Replacement policies: which page gives up its frame.
//!
//! | name | a hit costs | a victim is | from |
//! |---|---|---|---|
//! | `clock` | one load, one RMW per lap of the hand | the first frame not used since the hand came by | Corbató, "A Paging Experiment with the Multics System" (1968) |

mod clock;

use crate::frame::{Frame, FrameNo};
use foreshore_base::Error;
use foreshore_sync::CachePadded;
use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

/// Names a replacement policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplacementKind {
    /// A hand that goes round and gives every used page a second chance.
    #[default]
    Clock,
}

impl fmt::Display for ReplacementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clock => "clock",
        })
    }
}

impl FromStr for ReplacementKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "clock" => Ok(Self::Clock),
            _ => Err(Error::InvalidOption { name: "replacement", value: name.into(), expected: "clock".into() }),
        }
    }
}

impl ReplacementKind {
    pub(crate) fn build(self) -> Box<dyn Replacer> {
        match self {
            Self::Clock => Box::new(clock::Clock::default()),
        }
    }
}

/// A policy. It only nominates: whether a page may go (no pin, no latch, clean) is decided by the pool.
pub(crate) trait Replacer: Send + Sync + fmt::Debug {
    /// A page has come into the frame.
    fn on_load(&self, frame: &Frame);

    /// The page in the frame is used.
    fn on_hit(&self, frame: &Frame);

    /// Hands frames to `consider`, the one to give up first, until it breaks or the policy has nobody left to name.
    /// Bounded, holds nothing over `consider`, and may run in several threads at once.
    fn sweep(
        &self,
        frames: &[CachePadded<Frame>],
        consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>,
    ) -> ControlFlow<()>;
}
