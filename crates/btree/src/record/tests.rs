use super::*;
use crate::load_record::{Load, Loaded, decode_unload};
use crate::rows_record::{DeletedRow, RESTORE_BODY, ROW_IN_ROWS, ROWS_FRONT, RowsBody, RowsDelete};
use proptest::prelude::*;

#[test]
fn kinds_are_named_once() {
    let kinds: Vec<_> = (0..=255).filter_map(TreeKind::from_number).collect();
    assert_eq!(kinds.len(), 25);
    for kind in kinds {
        assert_eq!(TreeKind::from_number(kind as u8), Some(kind));
        assert!(foreshore_buffer::format::TREE_KINDS.contains(&(kind as u8)), "{}", kind.name());
    }
}

#[test]
fn a_record_of_deleted_rows_has_these_bytes_and_others_are_refused() {
    let owner = RowHeader { xid: foreshore_base::Xid(9), flags: crate::format::GHOST, undo: 0 }.owner();
    let mut rows = RowsBody::begin(0, PageId(7), owner);
    let both = [DeletedRow { old_owner: 5, key: b"ab" }, DeletedRow { old_owner: 6, key: b"b" }];
    both.iter().for_each(|row| rows.push(row));
    let (count, body) = rows.end();
    let expected = [
        &[2, 0, 7, 0, 0, 0, 0, 0, 0, 0][..],
        &owner.to_le_bytes(),
        &[5, 0, 0, 0, 0, 0, 0, 0, 2, 0, b'a', b'b', 6, 0, 0, 0, 0, 0, 0, 0, 1, 0, b'b'],
    ]
    .concat();
    assert_eq!((count, &body), (2, &expected));
    assert_eq!(body.len(), ROWS_FRONT + 2 * ROW_IN_ROWS + 3);
    assert_eq!(RowsDelete::decode(&body), Ok(RowsDelete { root: PageId(7), owner, rows: both.to_vec() }));
    let mut undo = Vec::new();
    both[0].encode_undo(PageId(7), &mut undo);
    assert_eq!(undo.len(), RESTORE_BODY + 2);
    let restore = RowRestore::decode(&undo[8..]).unwrap();
    assert_eq!((restore.owner, restore.key, restore.cut, restore.middle), (5, &b"ab"[..], 0, &[][..]));
    assert!((0..body.len()).all(|len| RowsDelete::decode(&body[..len]).is_err()));
    // Another number of rows, a row that stays, and keys out of order.
    for (at, byte) in [(0, 1), (0, 3), (10, 0), (28, b'c')] {
        let mut body = body.clone();
        body[at] = byte;
        assert!(RowsDelete::decode(&body).is_err(), "byte {at}");
    }
}

proptest! {
    #[test]
    fn deltas_go_forth_and_back(
        front in prop::collection::vec(0..3_u8, 0..40),
        old in prop::collection::vec(0..3_u8, 0..40),
        new in prop::collection::vec(0..3_u8, 0..40),
        back in prop::collection::vec(0..3_u8, 0..40),
    ) {
        let before = [&front[..], &old, &back].concat();
        let after = [&front[..], &new, &back].concat();
        let delta = Delta::between(&before, &after);
        prop_assert!(delta.old.len() <= old.len() && delta.new.len() <= new.len());
        let write = RowWrite { root: PageId(3), old_owner: 5, owner: 6, key: b"k", delta };
        let mut body = Vec::new();
        write.encode(&mut body);
        let write = RowWrite::decode(&body).unwrap();
        prop_assert_eq!(write.delta, delta);
        prop_assert_eq!(Delta::splice(&before, delta.prefix, delta.old.len(), delta.new).unwrap(), after.clone());
        let mut body = Vec::new();
        write.restore().encode(&mut body);
        let restore = RowRestore::decode(&body).unwrap();
        prop_assert_eq!(Delta::splice(&after, restore.prefix, restore.cut, restore.middle).unwrap(), before);
        prop_assert_eq!(restore.owner, 5);
    }

    #[test]
    fn hostile_bodies_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = RowInsert::decode(&bytes);
        let _ = RowWrite::decode(&bytes);
        let _ = RowRestore::decode(&bytes);
        let _ = RowLock::decode(&bytes);
        let _ = Split::decode(&bytes);
        let _ = RowsDelete::decode(&bytes);
        let _ = (Link::decode(&bytes), Move::decode(&bytes));
        let _ = CreateTable::decode(&bytes);
        let _ = DropTable::decode(&bytes);
        let _ = (decode_erase(&bytes), decode_page(&bytes), decode_purge(&bytes));
        let _ = (Load::decode(&bytes).map(|load| load.image), decode_unload(&bytes));
        let _ = [TreeKind::Load, TreeKind::Unload].map(|kind| Loaded::of(kind, &bytes).map(drop));
        prop_assert!(Delta::splice(&bytes, bytes.len() + 1, 0, b"").is_err());
        prop_assert!(Delta::splice(&bytes, bytes.len(), 1, b"").is_err());
    }
}
