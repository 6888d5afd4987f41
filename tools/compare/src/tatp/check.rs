//! The checks: is each row what the population and the transactions can have made of it, and is every commit there?
//!
//! All numbers that transactions change are added up: `bit_1` and `vlr_location` of the subscribers, `data_a` of the
//! facilities, and 1 for each forwarding. A transaction knows how it changes the sum, so a lost update, a lost row and
//! half a transaction are seen.

use super::{
    draw::KINDS,
    rows::{BIT_1, DATA_A, Forwarding, VLR_LOCATION, rows_of, vlr_location},
    tables::{ACCESS_INFOS, FACILITIES, FORWARDINGS, NUMBERS, START_TIMES, SUBSCRIBERS},
};
use crate::{engine::Engine, error::Result, workload::Table};

/// The parts of the transactions that succeed, in the order of the mix: the least and the most.
///
/// A subscriber has a given type of facility with probability 0.625, and a forwarding at a given start time with 0.5.
/// Of active facilities (0.85) 27.8 % have a forwarding at the times that `GET_NEW_DESTINATION` asks for, which makes
/// 14.8 % of all. The specification says 23.9 %. Inserts draw the end of a forwarding from the whole day, so the part
/// grows as they replace what was loaded.
const SUCCESS: [(f64, f64); KINDS] =
    [(1.0, 1.0), (0.148, 0.239), (0.625, 0.625), (0.625, 0.625), (1.0, 1.0), (0.3125, 0.3125), (0.3125, 0.3125)];
/// Transactions of a kind from which on their success is checked.
const ENOUGH: u64 = 1000;
/// The standard deviation of a subscriber's own chance that a call succeeds.
const OWN_CHANCE: f64 = 0.28;
/// Some subscribers are so hot that all of them weigh as much as a part of them would that are alike: one of so many.
const ALIKE: f64 = 27.0;

/// Checks the quiet tables, and passes each check with its outcome to `note`. `change` is what the transactions have
/// added to the sum, and `kinds` are their numbers and those that succeeded.
///
/// # Errors
/// What the engine gives.
pub(crate) fn verify(
    engine: &dyn Engine,
    (seed, subscribers): (u64, u32),
    (change, kinds): (u64, &[(u64, u64)]),
    note: &mut dyn FnMut(&str, bool),
) -> Result<()> {
    let of = Scan { engine, seed, subscribers };
    let mut sums = Sums { loaded: 0, found: 0 };
    let mut is_sound = of.equals(NUMBERS, |_, _| {})?;
    is_sound &= of.equals(ACCESS_INFOS, |_, _| {})?;
    is_sound &= of.equals(SUBSCRIBERS, |loaded, found| {
        sums.swap_byte(loaded, found, BIT_1, 1);
        sums.loaded = sums.loaded.wrapping_add(u64::from(vlr_location(loaded)));
        sums.found = sums.found.wrapping_add(u64::from(vlr_location(found)));
        if vlr_location(found) > 0 {
            let place = VLR_LOCATION..VLR_LOCATION + 4;
            loaded[place.clone()].copy_from_slice(&found[place]);
        }
    })?;
    let mut facilities = Vec::new();
    engine.scan(FACILITIES, &mut |key, _| facilities.push(key))?;
    is_sound &= of.equals(FACILITIES, |loaded, found| sums.swap_byte(loaded, found, DATA_A, u8::MAX))?;
    engine.scan(FORWARDINGS, &mut |key, row| {
        let (facility, start_time) = (key >> 8, key as u8);
        is_sound &= facilities.binary_search(&facility).is_ok() && START_TIMES.contains(&start_time);
        is_sound &= Forwarding::try_from(row)
            .is_ok_and(|row| (1..=24).contains(&row[0]) && row[1..].iter().all(u8::is_ascii_digit));
        sums.found = sums.found.wrapping_add(1);
    })?;
    let forwardings = rows_of(FORWARDINGS, seed, subscribers).count() as u64;
    sums.loaded = sums.loaded.wrapping_add(forwardings);
    note("rows", is_sound);
    note("changes", sums.found == sums.loaded.wrapping_add(change));
    note("success_ratios", succeed_as_expected(kinds, subscribers));
    Ok(())
}

/// The sums of the numbers that transactions change: as loaded, and as found.
struct Sums {
    loaded: u64,
    found: u64,
}

impl Sums {
    /// Adds a byte of the loaded row and of the found one. Puts the found one, if it is at most `most`, into the loaded
    /// row, so that the rows are equal if nothing else differs.
    fn swap_byte(&mut self, loaded: &mut [u8], found: &[u8], at: usize, most: u8) {
        self.loaded = self.loaded.wrapping_add(u64::from(loaded[at]));
        self.found = self.found.wrapping_add(u64::from(found[at]));
        if found[at] <= most {
            loaded[at] = found[at];
        }
    }
}

struct Scan<'a> {
    engine: &'a dyn Engine,
    seed: u64,
    subscribers: u32,
}

impl Scan<'_> {
    /// Whether a table has the loaded keys, and each row is the loaded one after `change`. `change` gets both rows if
    /// they have the same length.
    fn equals(&self, table: Table, mut change: impl FnMut(&mut [u8], &[u8])) -> Result<bool> {
        let (mut loaded, mut is_equal) = (rows_of(table, self.seed, self.subscribers), true);
        self.engine.scan(table, &mut |key, row| {
            let Some((expected, mut bytes)) = loaded.next() else { return is_equal = false };
            is_equal &= key == expected && bytes.len() == row.len();
            if bytes.len() == row.len() {
                change(&mut bytes, row);
            }
            is_equal &= bytes == row;
        })?;
        Ok(is_equal && loaded.next().is_none())
    }
}

/// Whether each kind of which there were enough transactions succeeded as often as expected. The tolerance is 0.02, and
/// five standard deviations: of the draws of transactions, and of the subscribers that they meet.
pub(super) fn succeed_as_expected(kinds: &[(u64, u64)], subscribers: u32) -> bool {
    let of_subscribers = OWN_CHANCE * (ALIKE / f64::from(subscribers)).sqrt();
    kinds.iter().zip(SUCCESS).all(|(&(transactions, succeeded), (least, most))| {
        if transactions < ENOUGH {
            return true;
        }
        let ratio = succeeded as f64 / transactions as f64;
        let of_draws = 0.5 / (transactions as f64).sqrt();
        let tolerance = if least < 1.0 { 0.02 + 5.0 * (of_draws + of_subscribers) } else { 0.0 };
        (least - tolerance..=most + tolerance).contains(&ratio)
    })
}
