use super::*;
use crate::group::GroupName;
use foreshore::Device;
use foreshore_classics::early_release::EarlyRelease;
use foreshore_classics::growth::GrowthKind;
use foreshore_classics::intents::IntentKind;
use foreshore_classics::log_buffers::{BufferKind, WaitKind};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_classics::status_tables::StatusKind;
use std::time::Duration;

fn refused<T: fmt::Debug, E: Into<Error>>(result: Result<T, E>) -> String {
    match result.map_err(Into::into) {
        Err(Error::InvalidOption { expected, .. }) => expected,
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_that_are_not_built_are_refused_with_those_that_are() {
    assert_eq!("async".parse::<Commit>().unwrap(), Commit::Async);
    assert_eq!(refused("lazy".parse::<Commit>()), "blocking, pipelined, async");
    assert_eq!(
        refused("tpch".parse::<Workload>()),
        "tpcb, tatp, tatp-update-location, tpcc, tpcc-payment, tpcc-new-order, ycsb-a, ycsb-b, ycsb-c, ycsb-d, ycsb-e, \
         ycsb-f, update, insert, read, queue"
    );
    assert_eq!(refused("sleep".parse::<WaitKind>()), "spin or park");
    assert_eq!(refused("x_only".parse::<EarlyRelease>()), "off, s_only or full");
    assert!(refused("lru".parse::<StatusKind>()).contains("csnmap"));
    assert_eq!(refused("row".parse::<IntentKind>()), "table or fastpath");
    assert_eq!(refused("late".parse::<GrowthKind>()), "inline or ahead");
    assert!(refused("ring".parse::<BufferKind>()).contains("faa"));
    assert_eq!(refused("hot".parse::<Distribution>()), "uniform, zipf, latest");
    assert!(refused("lazy".parse::<GroupName>()).contains("greedy"));
    assert!(refused("fifo".parse::<ReplacementKind>()).contains("clock"));
    assert!(refused("dirty".parse::<Isolation>()).contains("serializable"));
    assert!(refused("uring".parse::<Device>()).contains("direct"));
}

#[test]
fn values_out_of_range_are_refused() {
    Config::default().check(Workload::Tpcb).unwrap();
    let broken: [fn(&mut Config); 15] = [
        |config| config.threads = vec![2, 0],
        |config| config.threads = vec![],
        |config| config.threads = vec![1001],
        |config| config.clients = 0,
        |config| config.window.secs = Duration::ZERO,
        |config| config.window.repeat = 0,
        |config| config.scale = 0,
        |config| config.records.skew = -1.0,
        |config| config.records.rows = Some(0),
        |config| config.records.row_bytes = 7,
        |config| config.window.load = Some(0.0),
        |config| config.window.load = Some(f64::NAN),
        |config| config.records.skew = f64::NAN,
        |config| config.records.batch = 0,
        |config| config.parts.slots = 0,
    ];
    for set in broken {
        let mut config = Config::default();
        set(&mut config);
        refused(config.check(Workload::Tpcb));
    }
    let sides = Sides { producers: 2, ..Sides::default() };
    let queue = Config { threads: vec![3], scale: 1, queue: sides, ..Config::default() };
    queue.check(Workload::Queue).unwrap();
    for broken in [
        Config { threads: vec![2], ..queue.clone() },
        Config { threads: vec![3, 3], ..queue.clone() },
        Config { queue: Sides { producers: 0, consumers: 3, ..sides }, ..queue.clone() },
        Config { queue: Sides { backlog: 0, ..sides }, ..queue },
    ] {
        broken.check(Workload::Tpcb).unwrap();
        refused(broken.check(Workload::Queue));
    }
}

#[test]
fn a_path_that_is_not_text_does_not_stop_the_report() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let dir = Some(PathBuf::from(OsStr::from_bytes(b"a\xFFb")));
    let json = serde_json::to_value(Config { dir, ..Config::default() }).unwrap();
    assert_eq!(json["dir"], "a\u{FFFD}b");
}

#[test]
fn the_json_holds_every_option() {
    let json = serde_json::to_value(Config::default()).unwrap();
    let mut names: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    let expected = [
        "archive",
        "backlog",
        "batch",
        "breakdown",
        "claim",
        "clients",
        "commit",
        "consumers",
        "count_rmw",
        "device",
        "dir",
        "distribution",
        "doublewrite",
        "elr",
        "group",
        "growth",
        "intents",
        "isolation",
        "load",
        "log_budget",
        "log_buffer",
        "memory",
        "producers",
        "reader",
        "reader_secs",
        "repeat",
        "replacement",
        "restart_target",
        "row_bytes",
        "rows",
        "scale",
        "secs",
        "seed",
        "segment",
        "skew",
        "slots",
        "spill",
        "status",
        "threads",
        "wait",
    ];
    assert_eq!(names, expected);
    assert_eq!(json["log_buffer"], BufferKind::default().to_string());
    assert_eq!((&json["wait"], &json["slots"]), (&"park".into(), &4.into()));
    assert_eq!(json["isolation"], "serializable");
    assert_eq!(json["secs"], 10.0);
    assert_eq!(json["device"], "auto");
    assert_eq!((&json["log_budget"], &json["row_bytes"]), (&(512_u64 << 20).into(), &100.into()));
    let storage = Storage { restart_target: Some(Duration::from_millis(2500)), ..Storage::default() };
    let config = Config { storage, ..Config::default() };
    assert_eq!(serde_json::to_value(&config).unwrap()["restart_target"], 2.5);
    assert!(config.summary().contains(" restart-target 2.5s "), "{}", config.summary());
    let storage = Storage { archive: 8 << 20, ..Storage::default() };
    let config = Config { storage, ..Config::default() };
    assert!(config.summary().contains(" archive 8.0 MiB "), "{}", config.summary());
}
