//! The rows of the fixtures of format 1. One function gives them to the writer of a fixture and to its reader.
//!
//! A fixture has the tables of [`begin`], after so many stages of changes.

use foreshore::{Db, Error, IndexDef, Key, MergeDef, ReadTransaction, TableDef, Timestamp, Transaction, Uuid, Value};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

type Person = (&'static str, u32);
const BY_NAME: IndexDef<u64, Person, &str> =
    IndexDef::unique("by name", |_, person: &(String, u32), keys| keys.add(person.0.as_str())).version(7);
const BY_AGE: IndexDef<u64, Person, u32> =
    IndexDef::new("by age", |_, person: &(String, u32), keys| keys.add(person.1));
const FORMER: TableDef<u64, Person> = TableDef::new("former name").with_indexes(&[&BY_NAME, &BY_AGE]);
const PEOPLE: TableDef<u64, Person> = TableDef::new("people").with_indexes(&[&BY_NAME, &BY_AGE]);
const PERSONS: u64 = 30;

pub(crate) const NUMBERS: TableDef<u64, i64> = TableDef::new("numbers");
const LOADED: TableDef<u64, &str> = TableDef::new("loaded");
pub(crate) const LARGE: TableDef<u64, &[u8]> = TableDef::new("large");
const QUEUE: TableDef<u64, u64> = TableDef::new("queue");
const SUM: MergeDef<i64> = MergeDef::new(|old, operand| old.unwrap_or(0) + operand);
const COUNTERS: TableDef<&str, i64> = TableDef::new("counters").with_merge(&SUM);
const NUMBERED: TableDef<u64, u64> = TableDef::new("numbered");
/// Rows that the transaction in doubt changes and locks.
pub(crate) const PLEDGES: TableDef<u64, &str> = TableDef::new("pledges");
pub(crate) const DROPPED: TableDef<u64, u64> = TableDef::new("dropped");

/// Lengths around those at which a value gets pages of its own, and more of them.
const LENGTHS: [usize; 7] = [0, 1, 2048, 2049, 8136, 8137, 17_000];

/// A value that is not all zeros, and packs well.
pub(crate) fn large(len: usize) -> Vec<u8> {
    (0..len).map(|at| if at % 500 == 0 || at + 1 == len { (at / 500) as u8 + 1 } else { 0 }).collect()
}

fn person(n: u64) -> (String, u32) {
    (format!("name {}", n * 7 % PERSONS), (n % 4) as u32)
}

/// What a stage writes to the table of numbers before it removes a range.
fn written(stage: u64) -> impl Iterator<Item = (u64, i64)> {
    let is_written = move |n: &u64| stage == 0 || n.is_multiple_of(5 + stage);
    (0..320 + 20 * stage).filter(is_written).map(move |n| (n, (n * n) as i64 - 5000 * stage as i64))
}

fn removed(stage: u64) -> Range<u64> {
    stage * 37..stage * 37 + 20
}

fn numbers(stage: u64) -> Vec<(u64, i64)> {
    let mut rows = BTreeMap::new();
    for stage in 0..=stage {
        rows.extend(written(stage));
        rows.retain(|n, _| !removed(stage).contains(n));
    }
    rows.into_iter().collect()
}

/// Is shown the rows of one table after the other.
trait Visit {
    fn table<K: Key + 'static, V: Value + 'static>(&mut self, name: &str, rows: &[(K::Owned, V::Owned)]);
}

/// Writes the rows.
struct Fill<'tx>(&'tx Transaction);

impl Visit for Fill<'_> {
    fn table<K: Key + 'static, V: Value + 'static>(&mut self, name: &str, rows: &[(K::Owned, V::Owned)]) {
        let table = self.0.open(TableDef::<K, V>::new(name)).unwrap();
        rows.iter().for_each(|(key, value)| table.put(K::to_ref(key), V::to_ref(value)).unwrap());
    }
}

/// Reads rows, and compares them as values and as bytes.
struct Check<'tx>(&'tx ReadTransaction);

impl Visit for Check<'_> {
    fn table<K: Key + 'static, V: Value + 'static>(&mut self, name: &str, rows: &[(K::Owned, V::Owned)]) {
        same(name, self.0.open(TableDef::<K, V>::new(name)).unwrap().iter(), rows);
        let encoded = rows.iter().map(|(key, value)| {
            let (mut key_bytes, mut value_bytes) = (Vec::new(), Vec::new());
            K::encode_key(&K::to_ref(key), &mut key_bytes);
            V::encode(&V::to_ref(value), &mut value_bytes);
            (key_bytes, value_bytes)
        });
        same(name, self.0.open_raw(name).unwrap().iter(), &encoded.collect::<Vec<_>>());
    }
}

