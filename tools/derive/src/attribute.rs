//! The attribute `#[foreshore(name = "…")]`.

use syn::spanned::Spanned;
use syn::{DeriveInput, Error, LitStr, Result};

/// Names of the types of foreshore.
const TAKEN: [&str; 22] = [
    "u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "f32", "f64", "bool", "char", "str", "bytes",
    "uuid", "time", "duration", "option", "reverse", "unit",
];

/// Returns the name that tables store.
pub(crate) fn name(input: &DeriveInput) -> Result<String> {
    let mut name: Option<LitStr> = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("foreshore")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("the attribute is `#[foreshore(name = \"…\")]`"));
            }
            if name.is_some() {
                return Err(meta.error("the name is given twice"));
            }
            name = Some(meta.value()?.parse()?);
            Ok(())
        })?;
    }
    let Some(literal) = name else {
        let why = "a type of a table needs a name that never changes: `#[foreshore(name = \"…\")]`";
        return Err(Error::new(input.ident.span(), why));
    };
    let name = literal.value();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || " -_.:".contains(c);
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(is_allowed) {
        let why = "a name begins with a letter and has letters, digits, spaces and `-_.:`";
        return Err(Error::new(literal.span(), why));
    }
    if TAKEN.contains(&name.as_str()) {
        return Err(Error::new(literal.span(), format!("`{name}` is the name of a type of foreshore")));
    }
    Ok(name)
}

/// Refuses generic types: their names would have to name their parameters.
pub(crate) fn refuse_generics(input: &DeriveInput) -> Result<()> {
    if input.generics.params.is_empty() {
        return Ok(());
    }
    Err(Error::new(input.generics.span(), "a derived type of a table has no generic parameters"))
}
