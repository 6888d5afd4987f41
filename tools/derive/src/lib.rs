//! `#[derive(Key, Value)]` for types of tables of [`foreshore`](https://docs.rs/foreshore).
//!
//! ```
//! use foreshore::{Db, Device, Error, Options, TableDef};
//! use foreshore_derive::{Key, Value};
//!
//! #[derive(Clone, Debug, PartialEq, Key, Value)]
//! #[foreshore(name = "order id")]
//! struct OrderId {
//!     customer: u64,
//!     number: u32,
//! }
//!
//! #[derive(Clone, Debug, PartialEq, Value)]
//! #[foreshore(name = "order")]
//! enum Order {
//!     Open { items: Vec<u8> },
//!     Sent(String),
//! }
//!
//! const ORDERS: TableDef<OrderId, Order> = TableDef::new("orders");
//!
//! let db = Options::in_memory().open("orders")?;
//! let id = OrderId { customer: 7, number: 1 };
//! db.run(|tx| tx.open(ORDERS)?.insert(&id, &Order::Sent("by train".into())))?;
//! assert_eq!(db.read().open(ORDERS)?.get(&id)?, Some(Order::Sent("by train".into())));
//! # Ok::<(), Error>(())
//! ```
//!
//! **Fields** are encoded in their order, each as a part of a tuple: a struct encodes as the tuple of its fields. So
//! keys are in the order that `#[derive(PartialOrd, Ord)]` gives. Fields of `f32` and `f64` are in the total order that
//! `f64::total_cmp` gives. A field is of any owned type that is a key or value of foreshore: numbers, `String`,
//! `Vec<u8>`, `[u8; N]`, options, tuples, derived types. Lists of anything but bytes, and maps, are none:
//! `foreshore-serde` stores types with such fields.
//!
//! **Variants** begin with a byte: 0 for the first, 1 for the second. A variant may be added behind the last. Any other
//! change of fields or variants is another type, and needs another name.
//!
//! **The name** is stored with each table, and a table opens only with types of its names. It has letters, digits,
//! spaces, `-`, `_`, `.` and `:`, and begins with a letter. It must not be that of a type of foreshore, such as `u64`.
//!
//! **Methods** take such keys and values by reference, and return them owned. The type implements `Clone` and `Debug`,
//! and has no generic parameters.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod attribute;
mod fields;

use fields::Shape;
use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{DeriveInput, Result, parse_macro_input};

/// Implements `foreshore::Value` for a struct or an enum.
#[proc_macro_derive(Value, attributes(foreshore))]
pub fn derive_value(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    value(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `foreshore::Key` for a struct or an enum that is a value too.
#[proc_macro_derive(Key, attributes(foreshore))]
pub fn derive_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    key(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

fn value(input: &DeriveInput) -> Result<Tokens> {
    let (ident, name, shape) = (&input.ident, attribute::name(input)?, Shape::of(input)?);
    let encode = shape.encode(&quote!(::foreshore::Value), &quote!(encode_part));
    let decode = shape.decode(&quote!(::foreshore::Value), &quote!(decode_part));
    Ok(quote! {
        #[automatically_derived]
        impl ::foreshore::Value for #ident {
            type Ref<'a> = &'a Self;
            type Owned = Self;

            fn type_name() -> ::std::string::String {
                ::std::convert::From::from(#name)
            }

            fn to_ref(owned: &Self) -> &Self {
                owned
            }

            fn encode(value: &&Self, out: &mut ::std::vec::Vec<u8>) {
                let value: &Self = value;
                #encode
            }

            fn decode(bytes: &[u8]) -> ::std::option::Option<Self> {
                let mut from = ::foreshore::Decoder::new(bytes);
                let value = <Self as ::foreshore::Value>::decode_part(&mut from)?;
                from.is_empty().then_some(value)
            }

            fn encode_part(value: &&Self, out: &mut ::std::vec::Vec<u8>) {
                <Self as ::foreshore::Value>::encode(value, out);
            }

            fn decode_part(from: &mut ::foreshore::Decoder<'_>) -> ::std::option::Option<Self> {
                #decode
            }
        }
    })
}

fn key(input: &DeriveInput) -> Result<Tokens> {
    let (ident, shape) = (&input.ident, Shape::of(input)?);
    attribute::name(input)?;
    let encode = shape.encode(&quote!(::foreshore::Key), &quote!(encode_key_part));
    let decode = shape.decode(&quote!(::foreshore::Key), &quote!(decode_key_part));
    Ok(quote! {
        #[automatically_derived]
        impl ::foreshore::Key for #ident {
            fn encode_key(value: &&Self, out: &mut ::std::vec::Vec<u8>) {
                <Self as ::foreshore::Key>::encode_key_part(value, out);
            }

            fn encode_key_part(value: &&Self, out: &mut ::std::vec::Vec<u8>) {
                let value: &Self = value;
                #encode
            }

            fn decode_key_part(from: &mut ::foreshore::Decoder<'_>) -> ::std::option::Option<Self> {
                #decode
            }
        }
    })
}
