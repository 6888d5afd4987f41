//! Each record, page and block that this build writes has the layout of docs/format.md and nothing more.
//!
//! The readers here are written from that text alone. They find a writer whose bytes the engine's own reader accepts,
//! although readers of earlier builds would not.

use crate::format_1::{BACKUPS, CLOSED, CRASHED, TABLES_IN_DOUBT, on};
use crate::format_1_files::Files;
use crate::format_1_rare::DAMAGED;
use foreshore_base::codec::{Decoder, Short};
use foreshore_base::crc32c;
use std::collections::BTreeSet;
use std::time::Duration;

const BLOCK: usize = 4096;
const PAGE: usize = 8192;

type Parsed = Result<(), Short>;

fn field(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// A block that ends with its checksum, or has it at 8. Returns whether it is one with this magic.
fn is_block(block: &[u8], magic: &[u8; 8], crc: usize) -> bool {
    let sum = if crc == 8 { crc32c(&block[12..]) } else { crc32c(&block[..crc]) };
    let is_it = block.starts_with(magic);
    assert!(!is_it || field(block, crc, 4) == u64::from(sum), "the checksum of a block");
    is_it
}

/// The payloads of the records in the groups of a file of the log, fragments left out.
fn records(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut found, mut at) = (Vec::new(), BLOCK);
    while at < file.len() {
        let group = &file[at..];
        if !group.starts_with(b"FSHORGRP") {
            at += BLOCK;
            continue;
        }
        let (extents, total) = (field(group, 10, 2) as usize, field(group, 60, 4) as usize);
        assert_eq!((field(group, 8, 2), total % BLOCK), (1, 0));
        assert_eq!(field(group, 92, 4), u64::from(crc32c(&group[..92])));
        assert_eq!(field(group, 68, 4), u64::from(crc32c(&group[96..total])));
        assert!(is_zero(&group[80..92]));
        let mut data = 96 + 16 * extents;
        for extent in group[96..data].chunks_exact(16) {
            assert!(is_zero(&extent[2..4]));
            let end = data + field(extent, 4, 4) as usize;
            while data < end {
                let (record, len) = (&group[data..end], field(group, data, 4) as usize);
                let crc = crc32c(&[&record[24..24 + len], &record[..4], &record[8..24]].concat());
                assert_eq!(field(record, 4, 4), u64::from(crc));
                let next = (24 + len).next_multiple_of(8);
                assert!(is_zero(&record[24 + len..next]) && record[23] & 0x1e == 0, "flags {:#x}", record[23]);
                if record[23] & 0xe0 == 0 {
                    assert_eq!(record[23] & 1 == 1, record[24] == 96, "a commit has the flag of that name");
                    found.push(record[24..24 + len].to_vec());
                }
                data += next;
            }
        }
        assert!(is_zero(&group[data..total]));
        at += total;
    }
    found
}

/// Parses the payload of a record, and returns its kind.
fn record(payload: &[u8]) -> Result<u8, Short> {
    let mut from = Decoder::new(payload);
    let (kind, pages, mask, flags) = (from.u8()?, from.u8()?, from.u8()?, from.u8()?);
    from.u32()?;
    assert!(pages <= 8 && u32::from(mask) < 1 << pages && flags & !7 == 0, "{payload:?}");
    for _ in 0..pages {
        assert!(from.u64()? < 1 << 31);
    }
    assert!(kind < 96 || (pages, mask, flags) == (0, 0, 0), "kind {kind}");
    if flags & 2 != 0 {
        from.u64()?;
    }
    assert_eq!(flags & 4 != 0, kind == 59);
    body(kind, &mut from)?;
    Ok(kind)
}

