//! Completions and manual pages have every verb.

use crate::support::{Dir, foreshore};
use std::ffi::OsStr;
use std::fs;

const VERBS: [&str; 22] = [
    "info",
    "stats",
    "check",
    "tables",
    "get",
    "put",
    "del",
    "scan",
    "rename",
    "clear",
    "dump",
    "load",
    "log",
    "page",
    "backup",
    "compact",
    "repair",
    "shell",
    "top",
    "bench",
    "lab",
    "completions",
];

#[test]
fn completions_have_every_verb() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = foreshore(["completions", shell].map(OsStr::new).into_iter(), None);
        assert_eq!((ran.code, &*ran.errors), (0, ""), "{shell}");
        assert!(VERBS.iter().all(|verb| ran.output.contains(verb)), "{shell}: {}", ran.output);
        assert!(ran.output.contains("prefix"), "{shell} has options");
    }
    assert_eq!(foreshore(["completions", "none"].map(OsStr::new).into_iter(), None).code, 2);
}

#[test]
fn every_verb_has_a_manual_page() {
    let dir = Dir::new("man");
    let pages = dir.path().join("pages");
    let words = [OsStr::new("man"), pages.as_os_str()];
    let ran = foreshore(words.into_iter(), None);
    assert_eq!((ran.code, &*ran.errors), (0, ""), "{ran:?}");
    for verb in VERBS {
        let page = fs::read_to_string(pages.join(format!("foreshore-{verb}.1"))).expect(verb);
        assert!(page.contains(".SH") && page.contains(verb), "{page}");
    }
    assert!(fs::read_to_string(pages.join("foreshore.1")).unwrap().contains("Exit status"));
    fs::write(dir.path().join("file"), "").unwrap();
    let words = [OsStr::new("man"), dir.path().join("file").into_os_string().leak()];
    foreshore(words.into_iter(), None).is_refused(4, "file");
}
