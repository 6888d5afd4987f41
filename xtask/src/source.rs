//! A Rust file taken apart as far as the rules need: code without comments and literals, comments alone, which lines
//! are tests, where functions begin and end. A lexer, not a parser: positions stay those of the file.

/// A function with a body.
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) lines: usize,
}

/// A Rust file.
pub(crate) struct Source {
    pub(crate) path: String,
    /// The file with comments and the contents of literals blanked.
    pub(crate) code: String,
    comments: Vec<String>,
    test_lines: Vec<bool>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, comments) = split(text);
        let comments: Vec<String> = comments.lines().map(str::to_owned).collect();
        let test_lines = test_lines(path, &code);
        Self { path: path.to_owned(), code, comments, test_lines }
    }

    /// The layer's folder under `crates/` if the file belongs to the engine, or `classics`.
    pub(crate) fn layer(&self) -> Option<&str> {
        let mut folders = self.path.split('/');
        match folders.next()? {
            "crates" => folders.next(),
            "classics" => Some("classics"),
            _ => None,
        }
    }

    /// Lines of code with their numbers, tests left out.
    pub(crate) fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(i, line)| (i + 1, line)).filter(|&(line, _)| !self.is_test(line))
    }

    /// Whether a line, counted from 1, is compiled for tests only.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.test_lines.get(line - 1).copied().unwrap_or(false)
    }

    /// Whether a comment that contains `mark` stands on the line or on one of the `above` lines before it.
    pub(crate) fn has_comment(&self, mark: &str, line: usize, above: usize) -> bool {
        let first = line.saturating_sub(above + 1);
        self.comments.iter().take(line).skip(first).any(|comment| comment.contains(mark))
    }

    /// Lines with their numbers, all but comments blanked, tests included.
    pub(crate) fn comment_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.comments.iter().enumerate().map(|(i, line)| (i + 1, line.as_str()))
    }

    /// Line of a byte of `code`, counted from 1.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.code.as_bytes()[..at].iter().filter(|&&b| b == b'\n').count() + 1
    }

    /// Functions with bodies, tests left out.
    pub(crate) fn functions(&self) -> Vec<Function<'_>> {
        let mut found = Vec::new();
        for at in words(&self.code, "fn") {
            let rest = &self.code[at + 2..];
            let name_at = rest.len() - rest.trim_start().len();
            let name_len = rest[name_at..].bytes().take_while(|&b| is_ident(b)).count();
            let line = self.line_of(at);
            if name_len == 0 || self.is_test(line) {
                continue;
            }
            if let Some((end, true)) = item_end(&self.code, at, b";") {
                let name = &rest[name_at..name_at + name_len];
                found.push(Function { name, line, lines: self.line_of(end) - line + 1 });
            }
        }
        found
    }
}

/// Where `word` stands in `code` as a whole identifier.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).is_none_or(|i| !is_ident(bytes[i]));
        let after = bytes.get(at + word.len()).is_none_or(|&b| !is_ident(b));
        before && after
    })
}

pub(crate) fn is_ident(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Splits a file into code and comments, each as long as the file, what belongs to the other blanked.
fn split(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let mut code: Vec<u8> = bytes.to_vec();
    let mut comments: Vec<u8> = bytes.iter().map(|&b| if b == b'\n' { b } else { b' ' }).collect();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (len, is_comment) = if rest.starts_with(b"//") {
            (rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()), true)
        } else if rest.starts_with(b"/*") {
            (block_comment(rest), true)
        } else if let Some(len) = literal(rest, at.checked_sub(1).map(|i| bytes[i])) {
            (len, false)
        } else {
            at += 1;
            continue;
        };
        for i in at..at + len {
            if is_comment {
                comments[i] = bytes[i];
            }
            if bytes[i] != b'\n' {
                code[i] = b' ';
            }
        }
        at += len;
    }
    // Whole characters were blanked or kept, so both are UTF-8.
    let utf8 = |bytes| String::from_utf8(bytes).expect("whole characters");
    (utf8(code), utf8(comments))
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Length of the string or character literal that `rest` starts with.
fn literal(rest: &[u8], before: Option<u8>) -> Option<usize> {
    match rest[0] {
        b'"' => Some(quoted(rest, b'"')),
        b'\'' if rest.get(1) == Some(&b'\\') => Some(quoted(rest, b'\'')),
        b'\'' => {
            // One character and a quote; everything else is a lifetime.
            let width = (1..=4).find(|&w| rest.get(1 + w).is_none_or(|b| b & 0xC0 != 0x80))?;
            (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
        }
        b'r' | b'b' | b'c' if !before.is_some_and(is_ident) => {
            let prefix = rest.iter().take(2).take_while(|b| matches!(b, b'r' | b'b' | b'c')).count();
            if rest[prefix - 1] != b'r' {
                return None;
            }
            let hashes = rest[prefix..].iter().take_while(|&&b| b == b'#').count();
            if rest.get(prefix + hashes) != Some(&b'"') {
                return None;
            }
            let mut close = vec![b'#'; hashes + 1];
            close[0] = b'"';
            let body = prefix + hashes + 1;
            let end = rest[body..].windows(close.len()).position(|w| w == close);
            Some(end.map_or(rest.len(), |end| body + end + close.len()))
        }
        _ => None,
    }
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The byte that ends the item which begins at `from`, and whether it closes a body. One of `ends` ends an item without
/// a body.
fn item_end(code: &str, from: usize, ends: &[u8]) -> Option<(usize, bool)> {
    let mut depth = 0;
    for (i, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            _ if depth == 0 && ends.contains(&byte) => return Some((i, false)),
            b'{' if depth == 0 => return Some((matching_brace(code, i)?, true)),
            _ => {}
        }
        if depth < 0 {
            return Some((i, false));
        }
    }
    None
}

pub(crate) fn matching_brace(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(i);
        }
    }
    None
}

