//! A check finds nothing wrong in a database that others use, and what is wrong in one that is damaged on disk.

use crate::support::{DIR, NUMBERS, TempDir, fill, in_memory, small};
use foreshore::limits::PAGE_SIZE;
use foreshore::{Error, Place, TableDef};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

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
    let (db, fs) = in_memory();
    fill(&db, 300);
    db.check().unwrap();
    let file = fs.open(&Path::new(DIR).join("data")).unwrap();
    // The root of the catalogue, which is in memory and clean.
    file.write_at(&[0x5a; 64], 3 * PAGE_SIZE as u64 + 4000).unwrap();
    let found = db.check();
    assert!(matches!(found, Err(Error::Corrupted { place: Place::Page(page), .. }) if page.0 == 3), "{found:?}");
}
