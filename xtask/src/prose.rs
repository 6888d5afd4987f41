//! The words of comments and names, under the ratchet: what a reader has to read twice.
//!
//! | rule | counts |
//! |---|---|
//! | `actors` | `who` and its kin in comments and documents, where a role belongs |
//! | `columns` | comment lines over 120 columns; tables and links cannot be broken |
//! | `sentences` | sentences of more than 30 words in `///` and `//!` |
//! | `coinages` | words of this project alone where the field has one, in comments and in names |

use crate::{
    ratchet::Amount,
    source::{Source, is_ident},
    tree::Finding,
};

const ACTORS: [&str; 11] = [
    "who",
    "whom",
    "whoever",
    "whomever",
    "somebody",
    "someone",
    "nobody",
    "anybody",
    "anyone",
    "everybody",
    "everyone",
];

const COLUMNS: usize = 120;
const WORDS: usize = 30;

/// What a coined word begins with, and the word of the field. Spelled in two halves, so that this file passes.
const COINAGES: [(&str, &str); 8] = [
    (concat!("am", "ass"), "group-commit delay"),
    (concat!("be", "ll"), "signal, notify"),
    (concat!("cr", "ew"), "worker pool"),
    (concat!("de", "bt"), "wake-up obligation"),
    (concat!("lin", "ger"), "hold locks until durable"),
    (concat!("out", "look"), "quiescence check, or an enum of states"),
    (concat!("pass", "age"), "flush latency"),
    (concat!("to", "ll"), "snapshot cost"),
];

/// Endings that make another form of the same word.
const ENDINGS: [&str; 8] = ["", "s", "es", "ed", "er", "ers", "ing", "ings"];

/// The place of Markdown files.
const DOCUMENTS: &str = "documents";

pub(crate) fn amounts<'t>(sources: &[Source], texts: impl Iterator<Item = (&'t str, &'t str)>) -> Vec<Amount> {
    let [mut actors, mut columns, mut sentences, mut coinages] = [const { Vec::new() }; 4];
    for source in sources {
        let place = place(&source.path);
        let at = |line, message: String| (place.to_owned(), Finding::new(&source.path, line, message));
        for (line, comment) in source.comment_lines() {
            actors.extend(actors_in(comment).map(|word| at(line, actor(word))));
            let width = comment.trim_end().chars().count();
            if width > COLUMNS && !is_unbreakable(comment) {
                columns.push(at(line, format!("a comment of {width} columns, the limit is {COLUMNS}")));
            }
        }
        let names = source.code.lines().enumerate().map(|(i, line)| (i + 1, line));
        for (line, text) in source.comment_lines().chain(names) {
            coinages.extend(coinages_in(text).into_iter().map(|message| at(line, message)));
        }
        let long = long_sentences(source.comment_lines());
        sentences.extend(long.into_iter().map(|(line, count)| {
            at(line, format!("a sentence of {count} words, the limit is {WORDS}: one fact a sentence"))
        }));
    }
    for (path, text) in texts.filter(|(path, _)| path.ends_with(".md")) {
        for (i, line) in text.lines().enumerate() {
            let found = actors_in(line).map(|word| (DOCUMENTS.to_owned(), Finding::new(path, i + 1, actor(word))));
            actors.extend(found);
        }
    }
    let rules = [("actors", actors), ("columns", columns), ("sentences", sentences), ("coinages", coinages)];
    rules.into_iter().flat_map(|(rule, found)| Amount::by_place(rule, found)).collect()
}

/// The folder of a file's crate.
fn place(path: &str) -> &str {
    let depth = if path.starts_with("crates/") || path.starts_with("tools/") { 2 } else { 1 };
    path.match_indices('/').nth(depth - 1).map_or(path, |(at, _)| &path[..at])
}

fn actor(word: &str) -> String {
    format!("`{word}`: say the role, such as writer, reader, caller or transaction")
}

fn actors_in(line: &str) -> impl Iterator<Item = &str> {
    // A span of code names itself.
    line.split('`')
        .step_by(2)
        .flat_map(idents)
        .filter(|word| ACTORS.iter().any(|actor| actor.eq_ignore_ascii_case(word)))
}

fn idents(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii() || !is_ident(c as u8)).filter(|word| !word.is_empty())
}

fn is_unbreakable(comment: &str) -> bool {
    let text = comment.trim_start().trim_start_matches(['/', '!']).trim_start();
    text.starts_with('|') || text.contains("://")
}

fn coinages_in(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in idents(line).flat_map(parts) {
        let coined = |(stem, _): &&(&str, &str)| {
            word.get(..stem.len()).is_some_and(|start| start.eq_ignore_ascii_case(stem))
                && ENDINGS.contains(&word[stem.len()..].to_ascii_lowercase().as_str())
        };
        if let Some((_, instead)) = COINAGES.iter().find(coined) {
            found.push(format!("`{word}` is a coinage: {instead}"));
        }
    }
    found
}

/// The words that an identifier is made of.
fn parts(ident: &str) -> Vec<&str> {
    let bytes = ident.as_bytes();
    let begins = |i: usize| bytes[i] == b'_' || bytes[i].is_ascii_uppercase() && !bytes[i - 1].is_ascii_uppercase();
    let mut parts = Vec::new();
    let mut from = 0;
    for i in (1..ident.len()).filter(|&i| begins(i)).chain([ident.len()]) {
        parts.push(ident[from..i].trim_matches('_'));
        from = i;
    }
    parts
}

