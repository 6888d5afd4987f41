//! A page that power loss has torn on its way home is restored, whatever its type and wherever the tear is.

use crate::support::{DIR, Snapshot, fill, numbers, open, small};
use foreshore::limits::PAGE_SIZE;
use foreshore::{Db, TableDef};
use foreshore_buffer::PageType;
use foreshore_buffer::format::{page_level, page_type};
use foreshore_io::{Fs, Mem};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Where a page is torn: what lies before is new.
const CUTS: [usize; 9] = [512, 1024, 2048, 3072, 4096, 5120, 6144, 7168, 7680];
const WIDE: TableDef<u64, &[u8]> = TableDef::new("wide");

/// A change of maps, inner nodes and leaves, in fewer pages than one batch of the doublewrite file has.
fn change(db: &Db, rows: std::ops::Range<u64>) {
    db.run(|tx| {
        let wide = tx.open(WIDE)?;
        rows.clone().try_for_each(|n| wide.insert(n, &[n as u8; 1900][..]).map(drop))
    })
    .unwrap();
}

/// The data file with page `at` torn: its beginning as in `after`, the rest as in `before`.
fn torn(before: &[u8], after: &Snapshot, at: usize, cut: usize) -> Snapshot {
    let mut image = after.clone();
    let old = before.get(at + cut..at + PAGE_SIZE).map_or(vec![0; PAGE_SIZE - cut], <[u8]>::to_vec);
    image.file("data")[at + cut..at + PAGE_SIZE].copy_from_slice(&old);
    image
}

#[test]
fn a_page_of_every_type_torn_at_nine_cuts_is_restored() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let start = || {
        small()
            .lab(|lab| {
                lab.background = false;
                lab.fs = Some(Arc::clone(&fs));
            })
            .open(DIR)
            .unwrap()
    };
    let db = start();
    fill(&db, 300);
    change(&db, 0..40);
    db.close(Duration::ZERO).unwrap();
    let db = start();
    let before = Snapshot::of(&fs).file("data").clone();
    change(&db, 40..90);
    db.checkpoint().unwrap();
    let after = Snapshot::of(&fs);
    drop(db);

    let (mut met, mut tears) = (BTreeMap::new(), 0);
    let data = after.clone().file("data").clone();
    for (number, page) in data.chunks_exact(PAGE_SIZE).enumerate().skip(2) {
        let at = number * PAGE_SIZE;
        let old = before.get(at..at + PAGE_SIZE).unwrap_or(&[]);
        if page == old || page.iter().all(|&byte| byte == 0) {
            continue;
        }
        let is_new = old.iter().all(|&byte| byte == 0);
        let kind = match page_type(page).unwrap() {
            PageType::Map => "map",
            _ if page_level(page) > 0 => "inner node",
            _ => "leaf",
        };
        let count = met.entry((kind, is_new)).or_insert(0);
        *count += 1;
        if *count > 2 {
            continue;
        }
        for cut in CUTS {
            let place = format!("page {number}, {kind}, torn at {cut}");
            let mut image = torn(&before, &after, at, cut);
            // Both may end alike.
            let is_torn = image.file("data")[at..at + PAGE_SIZE] != *page;
            let db = open(&image.restore()).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(db.stats().recovery.restored, u64::from(is_torn), "{place}");
            tears += u64::from(is_torn);
            db.check().unwrap_or_else(|error| panic!("{place}: {error}"));
            assert!(numbers(&db).into_iter().eq((0..300).map(|n| (n, n as i64))), "{place}");
            let count = db.run(|tx| Ok::<_, foreshore::Error>(tx.open(WIDE)?.iter().filter(Result::is_ok).count()));
            assert_eq!(count.unwrap(), 90, "{place}");
        }
    }
    assert!(tears > 30, "{tears} tears");
    let kinds: Vec<_> = met.keys().copied().collect();
    let expected = [("inner node", false), ("leaf", false), ("leaf", true), ("map", false)];
    assert_eq!(kinds, expected, "pages of every type were written");
}
