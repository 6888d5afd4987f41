//! A flipped byte in a closed database gives an error or is repaired; it never gives wrong data or a panic.
//!
//! `FORESHORE_FLIP_STRIDE=1` flips every byte of every file. Of a sector of zeros one byte stands for all.

use crate::support::{DIR, NUMBERS, Snapshot, fill, open, small};
use foreshore::Error;
use foreshore::limits::{PAGE_SIZE, SECTOR};
use foreshore_io::{Fs, Sim, sim::Persist};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A prime, so that all offsets in a block are met.
const STRIDE: usize = 331;

#[test]
fn no_flipped_byte_gives_wrong_data() {
    let stride = std::env::var("FORESHORE_FLIP_STRIDE").map_or(STRIDE, |text| text.parse().unwrap());
    let sound = closed_database();
    let files = Snapshot::of(&(Arc::new(sound.clone()) as Arc<dyn Fs>));
    let places = places(&files);
    let (repaired, refused, next) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((file, at)) = places.get(next.fetch_add(stride, Ordering::Relaxed)) {
                    let counter = if flipped(&sound, &files.0[*file].0, *at) { &repaired } else { &refused };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (repaired, refused) = (repaired.into_inner(), refused.into_inner());
    assert!(repaired > 0 && refused > 0, "{repaired} repaired, {refused} refused");
}

/// The disk of a small database that was closed cleanly. Copies of it share what is not damaged.
fn closed_database() -> Sim {
    let sim = Sim::new(0);
    let db = small().lab(|lab| lab.fs = Some(Arc::new(sim.clone()))).open(DIR).unwrap();
    fill(&db, 300);
    db.close(Duration::ZERO).unwrap();
    let sound = sim.crash_image(&Persist::None, 0);
    sound.stop_recording();
    sound
}

/// Every byte worth a flip: file and offset.
fn places(files: &Snapshot) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for (file, (_, bytes)) in files.0.iter().enumerate() {
        for (sector, part) in bytes.chunks(SECTOR).enumerate() {
            let count = if part.iter().all(|&byte| byte == 0) { 1 } else { part.len() };
            places.extend((0..count).map(|at| (file, sector * SECTOR + at)));
        }
    }
    places
}

/// Flips one byte and reads everything. Whether all was there; if not, an error said so.
fn flipped(sound: &Sim, name: &str, at: usize) -> bool {
    let damaged = sound.fork();
    damaged.flip(&Path::new(DIR).join(name), at as u64, 0x40).unwrap();
    let fs: Arc<dyn Fs> = Arc::new(damaged);
    // All pages but the root of the catalogue, behind the superblocks.
    if name == "data" && ![0, 1, 3].contains(&(at / PAGE_SIZE)) {
        open(&fs).unwrap_or_else(|error| panic!("{name} byte {at}: {error:?}"));
    }
    match read_all(&fs) {
        Ok(rows) => {
            assert!(rows.into_iter().eq((0..300).map(|n| (n, n as i64))), "{name} byte {at}: wrong rows");
            true
        }
        Err(
            Error::Corrupted { .. }
            | Error::Foreign { .. }
            | Error::Newer { .. }
            | Error::LostLog { .. }
            | Error::Truncated { .. },
        ) => false,
        Err(error) => panic!("{name} byte {at}: {error:?}"),
    }
}

fn read_all(fs: &Arc<dyn Fs>) -> Result<Vec<(u64, i64)>, Error> {
    let db = open(fs)?;
    db.run(|tx| tx.open(NUMBERS)?.iter().collect())
}
