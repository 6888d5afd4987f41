//! After power loss at any operation, with any legal subset of unsynced effects, every acknowledged commit is there.
//! The others are a prefix, and a second loss during recovery, or before its checkpoint, changes nothing.
//!
//! `FORESHORE_CRASH_STRIDE=1` visits every operation, `FORESHORE_CRASH_SEEDS=100` runs as many histories. The
//! histories and the recoveries use all replacement policies in turn.

use crate::script::{LostCommit, Random, Script, disk, lost_commit, open, options};
use crate::support::{DIR, NUMBERS, POLICIES, stride};
use foreshore::LabOptions;
use foreshore_classics::replacement::ReplacementKind;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

const STRIDE: u64 = 20;
/// Steps of background work, at most, behind a recovery that is lost again.
const MOST_STEPS: u64 = 16;
/// Each policy of replacement has one at least.
const SEEDS: u64 = 8;
const _: () = assert!(SEEDS >= ReplacementKind::ALL.len() as u64);

#[test]
fn every_acknowledged_commit_survives_power_loss() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let stride = stride(STRIDE);
    let (seeds, next, images) = (number("FORESHORE_CRASH_SEEDS", SEEDS), AtomicU64::new(1), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let draw = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&seed| seed <= seeds);
                std::iter::from_fn(draw)
                    .for_each(|seed| _ = images.fetch_add(lose_power(seed, stride), Ordering::Relaxed));
            });
        }
    });
    println!("{} crash images, half of them in recoveries", 2 * images.into_inner());
}

/// Runs one history and recovers from images of every `stride`-th operation of it. Returns how many.
fn lose_power(seed: u64, stride: u64) -> u64 {
    let sim = disk(seed);
    let mut script = Script::new(&sim, seed);
    let db = options(&sim)
        .lab(|lab| {
            lab.step_seed = seed;
            lab.replacement = replacement(seed).maker();
        })
        .open(DIR)
        .unwrap();
    script.run(&db, 160).unwrap();
    let stats = db.stats();
    let tree = stats.tree;
    let is_complete = tree.purges > 0 && tree.merges > 0 && tree.shifts > 0 && tree.collapses > 0;
    assert!(is_complete && tree.chains_built > 10 && tree.chains_freed > 10, "{tree:?}");
    assert!(stats.checkpoint.checkpoints > 3 && stats.log.segments_recycled > 0, "{stats:?}");
    let mut points = sim.crash_points();
    let mut images = 0_u64;
    loop {
        let op = points.op();
        if op.is_multiple_of(stride) {
            let policy = &POLICIES[(images % POLICIES.len() as u64) as usize];
            let image = points.image(policy, op);
            recover(&script, op, &image, replacement(images))
                .unwrap_or_else(|why| panic!("seed {seed}, power lost in operation {op}, {policy:?}: {why}"));
            images += 1;
        }
        if !points.advance() {
            break;
        }
    }
    assert!(images > 15, "{images} images");
    images
}

/// Transactions with chains, dropped tables, merges and cuts of the file go on behind a start whose pages wait. Power
/// is lost again while some of them do, or later.
#[test]
fn commits_behind_a_start_whose_pages_wait_survive_a_further_loss() {
    let (mut beside, mut behind) = (0, 0);
    for seed in 1..=3 {
        let sim = disk(seed);
        let mut script = Script::new(&sim, seed);
        script.run(&options(&sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap(), 160).unwrap();
        crate::script::lose_power(&sim, (0, 8 * STRIDE), |first| {
            let (image, op, what) = (&first.image, first.op, format!("seed {seed}, {}", first.what));
            let found = script.verify(&open(&image.fork()).unwrap(), op).unwrap_or_else(|why| panic!("{what}: {why}"));
            let waiting = |lab: &mut LabOptions| (lab.redo_waits_from, lab.step_seed) = (Some(0), op);
            let db = options(image).lab(waiting).open(DIR).unwrap();
            let (opened, mut later) = (image.ops(), Script::behind(image, op, found));
            let mut redone = opened;
            for _ in 0..4 {
                later.run_alone(&db, 1).unwrap();
                redone = if db.stats().recovery.pending_pages > 0 { image.ops() } else { redone };
            }
            later.run(&db, 4).unwrap();
            drop(db);
            crate::script::lose_power(image, (opened, 40), |loss| {
                let db = options(&loss.image).lab(waiting).open(DIR).unwrap();
                later.verify(&db, loss.op).unwrap_or_else(|why| panic!("{what}, then {}: {why}", loss.what));
                *(if loss.op < redone { &mut beside } else { &mut behind }) += 1;
            });
        });
    }
    assert!(beside > 20 && behind > 100, "{beside} losses while pages waited, {behind} behind that");
}

fn replacement(number: u64) -> ReplacementKind {
    ReplacementKind::ALL[number as usize % ReplacementKind::ALL.len()]
}

/// A commit may be lost although a later transaction has locked its row. The page with that lock may have been written
/// home: the lock is in the row and not in the log.
#[test]
fn a_lost_commit_under_the_lock_of_another_is_taken_back() {
    let mut lost = 0;
    for seed in 0..40 {
        let LostCommit { image, is_durable, went_home } = lost_commit(seed, false);
        let again = open(&image).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        let found = again.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap();
        assert_eq!(found, Some(if is_durable { 20 } else { 10 }), "seed {seed}");
        again.check().unwrap();
        lost += u32::from(!is_durable && went_home);
    }
    assert!(lost > 0, "no page went home with the lock alone");
}

/// Recovers an image, loses power at some operation of that, and recovers again.
fn recover(
    script: &Script,
    op: u64,
    image: &foreshore_io::sim::Sim,
    replacement: ReplacementKind,
) -> Result<(), String> {
    let db = options(image)
        .lab(|lab| {
            lab.replacement = replacement.maker();
            // Half of them redo pages when they are first read.
            lab.redo_waits_from = (op / STRIDE).is_multiple_of(2).then_some(0);
        })
        .open(DIR)
        .map_err(|error| format!("open: {error:?}"))?;
    let opened = image.ops();
    let found = script.verify(&db, op)?;
    let mut random = Random(op);
    // The checkpoint of the start comes in one of these, or later.
    (0..random.below(MOST_STEPS)).for_each(|_| db.step());
    let mut points = image.crash_points();
    for _ in 0..random.below(image.ops().max(1)) {
        points.advance();
    }
    let again = points.image(&POLICIES[random.below(POLICIES.len() as u64) as usize], op);
    let db = open(&again).map_err(|error| format!("open after a second loss: {error:?}"))?;
    let second = script.verify(&db, op).map_err(|why| format!("after a second loss: {why}"))?;
    // A start repeats the last group over the torn one behind it. A torn repetition may complete the padding of that
    // one, whose commits are then found. The start that was cut short has shown its state to no reader.
    if second != found && (points.op() >= opened || !script.continues(op, &found, &second)) {
        return Err("a recovery that was cut short changed what the next one found".to_owned());
    }
    Ok(())
}
