//! The seven transactions.

use super::{
    draw::Input,
    rows::{
        AccessInfo, BIT_1, DATA_A, Facility, Forwarding, IS_ACTIVE, Subscriber, VLR_LOCATION, forwarding, vlr_location,
    },
    tables::{ACCESS_INFOS, FACILITIES, FORWARDINGS, NUMBERS, SUBSCRIBERS, timed, typed},
};
use crate::{
    engine::{Calls, Reader, Session, Writer},
    error::{Error, Result},
    workload::{Table, first_word},
};
use std::hint::black_box;

/// What a transaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Whether it found what it asked for, or could insert its row.
    pub(crate) has_succeeded: bool,
    /// What it adds to the sum of all that transactions change, modulo 2^64: see [`super::verify`].
    pub(crate) change: u64,
}

impl Effect {
    const fn read(has_succeeded: bool) -> Self {
        Self { has_succeeded, change: 0 }
    }

    const fn changed(change: u64) -> Self {
        Self { has_succeeded: true, change }
    }
}

/// Runs a transaction.
///
/// # Errors
/// What the engine gives; `Lost` if it lacks a row of the population.
pub(crate) fn run(session: &mut dyn Session, input: Input) -> Result<Effect> {
    let mut effect = Effect::default();
    if input.is_read() {
        let calls = if matches!(input, Input::GetNewDestination { .. }) { Calls::Several } else { Calls::One };
        session.read_only(calls, &mut |tx| {
            effect = Effect::read(read(tx, input)?);
            Ok(())
        })?;
    } else {
        session.read_write(&mut |tx| {
            effect = write(tx, input)?;
            Ok(effect.has_succeeded || matches!(input, Input::UpdateSubscriberData { .. }))
        })?;
    }
    Ok(effect)
}

/// Runs a transaction that reads. Returns whether it succeeded.
fn read(tx: &mut dyn Reader, input: Input) -> Result<bool> {
    match input {
        Input::GetSubscriberData { s_id } => {
            let subscriber = row::<{ size_of::<Subscriber>() }>(tx, SUBSCRIBERS, u64::from(s_id))?;
            black_box(subscriber.ok_or_else(lost)?);
            Ok(true)
        }
        Input::GetAccessData { s_id, ai_type } => {
            let info = row::<{ size_of::<AccessInfo>() }>(tx, ACCESS_INFOS, typed(s_id, ai_type))?;
            Ok(black_box(info).is_some())
        }
        Input::GetNewDestination { s_id, sf_type, start_time, end_time } => {
            let facility = row::<{ size_of::<Facility>() }>(tx, FACILITIES, typed(s_id, sf_type))?;
            if facility.is_none_or(|facility| facility[IS_ACTIVE] == 0) {
                return Ok(false);
            }
            let mut numbers = Vec::new();
            let keys = timed(s_id, sf_type, 0)..=timed(s_id, sf_type, start_time);
            tx.range(FORWARDINGS, keys, &mut |_, row| {
                let row = Forwarding::try_from(row).unwrap_or_default();
                if end_time < row[0] {
                    numbers.push(row);
                }
                true
            })?;
            Ok(!black_box(numbers).is_empty())
        }
        _ => unreachable!("the others write"),
    }
}

/// Runs a transaction that writes, up to its commit.
fn write(tx: &mut dyn Writer, input: Input) -> Result<Effect> {
    match input {
        Input::UpdateSubscriberData { s_id, bit, sf_type, data_a } => {
            let mut change = 0_u64;
            let mut set = |row: &mut [u8], at, to| change = change.wrapping_add(replace(row, at, to));
            if !tx.update(SUBSCRIBERS, u64::from(s_id), &mut |row| set(row, BIT_1, bit))? {
                return Err(lost());
            }
            let has_facility = tx.update(FACILITIES, typed(s_id, sf_type), &mut |row| set(row, DATA_A, data_a))?;
            Ok(Effect { has_succeeded: has_facility, change })
        }
        Input::UpdateLocation { number, vlr_location: to } => {
            let (s_id, mut change) = (s_id_of(tx, number)?, 0);
            let is_there = tx.update(SUBSCRIBERS, u64::from(s_id), &mut |row| {
                change = u64::from(to).wrapping_sub(u64::from(vlr_location(row)));
                if let Some(bytes) = row.get_mut(VLR_LOCATION..VLR_LOCATION + 4) {
                    bytes.copy_from_slice(&to.to_le_bytes());
                }
            })?;
            if is_there { Ok(Effect::changed(change)) } else { Err(lost()) }
        }
        Input::InsertCallForwarding { number, sf_type, start_time, end_time, numberx } => {
            let (s_id, mut has_facility) = (s_id_of(tx, number)?, false);
            tx.range(FACILITIES, typed(s_id, 0)..=typed(s_id, u8::MAX), &mut |key, _| {
                has_facility |= key == typed(s_id, sf_type);
                true
            })?;
            let key = timed(s_id, sf_type, start_time);
            let is_new = has_facility && tx.insert(FORWARDINGS, key, &forwarding(end_time, numberx))?;
            Ok(if is_new { Effect::changed(1) } else { Effect::read(false) })
        }
        Input::DeleteCallForwarding { number, sf_type, start_time } => {
            let s_id = s_id_of(tx, number)?;
            let was_there = tx.delete(FORWARDINGS, timed(s_id, sf_type, start_time))?;
            Ok(if was_there { Effect::changed(1_u64.wrapping_neg()) } else { Effect::read(false) })
        }
        _ => unreachable!("the others read"),
    }
}

/// Copies a row, as a reader of all its columns does.
fn row<const N: usize>(tx: &mut dyn Reader, table: Table, key: u64) -> Result<Option<[u8; N]>> {
    let mut copy = None;
    let is_there = tx.get(table, key, &mut |row| copy = row.try_into().ok())?;
    if is_there && copy.is_none() { Err(lost()) } else { Ok(copy) }
}

/// Finds the subscriber of a number.
fn s_id_of(tx: &mut dyn Writer, number: u64) -> Result<u32> {
    let mut s_id = 0;
    let is_there = tx.get(NUMBERS, number, &mut |row| s_id = first_word(row) as u32)?;
    if is_there { Ok(s_id) } else { Err(lost()) }
}

/// Replaces a byte, and returns how much more the new one is, modulo 2^64.
fn replace(row: &mut [u8], at: usize, to: u8) -> u64 {
    let old = row.get_mut(at).map_or(to, |byte| std::mem::replace(byte, to));
    u64::from(to).wrapping_sub(u64::from(old))
}

fn lost() -> Error {
    Error::Lost { engine: "tatp", what: "a row that was loaded is missing or has other bytes".to_owned() }
}
