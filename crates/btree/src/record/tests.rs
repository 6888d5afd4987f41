use super::*;
use crate::load_record::{Load, Loaded, decode_unload};
use proptest::prelude::*;

#[test]
fn kinds_are_named_once() {
    let kinds: Vec<_> = (0..=255).filter_map(TreeKind::from_number).collect();
    assert_eq!(kinds.len(), 24);
    for kind in kinds {
        assert_eq!(TreeKind::from_number(kind as u8), Some(kind));
        assert!(foreshore_buffer::format::TREE_KINDS.contains(&(kind as u8)), "{}", kind.name());
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
