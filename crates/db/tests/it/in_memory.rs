//! A database in memory: after a close, its `Options` value or a clone of it opens it again. Another value does not,
//! even with equal settings.

use crate::support::NUMBERS;
use foreshore::{Db, Options};
use std::time::Duration;

#[test]
fn its_options_or_a_clone_open_a_database_in_memory_again() {
    let options = Options::in_memory().memory_limit(8 << 20);
    let db = options.open("bank").unwrap();
    db.run(|tx| tx.open(NUMBERS)?.insert(&1, &10)).unwrap();
    db.close(Duration::from_secs(10)).unwrap();

    let again = options.clone().open("bank").unwrap();
    assert_eq!(again.run(|tx| tx.open(NUMBERS)?.get(&1)).unwrap(), Some(10));
    let other = Options::in_memory().memory_limit(8 << 20).open("bank").unwrap();
    assert_eq!(other.run(|tx| tx.open(NUMBERS)?.get(&1)).unwrap(), None);
    assert!(!std::path::Path::new("bank").exists(), "nothing is written to the disk");
}

#[test]
fn each_database_in_memory_is_a_new_one() {
    let (db, other) = (Db::in_memory().unwrap(), Db::in_memory().unwrap());
    db.run(|tx| tx.open(NUMBERS)?.put(1, 10)).unwrap();
    assert_eq!(db.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap(), Some(10));
    assert_eq!(other.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap(), None);
}
