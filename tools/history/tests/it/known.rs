//! The check rejects histories that are known to be bad, each at the levels that forbid them, and at no other.

use crate::notation::history;
use Anomaly::*;
use Kind::{Append, Register};
use foreshore_history::{Anomaly, Kind, Level, check};

const LEVELS: [Level; 6] = [
    Level::READ_COMMITTED,
    Level::SNAPSHOT,
    Level::SERIALIZABLE,
    Level::READ_COMMITTED.in_real_time(),
    Level::SNAPSHOT.in_real_time(),
    Level::STRICT_SERIALIZABLE,
];

/// What each of [`LEVELS`] finds; `None` where the history is allowed.
type Expected = [Option<Anomaly>; 6];

const fn everywhere(anomaly: Anomaly) -> Expected {
    [Some(anomaly); 6]
}

const fn from_snapshot(anomaly: Anomaly) -> Expected {
    [None, Some(anomaly), Some(anomaly), None, Some(anomaly), Some(anomaly)]
}

const fn serializable(anomaly: Anomaly) -> Expected {
    [None, None, Some(anomaly), None, None, Some(anomaly)]
}

const fn in_real_time(read_committed: Option<Anomaly>, anomaly: Anomaly) -> Expected {
    [None, None, None, read_committed, Some(anomaly), Some(anomaly)]
}

const NOWHERE: Expected = [None; 6];

#[test]
fn each_anomaly_is_forbidden_where_it_should_be() {
    for (name, kind, expected, text) in LISTS.iter().chain(&REGISTERS) {
        let history = history(*kind, text);
        for (level, expected) in LEVELS.iter().zip(expected) {
            let found = check(&history, *level);
            let anomaly = found.as_ref().err().map(|violation| violation.anomaly);
            assert_eq!(anomaly, *expected, "{name}, {kind:?}, {level}: {found:?}");
        }
    }
}

type Case = (&'static str, Kind, Expected, &'static str);

const LISTS: [Case; 24] = [
    (
        "one after the other",
        Append,
        NOWHERE,
        "ok 0-1 w1=1 w2=2
         ok 2-3 r1=1 w1=3 r1=1,3 r2=2
         ok 4-5 s0-5:1=1,3;2=2",
    ),
    ("nothing", Append, NOWHERE, "fail 0-1 w1=1\n info 2-3 w1=2\n ok 4-5 r1="),
    (
        "writes between each other's",
        Append,
        everywhere(G0),
        "ok 0-9 w1=1 w2=2
         ok 1-8 w1=3 w2=4
         ok 10-11 r1=1,3 r2=4,2",
    ),
    (
        "one transaction's appends with another's between",
        Append,
        everywhere(G0),
        "ok 0-9 w1=1 w1=2
         ok 1-8 w1=3
         ok 10-11 r1=1,3,2",
    ),
    ("an aborted append seen", Append, everywhere(G1a), "fail 0-1 w1=1\n ok 2-3 r1=1"),
    ("an aborted append in the middle", Append, everywhere(G1a), "fail 0-1 w1=1\n ok 2-3 w1=2\n ok 4-5 r1=1,2"),
    ("half of another's appends seen", Append, everywhere(G1b), "ok 0-9 w1=1 w1=2\n ok 1-8 r1=1\n ok 10-11 r1=1,2"),
    ("each reads what the other wrote", Append, everywhere(G1c), "ok 0-9 w1=1 r2=2\n ok 1-8 w2=2 r1=1"),
    (
        "observed transactions vanish",
        Append,
        from_snapshot(GSingle),
        "ok 0-5 w1=1 w2=2
         ok 1-9 r1=1 r2=",
    ),
    (
        "predicate many preceders",
        Append,
        from_snapshot(GSingle),
        "ok 0-9 s0-5: s0-5:3=1
         ok 1-8 w3=1",
    ),
    (
        "a list appended to by two who read it as it was",
        Append,
        from_snapshot(GSingle),
        "ok 0-9 r1= w1=1
         ok 1-8 r1= w1=2
         ok 10-11 r1=1,2",
    ),
    (
        "an append that nobody sees",
        Append,
        from_snapshot(GSingle),
        "ok 0-9 r1= w1=1
         ok 1-8 r1= w1=2
         ok 2-7 r1=1",
    ),
    (
        "read skew by a writer",
        Append,
        from_snapshot(GSingle),
        "ok 0-9 r1= w2=5
         ok 1-8 w1=1 w2=2
         ok 10-11 r1=1 r2=2,5",
    ),
    (
        "long fork",
        Append,
        from_snapshot(GNonadjacent),
        "ok 0-9 w1=1
         ok 1-8 w2=2
         ok 2-7 r1=1 r2=
         ok 3-6 r1= r2=2",
    ),
    (
        "write skew",
        Append,
        serializable(G2Item),
        "ok 0-9 r1= w2=1
         ok 1-8 r2= w1=2
         ok 10-11 r1=2 r2=1",
    ),
    (
        "write skew by scans",
        Append,
        serializable(G2),
        "ok 0-9 s0-9: w2=1
         ok 1-8 s0-9: w1=2
         ok 10-11 r1=2 r2=1",
    ),
    (
        "write skew of three, of which one only reads",
        Append,
        serializable(G2Item),
        "ok 0-9 r1= r2= w1=1
         ok 1-5 w2=2
         ok 6-7 r1= r2=2
         ok 10-11 r1=1 r2=2",
    ),
    ("an acknowledged append is lost", Append, in_real_time(Some(StaleRead), GSingle), "ok 0-1 w1=1\n ok 2-3 r1="),
    (
        "a later transaction is seen without an earlier one",
        Append,
        in_real_time(Some(G0), G0),
        "ok 0-1 w1=1
         ok 2-3 w1=2
         ok 4-5 r1=2,1",
    ),
    ("what a later one wrote is seen", Append, in_real_time(Some(G1c), G1c), "ok 2-3 w1=1\n ok 0-1 r1=1"),
    (
        "a read that is older than what an answered transaction rests on",
        Append,
        in_real_time(Some(StaleRead), GSingle),
        "ok 0-9 w1=1
         ok 1-2 r1=1
         ok 3-4 r1=",
    ),
    (
        "an indeterminate commit that is there",
        Append,
        NOWHERE,
        "info 0-3 w1=1 w2=2
         ok 1-2 r1=
         ok 4-5 r1=1 r2=2",
    ),
    (
        "half of an indeterminate commit",
        Append,
        from_snapshot(GSingle),
        "info 0-3 w1=1 w2=2
         ok 4-5 r1=1 r2=",
    ),
    (
        "an indeterminate commit that goes away",
        Append,
        in_real_time(Some(StaleRead), GSingle),
        "info 0-1 w1=1\n ok 2-3 r1=1\n ok 4-5 r1=",
    ),
];

