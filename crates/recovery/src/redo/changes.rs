//! The changes that wait for one page: records of the log behind each other, in log order, in one piece of memory. Redo
//! of the page reads it from one end to the other.
//!
//! ```text
//!  0     8       16       20               24
//!  | lsn | group | number | length | index | payload ... |
//! ```

use foreshore_base::codec::{Decoder, Short};
use foreshore_base::{GroupNo, Lsn};
use foreshore_buffer::format::MAX_CHANGE_PAGES;

/// Bytes in front of a payload.
const HEADER: usize = 24;
/// Bits of the index, below the length.
const INDEX_BITS: u32 = 3;
const _: () = assert!(MAX_CHANGE_PAGES <= 1 << INDEX_BITS);

/// A record, for one of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageChange<'b> {
    pub(super) lsn: Lsn,
    pub(super) group: GroupNo,
    /// A number that grows from change to change, in log order.
    pub(super) number: u32,
    /// Which of its pages.
    pub(super) index: usize,
    pub(super) payload: &'b [u8],
}

/// The changes of one page.
#[derive(Debug, Default)]
pub(super) struct Changes(Vec<u8>);

impl Changes {
    /// Adds a change behind the others.
    pub(super) fn add(&mut self, change: &PageChange<'_>) {
        let &PageChange { lsn, group, number, index, payload } = change;
        let more = HEADER + payload.len();
        if self.0.capacity() - self.0.len() < more {
            // Grows by halves: the memory for all pages is limited.
            self.0.reserve_exact(more.max(self.0.len() / 2));
        }
        let len = u32::try_from(payload.len()).expect("a record is short");
        self.0.extend_from_slice(&lsn.0.to_le_bytes());
        self.0.extend_from_slice(&group.0.to_le_bytes());
        self.0.extend_from_slice(&number.to_le_bytes());
        self.0.extend_from_slice(&(len << INDEX_BITS | index as u32).to_le_bytes());
        self.0.extend_from_slice(payload);
    }

    /// Returns the memory that they take.
    pub(super) const fn bytes(&self) -> usize {
        self.0.capacity()
    }

    /// Returns the changes in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = PageChange<'_>> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || (!rest.is_empty()).then(|| next(&mut rest).expect("it was added whole")))
    }
}

fn next<'b>(rest: &mut &'b [u8]) -> Result<PageChange<'b>, Short> {
    let mut from = Decoder::new(rest);
    let (lsn, group, number, len) = (Lsn(from.u64()?), GroupNo(from.u64()?), from.u32()?, from.u32()?);
    let (len, index) = (len >> INDEX_BITS, len % (1 << INDEX_BITS));
    let (payload, index) = (from.bytes(len as usize)?, index as usize);
    *rest = from.rest();
    Ok(PageChange { lsn, group, number, index, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_in_their_order() {
        let payload = |number: u32| vec![number as u8; number as usize * 37 % 700];
        let mut changes = Changes::default();
        assert_eq!((changes.iter().count(), changes.bytes()), (0, 0));
        for number in 0..1000 {
            let (lsn, group, payload) =
                (Lsn(u64::from(number) + 7), GroupNo(u64::from(number) / 3), &payload(number)[..]);
            changes.add(&PageChange { lsn, group, number, index: number as usize % 8, payload });
        }
        let mut count = 0;
        for change in changes.iter() {
            let (lsn, group, payload) = (Lsn(u64::from(count) + 7), GroupNo(u64::from(count) / 3), &payload(count)[..]);
            assert_eq!(change, PageChange { lsn, group, number: count, index: count as usize % 8, payload });
            count += 1;
        }
        assert_eq!(count, 1000);
        assert!(changes.bytes() > 1000 * HEADER);
    }
}
