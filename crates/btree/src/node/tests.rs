use super::edit::{compact, replace_value};
use super::*;
use crate::format::key_head;
use crate::format::{AT_RUN, MAX_LEAF_ENTRY, MAX_SHARED};
use crate::record::Delta;
use foreshore_base::Xid;
use foreshore_buffer::PageMut;
use foreshore_buffer::format::PAGE_HEADER;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Buffer = [u8; PAGE_SIZE];

fn leaf() -> Buffer {
    let mut page = [0; PAGE_SIZE];
    init(&mut page, 0, TableId(7));
    page
}

/// A leaf for the keys that begin with `prefix` and then end, or have a byte below 4.
fn fenced_leaf(prefix: &[u8]) -> Buffer {
    let (empty, high) = (leaf(), [prefix, &[4]].concat());
    let fences = (prefix, Some(&high[..]));
    build_part(&Node::parse(&empty).unwrap(), 0..0, fences, PageId(9), None).unwrap()
}

fn header(xid: u64) -> RowHeader {
    RowHeader { xid: Xid(xid), flags: 0, undo: xid + 1 }
}

fn put(page: &mut Buffer, key: &[u8], value: &[u8]) -> Result<(), Damage> {
    match Node::parse(page)?.search(key)? {
        Ok(at) => replace_value(page, at, header(1), value),
        Err(at) => insert_leaf(page, at, header(1), key, value).map(drop),
    }
}

fn contents(page: &Buffer) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let node = Node::parse(page).unwrap();
    node.validate().unwrap();
    (0..node.len()).map(|at| node.row(at).unwrap()).map(|row| (row.key.to_vec(), row.value.to_vec())).collect()
}

#[test]
fn header_words_round_trip() {
    let header = RowHeader { xid: Xid((1 << 48) - 1), flags: GHOST, undo: (1 << 48) - 2 };
    let bytes = header.encode(2048);
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(RowHeader::from_words(word(0), word(8)), (header, 2048));
    assert_eq!(RowHeader::from_owner(header.owner()), RowHeader { undo: 0, ..header });
}

#[test]
fn heads_order_keys_as_their_bytes_do() {
    let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0\0\0\0", b"a", b"a\0", b"ab", b"abcde"];
    for pair in keys.windows(2) {
        assert!(key_head(pair[0], 0) <= key_head(pair[1], 0));
    }
    for (len, shared) in (0..12).flat_map(|len| (0..14).map(move |shared| (len, shared))) {
        let key: Vec<u8> = (1..=len).collect();
        let expected =
            key.iter().skip(shared).chain(&[0; 4]).take(4).fold(0, |head, &byte| head << 8 | u32::from(byte));
        assert_eq!(key_head(&key, shared), expected, "{len} bytes, of which {shared} are shared");
    }
    let mut page = leaf();
    for key in keys.iter().rev() {
        put(&mut page, key, key).unwrap();
    }
    assert_eq!(contents(&page).into_keys().collect::<Vec<_>>(), keys);
}

/// The entries stay where they are if they can, and the result is that of a rebuild in every other way.
#[test]
fn a_leaf_absorbs_an_empty_one_in_place() {
    for (high, is_in_place) in
        [(Some(&[0, 0, 9][..]), true), (Some(&[0, 0, 7, 200]), true), (Some(&[0, 5]), false), (None, false)]
    {
        let (mut left, right) = (fenced_leaf(&[0, 0]), if high.is_some() { PageId(11) } else { PageId::ZERO });
        [1_u8, 3, 2].into_iter().for_each(|key| put(&mut left, &[0, 0, key], &[key; 50]).unwrap());
        let before = (contents(&left), Node::parse(&left).unwrap().tuple(0).unwrap().0);
        let fences = (&[0, 0, 4][..], high);
        let empty = build_part(&Node::parse(&leaf()).unwrap(), 0..0, fences, right, None).unwrap();
        let mut image = Vec::new();
        encode_image(&mut image, &empty).unwrap();
        absorb(&mut left, PageId(9), &image).unwrap();
        let after = Node::parse(&left).unwrap();
        assert_eq!(contents(&left), before.0);
        assert_eq!((after.high().unwrap(), after.right(), after.is_incomplete()), (high, right, false));
        assert_eq!(after.tuple(0).unwrap().0 == before.1 && after.garbage() > 0, is_in_place, "{high:?}");
        let free = after.free();
        compact(&mut left).unwrap();
        assert_eq!(Node::parse(&left).unwrap().free(), free, "{high:?}");
    }
}

