use super::*;
use crate::{Silent, config::Distribution};
use foreshore::Options;
use std::collections::HashMap;

const RECORDS_HERE: u64 = 3000;

fn config() -> Config {
    Config { scale: RECORDS_HERE, ..Config::default() }
}

/// A loaded database in memory, counted.
fn loaded(workload: Workload) -> (Db, Ycsb, Audit) {
    let db = Options::in_memory().open("ycsb").unwrap();
    let ycsb = Ycsb::new(&config(), workload);
    ycsb.load(&db, &Silent).unwrap();
    let begun = ycsb.audit(&db).unwrap();
    assert_eq!((begun.is_sound, begun.count), (true, RECORDS_HERE));
    (db, ycsb, begun)
}

/// Runs `n` operations of one worker.
fn operate(db: &Db, ycsb: &Ycsb, thread: u32, n: usize) -> Result<()> {
    let mut operations = ycsb.transactions(Worker { run: 0, thread });
    for _ in 0..n {
        operations.draw();
        let tx = db.begin();
        let end = operations.apply(&tx)?;
        tx.commit()?;
        operations.ended(end);
    }
    Ok(())
}

#[test]
fn operations_are_those_of_the_core_workloads() {
    let counted = |mix| {
        let mut draw = Draw::new(1, 0, mix, 1000, 0.0);
        let mut counts = [0; KINDS.len()];
        for _ in 0..20_000 {
            let (kind, operation) = draw.operation(1000);
            counts[kind] += 1;
            match operation {
                Operation::Read { number } => assert!(number < 1000),
                Operation::Update { number, field, .. } | Operation::ReadModifyWrite { number, field, .. } => {
                    assert!(number < 1000 && field < 10);
                }
                Operation::Scan { number, records } => assert!(number < 1000 && (1..=100).contains(&records)),
                Operation::Insert => {}
            }
        }
        counts
    };
    for (mix, percent) in [
        (draw::A, [50, 50, 0, 0, 0]),
        (draw::B, [95, 5, 0, 0, 0]),
        (draw::C, [100, 0, 0, 0, 0]),
        (draw::D, [95, 0, 0, 5, 0]),
        (draw::E, [0, 0, 95, 5, 0]),
        (draw::F, [50, 0, 0, 0, 50]),
    ] {
        for (count, percent) in counted(mix).into_iter().zip(percent) {
            assert!(i32::abs(count - percent * 200) < 350, "{count} of {mix:?}");
            assert!((count == 0) == (percent == 0), "{count} of {mix:?}");
        }
    }
}

#[test]
fn hot_records_are_those_of_the_distribution() {
    let seen = |distribution, limit| {
        let mut draw = Draw::new(1, 0, Mix { distribution, ..draw::C }, 1000, 0.0);
        let mut seen = HashMap::new();
        for _ in 0..100_000 {
            let (_, Operation::Read { number }) = draw.operation(limit) else { panic!("C reads") };
            *seen.entry(number).or_insert(0_u32) += 1;
        }
        let (&hottest, &most) = seen.iter().max_by_key(|(_, count)| **count).unwrap();
        (hottest, most)
    };
    let (_, most) = seen(Distribution::Uniform, 1000);
    assert!(most < 160, "{most}");
    // The first of 10^10 ranks has a weight of 1 / 26.47.
    let (hottest, most) = seen(Distribution::Zipf, 1000);
    assert!((3_700..4_200).contains(&most), "{most}");
    assert_eq!(hottest, record::spread(0) % 1000);
    // The first of 1000 ranks has a weight of 1 / 7.73.
    let (hottest, most) = seen(Distribution::Latest, 5000);
    assert_eq!(hottest, 4999);
    assert!((12_300..13_600).contains(&most), "{most}");
}

#[test]
fn every_write_is_counted_and_every_kind_reported() {
    for workload in
        [Workload::YcsbA, Workload::YcsbB, Workload::YcsbC, Workload::YcsbD, Workload::YcsbE, Workload::YcsbF]
    {
        let (db, ycsb, begun) = loaded(workload);
        operate(&db, &ycsb, 0, 400).unwrap();
        operate(&db, &ycsb, 1, 400).unwrap();
        let expected = ycsb.count_after(begun.count, 800);
        let found = ycsb.audit(&db).unwrap();
        assert!(found.is_sound, "{workload}");
        assert_eq!(found.count, expected, "{workload}");
        assert_eq!(found.count > begun.count, workload != Workload::YcsbC, "{workload}");
        let kinds = ycsb.take_kinds();
        assert_eq!(kinds.iter().map(|kind| kind.transactions).sum::<u64>(), 800, "{workload}");
        assert!(kinds.iter().all(|kind| kind.transactions == kind.succeeded), "{workload}: {kinds:?}");
        assert!(ycsb.take_kinds().is_empty());
    }
}

#[test]
fn what_is_not_committed_leaves_no_trace_and_its_number_may_stay_free() {
    let (db, ycsb, begun) = loaded(Workload::YcsbD);
    let mut operations = ycsb.transactions(Worker { run: 0, thread: 0 });
    for _ in 0..200 {
        operations.draw();
        let tx = db.begin();
        operations.apply(&tx).unwrap();
        tx.rollback().unwrap();
    }
    drop(operations);
    assert_eq!(ycsb.count_after(begun.count, 0), begun.count);
    // The numbers that were taken are free again only after an audit: these inserts leave a gap.
    operate(&db, &ycsb, 0, 200).unwrap();
    let expected = ycsb.count_after(begun.count, 0);
    let found = ycsb.audit(&db).unwrap();
    assert!(found.is_sound && found.count == expected && expected > begun.count);
    ycsb.take_kinds();
    operate(&db, &ycsb, 1, 2000).unwrap();
    let reads = ycsb.take_kinds()[0];
    assert!(reads.succeeded < reads.transactions, "the gap is met: {reads:?}");
}

#[test]
fn every_flaw_is_seen() {
    type Flaw = (&'static str, fn(&Transaction) -> Result<()>);
    let unsound: [Flaw; 3] = [
        ("a lost record", |tx| tx.open(RECORDS)?.remove(key(7)).map(drop)),
        ("a record under the key of another", |tx| tx.open(RECORDS)?.put(key(7), record::new(8))),
        ("a record that is half new", |tx| {
            let mut record = record::new(7);
            record[50] ^= 1;
            tx.open(RECORDS)?.put(key(7), record)
        }),
    ];
    for (name, flaw) in unsound {
        let (db, ycsb, _) = loaded(Workload::YcsbC);
        db.run(flaw).unwrap();
        assert!(!ycsb.audit(&db).unwrap().is_sound, "{name}");
    }
    let (db, ycsb, begun) = loaded(Workload::YcsbC);
    let lost_update: Flaw = ("an update that was not counted", |tx| {
        tx.open(RECORDS)?.put(key(7), record::updated(record::new(7), 0, [1; 8]))
    });
    db.run(lost_update.1).unwrap();
    let found = ycsb.audit(&db).unwrap();
    assert!(found.is_sound && found.count != begun.count, "{}", lost_update.0);
}

#[test]
fn a_read_of_a_lost_or_broken_record_ends_the_run() {
    for break_all in [true, false] {
        let (db, ycsb, _) = loaded(Workload::YcsbC);
        db.run(|tx| {
            let records = tx.open(RECORDS)?;
            if !break_all {
                return records.clear().map(drop);
            }
            (0..RECORDS_HERE).try_for_each(|number| records.put(key(number), [0; 100]))
        })
        .unwrap();
        assert!(matches!(operate(&db, &ycsb, 0, 10), Err(Error::Foreign { .. })));
    }
}
