//! Files of test binaries. The `main.rs` of the binary declares each, or its tests are not built, and nothing fails.

use crate::tree::Finding;
use std::collections::{BTreeMap, BTreeSet};

/// Findings for the paths and texts of the repository's files.
pub(crate) fn check<'t>(files: impl Iterator<Item = (&'t str, &'t str)>) -> Vec<Finding> {
    // Folder and declared names of each binary. A folder without a `main.rs` is none: others take its files by path.
    let mut binaries: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut suites = Vec::new();
    for (path, text) in files {
        let Some((folder, file)) = path.rsplit_once('/') else { continue };
        if folder.rsplit('/').nth(1) != Some("tests") {
            continue;
        }
        match file.strip_suffix(".rs") {
            Some("main") => {
                let names = text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
                binaries.insert(folder, names.collect());
            }
            Some(name) => suites.push((path, folder, name)),
            None => {}
        }
    }
    suites
        .into_iter()
        .filter(|(_, folder, name)| binaries.get(folder).is_some_and(|names| !names.contains(name)))
        .map(|(path, folder, name)| Finding::new(path, 0, format!("{folder}/main.rs does not say `mod {name};`")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&'static str, &'static str)]) -> Vec<String> {
        check(files.iter().copied()).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_file_that_its_binary_does_not_declare_is_found() {
        let main = ("crates/x/tests/it/main.rs", "mod a;\n#[cfg(foreshore_loom)]\nmod b;\n// mod c;\n");
        let found = messages(&[
            main,
            ("crates/x/tests/it/a.rs", ""),
            ("crates/x/tests/it/b.rs", ""),
            ("crates/x/tests/it/c.rs", ""),
        ]);
        assert_eq!(found, ["crates/x/tests/it/c.rs: crates/x/tests/it/main.rs does not say `mod c;`"]);
    }

    #[test]
    fn binaries_of_one_file_and_what_binaries_share_need_no_declaration() {
        let main = ("crates/x/tests/it/main.rs", "mod a;\n");
        let others =
            [("crates/x/tests/kill.rs", ""), ("crates/x/tests/common/mod.rs", ""), ("crates/x/tests/common/c.rs", "")];
        assert!(messages(&[main, others[0], others[1], others[2]]).is_empty());
        assert!(messages(&[("crates/x/src/tests/c.rs", ""), ("crates/x/src/a.rs", "mod b;\n")]).is_empty());
    }
}
