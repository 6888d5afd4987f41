//! A table behaves as a `BTreeMap`, through commits, rollbacks whole and in part, checkpoints and restarts.

use crate::support::{TEXTS, in_memory, open};
use foreshore::{Db, Error, Savepoint, Transaction};
use foreshore_io::Fs;
use proptest::prelude::*;
use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::Duration};

type Model = BTreeMap<String, String>;

#[derive(Clone, Debug)]
enum Operation {
    Insert(String, String),
    InsertNew(String, String),
    Remove(String),
    RemoveRange(Bound<String>, Bound<String>),
    /// Removes rows with values shorter than this.
    Retain(usize),
    Get(String),
    GetMany(Vec<String>),
    GetForUpdate(String),
    Range(Bound<String>, Bound<String>),
    Savepoint,
    /// To the one of so many before, and that many are kept.
    RollbackTo(usize),
    Commit,
    Rollback,
    Checkpoint,
    Reopen,
}

fn key() -> impl Strategy<Value = String> {
    // Few keys, of very different lengths.
    (0_usize..40, prop_oneof![Just(0_usize), Just(3), Just(300), Just(980)]).prop_map(|(n, pad)| {
        let mut key = format!("{n:02}");
        key.push_str(&"x".repeat(pad));
        key
    })
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![0_usize..20, 200..2000_usize].prop_map(|len| "v".repeat(len))
}

fn bound() -> impl Strategy<Value = Bound<String>> {
    prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded),]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (key(), value()).prop_map(|(key, value)| Operation::Insert(key, value)),
        3 => (key(), value()).prop_map(|(key, value)| Operation::InsertNew(key, value)),
        4 => key().prop_map(Operation::Remove),
        2 => (bound(), bound()).prop_map(|(from, to)| Operation::RemoveRange(from, to)),
        1 => (0_usize..2000).prop_map(Operation::Retain),
        3 => key().prop_map(Operation::Get),
        2 => prop::collection::vec(key(), 0..40).prop_map(Operation::GetMany),
        2 => key().prop_map(Operation::GetForUpdate),
        2 => (bound(), bound()).prop_map(|(from, to)| Operation::Range(from, to)),
        3 => Just(Operation::Savepoint),
        2 => (0_usize..4).prop_map(Operation::RollbackTo),
        3 => Just(Operation::Commit),
        1 => Just(Operation::Rollback),
        1 => Just(Operation::Checkpoint),
        1 => Just(Operation::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_is_a_sorted_map(operations in prop::collection::vec(operation(), 1..200)) {
        let (db, fs) = in_memory();
        let mut run = Run { db: Some(db), fs, committed: Model::new(), current: Model::new() };
        for part in operations.split_inclusive(ends) {
            run.transaction(part);
        }
        run.reopen();
    }
}

const fn ends(operation: &Operation) -> bool {
    matches!(operation, Operation::Commit | Operation::Rollback | Operation::Checkpoint | Operation::Reopen)
}

struct Run {
    db: Option<Db>,
    fs: Arc<dyn Fs>,
    committed: Model,
    current: Model,
}

impl Run {
    fn transaction(&mut self, operations: &[Operation]) {
        let db = self.db.clone().expect("open");
        let tx = db.begin();
        let mut savepoints: Vec<(Savepoint, Model)> = Vec::new();
        for operation in operations {
            match operation {
                Operation::Savepoint => savepoints.push((tx.savepoint().unwrap(), self.current.clone())),
                Operation::RollbackTo(nth) => {
                    let gone = savepoints.split_off(savepoints.len() - nth.min(&savepoints.len().saturating_sub(1)));
                    let Some((savepoint, then)) = savepoints.last() else { continue };
                    tx.rollback_to(savepoint).unwrap();
                    self.current.clone_from(then);
                    for (savepoint, _) in gone {
                        assert!(matches!(tx.rollback_to(&savepoint), Err(Error::NoSavepoint)));
                    }
                }
                operation => apply(&tx, &mut self.current, operation),
            }
        }
        match operations.last() {
            Some(Operation::Rollback) => {
                tx.rollback().unwrap();
                self.current = self.committed.clone();
            }
            _ => {
                tx.commit().unwrap();
                self.committed = self.current.clone();
            }
        }
        match operations.last() {
            Some(Operation::Checkpoint) => db.checkpoint().unwrap(),
            Some(Operation::Reopen) => {
                drop(db);
                self.reopen();
            }
            _ => {}
        }
    }

