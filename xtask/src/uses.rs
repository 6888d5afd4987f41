//! What a file names of its crate: the trees of its `use` declarations, flattened, and the paths in its code.

use crate::source::{Source, is_ident};
use std::collections::BTreeSet;

/// One name that a `use` brings in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Import {
    /// The path as it is written, without a glob's `*`.
    pub(crate) path: Vec<String>,
    /// The name it has here; `*` for a glob.
    pub(crate) name: String,
    /// Whether other modules see it too.
    pub(crate) is_public: bool,
    pub(crate) scope: Scope,
}

/// A path of several names in the code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) path: Vec<String>,
    pub(crate) scope: Scope,
}

/// Where a path is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Counted from 1.
    pub(crate) line: usize,
    /// The modules that the file opens around it by `mod name { … }`.
    pub(crate) inline: Vec<String>,
}

/// The names of a file, tests left out.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    pub(crate) imports: Vec<Import>,
    pub(crate) paths: Vec<Path>,
    /// Every identifier outside of `use` declarations.
    pub(crate) words: BTreeSet<String>,
    /// Names of the items that the file defines, at any depth.
    pub(crate) items: BTreeSet<String>,
}

/// What an item begins with.
const KINDS: [&str; 8] = ["struct", "enum", "trait", "fn", "type", "const", "static", "union"];

