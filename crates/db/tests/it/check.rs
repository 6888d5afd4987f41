//! A check finds nothing wrong in a database that others use, and what is wrong in one that is damaged on disk.

use crate::support::{DIR, NUMBERS, Snapshot, TempDir, fill, in_memory, open, small};
use foreshore::limits::PAGE_SIZE;
use foreshore::{Db, Device, Error, Place, TableDef, TxnOptions};
use foreshore_base::limits::{BLOCK, MAX_PAGES};
use foreshore_base::{PageId, crc32c};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// On a real disk a page can be read while it is written. Tables go while their pages are checked, and the file is cut.
#[test]
fn nothing_is_wrong_while_pages_are_written_freed_and_cut_off() {
    let dir = TempDir::new("check");
    let db = small().open(dir.path()).unwrap();
    fill(&db, 3000);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (db, over) = (&db, &over);
        for worker in 0..2_u64 {
            scope.spawn(move || {
                let name = format!("temporary {worker}");
                let mut round = 0;
                while !over.load(Ordering::Relaxed) {
                    round += 1;
                    db.run(|tx| {
                        let table = tx.open(TableDef::<u64, &[u8]>::new(&name))?;
                        (0..300).try_for_each(|n| table.insert(n, &[round as u8; 900][..]).map(drop))?;
                        let numbers = tx.open(NUMBERS)?;
                        (0..50).try_for_each(|n| numbers.insert(worker * 1500 + n, round).map(drop))
                    })
                    .unwrap();
                    if round % 4 == 0 {
                        db.run(|tx| tx.drop_table(&name).map(drop)).unwrap();
                        db.vacuum().unwrap();
                    }
                    db.checkpoint().unwrap();
                }
            });
        }
        let checks: Vec<_> = (0..40).map(|_| db.check()).collect();
        over.store(true, Ordering::Relaxed);
        for check in checks {
            assert!(check.unwrap().rows >= 3000);
        }
    });
    assert!(db.stats().pool.pages_written > 100);
}

#[test]
fn a_page_that_is_damaged_on_disk_is_named() {
    // The first map and the root of the catalogue, which are in memory and clean.
    for damaged in [2, 3] {
        let (db, fs) = in_memory();
        fill(&db, 300);
        db.check().unwrap();
        let file = fs.open(&Path::new(DIR).join("data")).unwrap();
        file.write_at(&[0x5a; 64], damaged * PAGE_SIZE as u64 + 4000).unwrap();
        let found = db.check();
        assert!(
            matches!(found, Err(Error::Corrupted { place: Place::Page(page), .. }) if page.0 == damaged),
            "{found:?}"
        );
    }
}

const OTHERS: TableDef<u64, &[u8]> = TableDef::new("others");

/// Readers and writers of rows do not wait for a check, nor the check for them.
#[test]
fn a_check_passes_beside_a_transaction_that_stays_open() {
    let (db, _) = in_memory();
    fill(&db, 300);
    let open = db.begin_with(TxnOptions::new().label("open"));
    let table = open.open(NUMBERS).unwrap();
    table.insert(1, 77).unwrap();
    table.insert(299, 77).unwrap();
    assert_eq!(db.check().unwrap().rows, 300);
    table.insert(2, 78).unwrap();
    drop(table);
    open.commit().unwrap();
    assert_eq!(db.check().unwrap().tables, 1);
}

/// It needs a session, and so do all others that are asked for at the same time.
#[test]
fn a_check_has_a_place_beside_as_many_transactions_as_there_may_be() {
    let db = small().max_transactions(2).device(Device::Null).open(DIR).unwrap();
    fill(&db, 100);
    let open = [db.begin(), db.begin()];
    let hasty = TxnOptions::new().lock_timeout(Duration::ZERO);
    let is_refused = || matches!(db.begin_with(hasty).open(NUMBERS), Err(Error::TooManyTransactions { .. }));
    assert!(is_refused());
    let inside = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        let checks: Vec<_> = (0..8)
            .map(|_| {
                let (db, inside) = (&db, Arc::clone(&inside));
                scope.spawn(move || {
                    let stays = move || {
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "there is one place");
                        (0..20).for_each(|_| thread::yield_now());
                        inside.fetch_sub(1, Ordering::Relaxed);
                    };
                    #[cfg(debug_assertions)]
                    foreshore_sync::pause::set("check: has a transaction", stays);
                    #[cfg(not(debug_assertions))]
                    drop(stays);
                    db.check()
                })
            })
            .collect();
        for check in checks {
            assert_eq!(check.join().unwrap().unwrap().rows, 100);
        }
    });
    assert!(is_refused(), "the place is for checks");
    drop(open);
    assert!(!is_refused());
}

