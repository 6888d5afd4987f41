//! The seven transactions.

use super::draw::Input;
use super::tables::{ACCESS_INFOS, CALL_FORWARDINGS, Number, SPECIAL_FACILITIES, SUBSCRIBERS, foreign, s_id_of};
use foreshore::{Error, Result, Transaction};

/// What a transaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// Whether it found what it asked for, or could insert its row. Others commit too.
    pub(super) has_succeeded: bool,
    /// What it adds to the sum of all that transactions change, modulo 2^64: see [`super::check`].
    pub(super) change: u64,
}

impl Effect {
    const fn read(has_succeeded: bool) -> Self {
        Self { has_succeeded, change: 0 }
    }

    /// A number was replaced.
    const fn changed(from: u64, to: u64) -> Self {
        Self { has_succeeded: true, change: to.wrapping_sub(from) }
    }
}

/// Runs a transaction up to its commit.
///
/// # Errors
/// What the engine gives; `Foreign` if the database lacks a row of the population.
pub(super) fn apply(tx: &Transaction, input: Input) -> Result<Effect> {
    match input {
        Input::GetSubscriberData { s_id } => {
            let subscriber = tx.open(SUBSCRIBERS)?.get(s_id)?;
            subscriber.map(|_| Effect::read(true)).ok_or_else(foreign)
        }
        Input::GetNewDestination { s_id, sf_type, start_time, end_time } => {
            get_new_destination(tx, (s_id, sf_type), start_time, end_time)
        }
        Input::GetAccessData { s_id, ai_type } => {
            let access_info = tx.open(ACCESS_INFOS)?.get((s_id, ai_type))?;
            Ok(Effect::read(access_info.is_some()))
        }
        Input::UpdateSubscriberData { s_id, bit, sf_type, data_a } => {
            update_subscriber_data(tx, s_id, bit, sf_type, data_a)
        }
        Input::UpdateLocation { sub_nbr, vlr_location } => update_location(tx, sub_nbr, vlr_location),
        Input::InsertCallForwarding { sub_nbr, sf_type, start_time, end_time, numberx } => {
            insert_call_forwarding(tx, sub_nbr, (sf_type, start_time), (end_time, numberx))
        }
        Input::DeleteCallForwarding { sub_nbr, sf_type, start_time } => {
            let s_id = s_id_of(&tx.open(SUBSCRIBERS)?, sub_nbr)?;
            let removed = tx.open(CALL_FORWARDINGS)?.remove((s_id, sf_type, start_time))?;
            Ok(removed.map_or(Effect::read(false), |_| Effect::changed(1, 0)))
        }
    }
}

/// Where are calls of an active facility forwarded to at this time?
fn get_new_destination(tx: &Transaction, (s_id, sf_type): (u32, u8), start_time: u8, end_time: u8) -> Result<Effect> {
    let facility = tx.open(SPECIAL_FACILITIES)?.get((s_id, sf_type))?;
    if !facility.is_some_and(|(is_active, ..)| is_active) {
        return Ok(Effect::read(false));
    }
    let mut numbers = Vec::new();
    for forwarding in tx.open(CALL_FORWARDINGS)?.range((s_id, sf_type, 0)..=(s_id, sf_type, start_time)) {
        let (_, (ends_at, numberx)) = forwarding?;
        if end_time < ends_at {
            numbers.push(numberx);
        }
    }
    Ok(Effect::read(!numbers.is_empty()))
}

/// Sets `bit_1` of the subscriber, and `data_a` of one of its facilities if it has that one.
fn update_subscriber_data(tx: &Transaction, s_id: u32, bit: u8, sf_type: u8, data_a: u8) -> Result<Effect> {
    let mut old_bit = None;
    tx.open(SUBSCRIBERS)?.update_with(s_id, |row| {
        row.map(|(number, mut bits, hex, byte2, msc, vlr)| {
            old_bit = Some(bits[0]);
            bits[0] = bit;
            (number, bits, hex, byte2, msc, vlr)
        })
    })?;
    let of_bit = Effect::changed(u64::from(old_bit.ok_or_else(foreign)?), u64::from(bit));
    let mut old_data = None;
    tx.open(SPECIAL_FACILITIES)?.update_with((s_id, sf_type), |row| {
        row.map(|(is_active, error_cntrl, old, data_b)| {
            old_data = Some(old);
            (is_active, error_cntrl, data_a, data_b)
        })
    })?;
    Ok(match old_data {
        Some(old) => {
            let of_data = Effect::changed(u64::from(old), u64::from(data_a));
            Effect { has_succeeded: true, change: of_bit.change.wrapping_add(of_data.change) }
        }
        None => Effect { has_succeeded: false, ..of_bit },
    })
}

/// Sets `vlr_location` of the subscriber with a number.
fn update_location(tx: &Transaction, number: Number, vlr_location: u32) -> Result<Effect> {
    let subscribers = tx.open(SUBSCRIBERS)?;
    let mut from = None;
    subscribers.update_with(s_id_of(&subscribers, number)?, |row| {
        row.map(|(number, bits, hex, byte2, msc, vlr)| {
            from = Some(vlr);
            (number, bits, hex, byte2, msc, vlr_location)
        })
    })?;
    Ok(Effect::changed(u64::from(from.ok_or_else(foreign)?), u64::from(vlr_location)))
}

/// Inserts a forwarding, if the subscriber has the facility and no forwarding of it that begins at that time.
fn insert_call_forwarding(
    tx: &Transaction,
    number: Number,
    (sf_type, start_time): (u8, u8),
    (end_time, numberx): (u8, Number),
) -> Result<Effect> {
    let s_id = s_id_of(&tx.open(SUBSCRIBERS)?, number)?;
    let mut has_facility = false;
    for key in tx.open(SPECIAL_FACILITIES)?.keys((s_id, 0)..=(s_id, u8::MAX)) {
        has_facility |= key?.1 == sf_type;
    }
    if !has_facility {
        return Ok(Effect::read(false));
    }
    match tx.open(CALL_FORWARDINGS)?.insert_new((s_id, sf_type, start_time), (end_time, numberx)) {
        Ok(()) => Ok(Effect::changed(0, 1)),
        // The transaction goes on, and the row that is there is locked.
        Err(Error::KeyExists { .. }) => Ok(Effect::read(false)),
        Err(error) => Err(error),
    }
}
