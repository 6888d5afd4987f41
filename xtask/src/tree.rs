//! The files of the repository, as git sees them.

use crate::{manifest::Manifest, source::Source};
use std::{collections::BTreeMap, fmt, path::PathBuf, process::Command};

/// One broken rule, at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) file: String,
    /// Counted from 1; 0 for the file as a whole.
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}: {}", self.file, self.message),
        }
    }
}

/// Text of every file that git tracks or would add, by path from the root. Files that are not UTF-8 are left out.
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    pub(crate) fn root() -> PathBuf {
        let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        root.pop();
        root
    }

    pub(crate) fn read() -> Result<Self, String> {
        let root = Self::root();
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&root)
            .output()
            .map_err(|e| format!("git ls-files did not start: {e}"))?;
        if !listing.status.success() {
            return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&listing.stderr)));
        }
        let names = String::from_utf8(listing.stdout).map_err(|e| format!("a file name is not UTF-8: {e}"))?;
        let mut files = BTreeMap::new();
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            // A tracked file that was removed from the work tree cannot be read; git reports that, not tidy.
            if let Ok(bytes) = std::fs::read(root.join(name))
                && let Ok(text) = String::from_utf8(bytes)
            {
                files.insert(name.to_owned(), text);
            }
        }
        Ok(Self { files })
    }

    /// Text of a file, empty if there is none.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.files.get(path).map_or("", String::as_str)
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(crate) fn sources(&self) -> Vec<Source> {
        self.texts().filter(|(path, _)| path.ends_with(".rs")).map(|(path, text)| Source::new(path, text)).collect()
    }

    pub(crate) fn manifests(&self) -> Vec<Manifest> {
        self.texts()
            .filter(|(path, _)| path.ends_with("/Cargo.toml"))
            .map(|(path, text)| Manifest::new(path, text))
            .collect()
    }

    /// The on-disk formats: path and text of each file of the engine that defines bytes.
    pub(crate) fn formats(&self) -> Vec<(&str, &str)> {
        self.texts().filter(|(path, _)| is_format(path)).collect()
    }

    /// Writes a file if its text differs.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<(), String> {
        if self.text(path) == text {
            return Ok(());
        }
        println!("writing {path}");
        std::fs::write(Self::root().join(path), text).map_err(|e| format!("{path}: {e}"))
    }
}

/// Whether a file defines bytes on disk: by its name, or by that of its folder.
fn is_format(path: &str) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else { return false };
    let folder = folder.rsplit('/').next().unwrap_or_default();
    let is_named = ["format.rs", "record.rs", "kinds.rs", "key.rs", "codec.rs", "image.rs"].contains(&name)
        || name.ends_with("_record.rs")
        || ["format", "record", "key"].contains(&folder);
    // The records of `io` are those of its simulated disk.
    let is_engine = path.starts_with("crates/") && path.contains("/src/") && !path.starts_with("crates/io/");
    is_engine && is_named && name != "tests.rs"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_define_bytes_are_told_from_others() {
        for path in ["crates/a/src/format.rs", "crates/a/src/key/b.rs", "crates/a/src/b_record.rs"] {
            assert!(is_format(path), "{path}");
        }
        for path in ["crates/a/src/format/tests.rs", "crates/io/src/sim/record.rs", "tools/a/src/format.rs", "a.rs"] {
            assert!(!is_format(path), "{path}");
        }
    }
}
