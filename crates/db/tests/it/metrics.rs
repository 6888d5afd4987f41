//! Metrics are text that Prometheus reads, and say what the counters say.

use crate::support::{DIR, NUMBERS, fill, in_memory, numbers, small};
use foreshore::{Device, TableDef, TxnOptions, metrics};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Parses text as the exposition format has it, and as the module promises. Returns the samples by name and labels.
fn parse(text: &str) -> BTreeMap<&str, f64> {
    assert!(text.is_empty() || text.ends_with('\n'));
    let (mut families, mut samples) = (BTreeSet::new(), BTreeMap::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, help) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')).expect(line);
        assert!(families.insert(name), "{name} has one family");
        let rest = name.strip_prefix("foreshore_").expect(name);
        assert!(rest.bytes().all(|c| c.is_ascii_lowercase() || c == b'_') && help.ends_with('.'), "{line}");
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        assert_eq!(lines.next(), Some(&*format!("# TYPE {name} {kind}")));
        assert!(!rest.contains("nanos") && !rest.contains("millis") && !rest.contains("kib"), "{name}: base units");
        let before = samples.len();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect(line);
            let labels = series.strip_prefix(name).expect("the samples follow their family");
            check_labels(labels);
            assert!(samples.insert(series, value.parse().expect(line)).is_none(), "{series} is there twice");
        }
        assert!(samples.len() > before, "{name} has samples");
    }
    samples
}

/// Checks `{name="value",…}`, or nothing.
fn check_labels(labels: &str) {
    let Some(mut rest) = labels.strip_prefix('{') else { return assert_eq!(labels, "") };
    loop {
        let (name, value) = rest.split_once("=\"").expect(labels);
        assert!(!name.is_empty() && name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'), "{labels}");
        let mut escaped = false;
        let end = value.find(|c| {
            let ends = c == '"' && !escaped;
            assert!(!escaped || "\\\"n".contains(c), "{labels}");
            escaped = c == '\\' && !escaped;
            ends
        });
        rest = &value[end.expect(labels) + 1..];
        if rest == "}" {
            return;
        }
        rest = rest.strip_prefix(',').expect(labels);
    }
}

#[test]
fn metrics_of_the_engine_are_its_counters() {
    let (db, _) = in_memory();
    fill(&db, 1000);
    let tx = db.begin_with(TxnOptions::new().label("a \"long\" one"));
    tx.open(NUMBERS).unwrap().insert(1, 0).unwrap();
    let reader = db.read();
    assert!(!reader.tables().unwrap().is_empty());
    let stats = db.stats();
    let text = metrics::render(&stats);
    let samples = parse(&text);
    assert_eq!(samples["foreshore_commits_total"], stats.txn.commits as f64);
    assert_eq!(samples["foreshore_log_bytes_total"], stats.log.group_bytes as f64);
    assert_eq!(samples["foreshore_log_retained_bytes"], stats.log_retained_bytes as f64);
    assert_eq!(samples["foreshore_data_file_bytes{state=\"used\"}"], stats.space.used_pages as f64 * 8192.0);
    assert_eq!(samples["foreshore_tree_changes_total{kind=\"leaf_split\"}"], stats.tree.leaf_splits as f64);
    assert_eq!(samples["foreshore_memory_share_bytes{share=\"pool\"}"], stats.memory.pool as f64);
    assert_eq!(samples["foreshore_memory_used_bytes{share=\"undo\"}"], stats.memory_use.undo as f64);
    assert_eq!(samples["foreshore_info{version=\"0.1.0\",backend=\"null\"}"], 1.0);
    let (oldest, snapshot) = (stats.oldest_transaction.unwrap(), stats.oldest_snapshot.unwrap());
    let age = samples["foreshore_oldest_transaction_age_seconds{label=\"a \\\"long\\\" one\"}"];
    assert_eq!(age, oldest.age.as_secs_f64());
    assert!(text.contains("\nforeshore_oldest_snapshot_age_seconds{label="), "{:?}", snapshot.label);
    assert!(!text.contains("_archive_"), "there is no archive");
    drop((tx, reader));
    let text = metrics::render(&db.stats());
    assert!(!text.contains("_oldest_"), "no transaction is left: {text}");
    assert!(parse(&text)["foreshore_rollbacks_total"] >= 1.0);
}

#[test]
fn waits_are_told_apart_by_class() {
    let db = small().device(Device::Null).open(DIR).unwrap();
    fill(&db, 10);
    let holder = db.begin();
    holder.open(NUMBERS).unwrap().insert(5, 1).unwrap();
    let waiter = db.begin_with(TxnOptions::new().lock_timeout(Duration::from_millis(1)));
    assert!(waiter.open(NUMBERS).unwrap().insert(5, 2).is_err());
    let text = metrics::render(&db.stats());
    let samples = parse(&text);
    assert_eq!(samples["foreshore_waits_total{class=\"lock\"}"], 1.0);
    assert_eq!(samples["foreshore_lock_timeouts_total"], 1.0);
    assert_eq!(samples["foreshore_deadlocks_total"], 0.0);
    drop((waiter, holder));
    assert_eq!(numbers(&db).len(), 10);
}

#[test]
fn metrics_of_the_profile_have_a_sample_for_each_label_and_class() {
    let (db, _) = in_memory();
    assert_eq!(metrics::render_profile(&db.profile()), "");
    db.set_profiling(true).unwrap();
    db.run_with(TxnOptions::new().label("order"), |tx| tx.open(NUMBERS)?.put(1, 1)).unwrap();
    let profile = db.profile();
    let text = metrics::render_profile(&profile);
    let samples = parse(&text);
    assert_eq!(samples["foreshore_profile_transactions_total{label=\"order\"}"], 1.0);
    let times = samples.iter().filter(|(series, _)| series.contains("_seconds_total{label=\"order\",class="));
    let (count, sum) = times.fold((0, 0.0), |(count, sum), (_, seconds)| (count + 1, sum + seconds));
    assert_eq!(count, 8);
    assert!((sum - profile.total().total().as_secs_f64()).abs() < 1e-8, "{text}");
}

#[test]
fn metrics_of_tables_have_their_names() {
    let (db, _) = in_memory();
    fill(&db, 300);
    let name = "back\\slash \"quoted\"\nlines";
    db.run(|tx| tx.open(TableDef::<u64, u64>::new(name))?.put(1, 1)).unwrap();
    let reader = db.read();
    let listed = reader.tables().unwrap();
    let stats = |name: &str| reader.open_raw(name).unwrap().stats().unwrap();
    let tables: Vec<_> = listed.into_iter().map(|table| (table.name.clone(), stats(&table.name))).collect();
    let text = metrics::render_tables(&tables) + &metrics::render(&db.stats());
    let samples = parse(&text);
    assert_eq!(samples["foreshore_table_rows{table=\"back\\\\slash \\\"quoted\\\"\\nlines\"}"], 1.0);
    let rows = samples.iter().filter(|(series, _)| series.starts_with("foreshore_table_rows{"));
    assert_eq!(rows.map(|(_, rows)| rows).sum::<f64>(), 301.0);
    assert_eq!(metrics::render_tables(&tables[..0]), "");
}