/// Changes rows of two tables until `over`.
fn write(db: &Db, over: &AtomicBool) {
    let mut round = 0;
    while !over.load(Ordering::Relaxed) && round < 2000 {
        db.run(|tx| {
            tx.open(NUMBERS)?.insert(round % 300, -1)?;
            tx.open(OTHERS)?.insert(round % 8, &[round as u8; 100][..]).map(drop)
        })
        .unwrap();
        round += 1;
    }
}

/// A page of the data file, changed by `change`, with a sound checksum.
fn change_page(data: &mut [u8], pid: u64, change: impl FnOnce(&mut [u8])) {
    let page = &mut data[pid as usize * PAGE_SIZE..][..PAGE_SIZE];
    change(page);
    let crc = crc32c(&page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Flips the bit of a page in the first map.
fn flip_in_map(data: &mut [u8], pid: u64) {
    change_page(data, 2, |map| map[32 + pid as usize / 8] ^= 1 << (pid % 8));
}

/// Allocates `pid` and puts a copy of page `from` there, of `table` if that is given.
fn copy_page(data: &mut [u8], from: u64, pid: u64, table: Option<u32>) {
    flip_in_map(data, pid);
    let copy = data[from as usize * PAGE_SIZE..][..PAGE_SIZE].to_vec();
    change_page(data, pid, |page| {
        page.copy_from_slice(&copy);
        page[8..16].copy_from_slice(&pid.to_le_bytes());
        if let Some(table) = table {
            page[24..28].copy_from_slice(&table.to_le_bytes());
        }
    });
}

#[test]
fn damage_that_no_checksum_shows_is_found_while_others_write() {
    let (db, fs) = in_memory();
    fill(&db, 3000);
    db.run(|tx| (0..8).try_for_each(|n| tx.open(OTHERS)?.insert(n, &[1; 100][..]).map(drop))).unwrap();
    // Pages are allocated from the lowest on: 3 is the catalogue, 4 the root of the numbers. Those in magazines are
    // free.
    let (stray, leaf) = (db.check().unwrap().pages + 20, 6);
    db.close(Duration::ZERO).unwrap();
    let sound = Snapshot::of(&fs);
    type Plant<'p> = &'p dyn Fn(&mut [u8]);
    let kinds: [(&str, Plant<'_>, u64); 4] = [
        ("allocated and never written", &|data| flip_in_map(data, stray), stray),
        ("allocated, and a copy of a leaf in use", &|data| copy_page(data, leaf, stray, None), stray),
        ("allocated, and of a table that never was", &|data| copy_page(data, leaf, stray, Some(99)), stray),
        ("in use and free by the map", &|data| flip_in_map(data, leaf), leaf),
    ];
    for (what, plant, at) in kinds {
        let mut damaged = sound.clone();
        plant(damaged.file("data"));
        // Otherwise the images of the newest batches go home again, and mend it.
        damaged.file("dw")[BLOCK..].fill(0);
        let db = open(&damaged.restore()).unwrap();
        let over = AtomicBool::new(false);
        let found = thread::scope(|scope| {
            scope.spawn(|| write(&db, &over));
            let found = db.check();
            over.store(true, Ordering::Relaxed);
            found
        });
        let is_named = matches!(found, Err(Error::Corrupted { place: Place::Page(page), .. }) if page.0 == at);
        assert!(is_named, "{what}: {found:?}");
    }
}

/// Multiplied to an offset in the data file, such an id overflows.
#[test]
fn a_root_that_no_data_file_can_hold_is_reported() {
    let (db, fs) = in_memory();
    fill(&db, 10);
    db.close(Duration::ZERO).unwrap();
    let mut files = Snapshot::of(&fs);
    // Otherwise the images of the newest batches go home again, and mend it.
    files.file("dw")[BLOCK..].fill(0);
    let catalogue = &mut files.file("data")[3 * PAGE_SIZE..][..PAGE_SIZE];
    let name = catalogue.windows(7).position(|bytes| bytes == b"numbers").unwrap();
    let root = name + b"numbers".len() + 8;
    for id in [MAX_PAGES, MAX_PAGES + 6, u64::MAX / PAGE_SIZE as u64 + 1, u64::MAX] {
        let mut files = files.clone();
        let catalogue = &mut files.file("data")[3 * PAGE_SIZE..][..PAGE_SIZE];
        catalogue[root..][..8].copy_from_slice(&id.to_le_bytes());
        let crc = crc32c(&catalogue[4..]);
        catalogue[..4].copy_from_slice(&crc.to_le_bytes());
        let db = open(&files.restore()).unwrap();
        let report = db.examine().unwrap();
        assert!(report.damaged.iter().any(|damage| damage.page == PageId(id)), "{id}: {report:?}");
        assert!(matches!(db.check(), Err(Error::Corrupted { .. })));
        let read = db.run(|tx| tx.open(NUMBERS)?.get(1));
        assert!(matches!(read, Err(Error::Corrupted { .. })), "{id}: {read:?}");
    }
}
