//! Decoding of the body of a record.

use crate::node::Damage;
use foreshore_base::codec::{Decoder, Short};

pub(crate) const SHORT: Damage = "the body of a record is cut short";

pub(crate) fn decode<'a, T>(
    body: &'a [u8],
    fields: impl FnOnce(&mut Decoder<'a>) -> Result<T, Short>,
) -> Result<T, Damage> {
    fields(&mut Decoder::new(body)).map_err(|Short| SHORT)
}
