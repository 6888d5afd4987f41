//! The decisions of the engine's policies, as tables.

use super::*;
use Decision::{Hold, Seal, Wait, Yield};

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn at(micros: u64) -> Nanos {
    Nanos::from(us(micros))
}

/// A flush takes 100 us. The last group was sealed at 1000 us and completed at 1100 us, when 8 KiB had come again; it is 1110 us.
fn seen() -> Observation {
    Observation {
        now: at(1110),
        group: GroupNo(7),
        in_flight: 0,
        left_behind: false,
        beside_from: at(1050),
        sealed_at: at(1000),
        completed_at: at(1100),
        opened_at: at(1110),
        has_stopped: false,
        pending_bytes: 8 << 10,
        returning: 4 << 10,
        flush_latency: us(100),
        last_flush: us(100),
        flushes: 70,
        may_yield: true,
    }
}

fn stopped() -> Observation {
    Observation { has_stopped: true, ..seen() }
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
            ("a flush is shorter than a wake-up", Observation { flush_latency: us(15), ..stopped() }, Seal),
            ("a slow device", Observation { now: at(1149), flush_latency: us(5000), ..stopped() }, Yield),
            (
                "a slow device makes no slow threads",
                Observation { flush_latency: us(5000), now: at(1150), ..stopped() },
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
    let slow = Observation {
        flush_latency: us(1000),
        completed_at: at(2000),
        now: at(2000),
        pending_bytes: 20 << 10,
        ..seen()
    };
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
            ("commits that come after a rest", Observation { now: at(9000), completed_at: at(1100), ..seen() }, Seal),
            ("records were left behind", Observation { left_behind: true, ..seen() }, Seal),
            ("a flush is shorter than a wake-up", Observation { flush_latency: us(15), ..seen() }, Seal),
            ("a slow device", slow, Wait(us(250))),
        ],
    );
    decides(120, &[("within the bound", seen(), Wait(us(110)))]);
    decides(50, &[("a bound that no timer keeps", seen(), Seal)]);
}

/// Whatever is seen, no commit waits for others beyond the bound, counted from when the device was free.
#[test]
fn no_window_is_longer_than_its_bound() {
    for max in [1, 40, 100, 250, 1000] {
        for latency in [0, 10, 16, 100, 900, 20_000] {
            for (now, pending) in [(1100, 1), (1100, 1 << 14), (1130, 9000), (1400, 1 << 14), (3000, 1 << 14)] {
                for has_stopped in [false, true] {
                    let seen = Observation {
                        now: at(now),
                        flush_latency: us(latency),
                        pending_bytes: pending,
                        has_stopped,
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
        assert!(matches!(Group::Window(bound).check(), Err(Error::InvalidOption { name: "group", .. })), "{bound:?}");
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
