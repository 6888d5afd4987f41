//! A flipped byte in a closed database gives an error or is repaired; it never gives wrong data or a panic.
//!
//! `FORESHORE_FLIP_STRIDE=1` flips every byte of every file.

use crate::support::{NUMBERS, Snapshot, closed_database, open};
use foreshore::Error;
use foreshore_io::Fs;
use std::sync::Arc;

/// A prime, so that all offsets in a block are met.
const STRIDE: usize = 6151;

#[test]
fn no_flipped_byte_gives_wrong_data() {
    let stride = std::env::var("FORESHORE_FLIP_STRIDE").map_or(STRIDE, |text| text.parse().unwrap());
    let sound = closed_database();
    let (mut repaired, mut refused, mut at) = (0, 0, 0);
    for name in sound.names() {
        let len = sound.clone().file(&name).len();
        while at < len {
            match flipped(&sound, &name, at) {
                Ok(()) => repaired += 1,
                Err(Error::Corrupted { .. } | Error::Foreign { .. } | Error::Newer { .. } | Error::LostLog { .. }) => {
                    refused += 1;
                }
                Err(error) => panic!("{name} byte {at}: {error:?}"),
            }
            at += stride;
        }
        // The rest carries over, so that short files are met as well.
        at -= len;
    }
    assert!(repaired > 0 && refused > 0, "{repaired} repaired, {refused} refused");
}

#[test]
fn no_flipped_byte_in_what_matters_gives_wrong_data() {
    let sound = closed_database();
    // Superblocks, map, catalogue and first leaves; headers of the log and of the doublewrite file.
    for (name, end) in [("data", 6 * 8192), ("dw", 5000)] {
        for at in (0..end).step_by(347) {
            check(&sound, name, at);
        }
    }
    for name in sound.names().iter().filter(|name| name.starts_with("log/")) {
        for at in (0..12_000).step_by(331).chain(0..64) {
            check(&sound, name, at);
        }
    }
}

fn check(sound: &Snapshot, name: &str, at: usize) {
    if at >= sound.clone().file(name).len() {
        return;
    }
    match flipped(sound, name, at) {
        Ok(()) | Err(Error::Corrupted { .. } | Error::Foreign { .. } | Error::Newer { .. } | Error::LostLog { .. }) => {
        }
        Err(error) => panic!("{name} byte {at}: {error:?}"),
    }
}

/// Flips one byte and reads everything. `Ok` means that every row was right.
fn flipped(sound: &Snapshot, name: &str, at: usize) -> Result<(), Error> {
    let mut damaged = sound.clone();
    damaged.file(name)[at] ^= 0x40;
    read_all(&damaged.restore()).map(|rows| {
        let wanted: Vec<_> = (0..300).map(|n| (n, n as i64)).collect();
        assert_eq!(rows, wanted, "{name} byte {at}");
    })
}

fn read_all(fs: &Arc<dyn Fs>) -> Result<Vec<(u64, i64)>, Error> {
    let db = open(fs)?;
    db.run(|tx| tx.open(NUMBERS)?.iter().collect())
}
