//! Types of keys and values by the names that the catalogue has, and their encodings as JSON.
//!
//! | type | JSON |
//! |---|---|
//! | integers up to 64 bits, `f32`, `f64` | number; NaN and infinities: `"NaN"`, `"inf"`, `"-inf"` |
//! | `u128`, `i128` | string of digits |
//! | `bool` | `true`, `false` |
//! | `char`, `str` | string |
//! | `bytes`, `[u8;N]` | string: hex digits, or text with escapes (see [`Form`]) |
//! | `uuid` | string: `01234567-89ab-cdef-0123-456789abcdef` |
//! | `time`, `duration` | string: seconds with nine decimals, since 1970 |
//! | `option<T>` | `null`, or the JSON of `T`; if that may be `null` too, `{"some": …}` |
//! | `reverse<T>` | the JSON of `T` |
//! | tuples | array |
//! | `unit` | `[]` |
//! | any other | as `bytes`: the encoding |

mod cells;
mod decode;
mod encode;
mod form;
mod name;
mod row;

#[cfg(test)]
mod tests;

pub(crate) use cells::{Cell, Columns};
pub(crate) use form::Form;
pub(crate) use row::RowTypes;
