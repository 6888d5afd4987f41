//! Writes a first corpus for each target: `cargo run --bin seeds -- FOLDER`.
//!
//! The targets change real databases, so a seed is a small change of one. There is a seed for each database here and
//! each kind of structure in it. The seeds of `keys` are keys and values as tables hold them.

use foreshore_base::key::{Key, Value};
use foreshore_fuzz::golden;
// Its callbacks are what the instrumentation of this build asks for.
use libfuzzer_sys as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Targets whose inputs are changes of a database.
const CHANGES: [&str; 7] = ["superblock", "log", "page", "catalogue", "doublewrite", "replay", "directory"];
/// Numbers at the ends of ranges.
const NUMBERS: [u64; 8] = [0, 1, 255, 4096, 1 << 31, 1 << 48, 1 << 62, u64::MAX];

fn main() -> io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or_else(|| io::Error::other("which folder?"))?);
    for target in CHANGES {
        for database in 0..golden::all().len() {
            for (number, value) in NUMBERS.into_iter().enumerate() {
                write(&folder, target, &format!("{database}-{number}"), &change(database as u8, number as u8, value))?;
            }
        }
    }
    for (number, key) in keys().into_iter().enumerate() {
        write(&folder, "keys", &number.to_string(), &key)?;
    }
    for number in 0..8_u8 {
        write(&folder, "operations", &number.to_string(), &operations(number))?;
    }
    Ok(())
}

fn write(folder: &Path, target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder.join(target))?;
    fs::write(folder.join(target).join(format!("seed-{name}")), bytes)
}

/// Four changes: a small field, a large one, a copy, and one of a whole structure.
fn change(database: u8, number: u8, value: u64) -> Vec<u8> {
    let mut bytes = vec![database];
    for (action, place) in [(0x01, number), (0x33, number + 7), (0x0A, number + 20), (0x0C, number + 40)] {
        bytes.extend([action | number % 4 << 4, place, number * 16, 0]);
        bytes.extend(value.to_le_bytes());
    }
    bytes
}

fn keys() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for kind in 0..15 {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        <(&str, &[u8], i16)>::encode_key(&("ab", &[0, 255, 1][..], -2), &mut left);
        <(Option<&[u8]>, bool)>::encode(&(Some(&[0, 1][..]), true), &mut right);
        all.push([&[kind, left.len() as u8][..], &left, &right].concat());
    }
    all
}

/// Rows, a savepoint, a commit, a loss of power.
fn operations(number: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..12 {
        let key = (n * 5) | (number << 6);
        bytes.extend([n % 3, key, key | 0x40, 4, key + 1, 8, n, 6, key]);
    }
    bytes.extend([9, 0, 13, 15, number, 12, number, 0x30, 7, 200, 9, 0, 14, number, 15, 0, number, 1, 2, 0]);
    bytes
}
