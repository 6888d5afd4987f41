//! The decisions of the engine's policies, as tables.

use super::*;
use Decision::{Hold, Seal, Wait, Yield};
use foreshore_base::Error;

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn at(micros: u64) -> Nanos {
    Nanos::from(us(micros))
}

/// A flush takes 100 us. The last group was sealed at 1000 us and completed at 1100 us, when 8 KiB had come again; it
/// is 1110 us.
fn seen() -> Observation {
    Observation {
        now: at(1110),
        group: GroupNo(7),
        in_flight: 0,
        left_behind: false,
        beside_from: at(1050),
        sealed_at: at(1000),
        opened_at: at(1110),
        is_awaited: false,
        is_relaxed: false,
        pending_bytes: 8 << 10,
        returning: 4 << 10,
        flushes: flushes(100, 1100),
        may_yield: true,
    }
}

/// The last flush completed at a time and took as long as the others.
fn flushes(latency: u64, completed_at: u64) -> Flushes {
    Flushes { count: 70, mean: us(latency), last: us(latency), completed_at: at(completed_at) }
}

fn stopped() -> Observation {
    Observation { is_awaited: true, ..seen() }
}

/// Checks what a window of `max` decides in each case.
#[track_caller]
fn decides(max: u64, cases: &[(&str, Observation, Decision)]) {
    for (case, seen, decision) in cases {
        assert_eq!(Group::Window(us(max)).decide(seen), *decision, "{case}");
    }
}

#[test]
fn greedy_waits_for_nothing_but_the_device() {
    for seen in [seen(), stopped(), Observation { pending_bytes: 0, ..seen() }] {
        assert_eq!(Group::Greedy.decide(&seen), Seal);
    }
}

#[test]
fn a_group_beside_another_waits_for_half_a_flush() {
    let beside =
        |now, beside_from| Observation { in_flight: 1, now: at(now), beside_from: at(beside_from), ..stopped() };
    for group in [Group::Greedy, Group::Window(us(250))] {
        let decisions = [(1049, 1050), (1050, 1050), (1001, 0)].map(|(now, from)| group.decide(&beside(now, from)));
        assert_eq!(decisions, [Hold, Seal, Seal], "{group:?}");
    }
}

#[test]
fn a_leader_yields_to_returning_commits() {
    decides(
        250,
        &[
            ("half of them are still to come", stopped(), Yield),
            ("all have come", Observation { returning: 0, ..stopped() }, Seal),
            ("just before half a flush is over", Observation { now: at(1149), ..stopped() }, Yield),
            ("half a flush is over", Observation { now: at(1150), ..stopped() }, Seal),
            ("the last yield came back late", Observation { may_yield: false, ..stopped() }, Seal),
            ("records were left behind", Observation { left_behind: true, ..stopped() }, Seal),
            ("a flush is shorter than a wake-up", Observation { flushes: flushes(15, 1100), ..stopped() }, Seal),
            ("a slow device", Observation { now: at(1149), flushes: flushes(5000, 1100), ..stopped() }, Yield),
            (
                "a slow device makes no slow threads",
                Observation { flushes: flushes(5000, 1100), now: at(1150), ..stopped() },
                Seal,
            ),
        ],
    );
    decides(
        20,
        &[
            ("within the bound", Observation { now: at(1119), ..stopped() }, Yield),
            ("the bound is over", Observation { now: at(1120), ..stopped() }, Seal),
        ],
    );
}

#[test]
fn a_flusher_sleeps_while_pipelined_commits_come() {
    let slow = Observation { flushes: flushes(1000, 2000), now: at(2000), pending_bytes: 20 << 10, ..seen() };
    decides(
        250,
        &[
            ("to the bound", seen(), Wait(us(240))),
            ("the rest of that", Observation { now: at(1200), pending_bytes: 12 << 10, ..seen() }, Wait(us(150))),
            ("a sleep would end too late", Observation { now: at(1291), pending_bytes: 20 << 10, ..seen() }, Seal),
            ("the window is over", Observation { now: at(1350), ..seen() }, Seal),
            ("until there is enough", Observation { pending_bytes: 16 << 10, ..seen() }, Wait(us(110))),
            ("there is enough", Observation { pending_bytes: 32 << 10, ..seen() }, Seal),
            ("less than a block would come", Observation { pending_bytes: 1 << 10, ..seen() }, Seal),
            ("no commit came", Observation { pending_bytes: 0, ..seen() }, Seal),
            ("commits that come after a rest", Observation { now: at(9000), ..seen() }, Seal),
            ("records were left behind", Observation { left_behind: true, ..seen() }, Seal),
            ("a flush is shorter than a wake-up", Observation { flushes: flushes(15, 1100), ..seen() }, Seal),
            ("a slow device", slow, Wait(us(250))),
        ],
    );
    decides(120, &[("within the bound", seen(), Wait(us(110)))]);
    decides(50, &[("a bound that no timer keeps", seen(), Seal)]);
}

