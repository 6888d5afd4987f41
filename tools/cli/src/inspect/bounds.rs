//! The keys of a scan, as a user writes them and encoded.

use super::reader::KeyBounds;
use crate::exit::Failure;
use crate::types::RowTypes;
use clap::Args;
use std::ops::Bound;

/// Which keys.
#[derive(Args, Default)]
pub(crate) struct Bounds {
    /// The first key, itself included
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) from: Option<String>,
    /// The key before which the scan ends
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) to: Option<String>,
    /// Only keys that begin with these characters or bytes; of tuples, a JSON array of the first parts
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<String>,
}

/// The same, encoded.
pub(super) struct Encoded {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
}

impl Bounds {
    pub(super) fn encode(&self, types: &RowTypes) -> Result<Encoded, Failure> {
        let Self { from, to, prefix } = self;
        if let Some(prefix) = prefix {
            let prefix = types.read_prefix(prefix)?;
            let upper = after(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
            return Ok(Encoded { lower: Bound::Included(prefix), upper });
        }
        let key = |word: &Option<String>| word.as_deref().map(|word| types.read_key(word)).transpose();
        let lower = key(from)?.map_or(Bound::Unbounded, Bound::Included);
        let upper = key(to)?.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(Encoded { lower, upper })
    }
}

impl Encoded {
    pub(super) fn keys(&self) -> KeyBounds<'_> {
        (self.lower.as_ref().map(Vec::as_slice), self.upper.as_ref().map(Vec::as_slice))
    }
}

/// Returns the first key behind all that begin with `prefix`. `None` if no key is behind them.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key_that_does_not_begin_with_it() {
        assert_eq!(after(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after(b"a\xFF\xFF"), Some(b"b".to_vec()));
        assert_eq!(after(b"\xFF\xFF"), None);
        assert_eq!(after(b""), None);
    }
}
