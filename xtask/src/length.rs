//! Lengths of files and functions, tests left out, under the ratchet. No entry allows a file more than the hard limit.

use crate::{ratchet::Amount, source::Source, tree::Finding};
use std::collections::BTreeMap;

const RULE: &str = "length";
const FILE_HARD: usize = 800;
const FILE_SOFT: usize = 400;
const FUNCTION: usize = 70;

/// Files that no entry of the ratchet excuses.
pub(crate) fn check(source: &Source) -> Option<Finding> {
    let lines = source.product_lines().count();
    (lines > FILE_HARD)
        .then(|| Finding::new(&source.path, 0, format!("{lines} lines without tests, the limit is {FILE_HARD}")))
}

/// The files and functions above their limits, each with its lines.
pub(crate) fn amounts(sources: &[Source]) -> Vec<Amount> {
    let mut longest: BTreeMap<String, Amount> = BTreeMap::new();
    let mut add = |place: String, path: &str, line: usize, lines: usize, limit: usize| {
        let found = vec![Finding::new(path, line, format!("{place} has {lines} lines, the limit is {limit}"))];
        // Functions of one name in one file share an entry: the longest counts.
        if longest.get(&place).is_none_or(|amount| amount.count < lines) {
            longest.insert(place.clone(), Amount { rule: RULE, place, count: lines, found });
        }
    };
    for source in sources {
        let lines = source.product_lines().count();
        if lines > FILE_SOFT {
            add(source.path.clone(), &source.path, 0, lines, FILE_SOFT);
        }
        for function in source.functions().iter().filter(|function| function.lines > FUNCTION) {
            let place = format!("{}::{}", source.path, function.name);
            add(place, &source.path, function.line, function.lines, FUNCTION);
        }
    }
    longest.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratchet;

    fn file(lines: usize) -> Source {
        Source::new("crates/x/src/a.rs", &"const A: u8 = 0;\n".repeat(lines))
    }

    fn function(lines: usize) -> Source {
        Source::new("crates/x/src/a.rs", &format!("fn f() {{\n{}}}\n", "g();\n".repeat(lines - 2)))
    }

    fn messages(entry: &str, source: Source) -> Vec<String> {
        let hard = check(&source);
        hard.into_iter().chain(ratchet::check(entry, &amounts(&[source]))).map(|f| f.to_string()).collect()
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
        assert!(messages("length crates/x/src/a.rs 800\n", file(800)).is_empty());
        assert_eq!(messages("length crates/x/src/a.rs 801\n", file(801)).len(), 1);
    }

    #[test]
    fn a_long_function_is_found() {
        assert!(messages("", function(70)).is_empty());
        let found = messages("", function(71));
        assert_eq!(found, ["crates/x/src/a.rs:1: crates/x/src/a.rs::f has 71 lines, the limit is 70"]);
    }

    #[test]
    fn an_entry_allows_a_length_and_only_shrinks() {
        let entry = "length crates/x/src/a.rs::f 80\n";
        assert!(messages(entry, function(80)).is_empty());
        assert_eq!(messages(entry, function(81)).len(), 1);
        assert_eq!(ratchet::loose(entry, &amounts(&[function(75)])), 1);
        assert_eq!(ratchet::loose(entry, &amounts(&[function(20)])), 1);
        assert!(ratchet::shrunk(entry, &amounts(&[function(75)])).ends_with("length crates/x/src/a.rs::f 75\n"));
        let both = format!("{}{}", "fn f() {\n".to_owned() + &"g();\n".repeat(80) + "}\n", "fn f() {}\n");
        assert_eq!(amounts(&[Source::new("crates/x/src/a.rs", &both)])[0].count, 82, "the longest of a name");
    }
}
