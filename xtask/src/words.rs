//! Words that no file may contain: unfinished code, skipped tests, paths of one machine.

use crate::tree::Finding;

/// Spelled in two halves, so that this file passes its own rule.
const BANNED: [&str; 8] = [
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("#[ig", "nore"),
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/tmp/", "plan"),
    concat!("for n", "ow"),
    concat!("place", "holder"),
];

pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.to_lowercase();
        for banned in BANNED {
            if line.match_indices(banned).any(|(at, _)| stands_alone(&line, at, banned)) {
                findings.push(Finding::new(path, i + 1, format!("`{banned}` does not belong in the tree")));
            }
        }
    }
    findings
}

/// Whether a match is a word, or its plural, rather than part of a longer word or of a relative path.
fn stands_alone(line: &str, at: usize, banned: &str) -> bool {
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    let begins = line[..at].chars().next_back().is_none_or(|c| !is_inside(c) && c != '.');
    let rest = &line[at + banned.len()..];
    let rest = rest.strip_prefix('s').unwrap_or(rest);
    let ends = !banned.ends_with(char::is_alphabetic) || !rest.starts_with(is_inside);
    begins && ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_banned_word_is_found() {
        for banned in BANNED {
            assert_eq!(check("a.md", &format!("fine\nsome {banned}")).len(), 1, "{banned}");
        }
        assert_eq!(check("a.md", &format!("Fo{} it waits", "r now,")).len(), 1);
        assert_eq!(check("a.md", &format!("Place{}", "holders")).len(), 1);
    }

    #[test]
    fn longer_words_and_relative_paths_pass() {
        assert!(check("a.md", concat!("for n", "owhere ../wo", "rk/x crates/wo", "rk/y")).is_empty());
    }
}
