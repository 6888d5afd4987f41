//! Errors that others caused name them: by label, by the name of the table, and by the key.

use crate::support::{NUMBERS, TEXTS, fill, in_memory};
use foreshore::{Error, Isolation, Key, Lockable, RowLock, TableDef, TxnOptions, Value};
use std::{sync::Barrier, time::Duration};

fn number(key: u64) -> Vec<u8> {
    let mut encoded = Vec::new();
    <u64 as Key>::encode_key(&key, &mut encoded);
    encoded
}

fn text(key: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    <&str as Key>::encode_key(&key, &mut encoded);
    encoded
}

fn row(what: &Lockable) -> (Option<&str>, &[u8]) {
    let Lockable::Row(table, key) = what else { panic!("{what}") };
    (table.name.as_deref(), key)
}

#[test]
fn a_wait_for_the_creation_of_a_table_tells_of_it_and_of_a_missing_label() {
    let (db, _) = in_memory();
    let creator = db.begin();
    creator.open(TableDef::<u64, u64>::new("one")).unwrap();
    let short = TxnOptions::new().lock_timeout(Duration::from_millis(20));
    let open = || db.run_with(short, |tx| tx.open(TableDef::<u64, u64>::new("another")).map(drop));
    let refused = std::thread::scope(|scope| scope.spawn(open).join().unwrap());
    let Err(error @ Error::LockTimeout { .. }) = refused else { panic!("{refused:?}") };
    let told = error.to_string();
    for part in ["the list of tables", "creates or drops one", "held by a transaction without a label"] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn a_deadlock_names_all_waiters_and_their_locks() {
    let (db, _) = in_memory();
    fill(&db, 2);
    db.run(|tx| tx.open(TEXTS)?.insert("one", "").map(drop)).unwrap();
    let both_have_one = Barrier::new(2);
    let failed = std::thread::scope(|scope| {
        let threads = ["numbers first", "texts first"].map(|label| {
            let (db, both_have_one) = (&db, &both_have_one);
            scope.spawn(move || -> Result<(), Error> {
                let tx = db.begin_with(TxnOptions::new().label(label));
                let (numbers, texts) = (tx.open(NUMBERS)?, tx.open(TEXTS)?);
                let (number, text) = (|| numbers.insert(1, 5).map(drop), || texts.insert("one", "x").map(drop));
                if label == "numbers first" { number() } else { text() }?;
                both_have_one.wait();
                if label == "numbers first" { text() } else { number() }?;
                tx.commit().map(drop)
            })
        });
        threads.map(|thread| thread.join().unwrap().err())
    });
    let victim = failed.iter().position(Option::is_some).expect("one of them has to go");
    let [Some(Error::Deadlock { cycle }), None] = [&failed[victim], &failed[1 - victim]] else { panic!("{failed:?}") };
    let found: Vec<_> = cycle.iter().map(|waiter| (waiter.label, row(&waiter.waits_for))).collect();
    let (number, text) = (number(1), text("one"));
    let mut expected = [("numbers first", (Some("texts"), &text[..])), ("texts first", (Some("numbers"), &number[..]))];
    expected.rotate_left(victim);
    assert_eq!(found, expected, "from the victim on");
    let told = failed[victim].as_ref().unwrap().to_string();
    for part in
        ["\"numbers first\" waits for table \"texts\" key \"one\"", "\"texts first\" waits for table \"numbers\" key 1"]
    {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn refusals_name_the_table_and_the_key() {
    let (db, _) = in_memory();
    fill(&db, 3);
    let late = db.begin_with(TxnOptions::new().isolation(Isolation::Snapshot));
    db.run(|tx| tx.open(NUMBERS)?.insert(2, 0).map(drop)).unwrap();
    let Err(error @ Error::Conflict { .. }) = late.open(NUMBERS).unwrap().insert(2, 1) else { panic!("no conflict") };
    let Error::Conflict { table, key } = &error else { unreachable!() };
    assert_eq!((table.name.as_deref(), &key[..]), (Some("numbers"), &number(2)[..]));
    assert!(error.to_string().contains("table \"numbers\""), "{error}");

    let holder = db.begin_with(TxnOptions::new().label("holder"));
    holder.open(NUMBERS).unwrap().insert(1, 0).unwrap();
    let tx = db.begin_with(TxnOptions::new().lock_timeout(Duration::ZERO));
    let table = tx.open(NUMBERS).unwrap();
    let refused = table.get_locked(1, RowLock::update().no_wait());
    let Err(Error::RowLocked { what, holder: "holder" }) = &refused else { panic!("{refused:?}") };
    assert_eq!(row(what), (Some("numbers"), &number(1)[..]));
    let refused = table.insert(1, 1);
    let Err(error @ Error::LockTimeout { .. }) = refused else { panic!("{refused:?}") };
    let Error::LockTimeout { what, holder: "holder", .. } = &error else { panic!("{error:?}") };
    assert_eq!(row(what), (Some("numbers"), &number(1)[..]));
    assert!(error.to_string().contains("table \"numbers\" key"), "{error}");
}

#[test]
fn messages_show_the_table_and_the_decoded_key() {
    const PAIRS: TableDef<(&str, i64), i64> = TableDef::new("pairs");
    let (db, _) = in_memory();
    db.run(|tx| tx.open(PAIRS)?.insert_new(("a", -7), 1)).unwrap();
    let tx = db.begin();
    let exists = tx.open(PAIRS).unwrap().insert_new(("a", -7), 2).unwrap_err();
    assert_eq!(exists.to_string(), "table \"pairs\" already has the key (\"a\", -7)");
    let Error::KeyExists { table, .. } = &exists else { panic!("{exists:?}") };
    assert_eq!(table.name.as_deref(), Some("pairs"));
    assert_eq!(tx.open(PAIRS).unwrap().get(("a", -7)).unwrap(), Some(1), "the transaction goes on");
    tx.commit().unwrap();
    let (late, dropper) = (db.begin(), db.begin());
    let table = late.open(PAIRS).unwrap();
    dropper.drop_table("pairs").unwrap();
    dropper.commit().unwrap();
    let dropped = table.get(("a", -7)).unwrap_err();
    assert!(matches!(dropped, Error::TableDropped { .. }) && dropped.to_string().contains("\"pairs\""), "{dropped}");
}

/// A number below a thousand, of a user that writes down what it then does not take back.
#[derive(Debug)]
struct Small;

impl Value for Small {
    type Ref<'a> = u64;
    type Owned = u64;

    fn type_name() -> String {
        "small".into()
    }

    fn to_ref(owned: &u64) -> u64 {
        *owned
    }

    fn encode(value: &u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&value.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(bytes.try_into().ok()?)).filter(|&value| value < 1000)
    }
}

#[test]
fn a_value_that_does_not_decode_is_no_damage_and_names_its_row() {
    const SMALL: TableDef<u64, Small> = TableDef::new("small");
    let (db, _) = in_memory();
    db.run(|tx| {
        let table = tx.open(SMALL)?;
        (0..5).try_for_each(|key| table.insert(key, key * 300).map(drop))
    })
    .unwrap();
    type Ask = fn(&foreshore::Table<'_, u64, Small>) -> Result<(), Error>;
    let refused = |ask: Ask| {
        let tx = db.begin();
        let error = ask(&tx.open(SMALL).unwrap()).unwrap_err();
        assert!(matches!(error, Error::Undecodable { part: "value", .. }) && !error.is_retryable(), "{error:?}");
        assert!(error.to_string().ends_with("table \"small\" key 4"), "{error}");
    };
    refused(|table| table.get(4).map(drop));
    refused(|table| table.get_for_update(4).map(drop));
    refused(|table| table.insert(4, 1).map(drop));
    refused(|table| table.remove(4).map(drop));
    refused(|table| table.range(3..).try_for_each(|row| row.map(drop)));
    refused(|table| table.last().map(drop));
    db.run(|tx| tx.open(SMALL)?.get(3)).unwrap();
    db.check().expect("the pages are sound");
}
