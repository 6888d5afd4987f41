//! Banned imports: atomics, locks, threads and time live in `sync`, files in `io`, unsafe code in five crates and three
//! tools.
//!
//! Tests may use the standard library; the engine may not, or loom and the simulator would not see what it does.

use crate::{
    source::{Source, is_ident, words},
    tree::Finding,
};

/// Crates that may contain unsafe code.
const UNSAFE: [&str; 5] = ["sync", "io", "buffer", "wal", "classics"];

/// Tools that bind libraries in C, or are one, and so contain unsafe code.
const UNSAFE_TOOLS: [&str; 3] = ["tools/compare/", "tools/ffi/", "tools/python/"];

/// A path of the standard library, the one layer that may name it, and where others get it.
const BANNED: [(&str, &str, &str); 17] = [
    ("std::sync::atomic", "sync", "foreshore_sync::primitive"),
    ("std::sync::Mutex", "sync", "foreshore_sync::Mutex"),
    ("std::sync::MutexGuard", "sync", "foreshore_sync::MutexGuard"),
    ("std::sync::RwLock", "sync", "foreshore_sync::RwLock"),
    ("std::sync::Condvar", "sync", "foreshore_sync::Condvar"),
    ("std::sync::Barrier", "sync", "foreshore_sync::EventCount"),
    ("std::sync::mpsc", "sync", "foreshore_sync::EventCount"),
    ("std::sync::*", "sync", "one import by name"),
    ("std::thread", "sync", "foreshore_sync::Daemon"),
    ("std::cell::UnsafeCell", "sync", "foreshore_sync::primitive"),
    ("std::time::Instant", "sync", "foreshore_sync::Clock"),
    ("std::time::SystemTime", "sync", "foreshore_sync::Clock"),
    ("std::time::*", "sync", "one import by name"),
    ("std::fs", "io", "foreshore_io::Fs"),
    ("std::net", "io", "foreshore_io::Fs"),
    ("std::os", "io", "foreshore_io::Fs"),
    ("std::*", "sync", "one import by name"),
];

/// Modules whose import alone would let banned names in unseen.
const WHOLE: [&str; 3] = ["std::sync", "std::time", "std"];

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let Some(layer) = source.layer() else { return Vec::new() };
    let mut findings = Vec::new();
    for (line, path) in std_paths(&source.code) {
        if source.is_test(line) {
            continue;
        }
        let covers = |banned: &str| path == banned || path.starts_with(&format!("{banned}::"));
        if let Some((_, home, instead)) = BANNED.iter().find(|(banned, ..)| covers(banned))
            && *home != layer
        {
            findings.push(Finding::new(&source.path, line, format!("{path} outside {home}: use {instead}")));
        } else if WHOLE.contains(&path.as_str()) && layer != "sync" {
            findings.push(Finding::new(&source.path, line, format!("import of all of {path}: name what is used")));
        }
    }
    for (line, code) in source.product_lines() {
        if !UNSAFE.contains(&layer) && words(code, "unsafe").next().is_some() {
            findings.push(Finding::new(&source.path, line, format!("unsafe code in {layer}")));
        }
    }
    findings
}

/// Roots of crates without unsafe code must say so to the compiler.
pub(crate) fn check_roots(sources: &[Source]) -> Vec<Finding> {
    let is_root = |path: &str| path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    sources
        .iter()
        .filter(|source| is_root(&source.path))
        .filter(|source| !source.layer().is_some_and(|layer| UNSAFE.contains(&layer)))
        .filter(|source| !UNSAFE_TOOLS.iter().any(|tool| source.path.starts_with(tool)))
        .filter(|source| !source.code.contains("#![forbid(unsafe_code)]"))
        .map(|source| Finding::new(&source.path, 1, "the crate does not carry #![forbid(unsafe_code)]"))
        .collect()
}

/// Every path into the standard library with its line, `use` trees flattened, `core` read as `std`.
fn std_paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for root in ["std", "core"] {
        for at in words(code, root) {
            let before = code[..at].trim_end();
            let rest = &code[at + root.len()..];
            let is_path = rest.trim_start().starts_with("::") || in_use(before);
            if is_path && !continues_path(before) {
                let line = code[..at].matches('\n').count() + 1;
                flatten(rest, "std".to_owned(), line, &mut found);
            }
        }
    }
    found
}

/// Whether an identifier behind `before` is a field or a later part of a path: not the library's root.
fn continues_path(before: &str) -> bool {
    let path = before.strip_suffix("::");
    before.ends_with('.') || path.is_some_and(|path| path.bytes().next_back().is_some_and(|b| is_ident(b) || b == b'>'))
}

fn in_use(before: &str) -> bool {
    words(before, "use").last().is_some_and(|at| !before[at..].contains(';'))
}

