//! Transfers between accounts by many threads keep the sum, through deadlocks, evictions, checkpoints and a restart.

use crate::support::{NUMBERS, fill, in_memory, numbers, open};
use foreshore::Error;
use std::time::Duration;

const ACCOUNTS: u64 = 40;
const THREADS: u64 = 16;
const TRANSFERS: u64 = 150;

#[test]
fn the_sum_of_all_accounts_never_changes() {
    let (db, fs) = in_memory();
    fill(&db, ACCOUNTS);
    let sum = |rows: &[(u64, i64)]| rows.iter().map(|(_, balance)| balance).sum::<i64>();
    let before = sum(&numbers(&db));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                let mut state = thread + 1;
                for _ in 0..TRANSFERS {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (from, to) = ((state >> 33) % ACCOUNTS, (state >> 45) % ACCOUNTS);
                    transfer(db, from, to);
                }
            });
        }
        // Readers see the sum at every moment.
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(sum(&numbers(&db)), before);
                }
            });
        }
    });
    assert_eq!(sum(&numbers(&db)), before);
    db.check().unwrap();
    db.close(Duration::ZERO).unwrap();
    assert_eq!(sum(&numbers(&open(&fs).unwrap())), before);
}

fn transfer(db: &foreshore::Db, from: u64, to: u64) {
    db.run(|tx| {
        let accounts = tx.open(NUMBERS)?;
        let balance = accounts.get_for_update(from)?.unwrap();
        accounts.insert(from, balance - 10)?;
        let balance = accounts.get_for_update(to)?.unwrap();
        accounts.insert(to, balance + 10)?;
        Ok::<_, Error>(())
    })
    .unwrap();
}
