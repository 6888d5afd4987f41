//! Labels of transactions, which the engine keeps for the life of the process.

use crate::{Fault, Result, Status};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// How many labels a process may use.
const MAX_LABELS: usize = 1024;

static LABELS: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);

/// Returns the label `text` for the rest of the process. Each label is stored once.
///
/// # Errors
/// `Invalid` if there are 1024 labels already: a label names a kind of transaction, not a single one.
pub fn label(text: &str) -> Result<&'static str> {
    if text.is_empty() {
        return Ok("");
    }
    let mut labels = LABELS.lock().unwrap_or_else(PoisonError::into_inner);
    let labels = labels.get_or_insert_default();
    if let Some(label) = labels.get(text) {
        return Ok(label);
    }
    if labels.len() == MAX_LABELS {
        return Err(Fault::new(Status::Invalid, format!("{MAX_LABELS} labels are in use, `{text}` would be another")));
    }
    let label: &'static str = Box::leak(Box::from(text));
    labels.insert(label);
    Ok(label)
}
