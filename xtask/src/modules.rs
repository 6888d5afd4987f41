//! The modules of a crate, a file each, and which of them uses which.
//!
//! A module uses another if it names an item that is defined there: in a `use` of its own, or by a path. Three things
//! are no use:
//!
//! - `mod child;`
//! - a module imported as such: `use crate::child;`
//! - a re-export, `pub use`, of a name that the rest of the file does not mention.
//!
//! A re-exported name counts for the module that defines it. Tests are left out. Calls of methods are not seen: which
//! `impl` they reach depends on types, and a lexer knows none.

use crate::{
    source::Source,
    uses::{Import, Scope, Uses},
};
use std::collections::BTreeMap;

/// One crate, root first, the others by their names.
pub(crate) struct Modules<'s> {
    /// Folder of the crate.
    pub(crate) place: String,
    modules: BTreeMap<Vec<String>, Module<'s>>,
}

pub(crate) struct Module<'s> {
    pub(crate) source: &'s Source,
    pub(crate) uses: Uses,
}

/// One module names what another defines.
pub(crate) struct Edge<'m> {
    pub(crate) from: &'m [String],
    pub(crate) to: &'m [String],
    /// Where, for the first time.
    pub(crate) path: &'m str,
    pub(crate) line: usize,
    /// What.
    pub(crate) name: String,
}

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target<'m> {
    Module,
    Item(&'m [String]),
    Outside,
}

/// Re-exports that a path is followed through; more are taken for a ring of re-exports.
const FOLLOWED: usize = 16;

