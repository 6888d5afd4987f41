//! Errors that others caused name them: by label, by the name of the table, and by the key.

use crate::support::{NUMBERS, TEXTS, fill, in_memory};
use foreshore::{Error, Isolation, Key, Lockable, RowLock, TxnOptions};
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
fn a_deadlock_names_all_who_wait_and_what_for() {
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
        ["\"numbers first\" waits for table \"texts\" key one", "\"texts first\" waits for table \"numbers\" key"]
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
