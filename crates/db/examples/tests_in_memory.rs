//! Tests of a program that keeps its data in Foreshore: each test has a database in memory, which opens in milliseconds
//! and leaves no file.
//!
//! ```text
//! cargo test -p foreshore --example tests_in_memory
//! ```
//!
//! The program's functions take a `&Transaction` or a `&Db`, so they do not know where the database is. Run as a
//! program, the example does what its tests check.

use foreshore::{Db, Error, Options, TableDef, Transaction};
use std::time::Duration;

const ACCOUNTS: TableDef<&str, i64> = TableDef::new("accounts");

fn main() -> Result<(), Error> {
    let db = bank(&[("ada", 100), ("grace", 50)])?;
    println!("100 from ada to grace: {:?}", db.run(|tx| transfer(tx, "ada", "grace", 100)));
    println!("100 from ada to grace: {:?}", db.run(|tx| transfer(tx, "ada", "grace", 100)));
    for row in db.read().open(ACCOUNTS)?.iter() {
        let (owner, balance) = row?;
        println!("{owner}: {balance}");
    }
    db.close(Duration::from_secs(1))
}

/// Why a transfer does not happen.
#[derive(Debug)]
#[allow(dead_code, reason = "the causes are only shown")]
enum Refused {
    NoAccount(String),
    TooPoor { balance: i64 },
    Storage(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Storage(error)
    }
}

/// What is tested: moves an amount between two accounts.
fn transfer(tx: &Transaction, from: &str, to: &str, amount: i64) -> Result<(), Refused> {
    let accounts = tx.open(ACCOUNTS)?;
    let balance = accounts.get_for_update(from)?.ok_or_else(|| Refused::NoAccount(from.to_owned()))?;
    if balance < amount {
        return Err(Refused::TooPoor { balance });
    }
    accounts.put(from, balance - amount)?;
    let other = accounts.get_for_update(to)?.ok_or_else(|| Refused::NoAccount(to.to_owned()))?;
    accounts.put(to, other + amount)?;
    Ok(())
}

/// Opens a database in memory that has some accounts. Each call has one of its own, whatever its name.
fn bank(balances: &[(&str, i64)]) -> Result<Db, Error> {
    let db = Options::in_memory().open("bank")?;
    db.run(|tx| {
        let accounts = tx.open(ACCOUNTS)?;
        balances.iter().try_for_each(|&(owner, balance)| accounts.put(owner, balance))
    })?;
    Ok(db)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balances(db: &Db) -> Vec<(String, i64)> {
        db.read().open(ACCOUNTS).unwrap().iter().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_transfer_moves_money() {
        let db = bank(&[("ada", 100), ("grace", 50)]).unwrap();
        db.run(|tx| transfer(tx, "ada", "grace", 30)).unwrap();
        assert_eq!(balances(&db), [("ada".to_owned(), 70), ("grace".to_owned(), 80)]);
    }

    #[test]
    fn a_refused_transfer_leaves_nothing() {
        let db = bank(&[("ada", 100)]).unwrap();
        let refused = db.run(|tx| transfer(tx, "ada", "a stranger", 30));
        assert!(matches!(refused, Err(Refused::NoAccount(_))), "{refused:?}");
        assert!(matches!(db.run(|tx| transfer(tx, "ada", "ada", 101)), Err(Refused::TooPoor { balance: 100 })));
        // The money that had been taken from the account is back.
        assert_eq!(balances(&db), [("ada".to_owned(), 100)]);
    }

    #[test]
    fn transfers_at_once_keep_the_sum() {
        let db = bank(&[("ada", 1000), ("grace", 1000)]).unwrap();
        std::thread::scope(|scope| {
            for (from, to) in [("ada", "grace"), ("grace", "ada")] {
                let db = &db;
                // One of two transactions that wait for each other runs again. `run` sees to that.
                scope.spawn(move || (0..100).for_each(|_| db.run(|tx| transfer(tx, from, to, 1)).unwrap()));
            }
        });
        assert_eq!(balances(&db).iter().map(|(_, balance)| balance).sum::<i64>(), 2000);
    }

    #[test]
    fn what_was_written_is_there_after_a_reopen() {
        let db = bank(&[("ada", 100)]).unwrap();
        db.close(Duration::from_secs(1)).unwrap();
        let db = db.reopen().unwrap();
        assert_eq!(balances(&db), [("ada".to_owned(), 100)]);
    }
}
