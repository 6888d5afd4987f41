//! One row of an experiment: named values in the order in which they were given.

use crate::units::thousandths;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::Value;
use std::fmt;

/// Names that scripts may rely on: first what varies, then what is measured, then what is added to them.
const FIELDS: [&str; 84] = [
    "buffer",
    "threads",
    "clients",
    "device",
    "record_bytes",
    "outlier_bytes",
    "slots",
    "group",
    "load_per_s",
    "commit",
    "elr",
    "skew",
    "delay_us",
    "policy",
    "distribution",
    "frames",
    "cache_fraction",
    "scan_fraction",
    "memory_ratio",
    "status",
    "growth",
    "intents",
    "workers",
    "log_bytes",
    "step",
    "records_per_s",
    "gb_per_s",
    "contended_rmw_per_record",
    "tps",
    "speedup",
    "mean_us",
    "p50_us",
    "p99_us",
    "p999_us",
    "p9999_us",
    "max_us",
    "waits",
    "voluntary_switches_per_txn",
    "cpu_user_cores",
    "cpu_system_cores",
    "hit_ratio",
    "hit_ratio_all",
    "ops_per_s",
    "lookups_per_s",
    "lookup_ns",
    "commits_per_s",
    "mb_per_s",
    "open_s",
    "pages_read_per_s",
    "reads_per_miss",
    "undo_bytes_max",
    "unchanged",
    // Added.
    "wait",
    "ring_bytes",
    "cpu_stolen_cores",
    "repeats",
    "seconds",
    "refused",
    "syncs_per_s",
    "txns_per_group",
    "bytes_per_group",
    "load_fraction",
    "late_us",
    "samples",
    "model_records_per_s",
    "breakdown",
    "growths",
    "cuts",
    "reader",
    "undo_share_max",
    "versions_pruned",
    "tps_by_time",
    "workload",
    "redo_s",
    "redo",
    "redone_s",
    "regained_s",
    "undo_s",
    "first_commit_s",
    "read_mb_per_s",
    "redone",
    "undone",
    "warehouses",
    "target_s",
];

/// Named values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row(Vec<(&'static str, Value)>);

impl Row {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// The row with one more value.
    ///
    /// # Panics
    /// If the name is not in the list of fields, or the row has it.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        assert!(FIELDS.contains(&name), "{name} is not a field of lab rows");
        assert!(self.get(name).is_none(), "two values for {name}");
        self.0.push((name, value.into()));
        self
    }

    /// The row with a measurement, to thousandths.
    pub(super) fn measured(self, name: &'static str, value: f64) -> Self {
        self.with(name, thousandths(value))
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// The number in a field.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64()
    }

    /// The text in a field, empty without.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether the row has exactly these values, numbers or texts.
    pub(super) fn is(&self, values: &[(&str, Value)]) -> bool {
        values.iter().all(|(name, value)| self.get(name) == Some(value))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

/// Reads what [`Serialize`] writes, in its order.
impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named;

        impl<'de> Visitor<'de> for Named {
            type Value = Row;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("named values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
                let mut row = Row::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    let known = FIELDS.iter().find(|field| **field == name).filter(|field| row.get(field).is_none());
                    let known = known.ok_or_else(|| {
                        A::Error::custom(format!("{name} is not a field of lab rows, or there twice"))
                    })?;
                    row = row.with(known, value);
                }
                Ok(row)
            }
        }

        deserializer.deserialize_map(Named)
    }
}

/// The measurement `measure` of the first row with `values`.
pub(super) fn find(rows: &[Row], values: &[(&str, Value)], measure: &str) -> Option<f64> {
    rows.iter().find(|row| row.is(values))?.number(measure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_order_and_are_found() {
        let row = Row::new().with("threads", 2).with("buffer", "faa").measured("gb_per_s", 1.23456);
        assert_eq!(serde_json::to_string(&row).unwrap(), r#"{"threads":2,"buffer":"faa","gb_per_s":1.235}"#);
        assert_eq!((row.number("threads"), row.text("buffer"), row.text("wait")), (Some(2.0), "faa", ""));
        let rows = [Row::new().with("threads", 1), row];
        assert_eq!(find(&rows, &[("threads", 2.into()), ("buffer", "faa".into())], "gb_per_s"), Some(1.235));
        assert_eq!(find(&rows, &[("threads", 3.into())], "gb_per_s"), None);
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let row = Row::new().with("threads", 2).with("wait", Value::Null).measured("tps", 1.5).with("buffer", "faa");
        let json = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row);
        for broken in [r#"{"speed": 1}"#, r#"{"tps": 1, "tps": 2}"#, "[1]"] {
            assert!(serde_json::from_str::<Row>(broken).is_err(), "{broken}");
        }
    }

    #[test]
    #[should_panic(expected = "not a field")]
    fn an_unknown_name_is_refused() {
        let _ = Row::new().with("speed", 1);
    }
}
