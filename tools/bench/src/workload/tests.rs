use super::*;
use crate::{
    Silent,
    config::{Claim, Sides, Storage, Window},
    run,
};
use foreshore::{Db, Device, Isolation, TableDef};
use std::{path::Path, time::Duration};

fn config(scale: u64) -> Config {
    Config {
        threads: vec![2],
        clients: 4,
        scale,
        window: Window::of(Duration::from_millis(100)),
        storage: Storage { device: Device::Null, memory: 32 << 20, segment: 4 << 20, ..Storage::default() },
        ..Config::default()
    }
}

fn memory() -> Db {
    let fs = std::sync::Arc::new(foreshore_io::Mem::null());
    foreshore::Options::new()
        .lab(|lab| lab.fs = Some(fs))
        .memory_limit(32 << 20)
        .lab(|lab| lab.segment_bytes = 1 << 20)
        .open("bench")
        .unwrap()
}

/// Runs `n` transactions of `worker`.
fn transact(work: &dyn Work, db: &Db, worker: Worker, n: usize) {
    let mut transactions = work.transactions(worker);
    for _ in 0..n {
        transactions.draw();
        let tx = db.begin();
        let end = transactions.apply(&tx).unwrap();
        match end {
            End::Commit => drop(tx.commit().unwrap()),
            End::Rollback => tx.rollback().unwrap(),
        }
        transactions.ended(end);
    }
}

#[test]
fn every_workload_passes_its_own_checks() {
    for (workload, scale) in [
        (Workload::Tpcb, 1),
        (Workload::Update, 1000),
        (Workload::Insert, 1),
        (Workload::Read, 5000),
        (Workload::Tatp, 2000),
        (Workload::TatpUpdateLocation, 2000),
        (Workload::YcsbA, 5000),
        (Workload::YcsbB, 5000),
        (Workload::YcsbC, 5000),
        (Workload::YcsbD, 5000),
        (Workload::YcsbE, 5000),
        (Workload::YcsbF, 5000),
    ] {
        let report = run(workload, &config(scale), &Silent).unwrap();
        assert!(report.passed() && report.rows[0].ended.commits > 0, "{workload}: {:?}", report.rows[0].checks);
    }
    let shapes = [(2, 2, Claim::SkipLocked), (1, 1, Claim::First), (2, 0, Claim::SkipLocked)];
    for (producers, consumers, claim) in shapes {
        let threads = vec![producers + consumers];
        let config = Config { threads, queue: Sides { producers, consumers, claim, backlog: 20 }, ..config(1) };
        let report = run(Workload::Queue, &config, &Silent).unwrap();
        assert!(report.passed() && report.rows[0].ended.commits > 0, "{claim}: {:?}", report.rows[0].checks);
    }
}

#[test]
fn no_change_is_lost_at_a_weaker_isolation() {
    for isolation in [Isolation::Snapshot, Isolation::ReadCommitted] {
        for workload in [Workload::Tatp, Workload::YcsbA, Workload::YcsbD, Workload::YcsbF] {
            let config = Config { isolation, threads: vec![4], ..config(500) };
            let report = run(workload, &config, &Silent).unwrap();
            assert!(report.passed(), "{workload}, {isolation}: {:?}", report.rows[0].checks);
        }
    }
}

#[test]
fn audits_count_every_commit_and_more_threads_get_their_tables() {
    for (workload, scale, count) in [(Workload::Update, 500, 1), (Workload::Insert, 1, 1000), (Workload::Read, 700, 0)]
    {
        let db = memory();
        let one = work(workload, &Config { threads: vec![1], ..config(scale) });
        one.load(&db, &Silent).unwrap();
        let empty = one.audit(&db).unwrap();
        transact(&*one, &db, Worker { run: empty.next_run, thread: 0 }, 3);
        let two = work(workload, &config(scale));
        two.resume(&db, Path::new("bench")).unwrap();
        let found = two.audit(&db).unwrap();
        transact(&*two, &db, Worker { run: found.next_run, thread: 1 }, 2);
        let audit = two.audit(&db).unwrap();
        assert!(empty.is_sound && audit.is_sound, "{workload}");
        assert_eq!(audit.count, empty.count + 5 * count, "{workload}");
        assert_eq!(two.count_after(7, 2), 7 + 2 * count);
    }
}

#[test]
fn an_audit_sees_a_lost_row_and_a_foreign_one() {
    for (workload, scale, table) in [(Workload::Update, 500, "update-1"), (Workload::Read, 500, "read")] {
        let db = memory();
        let work = work(workload, &config(scale));
        work.load(&db, &Silent).unwrap();
        let tx = db.begin();
        assert!(tx.open(TableDef::<u64, &[u8]>::new(table)).unwrap().remove(7).unwrap().is_some());
        tx.commit().unwrap();
        assert!(!work.audit(&db).unwrap().is_sound, "{workload}");
    }
    let db = memory();
    let work = work(Workload::Insert, &config(1));
    work.load(&db, &Silent).unwrap();
    let tx = db.begin();
    let table = tx.open(TableDef::<(u64, u64, u32), &[u8]>::new("insert-0")).unwrap();
    table.insert((0, 1, 0), &tables::row(1)[..]).unwrap();
    drop(table);
    tx.commit().unwrap();
    assert!(!work.audit(&db).unwrap().is_sound, "a part of a transaction");
}

#[test]
fn a_database_at_another_scale_or_of_another_workload_is_refused() {
    let db = memory();
    work(Workload::Update, &config(500)).load(&db, &Silent).unwrap();
    let resume = |workload, scale| work(workload, &config(scale)).resume(&db, Path::new("bench"));
    resume(Workload::Update, 500).unwrap();
    assert!(matches!(resume(Workload::Update, 600), Err(foreshore::Error::InvalidOption { name: "scale", .. })));
    assert!(matches!(resume(Workload::Read, 500), Err(foreshore::Error::Foreign { .. })));
}

#[test]
fn a_queue_keeps_its_rows_within_their_bounds_and_misses_one_that_is_lost() {
    let db = memory();
    let queue = work(Workload::Queue, &Config { queue: Sides { backlog: 5, ..Sides::default() }, ..config(1) });
    queue.load(&db, &Silent).unwrap();
    let begun = queue.audit(&db).unwrap();
    assert_eq!((begun.is_sound, begun.count), (true, 5));
    let [mut insert, mut take] = [0, 1].map(|thread| queue.transactions(Worker { run: 0, thread }));
    let until_idle = |worker: &mut Box<dyn Transactions + Send>| {
        let mut rows = 0;
        while worker.wait_due() {
            worker.draw();
            let tx = db.begin();
            worker.apply(&tx).unwrap();
            tx.commit().unwrap();
            worker.ended(End::Commit);
            rows += 1;
        }
        rows
    };
    assert_eq!([until_idle(&mut take), until_idle(&mut insert), until_idle(&mut take)], [0, 5, 5]);
    let expected = queue.count_after(begun.count, 10);
    let tx = db.begin();
    // The oldest five were taken.
    assert!(tx.open(TableDef::<u64, &[u8]>::new("queue")).unwrap().remove(5).unwrap().is_some());
    tx.commit().unwrap();
    let found = queue.audit(&db).unwrap();
    assert_eq!((expected, found.count), (5, 4));
}
