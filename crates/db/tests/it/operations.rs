//! All operations of a table together behave as those of a `BTreeMap`, at each isolation level, through savepoints,
//! while a reader beside them sees only whole transactions.

use crate::support::{SetOnDrop, in_memory};
use foreshore::{Db, Error, Isolation, Savepoint, Table, TableDef, Transaction, TxnOptions};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const ROWS: TableDef<u16, Vec<u8>> = TableDef::new("rows");

type Model = BTreeMap<u16, Vec<u8>>;
type Bounds = (Bound<u16>, Bound<u16>);

#[derive(Clone, Debug)]
enum Operation {
    Put(u16, Vec<u8>),
    Insert(u16, Vec<u8>),
    InsertNew(u16, Vec<u8>),
    Remove(u16),
    /// Makes the value longer by a byte, or removes the row if it is that long.
    UpdateWith(u16, usize),
    OrInsert(u16, Vec<u8>),
    AndModify(u16, u8),
    RemoveEntry(u16),
    Contains(u16),
    Ends,
    PopFirst(usize),
    PopLast(usize),
    Keys(Bounds),
    Count(Bounds),
    RemoveRange(Bounds),
    /// Of the keys that leave this remainder, so many.
    Extract(Bounds, u16, usize),
    Retain(u16),
    Clear,
    Walk(Vec<Move>),
    Savepoint,
    RollbackTo(usize),
    Commit,
    Rollback,
}

#[derive(Clone, Debug)]
enum Move {
    Next(usize),
    Prev(usize),
    Seek(u16),
    SeekBack(u16),
    /// Writes between two moves.
    Put(u16),
    Remove(u16),
}

fn key() -> impl Strategy<Value = u16> {
    0_u16..80
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    (prop_oneof![Just(0_usize), 1_usize..20, 200..2000_usize], any::<u8>()).prop_map(|(len, byte)| vec![byte; len])
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let bound =
        || prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded)];
    (bound(), bound())
}

fn step() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => (1_usize..30).prop_map(Move::Next),
        4 => (1_usize..30).prop_map(Move::Prev),
        2 => key().prop_map(Move::Seek),
        2 => key().prop_map(Move::SeekBack),
        1 => key().prop_map(Move::Put),
        1 => key().prop_map(Move::Remove),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let changes = prop_oneof![
        10 => (key(), value()).prop_map(|(key, value)| Operation::Put(key, value)),
        2 => (key(), value()).prop_map(|(key, value)| Operation::Insert(key, value)),
        2 => (key(), value()).prop_map(|(key, value)| Operation::InsertNew(key, value)),
        2 => key().prop_map(Operation::Remove),
        2 => (key(), 0_usize..30).prop_map(|(key, most)| Operation::UpdateWith(key, most)),
        2 => (key(), value()).prop_map(|(key, value)| Operation::OrInsert(key, value)),
        2 => (key(), any::<u8>()).prop_map(|(key, byte)| Operation::AndModify(key, byte)),
        1 => key().prop_map(Operation::RemoveEntry),
        2 => (1_usize..9).prop_map(Operation::PopFirst),
        2 => (1_usize..9).prop_map(Operation::PopLast),
        1 => bounds().prop_map(Operation::RemoveRange),
        1 => (bounds(), 0_u16..3, 1_usize..40).prop_map(|(bounds, rest, most)| Operation::Extract(bounds, rest, most)),
        1 => (0_u16..3).prop_map(Operation::Retain),
    ];
    prop_oneof![
        30 => changes,
        2 => key().prop_map(Operation::Contains),
        1 => Just(Operation::Ends),
        2 => bounds().prop_map(Operation::Keys),
        2 => bounds().prop_map(Operation::Count),
        2 => prop::collection::vec(step(), 1..8).prop_map(Operation::Walk),
        3 => Just(Operation::Savepoint),
        2 => (0_usize..4).prop_map(Operation::RollbackTo),
        3 => Just(Operation::Commit),
        1 => Just(Operation::Rollback),
        1 => Just(Operation::Clear),
    ]
}

/// States of the table, in the order in which they are committed. The last one may not be committed yet.
type States = Mutex<Vec<Model>>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_has_the_operations_of_a_sorted_map(operations in prop::collection::vec(operation(), 1..150)) {
        let (db, _) = in_memory();
        db.run(|tx| tx.open(ROWS).map(drop)).unwrap();
        let (states, is_over) = (Mutex::new(vec![Model::new()]), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    read(&db, &states);
                }
            });
            let over = SetOnDrop(&is_over);
            let is_end = |operation: &Operation| matches!(operation, Operation::Commit | Operation::Rollback);
            for (number, part) in operations.split_inclusive(is_end).enumerate() {
                transaction(&db, &states, number, part);
            }
            drop(over);
            reader.join().unwrap();
        });
        db.check().unwrap();
    }
}

