//! Makes checksums fit, and with them the links from one group of the log to the next.

use crate::layout::{ENVELOPE, GROUP_HEADER, Group, Kind, Place, entry_of};
use foreshore_base::codec::u32_at;
use foreshore_base::crc32c;
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use std::collections::HashMap;
use std::path::PathBuf;

type File = (PathBuf, Vec<u8>);

/// Computes the checksums of the places that `is_touched` names by index, and of what holds or follows them.
pub fn fix(files: &mut [File], places: &[Place], groups: &[Group], is_touched: &dyn Fn(usize) -> bool) {
    for (index, place) in places.iter().enumerate().filter(|(index, _)| is_touched(*index)) {
        let bytes = &mut files[place.file].1;
        // A change may have cut the file.
        if place.at + place.len > bytes.len() {
            continue;
        }
        match place.kind {
            kind if kind.is_page() => {
                let crc = crc32c(&bytes[place.at + 4..place.at + PAGE_SIZE]);
                put(bytes, place.at, crc);
                if kind == Kind::Image {
                    put(bytes, entry_of(place.at), crc);
                    let header = places[..index].iter().rposition(|place| place.kind == Kind::Batch);
                    header.into_iter().for_each(|header| fix_batch(bytes, places[header].at));
                }
            }
            Kind::Doublewrite | Kind::Batch => fix_batch(bytes, place.at),
            Kind::Superblock | Kind::Control | Kind::Segment => fix_block(bytes, place.at),
            Kind::Record => fix_record(bytes, place),
            _ => {}
        }
    }
    fix_log(files, places, groups, is_touched);
}

fn put(bytes: &mut [u8], at: usize, crc: u32) {
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn fix_block(bytes: &mut [u8], at: usize) {
    let crc = crc32c(&bytes[at..at + BLOCK - 4]);
    put(bytes, at + BLOCK - 4, crc);
}

fn fix_batch(bytes: &mut [u8], at: usize) {
    let crc = crc32c(&bytes[at + 12..at + BLOCK]);
    put(bytes, at + 8, crc);
}

/// The length in the record counts, where it is possible.
fn fix_record(bytes: &mut [u8], place: &Place) {
    let payload = place.at + ENVELOPE;
    let len = u32_at(bytes, place.at) as usize;
    let end = if len <= BLOCK * 16 && payload + len <= bytes.len() { payload + len } else { place.at + place.len };
    let mut crc = crc32c(&bytes[payload..end]);
    for part in [0..4, 8..ENVELOPE] {
        crc = foreshore_base::crc32c_append(crc, &bytes[place.at + part.start..place.at + part.end]);
    }
    put(bytes, place.at + 4, crc);
}

/// Computes the checksums of groups in the order of their numbers: each holds that of the one before.
fn fix_log(files: &mut [File], places: &[Place], groups: &[Group], is_touched: &dyn Fn(usize) -> bool) {
    // By old checksum.
    let mut changed: HashMap<u32, u32> = HashMap::new();
    let mut crcs: Vec<u32> = groups.iter().map(|group| group.crc).collect();
    for (index, group) in groups.iter().enumerate() {
        let Place { file, at, .. } = places[group.place];
        if at + group.total > files[file].1.len() {
            continue;
        }
        let is_own = is_touched(group.place) || group.records.clone().any(is_touched);
        if let Some(original) = group.repeats.filter(|_| !is_own) {
            let Place { file: from_file, at: from, .. } = places[groups[original].place];
            if crcs[original] != group.crc && from + group.total <= files[from_file].1.len() {
                let copy = files[from_file].1[from..from + group.total].to_vec();
                files[file].1[at..at + group.total].copy_from_slice(&copy);
                crcs[index] = crcs[original];
            }
            continue;
        }
        let before = group.before.filter(|&before| crcs[before] != groups[before].crc);
        if !is_own && before.is_none() {
            continue;
        }
        let bytes = &mut files[file].1;
        if let Some(before) = before {
            put(bytes, at + 64, crcs[before]);
        }
        let total = u32_at(bytes, at + 60) as usize;
        let end = if total >= GROUP_HEADER && at + total <= bytes.len() { at + total } else { at + group.total };
        let data = crc32c(&bytes[at + GROUP_HEADER..end]);
        put(bytes, at + 68, data);
        crcs[index] = crc32c(&bytes[at..at + 92]);
        put(bytes, at + 92, crcs[index]);
        changed.insert(group.crc, crcs[index]);
    }
    // The control file holds the checksum of the group before the first.
    for place in places.iter().filter(|place| place.kind == Kind::Control) {
        let bytes = &mut files[place.file].1;
        if place.at + BLOCK <= bytes.len()
            && let Some(&crc) = changed.get(&u32_at(bytes, place.at + 56))
        {
            put(bytes, place.at + 56, crc);
            fix_block(bytes, place.at);
        }
    }
}
