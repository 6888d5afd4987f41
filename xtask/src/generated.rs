//! Documents that must follow the code: the lock order, and the hash of each on-disk format.
//!
//! `docs/format.md` ends with a table of the files that define bytes on disk, and their hashes. A change of a format
//! that forgets its document is found by the hash.

use crate::tree::Finding;
use std::fmt::Write as _;

pub(crate) const LOCK_ORDER: &str = "docs/lock-order.md";
pub(crate) const FORMAT: &str = "docs/format.md";

const HEADING: &str = "## Hashes of the format files\n";
const TABLE: &str = "\n`cargo xtask fix` writes this table (FNV-1a, 64 bits) once the text above says what the code does.\n\n| file | hash |\n|---|---|\n";

pub(crate) fn check_lock_order(document: &str, generated: &str) -> Option<Finding> {
    (document != generated)
        .then(|| Finding::new(LOCK_ORDER, 0, "differs from the lock ranks of sync: run `cargo xtask fix`"))
}

pub(crate) fn check_hashes(document: &str, formats: &[(&str, &str)]) -> Vec<Finding> {
    let line_of = |needle: &str| document.lines().position(|line| line.contains(needle)).map_or(0, |i| i + 1);
    let mut findings = Vec::new();
    for (path, text) in formats {
        let line = line_of(&format!("| `{path}` |"));
        if line == 0 {
            findings.push(Finding::new(FORMAT, 0, format!("{path} has no hash: describe it, then `cargo xtask fix`")));
        } else if !document.contains(&row(path, text)) {
            let message = format!("{path} changed: bring the text in step, then `cargo xtask fix`");
            findings.push(Finding::new(FORMAT, line, message));
        }
    }
    for line in document.lines().filter(|line| line.starts_with("| `crates/")) {
        let path = line.split('`').nth(1).unwrap_or_default();
        if !formats.iter().any(|(known, _)| *known == path) {
            findings.push(Finding::new(FORMAT, line_of(line), format!("{path} does not exist")));
        }
    }
    findings
}

/// The document with its table of hashes renewed.
pub(crate) fn with_hashes(document: &str, formats: &[(&str, &str)]) -> String {
    let text = document.split(HEADING).next().unwrap_or_default().trim_end();
    let mut renewed = if text.is_empty() { String::new() } else { format!("{text}\n\n") };
    renewed.push_str(HEADING);
    renewed.push_str(TABLE);
    for (path, text) in formats {
        writeln!(renewed, "{}", row(path, text)).expect("a string takes all");
    }
    renewed
}

fn row(path: &str, text: &str) -> String {
    format!("| `{path}` | `{:016x}` |", fnv1a(text.as_bytes()))
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 2] = [("crates/a/src/format.rs", "one"), ("crates/b/src/format.rs", "two")];

    #[test]
    fn fnv_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_changed_format_is_found_until_fixed() {
        let document = with_hashes("# Formats\n\nText.\n", &FILES);
        assert!(check_hashes(&document, &FILES).is_empty());
        let changed = [FILES[0], ("crates/b/src/format.rs", "three")];
        let found = check_hashes(&document, &changed);
        assert_eq!(found.len(), 1);
        assert!(found[0].line > 0 && found[0].message.contains("crates/b"), "{}", found[0]);
        let fixed = with_hashes(&document, &changed);
        assert!(check_hashes(&fixed, &changed).is_empty());
        assert!(fixed.starts_with("# Formats\n\nText.\n\n## Hashes"));
        assert_eq!(with_hashes(&fixed, &changed), fixed);
    }

    #[test]
    fn missing_and_vanished_formats_are_found() {
        let document = with_hashes("", &FILES[..1]);
        assert_eq!(check_hashes(&document, &FILES).len(), 1);
        assert_eq!(check_hashes(&document, &[]).len(), 1);
    }

    #[test]
    fn a_stale_lock_order_is_found() {
        assert!(check_lock_order("a", "b").is_some());
        assert!(check_lock_order("a", "a").is_none());
    }
}
