//! Points in time and durations, to the nanosecond.

use super::{Key, Value, whole};
use crate::codec::{Decoder, Put};
use std::time::Duration;

/// Nanoseconds in a second.
const SECOND: u32 = 1_000_000_000;

/// A point in time as a type of keys and values: seconds and nanoseconds since 1970, UTC.
///
/// `Timestamp::from(SystemTime::now().duration_since(UNIX_EPOCH)?)` is the time of the system clock, and other crates
/// give the seconds and nanoseconds that [`new`](Self::new) takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    secs: i64,
    nanos: u32,
}

impl Timestamp {
    /// Returns the point in time `secs` seconds and `nanos` nanoseconds after 1970 began. Before 1970 the seconds are
    /// negative, and the nanoseconds still count forwards. `None` for a full second of nanoseconds.
    #[must_use]
    pub const fn new(secs: i64, nanos: u32) -> Option<Self> {
        if nanos < SECOND { Some(Self { secs, nanos }) } else { None }
    }

    /// Returns the seconds since 1970, rounded down.
    #[must_use]
    pub const fn secs(self) -> i64 {
        self.secs
    }

    /// Returns the nanoseconds since the last full second.
    #[must_use]
    pub const fn nanos(self) -> u32 {
        self.nanos
    }

    /// Returns the time since 1970 began; `None` before that.
    #[must_use]
    pub fn since_epoch(self) -> Option<Duration> {
        u64::try_from(self.secs).ok().map(|secs| Duration::new(secs, self.nanos))
    }
}

impl From<Duration> for Timestamp {
    /// Returns the point in time so long after 1970 began, or the last one if that is later.
    fn from(since: Duration) -> Self {
        match i64::try_from(since.as_secs()) {
            Ok(secs) => Self { secs, nanos: since.subsec_nanos() },
            Err(_) => Self { secs: i64::MAX, nanos: SECOND - 1 },
        }
    }
}

/// Value and key methods of a time that is split into seconds, of an integer type, and nanoseconds.
macro_rules! time {
    ($time:ident named $name:literal, $secs:ident, $split:expr, $joined:expr) => {
        impl Value for $time {
            type Ref<'a> = Self;
            type Owned = Self;

            fn type_name() -> String {
                $name.into()
            }

            fn to_ref(owned: &Self::Owned) -> Self::Ref<'_> {
                *owned
            }

            fn encode(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
                let (secs, nanos) = $split(*value);
                $secs::encode(&secs, out);
                out.put_u32(nanos);
            }

            fn decode(bytes: &[u8]) -> Option<Self::Owned> {
                whole(bytes, Self::decode_part)
            }

            fn encode_part(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
                Self::encode(value, out);
            }

            fn decode_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
                $joined($secs::decode_part(from)?, from.u32().ok()?)
            }
        }

        impl Key for $time {
            fn encode_key(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
                let (secs, nanos) = $split(*key);
                $secs::encode_key(&secs, out);
                u32::encode_key(&nanos, out);
            }

            fn encode_key_part(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
                Self::encode_key(key, out);
            }

            fn decode_key_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
                $joined($secs::decode_key_part(from)?, u32::decode_key_part(from)?)
            }
        }
    };
}

time!(Timestamp named "time", i64, |time: Self| (time.secs, time.nanos), Self::new);
time!(
    Duration named "duration",
    u64,
    |duration: Self| (duration.as_secs(), duration.subsec_nanos()),
    |secs, nanos: u32| (nanos < SECOND).then(|| Self::new(secs, nanos))
);