/// Parses the body of a kind. Nothing is left behind it.
fn body(kind: u8, from: &mut Decoder<'_>) -> Parsed {
    match kind {
        1 | 2 | 44 | 96 | 97 | 101 => {}
        4 => drop(from.u16()?),
        3 | 47 | 98 => drop(from.u64()?),
        32 => {
            fields(from, &[8, 8])?;
            from.short_bytes()?;
            return rest(from);
        }
        33 => {
            fields(from, &[8, 8, 8])?;
            from.short_bytes()?;
            from.u16()?;
            from.short_bytes()?;
            return rest(from);
        }
        34 => drop(from.short_bytes()?),
        35 => {
            from.u64()?;
            from.short_bytes()?;
            fields(from, &[2, 2])?;
            return rest(from);
        }
        40 => many(from, &[2])?,
        41 => {
            from.u16()?;
            from.short_bytes()?;
            image(from)?;
        }
        42 | 48 => {
            from.u64()?;
            return rest(from);
        }
        43 => image(from)?,
        45 => {
            fields(from, &[8, 4])?;
            row_change(from)?;
        }
        46 | 55 => {
            from.u64()?;
            row_change(from)?;
        }
        49 | 50 | 51 | 56 => {
            from.u64()?;
            image(from)?;
        }
        52 => {
            from.u32()?;
            let (kind, change) = (from.u8()?, from.short_bytes()?);
            body(kind, &mut Decoder::new(change))?;
            chain_page(from)?;
        }
        53 => chain_page(from)?,
        54 => many(from, &[4])?,
        57 => many(from, &[2, 2])?,
        58 => {
            fields(from, &[8])?;
            assert!(from.u8()? <= 1);
            image(from)?;
        }
        59 => rows_delete(from)?,
        99 => {
            fields(from, &[8, 8, 8])?;
            let count = from.u32()?;
            (0..count).try_for_each(|_| fields(from, &[8, 8]))?;
        }
        100 => prepare(from)?,
        102 => many(from, &[8])?,
        _ => panic!("kind {kind} is not of format 1"),
    }
    assert!(from.is_empty(), "bytes behind the body of kind {kind}");
    Ok(())
}

fn fields(from: &mut Decoder<'_>, lens: &[usize]) -> Parsed {
    lens.iter().try_for_each(|&len| from.bytes(len).map(drop))
}

/// The rest of a body is a string, which ends it.
fn rest(from: &Decoder<'_>) -> Parsed {
    assert!(from.rest().len() <= 2048);
    Ok(())
}

fn many(from: &mut Decoder<'_>, lens: &[usize]) -> Parsed {
    while !from.is_empty() {
        fields(from, lens)?;
    }
    Ok(())
}

fn take_rest<'a>(from: &mut Decoder<'a>) -> Result<&'a [u8], Short> {
    from.bytes(from.rest().len())
}

fn row_change(from: &mut Decoder<'_>) -> Parsed {
    let kind = from.u8()?;
    assert!((32..=35).contains(&kind), "a row change of kind {kind}");
    body(kind, &mut Decoder::new(take_rest(from)?))
}

fn chain_page(from: &mut Decoder<'_>) -> Parsed {
    fields(from, &[8, 8, 4])?;
    assert!(from.u8()? <= 2 && take_rest(from)?.len() <= PAGE - 56);
    Ok(())
}

/// The image of a node, which is a node when the bytes between are zeros.
fn image(from: &mut Decoder<'_>) -> Parsed {
    let (level, flags, front) = (from.u8()?, from.u16()?, from.short_bytes()?);
    let heap = take_rest(from)?;
    let mut page = vec![0; PAGE];
    page[4..6].copy_from_slice(&[3, level]);
    page[6..8].copy_from_slice(&flags.to_le_bytes());
    page[32..32 + front.len()].copy_from_slice(front);
    page[PAGE - heap.len()..].copy_from_slice(heap);
    assert_eq!(front.len(), 32 + 8 * field(&page, 32, 2) as usize);
    assert_eq!(PAGE - heap.len(), field(&page, 34, 2) as usize);
    node(&page);
    Ok(())
}

fn rows_delete(from: &mut Decoder<'_>) -> Parsed {
    let count = from.u16()?;
    from.u64()?;
    assert!(count > 0 && from.u64()? & 1 == 1);
    (0..count).try_for_each(|_| {
        from.u64()?;
        from.short_bytes().map(drop)
    })
}

fn prepare(from: &mut Decoder<'_>) -> Parsed {
    assert!(!from.short_bytes()?.is_empty());
    from.short_bytes()?;
    for _ in 0..from.u32()? {
        from.u32()?;
        assert!(from.u8()? <= 4);
    }
    for _ in 0..from.u32()? {
        from.u32()?;
        let has_high = from.u8()?;
        (0..=has_high).try_for_each(|_| from.short_bytes().map(drop))?;
    }
    for _ in 0..from.u32()? {
        let kind = from.u8()?;
        from.u32()?;
        let mut entry = Decoder::new(from.short_bytes()?);
        match kind {
            36 => fields(&mut entry, &[8, 8])?,
            34 | 35 => {
                entry.u64()?;
                body(kind, &mut entry)?;
            }
            _ => panic!("a row lock of kind {kind}"),
        }
    }
    for _ in 0..from.u32()? {
        from.short_bytes()?;
        catalogue_row(from.short_bytes()?)?;
    }
    (0..from.u32()?).try_for_each(|_| fields(from, &[4, 8]))
}

