//! A tiny run of every engine of this build on every workload, and of the checks on a database that lacks something.

use super::*;
use crate::{
    engine::{Kind, Purpose, Writer},
    engines,
    spec::Choice,
    workload::{self, ROWS, churned},
    ycsb::{self, Operation},
};
use std::path::{Path, PathBuf};

/// A directory below the system's folder for temporary files, removed with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("foreshore-compare-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn spec(kind: &Kind, variant: &str, workload: Workload, durable: bool, dir: &Path) -> Spec {
    Spec {
        choice: Choice { engine: kind.name.to_owned(), variant: variant.to_owned() },
        workload,
        shape: None,
        value_bytes: if workload == Workload::Values { 100_000 } else { 0 },
        threads: 2,
        durable,
        cache: 64 << 20,
        secs: 0.05,
        scale: match workload {
            Workload::Tpcb | Workload::Values => 1,
            _ => 1_000,
        },
        backlog: 20,
        seed: 1,
        dir: dir.to_owned(),
    }
}

fn check(spec: &Spec) {
    std::fs::create_dir(&spec.dir).unwrap();
    load(spec).unwrap_or_else(|error| panic!("{}: {error}", spec.title()));
    let row = measure(spec).unwrap_or_else(|error| panic!("{}: {error}", spec.title()));
    assert!(row.passed() && !row.checks.is_empty(), "{}: {:?}", spec.title(), row.checks);
    assert!(row.commits > 0 && row.tps > 0.0 && row.ops_per_s >= row.tps, "{row:?}");
    assert!(row.p50_us > 0.0 && row.p50_us <= row.p99_us && row.cpu_us_per_txn > 0.0, "{row:?}");
    assert!(row.file_bytes > 0 && row.rss_peak_bytes > 0 && row.loses.is_none() == spec.durable, "{row:?}");
    std::fs::remove_dir_all(&spec.dir).unwrap();
}

/// Runs all variants of all engines on a workload.
fn check_all(workload: Workload) {
    let scratch = Scratch::new(workload.name());
    for kind in engines::ALL {
        let shapes: Vec<Option<Shape>> = Shape::of(workload).iter().copied().map(Some).collect();
        for shape in if shapes.is_empty() { vec![None] } else { shapes } {
            let writes = shape.map_or(workload.writes(), Shape::writes);
            for durable in if writes { &[true, false][..] } else { &[true] } {
                for variant in (kind.variants)(Purpose::new(workload, shape, *durable)) {
                    let spec = spec(kind, variant.name, workload, *durable, &scratch.0.join("row"));
                    check(&Spec { shape, ..spec });
                }
            }
        }
    }
}

#[test]
fn every_engine_keeps_the_money_of_tpcb() {
    check_all(Workload::Tpcb);
}

#[test]
fn every_engine_reads_what_was_loaded() {
    check_all(Workload::Read);
}

#[test]
fn every_engine_keeps_what_is_inserted() {
    check_all(Workload::Insert);
}

#[test]
fn every_engine_keeps_the_order_of_a_queue() {
    check_all(Workload::Queue);
}

#[test]
fn every_engine_keeps_large_values() {
    check_all(Workload::Values);
}

#[test]
fn every_engine_keeps_a_bulk_load() {
    check_all(Workload::Bulk);
}

#[test]
fn every_engine_keeps_what_churns() {
    check_all(Workload::Churn);
}

#[test]
fn every_engine_scans_what_was_loaded() {
    check_all(Workload::Scan);
}

#[test]
fn every_engine_deletes_ranges() {
    check_all(Workload::DeleteRange);
}

#[test]
fn every_engine_keeps_the_subscribers_of_tatp() {
    check_all(Workload::Tatp);
}

#[test]
fn every_engine_keeps_the_records_of_ycsb() {
    for workload in
        [Workload::YcsbA, Workload::YcsbB, Workload::YcsbC, Workload::YcsbD, Workload::YcsbE, Workload::YcsbF]
    {
        check_all(workload);
    }
}

/// A change that no worker has counted. Returns whether it has written.
type Flaw = fn(&mut dyn Writer) -> Result<bool>;

/// Loads a database of every engine for each flaw, and expects that `check` fails with the flaw and holds before.
fn expect_seen(workload: Workload, flaws: &[(&str, Flaw)]) {
    let scratch = Scratch::new(&format!("{}-flaws", workload.name()));
    for kind in engines::ALL {
        for (at, (check, flaw)) in flaws.iter().enumerate() {
            let dir = scratch.0.join(format!("{}-{at}", kind.name));
            std::fs::create_dir(&dir).unwrap();
            let variant = (kind.variants)(Purpose::new(workload, None, true))[0];
            let spec = spec(kind, variant.name, workload, true, &dir);
            load(&spec).unwrap();
            let engine = spec.open().unwrap();
            let holds = || verify(&*engine, &spec, &Tally::new(), "live").unwrap();
            assert!(holds().values().all(|&holds| holds), "{}: {check}", kind.name);
            engine
                .session(&mut |session| session.read_write(&mut |tx| flaw(tx)).and_then(|()| session.drain()))
                .unwrap();
            assert_eq!(holds().get(*check), Some(&false), "{}: flaw {at}", kind.name);
            engine.close().unwrap();
        }
    }
}