const REGISTERS: [Case; 17] = [
    (
        "one after the other",
        Register,
        NOWHERE,
        "ok 0-1 w1=1 w2=2
         ok 2-3 r1=1 w1=3 r1=3 r2=2
         ok 4-5 s0-5:1=3;2=2
         order 1=1,3",
    ),
    (
        "writes between each other's",
        Register,
        everywhere(G0),
        "ok 0-9 w1=1 w2=2
         ok 1-8 w1=3 w2=4
         order 1=1,3
         order 2=4,2",
    ),
    ("an aborted version seen", Register, everywhere(G1a), "fail 0-1 w1=1\n ok 2-3 r1=1"),
    ("an intermediate version seen", Register, everywhere(G1b), "ok 0-9 w1=1 w1=2\n ok 1-8 r1=1"),
    ("each reads what the other wrote", Register, everywhere(G1c), "ok 0-9 w1=1 r2=2\n ok 1-8 w2=2 r1=1"),
    (
        "observed transactions vanish",
        Register,
        from_snapshot(GSingle),
        "ok 0-1 w1=1 w2=2
         ok 1-5 w1=3 w2=4
         ok 2-9 r1=3 r2=2
         order 1=1,3
         order 2=2,4",
    ),
    ("a version read and then another", Register, from_snapshot(GSingle), "ok 0-5 w1=1\n ok 1-9 r1= r1=1"),
    (
        "both versions replace the same one",
        Register,
        from_snapshot(LostUpdate),
        "ok 0-1 w1=1
         ok 2-9 r1=1 w1=2
         ok 3-8 r1=1 w1=3",
    ),
    (
        "a version written over unread",
        Register,
        from_snapshot(GSingle),
        "ok 0-1 w1=1
         ok 2-9 r1=1 w1=2
         ok 3-8 w1=3
         order 1=1,3,2",
    ),
    (
        "long fork",
        Register,
        from_snapshot(GNonadjacent),
        "ok 0-9 w1=1
         ok 1-8 w2=2
         ok 2-7 r1=1 r2=
         ok 3-6 r1= r2=2",
    ),
    ("write skew", Register, serializable(G2Item), "ok 0-9 r1= w2=1\n ok 1-8 r2= w1=2"),
    ("write skew by scans", Register, serializable(G2), "ok 0-9 s0-9: w2=1\n ok 1-8 s0-9: w1=2"),
    ("an acknowledged version is lost", Register, in_real_time(Some(StaleRead), GSingle), "ok 0-1 w1=1\n ok 2-3 r1="),
    (
        "an old version comes back",
        Register,
        in_real_time(Some(StaleRead), GSingle),
        "ok 0-1 w1=1
         ok 2-3 w1=2
         ok 4-5 r1=1
         order 1=1,2",
    ),
    ("what a later one wrote is seen", Register, in_real_time(Some(G1c), G1c), "ok 2-3 w1=1\n ok 0-1 r1=1"),
    (
        "an indeterminate version goes away",
        Register,
        in_real_time(Some(StaleRead), GSingle),
        "ok 0-1 w1=1
         info 2-3 w1=2
         ok 4-5 r1=2
         ok 6-7 r1=1
         order 1=1",
    ),
    (
        "half of an indeterminate commit",
        Register,
        from_snapshot(GSingle),
        "info 0-3 w1=1 w2=2
         ok 4-5 r1=1 r2=",
    ),
];