#[test]
fn heads_leave_out_what_all_keys_share() {
    let mut page = fenced_leaf(&[0; 7]);
    for number in [3_u64, 1, 2] {
        put(&mut page, &number.to_be_bytes(), b"").unwrap();
    }
    let node = Node::parse(&page).unwrap();
    assert_eq!((node.shared(), node.slot(1).unwrap().head), (7, 2 << 24));
    let long = fenced_leaf(&[1; 100]);
    assert_eq!(Node::parse(&long).unwrap().shared(), MAX_SHARED);
    let rightmost = build_part(&Node::parse(&page).unwrap(), 0..0, (&[1; 9], None), PageId::ZERO, None).unwrap();
    assert_eq!(Node::parse(&rightmost).unwrap().shared(), 0);
    // Such a node comes from an old file or a damaged one.
    let mut node = fenced_leaf(&[1; 9]);
    let run = |shared: usize| ((shared << RUN_END_BITS) as u16).to_le_bytes();
    node[AT_RUN..AT_RUN + 2].copy_from_slice(&run(0));
    assert_eq!(Node::parse(&node).unwrap().validate(), Ok(()));
    for shared in [10, 11, MAX_SHARED] {
        node[AT_RUN..AT_RUN + 2].copy_from_slice(&run(shared));
        let node = Node::parse(&node).unwrap();
        assert!(node.validate().is_err() && node.search(&[1; 80]).is_err() | (shared == 10), "{shared} of nine");
    }
}

#[test]
fn separators_are_the_shortest_prefix_that_parts() {
    assert_eq!(separator(b"abc", b"abde"), Ok(&b"abd"[..]));
    assert_eq!(separator(b"", b"x"), Ok(&b"x"[..]));
    assert_eq!(separator(b"ab", b"abc"), Ok(&b"abc"[..]));
    assert!(separator(b"b", b"b").is_err());
}

#[test]
fn two_of_the_largest_rows_fit_between_the_largest_fences() {
    let mut low = [1; MAX_KEY];
    let mut high = [1; MAX_KEY];
    (low[MAX_KEY - 1], high[MAX_KEY - 1]) = (0, 2);
    let empty = leaf();
    let mut page = build_part(&Node::parse(&empty).unwrap(), 0..0, (&low, Some(&high)), PageId(9), None).unwrap();
    insert_leaf(&mut page, 0, header(1), &[1; MAX_KEY], &[5; MAX_INLINE_VALUE]).unwrap();
    insert_leaf(&mut page, 0, header(1), &low, &[5; MAX_INLINE_VALUE]).unwrap();
    Node::parse(&page).unwrap().validate().unwrap();
    assert!(Node::parse(&page).unwrap().free() < MAX_LEAF_ENTRY);
    // A third row does not fit, and the refusal changes nothing.
    let before = page;
    assert!(insert_leaf(&mut page, 2, header(1), &[1; MAX_KEY - 1], &[5; MAX_INLINE_VALUE]).is_err());
    assert_eq!(page, before);
}

#[test]
fn images_rebuild_a_node() {
    let mut page = leaf();
    for number in 0..100_u32 {
        put(&mut page, &number.to_be_bytes(), b"value").unwrap();
    }
    let node = Node::parse(&page).unwrap();
    let part = build_part(&node, 40..100, (node.key(40).unwrap(), None), PageId::ZERO, None).unwrap();
    let mut image = Vec::new();
    encode_image(&mut image, &part).unwrap();
    let mut copy = [0xee; PAGE_SIZE];
    apply_image(&mut copy, TableId(7), &image).unwrap();
    assert_eq!(copy[PAGE_HEADER..], part[PAGE_HEADER..]);
    assert_eq!(contents(&copy).len(), 60);
    for cut in 0..image.len().min(80) {
        assert!(apply_image(&mut copy, TableId(7), &image[..cut]).is_err() || cut >= 5);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, Vec<u8>),
    Remove(prop::sample::Index),
    Compact,
}

