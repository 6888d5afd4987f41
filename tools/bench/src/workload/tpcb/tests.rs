use super::*;
use crate::Silent;
use foreshore::{Db, Options, TableDef};
use foreshore_io::{Fs, Mem};
use std::{path::Path, sync::Arc, time::Duration};

const DIR: &str = "bank";

fn memory() -> Arc<dyn Fs> {
    Arc::new(Mem::null())
}

fn open(fs: &Arc<dyn Fs>) -> Db {
    Options::new()
        .lab(|lab| lab.fs = Some(Arc::clone(fs)))
        .memory_limit(32 << 20)
        .lab(|lab| lab.segment_bytes = 1 << 20)
        .open(DIR)
        .unwrap()
}

#[test]
fn draws_follow_the_specification() {
    let scale = 4;
    let mut draw = Draw::new(1, 0, scale, 0.0);
    let (mut home, mut lowest, mut highest) = (0, i64::MAX, i64::MIN);
    for _ in 0..100_000 {
        let transfer = draw.transfer();
        assert!(transfer.teller < scale * TELLERS_PER_BRANCH && transfer.account < scale * ACCOUNTS_PER_BRANCH);
        home += u32::from(transfer.account / ACCOUNTS_PER_BRANCH == transfer.branch());
        lowest = lowest.min(transfer.delta);
        highest = highest.max(transfer.delta);
    }
    assert!((84_300..85_700).contains(&home), "{home}");
    assert!((-999_999..-999_000).contains(&lowest) && (999_000..=999_999).contains(&highest), "{lowest} {highest}");
}

#[test]
fn one_branch_keeps_its_accounts() {
    let mut draw = Draw::new(1, 0, 1, 0.0);
    assert!((0..10_000).all(|_| draw.transfer().account < ACCOUNTS_PER_BRANCH));
}

#[test]
fn skew_makes_one_account_hot_wherever_it_lies() {
    let mut draw = Draw::new(1, 0, 3, 2.0);
    let mut seen = std::collections::HashMap::new();
    for _ in 0..10_000 {
        *seen.entry(draw.transfer().account).or_insert(0_u32) += 1;
    }
    // Weight of the first rank: 6 / pi^2.
    let hottest = *seen.values().max().unwrap();
    assert!((5_800..6_400).contains(&hottest), "{hottest}");
}

#[test]
fn a_loaded_bank_adds_up_and_is_known_again() {
    let fs = memory();
    let db = open(&fs);
    let bank = |scale| Tpcb { seed: 1, skew: 0.0, scale };
    bank(1).load(&db, &Silent).unwrap();
    bank(1).resume(&db, Path::new(DIR)).unwrap();
    let mut draw = Draw::new(1, 0, 1, 0.0);
    for sequence in 0..100 {
        let tx = db.begin();
        draw.transfer().apply(&tx, (7, 0, sequence)).unwrap();
        tx.commit().unwrap();
    }
    // Rolled back: must leave no trace.
    let tx = db.begin();
    draw.transfer().apply(&tx, (7, 1, 0)).unwrap();
    drop(tx);
    let live = check::audit(&db, 1).unwrap();
    assert!(live.sums_agree());
    assert_eq!((live.history_rows, live.next_run), (100, 8));
    db.close(Duration::from_secs(1)).unwrap();

    let db = open(&fs);
    assert_eq!(check::audit(&db, 1).unwrap(), live);
    match bank(2).resume(&db, Path::new(DIR)) {
        Err(Error::InvalidOption { name: "scale", expected, .. }) => assert!(expected.starts_with("1,"), "{expected}"),
        other => panic!("{other:?}"),
    }
    // One lost update is seen.
    let tx = db.begin();
    add(&tx.open(TELLERS).unwrap(), "tellers", 3, 1).unwrap();
    tx.commit().unwrap();
    assert!(!check::audit(&db, 1).unwrap().sums_agree());
}

#[test]
fn another_database_is_refused_and_left_alone() {
    let fs = memory();
    let db = open(&fs);
    let tx = db.begin();
    tx.open(TableDef::<u64, u64>::new("mine")).unwrap().insert(1, 2).unwrap();
    tx.commit().unwrap();
    for _ in 0..2 {
        assert!(matches!(
            Tpcb { seed: 1, skew: 0.0, scale: 1 }.resume(&db, Path::new(DIR)),
            Err(Error::Foreign { .. })
        ));
    }
}
