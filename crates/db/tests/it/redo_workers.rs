//! Redo by several threads does what one thread does: the same bytes in every page, the same damage, the same error.

use crate::script::{Script, disk, lose_power, open, options};
use crate::support::DIR;
use foreshore::{Db, Error, Options, TableDef};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_io::{File, FileLayer, Fs, FsLayer, Sim};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const WORKERS: [usize; 3] = [1, 2, 7];

const TAIL: TableDef<u64, &[u8]> = TableDef::new("tail");
const TAIL_ROWS: u64 = 300;

/// What a killed process leaves: a history up to a checkpoint, and then changes of some fifty pages, none of which is
/// home. One transaction has no end.
fn killed(seed: u64) -> Sim {
    let sim = disk(seed);
    let db = options(&sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
    let put = |row: u64, byte: u8| db.run(|tx| tx.open(TAIL)?.insert(row, &[byte; 900][..]).map(drop)).unwrap();
    (0..TAIL_ROWS).for_each(|row| put(row, 0));
    Script::new(&sim, seed).run(&db, 60).unwrap();
    db.checkpoint().unwrap();
    (0..3 * TAIL_ROWS).for_each(|n| put(n * 77 % TAIL_ROWS, 1 + n as u8 % 100));
    let unended = db.begin();
    (0..30).for_each(|row| drop(unended.open(TAIL).unwrap().insert(row * 9, &[200; 900][..]).unwrap()));
    put(1, 201);
    sim.kill()
}

fn with(options: Options, workers: usize) -> Options {
    options.lab(|lab| lab.redo_workers = Some(workers))
}

/// What a restart has done, in so many words, and all pages when it is closed. An error ends it.
fn restart(image: &Sim, workers: usize) -> Result<(String, Vec<u8>), Error> {
    let sim = image.fork();
    let db = with(options(&sim), workers).open(DIR)?;
    let did = did(&db);
    db.close(Duration::ZERO)?;
    drop(db);
    let mut pages = sim.contents(&Path::new(DIR).join("data")).unwrap();
    // The superblocks note how fast the restart was.
    pages[..2 * PAGE_SIZE].fill(0);
    Ok((did, pages))
}

fn did(db: &Db) -> String {
    let recovery = db.stats().recovery;
    let counts = [recovery.records, recovery.redone, recovery.losers, recovery.undone];
    let mut report = db.examine().unwrap();
    // Tables come in any order.
    report.damaged.sort_by_key(|damaged| damaged.page);
    format!("{counts:?}, {} are quarantined, {report:?}", recovery.quarantined)
}

/// Restarts with each number of workers, and returns what all of them did.
fn alike(image: &Sim, what: &str) -> Result<String, String> {
    let restarts = WORKERS.map(|workers| restart(image, workers).map_err(|error| format!("{error:?}")));
    let [alone, others @ ..] = &restarts;
    for (other, workers) in others.iter().zip(&WORKERS[1..]) {
        match (alone, other) {
            (Ok((did, pages)), Ok((also, same))) => {
                assert_eq!(did, also, "{what}, {workers} workers");
                let differs = pages.chunks(PAGE_SIZE).zip(same.chunks(PAGE_SIZE)).position(|(a, b)| a != b);
                assert!(differs.is_none() && pages.len() == same.len(), "{what}, {workers} workers: page {differs:?}");
            }
            (alone, other) => {
                let errors = [alone, other].map(|restart| restart.as_ref().map(|(did, _)| did));
                assert_eq!(errors[0], errors[1], "{what}, {workers} workers");
            }
        }
    }
    restarts.into_iter().next().expect("there is one").map(|(did, _)| did)
}

#[test]
fn a_restart_after_power_loss_leaves_the_same_pages() {
    for seed in 1..=3 {
        let sim = disk(seed);
        let mut script = Script::new(&sim, seed);
        let db = options(&sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
        script.run(&db, 160).unwrap();
        let losses = lose_power(&sim, (sim.ops() / 2, 97), |loss| {
            alike(&loss.image, &format!("seed {seed}, {}", loss.what)).unwrap();
        });
        assert!(losses > 15, "{losses} losses");
        alike(&killed(seed), &format!("seed {seed}, killed")).unwrap();
    }
    let db = open(&killed(1)).unwrap();
    let recovery = db.stats().recovery;
    assert!(recovery.redone > 900 && recovery.undone == 30, "{recovery:?}");
}

#[test]
fn a_restart_beside_damaged_pages_sets_the_same_ones_aside() {
    let image = killed(4);
    let data = Path::new(DIR).join("data");
    let pages = image.contents(&data).unwrap().len() / PAGE_SIZE;
    let (mut opened, mut quarantined) = (0, 0);
    for first in (2..pages).step_by(3) {
        let damaged = image.fork();
        // Some at once, of which redo meets any first.
        for page in [first, first * 7 % pages, first * 31 % pages].into_iter().filter(|&page| page > 1) {
            damaged.flip(&data, (page * PAGE_SIZE + 200) as u64, 0x40).unwrap();
        }
        // Page 3 is the root of the catalogue: without it all are refused.
        if let Ok(did) = alike(&damaged, &format!("page {first}")) {
            opened += 1;
            quarantined += u64::from(did.contains("are quarantined") && !did.contains(" 0 are quarantined"));
        }
    }
    assert!(opened > 10 && quarantined > 5, "{opened} opened, {quarantined} of them with quarantined pages");
}

/// A file system on which some pages of the data file cannot be read.
#[derive(Debug)]
struct Unreadable {
    below: Sim,
    pages: Arc<Vec<u64>>,
}

#[derive(Debug)]
struct UnreadableFile(Arc<dyn File>, Arc<Vec<u64>>);

impl FsLayer for Unreadable {
    fn below(&self) -> &dyn Fs {
        &self.below
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        if file.path().ends_with("data") { Arc::new(UnreadableFile(file, Arc::clone(&self.pages))) } else { file }
    }
}

impl FileLayer for UnreadableFile {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> foreshore_base::Result<usize> {
        let first = offset / PAGE_SIZE as u64;
        let read = first..first + (buf.len() as u64).div_ceil(PAGE_SIZE as u64);
        match self.1.iter().find(|page| read.contains(page)) {
            Some(page) => {
                let source = io::Error::other(format!("page {page}"));
                Err(foreshore_base::Error::io("read", self.path(), source))
            }
            None => self.0.read_at(buf, offset),
        }
    }
}

#[test]
fn the_unreadable_page_that_the_log_names_first_is_the_one_that_is_reported() {
    let image = killed(5);
    let len = image.contents(&Path::new(DIR).join("data")).unwrap().len() / PAGE_SIZE;
    let mut reported = std::collections::BTreeSet::new();
    for step in 0..12 {
        // Every fourth page, from another one on.
        let pages = Arc::new((5 + step % 4 + step..len as u64).step_by(4).collect::<Vec<_>>());
        let errors = WORKERS.map(|workers| {
            let fs = Unreadable { below: image.fork(), pages: Arc::clone(&pages) };
            let options = options(&fs.below).lab(|lab| lab.fs = Some(Arc::new(fs) as Arc<dyn Fs>));
            let error = with(options, workers).open(DIR).map(drop).expect_err("pages are missing");
            assert!(matches!(error, Error::Io { .. }), "{error:?}");
            format!("{error:?}")
        });
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:#?}");
        reported.insert(errors[0].clone());
    }
    assert!(reported.len() > 1, "{reported:?}");
}
