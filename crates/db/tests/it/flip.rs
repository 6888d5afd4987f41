//! A flipped byte in a closed database gives an error or is repaired; it never gives wrong data or a panic.
//!
//! `FORESHORE_FLIP_STRIDE=1` flips every byte of every file. Of a sector of zeros one byte stands for all.

use crate::support::{NUMBERS, Snapshot, closed_database, open};
use foreshore::{Error, limits::SECTOR};
use foreshore_io::Fs;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A prime, so that all offsets in a block are met.
const STRIDE: usize = 331;

#[test]
fn no_flipped_byte_gives_wrong_data() {
    let stride = std::env::var("FORESHORE_FLIP_STRIDE").map_or(STRIDE, |text| text.parse().unwrap());
    let sound = closed_database();
    let places = places(&sound);
    let (repaired, refused, next) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((file, at)) = places.get(next.fetch_add(stride, Ordering::Relaxed)) {
                    let counter = if flipped(&sound, *file, *at) { &repaired } else { &refused };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (repaired, refused) = (repaired.into_inner(), refused.into_inner());
    assert!(repaired > 0 && refused > 0, "{repaired} repaired, {refused} refused");
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
fn flipped(sound: &Snapshot, file: usize, at: usize) -> bool {
    let mut damaged = sound.clone();
    let (name, bytes) = &mut damaged.0[file];
    let place = format!("{name} byte {at}");
    bytes[at] ^= 0x40;
    match read_all(&damaged.restore()) {
        Ok(rows) => {
            assert!(rows.into_iter().eq((0..300).map(|n| (n, n as i64))), "{place}: wrong rows");
            true
        }
        Err(
            Error::Corrupted { .. }
            | Error::Foreign { .. }
            | Error::Newer { .. }
            | Error::LostLog { .. }
            | Error::Truncated { .. },
        ) => false,
        Err(error) => panic!("{place}: {error:?}"),
    }
}

fn read_all(fs: &Arc<dyn Fs>) -> Result<Vec<(u64, i64)>, Error> {
    let db = open(fs)?;
    db.run(|tx| tx.open(NUMBERS)?.iter().collect())
}
