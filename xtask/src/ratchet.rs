//! The ratchet: what broke a rule when the rule came may stay, and must shrink. Nothing may join it.
//!
//! Each line of the file is `rule place count`. A place is a crate, a file or a function. A rule without an entry for a
//! place allows nothing there. `cargo xtask fix` lowers entries to what is found and drops those of nothing.
//!
//! **Merges.** Git keeps both sides of a conflict (`.gitattributes`). Of several entries for one place the smallest
//! holds, and lines that are no entries, such as the marks of a conflict, are skipped. `cargo xtask fix` tidies both.

use crate::tree::Finding;
use std::{collections::BTreeMap, fmt::Write as _};

pub(crate) const RATCHET: &str = "xtask/ratchet.txt";

const HEADER: &str = "\
# What broke a rule when the rule came: `rule place count`. Entries only shrink: `cargo xtask fix` lowers them, and resolves
# a conflict. `cargo xtask counts RULE PLACE` lists what is counted.
";

/// What a rule finds at a place.
#[derive(Debug)]
pub(crate) struct Amount {
    pub(crate) rule: &'static str,
    pub(crate) place: String,
    /// The measure that may only shrink: a length, or how many findings there are.
    pub(crate) count: usize,
    pub(crate) found: Vec<Finding>,
}

impl Amount {
    /// Amounts of a rule that counts findings by place.
    pub(crate) fn by_place(rule: &'static str, found: impl IntoIterator<Item = (String, Finding)>) -> Vec<Self> {
        let mut places: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
        for (place, finding) in found {
            places.entry(place).or_default().push(finding);
        }
        places.into_iter().map(|(place, found)| Self { rule, place, count: found.len(), found }).collect()
    }

    fn key(&self) -> Key<'_> {
        (self.rule, &self.place)
    }
}

/// Rule and place.
type Key<'a> = (&'a str, &'a str);

/// Findings where an amount is above its entry.
pub(crate) fn check(ratchet: &str, amounts: &[Amount]) -> Vec<Finding> {
    let entries = parse(ratchet);
    let mut findings = Vec::new();
    for amount in amounts {
        let Amount { rule, place, count, found } = amount;
        match entries.get(&amount.key()) {
            Some(allowed) if count <= allowed => {}
            Some(allowed) => {
                let message =
                    format!("{rule}: {count}, and {allowed} are allowed: `cargo xtask counts {rule} {place}`");
                findings.push(Finding::new(place, 0, message));
            }
            None => findings.extend(found.iter().cloned()),
        }
    }
    findings
}

/// How many entries are above what is found.
pub(crate) fn loose(ratchet: &str, amounts: &[Amount]) -> usize {
    let today = counts(amounts);
    parse(ratchet).iter().filter(|(key, allowed)| today.get(key).is_none_or(|count| count < allowed)).count()
}

/// The ratchet with each entry lowered to what is found, and entries of nothing dropped.
pub(crate) fn shrunk(ratchet: &str, amounts: &[Amount]) -> String {
    let today = counts(amounts);
    let kept = parse(ratchet).into_iter().filter_map(|(key, allowed)| Some((key, allowed.min(*today.get(&key)?))));
    format!("{HEADER}{}", lines(kept))
}

/// What is found today, in the form of the ratchet.
pub(crate) fn listed(amounts: &[Amount]) -> String {
    lines(counts(amounts))
}

fn counts(amounts: &[Amount]) -> BTreeMap<Key<'_>, usize> {
    amounts.iter().map(|amount| (amount.key(), amount.count)).collect()
}

fn lines<'a>(entries: impl IntoIterator<Item = (Key<'a>, usize)>) -> String {
    entries.into_iter().fold(String::new(), |mut text, ((rule, place), count)| {
        writeln!(text, "{rule} {place} {count}").expect("a string takes all");
        text
    })
}

fn parse(ratchet: &str) -> BTreeMap<Key<'_>, usize> {
    let mut entries = BTreeMap::new();
    for line in ratchet.lines().filter(|line| !line.starts_with('#')) {
        if let [rule, place, count] = line.split(' ').collect::<Vec<_>>()[..]
            && let Ok(count) = count.parse::<usize>()
        {
            entries.entry((rule, place)).and_modify(|least: &mut usize| *least = count.min(*least)).or_insert(count);
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<Amount> {
        let found = (1..=count).map(|line| ("crates/x".to_owned(), Finding::new("crates/x/src/a.rs", line, "a word")));
        Amount::by_place("words", found)
    }

    #[test]
    fn a_place_without_an_entry_shows_each_finding() {
        assert_eq!(check("", &words(2)).len(), 2);
        assert_eq!(
            check("words crates/y 5\nother crates/x 5\n", &words(2))[1].to_string(),
            "crates/x/src/a.rs:2: a word"
        );
    }

    #[test]
    fn an_entry_allows_as_much_and_no_more() {
        let entry = "words crates/x 3\n";
        assert!(check(entry, &words(3)).is_empty());
        assert!(check(entry, &words(2)).is_empty());
        let found = check(entry, &words(4));
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("words: 4, and 3 are allowed"), "{}", found[0]);
    }

    #[test]
    fn entries_only_shrink() {
        let entry = "words crates/x 3\n";
        assert_eq!(shrunk(entry, &words(4)), format!("{HEADER}words crates/x 3\n"));
        assert_eq!(shrunk(entry, &words(2)), format!("{HEADER}words crates/x 2\n"));
        assert_eq!(shrunk(entry, &words(0)), HEADER);
        assert_eq!(shrunk("", &words(2)), HEADER, "nothing joins");
        assert_eq!([2, 3, 4].map(|count| loose(entry, &words(count))), [1, 0, 0]);
        assert_eq!(loose(entry, &words(0)), 1);
    }

    #[test]
    fn the_smaller_side_of_a_merge_holds() {
        let conflict = "<<<<<<< ours\nwords crates/x 2\n=======\nwords crates/x 3\nold crates/x 1\n>>>>>>> theirs\n";
        assert_eq!(check(conflict, &words(3)).len(), 1);
        assert!(check(conflict, &words(2)).is_empty());
        assert_eq!(shrunk(conflict, &words(1)), format!("{HEADER}words crates/x 1\n"));
    }

    #[test]
    fn what_is_listed_is_an_entry() {
        assert!(check(&listed(&words(7)), &words(7)).is_empty());
        assert_eq!(listed(&words(7)), "words crates/x 7\n");
    }
}