impl<'s> Modules<'s> {
    /// The crates among files that lie in `src`. A `main.rs` beside a `lib.rs` and programs in `bin` are left out.
    pub(crate) fn of_all(sources: &'s [Source]) -> Vec<Self> {
        let mut crates: BTreeMap<&str, BTreeMap<Vec<String>, &Source>> = BTreeMap::new();
        for source in sources {
            let Some((place, file)) = source.path.split_once("/src/") else { continue };
            let Some(stem) = file.strip_suffix(".rs") else { continue };
            let mut name: Vec<String> = stem.split('/').map(str::to_owned).collect();
            match name.last().map(String::as_str) {
                Some("mod") => drop(name.pop()),
                Some("lib") if name.len() == 1 => name.clear(),
                Some("main") if name.len() == 1 && sources.iter().any(|s| s.path == format!("{place}/src/lib.rs")) => {
                    continue;
                }
                Some("main") if name.len() == 1 => name.clear(),
                _ => {}
            }
            if name.first().is_none_or(|first| first != "bin") {
                crates.entry(place).or_default().insert(name, source);
            }
        }
        let modules = |files: BTreeMap<Vec<String>, &'s Source>| {
            files.into_iter().map(|(name, source)| (name, Module { source, uses: Uses::new(source) })).collect()
        };
        crates.into_iter().map(|(place, files)| Self { place: place.to_owned(), modules: modules(files) }).collect()
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &Module<'s>> {
        self.modules.values()
    }

    /// Which module uses which, each pair once.
    pub(crate) fn edges(&self) -> Vec<Edge<'_>> {
        let mut edges: BTreeMap<(&[String], &[String]), Edge<'_>> = BTreeMap::new();
        for (from, module) in &self.modules {
            let mut add = |target: Target<'_>, scope: &Scope, name: &str| {
                if let Target::Item(to) = target
                    && to != from.as_slice()
                    && let Some((to, _)) = self.modules.get_key_value(to)
                {
                    let (path, line) = (module.source.path.as_str(), scope.line);
                    edges.entry((from, to)).or_insert_with(|| Edge { from, to, path, line, name: name.to_owned() });
                }
            };
            for import in &module.uses.imports {
                let is_use = !import.is_public || module.uses.words.contains(&import.name);
                if let Some(path) = self.absolute(from, &import.path, &import.scope).filter(|_| is_use) {
                    let target = self.resolve(&path, 0);
                    let target = if import.name == "*" { self.glob(&path) } else { target };
                    add(target, &import.scope, &import.name);
                }
            }
            for path in &module.uses.paths {
                if let Some(absolute) = self.absolute(from, &path.path, &path.scope) {
                    add(self.resolve(&absolute, 0), &path.scope, &path.path.join("::"));
                }
            }
        }
        edges.into_values().collect()
    }

    /// The path from the root of the crate; `None` if it leads outside, or begins with a name of the file itself.
    fn absolute(&self, module: &[String], path: &[String], scope: &Scope) -> Option<Vec<String>> {
        let mut base: Vec<String> = module.iter().chain(&scope.inline).cloned().collect();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {}
            first => {
                let is_child = self.modules.contains_key(&[module, &[first.to_owned()]].concat());
                let is_alias = self.modules[module].uses.imports.iter().any(|import| import.name == first);
                if !is_child && !is_alias {
                    return None;
                }
            }
        }
        while rest.first().is_some_and(|first| first == "super") {
            base.pop();
            rest = &rest[1..];
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    /// Follows a path from the root of the crate.
    fn resolve(&self, path: &[String], followed: usize) -> Target<'_> {
        let mut module: &[String] = &[];
        for (at, name) in path.iter().enumerate() {
            let child = [module, std::slice::from_ref(name)].concat();
            if let Some((child, _)) = self.modules.get_key_value(&child) {
                module = child;
                continue;
            }
            let Some(import) = self.import(module, name).filter(|_| followed < FOLLOWED) else {
                return Target::Item(module);
            };
            let Some(mut target) = self.absolute(module, &import.path, &import.scope) else { return Target::Outside };
            if import.name == "*" {
                target.push(name.clone());
            }
            target.extend_from_slice(&path[at + 1..]);
            return self.resolve(&target, followed + 1);
        }
        Target::Module
    }

    /// The declaration that brings a name into a module, if the module does not define it.
    fn import(&self, module: &[String], name: &str) -> Option<&Import> {
        let imports = || self.modules.get(module).into_iter().flat_map(|module| &module.uses.imports);
        let at_top = || imports().filter(|import| import.scope.inline.is_empty());
        let by_glob = |import: &&Import| {
            let target = (import.name == "*").then(|| self.absolute(module, &import.path, &import.scope)).flatten();
            target.and_then(|target| self.modules.get(&target)).is_some_and(|module| module.uses.items.contains(name))
        };
        at_top().find(|import| import.name == name).or_else(|| at_top().filter(|i| i.is_public).find(by_glob))
    }

    /// A glob uses the module that it opens.
    fn glob(&self, path: &[String]) -> Target<'_> {
        self.modules.get_key_value(path).map_or(Target::Outside, |(name, _)| Target::Item(name))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, text)| Source::new(&format!("crates/x/src/{path}.rs"), text)).collect()
    }

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let sources = sources(files);
        let all = Modules::of_all(&sources);
        let show = |edge: &Edge<'_>| format!("{} -> {}", edge.from.join("::"), edge.to.join("::"));
        all.iter().flat_map(|modules| modules.edges().iter().map(show).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn uses_and_paths_are_edges_and_their_order_is_no_matter() {
        let files = [("lib", "mod a;\nmod b;"), ("a", "use crate::b::B;\nfn f(x: crate::b::C) {}"), ("b", "struct B;")];
        assert_eq!(edges(&files), ["a -> b"]);
        assert_eq!(edges(&[("lib", ""), ("a", "fn f() { super::b::g() }"), ("b", "")]), ["a -> b"]);
        assert_eq!(edges(&[("lib", ""), ("a", "use std::b::C;\nuse other::b;"), ("b", "")]), [""; 0]);
    }

    #[test]
    fn a_reexport_counts_for_the_module_that_defines_the_name() {
        let lib = ("lib", "mod a;\nmod b;\nmod c;\npub use b::B;\npub(crate) use c::*;");
        let files = [lib, ("a", "use crate::{B, C as D};"), ("b", "pub struct B;"), ("c", "pub struct C;")];
        assert_eq!(edges(&files), ["a -> b", "a -> c"]);
        let twice = [("lib", "pub use b::B;"), ("a", "fn f(b: crate::B) {}"), ("b/mod", "pub use c::B;"), ("b/c", "")];
        assert_eq!(edges(&twice), ["a -> b::c"]);
        let ring = [("lib", "pub use a::X;"), ("a", "pub use crate::X;\nfn f(x: X) {}")];
        assert!(edges(&ring).len() <= 1);
    }

    #[test]
    fn a_parent_uses_its_child_only_by_its_names() {
        let child = ("p/c", "pub struct C;");
        assert_eq!(edges(&[("lib", ""), ("p/mod", "mod c;\npub use c::C;"), child]), [""; 0]);
        assert_eq!(edges(&[("lib", ""), ("p/mod", "mod c;\npub use c::C;\nfn f(c: C) {}"), child]), ["p -> p::c"]);
        assert_eq!(edges(&[("lib", ""), ("p", "mod c;\nfn f() { c::g() }"), child]), ["p -> p::c"]);
        assert_eq!(edges(&[("lib", ""), ("p", "mod c;"), ("p/c", "use super::P;")]), ["p::c -> p"]);
    }

    #[test]
    fn a_module_brought_in_by_name_is_used_where_its_names_are() {
        let files = [("lib", ""), ("a", "use crate::b;\nfn f() { b::g() }"), ("b/mod", "pub use c::g;"), ("b/c", "")];
        assert_eq!(edges(&files), ["a -> b::c"]);
        assert_eq!(edges(&[("lib", ""), ("a", "use crate::b;"), ("b", "")]), [""; 0]);
    }

    #[test]
    fn inline_modules_belong_to_their_file() {
        let inline = ("a", "mod i {\n use super::X;\n use super::super::b::B;\n}");
        assert_eq!(edges(&[("lib", ""), inline, ("b", "")]), ["a -> b"]);
    }

    #[test]
    fn tests_and_programs_beside_a_library_are_left_out() {
        let files =
            [("lib", ""), ("main", "use a::X;"), ("bin/p", "use crate::a;"), ("a", ""), ("a/tests", "use super::X;")];
        assert_eq!(edges(&files), [""; 0]);
        assert_eq!(edges(&[("main", "mod a;\nfn main() { a::f() }"), ("a", "")]), [" -> a"]);
    }
}