/// Which lines are compiled for tests and models only.
fn test_lines(path: &str, code: &str) -> Vec<bool> {
    let count = code.lines().count();
    let is_test_folder = |part: &str| matches!(part, "tests" | "tests.rs" | "benches" | "examples" | "fuzz");
    if path.split('/').any(is_test_folder) {
        return vec![true; count];
    }
    let mut lines = vec![false; count];
    for (at, _) in code.match_indices("#[cfg(") {
        let Some(close) = code[at..].find(']').map(|i| at + i) else { continue };
        let condition = &code[at..close];
        if words(condition, "test").next().is_none() || condition.contains("not(test") {
            continue;
        }
        let mut item = close + 1;
        // Further attributes belong to the same item.
        while code[item..].trim_start().starts_with("#[") {
            item = code[item..].find(']').map_or(code.len(), |i| item + i + 1);
        }
        let end = item_end(code, item, b";,").map_or(code.len(), |(end, _)| end);
        let first = code[..at].matches('\n').count();
        let last = code[..end].matches('\n').count();
        lines.iter_mut().take(last + 1).skip(first).for_each(|line| *line = true);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_leave_the_code() {
        let source = Source::new(
            "crates/x/src/lib.rs",
            "let a = \"fn x // no\"; // mark: yes\nlet b = 'a'; /* x /* y */ z */ let c: &'static str = r#\"un\"safe\"#;\n",
        );
        assert!(!source.code.contains("fn"), "{}", source.code);
        assert!(!source.code.contains("yes") && !source.code.contains('z') && !source.code.contains("un"));
        assert!(source.code.contains("&'static str"));
        assert!(source.has_comment("mark: yes", 1, 0));
        assert!(source.has_comment("mark: yes", 2, 1));
        assert!(!source.has_comment("mark: yes", 2, 0));
    }

    #[test]
    fn char_literals_do_not_open_strings() {
        let source = Source::new("a.rs", "let q = '\"'; let e = '\\''; let u = 'ä'; unsafe_here();");
        assert!(source.code.contains("unsafe_here"));
        assert!(!source.code.contains('"'));
    }

    #[test]
    fn cfg_test_items_are_tests_to_their_end() {
        let text = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n#[cfg(not(test))]\nfn d() {}\n";
        let source = Source::new("crates/x/src/lib.rs", text);
        let tests: Vec<usize> = (1..=9).filter(|&line| source.is_test(line)).collect();
        assert_eq!(tests, [2, 3, 4, 5, 6]);
        let names: Vec<&str> = source.functions().iter().map(|f| f.name).collect();
        assert_eq!(names, ["a", "c", "d"]);
    }

    #[test]
    fn test_files_are_tests_throughout() {
        assert!(Source::new("crates/x/tests/a.rs", "fn a() {}").is_test(1));
        assert!(Source::new("crates/x/src/foo/tests.rs", "fn a() {}").is_test(1));
        assert!(!Source::new("crates/x/src/foo.rs", "fn a() {}").is_test(1));
    }

    #[test]
    fn the_engine_and_the_classics_have_layers() {
        let layer = |path| Source::new(path, "").layer().map(str::to_owned);
        assert_eq!(layer("crates/wal/src/lib.rs").as_deref(), Some("wal"));
        assert_eq!(layer("classics/src/log_buffers/faa.rs").as_deref(), Some("classics"));
        assert_eq!(layer("tools/bench/src/lib.rs"), None);
    }

    #[test]
    fn functions_are_measured_from_signature_to_brace() {
        let source = Source::new(
            "a.rs",
            "trait T {\n  fn none(&self) -> [u8; 4];\n}\nfn f<A, B>(\n  x: [u8; 2],\n) {\n  {}\n}\n",
        );
        let functions = source.functions();
        assert_eq!(functions.len(), 1);
        assert_eq!((functions[0].name, functions[0].line, functions[0].lines), ("f", 4, 5));
    }
}
