use super::experiment::MAX_THREADS;
use super::*;
use crate::Silent;
use foreshore::Device;
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// Every point, for a moment: what is measured means nothing, what is reported is complete.
fn settings() -> Settings {
    Settings {
        quick: true,
        l1: true,
        device: Device::Null,
        secs: Some(Duration::from_millis(3)),
        repeat: Some(1),
        threads: vec![1, 2],
        scale: Some(1),
        pages: Some(MIN_PAGES),
        trace: None,
        seed: 1,
    }
}

/// A folder for results, removed with the value.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("foreshore-lab-{name}-{}", std::process::id())))
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Figure and rows of each experiment, by name.
type Files = BTreeMap<&'static str, (Value, String)>;

/// Runs every experiment with [`settings`] and returns the files of each, the page, and the page that is written again
/// from the files.
fn run_all() -> (Files, String, String) {
    let scratch = Scratch::new("all");
    let mut tables = Vec::new();
    let mut done = |outcome: &Outcome| {
        tables.push(outcome.table());
        Ok(())
    };
    run(ALL, &settings(), &scratch.0, &Silent, &mut done).unwrap();
    assert_eq!(tables.len(), EXPERIMENTS.len());
    let files = names().map(|name| {
        let json = serde_json::from_str(&scratch.read(&format!("{name}.json"))).unwrap();
        (name, (json, scratch.read(&format!("{name}.svg"))))
    });
    let (files, first) = (files.collect(), scratch.read("index.html"));
    page(&scratch.0, Some("a < b")).unwrap();
    (files, first, scratch.read("index.html"))
}

/// What varies and what is measured in every row of an experiment.
fn fields(experiment: &str) -> &'static [&'static str] {
    match experiment {
        "log-insert" => &["buffer", "threads", "record_bytes"],
        "log-size" => &["buffer", "threads", "record_bytes", "ring_bytes"],
        "log-skew" => &["buffer", "threads", "outlier_bytes"],
        "log-slots" => &["buffer", "threads", "slots"],
        "log-threads" => {
            &["buffer", "threads", "clients", "commit", "device", "tps", "p50_us", "p99_us", "cpu_user_cores"]
        }
        "buffer-hits" => &["policy", "cache_fraction", "scan_fraction", "hit_ratio", "hit_ratio_all", "ops_per_s"],
        "buffer-miss" => &["policy", "threads", "memory_ratio", "pages_read_per_s", "reads_per_miss"],
        "buffer-scale" => &["policy", "distribution", "threads", "ops_per_s"],
        "buffer-trace" => &["policy", "frames", "hit_ratio"],
        "commit-ladder" => &[
            "step",
            "commit",
            "elr",
            "buffer",
            "clients",
            "threads",
            "tps",
            "speedup",
            "p99_us",
            "voluntary_switches_per_txn",
        ],
        "breakdown" => &["workload", "step", "commit", "elr", "buffer", "clients", "threads", "tps", "breakdown"],
        "elr" => &["elr", "delay_us", "skew", "threads", "tps", "speedup"],
        "flush-pipelining" => {
            &["commit", "clients", "tps", "voluntary_switches_per_txn", "cpu_user_cores", "cpu_system_cores"]
        }
        "growth" => &["growth", "device", "threads", "records_per_s", "p9999_us", "max_us", "growths", "cuts"],
        "status" => &["status", "distribution", "threads", "lookups_per_s", "lookup_ns", "commits_per_s"],
        "long-reader" => &["reader", "threads", "seconds", "tps", "undo_bytes_max", "versions_pruned", "unchanged"],
        "recovery" => &[
            "log_bytes",
            "workers",
            "redo",
            "open_s",
            "redo_s",
            "undo_s",
            "first_commit_s",
            "redone_s",
            "regained_s",
            "mb_per_s",
            "redone",
        ],
        "group-timer" => &["group", "record_bytes", "tps", "mean_us", "p99_us", "waits"],
        "flush-time" => &["bytes_per_group", "p50_us", "p99_us", "mb_per_s", "samples"],
        "insert-ladder" => {
            &["step", "policy", "growth", "buffer", "intents", "threads", "tps", "records_per_s", "breakdown"]
        }
        "tpcc-threads" => &["workload", "warehouses", "threads", "tps", "p50_us", "p99_us", "breakdown"],
        other => panic!("no fields for {other}"),
    }
}

/// One run, for it takes its time.
#[test]
fn a_run_of_all_experiments_is_complete() {
    let (files, page, again) = run_all();
    every_experiment_writes_the_agreed_json_and_a_figure(&files, &page);
    insert_experiments_measure_rates_and_count_contention(&files);
    assert_eq!(again.replace("<p>a &lt; b</p>\n", ""), page, "the page is another one when it is written again");
    assert_ne!(again, page, "the note is missing");
}

