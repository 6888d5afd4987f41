//! Values by serde come back as they were, and damaged ones do not.

use foreshore::{Error, Options, TableDef, Value};
use foreshore_serde::{Json, Postcard, Stored};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Empty,
    Circle { radius: f64 },
    Named(BTreeMap<String, Vec<u32>>),
}

impl Stored for Shape {
    const NAME: &str = "shape";
}

fn shapes() -> [Shape; 3] {
    [Shape::Empty, Shape::Circle { radius: 1.5 }, Shape::Named(BTreeMap::from([("é".into(), vec![1, 2, 300])]))]
}

fn round_trip<V: Value<Owned = Shape>>(encode: impl Fn(&Shape, &mut Vec<u8>)) {
    for shape in shapes() {
        let mut bytes = vec![9];
        encode(&shape, &mut bytes);
        assert_eq!(V::decode(&bytes[1..]).as_ref(), Some(&shape), "appended behind what is there");
        assert_eq!(V::decode(&[&bytes[1..], &[1]].concat()), None, "something behind the value");
        assert_eq!(V::decode(&bytes[1..bytes.len() - 1]), None, "cut off");
    }
}

#[test]
fn values_come_back_and_damaged_ones_do_not() {
    round_trip::<Postcard<Shape>>(|shape, out| Postcard::<Shape>::encode(&shape, out));
    round_trip::<Json<Shape>>(|shape, out| Json::<Shape>::encode(&shape, out));
}

#[test]
fn a_table_holds_values_by_serde_with_their_format() {
    const SHAPES: TableDef<u8, Option<Postcard<Shape>>> = TableDef::new("shapes");
    let db = Options::in_memory().open("shapes").unwrap();
    db.run(|tx| {
        let table = tx.open(SHAPES)?;
        let [empty, circle, named] = shapes();
        [Some(&empty), Some(&circle), Some(&named), None].iter().zip(0..).try_for_each(|(shape, n)| table.put(n, shape))
    })
    .unwrap();
    let reader = db.read();
    let found: Vec<_> = reader.open(SHAPES).unwrap().iter().map(|row| row.unwrap().1).collect();
    assert_eq!(found, shapes().map(Some).into_iter().chain([None]).collect::<Vec<_>>());
    let other = reader.open(TableDef::<u8, Option<Json<Shape>>>::new("shapes"));
    assert!(matches!(other, Err(Error::TableTypes { .. })));
}

#[test]
fn floats_come_back_to_the_last_bit() {
    for radius in [31.245270191439438, 121.48791951161945, f64::MIN_POSITIVE, f64::MAX, -0.0] {
        let (shape, mut bytes) = (Shape::Circle { radius }, Vec::new());
        Json::<Shape>::encode(&&shape, &mut bytes);
        let Some(Shape::Circle { radius: found }) = Json::<Shape>::decode(&bytes) else { panic!("{radius}") };
        assert_eq!(found.to_bits(), radius.to_bits(), "{radius}");
    }
}

/// A type with an attribute that formats without names do not bear.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sparse {
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<u8>,
    after: u8,
}

impl Stored for Sparse {
    const NAME: &str = "sparse";
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "a value of type sparse is written as postcard and does not decode")]
fn postcard_without_a_field_is_noticed_in_debug_builds() {
    Postcard::<Sparse>::encode(&&Sparse { before: None, after: 1 }, &mut Vec::new());
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "a value of type shape is written as json and does not decode")]
fn json_without_a_number_is_noticed_in_debug_builds() {
    Json::<Shape>::encode(&&Shape::Circle { radius: f64::NAN }, &mut Vec::new());
}

#[test]
fn json_may_leave_out_a_field() {
    let mut bytes = Vec::new();
    Json::<Sparse>::encode(&&Sparse { before: None, after: 1 }, &mut bytes);
    assert_eq!(bytes, br#"{"after":1}"#);
    assert!(Json::<Sparse>::decode(&bytes).is_some_and(|sparse| sparse.before.is_none()));
}
