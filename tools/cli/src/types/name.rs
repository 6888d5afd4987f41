//! Types, parsed from the names that the catalogue has.

/// Types within types; no program has more.
const MAX_DEPTH: usize = 32;

/// A type whose encoding this program knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Scalar(Scalar),
    Str,
    Bytes,
    /// Of this length.
    Array(usize),
    Option(Box<Type>),
    Reverse(Box<Type>),
    Tuple(Vec<Type>),
}

/// A type of fixed length that is one string or number as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Bool,
    U8,
    U16,
    U32,
    U64,
    U128,
    I8,
    I16,
    I32,
    I64,
    I128,
    F32,
    F64,
    Char,
    Uuid,
    Time,
    Duration,
    Unit,
}

const SCALARS: [(&str, Scalar); 18] = [
    ("bool", Scalar::Bool),
    ("u8", Scalar::U8),
    ("u16", Scalar::U16),
    ("u32", Scalar::U32),
    ("u64", Scalar::U64),
    ("u128", Scalar::U128),
    ("i8", Scalar::I8),
    ("i16", Scalar::I16),
    ("i32", Scalar::I32),
    ("i64", Scalar::I64),
    ("i128", Scalar::I128),
    ("f32", Scalar::F32),
    ("f64", Scalar::F64),
    ("char", Scalar::Char),
    ("uuid", Scalar::Uuid),
    ("time", Scalar::Time),
    ("duration", Scalar::Duration),
    ("unit", Scalar::Unit),
];

impl Type {
    /// Parses a name. `None` if it is, or contains, the name of a type of an application.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let mut rest = name;
        parse(&mut rest, 0).filter(|_| rest.is_empty())
    }

    /// Whether `null` is one of its values as JSON.
    pub(crate) fn may_be_null(&self) -> bool {
        match self {
            Self::Option(_) => true,
            Self::Reverse(inner) => inner.may_be_null(),
            _ => false,
        }
    }
}

/// Parses the type that `name` begins with, and takes it away.
fn parse(name: &mut &str, depth: usize) -> Option<Type> {
    if depth == MAX_DEPTH {
        return None;
    }
    if take(name, "(") {
        let mut parts = vec![parse(name, depth + 1)?];
        while take(name, ",") {
            parts.push(parse(name, depth + 1)?);
        }
        return take(name, ")").then_some(Type::Tuple(parts));
    }
    if take(name, "option<") {
        let inner = Box::new(parse(name, depth + 1)?);
        return take(name, ">").then_some(Type::Option(inner));
    }
    if take(name, "reverse<") {
        let inner = Box::new(parse(name, depth + 1)?);
        return take(name, ">").then_some(Type::Reverse(inner));
    }
    let (own, rest) = name.split_at(name.find([',', ')', '>']).unwrap_or(name.len()));
    *name = rest;
    match own {
        "str" => Some(Type::Str),
        "bytes" => Some(Type::Bytes),
        _ if own.starts_with("[u8;") => {
            let len = own.strip_prefix("[u8;")?.strip_suffix(']')?;
            len.parse().ok().filter(|_| len.bytes().all(|digit| digit.is_ascii_digit())).map(Type::Array)
        }
        _ => SCALARS.iter().find(|(name, _)| *name == own).map(|&(_, scalar)| Type::Scalar(scalar)),
    }
}

fn take(name: &mut &str, prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix);
    *name = rest.unwrap_or(name);
    rest.is_some()
}
