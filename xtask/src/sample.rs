//! `cargo xtask sample`: files for a reader, drawn by a seed.

use crate::tree::Tree;

/// Files that are drawn unless the caller says how many.
const COUNT: usize = 8;

/// Prints the files that a seed draws.
///
/// # Errors
/// If the arguments are not `--seed TEXT [--count N]`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let (seed, count) = match arguments {
        ["--seed", seed] => (*seed, COUNT),
        ["--seed", seed, "--count", count] => {
            (*seed, count.parse().map_err(|_| format!("--count takes a number, not `{count}`"))?)
        }
        _ => return Err("usage: cargo xtask sample --seed TEXT [--count N]".to_owned()),
    };
    let tree = Tree::read()?;
    for path in drawn(tree.texts().map(|(path, _)| path), seed, count) {
        println!("{path}");
    }
    Ok(())
}

/// The Rust files of the engine that come first in the order of the seed.
fn drawn<'t>(paths: impl Iterator<Item = &'t str>, seed: &str, count: usize) -> Vec<&'t str> {
    let mut files: Vec<&str> = paths.filter(|path| path.starts_with("crates/") && path.ends_with(".rs")).collect();
    files.sort_by_key(|path| rank(seed, path));
    files.truncate(count);
    files
}

/// FNV-1a of seed and path, finished by splitmix64: paths that differ in one letter lie far apart.
fn rank(seed: &str, path: &str) -> u64 {
    let bytes = seed.bytes().chain([0]).chain(path.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_files_whatever_their_order() {
        let paths: Vec<String> = (0..100).map(|i| format!("crates/x/src/f{i}.rs")).collect();
        let draw = |seed: &str| drawn(paths.iter().map(String::as_str), seed, 8);
        assert_eq!(draw("a"), drawn(paths.iter().rev().map(String::as_str), "a", 8));
        assert_ne!(draw("a"), draw("b"));
        assert_eq!(draw("a").len(), 8);
    }

    #[test]
    fn each_file_has_its_chance() {
        let paths: Vec<String> = (0..20).map(|i| format!("crates/x/src/f{i}.rs")).collect();
        let mut hits = [0; 20];
        for seed in 0..1000 {
            for path in drawn(paths.iter().map(String::as_str), &seed.to_string(), 5) {
                hits[paths.iter().position(|p| p == path).expect("a path of the list")] += 1;
            }
        }
        assert!(hits.iter().all(|&hits| (180..320).contains(&hits)), "{hits:?}");
    }

    #[test]
    fn only_sources_of_the_engine_are_drawn() {
        let paths = ["crates/x/Cargo.toml", "tools/y/src/a.rs", "crates/x/tests/it/a.rs"];
        assert_eq!(drawn(paths.into_iter(), "a", 8), ["crates/x/tests/it/a.rs"]);
    }
}