fn catalogue_row(row: &[u8]) -> Parsed {
    let mut from = Decoder::new(row);
    let (version, flags, zero) = (from.u8()?, from.u8()?, from.u16()?);
    assert!(version == 1 && flags < 16 && zero == 0);
    fields(&mut from, &[4, 8])?;
    assert!(std::str::from_utf8(from.short_bytes()?).is_ok() && std::str::from_utf8(from.short_bytes()?).is_ok());
    fields(&mut from, if flags & 2 != 0 { &[4, 8] } else { &[] })?;
    fields(&mut from, if flags & 8 != 0 { &[4] } else { &[] })?;
    assert!(from.is_empty());
    Ok(())
}

/// Checks a node: its slots, its tuples, and that they, the fences and the garbage are the heap.
fn node(page: &[u8]) {
    let (level, flags) = (page[5], field(page, 6, 2));
    let (slots, heap, garbage) = (field(page, 32, 2), field(page, 34, 2) as usize, field(page, 36, 2) as usize);
    let shared = (field(page, 38, 2) >> 10) as usize;
    let [low, high] = [56, 60].map(|at| field(page, at + 2, 2) as usize);
    assert!(level <= 31 && flags & !3 == 0 && (flags & 2 != 0 || (high, shared) == (0, 0)));
    assert!(is_zero(&page[64 + 8 * slots as usize..heap]) || page[0..4] != [0; 4], "an image has zeros between");
    let (mut used, mut last) = (low + high + garbage, None);
    for slot in page[64..64 + 8 * slots as usize].chunks_exact(8) {
        let (tuple, key_len) = (&page[field(slot, 0, 2) as usize..], field(slot, 2, 2) as usize);
        let (header, value_len) = if level == 0 { (16, field(tuple, 8, 2) as usize) } else { (8, 0) };
        let key = &tuple[header..header + key_len];
        let head: Vec<u8> = key[shared..].iter().copied().chain([0; 4]).take(4).collect();
        assert_eq!(slot[4..8].iter().rev().copied().collect::<Vec<_>>(), head);
        assert!(last.is_none_or(|last| last < key) && key_len <= 992 && value_len <= 2048);
        last = Some(key);
        if level == 0 {
            assert_eq!(field(tuple, 0, 2) & !3, 0, "flags of a tuple");
            let stub = &tuple[header + key_len..header + key_len + value_len];
            assert!(
                field(tuple, 0, 2) & 2 == 0 || (value_len == 32 && is_zero(&stub[28..]) && field(stub, 16, 8) > 2048)
            );
        }
        used += header + key_len + value_len;
    }
    assert_eq!(used, PAGE - heap, "tuples, fences and garbage are the heap");
}

/// Checks a page that is not a superblock. Returns its type.
fn page(page: &[u8], id: usize) -> u8 {
    assert_eq!((field(page, 0, 4), field(page, 8, 8)), (u64::from(crc32c(&page[4..])), id as u64));
    assert!(is_zero(&page[28..32]));
    match page[4] {
        0 => {}
        4 => assert!((1..=7).contains(&field(page, 6, 2))),
        2 => assert!(page[5] == 0 && field(page, 6, 2) & !3 == 0 && field(page, 24, 4) == 0),
        3 => node(page),
        5 => {
            let content = field(page, 52, 4) as usize * if page[5] == 0 { 1 } else { 4 };
            assert!(page[5] <= 2 && content <= PAGE - 56 && is_zero(&page[56 + content..]));
        }
        other => panic!("page {id} has type {other}"),
    }
    page[4]
}

fn superblock(block: &[u8]) {
    assert!(is_block(block, b"FORESHOR", BLOCK - 4));
    assert_eq!((field(block, 8, 4), field(block, 12, 4), field(block, 84, 4)), (1, 8192, 0));
    let listed = field(block, 104, 4) as usize;
    assert!(field(block, 80, 4) <= 1 && is_zero(&block[112 + 8 * listed..4060]));
}

