//! No power loss tears a page: pages go through the doublewrite file, or the device writes them atomically. With
//! neither of the two the same test loses data.

use crate::script::{Script, disk, options};
use crate::support::{DIR, NUMBERS};
use foreshore::{Db, DoublewriteKind, PageWrites};
use foreshore_io::Sim;
use foreshore_io::sim::{Fault, FaultKind, Persist};

const POLICIES: [Persist; 4] = [Persist::Torn, Persist::Prefix, Persist::RandomHalf, Persist::DropOne];

/// Runs a history, loses power in it again and again, and once more in each recovery. Returns how many images there
/// were, and which damage was found.
fn lose_power(offers_whole: bool, kind: DoublewriteKind, writes: PageWrites, stride: u64) -> (u64, Vec<String>) {
    let seed = 5;
    let start = |sim: &Sim| {
        sim.set_whole_writes(offers_whole);
        options(sim).lab(|lab| lab.step_seed = seed).doublewrite(kind).open(DIR)
    };
    let sim = disk(seed);
    let mut script = Script::new(&sim, seed);
    let db = start(&sim).unwrap();
    script.run(&db, 160).unwrap();
    let pool = db.stats().pool;
    assert_eq!((pool.whole_writes, pool.page_writes), (offers_whole, writes));
    assert_eq!(pool.doublewrite_batches > 0, writes == PageWrites::Doublewrite, "{pool:?}");
    assert!(pool.batches > 10, "{pool:?}");
    let (mut points, mut images, mut wrong) = (sim.crash_points(), 0, Vec::new());
    loop {
        let op = points.op();
        if op.is_multiple_of(stride) {
            let policy = &POLICIES[images as usize % POLICIES.len()];
            images += 1;
            let image = points.image(policy, op);
            let recover = || {
                let db = start(&image).map_err(|error| format!("open: {error}"))?;
                script.verify(&db, op)?;
                let mut again = image.crash_points();
                for _ in 0..op % image.ops().max(1) {
                    again.advance();
                }
                let db = start(&again.image(policy, op)).map_err(|error| format!("second open: {error}"))?;
                script.verify(&db, op).map(drop)
            };
            wrong.extend(recover().err().map(|why| format!("operation {op}, {policy:?}: {why}")));
        }
        if !points.advance() {
            return (images, wrong);
        }
    }
}

#[test]
fn a_device_that_writes_pages_whole_needs_no_doublewrite() {
    for kind in [DoublewriteKind::Auto, DoublewriteKind::Off] {
        let (images, wrong) = lose_power(true, kind, PageWrites::Whole, 11);
        assert!(images > 30, "{images} images");
        assert!(wrong.is_empty(), "{kind}: {wrong:?}");
    }
}

#[test]
fn doublewrite_is_kept_where_it_is_needed_or_asked_for() {
    for (offers_whole, kind) in [(false, DoublewriteKind::Auto), (true, DoublewriteKind::On)] {
        let (images, wrong) = lose_power(offers_whole, kind, PageWrites::Doublewrite, 17);
        assert!(images > 20, "{images} images");
        assert!(wrong.is_empty(), "{kind}: {wrong:?}");
    }
}

/// Plain writes lose pages here, so the tests above would notice a missing doublewrite. A torn page is always reported.
#[test]
fn with_plain_writes_power_loss_tears_pages_and_that_is_reported() {
    let (images, wrong) = lose_power(false, DoublewriteKind::Off, PageWrites::Plain, 11);
    assert!(!wrong.is_empty(), "none of {images} images was torn");
    for why in wrong {
        assert!(why.contains("open: ") || why.contains("check: "), "{why}");
    }
}

/// A refused atomic write has written nothing, for example one that the kernel refuses for the place of the page.
#[test]
fn a_device_that_refuses_later_on_gets_doublewrites() {
    refuse_later_on(|sim, _| sim.set_whole_writes(false));
}

/// A copy-on-write file system refuses atomic writes when it is full. That stops nothing, and lasts until the next
/// opening.
#[test]
fn a_full_disk_that_refuses_whole_writes_gets_doublewrites_and_keeps_them() {
    refuse_later_on(|sim, db| {
        // Something to write.
        db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
        db.checkpoint().unwrap();
        assert_eq!(db.stats().pool.page_writes, PageWrites::Doublewrite);
        sim.clear_faults();
    });
}

fn refuse_later_on(refuse: impl Fn(&Sim, &Db)) {
    let sim = disk(3);
    let mut script = Script::new(&sim, 3);
    sim.set_whole_writes(true);
    let db = options(&sim).lab(|lab| lab.step_seed = 3).open(DIR).unwrap();
    script.run(&db, 60).unwrap();
    let before = db.stats().pool;
    assert_eq!((before.page_writes, before.doublewrite_batches), (PageWrites::Whole, 0));
    refuse(&sim, &db);
    script.run(&db, 100).unwrap();
    let after = db.stats().pool;
    assert_eq!(after.page_writes, PageWrites::Doublewrite);
    assert!(after.doublewrite_batches > 0, "{after:?}");
    let mut points = sim.crash_points();
    let mut images = 0;
    loop {
        let op = points.op();
        if op.is_multiple_of(37) {
            let image = points.image(&Persist::Torn, op);
            let db = options(&image).open(DIR).unwrap_or_else(|error| panic!("operation {op}: {error}"));
            script.verify(&db, op).unwrap_or_else(|why| panic!("operation {op}: {why}"));
            images += 1;
        }
        if !points.advance() {
            break;
        }
    }
    assert!(images > 8, "{images} images");
}
