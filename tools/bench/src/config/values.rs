//! How values are refused, shown and serialized.

use crate::units::invalid;
use foreshore::Result;
use serde::{Serialize, Serializer};
use std::{fmt, time::Duration};

/// Most transactions in flight per thread, most repeats, and most rows of a batch or a backlog.
pub(super) const MANY: usize = 100_000;

/// Refuses a count out of `1..=most`.
pub(super) fn count(name: &'static str, value: usize, most: usize) -> Result<()> {
    let fits = (1..=most).contains(&value);
    if fits { Ok(()) } else { Err(invalid(name, &value.to_string(), &format!("1 to {most}"))) }
}

/// A value that has a default by the workload, or none.
pub(super) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

/// Serializes what is shown.
pub(super) fn text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Serializes a time as seconds.
pub(super) fn optional_seconds<S: Serializer>(
    value: &Option<Duration>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    value.map(|value| value.as_secs_f64()).serialize(serializer)
}
