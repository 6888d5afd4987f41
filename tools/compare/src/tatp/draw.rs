//! The inputs of transactions, drawn as the specification says.

use super::{
    rows::{Number, digits, location},
    tables::{START_TIMES, TYPES},
};
use crate::random::Random;

/// The percentage of each kind of transaction in the mix.
const MIX: [(Kind, u64); KINDS] = [
    (Kind::GetSubscriberData, 35),
    (Kind::GetNewDestination, 10),
    (Kind::GetAccessData, 35),
    (Kind::UpdateSubscriberData, 2),
    (Kind::UpdateLocation, 14),
    (Kind::InsertCallForwarding, 2),
    (Kind::DeleteCallForwarding, 2),
];
/// Kinds of transactions.
pub(crate) const KINDS: usize = 7;

#[derive(Clone, Copy, Debug)]
enum Kind {
    GetSubscriberData,
    GetNewDestination,
    GetAccessData,
    UpdateSubscriberData,
    UpdateLocation,
    InsertCallForwarding,
    DeleteCallForwarding,
}

/// The input of a transaction. `number` is `sub_nbr` as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    GetSubscriberData { s_id: u32 },
    GetNewDestination { s_id: u32, sf_type: u8, start_time: u8, end_time: u8 },
    GetAccessData { s_id: u32, ai_type: u8 },
    UpdateSubscriberData { s_id: u32, bit: u8, sf_type: u8, data_a: u8 },
    UpdateLocation { number: u64, vlr_location: u32 },
    InsertCallForwarding { number: u64, sf_type: u8, start_time: u8, end_time: u8, numberx: Number },
    DeleteCallForwarding { number: u64, sf_type: u8, start_time: u8 },
}

impl Input {
    /// Whether the transaction only reads.
    pub(crate) const fn is_read(&self) -> bool {
        matches!(self, Self::GetSubscriberData { .. } | Self::GetNewDestination { .. } | Self::GetAccessData { .. })
    }
}

/// Draws inputs for one thread.
pub(crate) struct Draw {
    random: Random,
    subscribers: u64,
    /// Makes some subscribers hot: those with many bits set.
    a: u64,
}

impl Draw {
    /// Returns the inputs for `stream` of a run with `seed`.
    pub(crate) fn new(seed: u64, stream: u64, subscribers: u64) -> Self {
        let a = match subscribers {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        Self { random: Random::new(seed, stream), subscribers, a }
    }

    /// Draws an input of the mix, and the place of its kind in the mix.
    pub(crate) fn any(&mut self) -> (usize, Input) {
        let mut percent = self.random.below(100);
        let mut place = 0;
        while percent >= MIX[place].1 {
            percent -= MIX[place].1;
            place += 1;
        }
        (place, self.input(MIX[place].0))
    }

    fn input(&mut self, kind: Kind) -> Input {
        let s_id = self.s_id();
        let number = u64::from(s_id);
        match kind {
            Kind::GetSubscriberData => Input::GetSubscriberData { s_id },
            Kind::GetNewDestination => Input::GetNewDestination {
                s_id,
                sf_type: self.one_of(TYPES),
                start_time: self.one_of(START_TIMES),
                end_time: self.end_time(),
            },
            Kind::GetAccessData => Input::GetAccessData { s_id, ai_type: self.one_of(TYPES) },
            Kind::UpdateSubscriberData => Input::UpdateSubscriberData {
                s_id,
                bit: self.random.below(2) as u8,
                sf_type: self.one_of(TYPES),
                data_a: self.random.below(256) as u8,
            },
            Kind::UpdateLocation => Input::UpdateLocation { number, vlr_location: location(&mut self.random) },
            Kind::InsertCallForwarding => Input::InsertCallForwarding {
                number,
                sf_type: self.one_of(TYPES),
                start_time: self.one_of(START_TIMES),
                end_time: self.end_time(),
                numberx: digits(&mut self.random),
            },
            Kind::DeleteCallForwarding => Input::DeleteCallForwarding {
                number,
                sf_type: self.one_of(TYPES),
                start_time: self.one_of(START_TIMES),
            },
        }
    }

    /// Draws a subscriber, 1 to their number.
    fn s_id(&mut self) -> u32 {
        let (a, all) = (self.random.below(self.a + 1), 1 + self.random.below(self.subscribers));
        1 + ((a | all) % self.subscribers) as u32
    }

    fn one_of<const N: usize>(&mut self, of: [u8; N]) -> u8 {
        of[self.random.below(N as u64) as usize]
    }

    fn end_time(&mut self) -> u8 {
        1 + self.random.below(24) as u8
    }
}
