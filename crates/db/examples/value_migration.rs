//! Migration of a value type: a new version of the program stores users with another field. It does that in two ways,
//! while the database is in use.
//!
//! - **In place.** The value begins with its version. Old rows are read as they are, and become new ones when they are
//!   written. A background job rewrites the others, in small transactions.
//! - **To another table.** A type that decodes no old row needs another table. Rows are moved in small transactions.
//!   Readers look into both tables until the old one is empty and dropped.
//!
//! ```text
//! cargo run -p foreshore --example value_migration
//! ```

use foreshore::{Db, Error, Options, TableDef, Transaction, Value};
use std::ops::Bound;
use std::time::Duration;

/// Rows that one transaction rewrites or moves. Few, so that it holds few locks, and those for a short time.
const AT_ONCE: usize = 100;
const USERS: u64 = 1000;

fn main() -> Result<(), Error> {
    let db = Options::in_memory().open("users")?;
    in_place(&db)?;
    to_another_table(&db)?;
    db.close(Duration::from_secs(1))
}

/// A user, stored with the version of the encoding before it.
///
/// | version | encoding |
/// |---|---|
/// | 1 | the name |
/// | 2 | the year of birth in two bytes, the name |
#[derive(Clone, Debug, PartialEq)]
struct User {
    name: String,
    /// Unknown for users of version 1.
    born: Option<u16>,
}

/// Decodes the encodings of both versions, and encodes as the second one.
struct VersionedUser;

impl Value for VersionedUser {
    type Ref<'a> = &'a User;
    type Owned = User;

    fn type_name() -> String {
        // Stays: the old rows decode too.
        "example user".to_owned()
    }

    fn to_ref(owned: &User) -> &User {
        owned
    }

    fn encode(user: &&User, out: &mut Vec<u8>) {
        out.push(2);
        // No user was born in the year 0.
        out.extend_from_slice(&user.born.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(user.name.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<User> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        match bytes {
            [1, name @ ..] => Some(User { name: text(name)?, born: None }),
            [2, low, high, name @ ..] => {
                let born = u16::from_le_bytes([*low, *high]);
                Some(User { name: text(name)?, born: (born != 0).then_some(born) })
            }
            // A row of a newer program, or a damaged one.
            _ => None,
        }
    }
}

/// What the old program wrote.
struct OldUser;

impl Value for OldUser {
    type Ref<'a> = &'a str;
    type Owned = String;

    fn type_name() -> String {
        "example user".to_owned()
    }

    fn to_ref(owned: &String) -> &str {
        owned
    }

    fn encode(name: &&str, out: &mut Vec<u8>) {
        out.push(1);
        out.extend_from_slice(name.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<String> {
        String::from_utf8(bytes.strip_prefix(&[1])?.to_vec()).ok()
    }
}

fn in_place(db: &Db) -> Result<(), Error> {
    const OLD: TableDef<u64, OldUser> = TableDef::new("users");
    const NEW: TableDef<u64, VersionedUser> = TableDef::new("users");
    db.run(|tx| {
        let users = tx.open(OLD)?;
        (0..USERS).try_for_each(|number| users.put(number, &*format!("user {number}")))
    })?;

    // The new program reads old rows, and writes new ones.
    assert_eq!(db.read().open(NEW)?.get(7)?, Some(User { name: "user 7".to_owned(), born: None }));
    db.run(|tx| tx.open(NEW)?.put(7, &User { name: "Ada".to_owned(), born: Some(1815) }))?;

    let (mut from, mut rewritten) = (Bound::Unbounded, 0);
    while let Some((last, count)) = db.run(|tx| rewrite(tx, NEW, from))? {
        (from, rewritten) = (Bound::Excluded(last), rewritten + count);
    }
    println!("in place: {rewritten} of {USERS} rows were rewritten");
    let is_new = |bytes: &[u8]| bytes[0] == 2;
    let users = db.read();
    let users = users.open(NEW)?;
    for number in 0..USERS {
        assert_eq!(users.get_with(number, is_new)?, Some(true));
    }
    assert_eq!(users.get(7)?.and_then(|user| user.born), Some(1815));
    Ok(())
}

/// Rewrites some rows behind a key. Returns the last one's key, and how many were old; `None` at the end.
fn rewrite(
    tx: &Transaction,
    table: TableDef<'_, u64, VersionedUser>,
    from: Bound<u64>,
) -> Result<Option<(u64, usize)>, Error> {
    let users = tx.open(table)?;
    let rows = users.range((from, Bound::Unbounded)).take(AT_ONCE).collect::<Result<Vec<_>, _>>()?;
    let mut count = 0;
    for (number, user) in &rows {
        if users.get_with(number, |bytes| bytes[0] == 1)? == Some(true) {
            users.put(number, user)?;
            count += 1;
        }
    }
    Ok(rows.last().map(|&(last, _)| (last, count)))
}

/// The rows of the old program, and those of the new one: pence instead of pounds.
const POUNDS: TableDef<u64, u32> = TableDef::new("balances");
const PENCE: TableDef<u64, u64> = TableDef::new("balances in pence");

fn to_another_table(db: &Db) -> Result<(), Error> {
    db.run(|tx| {
        let pounds = tx.open(POUNDS)?;
        (0..USERS).try_for_each(|number| pounds.put(number, number as u32))
    })?;

    // The table knows the types of its rows: the new program cannot take one for the other.
    const WRONG: TableDef<u64, u64> = TableDef::new("balances");
    assert!(matches!(db.begin().open(WRONG), Err(Error::TableTypes { .. })));

    let mut moved = 0;
    while let count @ 1.. = db.run(move_some)? {
        moved += count;
        assert_eq!(balance(db, 700)?, Some(70_000), "wherever it is");
    }
    db.run(|tx| tx.drop_table("balances"))?;
    println!("to another table: {moved} of {USERS} rows were moved");
    assert_eq!((moved as u64, balance(db, 7)?), (USERS, Some(700)));
    Ok(())
}

/// Moves some rows. Returns how many.
fn move_some(tx: &Transaction) -> Result<usize, Error> {
    let (old, new) = (tx.open(POUNDS)?, tx.open(PENCE)?);
    for count in 0..AT_ONCE {
        let Some((number, pounds)) = old.pop_first()? else { return Ok(count) };
        new.insert_new(number, u64::from(pounds) * 100)?;
    }
    Ok(AT_ONCE)
}

/// Returns a balance in pence. One snapshot shows each row in one of the tables.
fn balance(db: &Db, number: u64) -> Result<Option<u64>, Error> {
    let read = db.read();
    if let Some(pence) = read.open(PENCE)?.get(number)? {
        return Ok(Some(pence));
    }
    match read.open(POUNDS) {
        Ok(pounds) => Ok(pounds.get(number)?.map(|pounds| u64::from(pounds) * 100)),
        // Dropped after the last row was moved.
        Err(Error::NoTable { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
