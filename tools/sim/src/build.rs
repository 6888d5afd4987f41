//! The build of this program in which the engine runs under a scheduler.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the program with `--cfg foreshore_sim`, optimised and with assertions, in a folder of its own, and returns
/// its path.
///
/// # Errors
/// Those of the build.
pub fn build() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = root.join("target/sim");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--profile", "slow-test", "--package", "foreshore-sim", "--bin", "foreshore-sim"])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(&root)
        .env("RUSTFLAGS", "--cfg foreshore_sim")
        .status()
        .map_err(|error| format!("cargo build: {error}"))?;
    if status.success() { Ok(target.join("slow-test/foreshore-sim")) } else { Err("the build has failed".to_owned()) }
}
