//! What is loaded: for each subscriber one to four access infos and special facilities, and for each facility none to
//! three forwardings.

use super::tables::{ACCESS_INFOS, FACILITIES, FORWARDINGS, NUMBERS, START_TIMES, SUBSCRIBERS, TYPES, timed, typed};
use crate::{
    random::Random,
    workload::{RowBytes, Rows, TATP_TABLES, Table},
};

/// A telephone number: 15 digits.
pub(super) type Number = [u8; 15];

/// `sub_nbr`, `bit_1` to `bit_10`, `hex_1` to `hex_10`, `byte2_1` to `byte2_10`, `msc_location`, `vlr_location`.
pub(super) type Subscriber = [u8; 53];
/// Place of `bit_1` in a subscriber.
pub(super) const BIT_1: usize = 15;
/// Place of `vlr_location` in a subscriber.
pub(super) const VLR_LOCATION: usize = 49;

/// `data1`, `data2`, `data3`, `data4`.
pub(super) type AccessInfo = [u8; 10];

/// `is_active`, `error_cntrl`, `data_a`, `data_b`.
pub(super) type Facility = [u8; 8];
/// Place of `is_active` in a facility.
pub(super) const IS_ACTIVE: usize = 0;
/// Place of `data_a` in a facility.
pub(super) const DATA_A: usize = 2;

/// `end_time`, `numberx`.
pub(super) type Forwarding = [u8; 16];

/// Of a hundred facilities, how many are active.
const ACTIVE_PERCENT: u64 = 85;
/// Tells the draws of the population from those of the workers.
const POPULATION: u64 = 1 << 62;

/// The rows of one subscriber.
pub(super) struct Profile {
    s_id: u32,
    pub(super) subscriber: Subscriber,
    /// With `ai_type`.
    pub(super) access_infos: Vec<(u8, AccessInfo)>,
    /// With `sf_type`.
    pub(super) facilities: Vec<(u8, Facility)>,
    /// With `sf_type` and `start_time`.
    pub(super) forwardings: Vec<(u8, u8, Forwarding)>,
}

impl Profile {
    /// Draws the rows of `s_id`: the same ones for the same seed.
    pub(super) fn new(seed: u64, s_id: u32) -> Self {
        let random = &mut Random::new(seed, POPULATION | u64::from(s_id));
        let mut subscriber = [0; size_of::<Subscriber>()];
        subscriber[..BIT_1].copy_from_slice(&sub_nbr(s_id));
        for (at, bound) in [(BIT_1, 2), (BIT_1 + 10, 16), (BIT_1 + 20, 256)] {
            subscriber[at..at + 10].fill_with(|| random.below(bound) as u8);
        }
        for at in [VLR_LOCATION - 4, VLR_LOCATION] {
            subscriber[at..at + 4].copy_from_slice(&location(random).to_le_bytes());
        }
        let count = 1 + random.below(4) as usize;
        let infos = some_of(random, TYPES, count).into_iter();
        let access_infos = infos.map(|ai_type| (ai_type, data::<10>(random))).collect();
        let count = 1 + random.below(4) as usize;
        let (mut facilities, mut forwardings) = (Vec::new(), Vec::new());
        for sf_type in some_of(random, TYPES, count) {
            let is_active = random.below(100) < ACTIVE_PERCENT;
            let mut facility = [u8::from(is_active); size_of::<Facility>()];
            facility[1..].copy_from_slice(&data::<7>(random)[..]);
            facilities.push((sf_type, facility));
            let count = random.below(4) as usize;
            for start_time in some_of(random, START_TIMES, count) {
                let end_time = start_time + 1 + random.below(8) as u8;
                forwardings.push((sf_type, start_time, forwarding(end_time, digits(random))));
            }
        }
        Self { s_id, subscriber, access_infos, facilities, forwardings }
    }

    /// Returns the rows of one table, in key order.
    pub(super) fn rows(&self, table: Table) -> Vec<(u64, Vec<u8>)> {
        let s_id = self.s_id;
        match table {
            SUBSCRIBERS => vec![(u64::from(s_id), self.subscriber.to_vec())],
            NUMBERS => vec![(u64::from(s_id), u64::from(s_id).to_le_bytes().to_vec())],
            ACCESS_INFOS => self.access_infos.iter().map(|(kind, row)| (typed(s_id, *kind), row.to_vec())).collect(),
            FACILITIES => self.facilities.iter().map(|(kind, row)| (typed(s_id, *kind), row.to_vec())).collect(),
            FORWARDINGS => {
                self.forwardings.iter().map(|(kind, time, row)| (timed(s_id, *kind, *time), row.to_vec())).collect()
            }
            Table(_) => Vec::new(),
        }
    }
}

/// Returns the tables, with the rows of `subscribers`.
pub(crate) fn loaded(seed: u64, subscribers: u32) -> Vec<(Table, Box<Rows<'static>>)> {
    let rows = |table| -> Box<Rows<'static>> {
        Box::new(rows_of(table, seed, subscribers).map(|(key, row)| (key, RowBytes::Value(row))))
    };
    (0..TATP_TABLES).map(|table| (Table(table), rows(Table(table)))).collect()
}

/// Returns the rows of a table, in key order.
pub(super) fn rows_of(table: Table, seed: u64, subscribers: u32) -> impl Iterator<Item = (u64, Vec<u8>)> {
    (1..=subscribers).flat_map(move |s_id| Profile::new(seed, s_id).rows(table))
}

/// Returns the row of a forwarding.
pub(super) fn forwarding(end_time: u8, numberx: Number) -> Forwarding {
    let mut row = [end_time; size_of::<Forwarding>()];
    row[1..].copy_from_slice(&numberx);
    row
}

/// Returns the number of a subscriber: `s_id` in decimal digits, with zeros in front.
pub(super) fn sub_nbr(s_id: u32) -> Number {
    let mut digits = [b'0'; 15];
    let mut rest = s_id;
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// Returns `vlr_location` of a row; 0 of a row that is too short, which no subscriber has.
pub(super) fn vlr_location(subscriber: &[u8]) -> u32 {
    let bytes = subscriber.get(VLR_LOCATION..VLR_LOCATION + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

/// Draws `count` of the values, each at most once, in order.
fn some_of<const N: usize>(random: &mut Random, mut of: [u8; N], count: usize) -> Vec<u8> {
    for at in 0..count {
        of.swap(at, at + random.below((N - at) as u64) as usize);
    }
    let mut chosen = of[..count].to_vec();
    chosen.sort_unstable();
    chosen
}

/// Draws two bytes, then capital letters.
fn data<const N: usize>(random: &mut Random) -> [u8; N] {
    std::array::from_fn(|at| if at < 2 { random.below(256) as u8 } else { b'A' + random.below(26) as u8 })
}

/// Draws `numberx`.
pub(super) fn digits(random: &mut Random) -> Number {
    std::array::from_fn(|_| b'0' + random.below(10) as u8)
}

/// Draws `msc_location` or `vlr_location`: 1 to 2^32 - 1.
pub(super) fn location(random: &mut Random) -> u32 {
    1 + random.below(u64::from(u32::MAX)) as u32
}