/// Compares what is found with what is expected. Not all values are equal to themselves.
fn same<T: Debug>(name: &str, found: impl Iterator<Item = Result<T, Error>>, expected: &[T]) {
    let found: Vec<_> = found.collect::<Result<_, _>>().unwrap();
    assert!(format!("{found:?}") == format!("{expected:?}"), "table {name} has {} rows: {found:?}", found.len());
}

/// For each type, a table with it as key and as value, and one with it as a part of both.
macro_rules! types {
    ($visit:ident: $($name:literal $type:ty = $rows:expr;)*) => {$({
        let rows: Vec<<$type as Value>::Owned> = $rows.into();
        let whole: Vec<_> = rows.iter().map(|row| (row.clone(), row.clone())).collect();
        $visit.table::<$type, $type>($name, &whole);
        let parts: Vec<_> = rows.iter().map(|row| ((row.clone(), 7), (row.clone(), 8))).collect();
        $visit.table::<($type, u8), ($type, u8)>(concat!($name, " as part"), &parts);
    })*};
}

fn strings<const N: usize>(strings: [&str; N]) -> Vec<String> {
    strings.map(str::to_owned).into()
}

fn time(secs: i64, nanos: u32) -> Timestamp {
    Timestamp::new(secs, nanos).unwrap()
}

/// Every type of keys and values that the crate has, with rows in the order of their keys.
fn simple_types(visit: &mut impl Visit) {
    types! { visit:
        "u8" u8 = [0, 1, u8::MAX];
        "u16" u16 = [0, 0x0102, u16::MAX];
        "u32" u32 = [0, 0x0102_0304, u32::MAX];
        "u64" u64 = [0, 0x0102_0304_0506_0708, u64::MAX];
        "u128" u128 = [0, 1 << 100, u128::MAX];
        "i8" i8 = [i8::MIN, -1, 0, i8::MAX];
        "i16" i16 = [i16::MIN, -1, 0, i16::MAX];
        "i32" i32 = [i32::MIN, -1, 0, i32::MAX];
        "i64" i64 = [i64::MIN, -1, 0, i64::MAX];
        "i128" i128 = [i128::MIN, -1, 0, i128::MAX];
        "f32" f32 = [f32::NEG_INFINITY, -1.5, -0.0, 0.0, 1.5, f32::INFINITY, f32::NAN.abs()];
        "f64" f64 = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 1.5, f64::INFINITY, f64::NAN.abs()];
        "bool" bool = [false, true];
        "char" char = ['\0', 'a', 'é', char::MAX];
        "str" &'static str = strings(["", "\0", "a", "a\0b", "ab", "é"]);
        "string" String = strings(["", "\0", "a", "é"]);
        "slice" &'static [u8] = [vec![], vec![0], vec![0, 255], vec![1], vec![255, 255]];
        "vector" Vec<u8> = [vec![], vec![0], vec![255]];
        "array" [u8; 3] = [[0, 0, 1], [0, 1, 0]];
        "uuid" Uuid = [Uuid([0; 16]), Uuid(*b"sixteen bytes...")];
        "time" Timestamp = [time(-1, 999_999_999), time(0, 0), time(i64::MAX, 5)];
        "duration" Duration = [Duration::ZERO, Duration::new(1, 2), Duration::MAX];
    }
}

