//! Completion of verbs and names of tables.

use super::words;
use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

/// What may be completed.
pub(super) struct Names {
    /// Verbs, and whether the name of a table follows.
    pub(super) verbs: Vec<(String, bool)>,
    pub(super) tables: Vec<String>,
}

impl Names {
    /// Returns where the word at the end of `line` begins, and the words that it may become: the first word a verb, the
    /// second a table.
    fn complete(&self, line: &str) -> (usize, Vec<String>) {
        let begin = line.rfind([' ', '\t']).map_or(0, |blank| blank + 1);
        let (before, word) = line.split_at(begin);
        let before: Vec<&str> = before.split_whitespace().collect();
        let mut names: Vec<String> = match before[..] {
            [] => self.verbs.iter().map(|(verb, _)| verb.clone()).collect(),
            ["help"] => self.verbs.iter().map(|(verb, _)| verb.clone()).collect(),
            [verb] if self.verbs.contains(&(verb.to_owned(), true)) => {
                self.tables.iter().map(|table| words::quote(table)).collect()
            }
            _ => Vec::new(),
        };
        names.retain(|name| name.starts_with(word));
        (begin, names)
    }
}

impl Completer for Names {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let (begin, mut names) = self.complete(&line[..at]);
        // The next word follows at once.
        if let ([name], true) = (&mut names[..], at == line.len()) {
            name.push(' ');
        }
        Ok((begin, names))
    }
}

impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {}

impl Validator for Names {}

impl Helper for Names {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::verbs;

    #[test]
    fn verbs_and_tables_are_completed() {
        let tables = ["accounts", "archive", "my table"].map(str::to_owned).to_vec();
        let names = Names { verbs: verbs::names(), tables };
        for (line, begin, words) in [
            ("co", 0, &["count", "commit"][..]),
            ("get a", 4, &["accounts", "archive"]),
            ("  get\tac", 6, &["accounts"]),
            ("scan '", 5, &["'my table'"]),
            ("help pu", 5, &["put"]),
            ("commit a", 7, &[]),
            ("get accounts a", 13, &[]),
            ("nothing a", 8, &[]),
        ] {
            assert_eq!(names.complete(line), (begin, words.iter().map(|&word| word.to_owned()).collect()), "{line}");
        }
        assert_eq!(names.complete("").1.len(), names.verbs.len());
    }
}
