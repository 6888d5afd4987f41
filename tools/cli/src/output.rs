//! Standard output of the verbs that look into a database: whole lines, buffered.

use crate::exit::Failure;
use crate::interrupt;
use serde_json::Value as Json;
use std::io::{self, BufWriter, StdoutLock, Write};

pub(crate) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    pub(crate) fn new() -> Self {
        Self(BufWriter::with_capacity(64 << 10, io::stdout().lock()))
    }

    /// Writes a part of a line, unless Ctrl-C has ended the verb.
    pub(crate) fn part(&mut self, text: &str) -> Result<(), Failure> {
        interrupt::check()?;
        self.0.write_all(text.as_bytes()).map_err(Failure::output)
    }

    /// Writes a line, unless Ctrl-C has ended the verb.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.part(text)?;
        self.part("\n")
    }

    /// Writes an object in one line.
    pub(crate) fn json(&mut self, json: &Json) -> Result<(), Failure> {
        self.line(&json.to_string())
    }

    /// Writes each field of an object in a line, with the names of the objects around it.
    pub(crate) fn fields(&mut self, json: &Json) -> Result<(), Failure> {
        let mut lines = Vec::new();
        flatten("", json, &mut lines);
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        lines.iter().try_for_each(|(name, text)| self.line(&format!("{name:width$}  {text}")))
    }

    /// Writes what is buffered.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(Failure::output)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // A verb that succeeds has called `end`. After a failure the lines before it are still of use.
        let _ = self.0.flush();
    }
}

/// Escapes the control characters of a text, so that it stays in its line and column.
pub(crate) fn in_line(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

/// Lists the scalars of `json` with their paths. An empty list has a line too.
fn flatten(path: &str, json: &Json, lines: &mut Vec<(String, String)>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match json {
        Json::Object(fields) => fields.iter().for_each(|(name, field)| flatten(&below(name), field, lines)),
        Json::Array(items) if items.iter().any(Json::is_object) => {
            items.iter().enumerate().for_each(|(at, item)| flatten(&below(&at.to_string()), item, lines));
        }
        Json::Array(items) if items.is_empty() => lines.push((path.to_owned(), "none".to_owned())),
        Json::String(text) => lines.push((path.to_owned(), in_line(text))),
        Json::Null => lines.push((path.to_owned(), "none".to_owned())),
        other => lines.push((path.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_fields_are_named_by_their_path() {
        let mut lines = Vec::new();
        flatten("", &json!({"a": 1, "b": {"c": "x\n", "d": []}, "e": [{"f": null}], "g": [1, 2]}), &mut lines);
        let lines: Vec<_> = lines.iter().map(|(name, text)| format!("{name}={text}")).collect();
        assert_eq!(lines, ["a=1", "b.c=x\\n", "b.d=none", "e.0.f=none", "g=[1,2]"]);
    }
}
