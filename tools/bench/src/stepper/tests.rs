//! Read-modify-writes of known operations, counted in this test program, which starts itself again.

use super::*;
use foreshore::{Db, Durability, TableDef, TxnOptions};
use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Names the subject, in the started program.
const SUBJECT: &str = "FORESHORE_STEPPER_SUBJECT";
const THREADS: usize = 2;
/// A table for each worker.
const TABLES: [TableDef<'_, u64, u64>; THREADS] = [TableDef::new("a"), TableDef::new("b")];
const ROWS: u64 = 64;

/// Counts a subject, or prints why it cannot be.
fn counted(subject: &str, rounds: u64) -> Option<Counts> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "stepper::tests::the_stepped_program", "--nocapture"]).env(SUBJECT, subject);
    let plan = Plan { rounds, background_every: 16, instructions: u64::MAX };
    match count(&mut command, plan) {
        Err(foreshore::Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => {
            println!("skipped: ptrace is forbidden here");
            None
        }
        counts => Some(counts.unwrap()),
    }
}

/// No test by itself: what the others step through.
#[test]
fn the_stepped_program() {
    let Ok(subject) = std::env::var(SUBJECT) else { return };
    let shared = (AtomicU64::new(0), Arc::new(0_u64));
    let own: [_; THREADS] = std::array::from_fn(|_| foreshore_sync::CachePadded::new(AtomicU64::new(0)));
    let db = Db::in_memory().unwrap();
    for table in TABLES {
        db.run(|tx| (0..ROWS).try_for_each(|key| tx.open(table)?.insert(key, key).map(drop))).unwrap();
    }
    let workers = own.iter().enumerate().map(|(worker, own)| operations(&subject, worker, &shared, own, &db)).collect();
    by_turns(workers, Duration::from_millis(20)).unwrap();
}

fn operations<'a>(
    subject: &str,
    worker: usize,
    shared: &'a (AtomicU64, Arc<u64>),
    own: &'a AtomicU64,
    db: &'a Db,
) -> Operations<'a> {
    let (table, mut key) = (TABLES[worker], 0);
    let mut next = move || {
        key = (key + 1) % ROWS;
        key
    };
    let relaxed = TxnOptions::new().durability(Durability::Relaxed);
    // ORDERING: counters without data.
    match subject {
        "fetch-add" => Box::new(|| {
            shared.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }),
        "own" => Box::new(|| {
            own.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }),
        "clone" => Box::new(|| {
            std::hint::black_box(Arc::clone(&shared.1));
            Ok(())
        }),
        "get" => Box::new(move || {
            let read = db.read();
            let value = read.open(TABLES[0])?.get(next())?;
            assert!(value.is_some());
            Ok(())
        }),
        "update" => Box::new(move || {
            let tx = db.begin_with(relaxed);
            tx.open(table)?.insert(next(), 1)?;
            tx.commit().map(drop)
        }),
        _ => unreachable!("an unknown subject"),
    }
}

fn per_operation(counts: &Counts) -> (f64, f64) {
    let operations = counts.operations as f64;
    (counts.contended as f64 / operations, counts.rmw as f64 / operations)
}

#[test]
fn a_shared_counter_and_a_reference_count_are_contended_and_an_own_counter_is_not() {
    let subjects =
        [("fetch-add", (1.0, 1.0), "fetch_add"), ("clone", (2.0, 2.0), "Arc"), ("own", (0.0, 1.0), "fetch_add")];
    for (subject, expected, callee) in subjects {
        let Some(counts) = counted(subject, 4) else { return };
        assert_eq!(counts.operations, 8, "{subject}");
        assert_eq!(per_operation(&counts), expected, "{subject}: {counts:?}");
        assert_eq!(counts.sites.is_empty(), subject == "own");
        // Without optimisation the instruction is in a function of its own.
        let is_known = |name: &str| name.contains("stepper::tests") || name.contains(callee);
        assert!(counts.sites.iter().all(|site| is_known(&site.function)), "{counts:?}");
    }
}

#[test]
fn a_get_has_no_contended_read_modify_write() {
    let Some(counts) = counted("get", 4) else { return };
    assert_eq!(per_operation(&counts).0, 0.0, "{counts:#?}");
}

#[test]
fn an_update_of_one_row_has_at_most_two_contended_read_modify_writes() {
    let Some(counts) = counted("update", 4) else { return };
    let (contended, all) = per_operation(&counts);
    assert!(contended <= 2.0 && contended < all, "{counts:#?}");
    println!("an update: {contended} of {all} in {} instructions", counts.instructions / counts.operations);
}
