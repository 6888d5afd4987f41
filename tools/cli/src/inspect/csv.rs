//! Records of CSV (RFC 4180): cells separated by commas, and quoted where needed.
//!
//! Null is an empty cell without quotes. Empty text is a quoted one.

use crate::types::Cell;
use std::io::{self, BufRead};

/// Returns a record without its line break.
pub(crate) fn record(cells: &[Cell]) -> String {
    let cell = |cell: &Cell| match cell {
        None => String::new(),
        Some(text) if text.is_empty() || text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Some(text) => text.clone(),
    };
    cells.iter().map(cell).collect::<Vec<_>>().join(",")
}

/// Reads the text of a record into `text`, and counts its lines. Returns false at the end.
pub(crate) fn read(from: &mut dyn BufRead, text: &mut String, lines: &mut u64) -> io::Result<bool> {
    text.clear();
    loop {
        let read = from.read_line(text)?;
        *lines += u64::from(read > 0);
        // A line break within quotes belongs to the cell.
        if read == 0 || text.bytes().filter(|&byte| byte == b'"').count().is_multiple_of(2) {
            return Ok(!text.is_empty());
        }
    }
}

/// Parses the text of a record. The error says what is wrong.
pub(crate) fn parse(text: &str) -> Result<Vec<Cell>, String> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut rest = text.strip_suffix('\r').unwrap_or(text);
    let mut cells = Vec::new();
    loop {
        let (cell, behind) = match rest.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let (cell, behind) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                if cell.contains('"') {
                    return Err("a quote in a cell that does not begin with one".to_owned());
                }
                (Some(cell.to_owned()).filter(|cell| !cell.is_empty()), behind)
            }
        };
        cells.push(cell);
        match behind.strip_prefix(',') {
            Some(next) => rest = next,
            None if behind.is_empty() => return Ok(cells),
            None => return Err("text behind the closing quote of a cell".to_owned()),
        }
    }
}

/// Reads a cell up to its closing quote, and returns what is behind that.
fn unquoted(mut rest: &str) -> Result<(Cell, &str), String> {
    let mut cell = String::new();
    loop {
        let Some((text, behind)) = rest.split_once('"') else { return Err("a quote is not closed".to_owned()) };
        cell.push_str(text);
        match behind.strip_prefix('"') {
            Some(next) => {
                cell.push('"');
                rest = next;
            }
            None => return Ok((Some(cell), behind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(text: &str) -> Cell {
        Some(text.to_owned())
    }

    #[test]
    fn records_are_written_and_read_back() {
        for (cells, text) in [
            (vec![some("7"), some("a b")], "7,a b"),
            (vec![some(""), None, some("x")], "\"\",,x"),
            (
                vec![some("a,b"), some("say \"hi\""), some("two\nlines\r")],
                "\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\r\"",
            ),
            (vec![None], ""),
        ] {
            assert_eq!(record(&cells), text);
            assert_eq!(parse(&format!("{text}\n")), Ok(cells.clone()));
            assert_eq!(parse(&format!("{text}\r\n")), Ok(cells));
        }
    }

    #[test]
    fn what_is_no_csv_is_refused() {
        for text in ["\"a", "\"a\"b,c", "a\"b", "a,\"b\"\"", "\"\"\""] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_record_may_have_several_lines() {
        let (mut from, mut text, mut lines) = (&b"a,\"b\nc\"\nd\n\ne"[..], String::new(), 0);
        let mut records = Vec::new();
        while read(&mut from, &mut text, &mut lines).unwrap() {
            records.push((lines, parse(&text).unwrap()));
        }
        let expected =
            [(2, vec![some("a"), some("b\nc")]), (3, vec![some("d")]), (4, vec![None]), (5, vec![some("e")])];
        assert_eq!(records, expected);
    }
}
