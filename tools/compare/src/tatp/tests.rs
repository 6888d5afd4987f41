use super::{
    check::succeed_as_expected,
    draw::{Draw, Input, KINDS},
    rows::{BIT_1, IS_ACTIVE, Profile, loaded, sub_nbr},
    tables::{START_TIMES, TYPES},
};
use std::collections::HashMap;

#[test]
fn draws_follow_the_specification() {
    let mut draw = Draw::new(1, 0, 100_000);
    let (mut kinds, mut subscribers) = ([0_u64; KINDS], HashMap::new());
    for _ in 0..100_000 {
        let (kind, input) = draw.any();
        kinds[kind] += 1;
        assert_eq!(input.is_read(), kind < 3);
        match input {
            Input::GetSubscriberData { s_id } => *subscribers.entry(s_id).or_insert(0_u32) += 1,
            Input::GetNewDestination { sf_type, start_time, end_time, .. } => {
                assert!(TYPES.contains(&sf_type) && START_TIMES.contains(&start_time) && (1..=24).contains(&end_time));
            }
            Input::GetAccessData { ai_type, .. } => assert!(TYPES.contains(&ai_type)),
            Input::UpdateSubscriberData { bit, sf_type, .. } => assert!(bit < 2 && TYPES.contains(&sf_type)),
            Input::UpdateLocation { number, vlr_location } => assert!(number <= 100_000 && vlr_location > 0),
            Input::InsertCallForwarding { sf_type, start_time, end_time, numberx, .. } => {
                assert!(TYPES.contains(&sf_type) && START_TIMES.contains(&start_time) && (1..=24).contains(&end_time));
                assert!(numberx.iter().all(u8::is_ascii_digit));
            }
            Input::DeleteCallForwarding { sf_type, start_time, .. } => {
                assert!(TYPES.contains(&sf_type) && START_TIMES.contains(&start_time));
            }
        }
    }
    for (drawn, percent) in kinds.into_iter().zip([35, 10, 35, 2, 14, 2, 2]) {
        assert!(drawn.abs_diff(percent * 1000) < 600, "{kinds:?}");
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
        assert_eq!(of.subscriber[..BIT_1], sub_nbr(s_id));
        access[of.access_infos.len()] += 1;
        facilities[of.facilities.len()] += 1;
        assert!(of.access_infos.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for &(sf_type, facility) in &of.facilities {
            active += u32::from(facility[IS_ACTIVE]);
            forwardings[of.forwardings.iter().filter(|row| row.0 == sf_type).count()] += 1;
        }
        for &(sf_type, start_time, row) in &of.forwardings {
            assert!(of.facilities.iter().any(|row| row.0 == sf_type));
            assert!((1..=8).contains(&(row[0] - start_time)));
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
fn tables_are_loaded_in_the_order_of_their_keys() {
    assert_eq!(&sub_nbr(u32::MAX), b"000004294967295");
    for (table, rows) in loaded(1, 500) {
        let keys: Vec<u64> = rows.map(|(key, _)| key).collect();
        assert!(keys.len() >= 500 && keys.is_sorted_by(|a, b| a < b), "{table:?}");
    }
}

#[test]
fn a_part_of_successes_that_is_too_small_or_too_large_is_seen() {
    let right = [100_000, 19_000, 62_500, 62_500, 100_000, 31_250, 31_250].map(|succeeded| (100_000, succeeded));
    assert!(succeed_as_expected(&right, 100_000));
    for kind in 0..KINDS {
        for succeeded in [0, 99_000] {
            let mut wrong = right;
            wrong[kind].1 = succeeded;
            assert!(!succeed_as_expected(&wrong, 100_000), "{kind}: {succeeded}");
            wrong[kind] = (100, 0);
            assert!(succeed_as_expected(&wrong, 100_000), "too few to tell");
        }
    }
}