fn every_experiment_writes_the_agreed_json_and_a_figure(files: &Files, page: &str) {
    for (name, (json, svg)) in files {
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["config", "experiment", "figure", "findings", "machine", "promises", "rows"], "{name}");
        assert_eq!(json["experiment"], *name);
        let says_where = |figure: &str| ["Fig.", "slide", "trace"].iter().any(|word| figure.contains(word));
        assert!(json["figure"].as_str().is_some_and(says_where), "{name}");
        assert!(json["machine"]["cores"].as_u64().is_some_and(|cores| cores > 0));
        assert_eq!(json["config"]["seed"], 1);
        let rows = json["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{name}");
        for row in rows {
            let fields = match row.get("distribution") {
                Some(distribution) if distribution == "tpcb" => &["status", "threads", "tps", "repeats"],
                _ if row.get("target_s").is_some() => &["log_bytes", "open_s", "redone_s", "target_s"],
                _ => fields(name),
            };
            for field in fields {
                assert!(row.get(field).is_some(), "{name}: no {field} in {row}");
            }
        }
        let elements = chart::tests::elements(svg);
        assert_eq!(elements["svg"], 1);
        let (section, link) = (format!("<section id=\"{name}\">"), format!("<a href=\"#{name}\">"));
        assert!(page.contains(&section) && page.contains(&link), "{name}");
    }
    let drawn = chart::tests::tags(page.trim_start_matches("<!DOCTYPE html>"));
    // A panel for each experiment at least, and a line of a legend for each panel.
    assert!(drawn["svg"] > 2 * files.len() && drawn["section"] == files.len() + 2, "{drawn:?}");
}

fn insert_experiments_measure_rates_and_count_contention(files: &Files) {
    for name in ["log-insert", "log-size", "log-skew", "log-slots"] {
        for row in files[name].0["rows"].as_array().unwrap() {
            if row.get("refused").is_some() {
                assert_eq!(name, "log-skew", "{row}");
                continue;
            }
            for field in ["records_per_s", "gb_per_s", "contended_rmw_per_record"] {
                assert!(row[field].as_f64().is_some_and(|value| value >= 0.0), "{name}: {field} of {row}");
            }
            // On a busy machine a thread may get no processor in so short a window.
            if row["records_per_s"] == 0.0 {
                continue;
            }
            let rmw = row["contended_rmw_per_record"].as_f64().unwrap();
            match row["buffer"].as_str().unwrap() {
                "bound-private" => assert_eq!(rmw, 0.0),
                "bound-fetch-add" => assert!(rmw > 0.9 && rmw < 1.1, "{row}"),
                _ => {}
            }
        }
    }
}

/// Runs one experiment on a device that takes 300 us. Each point is long enough for commits. Points are longer on a
/// busy machine, where a row was not complete.
fn run_on_a_slow_device(experiment: &str, is_complete: impl Fn(&Value) -> bool) -> (Vec<Value>, String) {
    let run_for = |millis| {
        let scratch = Scratch::new(experiment);
        let device = Device::Delay(Duration::from_micros(300));
        let secs = Some(Duration::from_millis(millis));
        let settings = Settings { device, secs, threads: vec![2], ..settings() };
        run(experiment, &settings, &scratch.0, &Silent, &mut |_| Ok(())).unwrap();
        let json: Value = serde_json::from_str(&scratch.read(&format!("{experiment}.json"))).unwrap();
        (json["rows"].as_array().unwrap().clone(), scratch.read(&format!("{experiment}.svg")))
    };
    for millis in [40, 200] {
        let (rows, svg) = run_for(millis);
        if rows.iter().all(&is_complete) {
            return (rows, svg);
        }
    }
    run_for(1000)
}

#[test]
fn commits_are_counted_when_they_are_durable() {
    let is_slow = |row: &Value| row["device"] != "null";
    let counts = |row: &Value| row["tps"].as_f64().unwrap() > 0.0;
    let (rows, svg) = run_on_a_slow_device("log-threads", |row| !is_slow(row) || counts(row));
    let (slow, null): (Vec<_>, Vec<_>) = rows.iter().partition(|row| is_slow(row));
    assert_eq!(slow.len(), null.len());
    for row in slow {
        assert!(counts(row) && row["p50_us"].as_f64().unwrap() >= 300.0, "{row}");
    }
    // The background, and a bar for each buffer in each panel.
    assert!(chart::tests::elements(&svg)["rect"] > 8);
}

