//! `cargo xtask coverage`: how many lines of the engine the tests of the workspace run, and where the others are.
//!
//! `cargo llvm-cov` measures; this reads its LCOV report. Lines of tests do not count. Of a report only the lines that
//! have code are known: `DA:line,count`, per file.

use crate::{source::Source, tree::Tree};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

const REPORT: &str = "target/coverage.lcov";
const DOCUMENT: &str = "docs/coverage.md";
/// Layers that need a share of lines of at least [`LEAST`] per mille.
const BOUNDED: [&str; 6] = ["wal", "recovery", "buffer", "txn", "lock", "btree"];
const LEAST: usize = 930;

/// The lines of one file that have code.
#[derive(Debug, Default, PartialEq, Eq)]
struct File {
    layer: String,
    lines: usize,
    /// Lines that no test runs, by the function that has them. The empty name is for lines outside of functions.
    missed: BTreeMap<String, Vec<usize>>,
}

impl File {
    fn missed_len(&self) -> usize {
        self.missed.values().map(Vec::len).sum()
    }
}

/// Lines with code and those that no test runs.
#[derive(Clone, Copy, Default)]
struct Count {
    lines: usize,
    missed: usize,
}

impl Count {
    /// The share of lines that tests run, per mille, rounded down.
    fn per_mille(self) -> usize {
        ((self.lines - self.missed) * 1000).checked_div(self.lines).unwrap_or(1000)
    }
}

/// Measures, or reads the report that is named; prints what no test runs, and writes the document if it is asked to.
///
/// # Errors
/// If a bounded layer is below its bound, or the tests fail.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let (writes, report) = match arguments {
        ["--write", report @ ..] => (true, report),
        report => (false, report),
    };
    let report = match report {
        [] => {
            measure()?;
            REPORT
        }
        [report] => report,
        _ => return Err("usage: cargo xtask coverage [--write] [REPORT]".to_owned()),
    };
    let text = std::fs::read_to_string(Tree::root().join(report)).map_err(|e| format!("{report}: {e}"))?;
    let tree = Tree::read()?;
    let files = files(&text, &tree.sources());
    let layers = layers(&files);
    for (path, file) in files.iter().filter(|(_, file)| BOUNDED.contains(&file.layer.as_str())) {
        for (function, lines) in &file.missed {
            println!("{path}: {function} {}", ranges(lines));
        }
    }
    print!("{}", table(&layers));
    if writes {
        tree.write(DOCUMENT, &document(&files, &layers))?;
    }
    let low: Vec<_> =
        BOUNDED.into_iter().filter(|layer| layers.get(*layer).is_none_or(|n| n.per_mille() < LEAST)).collect();
    if low.is_empty() { Ok(()) } else { Err(format!("below {} %: {}", LEAST / 10, low.join(", "))) }
}

/// Runs the tests of the workspace in a build that counts.
fn measure() -> Result<(), String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["llvm-cov", "--workspace", "--lcov", "--output-path", REPORT]).current_dir(Tree::root());
    let status = command.status().map_err(|e| format!("cargo llvm-cov did not start: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("cargo llvm-cov failed; `cargo install cargo-llvm-cov` installs it".to_owned())
    }
}

/// The files of the engine in an LCOV report, without lines of tests.
fn files(report: &str, sources: &[Source]) -> BTreeMap<String, File> {
    let mut files = BTreeMap::new();
    let mut current: Option<(&Source, BTreeMap<usize, u64>)> = None;
    for line in report.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let source = sources.iter().find(|source| path.ends_with(&format!("/{}", source.path)));
            current =
                source.filter(|source| source.path.starts_with("crates/")).map(|source| (source, BTreeMap::new()));
        } else if let Some((source, counts)) = &mut current {
            let data = line.strip_prefix("DA:").and_then(|data| data.split_once(','));
            let parsed = data.and_then(|(line, count)| Some((line.parse().ok()?, count.parse::<u64>().ok()?)));
            if let Some((line, count)) = parsed.filter(|&(line, _)| !source.is_test(line)) {
                *counts.entry(line).or_default() += count;
            }
            if line == "end_of_record" && !counts.is_empty() {
                files.insert(source.path.clone(), file(source, counts));
            }
        }
    }
    files
}

fn file(source: &Source, counts: &BTreeMap<usize, u64>) -> File {
    let functions = source.functions();
    let mut missed = BTreeMap::<String, Vec<usize>>::new();
    for (&line, _) in counts.iter().filter(|&(_, &count)| count == 0) {
        // The last one that begins before is the innermost.
        let inside = functions.iter().rfind(|function| (function.line..function.line + function.lines).contains(&line));
        missed.entry(inside.map_or_else(String::new, |function| function.name.to_owned())).or_default().push(line);
    }
    File { layer: source.layer().unwrap_or_default().to_owned(), lines: counts.len(), missed }
}

