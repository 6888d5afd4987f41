//! The fields of a type, and the code that encodes and decodes them.

use crate::attribute::refuse_generics;
use proc_macro2::{Span, TokenStream as Tokens};
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Fields, Ident, Index, Result, Type};

/// Variants that one byte tells apart.
const MOST_VARIANTS: usize = 256;

/// What a type consists of.
pub(crate) enum Shape<'i> {
    Struct(Vec<Field<'i>>),
    Enum(Vec<(&'i Ident, Vec<Field<'i>>)>),
}

/// A field: how it is named in a constructor, and its type.
pub(crate) struct Field<'i> {
    member: Tokens,
    /// A variable for it.
    variable: Ident,
    ty: &'i Type,
}

impl<'i> Shape<'i> {
    pub(crate) fn of(input: &'i DeriveInput) -> Result<Self> {
        refuse_generics(input)?;
        match &input.data {
            Data::Struct(data) => Ok(Self::Struct(fields(&data.fields))),
            Data::Union(data) => Err(Error::new(data.union_token.span, "a union has no encoding")),
            Data::Enum(data) => {
                if !(1..=MOST_VARIANTS).contains(&data.variants.len()) {
                    return Err(Error::new(input.ident.span(), "an enum has 1 to 256 variants"));
                }
                if let Some((_, value)) = data.variants.iter().find_map(|variant| variant.discriminant.as_ref()) {
                    let why = "variants are numbered in their order, so they have no values of their own";
                    return Err(Error::new_spanned(value, why));
                }
                Ok(Self::Enum(data.variants.iter().map(|variant| (&variant.ident, fields(&variant.fields))).collect()))
            }
        }
    }

    /// Returns code that appends each field of `value` to `out` by `method` of a trait.
    pub(crate) fn encode(&self, of: &Tokens, method: &Tokens) -> Tokens {
        let put = |field: &Field<'_>, from: Tokens| {
            let ty = field.ty;
            quote!(<#ty as #of>::#method(&<#ty as ::foreshore::Value>::to_ref(#from), out);)
        };
        match self {
            Self::Struct(fields) => fields
                .iter()
                .map(|field| {
                    let member = &field.member;
                    put(field, quote!(&value.#member))
                })
                .collect(),
            Self::Enum(variants) => {
                let arms = variants.iter().enumerate().map(|(number, (variant, fields))| {
                    let (number, bound) = (tag(number), fields.iter().map(Field::bound));
                    let puts = fields.iter().map(|field| {
                        let variable = &field.variable;
                        put(field, quote!(#variable))
                    });
                    quote!(Self::#variant { #(#bound),* } => { out.push(#number); #(#puts)* })
                });
                quote!(match value { #(#arms)* })
            }
        }
    }

    /// Returns code that makes a value of fields read from `from` by `method` of a trait.
    pub(crate) fn decode(&self, of: &Tokens, method: &Tokens) -> Tokens {
        let get = |field: &Field<'_>| {
            let (member, ty) = (&field.member, field.ty);
            quote!(#member: <#ty as #of>::#method(from)?)
        };
        match self {
            Self::Struct(fields) => {
                let gets = fields.iter().map(get);
                quote!(::std::option::Option::Some(Self { #(#gets),* }))
            }
            Self::Enum(variants) => {
                let arms = variants.iter().enumerate().map(|(number, (variant, fields))| {
                    let (number, gets) = (tag(number), fields.iter().map(get));
                    quote!(#number => Self::#variant { #(#gets),* },)
                });
                quote! {
                    ::std::option::Option::Some(match from.u8().ok()? {
                        #(#arms)*
                        #[allow(unreachable_patterns, reason = "if there are 256 variants")]
                        _ => return ::std::option::Option::None,
                    })
                }
            }
        }
    }
}

impl Field<'_> {
    /// Returns the pattern that binds its variable.
    fn bound(&self) -> Tokens {
        let (member, variable) = (&self.member, &self.variable);
        quote!(#member: #variable)
    }
}

fn fields(fields: &Fields) -> Vec<Field<'_>> {
    let field = |(index, field): (usize, &'_ syn::Field)| -> (Tokens, Ident) {
        let member = match &field.ident {
            Some(ident) => quote!(#ident),
            None => {
                let index = Index::from(index);
                quote!(#index)
            }
        };
        (member, format_ident!("field_{index}", span = Span::mixed_site()))
    };
    fields
        .iter()
        .enumerate()
        .map(|(index, given)| {
            let (member, variable) = field((index, given));
            Field { member, variable, ty: &given.ty }
        })
        .collect()
}

/// Returns the byte that a variant begins with.
fn tag(number: usize) -> u8 {
    u8::try_from(number).expect("at most 256 variants")
}
