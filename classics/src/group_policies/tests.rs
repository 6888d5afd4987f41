use super::*;
use foreshore_base::GroupNo;

const US: u64 = 1000;

/// The last group was sealed at one time, the next one opened at another.
fn seen(sealed_at: u64, opened_at: u64) -> Observation {
    Observation {
        now: Nanos(opened_at * US),
        group: GroupNo(7),
        in_flight: 0,
        left_behind: false,
        beside_from: Nanos::ZERO,
        sealed_at: Nanos(sealed_at * US),
        opened_at: Nanos(opened_at * US),
        is_awaited: true,
        is_relaxed: false,
        pending_bytes: 0,
        returning: 0,
        flushes: Flushes { completed_at: Nanos(sealed_at * US), ..Flushes::default() },
        may_yield: true,
    }
}

fn decide(policy: &mut dyn GroupPolicy, seen: Observation, now: u64) -> Option<u64> {
    match policy.decide(&Observation { now: Nanos(now * US), ..seen }) {
        Decision::Seal => None,
        Decision::Wait(left) => Some(left.as_nanos() as u64 / US),
        other => unreachable!("a group has a time, not {other:?}"),
    }
}

fn policy(name: &str) -> Box<dyn GroupPolicy> {
    name.parse::<TimedGroup>().unwrap().source().policy()
}

#[test]
fn a_fixed_timer_ticks_from_the_last_group_on() {
    let mut fixed = policy("fixed:100us");
    // Opened after two ticks without a commit. The tick of its opening has passed.
    let times = [1250, 1299, 1300, 1350].map(|now| decide(&mut *fixed, seen(1000, 1250), now));
    assert_eq!(times, [Some(50), Some(1), None, None]);
    assert_eq!(decide(&mut *fixed, seen(1350, 1351), 1351), Some(99));
}

#[test]
fn a_fixed_policy_has_bounds() {
    assert_eq!(policy("fixed:3txn,1KiB").bounds(), GroupBounds { commits: Some(3), bytes: Some(1024) });
    assert_eq!(decide(&mut *policy("fixed:3txn"), seen(1, 1), 1), Some(10_000), "without a time, 10 ms");
}

#[test]
fn a_delay_begins_with_the_first_commit() {
    let mut delay = policy("delay:50us");
    let times = [1000, 1020, 1050].map(|now| decide(&mut *delay, seen(10, 1000), now));
    assert_eq!(times, [Some(50), Some(30), None]);
}

#[test]
fn the_adaptive_timer_follows_the_flushes() {
    let mut adaptive = Adaptive::default();
    let timers = [300, 300, 400, 501].map(|took| {
        let (count, last) = (adaptive.flushes + 1, Duration::from_micros(took));
        let seen = Observation { flushes: Flushes { count, last, ..Flushes::default() }, ..seen(0, 0) };
        // Twice: one flush moves the timer once.
        let decisions = [(); 2].map(|()| adaptive.decide(&seen));
        assert_eq!(decisions[0], decisions[1]);
        adaptive.timer.as_micros()
    });
    assert_eq!(timers, [150, 225, 312, 606]);
    let after = Observation { flushes: Flushes { count: adaptive.flushes, ..Flushes::default() }, ..seen(1000, 1000) };
    assert_eq!(decide(&mut adaptive, after, 1000), Some(606));
}
