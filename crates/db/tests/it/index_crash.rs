//! After a crash at any operation, and after any run of operations and rollbacks, an index agrees with its table.

use crate::indexes::{OwnedUser, PLAIN, USERS, check_indexes};
use crate::script::{Random, disk};
use crate::support::{DIR, POLICIES, in_memory, open, small};
use foreshore::{Db, Error, Options, Savepoint, Transaction};
use foreshore_io::{Fs, Sim};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Rows = BTreeMap<u64, OwnedUser>;

#[derive(Clone, Debug)]
enum Operation {
    Put(u64, OwnedUser),
    InsertNew(u64, OwnedUser),
    Remove(u64),
    RemoveRange(u64, u64),
    PopLast,
    Savepoint,
    RollbackTo(usize),
    DropIndex(&'static str),
    Commit,
    Rollback,
    Reopen,
}

fn user() -> impl Strategy<Value = OwnedUser> {
    let email = prop_oneof![1 => Just(String::new()), 3 => (0..12).prop_map(|n| format!("{n}@x"))];
    let words = prop::collection::vec(prop_oneof![Just("a"), Just("ab"), Just("b")], 0..3);
    (email, 0_u32..3, words.prop_map(|words| words.join(" ")))
}

fn operation() -> impl Strategy<Value = Operation> {
    let id = || 0_u64..12;
    prop_oneof![
        10 => (id(), user()).prop_map(|(id, user)| Operation::Put(id, user)),
        5 => (id(), user()).prop_map(|(id, user)| Operation::InsertNew(id, user)),
        4 => id().prop_map(Operation::Remove),
        1 => (id(), id()).prop_map(|(from, to)| Operation::RemoveRange(from, to)),
        1 => Just(Operation::PopLast),
        3 => Just(Operation::Savepoint),
        3 => (0_usize..3).prop_map(Operation::RollbackTo),
        1 => prop_oneof![Just("by word"), Just("by email")].prop_map(Operation::DropIndex),
        3 => Just(Operation::Commit),
        2 => Just(Operation::Rollback),
        1 => Just(Operation::Reopen),
    ]
}

/// Applies a write to the table and to the model, which have the same answer.
fn apply(tx: &Transaction, rows: &mut Rows, operation: &Operation) {
    let users = tx.open(USERS).unwrap();
    let is_taken = |rows: &Rows, id: u64, email: &str| {
        !email.is_empty() && rows.iter().any(|(&other, user)| other != id && user.0 == *email)
    };
    let refused =
        |result: Result<(), Error>| assert!(matches!(result, Err(Error::IndexKeyExists { .. })), "{result:?}");
    match operation {
        Operation::Put(id, user) => {
            let put = users.put(id, (&*user.0, user.1, &*user.2));
            if is_taken(rows, *id, &user.0) {
                refused(put);
            } else {
                put.unwrap();
                rows.insert(*id, user.clone());
            }
        }
        Operation::InsertNew(id, user) => {
            let inserted = users.insert_new(id, (&*user.0, user.1, &*user.2));
            if rows.contains_key(id) {
                assert!(matches!(inserted, Err(Error::KeyExists { .. })));
            } else if is_taken(rows, *id, &user.0) {
                refused(inserted);
            } else {
                inserted.unwrap();
                rows.insert(*id, user.clone());
            }
        }
        Operation::Remove(id) => assert_eq!(users.remove(id).unwrap(), rows.remove(id)),
        Operation::RemoveRange(from, to) => {
            let before = rows.len();
            rows.retain(|id, _| !(from..to).contains(&id));
            assert_eq!(users.remove_range(from..to).unwrap(), (before - rows.len()) as u64);
        }
        Operation::PopLast => assert_eq!(users.pop_last().unwrap(), rows.pop_last()),
        Operation::DropIndex(index) => assert!(tx.drop_index("users", index).unwrap()),
        _ => unreachable!("it writes no row"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_index_agrees_with_its_table_through_all_rollbacks(operations in prop::collection::vec(operation(), 1..120)) {
        let (mut db, fs) = in_memory();
        let mut committed = Rows::new();
        db.run(|tx| tx.open(USERS).map(drop)).unwrap();
        let ends = |operation: &Operation| matches!(operation, Operation::Commit | Operation::Rollback | Operation::Reopen);
        for part in operations.split_inclusive(ends) {
            let tx = db.begin();
            let mut rows = committed.clone();
            let mut savepoints: Vec<(Savepoint, Rows)> = Vec::new();
            for operation in part {
                match operation {
                    Operation::Savepoint => savepoints.push((tx.savepoint().unwrap(), rows.clone())),
                    Operation::RollbackTo(nth) => {
                        savepoints.truncate(savepoints.len().saturating_sub(*nth));
                        let Some((savepoint, then)) = savepoints.last() else { continue };
                        tx.rollback_to(savepoint).unwrap();
                        rows.clone_from(then);
                        prop_assert_eq!(&check_indexes(&tx.open(USERS).unwrap()).unwrap(), &rows);
                    }
                    operation if ends(operation) => {}
                    operation => apply(&tx, &mut rows, operation),
                }
            }
            prop_assert_eq!(&check_indexes(&tx.open(USERS).unwrap()).unwrap(), &rows);
            if matches!(part.last(), Some(Operation::Rollback)) {
                tx.rollback().unwrap();
            } else {
                tx.commit().unwrap();
                committed = rows;
            }
            let reader = db.read();
            if let Ok(index) = reader.open(PLAIN).unwrap().by_index(crate::indexes::BY_CITY) {
                prop_assert_eq!(index.check().unwrap(), committed.len() as u64);
            }
            drop(reader);
            if matches!(part.last(), Some(Operation::Reopen)) {
                db.check().unwrap();
                db.close(Duration::from_secs(10)).unwrap();
                db = open(&fs).unwrap();
            }
        }
        let tx = db.begin();
        prop_assert_eq!(check_indexes(&tx.open(USERS).unwrap()).unwrap(), committed);
    }
}

fn options(sim: &Sim, seed: u64) -> Options {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    small().lab(|lab| {
        lab.background = false;
        lab.fs = Some(fs);
        lab.step_seed = seed;
    })
}

/// The rows after each commit, and how many operations the disk had done when it was acknowledged.
type History = Vec<(u64, Rows)>;

/// Runs transactions that write, build, drop and roll back.
fn script(db: &Db, sim: &Sim, seed: u64) -> History {
    let mut random = Random(seed);
    let mut rows = Rows::new();
    db.run(|tx| {
        let users = tx.open(PLAIN)?;
        (0..30).try_for_each(|id| users.put(id, (&*format!("{id}@x"), id as u32 % 3, "a b")))
    })
    .unwrap();
    rows.extend((0..30).map(|id| (id, (format!("{id}@x"), id as u32 % 3, "a b".to_owned()))));
    let mut history = vec![(sim.ops(), rows.clone())];
    for n in 0..20 {
        let tx = db.begin();
        let mut after = rows.clone();
        for _ in 0..1 + random.below(4) {
            let id = random.below(40);
            let savepoint = tx.savepoint().unwrap();
            let before = after.clone();
            let user =
                (format!("{}@x", random.below(60)), random.below(3) as u32, "b ".repeat(random.below(3) as usize));
            let operation = match random.below(5) {
                0 => Operation::Remove(id),
                1 => Operation::InsertNew(id, user),
                _ => Operation::Put(id, user),
            };
            apply(&tx, &mut after, &operation);
            if random.below(4) == 0 {
                tx.rollback_to(&savepoint).unwrap();
                after = before;
            }
        }
        if n % 6 == 3 {
            tx.drop_index("users", ["by email", "by city", "by word"][random.below(3) as usize]).unwrap();
        }
        if random.below(4) == 0 {
            tx.rollback().unwrap();
        } else {
            tx.commit().unwrap();
            rows = after;
            history.push((sim.ops(), rows.clone()));
        }
        (0..random.below(6)).for_each(|_| db.step());
    }
    history
}

#[test]
fn power_loss_at_any_operation_leaves_index_and_table_alike() {
    for seed in 1..3 {
        let sim = disk(seed);
        let db = options(&sim, seed).open(DIR).unwrap();
        let history = script(&db, &sim, seed);
        db.close(Duration::from_secs(10)).unwrap();
        let mut points = sim.crash_points();
        let mut images = 0;
        loop {
            let op = points.op();
            if op >= history[0].0 {
                let policy = &POLICIES[images % POLICIES.len()];
                images += 1;
                let lost = points.image(policy, op);
                let db = options(&lost, op).open(DIR).unwrap_or_else(|error| panic!("open after {op}: {error}"));
                let last = history.iter().rposition(|(at, _)| *at <= op).unwrap_or(0);
                // Also builds what the lost transactions have dropped, or not yet built.
                let rows =
                    db.run(|tx| check_indexes(&tx.open(USERS)?)).unwrap_or_else(|error| panic!("after {op}: {error}"));
                assert!(history[last..].iter().take(2).any(|(_, known)| *known == rows), "other rows after {op}");
                db.check().unwrap_or_else(|error| panic!("check after {op}: {error}"));
            }
            if !points.advance() {
                break;
            }
        }
        assert!(images > 50, "{images} images");
    }
}
