//! Medians, table and JSON of made-up rows.

use super::*;
use crate::verify::Checks;
use clap::Parser as _;

fn row(tps: f64) -> Row {
    Row {
        engine: "foreshore".to_owned(),
        version: "1".to_owned(),
        variant: "async".to_owned(),
        settings: "defaults".to_owned(),
        loses: Some("loses the newest".to_owned()),
        workload: Workload::Tpcb,
        shape: None,
        value_bytes: None,
        threads: 2,
        clients: 1,
        durable: false,
        seconds: 1.0,
        commits: 10,
        tps,
        ops_per_s: tps,
        p50_us: 1.0,
        p99_us: 2.0,
        cpu_us_per_txn: 3.0,
        cpu_us_per_op: 3.0,
        cpu_cores: 1.0,
        background_seconds: 0.0,
        background_cpu_seconds: 0.0,
        device_bytes_per_txn: None,
        flushes_per_txn: None,
        rss_peak_bytes: 1 << 20,
        file_bytes: 1 << 20,
        cpu_stolen_cores: 0.0,
        is_stolen: false,
        checks: Checks::from([("sums_live".to_owned(), true)]),
        repeats: Vec::new(),
    }
}

fn report(rows: Vec<Row>) -> Report {
    let mut cli = Cli::try_parse_from(["compare", "tpcb", "--lazy"]).unwrap();
    let workload = cli.checked().unwrap();
    let machine = Machine {
        cores: 2,
        memory_bytes: 1,
        kernel: "6".to_owned(),
        filesystem: "ext4".to_owned(),
        device_sync_us: 5.0,
    };
    Report::new(&cli, workload, machine, rows, Vec::new())
}

#[test]
fn the_median_keeps_the_other_rounds() {
    let tps = |rounds: &[f64]| {
        let row = median(rounds.iter().map(|&tps| row(tps)).collect())?;
        Some((row.tps, row.repeats.iter().map(|row| row.tps).collect::<Vec<_>>()))
    };
    assert_eq!(tps(&[3.0, 1.0, 2.0]), Some((2.0, vec![1.0, 3.0])));
    assert_eq!(tps(&[4.0, 1.0]), Some((1.0, vec![4.0])), "the lower one of two");
    assert_eq!(tps(&[]), None);
}

#[test]
fn a_failed_check_of_any_round_fails_the_report() {
    assert!(report(vec![row(1.0)]).passed());
    let mut bad = row(1.0);
    bad.checks.insert("history_live".to_owned(), false);
    let with_repeat = Row { repeats: vec![bad.clone()], ..row(2.0) };
    for rows in [vec![bad], vec![row(1.0), with_repeat]] {
        let report = report(rows);
        assert!(!report.passed());
        assert!(report.table().contains("FAILED history_live"), "{}", report.table());
    }
    let mut ended = report(vec![row(1.0)]);
    ended.failures.push(Failure { row: "x".to_owned(), error: "y".to_owned() });
    assert!(!ended.passed() && ended.table().contains("failed: x: y"));
}

#[test]
fn the_table_says_settings_spread_and_what_may_be_lost() {
    let spread = Row { repeats: vec![row(1.0), row(9.0)], ..row(5.0) };
    let table = report(vec![spread]).table();
    let line = table.lines().find(|line| line.starts_with("foreshore:async")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..7], ["foreshore:async", "-", "lazy", "2", "5.00", "1.00", "9.00"], "{table}");
    assert!(table.contains("foreshore:async 1: defaults; loses the newest"), "{table}");
}

#[test]
fn the_json_has_the_fields_of_the_contract() {
    let json: serde_json::Value = serde_json::from_str(&report(vec![row(5.0)]).json().unwrap()).unwrap();
    for field in [
        "engine",
        "version",
        "settings",
        "workload",
        "threads",
        "durable",
        "tps",
        "ops_per_s",
        "p50_us",
        "p99_us",
        "cpu_us_per_txn",
        "device_bytes_per_txn",
        "flushes_per_txn",
        "rss_peak_bytes",
        "file_bytes",
        "checks",
    ] {
        assert!(json["rows"][0].get(field).is_some(), "{field}");
    }
    assert_eq!(json["workload"], "tpcb");
    assert_eq!(json["config"]["threads"], serde_json::json!([1, 2, 128]));
    assert_eq!(json["machine"]["cores"], 2);
}
