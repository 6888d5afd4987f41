//! Lengths of files and functions, tests left out, with a ratchet: known offenders may shrink, nobody may join them.

use crate::{source::Source, tree::Finding};
use std::{collections::BTreeMap, fmt::Write as _};

/// The ratchet: one offender a line, `path lines` for a file, `path::function lines` for a function.
pub(crate) const RATCHET: &str = "xtask/ratchet.txt";

const FILE_HARD: usize = 800;
const FILE_SOFT: usize = 400;
const FUNCTION: usize = 70;

const HEADER: &str = "# Files over 400 lines and functions over 70, tests left out. Entries only shrink: `cargo xtask fix` lowers them.\n";

pub(crate) fn check(ratchet: &str, sources: &[Source]) -> Vec<Finding> {
    let known = parse(ratchet);
    let offenders = offenders(sources);
    let mut findings = Vec::new();
    for (name, offender) in &offenders {
        let at = |message: String| Finding::new(&offender.path, offender.line, message);
        let lines = offender.lines;
        if offender.line == 0 && lines > FILE_HARD {
            findings.push(at(format!("{lines} lines without tests, the limit is {FILE_HARD}")));
            continue;
        }
        match known.get(name.as_str()) {
            Some(&(entry, was)) if lines < was => {
                let message = format!("{name} is down to {lines} lines: run `cargo xtask fix`");
                findings.push(Finding::new(RATCHET, entry, message));
            }
            Some(&(_, was)) if lines > was => findings.push(at(format!("{name} grew from {was} to {lines} lines"))),
            Some(_) => {}
            None => {
                let limit = if offender.line == 0 { FILE_SOFT } else { FUNCTION };
                findings.push(at(format!("{name} has {lines} lines, the limit is {limit}")));
            }
        }
    }
    for (name, (entry, _)) in known {
        if !offenders.contains_key(name) {
            let message = format!("{name} no longer breaks a limit: run `cargo xtask fix`");
            findings.push(Finding::new(RATCHET, entry, message));
        }
    }
    findings
}

/// The ratchet with each entry lowered to what it is today, and those that are within limits dropped.
pub(crate) fn shrunk(ratchet: &str, sources: &[Source]) -> String {
    let offenders = offenders(sources);
    let mut text = HEADER.to_owned();
    for (name, (_, was)) in parse(ratchet) {
        if let Some(offender) = offenders.get(name) {
            writeln!(text, "{name} {}", was.min(offender.lines)).expect("a string takes all");
        }
    }
    text
}

struct Offender {
    path: String,
    /// Of a function; 0 for a file.
    line: usize,
    lines: usize,
}

fn offenders(sources: &[Source]) -> BTreeMap<String, Offender> {
    let mut found = BTreeMap::new();
    for source in sources {
        let lines = source.product_lines().count();
        if lines > FILE_SOFT {
            found.insert(source.path.clone(), Offender { path: source.path.clone(), line: 0, lines });
        }
        for function in source.functions().iter().filter(|function| function.lines > FUNCTION) {
            let name = format!("{}::{}", source.path, function.name);
            let offender = Offender { path: source.path.clone(), line: function.line, lines: function.lines };
            // Functions of one name in one file share an entry: the longest counts.
            match found.get(&name) {
                Some(Offender { lines, .. }) if *lines >= function.lines => {}
                _ => drop(found.insert(name, offender)),
            }
        }
    }
    found
}

/// Entries by name: line in the ratchet, lines of the offender. A count that does not parse is 0, so that it is found.
fn parse(ratchet: &str) -> BTreeMap<&str, (usize, usize)> {
    let entries = ratchet.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    entries
        .map(|(i, line)| {
            let (name, lines) = line.rsplit_once(' ').unwrap_or((line, "0"));
            (name, (i + 1, lines.parse().unwrap_or(0)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: usize) -> Source {
        Source::new("crates/x/src/a.rs", &"const A: u8 = 0;\n".repeat(lines))
    }

    fn function(lines: usize) -> Source {
        Source::new("crates/x/src/a.rs", &format!("fn f() {{\n{}}}\n", "g();\n".repeat(lines - 2)))
    }

    fn messages(ratchet: &str, source: Source) -> Vec<String> {
        check(ratchet, &[source]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_long_file_is_found() {
        assert!(messages("", file(400)).is_empty());
        assert_eq!(messages("", file(401)), ["crates/x/src/a.rs: crates/x/src/a.rs has 401 lines, the limit is 400"]);
        let tests = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "f();\n".repeat(300), "g();\n".repeat(900));
        assert!(messages("", Source::new("crates/x/src/a.rs", &tests)).is_empty());
    }

    #[test]
    fn the_ratchet_never_lifts_the_hard_limit() {
        assert!(messages("crates/x/src/a.rs 800\n", file(800)).is_empty());
        assert_eq!(messages("crates/x/src/a.rs 801\n", file(801)).len(), 1);
    }

    #[test]
    fn a_long_function_is_found() {
        assert!(messages("", function(70)).is_empty());
        let found = messages("", function(71));
        assert_eq!(found, ["crates/x/src/a.rs:1: crates/x/src/a.rs::f has 71 lines, the limit is 70"]);
    }

    #[test]
    fn the_ratchet_only_shrinks() {
        let entry = "crates/x/src/a.rs::f 80\n";
        assert!(messages(entry, function(80)).is_empty());
        assert_eq!(
            messages(entry, function(81)),
            ["crates/x/src/a.rs:1: crates/x/src/a.rs::f grew from 80 to 81 lines"]
        );
        assert_eq!(messages(entry, function(75)).len(), 1);
        assert_eq!(messages(entry, function(20)).len(), 1);
        assert_eq!(shrunk(entry, &[function(81)]), format!("{HEADER}crates/x/src/a.rs::f 80\n"));
        assert_eq!(shrunk(entry, &[function(75)]), format!("{HEADER}crates/x/src/a.rs::f 75\n"));
        assert_eq!(shrunk(entry, &[function(20)]), HEADER);
    }
}
