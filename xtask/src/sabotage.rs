//! Planted defects: `cargo xtask sabotage` shows which suite finds each of them.
//!
//! `xtask/sabotage.txt` lists the defects, one a line: name, what breaks, and the suite that is expected to find it.
//! The engine carries each as `mutant("name")`. The results are the table of `docs/sabotage.md`.
//!
//! | suite | runs | finds the defect if |
//! |---|---|---|
//! | `sim` | seeds of `tools/sim` with the defect | a seed fails |
//! | `test PACKAGE TARGET FILTER` | tests in a build with `--cfg foreshore_sim` and the defect | one fails, and none does without the defect |
//! | `loom PACKAGE FILTER`, `shuttle PACKAGE FILTER` | models that switch the line off themselves | one runs, and all pass |

mod run;

pub(crate) use run::run;

use crate::tree::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The list of defects.
pub(crate) const LIST: &str = "xtask/sabotage.txt";
/// The results.
pub(crate) const DOCUMENT: &str = "docs/sabotage.md";
/// How the names begin that only this list has a use for. Spelled in two halves, so that this file plants none.
const PREFIX: &str = concat!("\"sab", "otage: ");

/// What a suite has found.
const COLUMNS: &str =
    "| defect | where | what breaks | suite | found by | first failure |\n|---|---|---|---|---|---|\n";
const HEAD: &str = "# Planted defects\n
Each row is a line of the engine that can be switched off, and the suite that finds out. `cargo xtask sabotage` writes this
table from [the list](../xtask/sabotage.txt); what a suite is says `xtask/src/sabotage.rs`. A seed of `sim` is replayed by
`cargo run -p foreshore-sim -- --seed SEED --mutant 'DEFECT'`.\n\n";

/// A planted defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defect {
    pub(crate) name: String,
    breaks: String,
    pub(crate) suite: String,
}

/// What became of a defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The suite that was asked.
    pub(crate) suite: String,
    /// How much of the suite has run until it was found; what has run in vain if `failure` is empty.
    pub(crate) by: String,
    /// The first failure. Empty if the suite has not found it.
    pub(crate) failure: String,
}

/// The verdicts by the names of their defects.
pub(crate) type Verdicts = BTreeMap<String, Verdict>;

/// Reads the list.
///
/// # Errors
/// Says which line is wrong.
pub(crate) fn parse(list: &str) -> Result<Vec<Defect>, String> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let defect = |line: &str| match line.split(" | ").collect::<Vec<_>>()[..] {
        [name, breaks, suite] => Ok(Defect { name: name.into(), breaks: breaks.into(), suite: suite.into() }),
        _ => Err(format!("{LIST}: not `name | what breaks | suite`: {line}")),
    };
    lines.map(defect).collect()
}

/// The document with a row for each defect.
fn document(defects: &[Defect], verdicts: &Verdicts, places: &BTreeMap<String, String>) -> String {
    let found = |defect: &&Defect| verdicts.get(&defect.name).is_some_and(|verdict| !verdict.failure.is_empty());
    let (all, all_found) = (defects.len(), defects.iter().filter(found).count());
    let by_seeds = defects.iter().filter(found).filter(|defect| verdicts[&defect.name].suite == "sim").count();
    let mut text = format!("{HEAD}{all} defects; {all_found} are found, {by_seeds} of them by `sim`.\n\n{COLUMNS}");
    for Defect { name, breaks, suite } in defects {
        let place = places.get(name).map_or("", String::as_str);
        let (by, failure) = verdicts.get(name).map_or(("not run", ""), |verdict| (&verdict.by, &verdict.failure));
        writeln!(text, "| {name} | `{place}` | {breaks} | `{suite}` | {by} | {failure} |").expect("a string takes all");
    }
    text
}

/// The verdicts in a document.
fn verdicts(document: &str) -> Verdicts {
    let row = |line: &str| match line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect::<Vec<_>>()[..] {
        [name, _, _, suite, by, failure] if by != "not run" && suite.starts_with('`') => {
            let suite = suite.trim_matches('`').to_owned();
            Some((name.to_owned(), Verdict { suite, by: by.into(), failure: failure.trim().into() }))
        }
        _ => None,
    };
    document.lines().filter_map(row).collect()
}

/// Where the engine carries each name.
fn places(tree: &Tree, defects: &[Defect]) -> BTreeMap<String, String> {
    let place = |defect: &Defect| {
        let quoted = format!("\"{}\"", defect.name);
        let (path, _) = engine(tree.texts()).find(|(_, text)| text.contains(&quoted))?;
        Some((defect.name.clone(), path.strip_prefix("crates/").unwrap_or(path).to_owned()))
    };
    defects.iter().filter_map(place).collect()
}