#[test]
fn relaxed_commits_wait_for_the_time_of_the_next_group() {
    let relaxed = || Observation { is_relaxed: true, ..seen() };
    let beside = |now, pending_bytes| Observation { in_flight: 1, now: at(now), pending_bytes, ..relaxed() };
    decides(
        50,
        &[
            ("a millisecond after the last group", relaxed(), Wait(us(890))),
            ("a lane may be half full before", Observation { pending_bytes: 64 << 10, ..relaxed() }, Wait(us(110))),
            ("a lane may be half full now", Observation { pending_bytes: 128 << 10, ..relaxed() }, Seal),
            ("a sleep would end too late", Observation { now: at(1941), ..relaxed() }, Seal),
            ("commits that come after a rest", Observation { now: at(9000), ..relaxed() }, Seal),
            ("records were left behind", Observation { left_behind: true, ..relaxed() }, Seal),
            (
                "a flush is shorter than a wake-up",
                Observation { flushes: flushes(15, 1100), ..relaxed() },
                Wait(us(890)),
            ),
            ("beside a group in flight", beside(1049, 8 << 10), Wait(us(735))),
            ("beside a group in flight, half a flush later", beside(1060, 8 << 10), Wait(us(900))),
            ("half a lane beside a group in flight", beside(1049, 128 << 10), Hold),
            ("half a lane, half a flush later", beside(1060, 128 << 10), Seal),
        ],
    );
    assert_eq!(Group::Greedy.decide(&relaxed()), Seal);
}

/// Whatever is seen, no commit waits for others beyond the bound, counted from when the device was free.
#[test]
fn no_window_is_longer_than_its_bound() {
    for max in [1, 40, 100, 250, 1000] {
        for latency in [0, 10, 16, 100, 900, 20_000] {
            for (now, pending) in [(1100, 1), (1100, 1 << 14), (1130, 9000), (1400, 1 << 14), (3000, 1 << 14)] {
                for is_awaited in [false, true] {
                    let seen = Observation {
                        now: at(now),
                        flushes: flushes(latency, 1100),
                        pending_bytes: pending,
                        is_awaited,
                        ..seen()
                    };
                    let bound = at(1100) + us(max);
                    match Group::Window(us(max)).decide(&seen) {
                        Seal => {}
                        Yield => assert!(seen.now < bound, "{seen:?}"),
                        Wait(time) => assert!(seen.now + time <= bound, "{seen:?} waits for {time:?}"),
                        Hold => panic!("{seen:?} is held back by no group"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_window_has_a_bound_that_is_checked() {
    for bound in [Duration::ZERO, Duration::from_secs(11)] {
        assert!(
            matches!(Group::Window(bound).check(), Err(Error::InvalidOption(InvalidOption { name: "group", .. }))),
            "{bound:?}"
        );
    }
    for group in [Group::Greedy, Group::default(), Group::Window(us(1)), Group::Window(MAX_WINDOW)] {
        group.check().expect("a sound policy");
    }
}

#[test]
fn a_thread_yields_before_it_parks_where_others_want_to_run() {
    let seen = BeforePark { yields: 0, max_yields: 1, sessions: 5, processors: 4, may_yield: true };
    assert!(yields_before_park(&seen));
    assert!(!yields_before_park(&BeforePark { yields: 1, ..seen }), "once");
    assert!(!yields_before_park(&BeforePark { sessions: 4, ..seen }), "each has a processor");
    assert!(!yields_before_park(&BeforePark { may_yield: false, ..seen }), "the last yield came back late");
}

#[test]
fn late_yields_take_a_small_part_of_the_time() {
    let pauses = |late: LateYields, took: [u64; 3]| took.map(|took| late.pause_after(us(took)));
    assert_eq!(pauses(LateYields::LEADER, [99, 100, 101]), [us(0), us(0), us(808)]);
    assert_eq!(pauses(LateYields::of_waiter(us(10)), [999, 1000, 2000]), [us(0), us(0), us(4000)]);
    assert_eq!(pauses(LateYields::of_waiter(us(100)), [1600, 1601, 3000]), [us(0), us(3202), us(6000)]);
}

#[test]
fn the_mean_latency_follows_the_device() {
    let mut flushes = Flushes::default();
    let flush = |flushes: &mut Flushes, micros: u64| flushes.note(Nanos(500), Nanos(500 + micros * 1000));
    (0..40).for_each(|_| flush(&mut flushes, 100));
    assert!((99..=100).contains(&flushes.mean.as_micros()), "{flushes:?}");
    flush(&mut flushes, 900);
    assert_eq!((flushes.mean.as_micros(), flushes.last.as_micros(), flushes.count), (199, 900, 41));
    (0..20).for_each(|_| flush(&mut flushes, 900));
    assert!(flushes.mean.as_micros() > 800, "{flushes:?}");
}