/// Reads a snapshot, which is one of the states from the last one that was committed before.
fn read(db: &Db, states: &States) {
    let before = states.lock().unwrap().len().saturating_sub(2);
    let reader = db.read();
    let table = reader.open(ROWS).unwrap();
    let (count, rows) = (table.len().unwrap(), table.iter().collect::<Result<Model, _>>().unwrap());
    assert_eq!((count, table.is_empty().unwrap()), (rows.len() as u64, rows.is_empty()));
    assert_eq!(
        table.keys(..).rev().map(Result::unwrap).collect::<Vec<_>>(),
        rows.keys().rev().copied().collect::<Vec<_>>()
    );
    assert!(states.lock().unwrap()[before..].contains(&rows), "no state of the table");
}

fn transaction(db: &Db, states: &States, number: usize, operations: &[Operation]) {
    let level = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted][number % 3];
    let tx = db.begin_with(TxnOptions::new().isolation(level));
    let mut model = states.lock().unwrap().last().unwrap().clone();
    let mut savepoints: Vec<(Savepoint, Model)> = Vec::new();
    for operation in operations {
        match operation {
            Operation::Savepoint => savepoints.push((tx.savepoint().unwrap(), model.clone())),
            Operation::RollbackTo(nth) => {
                savepoints.truncate(savepoints.len() - nth.min(&savepoints.len().saturating_sub(1)));
                let Some((savepoint, then)) = savepoints.last() else { continue };
                tx.rollback_to(savepoint).unwrap();
                model.clone_from(then);
            }
            operation => apply(&tx, &mut model, operation),
        }
    }
    let table = tx.open(ROWS).unwrap();
    assert_eq!(table.iter().collect::<Result<Model, _>>().unwrap(), model);
    assert_eq!(table.len().unwrap(), model.len() as u64);
    if matches!(operations.last(), Some(Operation::Rollback)) {
        tx.rollback().unwrap();
    } else {
        states.lock().unwrap().push(model);
        tx.commit().unwrap();
    }
}

fn apply(tx: &Transaction, model: &mut Model, operation: &Operation) {
    let table = tx.open(ROWS).unwrap();
    match operation {
        Operation::Put(..)
        | Operation::Insert(..)
        | Operation::InsertNew(..)
        | Operation::Remove(_)
        | Operation::UpdateWith(..)
        | Operation::OrInsert(..)
        | Operation::AndModify(..)
        | Operation::RemoveEntry(_) => change(&table, model, operation),
        Operation::PopFirst(count) => {
            (0..*count).for_each(|_| assert_eq!(table.pop_first().unwrap(), model.pop_first()));
        }
        Operation::PopLast(count) => {
            (0..*count).for_each(|_| assert_eq!(table.pop_last().unwrap(), model.pop_last()));
        }
        Operation::RemoveRange(bounds) => {
            let before = model.len();
            model.retain(|key, _| !is_in(bounds, *key));
            assert_eq!(table.remove_range(*bounds).unwrap(), (before - model.len()) as u64);
        }
        Operation::Extract(bounds, rest, most) => {
            let is_wanted = |key: u16| is_in(bounds, key) && key % 3 == *rest;
            let wanted: Vec<_> = model.keys().copied().filter(|key| is_wanted(*key)).take(*most).collect();
            let found: Vec<_> =
                table.extract_if(*bounds, |key, _| key % 3 == *rest).take(*most).map(Result::unwrap).collect();
            assert_eq!(found, wanted.iter().map(|key| (*key, model[key].clone())).collect::<Vec<_>>());
            wanted.iter().for_each(|key| drop(model.remove(key)));
        }
        Operation::Retain(rest) => {
            let before = model.len();
            model.retain(|key, _| key % 3 != *rest);
            assert_eq!(table.retain(|key, _| key % 3 != *rest).unwrap(), (before - model.len()) as u64);
        }
        Operation::Clear => {
            assert_eq!(table.clear().unwrap(), model.len() as u64);
            model.clear();
        }
        Operation::Contains(key) => assert_eq!(table.contains(key).unwrap(), model.contains_key(key)),
        Operation::Ends => {
            let owned = |row: Option<(&u16, &Vec<u8>)>| row.map(|(key, value)| (*key, value.clone()));
            assert_eq!(table.first().unwrap(), owned(model.first_key_value()));
            assert_eq!(table.last().unwrap(), owned(model.last_key_value()));
            assert_eq!(table.is_empty().unwrap(), model.is_empty());
        }
        Operation::Keys(bounds) => {
            let wanted: Vec<_> = model.keys().copied().filter(|key| is_in(bounds, *key)).collect();
            assert_eq!(table.keys(*bounds).collect::<Result<Vec<_>, _>>().unwrap(), wanted);
        }
        Operation::Count(bounds) => {
            let wanted = model.keys().filter(|key| is_in(bounds, **key)).count();
            assert_eq!(table.count(*bounds).unwrap(), wanted as u64);
        }
        Operation::Walk(moves) => walk(&table, model, moves),
        Operation::Savepoint | Operation::RollbackTo(_) | Operation::Commit | Operation::Rollback => {}
    }
}

