//! What the project promises of an experiment, beside what a run measured.

use crate::{table, units::show};
use serde::{Serialize, Serializer};
use std::fmt;

/// A ratio within one run, and its bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Promise {
    /// What is compared.
    pub promise: String,
    /// What the ratio shall be.
    #[serde(serialize_with = "text")]
    pub bound: Bound,
    /// What it is.
    pub measured: f64,
    /// Whether that is within the bound.
    pub held: bool,
}

/// A bound of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At least this.
    Least(f64),
    /// At most this.
    Most(f64),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Least(least) => write!(f, ">= {least}"),
            Self::Most(most) => write!(f, "<= {most}"),
        }
    }
}

impl Promise {
    /// What is not a number is within no bound.
    pub(super) fn new(promise: impl Into<String>, measured: f64, bound: Bound) -> Self {
        let held = match bound {
            Bound::Least(least) => measured >= least,
            Bound::Most(most) => measured <= most,
        };
        Self { promise: promise.into(), bound, measured, held }
    }

    /// The cells of a table's row: promise, bound, measured, held.
    pub(super) fn cells(&self) -> Vec<String> {
        let held = if self.held { "yes" } else { "NO" };
        vec![self.promise.clone(), self.bound.to_string(), show(self.measured), held.to_owned()]
    }
}

/// Heads of the columns of [`Promise::cells`].
pub(super) const COLUMNS: [&str; 4] = ["promise", "bound", "measured", "held"];

/// All promises as a table.
pub(super) fn table(promises: &[Promise]) -> String {
    table::render(&COLUMNS, &promises.iter().map(Promise::cells).collect::<Vec<_>>())
}

fn text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_kept_or_not() {
        let held = |measured, bound| Promise::new("a / b", measured, bound).held;
        assert!(held(3.0, Bound::Least(3.0)) && !held(2.99, Bound::Least(3.0)));
        assert!(held(1.1, Bound::Most(1.1)) && !held(1.11, Bound::Most(1.1)));
        assert!(!held(f64::NAN, Bound::Least(3.0)) && !held(f64::NAN, Bound::Most(3.0)));
    }

    #[test]
    fn scripts_and_people_read_the_same() {
        let promise = Promise::new("a / b", 2.5, Bound::Least(3.0));
        let json = serde_json::to_value(&promise).unwrap();
        let expected = serde_json::json!({"promise": "a / b", "bound": ">= 3", "measured": 2.5, "held": false});
        assert_eq!(json, expected);
        let table = table(&[promise]);
        assert!(table.contains("a / b") && table.contains(">= 3") && table.contains("2.50") && table.contains("NO"));
    }
}