impl Uses {
    pub(crate) fn new(source: &Source) -> Self {
        let mut reader = Reader { tokens: tokens(source), at: 0, depth: 0, inline: Vec::new(), uses: Self::default() };
        reader.read();
        reader.uses
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    /// `::`.
    Into,
    Symbol(u8),
}

fn tokens(source: &Source) -> Vec<(Token<'_>, usize)> {
    let mut found = Vec::new();
    for (line, text) in source.product_lines() {
        let mut at = 0;
        while let Some(&byte) = text.as_bytes().get(at) {
            let (token, len) = if is_ident(byte) {
                let len = text[at..].bytes().take_while(|&byte| is_ident(byte)).count();
                (Token::Word(&text[at..at + len]), len)
            } else if text[at..].starts_with("::") {
                (Token::Into, 2)
            } else {
                (Token::Symbol(byte), 1)
            };
            if token != Token::Symbol(b' ') {
                found.push((token, line));
            }
            at += len;
        }
    }
    found
}

struct Reader<'a> {
    tokens: Vec<(Token<'a>, usize)>,
    at: usize,
    /// Open braces.
    depth: usize,
    /// Names of the inline modules around `at`, each with the depth outside of it.
    inline: Vec<(&'a str, usize)>,
    uses: Uses,
}

impl<'a> Reader<'a> {
    fn peek(&self, ahead: usize) -> Option<Token<'a>> {
        self.tokens.get(self.at + ahead).map(|&(token, _)| token)
    }

    fn scope(&self) -> Scope {
        let line = self.tokens.get(self.at).map_or(0, |&(_, line)| line);
        Scope { line, inline: self.inline.iter().map(|&(name, _)| name.to_owned()).collect() }
    }

    fn read(&mut self) {
        while let Some(token) = self.peek(0) {
            match token {
                Token::Symbol(b'{') => self.depth += 1,
                Token::Symbol(b'}') => {
                    self.depth = self.depth.saturating_sub(1);
                    self.inline.pop_if(|&mut (_, outside)| outside == self.depth);
                }
                Token::Word("mod") => {
                    if let (Some(Token::Word(name)), Some(Token::Symbol(b'{'))) = (self.peek(1), self.peek(2)) {
                        self.inline.push((name, self.depth));
                    }
                    // The name of a declaration is no use of it.
                    self.at += 1;
                }
                // `use<…>` is a bound of `impl Trait`.
                Token::Word("use") if self.peek(1) != Some(Token::Symbol(b'<')) => {
                    let is_public = self.is_public();
                    self.at += 1;
                    self.tree(&[], is_public);
                }
                Token::Word(word) => self.word(word),
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Whether the item at the cursor has a `pub` before it, of any reach.
    fn is_public(&self) -> bool {
        let mut before = self.tokens[..self.at].iter().rev().map(|&(token, _)| token);
        match before.next() {
            Some(Token::Word("pub")) => true,
            Some(Token::Symbol(b')')) => {
                let mut rest = before.skip_while(|&token| token != Token::Symbol(b'(')).skip(1);
                rest.next() == Some(Token::Word("pub"))
            }
            _ => false,
        }
    }

    /// Takes a tree of a `use`, and stops at what ends it: `,`, `}` or `;`.
    fn tree(&mut self, prefix: &[String], is_public: bool) {
        let mut path = prefix.to_vec();
        let mut name = None;
        while let Some(token) = self.peek(0) {
            match token {
                Token::Word("as") => {
                    self.at += 1;
                    if let Some(Token::Word(alias)) = self.peek(0) {
                        name = Some(alias.to_owned());
                    }
                }
                // `use a::{self}` brings in `a`.
                Token::Word("self") if !path.is_empty() => {}
                Token::Word(word) => path.push(word.to_owned()),
                Token::Symbol(b'*') => name = Some("*".to_owned()),
                Token::Symbol(b'{') => {
                    self.at += 1;
                    while self.peek(0).is_some_and(|token| token != Token::Symbol(b'}')) {
                        self.tree(&path, is_public);
                        self.at += usize::from(self.peek(0) == Some(Token::Symbol(b',')));
                    }
                    self.at += 1;
                    return;
                }
                Token::Symbol(b',' | b'}' | b';') => break,
                _ => {}
            }
            self.at += 1;
        }
        if let Some(last) = path.last() {
            let name = name.unwrap_or_else(|| last.clone());
            self.uses.imports.push(Import { path, name, is_public, scope: self.scope() });
        }
    }

    fn word(&mut self, word: &str) {
        let scope = self.scope();
        let before = self.at.checked_sub(1).map(|at| self.tokens[at].0);
        let is_inside = matches!(before, Some(Token::Into | Token::Symbol(b'.')));
        if matches!(before, Some(Token::Word(kind)) if KINDS.contains(&kind)) {
            self.uses.items.insert(word.to_owned());
        }
        let mut path = vec![word.to_owned()];
        self.uses.words.insert(word.to_owned());
        while let (Some(Token::Into), Some(Token::Word(next))) = (self.peek(1), self.peek(2)) {
            path.push(next.to_owned());
            self.at += 2;
        }
        if path.len() > 1 && !is_inside {
            self.uses.paths.push(Path { path, scope });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(text: &str) -> Uses {
        Uses::new(&Source::new("crates/x/src/a.rs", text))
    }

    fn imports(text: &str) -> Vec<String> {
        let show = |import: &Import| {
            let public = if import.is_public { "pub " } else { "" };
            format!("{public}{} as {}", import.path.join("::"), import.name)
        };
        uses(text).imports.iter().map(show).collect()
    }

    #[test]
    fn trees_are_flattened() {
        let text = "use crate::{\n    a::{self, B as C, d::*},\n    e,\n};\nuse std::fmt;\npub(in crate::a) use super::f::g;\npub use h;";
        let expected = [
            "crate::a as a",
            "crate::a::B as C",
            "crate::a::d as *",
            "crate::e as e",
            "std::fmt as fmt",
            "pub super::f::g as g",
            "pub h as h",
        ];
        assert_eq!(imports(text), expected);
        assert!(imports("fn f() -> impl Fn() + use<'a> {}").is_empty());
    }

    #[test]
    fn paths_are_whole_and_know_their_place() {
        let found = uses(
            "fn f(x: crate::a::B) {}\nmod inner {\n    fn g() { super::h(self.k::<u8>()); }\n}\nfn i() { C::new() }\n",
        );
        let paths: Vec<_> =
            found.paths.iter().map(|p| (p.path.join("::"), p.scope.line, p.scope.inline.join("::"))).collect();
        let expected = [("crate::a::B", 1, ""), ("super::h", 3, "inner"), ("C::new", 5, "")];
        assert_eq!(paths, expected.map(|(path, line, inline)| (path.to_owned(), line, inline.to_owned())));
        assert!(found.words.contains("g") && !found.words.contains("inner"));
        assert_eq!(found.items.iter().map(String::as_str).collect::<Vec<_>>(), ["f", "g", "i"]);
    }

    #[test]
    fn tests_use_nothing() {
        let found = uses("#[cfg(test)]\nmod tests {\n    use super::*;\n    fn f() { crate::a::b(); }\n}\n");
        assert!(found.imports.is_empty() && found.paths.is_empty() && found.words.is_empty());
    }
}
