//! A unique constraint and a lookup by a second key: a table of emails, changed in the same transaction as the users.
//!
//! Here it is done by hand. The example `secondary_index` has the indexes that do it without a second table.
//!
//! ```text
//! cargo run -p foreshore --example unique_email
//! ```

use foreshore::{Db, Error, Options, TableDef, Transaction};
use std::time::Duration;

/// User to email.
const USERS: TableDef<u64, &str> = TableDef::new("users");
/// Email to user.
const EMAILS: TableDef<&str, u64> = TableDef::new("emails");

fn main() -> Result<(), Error> {
    let db = Options::in_memory().open("users")?;
    db.run(|tx| sign_up(tx, 1, "ada@example.org"))?;
    db.run(|tx| sign_up(tx, 2, "grace@example.org"))?;

    // The insert fails, and the whole transaction with it.
    let taken = db.run(|tx| sign_up(tx, 3, "ada@example.org"));
    println!("a second user with the email: {}", taken.as_ref().expect_err("the email is taken"));
    assert!(matches!(taken, Err(Error::KeyExists { .. })));
    assert!(!db.read().open(USERS)?.contains(3)?, "nothing of it has stayed");

    db.run(|tx| change_email(tx, 1, "countess@example.org"))?;
    assert_eq!(by_email(&db, "countess@example.org")?, Some(1));
    assert_eq!(by_email(&db, "ada@example.org")?, None);

    // Of threads that sign up with one email at once, one succeeds.
    let winners = std::thread::scope(|scope| {
        let threads: Vec<_> = (10..18)
            .map(|user| {
                scope.spawn({
                    let db = &db;
                    move || db.run(|tx| sign_up(tx, user, "new@example.org")).is_ok()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).filter(|&won| won).count()
    });
    println!("of eight threads with one email, {winners} signed up");
    assert_eq!(winners, 1);
    db.close(Duration::from_secs(1))
}

fn sign_up(tx: &Transaction, user: u64, email: &str) -> Result<(), Error> {
    // `insert_new` fails with `KeyExists`. The absence that others have seen is locked, so no second one slips in.
    tx.open(EMAILS)?.insert_new(email, user)?;
    tx.open(USERS)?.insert_new(user, email)
}

fn change_email(tx: &Transaction, user: u64, email: &str) -> Result<(), Error> {
    let (users, emails) = (tx.open(USERS)?, tx.open(EMAILS)?);
    emails.insert_new(email, user)?;
    if let Some(old) = users.insert(user, email)? {
        emails.remove(old.as_str())?;
    }
    Ok(())
}

fn by_email(db: &Db, email: &str) -> Result<Option<u64>, Error> {
    db.read().open(EMAILS)?.get(email)
}