#[test]
fn checks_see_every_flaw_of_tatp() {
    expect_seen(
        Workload::Tatp,
        &[
            ("rows_live", |tx| tx.delete(Table(1), 7)),
            ("rows_live", |tx| tx.update(Table(0), 7, &mut |row| row[0] ^= 1)),
            ("rows_live", |tx| tx.insert(Table(4), 7 << 16 | 9 << 8, &[b'1'; 16])),
            ("changes_live", |tx| tx.update(Table(0), 7, &mut |row| row[49] ^= 1)),
            ("changes_live", |tx| {
                let mut first = None;
                tx.range(Table(4), 0..=workload::LAST_KEY, &mut |key, _| {
                    first = Some(key);
                    false
                })?;
                tx.delete(Table(4), first.unwrap())
            }),
        ],
    );
}

#[test]
fn checks_see_every_flaw_of_ycsb() {
    expect_seen(
        Workload::YcsbA,
        &[
            ("records_live", |tx| tx.delete(ROWS, churned(7))),
            ("records_live", |tx| tx.update(ROWS, churned(7), &mut |row| row[50] ^= 1)),
            ("records_live", |tx| tx.insert(ROWS, 1, &[0; 100])),
        ],
    );
}

#[test]
fn checks_see_an_operation_of_ycsb_that_was_not_counted() {
    let scratch = Scratch::new("ycsb-uncounted");
    for kind in engines::ALL {
        let dir = scratch.0.join(kind.name);
        std::fs::create_dir(&dir).unwrap();
        let variant = (kind.variants)(Purpose::new(Workload::YcsbA, None, true))[0];
        let spec = spec(kind, variant.name, Workload::YcsbA, true, &dir);
        load(&spec).unwrap();
        let engine = spec.open().unwrap();
        let (mut tally, to) = (Tally::new(), [1; 8]);
        let run = |operation| {
            let mut is_right = false;
            engine
                .session(&mut |session| {
                    is_right = ycsb::run(session, operation)?;
                    session.drain()
                })
                .unwrap();
            is_right
        };
        let holds = |tally: &Tally, check: &str| verify(&*engine, &spec, tally, "live").unwrap()[check];
        assert!(run(Operation::Update { number: 7, field: 3, to }), "{}", kind.name);
        assert!(!holds(&tally, "versions_live") && holds(&tally, "records_live"), "{}", kind.name);
        tally.kinds[1] = (1, 1);
        assert!(run(Operation::Insert { number: 1000 }), "{}", kind.name);
        assert!(!holds(&tally, "records_live"), "{}", kind.name);
        tally.kinds[3] = (1, 1);
        assert!(holds(&tally, "versions_live") && holds(&tally, "records_live"), "{}", kind.name);
        // What must not be, and what is not there.
        assert!(!run(Operation::Insert { number: 1000 }), "{}", kind.name);
        assert!(!run(Operation::Read { number: 1001 }) && run(Operation::Read { number: 1000 }), "{}", kind.name);
        assert!(!run(Operation::Update { number: 1001, field: 0, to }), "{}", kind.name);
        assert!(run(Operation::ReadModifyWrite { number: 0, field: 0, to }), "{}", kind.name);
        assert!(run(Operation::Scan { number: 0, records: 100 }), "{}", kind.name);
        tally.wrong_reads = 1;
        assert!(!holds(&tally, "reads_live"), "{}", kind.name);
        engine.close().unwrap();
    }
}

#[test]
fn checks_see_a_commit_that_is_missing_and_one_too_many() {
    let scratch = Scratch::new("flaws");
    for kind in engines::ALL {
        let dir = scratch.0.join(kind.name);
        std::fs::create_dir(&dir).unwrap();
        let variant = (kind.variants)(Purpose::new(Workload::Tpcb, None, true))[0];
        let spec = spec(kind, variant.name, Workload::Tpcb, true, &dir);
        load(&spec).unwrap();
        let engine = spec.open().unwrap();
        let mut tally = Tally::new();
        let holds = |tally: &Tally| verify(&*engine, &spec, tally, "live").unwrap();
        assert!(holds(&tally).values().all(|&holds| holds), "{}", kind.name);
        tally.commits = 1;
        assert_eq!(holds(&tally).get("history_live"), Some(&false), "{}", kind.name);
        let transfer = workload::Transfer { account: 7, teller: 3, delta: 5, history: 1 };
        engine.session(&mut |session| session.transfer(&transfer).and_then(|()| session.drain())).unwrap();
        assert!(holds(&tally).values().all(|&holds| holds), "{}", kind.name);
        // A history row without its balances.
        let lost = &mut [(2_u64, workload::RowBytes::Row(workload::row(2, 5)))].into_iter();
        engine.load(workload::HISTORY, lost).unwrap();
        tally.commits = 2;
        assert_eq!(holds(&tally).get("sums_live"), Some(&false), "{}", kind.name);
        engine.close().unwrap();
    }
}
