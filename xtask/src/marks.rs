//! Comments that an access must carry: `ORDERING:` on atomics, `WAIT:` with a class on waits.

use crate::{source::Source, tree::Finding};

/// How many lines above its access a comment may stand.
const REACH: usize = 6;

const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

const WAITS: [&str; 9] = [
    ".park(",
    "::park(",
    ".park_timeout(",
    "::park_timeout(",
    ".wait(",
    ".wait_timeout(",
    ".wait_while(",
    "::sleep(",
    "::spin_loop(",
];

const CLASSES: [&str; 3] = ["WAIT: help", "WAIT: park", "WAIT: window"];

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    if source.layer().is_none() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (line, code) in source.product_lines() {
        if imports_orderings(code) {
            findings.push(Finding::new(&source.path, line, "import Ordering, not its values: uses must be seen"));
        } else if names_ordering(code) && !source.has_comment("ORDERING:", line, REACH) {
            let message = "atomic access without an `// ORDERING: reason, pairs with X` comment";
            findings.push(Finding::new(&source.path, line, message));
        }
        if WAITS.iter().any(|wait| code.contains(wait))
            && !CLASSES.iter().any(|class| source.has_comment(class, line, REACH))
        {
            let message = "wait without a `// WAIT: help|park|window - reason` comment";
            findings.push(Finding::new(&source.path, line, message));
        }
    }
    findings
}

fn names_ordering(code: &str) -> bool {
    code.match_indices("Ordering::").any(|(at, path)| {
        let rest = &code[at + path.len()..];
        ORDERINGS.iter().any(|ordering| rest.starts_with(ordering))
    })
}

fn imports_orderings(code: &str) -> bool {
    let Some((_, tree)) = code.split_once("Ordering::") else { return false };
    let is_use = code.trim_start().trim_start_matches("pub ").starts_with("use ");
    is_use && (tree.starts_with(['{', '*']) || ORDERINGS.iter().any(|ordering| tree.starts_with(ordering)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        let [engine, classics] =
            ["crates/wal", "classics"].map(|folder| check(&Source::new(&format!("{folder}/src/x.rs"), text)).len());
        assert_eq!(engine, classics);
        engine
    }

    #[test]
    fn an_atomic_access_without_its_reason_is_found() {
        assert_eq!(count("a.load(Ordering::Acquire);"), 1);
        assert_eq!(count("// ORDERING: publish, pairs with cut\na.load(Ordering::Acquire);"), 0);
        assert_eq!(count("a.load(Ordering::Relaxed); // ORDERING: a hint"), 0);
        assert_eq!(count(&format!("// ORDERING: far\n{}a.load(atomic::Ordering::SeqCst);", "\n".repeat(6))), 1);
        assert_eq!(count("match a.cmp(&b) { Ordering::Less => 1 }"), 0);
        assert_eq!(count("let s = \"ORDERING: x\"; a.load(Ordering::Relaxed);"), 1);
    }

    #[test]
    fn orderings_cannot_be_imported_out_of_sight() {
        assert_eq!(count("use atomic::Ordering::{Acquire, Release};"), 1);
        assert_eq!(count("use atomic::Ordering::*;"), 1);
        assert_eq!(count("use atomic::Ordering::SeqCst;"), 1);
        assert_eq!(count("use std::cmp::Ordering;"), 0);
    }

    #[test]
    fn a_wait_without_its_class_is_found() {
        assert_eq!(count("parker.park();"), 1);
        assert_eq!(count("// WAIT: forever\nparker.park();"), 1);
        assert_eq!(count("// WAIT: park - until durable\nparker.park();"), 0);
        assert_eq!(count("ticket.wait()?;"), 1);
        assert_eq!(count("hint::spin_loop();"), 1);
        assert_eq!(count("fn park(&self) {}"), 0);
        assert_eq!(count("#[cfg(test)]\nmod tests {\n    fn a() { t.wait(); }\n}"), 0);
    }
}
