use super::population::Profile;
use super::tables::{
    ACCESS_INFOS, BY_NUMBER, CALL_FORWARDINGS, Number, SPECIAL_FACILITIES, SUBSCRIBERS, Subscriber, sub_nbr,
};
use super::*;
use crate::Silent;
use foreshore::{Error, IndexDef, Options, TableDef};
use std::collections::HashMap;

const SUBSCRIBERS_HERE: u32 = 2000;

fn config() -> Config {
    Config { scale: u64::from(SUBSCRIBERS_HERE), ..Config::default() }
}

/// A loaded database in memory.
fn loaded() -> (Db, Tatp) {
    let db = Options::in_memory().open("tatp").unwrap();
    let tatp = Tatp::new(&config());
    tatp.load(&db, &Silent).unwrap();
    (db, tatp)
}

/// Runs `n` transactions of one worker.
fn transact(db: &Db, tatp: &Tatp, thread: u32, n: usize) {
    let mut calls = tatp.transactions(Worker { run: 0, thread });
    for _ in 0..n {
        calls.draw();
        let tx = db.begin();
        let end = calls.apply(&tx).unwrap();
        tx.commit().unwrap();
        calls.ended(end);
    }
}

#[test]
fn draws_follow_the_specification() {
    let mut draw = Draw::new(1, 0, 100_000, 0.0);
    let (mut kinds, mut subscribers) = ([0_u64; MIX.len()], HashMap::new());
    for _ in 0..100_000 {
        let (kind, input) = draw.any();
        kinds[kind] += 1;
        match input {
            Input::GetSubscriberData { s_id } => *subscribers.entry(s_id).or_insert(0_u32) += 1,
            Input::GetNewDestination { sf_type, start_time, end_time, .. } => {
                assert!((1..=4).contains(&sf_type) && start_time % 8 == 0 && start_time < 24);
                assert!((1..=24).contains(&end_time));
            }
            Input::GetAccessData { ai_type, .. } => assert!((1..=4).contains(&ai_type)),
            Input::UpdateSubscriberData { bit, sf_type, .. } => assert!(bit < 2 && (1..=4).contains(&sf_type)),
            Input::UpdateLocation { vlr_location, .. } => assert!(vlr_location > 0),
            Input::InsertCallForwarding { sf_type, start_time, end_time, numberx, .. } => {
                assert!((1..=4).contains(&sf_type) && start_time % 8 == 0 && (1..=24).contains(&end_time));
                assert!(numberx.iter().all(u8::is_ascii_digit));
            }
            Input::DeleteCallForwarding { sf_type, start_time, .. } => {
                assert!((1..=4).contains(&sf_type) && start_time % 8 == 0 && start_time < 24);
            }
        }
    }
    for ((name, percent), drawn) in MIX.into_iter().zip(kinds) {
        assert!(drawn.abs_diff(percent * 1000) < 600, "{name}: {drawn}");
    }
    assert!(subscribers.keys().all(|s_id| (1..=100_000).contains(s_id)));
    // Uniform draws would meet no subscriber much more often than the others: 0.35 times each, on average.
    assert!(*subscribers.values().max().unwrap() > 20);
}

