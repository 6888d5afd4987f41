//! Words of a line, quoted as in a POSIX shell.

/// Splits a line into words at blanks.
///
/// Within `'…'` every character stands for itself. Within `"…"` a backslash before `"` or `\` does not. Outside, a
/// backslash makes the next character stand for itself, and a word that begins with `#` begins a comment.
pub(super) fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut rest = line.chars();
    // The word that is open. A pair of quotes is an empty one.
    let mut word: Option<String> = None;
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\r' => words.extend(word.take()),
            '#' if word.is_none() => break,
            '\'' | '"' => quoted(c, &mut rest, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(rest.next().ok_or("the line ends with a backslash")?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Reads up to the quote that closes.
fn quoted(quote: char, rest: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), &'static str> {
    while let Some(c) = rest.next() {
        match c {
            c if c == quote => return Ok(()),
            '\\' if quote == '"' => {
                let next = rest.next().ok_or("a quote is not closed")?;
                if !"\"\\".contains(next) {
                    word.push('\\');
                }
                word.push(next);
            }
            c => word.push(c),
        }
    }
    Err("a quote is not closed")
}

/// Writes a word so that [`split`] returns it.
pub(super) fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-.:/,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_posix_shell_does() {
        for (line, words) in [
            ("", &[][..]),
            ("  get\taccounts  7 ", &["get", "accounts", "7"]),
            ("put names Ada 'Countess of'", &["put", "names", "Ada", "Countess of"]),
            (r#"get pairs '[7, "x"]'"#, &["get", "pairs", r#"[7, "x"]"#]),
            (r#"a "b \" \\ \x" c\ d"#, &["a", r#"b " \ \x"#, "c d"]),
            ("x''y '' \"\"", &["xy", "", ""]),
            ("count t # how many", &["count", "t"]),
            ("get t a#b", &["get", "t", "a#b"]),
            ("'é\\' ", &["é\\"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
    }

    #[test]
    fn a_line_that_does_not_close_its_quotes_is_refused() {
        for line in ["'a", "\"a", "a 'b c", "\"a\\", "a\\"] {
            assert!(split(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_quoted_word_is_read_back() {
        for word in ["accounts", "", "two words", "it's", "a\\b", "\"x\"", "#", "é"] {
            assert_eq!(split(&quote(word)).unwrap(), [word]);
        }
        assert_eq!(quote("accounts"), "accounts");
    }
}