/// Walks a path, or the tree of a `use`, from just behind `prefix`. Returns the rest behind it.
fn flatten<'a>(rest: &'a str, prefix: String, line: usize, found: &mut Vec<(usize, String)>) -> &'a str {
    let Some(next) = rest.trim_start().strip_prefix("::") else {
        found.push((line, prefix));
        return rest;
    };
    let next = next.trim_start();
    if let Some(mut inner) = next.strip_prefix('{') {
        loop {
            inner = inner.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            let name = ident(inner);
            if name.is_empty() {
                return inner.strip_prefix('}').unwrap_or(inner);
            }
            // `self` names the prefix itself.
            let path = if name == "self" { prefix.clone() } else { format!("{prefix}::{name}") };
            inner = flatten(&inner[name.len()..], path, line, found);
            let alias = inner.trim_start();
            if let Some(alias) = alias.strip_prefix("as ") {
                inner = &alias.trim_start()[ident(alias.trim_start()).len()..];
            }
        }
    }
    match ident(next) {
        "" => {
            found.push((line, prefix));
            next
        }
        name => flatten(&next[name.len()..], format!("{prefix}::{name}"), line, found),
    }
}

fn ident(text: &str) -> &str {
    if text.starts_with('*') {
        return "*";
    }
    &text[..text.bytes().take_while(|&b| is_ident(b)).count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text)).iter().map(|finding| finding.message.clone()).collect()
    }

    #[test]
    fn every_spelling_of_a_banned_import_is_found() {
        for text in [
            "use std::sync::atomic::AtomicU64;",
            "use core::sync::atomic::{AtomicU64, Ordering};",
            "use std::{fmt, sync::{Arc, Mutex}};",
            "use std::sync::Mutex as M;",
            "use std::sync::{Arc as A, RwLock};",
            "let x: ::std::sync::Condvar;",
            "std::thread::spawn(f);",
            "use std::sync;",
            "use std::sync::{self, Arc};",
            "use std::sync::*;",
            "let t = std::time::Instant::now();",
            "use std::time::{Duration, SystemTime};",
            "std::fs::read(path)",
            "use std::fs::File;",
            "use std::{\n    fmt,\n    fs,\n};",
            "use std as s;",
        ] {
            assert!(!messages("crates/wal/src/x.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn what_is_allowed_passes() {
        for text in [
            "use std::sync::Arc;",
            "use std::sync::{Arc, Weak};",
            "use std::time::Duration;",
            "use std::{fmt, io, path::PathBuf, sync::Arc, time::Duration};",
            "// std::thread is elsewhere\nlet s = \"std::fs\";",
            "use crate::core::Shard; self.core::<T>(); crate::std::fs();",
            "#[cfg(test)]\nmod tests {\n    use std::thread;\n}\n",
        ] {
            assert_eq!(messages("crates/wal/src/x.rs", text), Vec::<String>::new(), "{text}");
        }
        assert!(messages("crates/sync/src/x.rs", "use std::thread; use std::sync::Mutex;").is_empty());
        assert!(messages("crates/io/src/x.rs", "use std::fs::File;").is_empty());
        assert_eq!(messages("crates/io/src/x.rs", "use std::thread;").len(), 1);
        assert!(messages("tools/cli/src/main.rs", "use std::fs::File;").is_empty());
        assert!(messages("crates/db/tests/kill.rs", "use std::process; use std::fs;").is_empty());
    }

    #[test]
    fn unsafe_is_found_outside_its_crates() {
        assert_eq!(messages("crates/txn/src/x.rs", "unsafe { f() }"), ["unsafe code in txn"]);
        assert!(messages("crates/txn/src/x.rs", "#![forbid(unsafe_code)] // unsafe").is_empty());
        assert!(messages("crates/wal/src/x.rs", "unsafe { f() }").is_empty());
        assert!(messages("classics/src/x.rs", "unsafe { f() }").is_empty());
        assert_eq!(messages("classics/src/x.rs", "use std::sync::atomic::AtomicU64;").len(), 1);
    }

    #[test]
    fn roots_forbid_unsafe() {
        let root = |path, text| check_roots(&[Source::new(path, text)]).len();
        assert_eq!(root("crates/txn/src/lib.rs", "//! x"), 1);
        assert_eq!(root("crates/txn/src/lib.rs", "#![forbid(unsafe_code)]"), 0);
        assert_eq!(root("crates/txn/src/lib.rs", "// #![forbid(unsafe_code)]"), 1);
        assert_eq!(root("crates/wal/src/lib.rs", "//! x"), 0);
        assert_eq!(root("tools/cli/src/main.rs", "fn main() {}"), 1);
        assert_eq!(root("tools/compare/src/main.rs", "fn main() {}"), 0);
        assert_eq!(root("crates/txn/src/other.rs", ""), 0);
    }
}
