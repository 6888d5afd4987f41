//! Public functions of the public crate that no runnable example shows, under the ratchet. The example is that of the
//! function, or one in the same file that calls it.

use crate::{ratchet::Amount, source::Source, tree::Finding};

const RULE: &str = "examples";
/// The sources of the crate that applications use.
const CRATE: &str = "crates/db/src/";

/// The public functions without an example, by file.
pub(crate) fn amounts(sources: &[Source]) -> Vec<Amount> {
    let of_crate = sources.iter().filter(|source| source.path.starts_with(CRATE));
    Amount::by_place(RULE, of_crate.flat_map(|source| missing(source).map(|found| (source.path.clone(), found))))
}

fn missing(source: &Source) -> impl Iterator<Item = Finding> {
    let code: Vec<&str> = source.code.lines().collect();
    let comments: Vec<&str> = source.comment_lines().map(|(_, line)| line.trim_start()).collect();
    let examples = examples(&comments);
    let public = source.product_lines().filter_map(|(line, text)| Some((line, function(text)?))).collect::<Vec<_>>();
    public.into_iter().filter_map(move |(line, name)| {
        // Its comment and its attributes end at the first line of other code, or at an empty one.
        let mut above = (0..line - 1).rev().take_while(|&at| {
            let code = code.get(at).map_or("", |code| code.trim());
            comments.get(at).is_some_and(|comment| comment.starts_with("///")) || code.starts_with("#[")
        });
        let is_called = || calls(&examples, &name);
        let is_shown = above.any(|at| comments[at].contains("```") || code[at].contains("#[doc(hidden)]"));
        (!is_shown && !is_called()).then(|| Finding::new(&source.path, line, format!("`{name}` has no example")))
    })
}

/// The lines of the examples in comments.
fn examples(comments: &[&str]) -> String {
    let (mut inside, mut lines) = (false, String::new());
    for comment in comments {
        let fence = comment.contains("```");
        inside = if comment.starts_with("//") { inside != fence } else { false };
        if inside && !fence {
            lines.push_str(comment);
            lines.push('\n');
        }
    }
    lines
}

/// Whether the examples call a function.
fn calls(examples: &str, name: &str) -> bool {
    [".", "::"].iter().any(|before| examples.contains(&format!("{before}{name}(")))
}

/// The name of the public function that a line of code begins.
fn function(line: &str) -> Option<String> {
    let (before, after) = line.trim_start().strip_prefix("pub ")?.split_once("fn ")?;
    let is_function = before.split_whitespace().all(|word| ["const", "async"].contains(&word));
    let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    is_function.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let amounts = amounts(&[Source::new("crates/db/src/a.rs", text)]);
        amounts.iter().flat_map(|amount| &amount.found).map(|finding| finding.message.clone()).collect()
    }

    #[test]
    fn a_public_function_without_an_example_is_found() {
        assert_eq!(found("/// Does it.\n#[must_use]\npub const fn a() {}\n"), ["`a` has no example"]);
        assert_eq!(found("/// ```\n/// b();\n/// ```\npub fn b() {}\npub fn c() {}\n"), ["`c` has no example"]);
    }

    #[test]
    fn an_example_elsewhere_in_the_file_counts_if_it_calls_the_function() {
        let type_example = "/// ```\n/// let a = A::new().b(7);\n/// ```\npub struct A;\n";
        let functions = "pub fn new() {}\npub fn b() {}\npub fn c() {}\n";
        assert_eq!(found(&format!("{type_example}{functions}")), ["`c` has no example"]);
        assert_eq!(found("/// Calls A::c().\npub struct A;\npub fn c() {}\n"), ["`c` has no example"]);
    }

    #[test]
    fn an_example_is_seen_across_attributes_and_what_is_not_public_needs_none() {
        assert!(found("/// ```\n/// a();\n/// ```\n#[must_use]\npub fn a() {}\n").is_empty());
        assert!(found("#[doc(hidden)]\npub fn a() {}\npub(crate) fn b() {}\nfn c() {}\n").is_empty());
        assert!(found("#[cfg(test)]\nmod tests {\n    pub fn a() {}\n}\n").is_empty());
        let elsewhere = Source::new("crates/btree/src/a.rs", "pub fn a() {}\n");
        assert!(amounts(&[elsewhere]).is_empty());
    }
}