/// What is wrong with single transactions is wrong at every level.
#[test]
fn values_from_nowhere_are_refused() {
    let cases = [
        (Append, UnknownValue, "ok 0-1 r1=5"),
        (Append, UnknownValue, "ok 0-1 w1=4\n ok 2-3 r1=5,4"),
        (Append, Internal, "ok 0-1 w1=5 r1="),
        (Append, Internal, "ok 0-1 r1=5 w1=5"),
        (Append, Internal, "ok 0-1 w1=5 r1=5,6\n ok 0-1 w1=6"),
        (Append, IncompatibleOrder, "ok 0-1 w1=1\n ok 2-3 w1=2\n ok 4-5 r1=1,2\n ok 6-7 r1=2,1"),
        (Append, IncompatibleOrder, "ok 0-1 w1=1\n ok 2-3 w1=2\n ok 4-5 r1=1,2\n ok 6-7 r1=2"),
        (Append, IncompatibleOrder, "ok 0-1 w1=1\n ok 2-3 w1=2\n ok 4-5 r1=1,2,1"),
        (Append, IncompatibleOrder, "ok 0-1 w1=1 w1=2\n ok 2-3 w1=3\n ok 4-5 r1=2,1,3"),
        (Append, IncompatibleOrder, "ok 0-1 w1=1 w1=2\n ok 2-3 r1=2"),
        (Append, DuplicateWrite, "ok 0-1 w1=1\n ok 2-3 w1=1"),
        (Append, UnknownValue, "ok 0-1 w4=1\n ok 2-3 s0-2:4=1"),
        (Register, UnknownValue, "ok 0-1 r1=5"),
        (Register, UnknownValue, "ok 0-1 w1=1\n ok 2-3 w1=2\n ok 4-5 r1=1,2"),
        (Register, Internal, "ok 0-1 w1=5 r1="),
        (Register, Internal, "ok 0-1 r1=5 w1=5"),
        (Register, Internal, "ok 0-1 w1=5 w1=6 r1=5"),
        (Register, DuplicateWrite, "ok 0-1 w1=1\n ok 2-3 w1=1"),
    ];
    for (kind, anomaly, text) in cases {
        for level in LEVELS {
            let found = check(&history(kind, text), level).expect_err(text);
            assert_eq!(found.anomaly, anomaly, "{text}, {level}: {found}");
        }
    }
}

#[test]
fn a_violation_names_its_cycle() {
    let text = "ok 0-9 r1= w2=1\n ok 1-8 r2= w1=2\n ok 10-11 r1=2 r2=1";
    let found = check(&history(Append, text), Level::SERIALIZABLE).unwrap_err();
    assert_eq!(found.cycle.len(), 2);
    let shown = found.to_string();
    for part in [
        "G2-item, write skew: a cycle of 2",
        "T0 read key 1 as it was before T1",
        "T1 read key 2 as it was before T0",
        "T0 is Ok, of process 0, from 0 to 9: read 1 = [], write 2 = 1",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
}

/// The cycle of two is shown, not the one of four around it.
#[test]
fn the_shortest_cycle_is_shown() {
    let text = "ok 0-20 r1= w2=1
                ok 1-21 r2= w3=2
                ok 2-22 r3= r5= w4=3
                ok 3-23 r4= w1=4 w5=5";
    let found = check(&history(Append, text), Level::SERIALIZABLE).unwrap_err();
    assert_eq!(found.cycle.len(), 2, "{found}");
}