/// The sources of the engine and the classics among files.
fn engine<'t>(files: impl Iterator<Item = (&'t str, &'t str)>) -> impl Iterator<Item = (&'t str, &'t str)> {
    let is_engine = |path: &str| path.starts_with("crates/") || path.starts_with("classics/");
    files.filter(move |(path, _)| is_engine(path) && path.contains("/src/") && path.ends_with(".rs"))
}

/// Findings where the list, the engine and the document differ.
pub(crate) fn check<'t>(list: &str, document: &str, files: impl Iterator<Item = (&'t str, &'t str)>) -> Vec<Finding> {
    let defects = match parse(list) {
        Ok(defects) => defects,
        Err(why) => return vec![Finding::new(LIST, 0, why)],
    };
    let mut findings = Vec::new();
    let names: BTreeSet<&str> = defects.iter().map(|defect| defect.name.as_str()).collect();
    if names.len() < defects.len() {
        findings.push(Finding::new(LIST, 0, "a defect is listed twice"));
    }
    let mut missing = names.clone();
    for (path, text) in engine(files) {
        missing.retain(|name| !text.contains(&format!("\"{name}\"")));
        for (line, text) in text.lines().enumerate() {
            let planted = text.match_indices(PREFIX).filter_map(|(at, _)| text[at + 1..].split('"').next());
            let unlisted = planted.filter(|name| !names.contains(name));
            findings
                .extend(unlisted.map(|name| Finding::new(path, line + 1, format!("{LIST} does not list `{name}`"))));
        }
    }
    findings
        .extend(missing.into_iter().map(|name| Finding::new(LIST, 0, format!("no line of the engine is `{name}`"))));
    let known = verdicts(document);
    for Defect { name, suite, .. } in &defects {
        let message = match known.get(name) {
            Some(verdict) if verdict.failure.is_empty() => format!("no suite finds `{name}`"),
            Some(verdict) if verdict.suite == *suite => continue,
            _ => format!("`{name}` has no result of `{suite}`: run `cargo xtask sabotage`"),
        };
        findings.push(Finding::new(DOCUMENT, 0, message));
    }
    let strange = known.keys().filter(|name| !names.contains(name.as_str()));
    findings.extend(strange.map(|name| Finding::new(DOCUMENT, 0, format!("{LIST} does not list `{name}`"))));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "# what is planted\none | rows are lost | sim\nsabotage: two | locks are lost | test p it a\n";
    const SOURCE: &str = concat!("if mutant(\"one\") {}\nif mutant(\"sab", "otage: two\") {}\n");

    fn written(failure: &str) -> String {
        let verdict = |suite: &str| Verdict { suite: suite.into(), by: "3 seeds".into(), failure: failure.into() };
        let verdicts =
            [("one".to_owned(), verdict("sim")), ("sabotage: two".to_owned(), verdict("test p it a"))].into();
        document(&parse(LISTED).expect("a list"), &verdicts, &BTreeMap::new())
    }

    fn messages(list: &str, document: &str, source: &str) -> Vec<String> {
        check(list, document, [("crates/x/src/a.rs", source)].into_iter()).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_document_has_what_was_written_to_it() {
        let text = written("seed 2");
        let found = verdicts(&text);
        assert_eq!(found.len(), 2);
        assert_eq!(found["one"], Verdict { suite: "sim".into(), by: "3 seeds".into(), failure: "seed 2".into() });
        assert!(text.contains("2 defects; 2 are found, 1 of them by `sim`"), "{text}");
        assert!(messages(LISTED, &text, SOURCE).is_empty());
    }

    #[test]
    fn what_is_planted_and_not_listed_is_found_and_so_is_the_reverse() {
        let text = written("seed 2");
        let more = format!("{SOURCE}{}\n", concat!("mutant(\"sab", "otage: three\")"));
        assert_eq!(
            messages(LISTED, &text, &more),
            ["crates/x/src/a.rs:3: xtask/sabotage.txt does not list `sabotage: three`"]
        );
        assert_eq!(messages(LISTED, &text, "mutant(\"one\")").len(), 1);
        assert!(messages("one\n", &text, SOURCE)[0].contains("what breaks"));
    }

    #[test]
    fn a_defect_without_a_suite_that_finds_it_is_found() {
        assert_eq!(messages(LISTED, &written(""), SOURCE).len(), 2);
        assert_eq!(messages(LISTED, "", SOURCE).len(), 2);
        let other = LISTED.replace("| sim", "| test p lib a");
        assert_eq!(messages(&other, &written("seed 2"), SOURCE).len(), 1, "the suite has changed");
    }
}
