//! Changes to a database, as an input says.
//!
//! The first byte of an input chooses the database. Then come changes of 12 bytes each, [`MOST`] at most:
//!
//! ```text
//!  0         1        2      4
//!  | action  | place  | at   | value
//!  | u8      | u8     | u16  | 8 bytes
//! ```
//!
//! | bits of `action` | meaning |
//! |---|---|
//! | 0, 1 | width: 1, 2, 4 or 8 bytes of the value |
//! | 2, 3 | 0 writes the value, 1 adds it, 2 writes what stands elsewhere in the database, 3 changes a whole structure or file |
//! | 4, 5 | `at` counts 0 and 1 from the start of the structure, among the first 128 bytes, 2 from where the entries of a node are, 3 in all of it |
//! | 6, 7 | both set: the checksums stay as they were |

use crate::golden::{self, DIR, Golden};
use crate::input::Input;
use crate::layout::{Kind, Place};
use crate::sums;
use foreshore_base::codec::u16_at;
use foreshore_io::Sim;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Most changes of one input.
pub const MOST: usize = 24;

/// What an input may change.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Structures of these kinds.
    pub kinds: &'static [Kind],
    /// Whether files may be cut, lengthened and removed.
    pub files: bool,
}

/// A database under change.
struct Work {
    golden: &'static Golden,
    files: Vec<(PathBuf, Vec<u8>)>,
    touched: HashSet<usize>,
    removed: HashSet<usize>,
}

/// Makes the changes of an input, and returns the disk with them.
#[must_use]
pub fn apply(input: &mut Input<'_>, scope: Scope) -> Sim {
    let databases = golden::all();
    let golden = &databases[input.below(databases.len())];
    let places: Vec<usize> =
        (0..golden.places.len()).filter(|&index| scope.kinds.contains(&golden.places[index].kind)).collect();
    let (touched, removed) = (HashSet::new(), HashSet::new());
    let mut work = Work { golden, files: golden.files.clone(), touched, removed };
    for _ in 0..MOST {
        if input.is_empty() || places.is_empty() {
            break;
        }
        let (action, place) = (input.byte(), places[input.below(places.len())]);
        let (at, value) = (usize::from(input.word()), input.long());
        let keeps_sums = action >> 6 == 3;
        match action >> 2 & 3 {
            3 => work.whole(place, at, value, scope, &places),
            mode => work.field(place, action, mode, at, value),
        }
        if keeps_sums {
            work.touched.remove(&place);
        } else {
            work.touched.insert(place);
        }
    }
    work.finish()
}

impl Work {
    /// The bytes of a place, fewer where its file was cut.
    fn bytes(&mut self, place: &Place) -> &mut [u8] {
        let bytes = &mut self.files[place.file].1;
        let (at, end) = (place.at.min(bytes.len()), (place.at + place.len).min(bytes.len()));
        &mut bytes[at..end]
    }

    fn field(&mut self, place: usize, action: u8, mode: u8, at: usize, value: [u8; 8]) {
        let width = 1 << (action & 3);
        let elsewhere = usize::from(value[0]) % self.golden.places.len();
        let other = self.golden.places[elsewhere];
        let from = usize::from(u16_at(&value, 1)) % (other.len - width + 1);
        let copied: Vec<u8> = self.golden.files[other.file].1[other.at + from..][..width].to_vec();
        let is_page = self.golden.places[place].kind.is_page();
        let bytes = self.bytes(&self.golden.places[place]);
        let Some(last) = bytes.len().checked_sub(width) else { return };
        let at = match action >> 4 & 3 {
            0 | 1 => at % 128.min(last + 1),
            2 if is_page => {
                let entries = usize::from(u16_at(bytes, 34)).min(last);
                entries + at % (last - entries + 1)
            }
            _ => at % (last + 1),
        };
        let field = &mut bytes[at..at + width];
        match mode {
            0 => field.copy_from_slice(&value[..width]),
            1 => {
                let mut sum = [0; 8];
                sum[..width].copy_from_slice(field);
                let sum = u64::from_le_bytes(sum).wrapping_add_signed(i64::from(value[0] as i8));
                field.copy_from_slice(&sum.to_le_bytes()[..width]);
            }
            _ => field.copy_from_slice(&copied),
        }
    }

    /// Changes a whole structure, or its file.
    fn whole(&mut self, place: usize, at: usize, value: [u8; 8], scope: Scope, places: &[usize]) {
        let own = self.golden.places[place];
        let other = self.golden.places[places[usize::from(value[1]) % places.len()]];
        let bytes = self.bytes(&own);
        match value[0] % 8 {
            0 | 1 => bytes.fill(0),
            2..=4 => {
                let copy = self.golden.files[other.file].1[other.at..other.at + other.len].to_vec();
                let bytes = self.bytes(&own);
                let len = bytes.len().min(copy.len());
                bytes[..len].copy_from_slice(&copy[..len]);
            }
            5 if scope.files => {
                let bytes = &mut self.files[own.file].1;
                bytes.truncate(at * 512 % (bytes.len() + 1));
            }
            6 if scope.files => {
                let bytes = &mut self.files[own.file].1;
                bytes.resize(bytes.len() + at % 128 * 4096, 0);
            }
            7 if scope.files && value[1].is_multiple_of(4) => {
                self.removed.insert(own.file);
            }
            _ => {
                let at = at % bytes.len().max(1);
                bytes[at..].iter_mut().take(usize::from(value[1])).for_each(|byte| *byte = value[2]);
            }
        }
    }

    fn finish(mut self) -> Sim {
        let touched = &self.touched;
        sums::fix(&mut self.files, &self.golden.places, &self.golden.groups, &|index| touched.contains(&index));
        let disk = self.golden.disk.fork();
        for (index, ((path, now), (_, then))) in self.files.iter().zip(&self.golden.files).enumerate() {
            if self.removed.contains(&index) {
                foreshore_io::Fs::remove(&disk, path).expect("the file is there");
                continue;
            }
            if now.len() != then.len() {
                disk.truncate(path, now.len() as u64).expect("the file is there");
            }
            for (block, bytes) in now.chunks(4096).enumerate() {
                let at = block * 4096;
                if then.get(at..at + bytes.len()) != Some(bytes) {
                    disk.patch(path, at as u64, bytes).expect("the range is in the file");
                }
            }
        }
        debug_assert!(foreshore_io::Fs::kind(&disk, Path::new(DIR)).is_ok());
        disk
    }
}