    fn reopen(&mut self) {
        let db = self.db.take().expect("open");
        db.check().unwrap();
        db.close(Duration::ZERO).unwrap();
        let db = open(&self.fs).unwrap();
        let rows = db.run(|tx| tx.open(TEXTS)?.iter().collect::<Result<Model, Error>>()).unwrap();
        assert_eq!(rows, self.committed);
        let (reader, keys): (_, Vec<&str>) = (db.read(), rows.keys().map(String::as_str).chain(["none"]).collect());
        let found = reader.open(TEXTS).and_then(|table| table.get_many(&keys));
        match found {
            Ok(found) => assert!(found.iter().map(Option::as_ref).eq(rows.values().map(Some).chain([None]))),
            Err(error) => assert!(matches!(error, Error::NoTable { .. }) && rows.is_empty(), "{error}"),
        }
        drop(reader);
        self.db = Some(db);
    }
}

fn is_in(bounds: (Bound<&str>, Bound<&str>), key: &str) -> bool {
    (match bounds.0 {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    }) && (match bounds.1 {
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
        Bound::Unbounded => true,
    })
}

fn apply(tx: &Transaction, model: &mut Model, operation: &Operation) {
    let table = tx.open(TEXTS).unwrap();
    match operation {
        Operation::Insert(key, value) => {
            assert_eq!(table.insert(&**key, &**value).unwrap(), model.insert(key.clone(), value.clone()));
        }
        Operation::InsertNew(key, value) => match table.insert_new(&**key, &**value) {
            Ok(()) => assert_eq!(model.insert(key.clone(), value.clone()), None),
            Err(Error::KeyExists { .. }) => assert!(model.contains_key(key)),
            Err(error) => panic!("{error:?}"),
        },
        Operation::Remove(key) => assert_eq!(table.remove(&**key).unwrap(), model.remove(key)),
        Operation::RemoveRange(from, to) => {
            let bounds = (from.as_ref().map(String::as_str), to.as_ref().map(String::as_str));
            let count = model.len();
            model.retain(|key, _| !is_in(bounds, key));
            assert_eq!(table.remove_range(bounds).unwrap(), (count - model.len()) as u64);
        }
        Operation::Retain(len) => {
            let count = model.len();
            model.retain(|_, value| value.len() >= *len);
            assert_eq!(table.retain(|_, value| value.len() >= *len).unwrap(), (count - model.len()) as u64);
        }
        Operation::Get(key) => assert_eq!(table.get(&**key).unwrap().as_ref(), model.get(key)),
        Operation::GetMany(keys) => {
            let wanted: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            assert_eq!(table.get_many(&keys).unwrap(), wanted);
        }
        Operation::GetForUpdate(key) => assert_eq!(table.get_for_update(&**key).unwrap().as_ref(), model.get(key)),
        Operation::Range(from, to) => {
            let bounds = (from.as_ref().map(String::as_str), to.as_ref().map(String::as_str));
            let found: Vec<_> = table.range(bounds).map(Result::unwrap).collect();
            let mut down: Vec<_> = table.range(bounds).rev().map(Result::unwrap).collect();
            down.reverse();
            assert_eq!(found, down);
            let wanted = model.iter().filter(|(key, _)| is_in(bounds, key));
            let wanted: Vec<_> = wanted.map(|(key, value)| (key.clone(), value.clone())).collect();
            assert_eq!(found, wanted);
        }
        Operation::Savepoint
        | Operation::RollbackTo(_)
        | Operation::Commit
        | Operation::Rollback
        | Operation::Checkpoint
        | Operation::Reopen => {}
    }
}
