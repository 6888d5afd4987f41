//! The checks: is each row what the population and the transactions can have made of it, and is every commit there?
//!
//! All numbers that transactions change are added up: `bit_1` and `vlr_location` of the subscribers, `data_a` of the
//! facilities, and 1 for each forwarding. A transaction knows how it changes the sum, so a lost update, a lost row and
//! half a transaction are seen.

use super::tables::{
    ACCESS_INFOS, BY_NUMBER, CALL_FORWARDINGS, SPECIAL_FACILITIES, START_TIMES, SUBSCRIBERS, TYPES, sub_nbr,
};
use crate::report::Kind;
use crate::workload::Audit;
use foreshore::{Db, Error, ReadTransaction, Result};

/// Scans all tables of a quiet database with `subscribers`.
///
/// # Errors
/// What the engine gives.
pub(super) fn audit(db: &Db, subscribers: u32) -> Result<Audit> {
    let tx = db.read();
    let mut audit = Audit { is_sound: true, count: 0, next_run: 0 };
    let mut add = |number: u64| audit.count = audit.count.wrapping_add(number);
    let mut is_sound = true;
    let mut last = 0;
    for entry in tx.open(SUBSCRIBERS)?.iter() {
        let (s_id, (number, bits, hex, _, _, vlr_location)) = entry?;
        is_sound &= s_id == last + 1 && number == sub_nbr(s_id) && vlr_location > 0;
        is_sound &= bits.iter().all(|&bit| bit < 2) && hex.iter().all(|&hex| hex < 16);
        last = s_id;
        add(u64::from(bits[0]) + u64::from(vlr_location));
    }
    is_sound &= last == subscribers;
    let access_infos = tx.open(ACCESS_INFOS)?.iter().map(|entry| entry.map(|((s_id, ai_type), _)| (s_id, ai_type)));
    is_sound &= each_has_one_to_four(access_infos, subscribers)?;
    let facilities = tx.open(SPECIAL_FACILITIES)?.iter().map(|entry| {
        let ((s_id, sf_type), (_, _, data_a, _)) = entry?;
        add(u64::from(data_a));
        Ok((s_id, sf_type))
    });
    is_sound &= each_has_one_to_four(facilities, subscribers)?;
    let (forwardings, have_facilities) = forwardings(&tx)?;
    add(forwardings);
    is_sound &= have_facilities && index_agrees(&tx, subscribers)?;
    audit.is_sound = is_sound;
    Ok(audit)
}

/// Returns whether each subscriber has rows of known types. There are at most four, as no key comes twice.
fn each_has_one_to_four(rows: impl Iterator<Item = Result<(u32, u8)>>, subscribers: u32) -> Result<bool> {
    let (mut is_sound, mut last) = (true, 0);
    for row in rows {
        let (s_id, kind) = row?;
        is_sound &= (s_id == last || s_id == last + 1) && s_id > 0 && TYPES.contains(&kind);
        last = s_id;
    }
    Ok(is_sound && last == subscribers)
}

/// Counts the forwardings, and returns whether each has its facility and possible times.
fn forwardings(tx: &ReadTransaction) -> Result<(u64, bool)> {
    let mut facilities = tx.open(SPECIAL_FACILITIES)?.keys(..);
    let mut facility = facilities.next().transpose()?;
    let (mut count, mut is_sound) = (0, true);
    for entry in tx.open(CALL_FORWARDINGS)?.iter() {
        let ((s_id, sf_type, start_time), (end_time, _)) = entry?;
        // Both tables are in the order of the facilities.
        while facility.is_some_and(|key| key < (s_id, sf_type)) {
            facility = facilities.next().transpose()?;
        }
        is_sound &= facility == Some((s_id, sf_type));
        is_sound &= START_TIMES.contains(&start_time) && (1..=24).contains(&end_time);
        count += 1;
    }
    Ok((count, is_sound))
}

/// Compares the index with the subscribers.
fn index_agrees(tx: &ReadTransaction, subscribers: u32) -> Result<bool> {
    match tx.open(SUBSCRIBERS)?.by_index(BY_NUMBER)?.check() {
        Ok(entries) => Ok(entries == u64::from(subscribers)),
        Err(Error::IndexMismatch { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads what transactions read, so that it is in memory.
///
/// # Errors
/// What the engine gives.
pub(super) fn read_in(db: &Db) -> Result<()> {
    let tx = db.read();
    tx.open(SUBSCRIBERS)?.iter().try_for_each(|row| row.map(drop))?;
    tx.open(SUBSCRIBERS)?.by_index(BY_NUMBER)?.keys(..).try_for_each(|entry| entry.map(drop))?;
    tx.open(ACCESS_INFOS)?.iter().try_for_each(|row| row.map(drop))?;
    tx.open(SPECIAL_FACILITIES)?.iter().try_for_each(|row| row.map(drop))?;
    tx.open(CALL_FORWARDINGS)?.iter().try_for_each(|row| row.map(drop))
}

/// The parts of the transactions that succeed, in the order of [`super::draw::MIX`]: the least and the most.
///
/// A subscriber has a given type of facility with probability 0.625, and a forwarding at a given start time with 0.5.
/// Of active facilities (0.85) 27.8 % have a forwarding at the times that `GET_NEW_DESTINATION` asks for, which makes
/// 14.8 % of all. The specification says 23.9 %. Inserts draw the end of a forwarding from the whole day, so the part
/// grows as they replace what was loaded.
const SUCCESS: [(f64, f64); 7] =
    [(1.0, 1.0), (0.148, 0.239), (0.625, 0.625), (0.625, 0.625), (1.0, 1.0), (0.3125, 0.3125), (0.3125, 0.3125)];

/// Transactions of a kind from which on their success is checked.
const ENOUGH: u64 = 1000;

/// The standard deviation of a subscriber's own chance that a call succeeds.
const OWN_CHANCE: f64 = 0.28;
/// Some subscribers are so hot that all of them weigh as much as a part of them would that are alike: one of so many.
const ALIKE: f64 = 27.0;

/// Returns whether each kind of which there were enough transactions succeeded as often as expected. The tolerance is
/// 0.02, and five standard deviations: of the draws of transactions, and of the subscribers that they meet.
pub(super) fn succeed_as_expected(kinds: &[Kind], subscribers: u32) -> bool {
    let of_subscribers = OWN_CHANCE * (ALIKE / f64::from(subscribers)).sqrt();
    kinds.iter().zip(SUCCESS).all(|(kind, (least, most))| {
        if kind.transactions < ENOUGH {
            return true;
        }
        let ratio = kind.succeeded as f64 / kind.transactions as f64;
        let of_draws = 0.5 / (kind.transactions as f64).sqrt();
        let tolerance = if least < 1.0 { 0.02 + 5.0 * (of_draws + of_subscribers) } else { 0.0 };
        (least - tolerance..=most + tolerance).contains(&ratio)
    })
}
