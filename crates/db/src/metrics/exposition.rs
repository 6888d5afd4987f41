//! The exposition format of Prometheus: families of samples, each with its help and its type.

use std::fmt::Write;
use std::time::Duration;

/// What the name of every metric begins with.
const PREFIX: &str = "foreshore_";

/// The value of a sample. Times are seconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Count(u64),
    Time(Duration),
}

impl From<u64> for Number {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Number {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<bool> for Number {
    fn from(is: bool) -> Self {
        Self::Count(is.into())
    }
}

impl From<Duration> for Number {
    fn from(time: Duration) -> Self {
        Self::Time(time)
    }
}

/// Text in the making.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

impl Exposition {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Writes a metric of one sample without labels.
    pub(super) fn one(&mut self, name: &str, help: &str, number: impl Into<Number>) {
        self.family(name, help, [([], number)]);
    }

    /// Writes a metric whose samples differ by one label.
    pub(super) fn by<'l, N: Into<Number>>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        samples: impl IntoIterator<Item = (&'l str, N)>,
    ) {
        self.family(name, help, samples.into_iter().map(|(value, number)| ([(label, value)], number)));
    }

    /// Writes a metric with all its samples, each with names and values of labels. It is a counter if its name ends
    /// with `_total`. Writes nothing if there is no sample.
    pub(super) fn family<'l, const LABELS: usize, N: Into<Number>>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'l str, &'l str); LABELS], N)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        self.write(format_args!("# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}\n"));
        for (labels, number) in samples {
            self.write(format_args!("{PREFIX}{name}"));
            self.labels(&labels);
            match number.into() {
                Number::Count(count) => self.write(format_args!(" {count}\n")),
                Number::Time(time) => self.write(format_args!(" {}.{:09}\n", time.as_secs(), time.subsec_nanos())),
            }
        }
    }

    fn labels(&mut self, labels: &[(&str, &str)]) {
        for (at, (label, value)) in labels.iter().enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            self.write(format_args!("{label}=\""));
            for c in value.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("a string takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_help_type_and_samples() {
        let mut out = Exposition::default();
        out.one("commits_total", "Commits.", 7_u64);
        out.by("waits_seconds", "Waits.", "class", [("lock", Duration::from_micros(1500)), ("io", Duration::ZERO)]);
        let text = "# HELP foreshore_commits_total Commits.\n# TYPE foreshore_commits_total counter\n\
                    foreshore_commits_total 7\n# HELP foreshore_waits_seconds Waits.\n\
                    # TYPE foreshore_waits_seconds gauge\nforeshore_waits_seconds{class=\"lock\"} 0.001500000\n\
                    foreshore_waits_seconds{class=\"io\"} 0.000000000\n";
        assert_eq!(out.into_text(), text);
    }

    #[test]
    fn a_family_without_samples_is_absent_and_values_of_labels_are_escaped() {
        let mut out = Exposition::default();
        out.by::<u64>("held", "Held.", "table", []);
        assert_eq!(out.text, "");
        out.family("held", "Held.", [([("a", "x\"\\\n"), ("b", "é")], true)]);
        assert!(out.into_text().ends_with("\nforeshore_held{a=\"x\\\"\\\\\\n\",b=\"é\"} 1\n"));
    }
}