fn nested_types(visit: &mut impl Visit) {
    let text = || "t\0u".to_owned();
    types! { visit:
        "option" Option<u64> = [None, Some(0), Some(u64::MAX)];
        "option of str" Option<&'static str> = [None, Some(String::new()), Some(text())];
        "reverse" Reverse<i32> = [Reverse(1), Reverse(-1)];
        "reverse of str" Reverse<&'static str> = [Reverse("b".to_owned()), Reverse("a".to_owned())];
        "tuple of 1" (u8,) = [(1,), (2,)];
        "tuple of 2" (&'static str, u8) = [(text(), 1), (text(), 2)];
        "tuple of 3" (u8, &'static str, &'static [u8]) = [(1, text(), vec![0]), (1, text(), vec![0, 0])];
        "tuple of 4" (u8, u8, u8, u8) = [(1, 2, 3, 4)];
        "tuple of 5" (u8, u8, u8, u8, bool) = [(1, 2, 3, 4, true)];
        "tuple of 6" (u8, u8, u8, u8, u8, char) = [(1, 2, 3, 4, 5, 'x')];
        "tuple of 7" (u8, u8, u8, u8, u8, u8, i8) = [(1, 2, 3, 4, 5, 6, -7)];
        "tuple of 8" (u8, u8, u8, u8, u8, u8, u8, Option<(u8, &'static str)>) =
            [(1, 2, 3, 4, 5, 6, 7, None), (1, 2, 3, 4, 5, 6, 7, Some((8, text())))];
    }
    visit.table::<u8, ()>("unit", &[(1, ()), (2, ())]);
}

/// Creates the tables, of which the stages change some.
fn begin(tx: &Transaction) -> Result<(), Error> {
    simple_types(&mut Fill(tx));
    nested_types(&mut Fill(tx));
    let people = tx.open(FORMER)?;
    (0..PERSONS).try_for_each(|n| people.put(n, (&*person(n).0, person(n).1)))?;
    let large_values = tx.open(LARGE)?;
    LENGTHS.iter().try_for_each(|&len| large_values.put(len as u64, &large(len)[..]))?;
    let queue = tx.open(QUEUE)?;
    (0..9).try_for_each(|n| queue.put(n, n * n))?;
    let pledges = tx.open(PLEDGES)?;
    (0..10).try_for_each(|n| pledges.put(n, "free"))?;
    tx.open(DROPPED)?.put(1, 2)
}

/// Makes the changes of a stage, the first of which creates the tables.
pub(crate) fn apply(db: &Db, stage: u64) {
    if stage == 0 {
        db.run(begin).unwrap();
        db.run(|tx| tx.open(LOADED)?.load((0..220).map(|n| (n, "row"))).map(drop)).unwrap();
        assert!(db.run(|tx| tx.rename_table("former name", "people")).unwrap());
        let number = |tx: &Transaction| tx.next_id(&tx.open(NUMBERED)?);
        assert_eq!(db.run(number).unwrap(), 1);
        assert!(db.run(|tx| tx.clear_table("numbered")).unwrap());
        assert_eq!(db.run(number).unwrap(), 2);
    }
    db.run(|tx| change(tx, stage)).unwrap();
}

/// Makes the changes of a stage in existing tables.
pub(crate) fn change(tx: &Transaction, stage: u64) -> Result<(), Error> {
    let numbers = tx.open(NUMBERS)?;
    written(stage).try_for_each(|(n, number)| numbers.put(n, number))?;
    numbers.remove_range(removed(stage))?;
    let large_values = tx.open(LARGE)?;
    large_values.put(1_000_000, &large(9000 + stage as usize)[..])?;
    tx.open(COUNTERS)?.merge("stages", stage as i64)?;
    tx.open(QUEUE)?.pop_first().map(drop)
}

/// Checks all rows and indexes of a database after the last of so many stages.
pub(crate) fn check(db: &Db, stage: u64) {
    db.check().unwrap();
    let reader = db.read();
    simple_types(&mut Check(&reader));
    nested_types(&mut Check(&reader));
    let mut visit = Check(&reader);
    visit.table::<u64, i64>("numbers", &numbers(stage));
    visit.table::<u64, &'static str>("loaded", &(0..220).map(|n| (n, "row".to_owned())).collect::<Vec<_>>());
    let mut values: Vec<_> = LENGTHS.iter().map(|&len| (len as u64, large(len))).collect();
    values.push((1_000_000, large(9000 + stage as usize)));
    visit.table::<u64, &'static [u8]>("large", &values);
    visit.table::<u64, u64>("queue", &(stage + 1..9).map(|n| (n, n * n)).collect::<Vec<_>>());
    visit.table::<&'static str, i64>("counters", &[("stages".to_owned(), (0..=stage as i64).sum())]);
    let people = reader.open(PEOPLE).unwrap();
    same("people", people.iter(), &(0..PERSONS).map(|n| (n, person(n))).collect::<Vec<_>>());
    let by_name = people.by_index(BY_NAME).unwrap();
    let by_age = people.by_index(BY_AGE).unwrap();
    assert_eq!((by_name.check().unwrap(), by_age.check().unwrap()), (PERSONS, PERSONS));
    assert!((0..PERSONS).all(|n| by_name.get(&*person(n).0).unwrap() == Some((n, person(n)))));
    assert_eq!(by_age.range(3..=3).count() as u64, (0..PERSONS).filter(|n| n % 4 == 3).count() as u64);
    assert!(!reader.tables().unwrap().iter().any(|table| table.name == "former name"));
}

/// Writes to a database after the last of so many stages: the next one, and numbers that were not drawn before.
pub(crate) fn go_on(db: &Db, stage: u64) {
    apply(db, stage + 1);
    let number = db.run(|tx| tx.next_id(&tx.open(NUMBERED)?)).unwrap();
    assert!((3..5000).contains(&number), "{number}");
    db.run(|tx| tx.open(PEOPLE)?.put(PERSONS, ("another", 9))).unwrap();
    db.run(|tx| tx.open(PEOPLE)?.remove(PERSONS).map(drop)).unwrap();
    check(db, stage + 1);
}
