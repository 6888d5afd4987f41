//! A backup whose last step fails leaves a whole copy, a marked directory, or files without a superblock, also if power
//! is lost while it removes its files.

use crate::script::{disk, options};
use crate::support::{DIR, POLICIES, fill, numbers};
use foreshore::Error;
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{Fs, Sim};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

const COPY: &str = "/copy";
const ROWS: u64 = 500;

/// Makes a backup. Its operation `fault` fails, counted from its first one. Returns the disk, the first operation and
/// the one after the last, and the outcome.
fn back_up(base: &Sim, fault: Option<u64>) -> (Sim, Range<u64>, Result<(), Error>) {
    let sim = base.fork();
    let db = options(&sim).open(DIR).unwrap();
    let first = sim.ops();
    if let Some(n) = fault {
        sim.inject(Fault { at: first + n, kind: FaultKind::Eio, sticky: false });
    }
    let outcome = db.backup(COPY).map(drop);
    let ops = first..sim.ops();
    (sim, ops, outcome)
}

/// Whether the directory has files other than its lock file and an empty log.
fn has_files(image: &Sim) -> bool {
    let dir = Path::new(COPY);
    let is_one = |name: &String| match &**name {
        "LOCK" => false,
        "log" => !image.list(&dir.join("log")).unwrap().is_empty(),
        _ => true,
    };
    image.kind(dir).unwrap().is_some() && image.list(dir).unwrap().iter().any(is_one)
}

#[test]
fn power_loss_while_the_files_of_a_failed_backup_are_removed_leaves_no_part_of_a_database() {
    let base = disk(3);
    let db = options(&base).open(DIR).unwrap();
    fill(&db, ROWS);
    let rows = numbers(&db);
    db.close(Duration::ZERO).unwrap();
    let (_, ops, outcome) = back_up(&base, None);
    outcome.unwrap();
    let total = ops.end - ops.start;
    let (mut unmarked, mut whole) = (0, 0);
    for n in total.saturating_sub(8)..total {
        let (sim, ops, outcome) = back_up(&base, Some(n));
        if outcome.is_ok() {
            continue;
        }
        let mut points = sim.crash_points();
        while points.op() < ops.start + n {
            assert!(points.advance());
        }
        loop {
            for policy in &POLICIES {
                let what = format!("operation {n} of {total} failed, power lost in {}, {policy:?}", points.op());
                let image = points.image(policy, n);
                if !has_files(&image) {
                    continue;
                }
                let has_data = image.kind(&Path::new(COPY).join("data")).unwrap().is_some();
                match options(&image).open_existing(COPY) {
                    Err(Error::UnfinishedBackup { .. }) => {}
                    Err(Error::Corrupted { .. }) if !has_data => unmarked += 1,
                    Ok(copy) => {
                        assert_eq!(numbers(&copy), rows, "{what}");
                        copy.check().unwrap_or_else(|error| panic!("{what}: {error:?}"));
                        whole += 1;
                    }
                    Err(error) => panic!("{what}: {error:?}"),
                }
            }
            if !points.advance() {
                break;
            }
        }
    }
    assert!(unmarked > 0 && whole > 0, "{unmarked} without a superblock, {whole} whole");
}
