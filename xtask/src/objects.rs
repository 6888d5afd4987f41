//! Objects that a whole crate reaches into, under the ratchet. An object has one job and private fields.
//!
//! | rule | counts |
//! |---|---|
//! | `objects` | structs of more than 12 fields that more than 4 files of the crate name |
//! | `fields` | fields that are `pub(…)`, in structs with an `impl` in another file |
//!
//! A re-export does not count as naming. Two structs of one name in a crate are taken for one.

use crate::{
    modules::{Module, Modules},
    ratchet::Amount,
    source::{Source, is_ident, matching_brace, words},
    tree::Finding,
};
use std::collections::BTreeSet;

const OBJECTS: &str = "objects";
const FIELDS: &str = "fields";

/// Fields of a struct that any number of files may use.
const MANY_FIELDS: usize = 12;
/// Files that may use a struct with more.
const MANY_FILES: usize = 4;

pub(crate) fn amounts(sources: &[Source]) -> Vec<Amount> {
    let (mut objects, mut fields) = (Vec::new(), Vec::new());
    for modules in Modules::of_all(sources) {
        let implementors: Vec<(&str, BTreeSet<&str>)> =
            modules.files().map(|module| (module.source.path.as_str(), implementors(module.source))).collect();
        for module in modules.files() {
            for object in structs(module.source) {
                let place = || modules.place.clone();
                let path = &module.source.path;
                let users = modules.files().filter(|module| names(module, object.name)).count();
                if object.fields > MANY_FIELDS && users > MANY_FILES {
                    let message = format!(
                        "{} has {} fields and is used by {users} files: cut it by job, or let fewer files see it",
                        object.name, object.fields
                    );
                    objects.push((place(), Finding::new(path, object.line, message)));
                }
                let is_foreign = |(file, names): &&(&str, BTreeSet<&str>)| file != path && names.contains(object.name);
                if let Some((file, _)) = implementors.iter().find(is_foreign) {
                    let message = |field: &str| format!("{}::{field} is open, and {file} has an impl", object.name);
                    fields.extend(
                        object.open.iter().map(|&(line, field)| (place(), Finding::new(path, line, message(field)))),
                    );
                }
            }
        }
    }
    [(OBJECTS, objects), (FIELDS, fields)].into_iter().flat_map(|(rule, found)| Amount::by_place(rule, found)).collect()
}

/// A struct with named fields.
struct Struct<'s> {
    name: &'s str,
    line: usize,
    fields: usize,
    /// Line and name of each field that other modules of the crate see.
    open: Vec<(usize, &'s str)>,
}

/// Whether a file uses a name: anywhere but in a re-export.
fn names(module: &Module<'_>, name: &str) -> bool {
    let is_imported = || module.uses.imports.iter().any(|import| import.name == name && !import.is_public);
    module.uses.words.contains(name) || is_imported()
}

fn structs(source: &Source) -> Vec<Struct<'_>> {
    words(&source.code, "struct").filter_map(|at| read_struct(source, at + "struct".len())).collect()
}

fn read_struct(source: &Source, at: usize) -> Option<Struct<'_>> {
    let code = &source.code;
    let line = source.line_of(at);
    let open = body(code, at).filter(|_| !source.is_test(line))?;
    let name = first_ident(&code[at..])?;
    let mut fields = Struct { name, line, fields: 0, open: Vec::new() };
    let mut from = open + 1;
    for end in ends(code, from, matching_brace(code, open)?) {
        let field = without_attributes(&code[from..end]);
        if let Some(first) = first_ident(field).filter(|_| field.contains(':')) {
            fields.fields += 1;
            if first == "pub"
                && let Some((reach, rest)) = field.split_once(')')
                && reach.trim_start().strip_prefix("pub").is_some_and(|reach| reach.trim_start().starts_with('('))
            {
                fields.open.push((source.line_of(end - field.trim_start().len()), first_ident(rest)?));
            }
        }
        from = end + 1;
    }
    Some(fields)
}

/// Where the braces of a struct open; `None` for one with unnamed fields, or none.
fn body(code: &str, at: usize) -> Option<usize> {
    let mut angles = 0;
    let head_end = code[at..].find("where").unwrap_or(usize::MAX);
    for (i, byte) in code[at..].bytes().enumerate() {
        match byte {
            b'<' => angles += 1,
            b'>' if code.as_bytes()[at + i - 1] != b'-' => angles -= 1,
            b'(' if angles == 0 && i < head_end => return None,
            b';' => return None,
            b'{' => return Some(at + i),
            _ => {}
        }
    }
    None
}

/// Where the fields between two bytes end.
fn ends(code: &str, from: usize, close: usize) -> Vec<usize> {
    let mut depth = 0;
    let bytes = code.as_bytes();
    let mut found: Vec<usize> = Vec::new();
    for i in from..close {
        match bytes[i] {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b'>' if bytes[i - 1] == b'-' => {}
            b')' | b']' | b'}' | b'>' => depth -= 1,
            b',' if depth == 0 => found.push(i),
            _ => {}
        }
    }
    found.push(close);
    found
}

