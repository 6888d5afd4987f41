//! A list that is mostly empty or has one item.

use std::ops::Deref;

/// A list that needs no memory of its own for one item.
///
/// ```
/// use foreshore_base::Few;
/// let one: Few<u32> = [7].into_iter().collect();
/// assert!(matches!(one, Few::One(7)));
/// let many: Few<u32> = (1..4).collect();
/// assert_eq!((&one[..], &many[..]), (&[7][..], &[1, 2, 3][..]));
/// ```
#[derive(Clone, Debug, Default)]
pub enum Few<T> {
    /// No item.
    #[default]
    None,
    /// One item.
    One(T),
    /// Any number of items.
    Many(Vec<T>),
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(item) => std::slice::from_ref(item),
            Self::Many(items) => items,
        }
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items = items.into_iter();
        // An iterator that has ended is not asked again.
        let Some(first) = items.next() else { return Self::None };
        let Some(second) = items.next() else { return Self::One(first) };
        Self::Many([first, second].into_iter().chain(items).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_order_and_an_ended_iterator_is_not_asked_again() {
        for len in 0..5 {
            let mut is_over = false;
            let mut left = 0..len;
            let items = std::iter::from_fn(|| {
                assert!(!is_over, "asked again after {len} items");
                let next = left.next();
                is_over = next.is_none();
                next
            });
            assert!(items.collect::<Few<usize>>().iter().copied().eq(0..len));
        }
    }
}
