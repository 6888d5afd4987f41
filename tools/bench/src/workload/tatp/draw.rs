//! The inputs of transactions, drawn as the specification says.

use super::population::{digits, location};
use super::tables::{Number, START_TIMES, TYPES, sub_nbr};
use crate::random::{Keys, Random};

/// The kinds of transactions, with the percentage of each in the mix.
pub(super) const MIX: [(&str, u64); 7] = [
    ("GET_SUBSCRIBER_DATA", 35),
    ("GET_NEW_DESTINATION", 10),
    ("GET_ACCESS_DATA", 35),
    ("UPDATE_SUBSCRIBER_DATA", 2),
    (UPDATE_LOCATION, 14),
    ("INSERT_CALL_FORWARDING", 2),
    ("DELETE_CALL_FORWARDING", 2),
];
pub(super) const UPDATE_LOCATION: &str = "UPDATE_LOCATION";

/// The input of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    GetSubscriberData { s_id: u32 },
    GetNewDestination { s_id: u32, sf_type: u8, start_time: u8, end_time: u8 },
    GetAccessData { s_id: u32, ai_type: u8 },
    UpdateSubscriberData { s_id: u32, bit: u8, sf_type: u8, data_a: u8 },
    UpdateLocation { sub_nbr: Number, vlr_location: u32 },
    InsertCallForwarding { sub_nbr: Number, sf_type: u8, start_time: u8, end_time: u8, numberx: Number },
    DeleteCallForwarding { sub_nbr: Number, sf_type: u8, start_time: u8 },
}

/// Draws inputs for one thread.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    random: Random,
    subscribers: u64,
    /// Makes some subscribers hot: those with many bits set.
    a: u64,
    skewed: Option<Keys>,
}

impl Draw {
    /// Inputs for `stream` of a run with `seed`. With `skew` zero subscribers are drawn as the specification says, else
    /// by Zipf's distribution with that exponent.
    pub(super) fn new(seed: u64, stream: u64, subscribers: u32, skew: f64) -> Self {
        let subscribers = u64::from(subscribers);
        let a = match subscribers {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        let skewed = (skew > 0.0).then(|| Keys::new(subscribers, skew));
        Self { random: Random::new(seed, stream), subscribers, a, skewed }
    }

    /// Draws an input of the mix, and its place in [`MIX`].
    pub(super) fn any(&mut self) -> (usize, Input) {
        let mut percent = self.random.below(100);
        let mut kind = 0;
        while percent >= MIX[kind].1 {
            percent -= MIX[kind].1;
            kind += 1;
        }
        (kind, self.input(kind))
    }

    /// Draws an input of one kind, given by its place in [`MIX`].
    pub(super) fn input(&mut self, kind: usize) -> Input {
        let s_id = self.s_id();
        let sub_nbr = sub_nbr(s_id);
        match kind {
            0 => Input::GetSubscriberData { s_id },
            1 => Input::GetNewDestination {
                s_id,
                sf_type: self.one_of(TYPES),
                start_time: self.one_of(START_TIMES),
                end_time: self.end_time(),
            },
            2 => Input::GetAccessData { s_id, ai_type: self.one_of(TYPES) },
            3 => Input::UpdateSubscriberData {
                s_id,
                bit: self.random.below(2) as u8,
                sf_type: self.one_of(TYPES),
                data_a: self.random.below(256) as u8,
            },
            4 => Input::UpdateLocation { sub_nbr, vlr_location: location(&mut self.random) },
            5 => Input::InsertCallForwarding {
                sub_nbr,
                sf_type: self.one_of(TYPES),
                start_time: self.one_of(START_TIMES),
                end_time: self.end_time(),
                numberx: digits(&mut self.random),
            },
            _ => Input::DeleteCallForwarding {
                sub_nbr,
                sf_type: self.one_of(TYPES),
                start_time: self.one_of(START_TIMES),
            },
        }
    }

    /// Draws a subscriber, 1 to their number.
    fn s_id(&mut self) -> u32 {
        let key = match &self.skewed {
            Some(keys) => keys.draw(&mut self.random),
            None => {
                let (a, all) = (self.random.below(self.a + 1), 1 + self.random.below(self.subscribers));
                (a | all) % self.subscribers
            }
        };
        1 + key as u32
    }

    fn one_of<const N: usize>(&mut self, of: [u8; N]) -> u8 {
        of[self.random.below(N as u64) as usize]
    }

    fn end_time(&mut self) -> u8 {
        1 + self.random.below(24) as u8
    }
}