/// Parses all that the files hold. Returns the kinds of records and the types of pages.
fn parse(files: &Files) -> (BTreeSet<u8>, BTreeSet<u8>) {
    let (mut kinds, mut types) = (BTreeSet::new(), BTreeSet::new());
    for (path, bytes) in &files.0 {
        let blocks = || bytes.chunks_exact(BLOCK);
        match path.rsplit(['/', '.']).next().unwrap() {
            "data" => {
                bytes
                    .chunks_exact(PAGE)
                    .take(2)
                    .filter(|slot| !is_zero(slot))
                    .for_each(|slot| superblock(&slot[..BLOCK]));
                let pages = bytes.chunks_exact(PAGE).enumerate().skip(2).filter(|(_, page)| !is_zero(page));
                types.extend(pages.map(|(id, bytes)| page(bytes, id)));
            }
            "dw" => {
                assert!(is_block(&bytes[..BLOCK], b"FSHOREDW", 8));
                assert_eq!((bytes.len(), field(bytes, 12, 4)), (1_060_864, 1));
            }
            "stamps" => {
                assert!(is_block(&bytes[..BLOCK], b"FSHOREST", 8) && is_zero(&bytes[40..BLOCK]));
                for (id, entry) in bytes[BLOCK..].chunks_exact(16).enumerate().filter(|(_, entry)| !is_zero(entry)) {
                    assert_eq!(field(entry, 8, 8), id as u64 | u64::from(crc32c(&entry[..12])) << 32);
                }
            }
            "ctl" => assert!(blocks().all(|slot| {
                is_block(slot, b"FSHORCTL", BLOCK - 4) && field(slot, 8, 4) == 1 && is_zero(&slot[60..BLOCK - 4])
            })),
            "seg" | "arc" => {
                let (magic, zero) = if path.ends_with("seg") { (b"FSHORSEG", 48) } else { (b"FSHORARC", 80) };
                assert!(is_block(&bytes[..BLOCK], magic, BLOCK - 4) && field(bytes, 8, 8) == 1);
                assert!(is_zero(&bytes[zero..BLOCK - 4]));
                for payload in records(bytes) {
                    kinds.insert(record(&payload).unwrap_or_else(|Short| panic!("too short: {payload:?}")));
                }
            }
            "token" => {
                assert!(is_block(&bytes[..BLOCK], b"FSHORBKT", 8) && field(bytes, 12, 4) == 1 && is_zero(&bytes[96..]));
            }
            "backups" => {
                assert!(is_block(bytes, b"FSHORBKL", 8) && (bytes.len(), field(bytes, 12, 4)) == (BLOCK, 1));
                let count = field(bytes, 32, 4) as usize;
                assert!((1..=16).contains(&count) && is_zero(&bytes[36..40]) && is_zero(&bytes[40 + 48 * count..]));
            }
            "increment" => {
                let packs = bytes[2 * PAGE..].starts_with(b"FSHORBKP");
                assert!(packs, "the first pack follows the superblocks");
                bytes
                    .chunks_exact(PAGE)
                    .take(2)
                    .filter(|slot| !is_zero(slot))
                    .for_each(|slot| superblock(&slot[..BLOCK]));
            }
            "stage-2" | "LOCK" => {}
            other => panic!("{path}: a file {other} is not of format 1"),
        }
    }
    (kinds, types)
}

/// Opens a crashed database and undoes all that can be undone.
fn undone(files: &Files) -> Files {
    let fs = files.restore();
    let db = on(&fs).open("/db").unwrap();
    db.prepared().unwrap().iter().for_each(|txn| db.rollback_prepared(&txn.name).unwrap());
    db.close(Duration::from_secs(10)).unwrap();
    files.again(&fs)
}

#[test]
fn records_and_pages_have_the_documented_layout() {
    for which in [0, 1] {
        let (mut kinds, mut types) = (BTreeSet::new(), BTreeSet::new());
        let [crashed, in_doubt] = [&CRASHED[which], &TABLES_IN_DOUBT[which]];
        let others = [&CLOSED[which], &BACKUPS[which], &DAMAGED[which]];
        let undone = [&undone(crashed), &undone(in_doubt)];
        for files in others.into_iter().chain([crashed, in_doubt]).chain(undone) {
            let (more_kinds, more_types) = parse(files);
            kinds.extend(more_kinds);
            types.extend(more_types);
        }
        println!("{kinds:?} {types:?}");
        let rows = [32, 33, 34, 35, 40, 59];
        let trees = [41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57];
        for kind in rows.into_iter().chain(trees).chain([1, 3, 4, 96, 97, 98, 99, 100, 101, 102]) {
            assert!(kinds.contains(&kind), "no record of kind {kind} in {kinds:?}");
        }
        assert!([2, 3, 4, 5].iter().all(|kind| types.contains(kind)), "{types:?}");
    }
}
