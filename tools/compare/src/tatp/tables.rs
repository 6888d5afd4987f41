//! The tables, and their keys.

use crate::workload::Table;

pub(super) const SUBSCRIBERS: Table = Table(0);
pub(super) const NUMBERS: Table = Table(1);
pub(super) const ACCESS_INFOS: Table = Table(2);
pub(super) const FACILITIES: Table = Table(3);
pub(super) const FORWARDINGS: Table = Table(4);

/// Access infos and special facilities have the types 1 to 4.
pub(super) const TYPES: [u8; 4] = [1, 2, 3, 4];
/// A forwarding begins at one of these hours.
pub(super) const START_TIMES: [u8; 3] = [0, 8, 16];

/// Returns the key of an access info or of a special facility.
pub(super) const fn typed(s_id: u32, kind: u8) -> u64 {
    (s_id as u64) << 8 | kind as u64
}

/// Returns the key of a forwarding.
pub(super) const fn timed(s_id: u32, sf_type: u8, start_time: u8) -> u64 {
    typed(s_id, sf_type) << 8 | start_time as u64
}
