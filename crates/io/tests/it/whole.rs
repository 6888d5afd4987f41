//! Writes that are on the device whole or not at all.

use foreshore_base::limits::PAGE_SIZE;
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_io::{AlignedBuf, Disk, Fs, Mem, Sim};
use std::path::Path;

fn page(byte: u8) -> AlignedBuf {
    let mut page = AlignedBuf::new(PAGE_SIZE);
    page.fill(byte);
    page
}

/// On any file system under the target directory, an offered whole write works, and a refused one has written nothing.
#[test]
fn the_disk_keeps_its_word() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("whole-{}", std::process::id()));
    for (name, disk) in [("auto", Disk::auto(&dir)), ("buffered", Disk::buffered(&dir))] {
        let disk = disk.unwrap();
        disk.create_dir(&dir).unwrap();
        let path = dir.join(name);
        let file = disk.create(&path).unwrap();
        file.write_at(&page(1), 0).unwrap();
        file.write_at(&page(1), PAGE_SIZE as u64).unwrap();
        let (two, three) = (page(2), page(3));
        let written = file.write_whole(&[(&two, 0), (&three, PAGE_SIZE as u64)]).unwrap();
        assert!(written || !file.writes_whole(PAGE_SIZE), "offered and refused");
        assert!(!written || disk.backend().name != "buffered", "the page cache tears");
        for (at, byte) in [(0, 2), (PAGE_SIZE as u64, 3)] {
            let mut found = page(0);
            file.read_at(&mut found, at).unwrap();
            assert_eq!(*found, *page(if written { byte } else { 1 }), "at {at}");
        }
        assert!(!file.writes_whole(PAGE_SIZE + 4096) && !file.writes_whole(1 << 30), "lengths that none offers");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn memory_promises_nothing() {
    let file = Mem::null().create(Path::new("/f")).unwrap();
    assert!(!file.writes_whole(PAGE_SIZE));
    assert!(!file.write_whole(&[(&page(1), 0)]).unwrap());
    assert_eq!(file.len().unwrap(), 0);
}

/// The pages of an image as single bytes; `None` for one that is torn.
fn pages(image: &Sim) -> Vec<Option<u8>> {
    let bytes = image.contents(Path::new("/f")).unwrap();
    let one = |page: &[u8]| page.iter().all(|byte| *byte == page[0]).then_some(page[0]);
    bytes.chunks(PAGE_SIZE).map(one).collect()
}

#[test]
fn power_loss_leaves_each_part_as_it_was_or_as_it_should_be() {
    for whole in [true, false] {
        let (mut torn, mut mixed) = (0, 0);
        for seed in 0..60 {
            let sim = Sim::new(seed);
            let file = sim.create(Path::new("/f")).unwrap();
            for at in 0..4 {
                file.write_at(&page(1), at * PAGE_SIZE as u64).unwrap();
            }
            file.sync().unwrap();
            sim.sync_dir(Path::new("/")).unwrap();
            sim.set_whole_writes(whole);
            assert_eq!(file.writes_whole(PAGE_SIZE), whole);
            // A short write is none of those, and an interrupted one is made again.
            sim.inject(Fault { at: sim.ops(), kind: FaultKind::ShortWrite(512), sticky: false });
            sim.inject(Fault { at: sim.ops() + 1, kind: FaultKind::Eintr, sticky: false });
            let two = page(2);
            let parts: Vec<_> = (0..4).map(|at| (&two[..], at * PAGE_SIZE as u64)).collect();
            if !file.write_whole(&parts).unwrap() {
                file.write_many(&parts).unwrap();
            }
            for policy in &Persist::ALL {
                let found = pages(&sim.crash_image(policy, seed));
                torn += found.iter().filter(|page| page.is_none()).count();
                mixed += usize::from(found.contains(&Some(1)) && found.contains(&Some(2)));
            }
        }
        assert_eq!(torn == 0, whole, "{torn} torn pages");
        assert!(mixed > 0, "the parts are written each for itself");
    }
}

#[test]
fn a_full_disk_refuses_a_whole_write_and_takes_a_plain_one_in_its_place() {
    let sim = Sim::new(1);
    sim.set_whole_writes(true);
    let file = sim.create(Path::new("/f")).unwrap();
    file.allocate(0, 3 * PAGE_SIZE as u64).unwrap();
    let two = page(2);
    let parts: Vec<_> = (0..3).map(|at| (&two[..], at * PAGE_SIZE as u64)).collect();
    sim.inject(Fault { at: sim.ops() + 1, kind: FaultKind::Enospc, sticky: false });
    assert!(!file.write_whole(&parts).unwrap());
    let mut found = pages(&sim);
    found.sort_unstable();
    assert_eq!(found, [Some(0), Some(2), Some(2)], "the others are written");
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    assert!(!file.write_whole(&parts).unwrap());
    file.write_many(&parts).unwrap();
    assert_eq!(pages(&sim), [Some(2); 3]);
    sim.clear_faults();
    assert!(file.write_whole(&parts).unwrap());
}
