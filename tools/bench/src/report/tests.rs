use super::*;
use crate::stepper::Counts;

const NAMES: [&str; 4] = ["history_live", "history_reopened", "sums_live", "sums_reopened"];

/// All true but the one named.
fn checks(broken: Option<&str>) -> Checks {
    Checks::new(NAMES.map(|name| (name.to_owned(), Some(name) != broken)))
}

fn row(tps: f64) -> Row {
    Row {
        threads: 2,
        clients: 64,
        tps,
        ended: Ended {
            seconds: 1.0,
            commits: 1000,
            rollbacks: 0,
            aborts: 0,
            retries: 3,
            tps_each_second: vec![],
            kinds: vec![],
        },
        latency: Latency { p50_us: 80.0, p95_us: 90.0, p99_us: 100.0, p999_us: 110.0 },
        time: TimeUse {
            cpu_cores: 1.5,
            cpu_user_cores: 1.0,
            cpu_system_cores: 0.5,
            cpu_stolen_cores: 0.25,
            voluntary_switches_per_txn: 0.01,
            breakdown: None,
        },
        log: LogUse {
            log_bytes_per_txn: 700.0,
            log_groups: 10,
            txns_per_group: 100.0,
            log_writes: 10,
            log_retained_peak_bytes: 0,
            log_slowed: 0.0,
        },
        data: DataUse {
            file_bytes_each_second: vec![],
            data_syncs: 0,
            pages_read: 0,
            pages_written: 0,
            checkpoints: 0,
        },
        memory: MemoryUse {
            rss_peak_bytes: 1 << 26,
            rss_open_bytes: 1 << 25,
            snapshots_killed: None,
            undo_spilled_bytes: None,
        },
        rmw: CountedRmw::default(),
        checks: checks(None),
        repeats: vec![],
    }
}

fn report(rows: Vec<Row>, is_durable: bool) -> Report {
    let machine = Machine {
        cores: 2,
        memory_bytes: 1 << 34,
        kernel: "6.1".into(),
        filesystem: "ext4".into(),
        device_backend: "direct".into(),
        device_sync_us: 100.0,
        is_durable,
    };
    Report { workload: Workload::Tpcb, config: Config::default(), machine, rows }
}

#[test]
fn the_json_has_the_agreed_fields() {
    let json = serde_json::to_value(report(vec![row(5.0)], true)).unwrap();
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort_unstable();
        keys.join(" ")
    };
    assert_eq!(keys(&json), "config machine rows workload");
    assert_eq!(json["workload"], "tpcb");
    assert_eq!(keys(&json["machine"]), "cores device_backend device_sync_us filesystem kernel memory_bytes");
    assert_eq!(
        keys(&json["rows"][0]),
        "aborts breakdown checkpoints checks clients commits contended_rmw_per_txn cpu_cores \
         cpu_stolen_cores cpu_system_cores cpu_user_cores data_syncs file_bytes_each_second \
         log_bytes_per_txn log_groups log_retained_peak_bytes log_slowed log_writes p50_us p95_us p999_us p99_us pages_read pages_written retries rollbacks \
         rss_open_bytes rss_peak_bytes seconds threads tps tps_each_second txns_per_group voluntary_switches_per_txn"
    );
    assert_eq!(keys(&json["rows"][0]["checks"]), NAMES.join(" "));
    assert!(json["rows"][0]["breakdown"].is_null() && json["rows"][0]["contended_rmw_per_txn"].is_null());
}

#[test]
fn the_median_row_carries_the_others() {
    let median = Row::median(vec![row(9.0), row(1.0), row(5.0)]);
    assert_eq!(median.tps, 5.0);
    assert_eq!(median.repeats.iter().map(|row| row.tps).collect::<Vec<_>>(), [9.0, 1.0]);
    assert_eq!(Row::median(vec![row(2.0), row(1.0)]).tps, 1.0);
}

#[test]
fn one_false_check_fails_the_run() {
    assert!(report(vec![row(1.0), row(2.0)], true).passed());
    for broken in NAMES {
        let failed = Row { checks: checks(Some(broken)), ..row(2.0) };
        assert!(!report(vec![row(1.0), failed.clone()], true).passed());
        let hidden = Row { repeats: vec![failed], ..row(1.0) };
        let report = report(vec![hidden], true);
        assert!(!report.passed());
        assert!(report.table().contains("FALSE"));
    }
}

#[test]
fn ratios_to_a_sync_need_a_device_that_syncs() {
    // 20,000 commits a second at 100 us a sync: two commits in the time of one.
    let table = report(vec![row(20_000.0)], true).table();
    assert!(table.lines().any(|line| line.contains("20000") && line.contains(" 2.00 ")), "{table}");
    let table = report(vec![row(20_000.0)], false).table();
    assert!(table.contains("n/a"), "{table}");
}

#[test]
fn counts_are_divided_by_the_operations_and_shown_with_their_sites() {
    let mut counted = row(1.0);
    let site = Site { function: "tree::descend".to_owned(), offset: 0x1f0, contended_rmw_per_txn: 1.5 };
    counted.counted(&Counts { operations: 4, instructions: 4_000, rmw: 10, contended: 6, sites: vec![site] });
    assert_eq!((counted.rmw.contended_rmw_per_txn, counted.rmw.tagged_rmw_per_txn), (Some(1.5), Some(2.5)));
    let table = report(vec![counted], true).table();
    assert!(table.contains("tree::descend at 0x1f0"), "{table}");
}
