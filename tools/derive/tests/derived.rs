//! Derived types encode as tuples of their fields, in the order that derived `Ord` gives.

use foreshore::{Decoder, Error, Key as _, Options, TableDef, Value as _};
use foreshore_derive::{Key, Value};
use proptest::prelude::*;
use std::cmp::Reverse;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key, Value)]
#[foreshore(name = "place")]
struct Place {
    street: String,
    number: u32,
    flat: Option<Reverse<(u8, Vec<u8>)>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key, Value)]
#[foreshore(name = "id")]
struct Id([u8; 4], i64);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key, Value)]
#[foreshore(name = "unit-like")]
struct Unit;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key, Value)]
#[foreshore(name = "event.v2")]
enum Event {
    Begun,
    Moved { from: Place, to: String },
    Ended(Id, bool),
}

fn place() -> impl Strategy<Value = Place> {
    let text = proptest::collection::vec(prop_oneof![Just('\0'), Just('a'), any::<char>()], 0..4)
        .prop_map(|chars| chars.into_iter().collect::<String>());
    let flat = proptest::option::of((any::<u8>(), proptest::collection::vec(0_u8..3, 0..3)).prop_map(Reverse));
    (text, 0_u32..3, flat).prop_map(|(street, number, flat)| Place { street, number, flat })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Begun),
        (place(), "[ab\0]{0,3}").prop_map(|(from, to)| Event::Moved { from, to }),
        (any::<[u8; 4]>(), -2_i64..2, any::<bool>()).prop_map(|(id, number, is)| Event::Ended(Id(id, number), is)),
    ]
}

fn key<K: foreshore::Key>(key: &K::Ref<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    K::encode_key(key, &mut out);
    out
}

proptest! {
    #[test]
    fn byte_order_is_the_derived_order(a in event(), b in event(), c in place(), d in place()) {
        prop_assert_eq!(key::<Event>(&&a).cmp(&key::<Event>(&&b)), a.cmp(&b));
        prop_assert_eq!(key::<Place>(&&c).cmp(&key::<Place>(&&d)), c.cmp(&d));
        prop_assert_eq!(key::<(Place, Event)>(&(&c, &a)).cmp(&key::<(Place, Event)>(&(&d, &b))), (&c, &a).cmp(&(&d, &b)));
    }

    #[test]
    fn what_is_encoded_is_decoded(a in event()) {
        prop_assert_eq!(Event::decode_key(&key::<Event>(&&a)), Some(a.clone()));
        let mut value = Vec::new();
        Event::encode(&&a, &mut value);
        prop_assert_eq!(Event::decode(&value), Some(a.clone()));
        value.push(7);
        prop_assert_eq!(Event::decode(&value), None);
        prop_assert_eq!(Event::decode_part(&mut Decoder::new(&value)), Some(a));
    }

    #[test]
    fn hostile_bytes_decode_to_nothing_or_to_what_encodes_to_them(bytes in proptest::collection::vec(0_u8..4, 0..9)) {
        if let Some(event) = Event::decode_key(&bytes) {
            prop_assert_eq!(key::<Event>(&&event), bytes);
        }
    }
}

#[test]
fn a_struct_encodes_as_the_tuple_of_its_fields() {
    let id = Id(*b"abcd", -1);
    assert_eq!(key::<Id>(&&id), key::<([u8; 4], i64)>(&(*b"abcd", -1)));
    assert_eq!(key::<Unit>(&&Unit), []);
    assert_eq!(key::<Event>(&&Event::Ended(id, true))[0], 2);
    assert_eq!(<(Id, Option<Event>)>::type_name(), "(id,option<event.v2>)");
}

#[test]
fn a_table_opens_with_its_types_alone() {
    const EVENTS: TableDef<Id, Event> = TableDef::new("events");
    let db = Options::in_memory().open("events").unwrap();
    let (id, event) =
        (Id([0; 4], 1), Event::Moved { from: Place { street: "a".into(), number: 1, flat: None }, to: "b".into() });
    db.run(|tx| tx.open(EVENTS)?.insert(&id, &event)).unwrap();
    let reader = db.read();
    let events = reader.open(EVENTS).unwrap();
    assert_eq!(events.keys(&Id([0; 4], 0)..).map(Result::unwrap).next(), Some(id.clone()));
    assert_eq!(events.range(&Id([0; 4], 0)..).collect::<Result<Vec<_>, _>>().unwrap(), [(id, event)]);
    let other = reader.open(TableDef::<Id, Place>::new("events"));
    assert!(matches!(other, Err(Error::TableTypes { .. })));
}
