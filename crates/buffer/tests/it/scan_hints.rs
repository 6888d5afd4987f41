//! Promise: under every policy, pages that scans read once do not evict pages that are needed again. But a table that
//! is scanned again and again stays in memory if it fits and no other reader needs the frames.

use crate::common::{Bed, check, create, init, open, pool_options};
use foreshore_base::PageId;
use foreshore_buffer::{AccessPattern, PoolOptions};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_io::{Fs, Mem};
use std::ops::Range;
use std::sync::Arc;

const FRAMES: u64 = 256;
/// Hot pages: half the frames.
const HOT: Range<u64> = 1..1 + FRAMES / 2;
/// Pages that fill the other half.
const OTHERS: Range<u64> = HOT.end..HOT.end + FRAMES / 2;
/// Four times the frames.
const SCANNED: Range<u64> = OTHERS.end..OTHERS.end + 4 * FRAMES;

fn store() -> Arc<dyn Fs> {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    create(&fs, SCANNED.end).expect("an empty store");
    let bed = open(&fs, &pool_options(64)).expect("open");
    let mut session = bed.log.session().expect("a session");
    for pid in 1..SCANNED.end {
        init(&bed.pool, &mut session, PageId(pid)).expect("init");
    }
    bed.pool.flush_all().expect("flush");
    fs
}

/// Pages come one by one.
fn options(replacement: ReplacementKind) -> PoolOptions {
    PoolOptions { replacement: replacement.maker(), read_around: false, ..pool_options(FRAMES as usize) }
}

/// Creates a pool in which the hot pages have been used several times, and others once.
fn warm(fs: &Arc<dyn Fs>, replacement: ReplacementKind) -> Bed {
    let bed = open(fs, &options(replacement)).expect("open");
    for pids in [OTHERS, HOT, HOT, HOT, HOT] {
        reads(&bed, pids, AccessPattern::Random);
    }
    assert_eq!(reads(&bed, HOT, AccessPattern::Random), 0, "all fit");
    bed
}

/// Fixes pages, and returns how many had to be read.
fn reads(bed: &Bed, pids: Range<u64>, pattern: AccessPattern) -> u64 {
    let before = bed.pool.stats().pages_read;
    for pid in pids.map(PageId) {
        if pattern == AccessPattern::Scan && pid.0 % 2 == 0 {
            bed.pool.prefetch(&[pid, PageId(pid.0 + 1)].map(|pid| pid.min(PageId(SCANNED.end - 1))));
            for _ in 0..2 {
                bed.pool.reclaim_step().expect("a step");
            }
        }
        match pid.0 % 3 {
            0 => drop(check(&bed.pool.shared_as(pid, pattern).expect("shared"), pid)),
            1 => assert!(bed.pool.optimistic(pid, pattern).expect("optimistic").validate(), "one thread"),
            _ => drop(bed.pool.pin_as(pid, pattern).expect("pin")),
        }
    }
    bed.pool.stats().pages_read - before
}

#[test]
fn a_scan_leaves_the_hot_pages_in_memory() {
    let fs = store();
    for replacement in ReplacementKind::ALL {
        let bed = warm(&fs, replacement);
        for _ in 0..3 {
            assert_eq!(reads(&bed, SCANNED, AccessPattern::Scan), 4 * FRAMES, "{replacement}: each once");
        }
        let missed = reads(&bed, HOT, AccessPattern::Random);
        assert!(missed <= FRAMES / 2 / 10, "{replacement}: {missed} hot pages are gone");
    }
    let bed = warm(&fs, ReplacementKind::Lru);
    reads(&bed, SCANNED, AccessPattern::Random);
    assert_eq!(
        reads(&bed, HOT, AccessPattern::Random),
        FRAMES / 2,
        "a scan that does not say so pushes out everything"
    );
}

#[test]
fn a_table_that_is_scanned_again_and_again_stays_in_memory() {
    let fs = store();
    for replacement in ReplacementKind::ALL {
        let bed = warm(&fs, replacement);
        // Pairs, as they are read ahead.
        let table = SCANNED.start + 1..SCANNED.start + 1 + FRAMES / 2;
        let read: Vec<u64> = (0..10).map(|_| reads(&bed, table.clone(), AccessPattern::Scan)).collect();
        assert_eq!(read[0], FRAMES / 2, "{replacement}: none was there");
        assert!(read.iter().sum::<u64>() <= 3 * FRAMES / 2, "{replacement}: {read:?}");
        assert_eq!(read[4..], [0; 6], "{replacement}");
        // Other readers that need the frames get them back: as many as before the scans.
        let others = 1..1 + FRAMES * 7 / 8;
        let missed: Vec<u64> = (0..8).map(|_| reads(&bed, others.clone(), AccessPattern::Random)).collect();
        assert!(missed[0] > 0 && missed[7] == 0, "{replacement}: {missed:?}");
    }
}

/// Resident pages cause no misses, so only their uses keep their frames.
#[test]
fn a_table_that_is_scanned_again_and_again_takes_nothing_from_pages_in_use() {
    let fs = store();
    for replacement in ReplacementKind::ALL {
        let bed = warm(&fs, replacement);
        let hot = 1..1 + FRAMES * 3 / 4;
        for _ in 0..8 {
            reads(&bed, hot.clone(), AccessPattern::Random);
        }
        assert_eq!(reads(&bed, hot.clone(), AccessPattern::Random), 0, "{replacement}: they fit");
        let table = SCANNED.start + 1..SCANNED.start + 1 + FRAMES / 2;
        let mut missed = 0;
        for _ in 0..40 {
            reads(&bed, table.clone(), AccessPattern::Scan);
            missed += reads(&bed, hot.clone(), AccessPattern::Random);
        }
        let read = 40 * (hot.end - hot.start);
        assert!(missed <= read / 50, "{replacement}: {missed} of {read} uses missed");
        // Pages that are not used any more are evicted.
        let read: Vec<u64> = (0..16).map(|_| reads(&bed, table.clone(), AccessPattern::Scan)).collect();
        assert_eq!(read[8..], [0; 8], "{replacement}: {read:?}");
    }
}

#[test]
fn a_page_of_a_scan_that_another_reader_uses_stays() {
    let fs = store();
    for replacement in ReplacementKind::ALL {
        let bed = warm(&fs, replacement);
        let begin = SCANNED.start..SCANNED.start + 8;
        reads(&bed, begin.clone(), AccessPattern::Scan);
        reads(&bed, begin.clone(), AccessPattern::Scan);
        let used = begin.start..begin.start + 2;
        assert_eq!(reads(&bed, used.clone(), AccessPattern::Random), 0);
        // Enough pages to evict the whole scan ring.
        reads(&bed, begin.end..begin.end + FRAMES / 2, AccessPattern::Scan);
        assert_eq!(reads(&bed, used.clone(), AccessPattern::Random), 0, "{replacement}");
        assert_eq!(
            reads(&bed, used.end..begin.end, AccessPattern::Random),
            6,
            "{replacement}: a scan that comes again is no use"
        );
    }
}

#[test]
fn pages_in_the_scan_ring_give_way_to_others_to_the_last() {
    let fs = store();
    for replacement in ReplacementKind::ALL {
        let bed = open(&fs, &options(replacement)).expect("open");
        reads(&bed, SCANNED.start..SCANNED.start + FRAMES, AccessPattern::Scan);
        let guards: Vec<_> = (1..=FRAMES).map(|pid| bed.pool.pin(PageId(pid)).expect("a frame")).collect();
        drop(guards);
        assert_eq!(reads(&bed, 1..1 + FRAMES, AccessPattern::Random), 0, "{replacement}");
    }
}
