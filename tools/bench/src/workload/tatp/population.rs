//! What is loaded: for each subscriber one to four access infos and special facilities, and for each facility none to
//! three forwardings.

use super::tables::{
    ACCESS_INFOS, AccessInfo, CALL_FORWARDINGS, CallForwarding, Number, SPECIAL_FACILITIES, START_TIMES, SUBSCRIBERS,
    SpecialFacility, Subscriber, TYPES, sub_nbr,
};
use crate::Progress;
use crate::random::Random;
use foreshore::{Db, Error, LoadOptions, Result};

/// Subscribers of a loading transaction.
const BATCH: u32 = 10_000;
/// Of a hundred facilities, how many are active.
const ACTIVE_PERCENT: u64 = 85;
/// Forwardings come and go. Free space in the pages takes those that come.
const FILL_PERCENT: u8 = 80;
/// Tells the draws of the population from those of the workers.
const POPULATION: u64 = 1 << 62;

/// The rows of one subscriber.
pub(super) struct Profile {
    pub(super) s_id: u32,
    pub(super) subscriber: Subscriber,
    pub(super) access_infos: Vec<(u8, AccessInfo)>,
    pub(super) facilities: Vec<(u8, SpecialFacility)>,
    /// With `sf_type` and `start_time`.
    pub(super) forwardings: Vec<(u8, u8, CallForwarding)>,
}

impl Profile {
    /// Draws the rows of `s_id`: the same ones for the same seed.
    pub(super) fn new(seed: u64, s_id: u32) -> Self {
        let random = &mut Random::new(seed, POPULATION | u64::from(s_id));
        let subscriber = (
            sub_nbr(s_id),
            numbers(random, 2),
            numbers(random, 16),
            numbers(random, 256),
            location(random),
            location(random),
        );
        let count = 1 + random.below(4) as usize;
        let access_infos = some_of(random, TYPES, count)
            .into_iter()
            .map(|ai_type| (ai_type, (byte(random), byte(random), letters(random), letters(random))))
            .collect();
        let count = 1 + random.below(4) as usize;
        let (mut facilities, mut forwardings) = (Vec::new(), Vec::new());
        for sf_type in some_of(random, TYPES, count) {
            let is_active = random.below(100) < ACTIVE_PERCENT;
            facilities.push((sf_type, (is_active, byte(random), byte(random), letters(random))));
            let count = random.below(4) as usize;
            for start_time in some_of(random, START_TIMES, count) {
                let end_time = start_time + 1 + random.below(8) as u8;
                forwardings.push((sf_type, start_time, (end_time, digits(random))));
            }
        }
        Self { s_id, subscriber, access_infos, facilities, forwardings }
    }
}

/// Fills an empty database with `subscribers`, in key order. Durable when it returns.
///
/// # Errors
/// What the engine gives.
pub(super) fn load(db: &Db, subscribers: u32, seed: u64, progress: &dyn Progress) -> Result<()> {
    progress.phase("loading subscribers", u64::from(subscribers));
    for first in (1..=subscribers).step_by(BATCH as usize) {
        let last = subscribers.min(first + (BATCH - 1));
        let profiles: Vec<Profile> = (first..=last).map(|s_id| Profile::new(seed, s_id)).collect();
        db.run(|tx| {
            tx.open(SUBSCRIBERS)?.load(profiles.iter().map(|of| (of.s_id, of.subscriber)))?;
            let rows = profiles.iter().flat_map(|of| of.access_infos.iter().map(|&(kind, row)| ((of.s_id, kind), row)));
            tx.open(ACCESS_INFOS)?.load(rows)?;
            let rows = profiles.iter().flat_map(|of| of.facilities.iter().map(|&(kind, row)| ((of.s_id, kind), row)));
            tx.open(SPECIAL_FACILITIES)?.load(rows)?;
            let rows = profiles.iter().flat_map(|of| {
                of.forwardings.iter().map(|&(kind, start_time, row)| ((of.s_id, kind, start_time), row))
            });
            tx.open(CALL_FORWARDINGS)?.load_with(LoadOptions::new().fill_percent(FILL_PERCENT), rows)?;
            Ok::<_, Error>(())
        })?;
        progress.at(u64::from(last));
    }
    Ok(())
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

/// Draws numbers below `bound`, at most 256.
fn numbers<const N: usize>(random: &mut Random, bound: u64) -> [u8; N] {
    std::array::from_fn(|_| random.below(bound) as u8)
}

fn byte(random: &mut Random) -> u8 {
    random.below(256) as u8
}

/// Draws `data3`, `data4` or `data_b`: capital letters.
fn letters<const N: usize>(random: &mut Random) -> [u8; N] {
    std::array::from_fn(|_| b'A' + random.below(26) as u8)
}

/// Draws `numberx`.
pub(super) fn digits(random: &mut Random) -> Number {
    std::array::from_fn(|_| b'0' + random.below(10) as u8)
}

/// Draws `msc_location` or `vlr_location`: 1 to 2^32 - 1.
pub(super) fn location(random: &mut Random) -> u32 {
    1 + random.below(u64::from(u32::MAX)) as u32
}
