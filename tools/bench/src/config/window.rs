//! What is measured, how long and under which load.

use super::values::{MANY, count, optional_seconds, or_dash};
use crate::units::invalid;
use foreshore::Result;
use serde::{Serialize, Serializer};
use std::{fmt, time::Duration};

/// The measured time of a row, what goes on in it besides the workload, and what else is measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Window {
    /// Measured seconds per row, after a warm-up of one second, or of as long if that is less.
    #[serde(serialize_with = "seconds")]
    pub secs: Duration,
    /// Repeats of each row; the median is reported.
    pub repeat: usize,
    /// Transactions a second of all threads together, begun at random times; as many as go if none.
    pub load: Option<f64>,
    /// Whether a snapshot is held over each row.
    pub reader: bool,
    /// How long it is held; to the end of the row if that is not said.
    #[serde(serialize_with = "optional_seconds")]
    pub reader_secs: Option<Duration>,
    /// Whether contended read-modify-writes are counted, by the caller of [`run`](crate::run()).
    pub count_rmw: bool,
    /// Whether it is measured where the time goes.
    pub breakdown: bool,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            secs: Duration::from_secs(10),
            repeat: 1,
            load: None,
            reader: false,
            reader_secs: None,
            count_rmw: false,
            breakdown: true,
        }
    }
}

/// Time before the window at most, in which caches fill and threads start.
const WARM_UP: Duration = Duration::from_secs(1);

impl Window {
    /// These seconds, and the rest as by default.
    #[must_use]
    pub fn of(secs: Duration) -> Self {
        Self { secs, ..Self::default() }
    }

    /// Time before the window: a second, or as long as a shorter window.
    pub(crate) fn warm_up(&self) -> Duration {
        WARM_UP.min(self.secs)
    }

    /// Refuses values out of range.
    pub(super) fn check(&self) -> Result<()> {
        count("repeat", self.repeat, MANY)?;
        if self.secs.is_zero() {
            return Err(invalid("secs", "0", "a time above zero"));
        }
        if let Some(load) = self.load.filter(|load| !(1e-3..=1e9).contains(load)) {
            return Err(invalid("load", &load.to_string(), "0.001 to 1000000000"));
        }
        Ok(())
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (load, secs) = (or_dash(self.load), self.secs.as_secs_f64());
        write!(f, "reader {} load {load} secs {secs} repeat {}", self.reader, self.repeat)
    }
}

fn seconds<S: Serializer>(value: &Duration, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_f64(value.as_secs_f64())
}
