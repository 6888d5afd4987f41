//! The text that `dump` writes and `load` reads: JSON, one item a line.
//!
//! ```text
//! {"foreshore_dump":1}
//! {"key_type":"u64","table":"accounts","value_type":"i64"}
//! ["0000000000000007","6400000000000000"]
//! {"end":{"rows":1,"tables":1}}
//! ```
//!
//! The first line has the version of the format. A line with a table precedes its rows. A row has the encoded key and
//! the encoded value in hex digits, so it is exact for every type. The rows are in the order of their encoded keys. The
//! last line has the counts: without it the dump was cut off.

use crate::types::Form;
use serde_json::{Value as Json, json};

/// Version that this build writes, and the newest that it reads.
pub(crate) const VERSION: u64 = 1;

/// A line of a dump.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Version(u64),
    Table { name: String, key_type: String, value_type: String },
    Row { key: Vec<u8>, value: Vec<u8> },
    End { tables: u64, rows: u64 },
}

impl Line {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Version(version) => json!({ "foreshore_dump": version }).to_string(),
            Self::Table { name, key_type, value_type } => {
                json!({ "table": name, "key_type": key_type, "value_type": value_type }).to_string()
            }
            // Hex digits need no escapes.
            Self::Row { key, value } => format!("[\"{}\",\"{}\"]", Form::Hex.show(key), Form::Hex.show(value)),
            Self::End { tables, rows } => json!({ "end": { "tables": tables, "rows": rows } }).to_string(),
        }
    }

    /// Parses a line. The error says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let json: Json = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        if let Json::Array(row) = &json {
            let [Json::String(key), Json::String(value)] = &row[..] else {
                return Err("a row is an array of two strings".to_owned());
            };
            return Ok(Self::Row { key: Form::Hex.read(key)?, value: Form::Hex.read(value)? });
        }
        if let Some(version) = json.get("foreshore_dump") {
            return match version.as_u64() {
                Some(version @ 1..) => Ok(Self::Version(version)),
                _ => Err(format!("no dump has version {version}")),
            };
        }
        let text = |name: &str| json.get(name).and_then(Json::as_str).map(str::to_owned);
        if let (Some(name), Some(key_type), Some(value_type)) = (text("table"), text("key_type"), text("value_type")) {
            return Ok(Self::Table { name, key_type, value_type });
        }
        let count = |name: &str| json.get("end").and_then(|end| end.get(name)).and_then(Json::as_u64);
        match (count("tables"), count("rows")) {
            (Some(tables), Some(rows)) => Ok(Self::End { tables, rows }),
            _ => Err("neither a table, nor a row, nor the end of a dump".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_these_texts() {
        let (name, key_type, value_type) = ("a\n\"b\"".to_owned(), "u64".to_owned(), "(str,i64)".to_owned());
        for (line, text) in [
            (Line::Version(1), r#"{"foreshore_dump":1}"#),
            (Line::Version(2), r#"{"foreshore_dump":2}"#),
            (
                Line::Table { name, key_type, value_type },
                r#"{"key_type":"u64","table":"a\n\"b\"","value_type":"(str,i64)"}"#,
            ),
            (Line::Row { key: vec![0, 255], value: vec![] }, r#"["00ff",""]"#),
            (Line::End { tables: 1, rows: 2 }, r#"{"end":{"rows":2,"tables":1}}"#),
        ] {
            assert_eq!(line.text(), text);
            assert_eq!(Line::parse(text), Ok(line));
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for (text, why) in [
            ("", "no JSON"),
            ("{", "no JSON"),
            ("7", "neither"),
            ("{}", "neither"),
            (r#"{"table":"a"}"#, "neither"),
            (r#"{"end":{"rows":-1,"tables":1}}"#, "neither"),
            (r#"{"foreshore_dump":0}"#, "version 0"),
            (r#"{"foreshore_dump":"2"}"#, "version \"2\""),
            (r#"["00"]"#, "two strings"),
            (r#"["00",1]"#, "two strings"),
            (r#"["0","00"]"#, "hex digits"),
            (r#"["00","xx"]"#, "hex digits"),
        ] {
            let error = Line::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
