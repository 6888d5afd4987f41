//! The dependency tables of a Cargo.toml, read line by line: the repository's manifests keep one dependency a line.

/// Which table a dependency stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Part of every build, build scripts included.
    Normal,
    /// Under `cfg(foreshore_loom)` or `cfg(foreshore_shuttle)`: part of model builds only.
    Model,
    /// Tests, benches and examples.
    Dev,
}

pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

pub(crate) struct Manifest {
    pub(crate) path: String,
    pub(crate) dependencies: Vec<Dependency>,
}

impl Manifest {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let mut dependencies = Vec::new();
        let mut table = None;
        for (i, line) in text.lines().enumerate().map(|(i, line)| (i + 1, line.trim())) {
            if let Some(header) = line.strip_prefix('[') {
                let header = header.trim_end_matches(']');
                table = kind(header);
                // `[dependencies.name]` names its dependency in the header.
                if let Some((parent, name)) = header.rsplit_once("dependencies.")
                    && let Some(kind) = kind(&format!("{parent}dependencies"))
                {
                    dependencies.push(Dependency { name: unquoted(name), kind, line: i });
                }
            } else if let Some(kind) = table
                && let Some((key, value)) = line.split_once('=')
                && !line.starts_with('#')
            {
                let renamed = value.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
                let name = renamed.map_or_else(|| unquoted(key.split('.').next().unwrap_or(key)), str::to_owned);
                dependencies.push(Dependency { name, kind, line: i });
            }
        }
        Self { path: path.to_owned(), dependencies }
    }
}

fn unquoted(name: &str) -> String {
    name.trim().trim_matches('"').to_owned()
}

fn kind(header: &str) -> Option<Kind> {
    let last = header.rsplit('.').next()?;
    match last {
        "dev-dependencies" => Some(Kind::Dev),
        "dependencies" | "build-dependencies" if is_model(header) => Some(Kind::Model),
        "dependencies" | "build-dependencies" => Some(Kind::Normal),
        _ => None,
    }
}

fn is_model(header: &str) -> bool {
    ["cfg(foreshore_loom)", "cfg(foreshore_shuttle)"].iter().any(|cfg| header.contains(cfg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_dependency_is_seen() {
        let text = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = \"1\"\nc = { package = \"real\", version = \"1\" }\n\
                    [dev-dependencies]\nd = \"1\"\n[target.'cfg(foreshore_loom)'.dependencies]\nloom.workspace = true\n\
                    [target.'cfg(foreshore_shuttle)'.dependencies]\nshuttle.workspace = true\n\
                    [target.'cfg(unix)'.dependencies]\ne = \"1\"\n[dependencies.f]\nversion = \"1\"\n[build-dependencies]\ng = \"1\"\n";
        let manifest = Manifest::new("crates/x/Cargo.toml", text);
        let seen: Vec<(&str, Kind)> = manifest.dependencies.iter().map(|d| (d.name.as_str(), d.kind)).collect();
        let expected = [
            ("a", Kind::Normal),
            ("b", Kind::Normal),
            ("real", Kind::Normal),
            ("d", Kind::Dev),
            ("loom", Kind::Model),
            ("shuttle", Kind::Model),
            ("e", Kind::Normal),
            ("f", Kind::Normal),
            ("g", Kind::Normal),
        ];
        assert_eq!(seen, expected);
        assert_eq!(manifest.dependencies[0].line, 4);
    }
}