/// Changes of one row.
fn change(table: &Table<'_, u16, Vec<u8>>, model: &mut Model, operation: &Operation) {
    match operation {
        Operation::Put(key, value) => {
            table.put(key, &value[..]).unwrap();
            model.insert(*key, value.clone());
        }
        Operation::Insert(key, value) => {
            assert_eq!(table.insert(key, &value[..]).unwrap(), model.insert(*key, value.clone()));
        }
        Operation::InsertNew(key, value) => match table.insert_new(key, &value[..]) {
            Ok(()) => assert_eq!(model.insert(*key, value.clone()), None),
            Err(Error::KeyExists { .. }) => assert!(model.contains_key(key)),
            Err(error) => panic!("{error:?}"),
        },
        Operation::Remove(key) => assert_eq!(table.remove(key).unwrap(), model.remove(key)),
        Operation::UpdateWith(key, most) => {
            let longer = |old: Option<Vec<u8>>| {
                let mut value = old.unwrap_or_default();
                value.push(7);
                (value.len() <= *most).then_some(value)
            };
            let wanted = longer(model.remove(key));
            assert_eq!(table.update_with(key, longer).unwrap(), wanted);
            model.extend(wanted.map(|value| (*key, value)));
        }
        Operation::OrInsert(key, value) => {
            let found = table.entry(key).unwrap().or_insert(value.clone()).unwrap();
            assert_eq!(&found, model.entry(*key).or_insert_with(|| value.clone()));
        }
        Operation::AndModify(key, byte) => {
            let modify = |value: &mut Vec<u8>| value.first_mut().into_iter().for_each(|first| *first = *byte);
            let entry = table.entry(key).unwrap().and_modify(modify).unwrap();
            if let Some(value) = model.get_mut(key) {
                modify(value);
            }
            assert_eq!(entry.get(), model.get(key));
        }
        Operation::RemoveEntry(key) => assert_eq!(table.entry(key).unwrap().remove().unwrap(), model.remove(key)),
        operation => unreachable!("{operation:?} changes no single row"),
    }
}

/// Moves a cursor, and a position in the model.
fn walk(table: &Table<'_, u16, Vec<u8>>, model: &mut Model, moves: &[Move]) {
    let mut cursor = table.cursor();
    let check = |model: &Model, found: Option<(u16, Vec<u8>)>, wanted: Option<u16>, none: i32| {
        assert_eq!(found, wanted.map(|key| (key, model[&key].clone())));
        wanted.map_or(none, i32::from)
    };
    // Before all keys, at one, or behind all.
    let (begin, end) = (-1, i32::from(u16::MAX) + 1);
    let mut place = begin;
    for step in moves {
        match step {
            Move::Next(count) => (0..*count).for_each(|_| {
                let wanted = model.keys().copied().find(|&key| i32::from(key) > place);
                place = check(model, cursor.next().unwrap(), wanted, end);
            }),
            Move::Prev(count) => (0..*count).for_each(|_| {
                let wanted = model.keys().rev().copied().find(|&key| i32::from(key) < place);
                place = check(model, cursor.prev().unwrap(), wanted, begin);
            }),
            Move::Seek(key) => {
                let wanted = model.range(key..).next().map(|(key, _)| *key);
                place = check(model, cursor.seek(key).unwrap(), wanted, end);
            }
            Move::SeekBack(key) => {
                let wanted = model.range(..=key).next_back().map(|(key, _)| *key);
                place = check(model, cursor.seek_back(key).unwrap(), wanted, begin);
            }
            Move::Put(key) => {
                table.put(key, &b"walked"[..]).unwrap();
                model.insert(*key, b"walked".to_vec());
            }
            Move::Remove(key) => assert_eq!(table.remove(key).unwrap(), model.remove(key)),
        }
    }
}

fn is_in(bounds: &Bounds, key: u16) -> bool {
    std::ops::RangeBounds::contains(bounds, &key)
}
