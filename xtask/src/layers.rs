//! Layer edges: a layer is a crate, and arrows only point down.

use crate::{
    manifest::{Kind, Manifest},
    tree::Finding,
};

/// Folder under `crates/` and the layers it may use besides `base` and `sync`, lowest first. A new edge is a decision:
/// its commit says why. The last row is the folder `classics` beside `crates/`: only tests of the engine may use it.
const LAYERS: [(&str, &[&str]); 12] = [
    ("base", &[]),
    ("sync", &[]),
    ("io", &[]),
    ("wal", &["io"]),
    ("lock", &[]),
    ("buffer", &["io", "wal"]),
    ("space", &["io", "buffer", "wal"]),
    ("txn", &["io", "wal", "buffer", "lock"]),
    ("btree", &["wal", "buffer", "space", "lock", "txn"]),
    ("recovery", &["io", "wal", "buffer", "space", "txn"]),
    ("db", &["io", "wal", "lock", "buffer", "space", "txn", "btree", "recovery"]),
    (CLASSICS, &["io", "wal", "lock", "buffer", "space", "txn"]),
];

/// The published designs that the engine's own are compared with.
const CLASSICS: &str = "classics";

/// Crates from outside that the engine may build on. `tracing` is optional, and off by default.
const OUTSIDE: [&str; 5] = ["crc32c", "crossbeam-utils", "io-uring", "rustix", "tracing"];

pub(crate) fn check(manifests: &[Manifest]) -> Vec<Finding> {
    manifests.iter().flat_map(check_one).collect()
}

fn check_one(manifest: &Manifest) -> Vec<Finding> {
    let Some(folder) = folder(&manifest.path) else {
        return Vec::new();
    };
    let Some(own) = position(folder) else {
        return vec![Finding::new(&manifest.path, 0, format!("layer {folder} is not in the table of layers"))];
    };
    let mut findings = Vec::new();
    for dependency in &manifest.dependencies {
        let complain = match (layer_of(&dependency.name), dependency.kind) {
            (Some(CLASSICS), Kind::Dev) => None,
            (Some(layer), Kind::Dev) => (position(layer).is_none_or(|at| at >= own))
                .then(|| format!("tests of {folder} use {layer}, which lies above it")),
            (Some(layer), _) => {
                (!allowed(own, layer)).then(|| format!("edge {folder} -> {layer} is not in the table of layers"))
            }
            (None, Kind::Dev) => None,
            (None, Kind::Model) => {
                let checks = ["loom", "shuttle"].contains(&dependency.name.as_str());
                (!checks).then(|| format!("{folder} may use loom and shuttle in models, not {}", dependency.name))
            }
            (None, Kind::Normal) => (!OUTSIDE.contains(&dependency.name.as_str()))
                .then(|| format!("{folder} may not depend on {}", dependency.name)),
        };
        findings.extend(complain.map(|message| Finding::new(&manifest.path, dependency.line, message)));
    }
    findings
}

/// The layer that a manifest belongs to; `None` of a tool.
fn folder(path: &str) -> Option<&str> {
    let folder = path.strip_suffix("/Cargo.toml")?;
    if folder == CLASSICS { Some(folder) } else { folder.strip_prefix("crates/") }
}

fn position(layer: &str) -> Option<usize> {
    LAYERS.iter().position(|&(name, _)| name == layer)
}

/// The layer of a package of this workspace. Tools count as layers that the engine may not use.
fn layer_of(package: &str) -> Option<&str> {
    if package == "foreshore" { Some("db") } else { package.strip_prefix("foreshore-") }
}

fn allowed(own: usize, layer: &str) -> bool {
    let (name, uses) = LAYERS[own];
    let below_all = layer == "base" && name != "base" || layer == "sync" && !matches!(name, "base" | "sync");
    below_all || uses.contains(&layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(folder: &str, text: &str) -> Vec<String> {
        check(&[Manifest::new(&format!("crates/{folder}/Cargo.toml"), text)])
            .iter()
            .map(|finding| finding.message.clone())
            .collect()
    }

    #[test]
    fn the_table_points_down() {
        for (own, (name, uses)) in LAYERS.iter().enumerate() {
            assert!(uses.iter().all(|used| position(used).is_some_and(|at| at < own)), "{name}");
        }
    }

    #[test]
    fn an_edge_outside_the_table_is_found() {
        assert!(messages("wal", "[dependencies]\nforeshore-io.workspace = true\n").is_empty());
        let found = messages("lock", "[dependencies]\nforeshore-wal.workspace = true\n");
        assert_eq!(found, ["edge lock -> wal is not in the table of layers"]);
        assert_eq!(messages("base", "[dependencies]\nforeshore-sync = {}\n").len(), 1);
        assert_eq!(messages("wal", "[dependencies]\nforeshore-bench = {}\n").len(), 1);
        assert_eq!(messages("db", "[dependencies]\nforeshore-base = {}\nforeshore-recovery = {}\n").len(), 0);
    }

    #[test]
    fn a_crate_from_outside_is_found() {
        assert_eq!(messages("wal", "[dependencies]\ntokio = \"1\"\n"), ["wal may not depend on tokio"]);
        assert!(messages("wal", "[dev-dependencies]\nproptest = \"1\"\n").is_empty());
        assert!(messages("sync", "[target.'cfg(foreshore_loom)'.dependencies]\nloom = \"0\"\n").is_empty());
        assert!(messages("sync", "[target.'cfg(foreshore_shuttle)'.dependencies]\nshuttle = \"0\"\n").is_empty());
        assert_eq!(messages("sync", "[target.'cfg(foreshore_shuttle)'.dependencies]\ntokio = \"0\"\n").len(), 1);
        assert_eq!(messages("sync", "[dependencies]\nloom = \"0\"\n").len(), 1);
    }

    #[test]
    fn tests_do_not_reach_up_either() {
        assert!(messages("txn", "[dev-dependencies]\nforeshore-classics = {}\n").is_empty());
        assert_eq!(messages("txn", "[dependencies]\nforeshore-classics = {}\n").len(), 1);
        assert_eq!(messages("wal", "[dev-dependencies]\nforeshore-buffer = {}\n").len(), 1);
        assert!(messages("recovery", "[dev-dependencies]\nforeshore-btree = {}\n").is_empty());
    }

    #[test]
    fn only_tests_use_the_classics() {
        assert!(messages("wal", "[dev-dependencies]\nforeshore-classics = {}\n").is_empty());
        let found = messages("wal", "[dependencies]\nforeshore-classics = {}\n");
        assert_eq!(found, ["edge wal -> classics is not in the table of layers"]);
        let classics = |text| check(&[Manifest::new("classics/Cargo.toml", text)]).len();
        assert_eq!(classics("[dependencies]\nforeshore-wal = {}\nforeshore-sync = {}\n"), 0);
        assert_eq!(classics("[dependencies]\nforeshore = {}\n"), 1);
        assert_eq!(classics("[dependencies]\ntokio = \"1\"\n"), 1);
        let tool = Manifest::new("tools/bench/Cargo.toml", "[dependencies]\nforeshore-classics = {}\n");
        assert!(check(&[tool]).is_empty());
    }

    #[test]
    fn an_unknown_layer_is_found() {
        assert_eq!(messages("misc", ""), ["layer misc is not in the table of layers"]);
    }
}
