//! A page that the medium did not write, so that an older state of it is in its place, is noticed or without effect.
//!
//! `FORESHORE_STALE_PAGES=2000` puts as many pages back.

use crate::script::{Random, Script, disk, open, options, read};
use crate::stale::path;
use crate::support::DIR;
use foreshore::limits::{BLOCK, PAGE_SIZE};
use foreshore::{Error, PageId};
use foreshore_base::Lsn;
use foreshore_buffer::format::{page_lsn, page_type, verify_page};
use foreshore_io::sim::Persist;
use foreshore_io::{Fs, Sim};
use foreshore_space::{is_allocated, map_of};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PAGES: u64 = 160;
/// Pages that are put back for one history.
const OF_ONE: u64 = 20;

fn file(sim: &Sim, name: &str) -> Vec<u8> {
    let file = sim.open(&path(name)).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

type Older = Vec<(PageId, Vec<Vec<u8>>)>;

/// The disk of a history, closed or not, and older states of each page that has some.
struct History {
    script: Script,
    sim: Sim,
    in_use: Older,
    free: Older,
}

fn history(seed: u64) -> History {
    let sim = disk(seed);
    let mut script = Script::new(&sim, seed);
    let db = options(&sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
    let mut states = Vec::new();
    for _ in 0..12 {
        script.run(&db, 20).unwrap();
        states.push(file(&sim, "data"));
    }
    if seed.is_multiple_of(2) {
        db.close(Duration::ZERO).unwrap();
    }
    let image = sim.crash_image(&Persist::All, seed);
    let newest = file(&image, "data");
    let mut older: BTreeMap<PageId, Vec<Vec<u8>>> = BTreeMap::new();
    for state in states {
        for (number, (page, newest)) in (0..).zip(state.chunks(PAGE_SIZE).zip(newest.chunks(PAGE_SIZE))).skip(2) {
            let pid = PageId(number);
            let is_older = verify_page(page, pid, Lsn(u64::MAX)).is_ok() && page_lsn(page) < page_lsn(newest);
            let known = older.get(&pid).is_some_and(|known| known.iter().any(|known| known == page));
            if is_older && !known {
                older.entry(pid).or_default().push(page.to_vec());
            }
        }
    }
    let page = |pid: PageId| &newest[pid.0 as usize * PAGE_SIZE..][..PAGE_SIZE];
    let is_in_use = |pid| pid != map_of(pid) && is_allocated(page(map_of(pid)), pid).unwrap();
    let (in_use, free): (Older, Older) = older.into_iter().partition(|&(pid, _)| is_in_use(pid));
    assert!(!in_use.is_empty() && !free.is_empty(), "seed {seed}: {} pages, {} free ones", in_use.len(), free.len());
    History { script, sim: image, in_use, free }
}

/// What came of a page that was put back.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Noticed,
    NoEffect,
}

/// Puts an older state of a page back, and reads all rows, twice.
fn put_back(history: &History, draw: &mut Random) -> Result<Outcome, String> {
    // Maps count as free: they are rebuilt, and no row depends on them.
    let pages = if draw.below(4) == 0 { &history.free } else { &history.in_use };
    let (pid, states) = &pages[draw.below(pages.len() as u64) as usize];
    let older = &states[draw.below(states.len() as u64) as usize];
    let sim = history.sim.fork();
    sim.open(&path("data")).unwrap().write_at(older, pid.offset()).unwrap();
    if draw.below(2) == 0 {
        // Its image is gone, too.
        let len = file(&sim, "dw").len() - BLOCK;
        sim.open(&path("dw")).unwrap().write_at(&vec![0; len], BLOCK as u64).unwrap();
    }
    let what = format!("page {pid} of type {:?} at {}", page_type(older), page_lsn(older));
    let outcome = look(history, &sim, &what)?;
    match look(history, &sim, &format!("{what}, once more"))? {
        Outcome::NoEffect if outcome == Outcome::Noticed => Ok(Outcome::Noticed),
        again if again == outcome => Ok(outcome),
        _ => Err(format!("{what}: noticed only by the second open")),
    }
}

/// Opens a database, reads all rows, and closes it.
fn look(history: &History, sim: &Sim, what: &str) -> Result<Outcome, String> {
    let is_noticed = |error: &Error| matches!(error, Error::Corrupted { .. });
    let db = match open(sim) {
        Ok(db) => db,
        Err(error) if is_noticed(&error) => return Ok(Outcome::Noticed),
        Err(error) => return Err(format!("{what}: open: {error:?}")),
    };
    let mut outcome = match read(&db) {
        Ok(found) if history.script.may_find(&found) => Outcome::NoEffect,
        Ok(_) => return Err(format!("{what}: wrong rows")),
        Err(error) if is_noticed(&error) => Outcome::Noticed,
        Err(error) => return Err(format!("{what}: read: {error:?}")),
    };
    match db.examine() {
        Ok(report) if report.damaged.is_empty() => {}
        Ok(_) => outcome = Outcome::Noticed,
        Err(error) => return Err(format!("{what}: examine: {error:?}")),
    }
    db.close(Duration::ZERO).map_err(|error| format!("{what}: close: {error:?}"))?;
    Ok(outcome)
}

#[test]
fn an_older_page_in_place_of_the_newest_is_noticed_or_without_effect() {
    let pages = std::env::var("FORESHORE_STALE_PAGES").map_or(PAGES, |text| text.parse().unwrap());
    let (next, noticed, harmless) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                // ORDERING: Relaxed, counters; here and below.
                let draw = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| seed * OF_ONE < pages);
                for seed in std::iter::from_fn(draw) {
                    let (history, mut draw) = (history(seed), Random(seed));
                    for round in 0..OF_ONE {
                        match put_back(&history, &mut draw) {
                            Ok(Outcome::Noticed) => noticed.fetch_add(1, Ordering::Relaxed),
                            Ok(Outcome::NoEffect) => harmless.fetch_add(1, Ordering::Relaxed),
                            Err(why) => panic!("seed {seed}, round {round}: {why}"),
                        };
                    }
                }
            });
        }
    });
    let (noticed, harmless) = (noticed.into_inner(), harmless.into_inner());
    println!("{noticed} of {} stale pages were noticed, {harmless} had no effect", noticed + harmless);
    assert!(2 * noticed > harmless && harmless > 0, "{noticed} noticed, {harmless} without effect");
}