/// Line and words of each sentence of the documentation that is too long.
fn long_sentences<'t>(comments: impl Iterator<Item = (usize, &'t str)>) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    // Line and words of the sentence that is open.
    let (mut begin, mut count) = (0, 0);
    let mut is_code = false;
    let mut close = |begin: usize, count: &mut usize| {
        if *count > WORDS {
            found.push((begin, *count));
        }
        *count = 0;
    };
    for (line, comment) in comments {
        let comment = comment.trim();
        let text = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!")).map(str::trim);
        if text.is_some_and(|text| text.starts_with("```")) {
            is_code = !is_code;
        }
        let Some(text) = text.filter(|text| !is_code && is_prose(text)) else {
            close(begin, &mut count);
            is_code &= text.is_some();
            continue;
        };
        if is_item(text) {
            close(begin, &mut count);
        }
        let mut is_span = false;
        for word in text.split_whitespace() {
            if count == 0 {
                begin = line;
            }
            // A span of code is one word.
            let was_span = is_span;
            is_span ^= word.matches('`').count() % 2 == 1;
            count += usize::from(!was_span && word.contains(char::is_alphanumeric));
            if !is_span && ends_sentence(word) {
                close(begin, &mut count);
            }
        }
    }
    close(begin, &mut count);
    found
}

/// Whether a line is part of a paragraph or a list: no table, heading or fence.
fn is_prose(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(['|', '#']) && !text.starts_with("```")
}

fn is_item(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.starts_with("- ") || text.starts_with("* ") || digits > 0 && text[digits..].starts_with(". ")
}

fn ends_sentence(word: &str) -> bool {
    let word = word.trim_end_matches([')', '"', '*', '_', '`', ']']);
    word.ends_with(['.', '?', '!']) && !["e.g.", "i.e.", "cf.", "vs."].contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(rule: &str, text: &str) -> Vec<String> {
        let source = Source::new("crates/x/src/a.rs", text);
        let amounts = amounts(&[source], [("README.md", text)].into_iter().filter(|_| rule == "documents"));
        let own = amounts.iter().filter(|amount| amount.rule == rule || amount.place == rule);
        own.flat_map(|amount| amount.found.iter().map(Finding::to_string)).collect()
    }

    #[test]
    fn an_actor_without_a_role_is_found_in_comments_and_documents() {
        let text = concat!("// Wh", "oever waits, and wh", "o reads `who`.\nlet wh", "o = 1; // whole\n");
        let found = messages("actors", text);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with(concat!("crates/x/src/a.rs:1: `Wh", "oever`: say the role")), "{found:?}");
        assert_eq!(messages("documents", text).len(), 3);
    }

    #[test]
    fn a_wide_comment_is_found_unless_it_is_a_table() {
        let wide = "ä".repeat(117);
        assert_eq!(messages("columns", &format!("// {wide}")), [""; 0]);
        assert_eq!(messages("columns", &format!("// {wide}x")).len(), 1);
        assert_eq!(messages("columns", &format!("    f(); // {wide}")).len(), 1);
        assert_eq!(messages("columns", &format!("//! | {wide}x |\nlet s = \"{wide}xxxx\";")), [""; 0]);
    }

    #[test]
    fn a_long_sentence_is_found_at_its_first_line() {
        let words = |count: usize| "word ".repeat(count - 1) + "end.";
        assert_eq!(messages("sentences", &format!("/// {}", words(30))), [""; 0]);
        let found = messages("sentences", &format!("/// One.\n/// Two, {}", words(30)));
        assert_eq!(found, ["crates/x/src/a.rs:2: a sentence of 31 words, the limit is 30: one fact a sentence"]);
        assert_eq!(messages("sentences", &format!("// {}", words(31))), [""; 0], "no documentation");
        let half = "word ".repeat(20);
        assert_eq!(messages("sentences", &format!("//! {half}\n//! {half}\n")).len(), 1);
        assert_eq!(messages("sentences", &format!("//! {half}\n//!\n//! {half}\n")), [""; 0]);
        assert_eq!(messages("sentences", &format!("/// - {half}\n/// - {half}\n/// 1. {half}\n")), [""; 0]);
        assert_eq!(messages("sentences", &format!("/// {half}\nstruct A;\n/// {half}\n")), [""; 0]);
        assert_eq!(messages("sentences", &format!("/// {half}\n/// ```\n/// {half}\n/// ```\n")), [""; 0]);
        assert_eq!(messages("sentences", &format!("/// {half} (an end.) {half}\n")), [""; 0]);
        assert_eq!(messages("sentences", &format!("/// {half} `{half}` {half}\n")).len(), 1);
        assert_eq!(messages("sentences", &format!("/// `{half}`, {half}\n/// `f` {half}")).len(), 1);
    }

    #[test]
    fn coinages_are_found_in_names_and_comments() {
        let text = concat!(
            "// It lin",
            "gers.\nstruct FlushOut",
            "look { to",
            "ll_us: u8, to",
            "lled_be",
            "ll: u8 }\nfn stay_lin",
            "gering() {}"
        );
        assert_eq!(messages("coinages", text).len(), 6);
        assert_eq!(messages("coinages", "// It screws at all and is an amassment.\nfn tolerate() {}"), [""; 0]);
    }

    #[test]
    fn places_are_crates() {
        let paths = ["crates/wal/src/a.rs", "tools/sim/tests/it/a.rs", "classics/src/lib.rs", "xtask/src/a.rs"];
        assert_eq!(paths.map(place), ["crates/wal", "tools/sim", "classics", "xtask"]);
    }
}
