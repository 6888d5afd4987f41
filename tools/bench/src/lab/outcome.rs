//! What an experiment found, as JSON, as a table and as a figure.

use super::{Promise, Row, chart::Figure, experiment::Experiment, promise};
use crate::{
    machine::Machine,
    table,
    units::{show, show_bytes, show_count},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An experiment that has run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its name.
    pub experiment: &'static str,
    /// The figures of the papers that it reproduces.
    pub figure: &'static str,
    /// What all rows share.
    pub config: Map<String, Value>,
    /// What it ran on.
    pub machine: Machine,
    /// What was measured.
    pub rows: Vec<Row>,
    /// Ratios that the project promises, and whether this run kept them.
    pub promises: Vec<Promise>,
    /// What else a reader looks for first.
    pub findings: Vec<String>,
    #[serde(skip)]
    pub(super) paper: &'static str,
    #[serde(skip)]
    pub(super) differs: &'static str,
    #[serde(skip)]
    drawing: Figure,
}

/// What is read of the JSON of an outcome. The rest follows from the rows.
#[derive(Deserialize)]
pub(super) struct Saved {
    pub(super) experiment: String,
    pub(super) config: Map<String, Value>,
    pub(super) machine: Machine,
    pub(super) rows: Vec<Row>,
}

impl Outcome {
    pub(super) fn new(
        experiment: &dyn Experiment,
        config: Map<String, Value>,
        machine: Machine,
        rows: Vec<Row>,
    ) -> Self {
        Self {
            experiment: experiment.name(),
            figure: experiment.figure(),
            promises: experiment.promises(&rows),
            findings: experiment.findings(&rows),
            drawing: Figure::new(&experiment.panels(&rows)),
            paper: experiment.paper(),
            differs: experiment.differs(),
            config,
            machine,
            rows,
        }
    }

    /// The figure, whole.
    #[must_use]
    pub fn svg(&self) -> &str {
        &self.drawing.whole
    }

    /// The figure, panel by panel.
    pub(super) const fn drawing(&self) -> &Figure {
        &self.drawing
    }

    /// One JSON object, ending in a line break.
    #[must_use]
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("numbers, names and lists");
        text.push('\n');
        text
    }

    /// The rows for people, with configuration and machine above, promises and findings below.
    #[must_use]
    pub fn table(&self) -> String {
        let config: Vec<String> = self.config.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
        let mut columns: Vec<&'static str> = Vec::new();
        for name in self.rows.iter().flat_map(Row::names) {
            if !columns.contains(&name) && !["repeats", "tps_by_time"].contains(&name) {
                columns.push(name);
            }
        }
        let cells: Vec<Vec<String>> =
            self.rows.iter().map(|row| columns.iter().map(|name| cell(row, name)).collect()).collect();
        let mut text = format!("{} ({}): {}\n{}\n\n", self.experiment, self.figure, config.join(", "), self.on());
        text.push_str(&table::render(&columns, &cells));
        if !self.promises.is_empty() {
            text.push('\n');
            text.push_str(&promise::table(&self.promises));
        }
        if !self.findings.is_empty() {
            text.push('\n');
            self.findings.iter().for_each(|finding| {
                text.push_str(finding);
                text.push('\n');
            });
        }
        text
    }

    /// The machine in a line.
    pub(super) fn on(&self) -> String {
        let Machine { cores, memory_bytes, kernel, device_backend, filesystem, device_sync_us, .. } = &self.machine;
        let machine = format!("{cores} cores, {} memory, Linux {kernel}", show_bytes(*memory_bytes));
        if device_sync_us.is_nan() {
            return machine + ", no device";
        }
        format!("{machine}, {device_backend} on {filesystem}, {} us per durable 4 KiB write", show(*device_sync_us))
    }
}

fn cell(row: &Row, name: &str) -> String {
    match row.get(name) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::Number(number)) => {
            let value = number.as_f64().unwrap_or(f64::NAN);
            let is_rate = name.ends_with("_per_s") && name != "gb_per_s" || name == "tps";
            if is_rate {
                show_count(value)
            } else if number.is_f64() {
                show(value)
            } else {
                number.to_string()
            }
        }
        Some(value) => plain(value),
    }
}

/// A value without the quotes of JSON.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(" "),
        Value::Object(values) => {
            values.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect::<Vec<_>>().join(" ")
        }
        Value::Number(number) if number.is_f64() => show(number.as_f64().unwrap_or(f64::NAN)),
        other => other.to_string(),
    }
}