fn without_attributes(field: &str) -> &str {
    let mut field = field.trim_start();
    while field.starts_with("#[") {
        let end = field.bytes().scan(0, |depth, byte| {
            *depth += i32::from(byte == b'[') - i32::from(byte == b']');
            Some((*depth, byte))
        });
        let Some(end) = end.skip(1).position(|(depth, byte)| depth == 0 && byte == b']') else { return field };
        field = field[end + 2..].trim_start();
    }
    field
}

/// The names of types that a file has an `impl` of.
fn implementors(source: &Source) -> BTreeSet<&str> {
    let code = &source.code;
    let is_item = |at: &usize| {
        let before = code[..*at].trim_end();
        before.is_empty() || before.ends_with(['}', ';', ']', '{', '!']) || before.ends_with("unsafe")
    };
    let target = |at: usize| {
        let rest = after_generics(&code[at + "impl".len()..]);
        let head = &rest[..rest.find('{')?];
        let head = head.split(" where ").next()?;
        let target = head.split_once(" for ").map_or(head, |(_, target)| target);
        let path = target.trim().trim_start_matches('&').split('<').next()?.trim();
        path.rsplit("::").next().and_then(first_ident)
    };
    words(code, "impl").filter(is_item).filter(|&at| !source.is_test(source.line_of(at))).filter_map(target).collect()
}

fn after_generics(rest: &str) -> &str {
    let trimmed = rest.trim_start();
    if !trimmed.starts_with('<') {
        return trimmed;
    }
    let mut angles = 0;
    for (i, byte) in trimmed.bytes().enumerate() {
        angles += i32::from(byte == b'<');
        angles -= i32::from(byte == b'>' && trimmed.as_bytes()[i - 1] != b'-');
        if angles == 0 {
            return &trimmed[i + 1..];
        }
    }
    trimmed
}

fn first_ident(text: &str) -> Option<&str> {
    let text = &text[text.bytes().position(is_ident)?..];
    Some(&text[..text.bytes().position(|byte| !is_ident(byte)).unwrap_or(text.len())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::tests::sources;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let show = |amount: &Amount| amount.found.iter().map(|f| format!("{}: {f}", amount.rule)).collect::<Vec<_>>();
        amounts(&sources(files)).iter().flat_map(show).collect()
    }

    fn object(fields: usize) -> String {
        let fields: String = (0..fields).map(|i| format!("    f{i}: HashMap<u8, [u8; 2]>,\n")).collect();
        format!("pub(crate) struct Big<T: Fn(u8) -> u8> {{\n{fields}}}\n")
    }

    #[test]
    fn many_fields_in_many_files_are_an_object() {
        let big = object(13);
        let user = "use crate::a::Big;\nfn f(b: &Big) {}";
        let files = [("lib", "pub use a::Big;"), ("a", &big), ("b", user), ("c", user), ("d", user), ("e", user)];
        let found = messages(&files);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("objects: crates/x/src/a.rs:1: Big has 13 fields and is used by 5 files"),
            "{found:?}"
        );
        assert_eq!(messages(&files[..5]), [""; 0], "four files");
        let small = object(12);
        assert_eq!(messages(&[files[0], ("a", &small), files[2], files[3], files[4], files[5]]), [""; 0]);
    }

    #[test]
    fn open_fields_count_where_another_file_has_an_impl() {
        let a = "struct S {\n    a: u8,\n    #[cfg(x)]\n    pub(crate) b: Vec<(u8, u8)>,\n    pub c: u8,\n    pub(super) d: fn(u8) -> u8,\n}\nimpl S {}\n";
        assert_eq!(messages(&[("lib", ""), ("a", a)]), [""; 0]);
        let expected = [(4, "b"), (6, "d")].map(|(line, f)| {
            format!("fields: crates/x/src/a.rs:{line}: S::{f} is open, and crates/x/src/b.rs has an impl")
        });
        assert_eq!(messages(&[("lib", ""), ("a", a), ("b", "impl crate::a::S {}")]), expected);
        assert_eq!(messages(&[("lib", ""), ("a", a), ("b", "impl<'a, T: X<u8>> From<&'a S> for S {}")]), expected);
        assert_eq!(messages(&[("lib", ""), ("a", a), ("b", "impl From<S> for T {}\nfn f(x: impl S) {}")]), [""; 0]);
        assert_eq!(messages(&[("lib", ""), ("a", a), ("b", "#[cfg(test)]\nimpl S {}")]), [""; 0]);
    }

    #[test]
    fn structs_without_named_fields_have_none() {
        let source = Source::new(
            "a.rs",
            "struct A;\nstruct B(pub(crate) u8);\nstruct C<F>(F) where F: Fn(u8);\nstruct D<F> where F: Fn() {\n    f: F,\n}\n",
        );
        let found: Vec<_> = structs(&source).iter().map(|s| (s.name, s.fields)).collect();
        assert_eq!(found, [("D", 1)]);
    }
}
