//! What makes a row true or false.

use serde::Serialize;
use std::collections::BTreeMap;

/// Whether the rows are sound and no commit is missing, live and after close and open: by the names of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Checks(BTreeMap<String, bool>);

impl Checks {
    /// Checks by their names.
    #[must_use]
    pub fn new(checks: impl IntoIterator<Item = (String, bool)>) -> Self {
        Self(checks.into_iter().collect())
    }

    /// These checks and more of them.
    pub(crate) fn with(mut self, more: impl IntoIterator<Item = (String, bool)>) -> Self {
        self.0.extend(more);
        self
    }

    /// A row that is checked with others.
    pub(crate) const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether all are true.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.0.values().all(|&is_true| is_true)
    }
}
