//! Values of tables of [`foreshore`] by serde: [`Postcard`], which is compact, and [`Json`], which other programs read.
//!
//! ```
//! use foreshore::{Error, Options, TableDef};
//! use foreshore_serde::{Json, Postcard, Stored};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
//! struct User {
//!     name: String,
//!     roles: Vec<String>,
//! }
//!
//! impl Stored for User {
//!     const NAME: &str = "user";
//! }
//!
//! const USERS: TableDef<u64, Postcard<User>> = TableDef::new("users");
//! const EXPORTED: TableDef<u64, Json<User>> = TableDef::new("exported users");
//!
//! let db = Options::in_memory().open("users")?;
//! let ada = User { name: "Ada".into(), roles: vec!["author".into()] };
//! db.run(|tx| {
//!     tx.open(USERS)?.insert(1, &ada)?;
//!     tx.open(EXPORTED)?.insert(1, &ada)
//! })?;
//! let reader = db.read();
//! assert_eq!(reader.open(USERS)?.get(1)?, Some(ada));
//! let json = reader.open(EXPORTED)?.get_with(1, |bytes| bytes.to_vec())?;
//! assert_eq!(json.as_deref(), Some(&br#"{"name":"Ada","roles":["author"]}"#[..]));
//! # Ok::<(), Error>(())
//! ```
//!
//! Serde keeps no order, so such types are no keys. Keys come from `foreshore-derive`.
//!
//! **A changed type.** Postcard stores fields without their names: any change of them is another type, and needs
//! another [`Stored::NAME`]. JSON stores the names: a field may be added if it has `#[serde(default)]`, and removed.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

use foreshore::Value;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;
use std::marker::PhantomData;

/// A type that tables hold by serde.
pub trait Stored: Serialize + DeserializeOwned + Clone + Debug + Send + 'static {
    /// The name that tables store. It never changes for a type.
    const NAME: &str;
}

/// A value of type `T` in the format of the crate `postcard`: fields in their order, without names.
///
/// `T` must not depend on names or on what bytes tell about themselves. So it must not use the attributes
/// `skip_serializing_if`, `untagged`, `tag` and `flatten` of serde: such a value does not come back.
///
/// # Panics
/// Writes panic if `T` refuses to be serialized, or has a sequence or map whose length it does not tell. With debug
/// assertions they also panic if what they have encoded does not decode.
#[derive(Debug)]
pub struct Postcard<T>(PhantomData<fn() -> T>);

/// A value of type `T` as JSON.
///
/// JSON has no NaN and no infinite numbers. Such a float is written as `null`, which does not decode as a float. In an
/// option it decodes as `None`. An `untagged` enum decodes as the first variant that fits, which may be another one.
///
/// # Panics
/// Writes panic if `T` refuses to be serialized, or has a map whose keys are not strings, numbers or variants. With
/// debug assertions they also panic if what they have encoded does not decode.
#[derive(Debug)]
pub struct Json<T>(PhantomData<fn() -> T>);

/// Implements `Value` for a type that wraps a serialized one.
macro_rules! value {
    ($format:ident, $name:literal, $encode:expr, $decode:expr) => {
        impl<T: Stored> Value for $format<T> {
            type Ref<'a> = &'a T;
            type Owned = T;

            fn type_name() -> String {
                format!(concat!($name, "<{}>"), T::NAME)
            }

            fn to_ref(owned: &T) -> &T {
                owned
            }

            fn encode(value: &&T, out: &mut Vec<u8>) {
                let start = out.len();
                $encode(*value, out).unwrap_or_else(|error| {
                    panic!("a value of type {} does not serialize as {}: {error}", T::NAME, $name)
                });
                if cfg!(debug_assertions)
                    && let Err(error) = $decode(&out[start..]) as Result<T, _>
                {
                    panic!("a value of type {} is written as {} and does not decode: {error}", T::NAME, $name);
                }
            }

            fn decode(bytes: &[u8]) -> Option<T> {
                $decode(bytes).ok()
            }
        }
    };
}

value!(
    Postcard,
    "postcard",
    |value, out: &mut Vec<u8>| postcard::to_extend(value, std::mem::take(out)).map(|extended| *out = extended),
    whole_postcard
);
value!(Json, "json", |value, out: &mut Vec<u8>| serde_json::to_writer(out, value), serde_json::from_slice);

/// Decodes bytes that have nothing behind the value.
fn whole_postcard<T: Stored>(bytes: &[u8]) -> Result<T, postcard::Error> {
    match postcard::take_from_bytes(bytes)? {
        (value, []) => Ok(value),
        _ => Err(postcard::Error::DeserializeUnexpectedEnd),
    }
}
