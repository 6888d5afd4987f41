use super::*;
use proptest::prelude::*;

const UUID: Uuid = Uuid([5; 16]);

fn header() -> GroupHeader {
    GroupHeader {
        n_ext: 1,
        incarnation: Incarnation(2),
        uuid: UUID,
        group: GroupNo(3),
        cut: Lsn(4),
        acked_upto: GroupNo(2),
        data_len: 5,
        total_len: 4096,
        prev_crc: 6,
        data_crc: 7,
        time: Nanos(8),
    }
}

#[test]
fn a_group_header_round_trips_and_any_flip_is_noticed() {
    let (bytes, crc) = header().encode();
    assert_eq!(GroupHeader::decode(&bytes), Decoded::Header(header(), crc));
    for at in 0..GROUP_HEADER * 8 {
        let mut flipped = bytes;
        flipped[at / 8] ^= 1 << (at % 8);
        assert_eq!(GroupHeader::decode(&flipped), Decoded::Nothing, "bit {at}");
    }
    assert_eq!(GroupHeader::decode(&bytes[..GROUP_HEADER - 1]), Decoded::Nothing);
}

#[test]
fn impossible_lengths_and_numbers_are_no_header() {
    for wrong in [
        GroupHeader { total_len: 4095, ..header() },
        GroupHeader { total_len: 0, data_len: 0, n_ext: 0, ..header() },
        GroupHeader { total_len: 2 << 20, ..header() },
        GroupHeader { data_len: 4096 - 100, ..header() },
        GroupHeader { n_ext: u16::MAX, ..header() },
        GroupHeader { data_len: u32::MAX, ..header() },
        GroupHeader { group: GroupNo(0), ..header() },
        GroupHeader { group: GroupNo(u64::MAX), ..header() },
        GroupHeader { cut: Lsn(u64::MAX), ..header() },
        GroupHeader { incarnation: Incarnation(u32::MAX), ..header() },
    ] {
        assert_eq!(GroupHeader::decode(&wrong.encode().0), Decoded::Nothing, "{wrong:?}");
    }
}

#[test]
fn blocks_round_trip_and_tell_foreign_from_damaged() {
    let path = Path::new("x");
    let segment = SegmentHeader { uuid: UUID, number: 9, size: 65536 };
    let slot = CtlSlot { uuid: UUID, incarnation: Incarnation(1), seq: 2, first: GroupNo(3), segment: 4, prev_crc: 5 };
    assert_eq!(SegmentHeader::decode(&segment.encode(), path, UUID).unwrap(), segment);
    assert_eq!(CtlSlot::decode(&slot.encode(), path, 0, UUID).unwrap(), slot);
    let other = SegmentHeader::decode(&segment.encode(), path, Uuid([6; 16])).unwrap_err();
    assert!(matches!(other, Error::Foreign { .. }));
    assert!(matches!(CtlSlot::decode(&segment.encode(), path, 0, UUID), Err(Error::Foreign { .. })));
    assert!(matches!(CtlSlot::decode(&[0; BLOCK], path, 0, UUID), Err(Error::Corrupted { .. })));
    assert!(matches!(CtlSlot::decode(&slot.encode()[..99], path, 0, UUID), Err(Error::Truncated { .. })));
    for wrong in [
        CtlSlot { seq: u64::MAX, ..slot },
        CtlSlot { first: GroupNo(u64::MAX), ..slot },
        CtlSlot { first: GroupNo(0), ..slot },
        CtlSlot { segment: u64::MAX, ..slot },
        CtlSlot { incarnation: Incarnation(u32::MAX), ..slot },
    ] {
        assert!(matches!(CtlSlot::decode(&wrong.encode(), path, 0, UUID), Err(Error::Corrupted { .. })), "{wrong:?}");
    }
    let tiny = SegmentHeader { size: 4096, ..segment };
    assert!(matches!(SegmentHeader::decode(&tiny.encode(), path, UUID), Err(Error::Corrupted { .. })));
}

#[test]
fn names_sort_as_numbers_and_nothing_else_is_a_name() {
    let name = segment_name(42);
    assert_eq!(number_of(&name, ".seg"), Some(42));
    assert!(segment_name(9) < segment_name(10));
    assert_eq!(number_of(&temporary_name(7), ".tmp"), Some(7));
    for wrong in ["42.seg", "ctl", "+0000000000000000042.seg", "99999999999999999999.seg", "00000000000000000042.tmp"] {
        assert_eq!(number_of(wrong, ".seg"), None, "{wrong}");
    }
}

proptest! {
    #[test]
    fn records_round_trip(payload: Vec<u8>, lsn: u64, tag in 0..=crate::MAX_TAG, flags: u8, after: Vec<u8>) {
        let envelope = Envelope { len: payload.len() as u32, lsn: Lsn(lsn), tag, flags };
        let mut bytes = envelope.encode(crc32c(&payload)).to_vec();
        bytes.extend_from_slice(&payload);
        bytes.resize(record_size(payload.len()), 0);
        bytes.extend_from_slice(&after);
        prop_assert_eq!(Envelope::split(&bytes), Some((envelope, &payload[..], &after[..])));
        let flip = (lsn as usize) % ((ENVELOPE + payload.len()) * 8);
        bytes[flip / 8] ^= 1 << (flip % 8);
        prop_assert_eq!(Envelope::split(&bytes), None);
    }

    #[test]
    fn decoders_take_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Envelope::split(&bytes);
        prop_assert_eq!(GroupHeader::decode(&bytes), Decoded::Nothing);
    }
}
