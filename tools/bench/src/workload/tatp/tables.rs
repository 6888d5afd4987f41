//! The four tables, and the index that finds a subscriber by its number.

use foreshore::{Error, IndexDef, Result, Table, TableDef};

/// A telephone number: 15 digits.
pub(super) type Number = [u8; 15];

/// `sub_nbr`, `bit_1` to `bit_10`, `hex_1` to `hex_10`, `byte2_1` to `byte2_10`, `msc_location`, `vlr_location`.
pub(super) type Subscriber = (Number, [u8; 10], [u8; 10], [u8; 10], u32, u32);
/// `data1`, `data2`, `data3`, `data4`.
pub(super) type AccessInfo = (u8, u8, [u8; 3], [u8; 5]);
/// `is_active`, `error_cntrl`, `data_a`, `data_b`.
pub(super) type SpecialFacility = (bool, u8, u8, [u8; 5]);
/// `end_time`, `numberx`.
pub(super) type CallForwarding = (u8, Number);

/// Finds subscribers by `sub_nbr`.
pub(super) const BY_NUMBER: IndexDef<u32, Subscriber, Number> =
    IndexDef::unique("by sub_nbr", |_, subscriber: &Subscriber, keys| keys.add(subscriber.0));

/// Key: `s_id`.
pub(super) const SUBSCRIBERS: TableDef<'_, u32, Subscriber> = TableDef::new("subscriber").with_indexes(&[&BY_NUMBER]);
/// Key: `s_id`, `ai_type`.
pub(super) const ACCESS_INFOS: TableDef<'_, (u32, u8), AccessInfo> = TableDef::new("access_info");
/// Key: `s_id`, `sf_type`.
pub(super) const SPECIAL_FACILITIES: TableDef<'_, (u32, u8), SpecialFacility> = TableDef::new("special_facility");
/// Key: `s_id`, `sf_type`, `start_time`.
pub(super) const CALL_FORWARDINGS: TableDef<'_, (u32, u8, u8), CallForwarding> = TableDef::new("call_forwarding");

/// Access infos and special facilities have the types 1 to 4.
pub(super) const TYPES: [u8; 4] = [1, 2, 3, 4];
/// A forwarding begins at one of these hours.
pub(super) const START_TIMES: [u8; 3] = [0, 8, 16];

/// The number of a subscriber: `s_id` in decimal digits, with zeros in front.
pub(super) fn sub_nbr(s_id: u32) -> Number {
    let mut digits = [b'0'; 15];
    let mut rest = s_id;
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// Finds the `s_id` of a number by the index alone, so that the row is not locked before a writer locks it.
pub(super) fn s_id_of(subscribers: &Table<'_, u32, Subscriber>, number: Number) -> Result<u32> {
    let entry = subscribers.by_index(BY_NUMBER)?.keys(number..=number).next().transpose()?;
    entry.map(|(_, s_id)| s_id).ok_or_else(foreign)
}

/// The error for a database without a row that the population has.
pub(super) fn foreign() -> Error {
    Error::Foreign { path: "subscriber".into(), why: "not the rows that TATP loads" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_fifteen_digits() {
        assert_eq!(&sub_nbr(1), b"000000000000001");
        assert_eq!(&sub_nbr(u32::MAX), b"000004294967295");
    }
}
