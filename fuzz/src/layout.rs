//! Where the structures are in the files of a database, as `docs/format.md` has it.

use foreshore_base::codec::{u16_at, u32_at, u64_at};
use foreshore_base::crc32c;
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use std::path::PathBuf;

/// Bytes of a group's header.
pub const GROUP_HEADER: usize = 96;
const EXTENT: usize = 16;
/// Bytes in front of a record's payload.
pub const ENVELOPE: usize = 24;
/// Images in an area of the doublewrite file.
const AREA_PAGES: usize = 64;
const CATALOGUE: u32 = 1;

/// What a structure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A slot of the superblock.
    Superblock,
    /// A map page.
    Map,
    /// A leaf of a table.
    Leaf,
    /// An inner node of a table.
    Inner,
    /// A node of the catalogue.
    Catalogue,
    /// A page of a large value.
    Chain,
    /// The header of the doublewrite file.
    Doublewrite,
    /// The header of a doublewrite batch.
    Batch,
    /// An image in a batch.
    Image,
    /// A slot of the log's control file.
    Control,
    /// The header of a segment.
    Segment,
    /// A group header with its extents. Patches reach the header; the checksum covers the group.
    Group,
    /// A log record.
    Record,
}

impl Kind {
    /// Whether the identity of the database is in bytes 16 to 32.
    #[must_use]
    pub const fn has_uuid(self) -> bool {
        matches!(self, Self::Superblock | Self::Doublewrite | Self::Batch | Self::Control | Self::Segment | Self::Group)
    }

    /// Whether it is a page, at home or in the doublewrite file.
    #[must_use]
    pub const fn is_page(self) -> bool {
        matches!(self, Self::Map | Self::Leaf | Self::Inner | Self::Catalogue | Self::Chain | Self::Image)
    }
}

/// A structure in a file.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// What it is.
    pub kind: Kind,
    /// The index of its file.
    pub file: usize,
    /// Its offset there.
    pub at: usize,
    /// Its length in bytes.
    pub len: usize,
}

/// A group of the log.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its place, by index.
    pub place: usize,
    /// The places of its records, by index.
    pub records: std::ops::Range<usize>,
    /// Its number.
    pub number: u64,
    /// Bytes of it all.
    pub total: usize,
    /// The header checksum that it has.
    pub crc: u32,
    /// The group that it follows, by index.
    pub before: Option<usize>,
    /// An equal group, by index, that it repeats.
    pub repeats: Option<usize>,
}

/// Finds the structures.
#[must_use]
pub fn of(files: &[(PathBuf, Vec<u8>)]) -> (Vec<Place>, Vec<Group>) {
    let (mut places, mut groups) = (Vec::new(), Vec::new());
    for (file, (path, bytes)) in files.iter().enumerate() {
        let mut add = |kind, at, len| places.push(Place { kind, file, at, len });
        match path.file_name().and_then(|name| name.to_str()).unwrap_or_default() {
            "data" => data(bytes, &mut add),
            "dw" => doublewrite(bytes, &mut add),
            "ctl" => [0, BLOCK].into_iter().for_each(|at| add(Kind::Control, at, BLOCK)),
            name if name.ends_with(".seg") => segment(file, bytes, &mut places, &mut groups),
            _ => {}
        }
    }
    link(files, &places, &mut groups);
    (places, groups)
}

fn data(bytes: &[u8], add: &mut impl FnMut(Kind, usize, usize)) {
    [0, PAGE_SIZE].into_iter().for_each(|at| add(Kind::Superblock, at, BLOCK));
    for (number, page) in bytes.chunks_exact(PAGE_SIZE).enumerate().skip(2) {
        let kind = match (page[4], page[5]) {
            (2, _) => Kind::Map,
            (3, _) if u32_at(page, 24) == CATALOGUE => Kind::Catalogue,
            (3, 0) => Kind::Leaf,
            (3, _) => Kind::Inner,
            (5, _) => Kind::Chain,
            _ => continue,
        };
        add(kind, number * PAGE_SIZE, PAGE_SIZE);
    }
}

/// Offset of the header of area 0 or 1.
const fn area(number: usize) -> usize {
    BLOCK + number * (BLOCK + AREA_PAGES * PAGE_SIZE)
}

fn doublewrite(bytes: &[u8], add: &mut impl FnMut(Kind, usize, usize)) {
    add(Kind::Doublewrite, 0, BLOCK);
    for at in [0, 1].map(area) {
        add(Kind::Batch, at, BLOCK);
        let count = (u32_at(bytes, at + 12) as usize).min(AREA_PAGES);
        (0..count).for_each(|n| add(Kind::Image, at + BLOCK + n * PAGE_SIZE, PAGE_SIZE));
    }
}

/// The checksum that the batch has for an image at `at`.
#[must_use]
pub fn entry_of(at: usize) -> usize {
    let header = if at < area(1) { area(0) } else { area(1) };
    header + 40 + (at - header - BLOCK) / PAGE_SIZE * 24 + 16
}

fn segment(file: usize, bytes: &[u8], places: &mut Vec<Place>, groups: &mut Vec<Group>) {
    places.push(Place { kind: Kind::Segment, file, at: 0, len: BLOCK });
    let mut at = BLOCK;
    while at + BLOCK <= bytes.len() {
        let head = &bytes[at..at + GROUP_HEADER];
        let total = u32_at(head, 60) as usize;
        if &head[..8] != b"FSHORGRP" || u32_at(head, 92) != crc32c(&head[..92]) || at + total > bytes.len() {
            at += BLOCK;
            continue;
        }
        let data = GROUP_HEADER + EXTENT * usize::from(u16_at(head, 10));
        let place = places.len();
        places.push(Place { kind: Kind::Group, file, at, len: data });
        let (mut record, end) = (data, data + u32_at(head, 56) as usize);
        while record + ENVELOPE <= end {
            let len = (ENVELOPE + u32_at(bytes, at + record) as usize).next_multiple_of(8);
            places.push(Place { kind: Kind::Record, file, at: at + record, len });
            record += len;
        }
        let (number, crc) = (u64_at(head, 32), u32_at(head, 92));
        let records = place + 1..places.len();
        groups.push(Group { place, records, number, total, crc, before: None, repeats: None });
        at += total;
    }
}

/// Finds which group follows and which repeats another one, by their checksums.
fn link(files: &[(PathBuf, Vec<u8>)], places: &[Place], groups: &mut [Group]) {
    groups.sort_by_key(|group| (group.number, group.place));
    for index in 0..groups.len() {
        let place = &places[groups[index].place];
        let prev_crc = u32_at(&files[place.file].1, place.at + 64);
        let (number, crc) = (groups[index].number, groups[index].crc);
        let earlier = |test: &dyn Fn(&Group) -> bool| groups[..index].iter().position(test);
        let repeats = earlier(&|other| other.number == number && other.crc == crc);
        let before = earlier(&|other| other.number + 1 == number && other.crc == prev_crc);
        (groups[index].repeats, groups[index].before) = (repeats, before);
    }
}
