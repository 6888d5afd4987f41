//! Bytes as text: hex digits, or UTF-8 with escapes. Both can be read back.

/// How bytes are shown and read: those of `bytes` and `[u8;N]`, and rows of types that this program does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Two digits a byte.
    Hex,
    /// UTF-8. A backslash is `\\`, and a byte that belongs to no character is `\xNN`.
    Utf8,
}

impl Form {
    pub(crate) fn show(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => {
                let mut text = String::with_capacity(2 * bytes.len());
                bytes.iter().for_each(|byte| push_hex(*byte, &mut text));
                text
            }
            Self::Utf8 => show_utf8(bytes),
        }
    }

    /// Reads what [`show`](Self::show) returns.
    pub(crate) fn read(self, text: &str) -> Result<Vec<u8>, String> {
        match self {
            Self::Hex => read_hex(text),
            Self::Utf8 => read_utf8(text),
        }
    }
}

fn push_hex(byte: u8, text: &mut String) {
    for half in [byte >> 4, byte & 15] {
        text.push(char::from_digit(half.into(), 16).expect("four bits are a digit"));
    }
}

fn show_utf8(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str("\\x");
            push_hex(*byte, &mut text);
        }
    }
    text
}

fn read_hex(text: &str) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        &[high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    let bytes: Option<_> = text.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| "expected an even number of hex digits".to_owned())
}

fn read_utf8(text: &str) -> Result<Vec<u8>, String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = &rest[at..];
        if let Some(behind) = escape.strip_prefix("\\\\") {
            bytes.push(b'\\');
            rest = behind;
            continue;
        }
        let digits = escape.strip_prefix("\\x").and_then(|digits| digits.get(..2));
        let Some(Ok(byte)) = digits.map(read_hex) else {
            return Err("expected \\\\ or \\xNN behind a backslash".to_owned());
        };
        bytes.extend(byte);
        rest = &escape[4..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}
