//! Links of Markdown files to files of the repository: each leads to a file, a folder or a heading that exists.

use crate::tree::Finding;
use std::collections::{BTreeMap, BTreeSet};

/// Text of each Markdown file by path, and the paths of all files and folders.
struct Targets<'t> {
    documents: BTreeMap<&'t str, &'t str>,
    paths: BTreeSet<&'t str>,
}

/// Finds the links that lead nowhere. Those with a scheme, such as `https:`, are not followed.
pub(crate) fn check<'t>(files: impl Iterator<Item = (&'t str, &'t str)>) -> Vec<Finding> {
    let mut targets = Targets { documents: BTreeMap::new(), paths: BTreeSet::from([""]) };
    for (path, text) in files {
        targets.paths.insert(path);
        targets.paths.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
        if path.ends_with(".md") {
            targets.documents.insert(path, text);
        }
    }
    let mut findings = Vec::new();
    for (path, text) in &targets.documents {
        for (line, prose) in prose(text) {
            let broken = links_in(&prose).filter(|link| !targets.has(path, link));
            findings.extend(broken.map(|link| Finding::new(path, line, format!("the link `{link}` leads nowhere"))));
        }
    }
    findings
}

impl Targets<'_> {
    /// Whether a link in the document `from` leads to something.
    fn has(&self, from: &str, link: &str) -> bool {
        if link.contains(':') {
            return true;
        }
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        let path = if path.is_empty() { Some(from.to_owned()) } else { joined(from, path) };
        let Some(path) = path.filter(|path| self.paths.contains(path.as_str())) else { return false };
        heading.is_empty() || self.documents.get(path.as_str()).is_some_and(|text| has_heading(text, heading))
    }
}

/// The path of a link from the root; `None` outside of the repository.
fn joined(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/').filter(|part| !["", "."].contains(part)) {
        match part {
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The lines outside of code blocks, counted from 1. A span of code is left out.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut is_code = false;
    let lines = text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.map(|(i, line)| (i + 1, line.split('`').step_by(2).collect::<Vec<_>>().join("`")))
}

/// The targets of `[text](target)` and `[text]: target`.
fn links_in(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target.trim());
    inline.chain(reference)
}

/// Whether a heading has this anchor: small letters, digits, and a hyphen for each space.
fn has_heading(text: &str, anchor: &str) -> bool {
    prose(text).any(|(_, line)| {
        let is_kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        let heading = line.trim_start_matches('#');
        let slug: String = heading.trim().chars().filter(is_kept).map(|c| if c == ' ' { '-' } else { c }).collect();
        line.len() > heading.len() && slug.to_lowercase() == anchor
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 3] =
        [("docs/a.md", "# One of 2: the first\n```\n# no heading\n```\n"), ("src/a.rs", ""), ("Cargo.toml", "")];

    fn found(text: &str) -> Vec<String> {
        let files = FILES.into_iter().chain([("docs/b/x.md", text)]);
        check(files).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn links_to_files_folders_and_headings_pass() {
        assert_eq!(found("[a](../a.md) and [b](../../src), [c](../../src/a.rs).\n[d]: ../../Cargo.toml"), [""; 0]);
        assert_eq!(found("# Here\n[a](#here) [b](../a.md#one-of-2-the-first) [c](https://example.org/x)"), [""; 0]);
        assert_eq!(found("`[a](gone.md)`\n```text\n[a](gone.md)\n```\n"), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(found("\n[a](../a.rs)"), ["docs/b/x.md:2: the link `../a.rs` leads nowhere"]);
        assert_eq!(found("[a](a.md) [b](../../../src) [c](#there) [d](../a.md#no-heading) [e](../../src#a)").len(), 5);
        assert_eq!(found("[a]: gone.md").len(), 1);
    }
}