fn layers(files: &BTreeMap<String, File>) -> BTreeMap<&str, Count> {
    let mut layers = BTreeMap::<&str, Count>::new();
    for file in files.values() {
        let count = layers.entry(&file.layer).or_default();
        count.lines += file.lines;
        count.missed += file.missed_len();
    }
    layers
}

fn percent(count: Count) -> String {
    format!("{}.{}", count.per_mille() / 10, count.per_mille() % 10)
}

fn table(layers: &BTreeMap<&str, Count>) -> String {
    let mut text = "| layer | lines | not run | run, % |\n|---|---|---|---|\n".to_owned();
    for (layer, &count) in layers {
        let mark = if BOUNDED.contains(layer) { "**" } else { "" };
        let _ = writeln!(text, "| `{layer}` | {} | {} | {mark}{}{mark} |", count.lines, count.missed, percent(count));
    }
    text
}

/// Line numbers, neighbours together: `3-5, 9`.
fn ranges(lines: &[usize]) -> String {
    let runs = lines.chunk_by(|one, next| one + 1 == *next);
    let runs = runs.map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    runs.collect::<Vec<_>>().join(", ")
}

fn document(files: &BTreeMap<String, File>, layers: &BTreeMap<&str, Count>) -> String {
    let mut text = format!(
        "# Coverage

Lines of the engine that `cargo test --workspace` runs, without lines of tests. `cargo xtask coverage --write` measures
them by [cargo-llvm-cov](https://github.com/taiki-e/cargo-llvm-cov) and writes this page. It fails if a layer in bold is
below {} %. Models, the scheduled engine and real faults do not count.

{}
## Lines that no test runs

In the layers with a bound, their number in each function. A constant function may run in the compiler alone; `fmt`
runs where a value is printed.
",
        LEAST / 10,
        table(layers)
    );
    for layer in BOUNDED {
        let _ = write!(text, "\n### `{layer}`\n\n| file | lines | not run | where |\n|---|---|---|---|\n");
        let prefix = format!("crates/{layer}/");
        for (path, file) in files.iter().filter(|(_, file)| file.layer == layer && !file.missed.is_empty()) {
            let functions = file.missed.iter().map(|(name, lines)| {
                let name = if name.is_empty() { "outside of functions" } else { &format!("`{name}`") };
                format!("{name} {}", lines.len())
            });
            let place = functions.collect::<Vec<_>>().join(", ");
            let path = path.strip_prefix(&prefix).unwrap_or(path);
            let _ = writeln!(text, "| `{path}` | {} | {} | {place} |", file.lines, file.missed_len());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str =
        "fn one() {\n    1;\n    2;\n}\nfn two() {\n    3;\n}\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";

    fn read(report: &str) -> BTreeMap<String, File> {
        let paths = ["crates/wal/src/a.rs", "tools/cli/src/a.rs"];
        files(report, &paths.map(|path| Source::new(path, SOURCE)))
    }

    #[test]
    fn lines_of_tests_and_of_tools_do_not_count() {
        let record = |path| format!("SF:/w/{path}\nDA:1,1\nDA:2,0\nDA:3,0\nDA:6,4\nDA:10,0\nend_of_record\n");
        let files = read(&(record("crates/wal/src/a.rs") + &record("tools/cli/src/a.rs")));
        let missed = BTreeMap::from([("one".to_owned(), vec![2, 3])]);
        let file = File { layer: "wal".to_owned(), lines: 4, missed };
        assert_eq!(files, BTreeMap::from([("crates/wal/src/a.rs".to_owned(), file)]));
        assert_eq!(layers(&files)["wal"].per_mille(), 500);
    }

    #[test]
    fn the_document_lists_what_is_missing_by_file() {
        let files = read("SF:/w/crates/wal/src/a.rs\nDA:2,0\nDA:3,0\nDA:6,0\nDA:1,1\nend_of_record\n");
        let text = document(&files, &layers(&files));
        assert!(text.contains("| `wal` | 4 | 3 | **25.0** |"), "{text}");
        assert!(text.contains("| `src/a.rs` | 4 | 3 | `one` 2, `two` 1 |"), "{text}");
    }

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(ranges(&[3, 4, 5, 9, 11, 12]), "3-5, 9, 11-12");
    }
}