#[test]
fn an_open_loop_takes_the_latency_of_durable_commits() {
    let has_samples = |row: &Value| row["samples"].as_u64().unwrap() > 0;
    let (rows, svg) = run_on_a_slow_device("group-timer", |row| has_samples(row) && row["waits"].is_object());
    let (peaks, loads): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.get("load_per_s").is_none());
    assert_eq!(loads.len(), peaks.len() * QUICK_LOADS);
    for row in &rows {
        assert!(has_samples(row) && row["mean_us"].as_f64().unwrap() >= 300.0, "{row}");
        let waits = row["waits"].as_object().unwrap_or_else(|| panic!("no waits in {row}"));
        assert_eq!(waits.keys().collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
        // The write of a group takes what the device takes.
        assert!(waits["d"].as_f64().unwrap() > 100.0, "{row}");
    }
    // Each load of the first policy, its mean and its 99th percentile, and an entry of the legend.
    assert!(chart::tests::elements(&svg)["circle"] > 2 * QUICK_LOADS);
}

const QUICK_LOADS: usize = 3;

/// Without a run: the JSON of one promise that held and one that did not.
#[test]
fn the_page_counts_what_held_and_shows_what_did_not() {
    let scratch = Scratch::new("page");
    fs::create_dir_all(&scratch.0).unwrap();
    let row = |buffer: &str, threads: usize, rate: f64| {
        let row = Row::new().with("buffer", buffer).with("threads", threads).measured("records_per_s", rate);
        row.measured("gb_per_s", rate / 1e9).measured("contended_rmw_per_record", 1.0)
    };
    let rows = [row("lanes", 1, 2e6), row("mutex", 1, 1e6), row("bound-fetch-add", 1, 9e6), row("lanes", 2, 4e6)];
    let machine = Machine { cores: 7, ..Machine::without_device().unwrap() };
    let outcome = Outcome::new(&log_insert::LogInsert, Map::new(), machine, rows.to_vec());
    save(&scratch.0, "log-insert.json", &outcome.json()).unwrap();
    page(&scratch.0, None).unwrap();
    let page = scratch.read("index.html");
    let misses = outcome.promises.iter().filter(|promise| !promise.held).count();
    assert!(misses > 0 && misses < outcome.promises.len());
    let held = format!("<td class=\"no\">{} of {}</td>", outcome.promises.len() - misses, outcome.promises.len());
    assert!(page.contains(&held) && page.contains("Measured on 7 cores"), "{page}");
    assert_eq!(page.matches("<tr class=\"no\">").count(), misses);
    assert!(page.contains("name=\"viewport\"") && page.contains("break-after: avoid"));
}

#[test]
fn a_page_of_no_results_or_of_others_is_refused() {
    let scratch = Scratch::new("no-page");
    fs::create_dir_all(&scratch.0).unwrap();
    let refused = |why: &str| {
        let refused = page(&scratch.0, None);
        let Err(Error::InvalidOption { name: "results", value, expected }) = refused else { panic!("{refused:?}") };
        assert!(expected.contains(why), "{value}: {expected}");
    };
    refused("EXPERIMENT.json");
    save(&scratch.0, "elr.json", "{").unwrap();
    refused("JSON of lab");
    let row = r#"{"experiment": "log-slots", "config": {}, "machine": {"cores": 1, "memory_bytes": 1, "kernel": "k",
        "filesystem": "f", "device_backend": "d", "device_sync_us": null}, "rows": [{"speed": 1}]}"#;
    save(&scratch.0, "elr.json", row).unwrap();
    refused("speed is not a field");
    save(&scratch.0, "elr.json", &row.replace("speed", "tps")).unwrap();
    refused("JSON of lab elr");
}

#[test]
fn an_unknown_name_is_refused_with_those_that_exist() {
    let scratch = Scratch::new("unknown");
    let refused = run("log-inserts", &settings(), &scratch.0, &Silent, &mut |_| Ok(()));
    let Err(Error::InvalidOption { name: "experiment", value, expected }) = refused else { panic!("{refused:?}") };
    assert_eq!(value, "log-inserts");
    assert!(names().chain([ALL]).all(|name| expected.split(", ").any(|known| known == name)), "{expected}");
    assert!(!scratch.0.exists(), "a refusal leaves nothing behind");
}

#[test]
fn settings_out_of_range_are_refused() {
    let scratch = Scratch::new("settings");
    for broken in [
        Settings { secs: Some(Duration::ZERO), ..settings() },
        Settings { repeat: Some(0), ..settings() },
        Settings { threads: vec![2, 0], ..settings() },
        Settings { pages: Some(MIN_PAGES - 1), ..settings() },
        Settings { threads: vec![MAX_THREADS + 1], ..settings() },
    ] {
        let refused = run("log-insert", &broken, &scratch.0, &Silent, &mut |_| Ok(()));
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{broken:?}: {refused:?}");
    }
}
