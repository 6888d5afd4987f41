//! The metrics of one moment, parsed from the text of `foreshore::metrics`.

use std::collections::BTreeMap;

/// What the metrics begin with. Others, of the program itself, are passed over.
const PREFIX: &str = "foreshore_";
/// A metric that every program has that serves the engine's.
const EXPECTED: &str = "commits_total";

/// Labels by name.
type Labels = BTreeMap<String, String>;

/// Values by metric, without the prefix, and by labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample(BTreeMap<String, BTreeMap<Labels, f64>>);

impl Sample {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut sample = Self::default();
        for line in text.lines().filter_map(|line| line.strip_prefix(PREFIX)) {
            let (name, labels, value) = series(line).ok_or_else(|| format!("a line is no metric: {PREFIX}{line}"))?;
            sample.0.entry(name).or_default().insert(labels, value);
        }
        if sample.0.contains_key(EXPECTED) {
            return Ok(sample);
        }
        Err(format!("the text has no {PREFIX}{EXPECTED}: expected that of foreshore::metrics"))
    }

    /// Returns the sum of a gauge.
    pub(super) fn gauge(&self, name: &str) -> f64 {
        sum(self.of(name).map(|(_, value)| value))
    }

    /// Returns the value of a label and the number of each series of a gauge.
    pub(super) fn labelled<'s>(&'s self, name: &str, label: &str) -> impl Iterator<Item = (&'s str, f64)> {
        self.of(name).map(move |(labels, value)| (labels.get(label).map_or("", String::as_str), value))
    }

    /// Returns how much a counter has grown since `earlier`. One that is lower now began anew, with its program.
    pub(super) fn growth(&self, name: &str, earlier: &Self) -> f64 {
        sum(self.growth_by(name, "", earlier).into_values())
    }

    /// Returns the same by the values of a label.
    pub(super) fn growth_by<'s>(&'s self, name: &str, label: &str, earlier: &Self) -> BTreeMap<&'s str, f64> {
        let mut growth = BTreeMap::new();
        for (labels, value) in self.of(name) {
            let before = earlier.0.get(name).and_then(|series| series.get(labels)).copied().unwrap_or(0.0);
            let by = if value < before { value } else { value - before };
            *growth.entry(labels.get(label).map_or("", String::as_str)).or_default() += by;
        }
        growth
    }

    fn of(&self, name: &str) -> impl Iterator<Item = (&Labels, f64)> {
        self.0.get(name).into_iter().flatten().map(|(labels, &value)| (labels, value))
    }
}

/// Adds from zero. `Iterator::sum` of nothing is minus zero.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

/// Parses `name value` or `name{label="value",…} value`.
fn series(line: &str) -> Option<(String, Labels, f64)> {
    let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.insert(label.to_owned(), value);
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    // A time may follow.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name.to_owned(), labels, value))
}

/// Takes the value of a label and what is behind its quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.chars());
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                c => value.push(c),
            },
            c => value.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore::{Db, TableDef, metrics};

    #[test]
    fn the_text_of_the_engine_is_read() {
        let db = Db::in_memory().unwrap();
        let table = TableDef::<u64, u64>::new("a \"b\"\\\n");
        db.run(|tx| tx.open(table)?.put(1, 1)).unwrap();
        let stats = db.read().open(table).unwrap().stats().unwrap();
        let text = metrics::render(&db.stats()) + &metrics::render_tables(&[("a \"b\"\\\n", stats)]);
        let sample = Sample::parse(&text).unwrap();
        assert_eq!(sample.gauge("commits_total"), 1.0);
        assert_eq!(sample.labelled("table_rows", "table").collect::<Vec<_>>(), [("a \"b\"\\\n", 1.0)]);
        assert_eq!(sample.labelled("waits_total", "class").count(), 3);
        let lines = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(sample.0.values().map(BTreeMap::len).sum::<usize>(), lines);
    }

    #[test]
    fn counters_that_begin_anew_have_grown_from_zero() {
        let sample = |text: &str| Sample::parse(&format!("foreshore_commits_total 0\nother 1\n{text}")).unwrap();
        let before = sample("foreshore_waits_total{class=\"lock\"} 5\nforeshore_waits_total{class=\"io\"} 7");
        let after = sample("foreshore_waits_total{class=\"lock\"} 9\nforeshore_waits_total{class=\"io\"} 2 1700000000");
        assert_eq!(after.growth("waits_total", &before), 6.0);
        assert_eq!(after.growth_by("waits_total", "class", &before), BTreeMap::from([("io", 2.0), ("lock", 4.0)]));
        assert_eq!(after.growth("absent_total", &before), 0.0);
    }

    #[test]
    fn a_text_that_is_something_else_is_refused() {
        for text in ["", "<html>", "other_commits_total 1", "foreshore_info{a=\"b} 1", "foreshore_commits_total x"] {
            assert!(Sample::parse(text).is_err(), "{text}");
        }
    }
}
