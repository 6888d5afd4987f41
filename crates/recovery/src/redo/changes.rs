//! The records that wait for the pages of one bucket, in log order, in pieces of memory. A page has the places of its
//! records. So all that a bucket needs is in few pages of memory, and a record is stored once for the pages that it
//! changes there.
//!
//! ```text
//!  0     8       16       20
//!  | lsn | group | length | payload ... |
//! ```

use foreshore_base::codec::{Decoder, Short};
use foreshore_base::{GroupNo, Lsn};
use foreshore_buffer::format::MAX_CHANGE_PAGES;
use foreshore_sync::primitive::hint::prefetch;

/// Bytes in front of a payload.
const HEADER: usize = 20;
/// Bits of an offset in a piece. A longer record has a piece of its own.
const PIECE_BITS: u32 = 16;
/// Bytes of the first piece. Later ones are as long as all before, up to a limit.
const FIRST_PIECE: u64 = 1 << 10;
/// Bits of the index of a page.
const INDEX_BITS: u32 = 3;
const _: () = assert!(MAX_CHANGE_PAGES <= 1 << INDEX_BITS);

/// Where a record is, and which of its pages is meant. Later changes are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChangePlace(u64);

impl ChangePlace {
    const fn new(piece: usize, offset: usize) -> Self {
        Self(((piece << PIECE_BITS | offset) as u64) << INDEX_BITS)
    }

    /// Returns the place of the change of another page of the record.
    pub(super) const fn of_page(self, index: usize) -> Self {
        Self(self.0 | index as u64)
    }

    /// Returns the place of the change of the first page of the record.
    #[cfg(test)]
    const fn of_first(self) -> Self {
        Self(self.0 >> INDEX_BITS << INDEX_BITS)
    }

    /// Returns the index of the page.
    pub(super) const fn index(self) -> usize {
        (self.0 % (1 << INDEX_BITS)) as usize
    }

    const fn piece(self) -> usize {
        (self.0 >> (INDEX_BITS + PIECE_BITS)) as usize
    }

    const fn offset(self) -> usize {
        (self.0 >> INDEX_BITS) as usize % (1 << PIECE_BITS)
    }
}

/// A record that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingRecord<'b> {
    pub(crate) lsn: Lsn,
    pub(crate) group: GroupNo,
    pub(crate) payload: &'b [u8],
}

/// The records.
#[derive(Debug, Default)]
pub(super) struct WaitingRecords {
    pieces: Vec<Vec<u8>>,
    bytes: u64,
}

impl WaitingRecords {
    /// Adds a record behind the others. Returns its place, as the one of the change of its first page, and how much
    /// more memory they take.
    pub(super) fn add(&mut self, record: &WaitingRecord<'_>) -> (ChangePlace, u64) {
        let &WaitingRecord { lsn, group, payload } = record;
        let (bytes, mut more) = (HEADER + payload.len(), 0);
        let fits = |last: &Vec<u8>| last.len() + bytes <= last.capacity().min(1 << PIECE_BITS);
        if !self.pieces.last().is_some_and(fits) {
            let piece = Vec::with_capacity(bytes.max(self.bytes.clamp(FIRST_PIECE, 1 << PIECE_BITS) as usize));
            more = piece.capacity() as u64;
            self.pieces.push(piece);
        }
        let piece = self.pieces.len() - 1;
        let last = &mut self.pieces[piece];
        assert!(last.len() < 1 << PIECE_BITS, "a place has bits for every offset");
        let place = ChangePlace::new(piece, last.len());
        last.extend_from_slice(&lsn.0.to_le_bytes());
        last.extend_from_slice(&group.0.to_le_bytes());
        last.extend_from_slice(&u32::try_from(payload.len()).expect("at most 1 GiB").to_le_bytes());
        last.extend_from_slice(payload);
        self.bytes += more;
        (place, more)
    }

    /// Returns the records in log order, with the places of the changes of their first pages.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ChangePlace, WaitingRecord<'_>)> {
        self.pieces.iter().enumerate().flat_map(|(piece, bytes)| {
            let mut offset = 0;
            std::iter::from_fn(move || {
                let left = bytes.get(offset..).filter(|left| !left.is_empty())?;
                let (place, record) = (ChangePlace::new(piece, offset), record(left).expect("it was added whole"));
                offset += HEADER + record.payload.len();
                Some((place, record))
            })
        })
    }

    /// Returns the memory that the records take.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Prefetches the record of a change.
    pub(super) fn prefetch(&self, change: ChangePlace) {
        prefetch(&self.pieces[change.piece()][change.offset()..]);
    }

    /// Returns the record of a change.
    pub(super) fn get(&self, change: ChangePlace) -> WaitingRecord<'_> {
        record(&self.pieces[change.piece()][change.offset()..]).expect("it was added whole")
    }
}

fn record(bytes: &[u8]) -> Result<WaitingRecord<'_>, Short> {
    let mut from = Decoder::new(bytes);
    let (lsn, group, len) = (Lsn(from.u64()?), GroupNo(from.u64()?), from.u32()?);
    Ok(WaitingRecord { lsn, group, payload: from.bytes(len as usize)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_at_their_places() {
        let len = |number: u64| if number % 500 == 7 { 1 << PIECE_BITS } else { number as usize * 37 % 700 };
        let payloads: Vec<_> = (0..2000).map(|number| vec![number as u8; len(number)]).collect();
        let record = |number: u64| WaitingRecord {
            lsn: Lsn(number + 7),
            group: GroupNo(number / 3),
            payload: &payloads[number as usize],
        };
        let mut records = WaitingRecords::default();
        let places: Vec<_> =
            (0..2000).map(|number| records.add(&record(number)).0.of_page(number as usize % 8)).collect();
        for (number, &place) in places.iter().enumerate() {
            assert_eq!((records.get(place), place.index()), (record(number as u64), number % 8));
        }
        let wanted = places.iter().zip(0..).map(|(place, number)| (place.of_first(), record(number)));
        assert!(records.iter().eq(wanted), "in their order");
        assert!(records.pieces.len() > 8, "long ones have pieces of their own");
    }
}