fn op() -> impl Strategy<Value = Op> {
    let key = prop::collection::vec(0..4_u8, 0..40);
    let value = prop::collection::vec(any::<u8>(), 0..600);
    prop_oneof![
        8 => (key, value).prop_map(|(key, value)| Op::Put(key, value)),
        3 => any::<prop::sample::Index>().prop_map(Op::Remove),
        1 => Just(Op::Compact),
    ]
}

/// A splice equals the replacement by the spliced value, byte for byte of the page, or it is refused and changes
/// nothing.
#[test]
fn a_splice_is_a_replacement() {
    let value: Vec<u8> = (0..100).collect();
    for filled in [0, 40, 60] {
        let mut page = leaf();
        put(&mut page, b"row", &value).unwrap();
        (0..filled).for_each(|n| put(&mut page, &[n], &[n; 90]).unwrap());
        // Garbage is needed so that a longer value requires a rebuild.
        (0..filled / 2).for_each(|_| remove(&mut page, 0).unwrap());
        let at = Node::parse(&page).unwrap().search(b"row").unwrap().unwrap();
        for (prefix, cut, len) in [
            (0, 0, 0),
            (100, 0, 0),
            (10, 5, 5),
            (0, 100, 100),
            (10, 50, 5),
            (10, 5, 50),
            (0, 100, 0),
            (50, 50, 400),
            (0, 0, 900),
        ] {
            let middle = vec![7; len];
            let spliced = Delta::splice(&value, prefix, cut, &middle).unwrap();
            let (mut left, mut right) = (page, page);
            let outcome = splice_value(&mut left, at, header(9), (prefix, cut, &middle));
            assert_eq!(outcome, replace_value(&mut right, at, header(9), &spliced), "{filled}: {prefix} {cut} {len}");
            assert!(left == right, "{filled}: {prefix} {cut} {len}");
        }
        for beyond in [(101, 0), (100, 1), (0, 101), (usize::MAX, 2)] {
            let mut left = page;
            assert!(splice_value(&mut left, at, header(9), (beyond.0, beyond.1, b"x")).is_err(), "{beyond:?}");
            assert!(left == page, "{beyond:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_leaf_is_a_sorted_map(
        ops in prop::collection::vec(op(), 1..120),
        prefix in prop::option::of(prop::collection::vec(any::<u8>(), 0..70)),
        strangers in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 0..20),
    ) {
        let mut page = prefix.as_ref().map_or_else(leaf, |prefix| fenced_leaf(prefix));
        let prefix = prefix.unwrap_or_default();
        let mut model = BTreeMap::new();
        for op in ops {
            match op {
                Op::Put(key, value) => {
                    let key = [&prefix[..], &key].concat();
                    let node = Node::parse(&page).unwrap();
                    let room = match node.search(&key).unwrap() {
                        Ok(at) => node.fits(&node.place(at).unwrap(), value.len()),
                        Err(_) => SLOT + LEAF_HEADER + key.len() + value.len() <= node.free(),
                    };
                    prop_assert_eq!(put(&mut page, &key, &value).is_ok(), room);
                    if room {
                        model.insert(key, value);
                    }
                }
                Op::Remove(index) if !model.is_empty() => {
                    let at = index.index(model.len());
                    remove(&mut page, at).unwrap();
                    let key = model.keys().nth(at).unwrap().clone();
                    model.remove(&key);
                }
                Op::Remove(_) => {}
                Op::Compact => compact(&mut page).unwrap(),
            }
            prop_assert_eq!(&contents(&page), &model);
        }
        let node = Node::parse(&page).unwrap();
        for cut in 0..=prefix.len() {
            for end in [&[][..], &[0], &[3, 3], &[255]].into_iter().chain(strangers.iter().map(|key| &key[..])) {
                let key = [&prefix[..cut], end].concat();
                let place = model.range(..key.clone()).count();
                let expected = if model.contains_key(&key) { Ok(place) } else { Err(place) };
                prop_assert_eq!(node.search(&key), Ok(expected), "{:?}", key);
            }
        }
    }

    /// Keys whose heads are equal, in a leaf whose keys share no known prefix, or one that is shorter.
    #[test]
    fn keys_with_equal_heads_are_found(
        shared in 0..3_usize,
        common in 0..16_usize,
        ends in prop::collection::btree_set(prop::collection::vec(prop::sample::select(&[0, 1, 2, 255][..]), 0..12), 1..90),
        strangers in prop::collection::vec(prop::collection::vec(0..4_u8, 0..12), 0..20),
    ) {
        let mut page = if shared == 0 { leaf() } else { fenced_leaf(&[3].repeat(shared)) };
        let prefix = [3].repeat(shared + common);
        let keys: Vec<Vec<u8>> = ends.iter().map(|end| [&prefix[..], end].concat()).collect();
        for key in &keys {
            put(&mut page, key, b"").unwrap();
        }
        let node = Node::parse(&page).unwrap();
        let all = strangers.iter().flat_map(|end| [[&prefix[..], end].concat(), [&prefix[..shared], end].concat()]);
        for key in keys.iter().cloned().chain(all) {
            prop_assert_eq!(node.search(&key), Ok(keys.binary_search(&key)), "{:?}", key);
        }
    }

    #[test]
    fn hostile_bytes_are_refused_and_never_panic(
        seed in prop::collection::vec((0..4_u8, 0..300_usize), 0..30),
        flips in prop::collection::vec((4..PAGE_SIZE, any::<u8>()), 1..24),
        near in prop::collection::vec((PAGE_HEADER..SLOTS + 64, any::<u8>()), 0..4),
        level in 0..3_u8,
    ) {
        let mut page = leaf();
        for (number, (byte, len)) in seed.into_iter().enumerate() {
            let _ = put(&mut page, &[byte, number as u8], &vec![byte; len]);
        }
        page.set_page_level(level);
        for (at, byte) in flips.into_iter().chain(near) {
            page[at] = byte;
        }
        page.set_page_type(PageType::Tree);
        let Ok(node) = Node::parse(&page) else { return Ok(()) };
        let _ = node.validate();
        for key in [&b""[..], b"\x01\x05", b"\xff"] {
            let _ = (node.search(key), node.low(), node.high());
            if !node.is_leaf() {
                for goal in [Goal::At(key), Goal::Before(key), Goal::End] {
                    let _ = (node.child_toward(goal), node.falls_short_of(goal));
                }
            }
        }
        let mut image = Vec::new();
        let _ = encode_image(&mut image, &page);
        let _ = apply_image(&mut page.clone(), TableId(1), &image);
        for at in 0..4 {
            let _ = remove(&mut page.clone(), at);
            let _ = retain(&mut page.clone(), |entry| entry != at);
            if level == 0 {
                let _ = replace_value(&mut page.clone(), at, header(2), &[1; 700]);
                let _ = replace_value(&mut page.clone(), at, header(2), &[]);
                let _ = set_header(&mut page.clone(), at, header(2));
                let _ = insert_leaf(&mut page.clone(), at, header(2), b"k", &[1; 700]);
            } else {
                let _ = insert_inner(&mut page.clone(), at, b"key", PageId(5));
            }
        }
    }
}

#[test]
fn a_child_is_replaced_where_one_entry_leads_to_it() {
    let mut page = [0; PAGE_SIZE];
    init(&mut page, 1, TableId(7));
    set_leftmost(&mut page, PageId(5));
    for (at, child) in [(0, 6), (1, 7), (2, 6)] {
        insert_inner(&mut page, at, &[at as u8 + 1], PageId(child)).unwrap();
    }
    for (old, refused) in [(6, true), (8, true), (5, false), (7, false)] {
        let before = page;
        let replaced = replace_child(&mut page, PageId(old), PageId(90 + old));
        assert_eq!((replaced.is_err(), page == before), (refused, refused), "child {old}");
    }
    let node = Node::parse(&page).unwrap();
    let children: Vec<_> = (0..3).map(|at| node.child(at).unwrap().0).collect();
    assert_eq!((node.leftmost().unwrap().0, &children[..]), (95, &[6, 97, 6][..]));
}
