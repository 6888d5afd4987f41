//! Rows of one table.

use super::decode::decode;
use super::encode;
use super::form::Form;
use super::name::Type;
use crate::exit::Failure;
use serde_json::{Value as Json, json};

/// The types of a table's rows, `None` for one that this program does not know, and how bytes are written.
#[derive(Clone, Debug)]
pub(crate) struct RowTypes {
    key: Option<Type>,
    value: Option<Type>,
    form: Form,
}

impl RowTypes {
    pub(crate) fn new(key_type: &str, value_type: &str, form: Form) -> Self {
        Self { key: Type::of(key_type), value: Type::of(value_type), form }
    }

    /// Returns a key as JSON.
    pub(crate) fn key(&self, bytes: &[u8]) -> Json {
        self.show(self.key.as_ref(), bytes, true)
    }

    /// Returns a value as JSON.
    pub(crate) fn value(&self, bytes: &[u8]) -> Json {
        self.show(self.value.as_ref(), bytes, false)
    }

    /// Whether a row is an encoding of the types, as far as they are known.
    pub(crate) fn fits(&self, key: &[u8], value: &[u8]) -> bool {
        let is_one =
            |of: Option<&Type>, bytes, is_key| of.is_none_or(|of| decode(of, bytes, is_key, self.form).is_some());
        is_one(self.key.as_ref(), key, true) && is_one(self.value.as_ref(), value, false)
    }

    /// Encodes a key as the user wrote it.
    pub(crate) fn read_key(&self, word: &str) -> Result<Vec<u8>, Failure> {
        self.read(self.key.as_ref(), word, true).map_err(|why| Failure::Refused(format!("key {word:?}: {why}")))
    }

    /// Encodes a value as the user wrote it.
    pub(crate) fn read_value(&self, word: &str) -> Result<Vec<u8>, Failure> {
        self.read(self.value.as_ref(), word, false).map_err(|why| Failure::Refused(format!("value {word:?}: {why}")))
    }

    /// Encodes what keys begin with.
    pub(crate) fn read_prefix(&self, word: &str) -> Result<Vec<u8>, Failure> {
        let prefix = match &self.key {
            Some(of) => encode::prefix(of, word, self.form),
            None => self.form.read(word),
        };
        prefix.map_err(|why| Failure::Refused(format!("prefix {word:?}: {why}")))
    }

    fn show(&self, of: Option<&Type>, bytes: &[u8], is_key: bool) -> Json {
        let Some(of) = of else { return Json::String(self.form.show(bytes)) };
        let decoded = decode(of, bytes, is_key, self.form);
        decoded.unwrap_or_else(|| json!({ "undecodable": Form::Hex.show(bytes) }))
    }

    fn read(&self, of: Option<&Type>, word: &str, is_key: bool) -> Result<Vec<u8>, String> {
        match of {
            Some(of) => encode::word(of, word, is_key, self.form),
            None => self.form.read(word),
        }
    }
}
