//! The difference of two values of a row.

use crate::node::Damage;

/// The difference of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delta<'a> {
    /// Length of the common prefix.
    pub(crate) prefix: usize,
    /// The bytes of the old value between common prefix and common suffix.
    pub(crate) old: &'a [u8],
    /// The bytes of the new value there.
    pub(crate) new: &'a [u8],
}

impl<'a> Delta<'a> {
    pub(crate) fn between(old: &'a [u8], new: &'a [u8]) -> Self {
        let prefix = common_prefix(old, new);
        let (old, new) = (&old[prefix..], &new[prefix..]);
        let suffix = common_suffix(old, new);
        Self { prefix, old: &old[..old.len() - suffix], new: &new[..new.len() - suffix] }
    }

    /// Returns a value with the `cut` bytes after the prefix replaced by `middle`.
    pub(crate) fn splice(value: &[u8], prefix: usize, cut: usize, middle: &[u8]) -> Result<Vec<u8>, Damage> {
        let (front, rest) = value.split_at_checked(prefix).ok_or("a change reaches beyond the value")?;
        let (_, suffix) = rest.split_at_checked(cut).ok_or("a change reaches beyond the value")?;
        Ok([front, middle, suffix].concat())
    }
}

/// Returns the length of the common prefix.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let ((a_words, _), (b_words, _)) = (a.as_chunks::<WORD>(), b.as_chunks::<WORD>());
    for (index, (a, b)) in a_words.iter().zip(b_words).enumerate() {
        let differs = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differs != 0 {
            return index * WORD + differs.trailing_zeros() as usize / 8;
        }
    }
    let at = a_words.len().min(b_words.len()) * WORD;
    at + a[at..].iter().zip(&b[at..]).take_while(|(a, b)| a == b).count()
}

/// Returns the length of the common suffix.
fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (mut a, mut b) = (&a[a.len() - len..], &b[b.len() - len..]);
    while let (Some((a_rest, a_block)), Some((b_rest, b_block))) =
        (a.split_last_chunk::<BLOCK>(), b.split_last_chunk::<BLOCK>())
        && a_block == b_block
    {
        (a, b) = (a_rest, b_rest);
    }
    while let (Some((a_rest, a_word)), Some((b_rest, b_word))) =
        (a.split_last_chunk::<WORD>(), b.split_last_chunk::<WORD>())
    {
        let differs = u64::from_le_bytes(*a_word) ^ u64::from_le_bytes(*b_word);
        if differs != 0 {
            return len - a.len() + differs.leading_zeros() as usize / 8;
        }
        (a, b) = (a_rest, b_rest);
    }
    len - a.len() + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// Bytes that are compared at a time to find the first difference.
const WORD: usize = 8;
/// Bytes that are compared at a time while they are equal.
const BLOCK: usize = 4 * WORD;