#[test]
fn the_population_follows_its_rules() {
    let (mut access, mut facilities, mut forwardings, mut active) = ([0; 5], [0; 5], [0; 4], 0);
    for s_id in 1..=20_000 {
        let of = Profile::new(1, s_id);
        assert_eq!(of.subscriber.0, sub_nbr(s_id));
        access[of.access_infos.len()] += 1;
        facilities[of.facilities.len()] += 1;
        assert!(of.access_infos.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for &(sf_type, (is_active, ..)) in &of.facilities {
            active += u32::from(is_active);
            forwardings[of.forwardings.iter().filter(|row| row.0 == sf_type).count()] += 1;
        }
        for &(sf_type, start_time, (end_time, _)) in &of.forwardings {
            assert!(of.facilities.iter().any(|row| row.0 == sf_type));
            assert!((1..=8).contains(&(end_time - start_time)));
        }
    }
    for shares in [&access[1..], &facilities[1..], &forwardings[..]] {
        let all: u32 = shares.iter().sum();
        assert!(shares.iter().all(|&share| share.abs_diff(all / 4) < all / 40), "{shares:?}");
    }
    let all: u32 = facilities.iter().zip(0..).map(|(count, of)| count * of).sum();
    assert!(active.abs_diff(all * 85 / 100) < all / 100, "{active} of {all}");
}

#[test]
fn transactions_succeed_as_often_as_expected_and_every_change_is_counted() {
    let (db, tatp) = loaded();
    let begun = tatp.audit(&db).unwrap();
    assert!(begun.is_sound);
    transact(&db, &tatp, 0, 20_000);
    transact(&db, &tatp, 1, 20_000);
    let expected = tatp.count_after(begun.count, 0);
    let found = tatp.audit(&db).unwrap();
    assert!(found.is_sound);
    assert_eq!(found.count, expected);
    assert_ne!(found.count, begun.count);
    let kinds = tatp.take_kinds();
    assert_eq!(kinds.iter().map(|kind| kind.transactions).sum::<u64>(), 40_000);
    assert_eq!(tatp.check_kinds(&kinds), [("success_ratios", true)]);
    for broken in 0..MIX.len() {
        let mut kinds = kinds.clone();
        kinds[broken].transactions = 100_000;
        kinds[broken].succeeded = 90_000;
        assert_eq!(tatp.check_kinds(&kinds), [("success_ratios", false)], "{}", MIX[broken].0);
    }
    // The counts were taken.
    assert_eq!(tatp.count_after(5, 0), 5);
    assert!(tatp.take_kinds().iter().all(|kind| kind.transactions == 0));
}

#[test]
fn one_kind_runs_alone() {
    let (db, _) = loaded();
    let tatp = Tatp::update_location(&config());
    let begun = tatp.audit(&db).unwrap();
    transact(&db, &tatp, 0, 100);
    assert_eq!(tatp.audit(&db).unwrap().count, tatp.count_after(begun.count, 0));
    let kinds = tatp.take_kinds();
    let ran: Vec<_> = kinds.iter().filter(|kind| kind.transactions > 0).collect();
    assert_eq!(ran, [&Kind { kind: UPDATE_LOCATION, transactions: 100, succeeded: 100 }]);
}

#[test]
fn a_transaction_that_is_not_committed_leaves_no_trace() {
    let (db, tatp) = loaded();
    let begun = tatp.audit(&db).unwrap();
    let mut calls = tatp.transactions(Worker { run: 0, thread: 0 });
    for _ in 0..200 {
        calls.draw();
        let tx = db.begin();
        calls.apply(&tx).unwrap();
        tx.rollback().unwrap();
    }
    drop(calls);
    assert_eq!(tatp.audit(&db).unwrap(), begun);
    assert_eq!(tatp.count_after(begun.count, 0), begun.count);
}

/// The index as it would be made by a function that loses the number of some subscribers.
const FORGETFUL: IndexDef<u32, Subscriber, Number> =
    IndexDef::unique("by sub_nbr", |_, subscriber: &Subscriber, keys| {
        if subscriber.3[0] != 7 {
            keys.add(subscriber.0);
        }
    });
const FORGETTING: TableDef<'_, u32, Subscriber> = TableDef::new("subscriber").with_indexes(&[&FORGETFUL]);

/// What must not be, and whether the rows or the sum of changes show it.
type Flaw = (&'static str, fn(&Transaction) -> Result<()>);

#[test]
fn every_flaw_is_seen() {
    let unsound: [Flaw; 7] = [
        ("a lost subscriber", |tx| tx.open(SUBSCRIBERS)?.remove(7).map(drop)),
        ("a subscriber with the number of another", |tx| {
            let subscribers = tx.open(SUBSCRIBERS)?;
            subscribers.update_with(7, |row| row.map(|row| (sub_nbr(5000), row.1, row.2, row.3, row.4, row.5)))?;
            Ok(())
        }),
        ("a subscriber without access infos", |tx| tx.open(ACCESS_INFOS)?.remove_range((7, 0)..(8, 0)).map(drop)),
        ("a facility of an unknown type", |tx| tx.open(SPECIAL_FACILITIES)?.put((7, 9), (true, 0, 0, [b'A'; 5]))),
        ("a forwarding without a facility", |tx| {
            tx.open(SPECIAL_FACILITIES)?.remove((7, 1))?;
            tx.open(CALL_FORWARDINGS)?.put((7, 1, 8), (9, [b'1'; 15]))
        }),
        ("a forwarding at an odd time", |tx| {
            tx.open(SPECIAL_FACILITIES)?.put((7, 1), (true, 0, 0, [b'A'; 5]))?;
            tx.open(CALL_FORWARDINGS)?.put((7, 1, 9), (10, [b'1'; 15]))
        }),
        ("an index that lacks a subscriber", |tx| {
            tx.open(FORGETTING)?.update_with(7, |row| {
                row.map(|(number, bits, hex, mut byte2, msc, vlr)| {
                    byte2[0] = 7;
                    (number, bits, hex, byte2, msc, vlr)
                })
            })?;
            Ok(())
        }),
    ];
    let (db, tatp) = loaded();
    for (name, flaw) in unsound {
        let (db, tatp) = loaded();
        db.run(flaw).unwrap();
        assert!(!tatp.audit(&db).unwrap().is_sound, "{name}");
    }
    let miscounted: [Flaw; 3] = [
        ("a lost forwarding", |tx| tx.open(CALL_FORWARDINGS)?.pop_first().map(drop)),
        ("a location that no transaction wrote", |tx| {
            tx.open(SUBSCRIBERS)?
                .update_with(7, |row| row.map(|row| (row.0, row.1, row.2, row.3, row.4, row.5 ^ 2)))?;
            Ok(())
        }),
        ("data that no transaction wrote", |tx| {
            let facilities = tx.open(SPECIAL_FACILITIES)?;
            let (key, row) = facilities.first()?.expect("the population has facilities");
            facilities.put(key, (row.0, row.1, row.2 ^ 1, row.3))
        }),
    ];
    for (name, flaw) in miscounted {
        let before = tatp.audit(&db).unwrap();
        db.run(flaw).unwrap();
        let after = tatp.audit(&db).unwrap();
        assert!(after.is_sound && after.count != before.count, "{name}");
    }
}

#[test]
fn the_database_of_another_scale_is_refused_and_numbers_lead_to_their_subscribers() {
    let (db, tatp) = loaded();
    tatp.resume(&db, Path::new("tatp")).unwrap();
    let other = Tatp::new(&Config { scale: 1000, ..config() });
    assert!(matches!(other.resume(&db, Path::new("tatp")), Err(Error::InvalidOption { name: "scale", .. })));
    let reader = db.read();
    let by_number = reader.open(SUBSCRIBERS).unwrap().by_index(BY_NUMBER).unwrap();
    assert_eq!(by_number.get(sub_nbr(1234)).unwrap().map(|(s_id, _)| s_id), Some(1234));
}
