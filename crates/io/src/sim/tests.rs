use super::*;
use foreshore_base::limits::{BLOCK, SECTOR};
use std::path::PathBuf;

const DIR: &str = "db";
const FILE: &str = "db/file";

/// A disk with one durable file of `len` bytes of 1.
fn with_file(len: usize) -> (Sim, Arc<dyn File>) {
    let sim = Sim::new(7);
    sim.create_dir(DIR.as_ref()).unwrap();
    sim.sync_dir("".as_ref()).unwrap();
    let file = sim.create(FILE.as_ref()).unwrap();
    sim.sync_dir(DIR.as_ref()).unwrap();
    file.write_durable(&vec![1; len], 0).unwrap();
    (sim, file)
}

fn bytes(sim: &Sim) -> Vec<u8> {
    sim.contents(FILE.as_ref()).unwrap()
}

fn strike(sim: &Sim, kind: FaultKind) {
    sim.inject(Fault { at: sim.ops(), kind, sticky: false });
}

#[test]
fn what_is_synced_survives_every_policy() {
    let (sim, file) = with_file(BLOCK);
    file.write_at(&[2; 700], 100).unwrap();
    file.set_len(3 * BLOCK as u64).unwrap();
    file.sync().unwrap();
    for policy in Persist::ALL {
        for seed in 0..20 {
            assert_eq!(bytes(&sim.crash_image(&policy, seed)), bytes(&sim), "{policy:?}");
        }
    }
}

#[test]
fn unsynced_writes_follow_the_policy() {
    let (sim, file) = with_file(BLOCK);
    file.write_at(&[2; BLOCK], 0).unwrap();
    let sectors = BLOCK / SECTOR;
    let new = |policy, seed| {
        let image = bytes(&sim.crash_image(&policy, seed));
        assert_eq!(image.len(), BLOCK);
        image.chunks(SECTOR).map(|s| s.iter().all(|&b| b == 2)).collect::<Vec<_>>()
    };
    let count = |policy, seed| new(policy, seed).iter().filter(|&&kept| kept).count();
    assert_eq!(count(Persist::None, 0), 0);
    assert_eq!(count(Persist::All, 0), sectors);
    for seed in 0..sectors {
        assert_eq!(new(Persist::DropOne, seed as u64), (0..sectors).map(|i| i != seed).collect::<Vec<_>>());
        assert_eq!(new(Persist::KeepOne, seed as u64), (0..sectors).map(|i| i == seed).collect::<Vec<_>>());
    }
    for seed in 0..50 {
        assert!(new(Persist::Prefix, seed).is_sorted_by(|a, b| a >= b));
        assert!(new(Persist::Suffix, seed).is_sorted());
    }
    let kept = |p| (0..200).map(|seed| count(Persist::Random(p), seed)).sum::<usize>();
    assert!((100..240).contains(&kept(0.1)) && kept(0.9) > 1360, "{} {}", kept(0.1), kept(0.9));
    assert_eq!(count(Persist::MetadataFirst, 0), 0);
    assert_eq!(count(Persist::DataFirst, 0), sectors);
}

#[test]
fn torn_sectors_are_old_new_zero_garbage_or_cut() {
    let (sim, file) = with_file(SECTOR);
    file.write_at(&[2; SECTOR], 0).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let image = bytes(&sim.crash_image(&Persist::Torn, seed));
        assert_eq!(image.len(), SECTOR);
        let count = |byte| image.iter().filter(|&&b| b == byte).count();
        seen.insert(match (count(0), count(1), count(2)) {
            (_, SECTOR, _) => "old",
            (_, _, SECTOR) => "new",
            (SECTOR, ..) => "zero",
            (_, old, new) if old + new == SECTOR && image.is_sorted() => "tail",
            (_, old, new) if old + new == SECTOR && image.is_sorted_by(|a, b| a >= b) => "head",
            _ => "garbage",
        });
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
}

#[test]
fn images_follow_from_their_seeds() {
    let (sim, file) = with_file(BLOCK);
    file.write_at(&[2; 4 * BLOCK], 0).unwrap();
    for policy in Persist::ALL {
        assert_eq!(bytes(&sim.crash_image(&policy, 5)), bytes(&sim.crash_image(&policy, 5)));
    }
    let torn = |seed| bytes(&sim.crash_image(&Persist::Torn, seed));
    assert_ne!(torn(5), torn(6));
}

#[test]
fn growth_and_bytes_are_lost_apart() {
    let (sim, file) = with_file(BLOCK);
    file.write_at(&[2; BLOCK], BLOCK as u64 - 512).unwrap();
    let grown = bytes(&sim.crash_image(&Persist::MetadataFirst, 0));
    assert_eq!(grown.len(), 2 * BLOCK - 512);
    assert!(grown[..BLOCK].iter().all(|&b| b == 1) && grown[BLOCK..].iter().all(|&b| b == 0));
    let cut = bytes(&sim.crash_image(&Persist::DataFirst, 0));
    assert_eq!(cut.len(), BLOCK);
    assert!(cut[..BLOCK - 512].iter().all(|&b| b == 1) && cut[BLOCK - 512..].iter().all(|&b| b == 2));
}

#[test]
fn a_durable_write_takes_its_length_along_and_nothing_else() {
    let (sim, file) = with_file(BLOCK);
    file.write_at(&[2; 2 * BLOCK], BLOCK as u64).unwrap();
    file.write_durable(&[3; BLOCK], 2 * BLOCK as u64).unwrap();
    for (policy, middle) in [(Persist::None, 0), (Persist::All, 2)] {
        let image = bytes(&sim.crash_image(&policy, 0));
        let expected = [[1; BLOCK], [middle; BLOCK], [3; BLOCK]].concat();
        assert!(image == expected, "{policy:?}");
    }
}

#[test]
fn a_cut_file_does_not_get_its_old_end_back() {
    let (sim, file) = with_file(BLOCK);
    file.write_at(&[2; BLOCK], BLOCK as u64).unwrap();
    file.set_len(100).unwrap();
    file.set_len(2 * BLOCK as u64).unwrap();
    file.sync().unwrap();
    for side in [&sim, &sim.crash_image(&Persist::All, 0)] {
        let bytes = bytes(side);
        assert!(bytes[..100].iter().all(|&b| b == 1) && bytes[100..].iter().all(|&b| b == 0));
        assert_eq!(bytes.len(), 2 * BLOCK);
    }
}

#[test]
fn names_need_a_sync_of_their_directory() {
    let (sim, old) = with_file(BLOCK);
    let list = |policy| sim.crash_image(&policy, 0).list(DIR.as_ref()).unwrap();
    let new = sim.create("db/new".as_ref()).unwrap();
    new.write_durable(&[5; BLOCK], 0).unwrap();
    assert_eq!(list(Persist::None), ["file"]);
    assert_eq!(list(Persist::All), ["file", "new"]);
    sim.sync_dir("".as_ref()).unwrap();
    assert_eq!(list(Persist::None), ["file"], "another directory was synced");
    sim.sync_dir(DIR.as_ref()).unwrap();
    assert_eq!(list(Persist::None), ["file", "new"]);

    sim.rename("db/new".as_ref(), FILE.as_ref()).unwrap();
    assert_eq!(bytes(&sim), [5; BLOCK]);
    assert_eq!(list(Persist::None), ["file", "new"]);
    assert_eq!(bytes(&sim.crash_image(&Persist::None, 0)), [1; BLOCK]);
    assert_eq!(list(Persist::All), ["file"]);
    assert_eq!(bytes(&sim.crash_image(&Persist::All, 0)), [5; BLOCK]);
    let mut buf = [0; BLOCK];
    assert_eq!(old.read_at(&mut buf, 0).unwrap(), BLOCK);
    assert_eq!(buf, [1; BLOCK], "an open file outlives its name");
    sim.sync_dir(DIR.as_ref()).unwrap();
    assert_eq!(bytes(&sim.crash_image(&Persist::None, 0)), [5; BLOCK]);

    sim.remove(FILE.as_ref()).unwrap();
    assert_eq!(list(Persist::None), ["file"]);
    assert!(list(Persist::All).is_empty());
    sim.sync_dir(DIR.as_ref()).unwrap();
    assert!(list(Persist::None).is_empty());
}

#[test]
fn a_lost_directory_takes_its_files_along() {
    let sim = Sim::new(0);
    sim.create_dir(DIR.as_ref()).unwrap();
    sim.create(FILE.as_ref()).unwrap().write_durable(&[1; BLOCK], 0).unwrap();
    sim.sync_dir(DIR.as_ref()).unwrap();
    let image = sim.crash_image(&Persist::None, 0);
    assert_eq!(image.kind(DIR.as_ref()).unwrap(), None);
    assert!(image.files().is_empty());
}

#[test]
fn a_rename_before_the_bytes_may_name_an_empty_file() {
    let (sim, _) = with_file(BLOCK);
    let new = sim.create("db/new".as_ref()).unwrap();
    new.write_at(&[5; BLOCK], 0).unwrap();
    sim.rename("db/new".as_ref(), FILE.as_ref()).unwrap();
    sim.sync_dir(DIR.as_ref()).unwrap();
    assert!(bytes(&sim.crash_image(&Persist::None, 0)).is_empty());
}

#[test]
fn the_loops_complete_short_and_interrupted_writes() {
    let (sim, file) = with_file(2 * BLOCK);
    let start = sim.ops();
    sim.inject(Fault { at: start, kind: FaultKind::Eintr, sticky: true });
    sim.inject(Fault { at: start + 1, kind: FaultKind::ShortWrite(100), sticky: false });
    sim.inject(Fault { at: start + 2, kind: FaultKind::ShortWrite(1), sticky: false });
    file.write_durable(&[2; BLOCK], 0).unwrap();
    assert_eq!((sim.ops() - start, sim.faults_met()), (4, 3));
    let expected = [[2; BLOCK], [1; BLOCK]].concat();
    assert!(bytes(&sim.crash_image(&Persist::None, 0)) == expected);
    strike(&sim, FaultKind::ShortWrite(0));
    assert!(matches!(file.write_at(&[2], 0), Err(Error::Io { op: "write", .. })));
    strike(&sim, FaultKind::Eintr);
    file.allocate(0, 3 * BLOCK as u64).unwrap();
    assert_eq!(file.len().unwrap(), 3 * BLOCK as u64);
}

#[test]
fn a_full_disk_refuses_what_needs_space_and_nothing_else() {
    let (sim, file) = with_file(BLOCK);
    file.allocate(BLOCK as u64, BLOCK as u64).unwrap();
    sim.inject(Fault { at: 0, kind: FaultKind::Enospc, sticky: true });
    let full = |result: Result<()>| assert!(matches!(result, Err(Error::DiskFull { .. })), "{result:?}");
    full(file.write_at(&[2; BLOCK], 2 * BLOCK as u64));
    full(file.allocate(0, 3 * BLOCK as u64));
    full(file.set_len(3 * BLOCK as u64));
    full(sim.create("db/new".as_ref()).map(drop));
    assert_eq!(file.len().unwrap(), 2 * BLOCK as u64);
    let refused = sim.space_ops();
    assert_eq!(refused[refused.len() - 4..], [sim.ops() - 4, sim.ops() - 3, sim.ops() - 2, sim.ops() - 1]);
    file.write_durable(&[2; 2 * BLOCK], 0).unwrap();
    file.sync().unwrap();
    file.set_len(BLOCK as u64).unwrap();
    sim.rename(FILE.as_ref(), "db/other".as_ref()).unwrap();
    assert_eq!(sim.space_ops(), refused);
    sim.clear_faults();
    file.write_at(&[2; BLOCK], 2 * BLOCK as u64).unwrap();
}

#[test]
fn what_a_failed_sync_lost_is_not_saved_by_the_next() {
    let (sim, file) = with_file(BLOCK);
    file.write_at(&[2; BLOCK], 0).unwrap();
    strike(&sim, FaultKind::Eio);
    assert!(matches!(file.sync(), Err(Error::Io { op: "sync", .. })));
    assert!(file.sync().is_err(), "it stands for the lost write");
    let file = sim.open(FILE.as_ref()).unwrap();
    file.sync().unwrap();
    assert_eq!(bytes(&sim), [2; BLOCK]);
    assert_eq!(bytes(&sim.crash_image(&Persist::None, 0)), [1; BLOCK]);
    // Written again and synced, it counts, and the lost write no longer shows.
    file.write_durable(&[3; SECTOR], 0).unwrap();
    let image = bytes(&sim.crash_image(&Persist::All, 0));
    assert!(image[..SECTOR].iter().all(|&b| b == 3) && image[SECTOR..].iter().all(|&b| b == 2));
}

/// What a file shows through `handle`.
fn shown(handle: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(handle.len().unwrap()).unwrap()];
    handle.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn a_failed_write_back_is_reported_once_to_each_handle() {
    let (sim, file) = with_file(BLOCK);
    sim.set_buffered(true);
    let [second, third] = [(); 2].map(|()| sim.open(FILE.as_ref()).unwrap());
    file.write_at(&[2; BLOCK], 0).unwrap();
    sim.fail_write_back(FILE.as_ref()).unwrap();
    let late = sim.open(FILE.as_ref()).unwrap();
    assert!(second.sync().is_err());
    assert!(third.sync().is_err());
    assert!(late.sync().is_err(), "it was not reported before this handle was opened");
    assert!(file.write_durable(&[3; SECTOR], 0).is_err(), "its earlier write is lost, and it has not heard of that");
    file.write_durable(&[3; SECTOR], 0).unwrap();
    sim.open(FILE.as_ref()).unwrap().sync().unwrap();
    assert_eq!(bytes(&sim.crash_image(&Persist::None, 0)), [vec![3; SECTOR], vec![1; BLOCK - SECTOR]].concat());
}

#[test]
fn a_durable_write_is_one_to_the_cache_and_a_sync_where_there_is_one() {
    let (sim, file) = with_file(2 * BLOCK);
    sim.set_buffered(true);
    let start = sim.ops();
    file.write_at(&[2; BLOCK], 0).unwrap();
    sim.inject(Fault { at: start + 2, kind: FaultKind::LateEnospc, sticky: false });
    assert!(matches!(file.write_durable(&[3; BLOCK], BLOCK as u64), Err(Error::DiskFull { .. })));
    assert_eq!(sim.sync_ops().last(), Some(&(start + 2)));
    let (new, old) = ([[2; BLOCK], [3; BLOCK]].concat(), [[1; BLOCK], [1; BLOCK]].concat());
    assert_eq!((bytes(&sim), bytes(&sim.crash_image(&Persist::None, 0))), (new, old));
    // A later writer is forgiven, and its sync says nothing of the others.
    file.write_durable(&[4; BLOCK], BLOCK as u64).unwrap();
    assert_eq!(bytes(&sim.crash_image(&Persist::None, 0)), [[1; BLOCK], [4; BLOCK]].concat());
}

#[test]
fn a_read_past_the_cache_shows_what_power_loss_leaves() {
    let (mut kept, mut mixed) = (0, 0);
    for seed in 0..50 {
        let (sim, file) = with_file(8 * BLOCK);
        sim.set_buffered(true);
        (0..seed).for_each(|_| file.sync().unwrap());
        file.write_at(&[2; 8 * BLOCK], 0).unwrap();
        file.set_len(9 * BLOCK as u64).unwrap();
        strike(&sim, FaultKind::Eio);
        assert!(file.sync().is_err());
        let file = sim.open(FILE.as_ref()).unwrap();
        assert_eq!(shown(&*file)[..8 * BLOCK], [2; 8 * BLOCK], "the cache says nothing");
        file.write_at(&[5; BLOCK], 8 * BLOCK as u64).unwrap();
        file.read_past_cache().unwrap();
        let medium = shown(&*file);
        for policy in [Persist::None, Persist::All, Persist::Torn] {
            assert!(bytes(&sim.crash_image(&policy, seed)) == medium, "{policy:?}");
        }
        let records = sim.crash_points();
        assert!(bytes(&sim.image_at(sim.ops(), &Persist::None, seed)) == medium, "{records:?}");
        mixed += usize::from(medium.contains(&1) && medium.contains(&2));
        // What is written now shows, whatever the cache has kept.
        file.write_at(&[7; BLOCK], 0).unwrap();
        assert_eq!(shown(&*file)[..BLOCK], [7; BLOCK]);
        file.read_cached();
        assert_eq!(shown(&*file)[..BLOCK], [7; BLOCK]);
        kept += usize::from(shown(&*file)[BLOCK..] != medium[BLOCK..]);
    }
    assert!(kept > 10 && mixed > 10, "{kept} caches with old bytes, {mixed} media with some of the new ones");
}

#[test]
fn direct_reads_show_the_medium_and_not_what_a_cache_has_kept() {
    for seed in 0..20 {
        let (sim, file) = with_file(8 * BLOCK);
        sim.set_buffered(true);
        (0..seed).for_each(|_| file.sync().unwrap());
        file.write_at(&[2; 4 * BLOCK], 0).unwrap();
        strike(&sim, FaultKind::Eio);
        assert!(file.sync().is_err());
        file.write_at(&[3; BLOCK], 7 * BLOCK as u64).unwrap();
        assert_eq!(shown(&*file)[..4 * BLOCK], [2; 4 * BLOCK], "the cache says nothing");
        sim.set_buffered(false);
        let direct = shown(&*file);
        assert_eq!(direct[7 * BLOCK..], [3; BLOCK], "dirty pages are written back first");
        assert!(bytes(&sim.crash_image(&Persist::All, seed)) == direct, "seed {seed}");
    }
}

#[test]
fn a_read_past_the_cache_bears_one_failure() {
    let (sim, file) = with_file(BLOCK);
    sim.set_buffered(true);
    file.write_at(&[2; BLOCK], 0).unwrap();
    strike(&sim, FaultKind::Eio);
    sim.open(FILE.as_ref()).unwrap().read_past_cache().unwrap();
    let start = sim.ops();
    (start..start + 2).for_each(|at| sim.inject(Fault { at, kind: FaultKind::Eio, sticky: false }));
    let refused = sim.open(FILE.as_ref()).unwrap().read_past_cache();
    assert!(matches!(refused, Err(Error::Io { op: "read past the cache", .. })), "{refused:?}");
}

#[test]
fn a_name_removed_durably_does_not_come_back() {
    let (sim, _file) = with_file(BLOCK);
    sim.create("db/new".as_ref()).unwrap();
    strike(&sim, FaultKind::Eio);
    assert!(sim.sync_dir(DIR.as_ref()).is_err());
    sim.sync_dir(DIR.as_ref()).unwrap();
    let list = |policy| sim.crash_image(&policy, 0).list(DIR.as_ref()).unwrap();
    assert_eq!(list(Persist::None), ["file"], "the second sync says nothing of what the first one lost");
    assert_eq!(list(Persist::All), ["file", "new"]);
    sim.remove("db/new".as_ref()).unwrap();
    sim.sync_dir(DIR.as_ref()).unwrap();
    assert_eq!(list(Persist::All), ["file"]);
}

#[test]
fn a_failed_write_may_be_on_the_medium() {
    let (sim, file) = with_file(BLOCK);
    strike(&sim, FaultKind::Eio);
    assert!(file.write_durable(&[2; BLOCK], 0).is_err());
    assert_eq!(bytes(&sim), [1; BLOCK]);
    sim.open(FILE.as_ref()).unwrap().sync().unwrap();
    assert_eq!(bytes(&sim.crash_image(&Persist::None, 0)), [1; BLOCK]);
    assert_eq!(bytes(&sim.crash_image(&Persist::All, 0)), [2; BLOCK]);
}

#[test]
fn reads_fail_by_number() {
    let (sim, file) = with_file(BLOCK);
    sim.inject_read_error(sim.reads() + 1, false);
    let read = || file.read_at(&mut [0; BLOCK], 0);
    assert!(read().is_ok());
    assert!(matches!(read(), Err(Error::Io { op: "read", .. })));
    assert!(read().is_ok());
    sim.inject_read_error(sim.reads(), true);
    assert!(read().is_err() && read().is_err());
}

#[test]
fn a_failed_read_of_a_batch_fails_alone() {
    let (sim, file) = with_file(8 * BLOCK);
    sim.inject_read_error(sim.reads() + 3, false);
    let mut buffers = [[9; BLOCK]; 8];
    let parts = buffers.iter_mut().map(|buf| &mut buf[..]).zip((0..8).map(|n| n * BLOCK as u64));
    let read = file.read_many(&mut parts.collect::<Vec<_>>());
    assert_eq!(read.iter().filter(|read| read.is_err()).count(), 1);
    for (read, buf) in read.iter().zip(&buffers) {
        assert_eq!(read.is_err(), *buf == [9; BLOCK], "each result is that of its part");
    }
}

#[test]
fn after_a_crash_every_call_fails() {
    let (sim, file) = with_file(BLOCK);
    strike(&sim, FaultKind::Crash);
    assert!(file.write_durable(&[2; BLOCK], 0).is_err());
    assert!(sim.is_off());
    assert!(file.read_at(&mut [0], 0).is_err() && file.len().is_err() && file.sync().is_err());
    assert!(file.set_len(0).is_err() && file.allocate(0, 1).is_err());
    assert!(sim.open(FILE.as_ref()).is_err() && sim.create("db/x".as_ref()).is_err());
    assert!(sim.kind(DIR.as_ref()).is_err() && sim.list(DIR.as_ref()).is_err());
    assert!(sim.rename(FILE.as_ref(), "db/y".as_ref()).is_err() && sim.remove(FILE.as_ref()).is_err());
    assert!(sim.sync_dir(DIR.as_ref()).is_err() && sim.lock("db/LOCK".as_ref()).is_err());
    assert_eq!(bytes(&sim.crash_image(&Persist::None, 0)), [1; BLOCK]);
    assert_eq!(bytes(&sim.crash_image(&Persist::All, 0)), [2; BLOCK]);
}

/// A script with every kind of operation.
fn script(sim: &Sim) -> Result<()> {
    sim.create_dir(DIR.as_ref())?;
    sim.sync_dir("".as_ref())?;
    let file = sim.create(FILE.as_ref())?;
    file.allocate(0, 2 * BLOCK as u64)?;
    file.write_at(&[1; BLOCK + 100], 0)?;
    file.sync()?;
    sim.sync_dir(DIR.as_ref())?;
    file.write_durable(&[2; BLOCK], BLOCK as u64)?;
    file.write_at(&[3; SECTOR], 0)?;
    file.set_len(BLOCK as u64 + 50)?;
    let new = sim.create("db/new".as_ref())?;
    new.write_durable(&[4; 10], 0)?;
    sim.rename("db/new".as_ref(), FILE.as_ref())?;
    file.sync()?;
    sim.sync_dir(DIR.as_ref())?;
    sim.remove(FILE.as_ref())?;
    sim.sync_dir(DIR.as_ref())
}

/// Every file with its bytes.
fn everything(sim: &Sim) -> Vec<(PathBuf, Vec<u8>)> {
    sim.files().into_iter().map(|(path, _)| (path.clone(), sim.contents(&path).unwrap())).collect()
}

#[test]
fn the_record_yields_the_same_images_as_crashing_there() {
    let sim = Sim::new(3);
    script(&sim).unwrap();
    let mut points = sim.crash_points();
    for op in 0..sim.ops() {
        assert_eq!(points.op(), op);
        let crashed = Sim::new(3);
        crashed.inject(Fault { at: op, kind: FaultKind::Crash, sticky: false });
        script(&crashed).unwrap_err();
        for policy in Persist::ALL {
            for seed in 0..3 {
                let image = everything(&points.image(&policy, seed));
                assert_eq!(image, everything(&sim.image_at(op, &policy, seed)), "{op} {policy:?}");
                // `All` and `None` do not depend on the seed, and a crash counts the operation in flight.
                if matches!(policy, Persist::All | Persist::None) {
                    assert_eq!(image, everything(&crashed.crash_image(&policy, seed)), "{op} {policy:?}");
                }
            }
        }
        assert!(points.advance());
    }
    assert!(!points.advance());
    assert_eq!(everything(&points.image(&Persist::None, 0)), everything(&sim));
}

#[test]
fn a_lying_disk_keeps_nothing() {
    let (sim, file) = with_file(BLOCK);
    sim.set_lying(true);
    file.write_durable(&[2; BLOCK], 0).unwrap();
    file.write_at(&[3; BLOCK], BLOCK as u64).unwrap();
    file.sync().unwrap();
    assert_eq!(bytes(&sim.crash_image(&Persist::None, 0)), [1; BLOCK]);
    assert_eq!(bytes(&sim.crash_image(&Persist::All, 0)), bytes(&sim));
}

#[test]
fn damage_reaches_both_sides() {
    let (sim, _file) = with_file(2 * BLOCK);
    let other = sim.fork();
    sim.flip(FILE.as_ref(), 5, 0x80).unwrap();
    sim.swap(FILE.as_ref(), 0, BLOCK as u64, 10).unwrap();
    for side in [&sim, &sim.crash_image(&Persist::None, 0), &sim.image_at(sim.ops(), &Persist::All, 0)] {
        let bytes = bytes(side);
        assert_eq!((bytes[5], bytes[BLOCK + 5]), (1, 0x81));
    }
    sim.truncate(FILE.as_ref(), 10).unwrap();
    assert_eq!(bytes(&sim.crash_image(&Persist::None, 0)), [1; 10]);
    assert!(sim.flip(FILE.as_ref(), 10, 1).is_err() && sim.patch(FILE.as_ref(), 9, &[0; 2]).is_err());
    assert_eq!(bytes(&other), [1; 2 * BLOCK], "a fork is a copy");
    sim.replace(FILE.as_ref(), &other, FILE.as_ref()).unwrap();
    assert_eq!(bytes(&sim), bytes(&other));
}

#[test]
fn a_fork_starts_without_locks_and_an_image_too() {
    let (sim, _file) = with_file(0);
    let lock = sim.lock("db/LOCK".as_ref()).unwrap();
    assert!(matches!(sim.lock("db/LOCK".as_ref()), Err(Error::Locked { .. })));
    drop(sim.fork().lock("db/LOCK".as_ref()).unwrap());
    drop(sim.crash_image(&Persist::All, 0).lock("db/LOCK".as_ref()).unwrap());
    drop(lock);
    drop(sim.lock("db/LOCK".as_ref()).unwrap());
}

#[test]
fn a_killed_program_leaves_the_machine_and_its_cache() {
    let (sim, file) = with_file(BLOCK);
    let lock = sim.lock("db/LOCK".as_ref()).unwrap();
    file.write_at(&[9; BLOCK], 0).unwrap();
    let machine = sim.kill();
    assert!(sim.is_off() && file.write_at(&[2; BLOCK], 0).is_err() && file.sync().is_err());
    drop(lock);
    drop(machine.lock("db/LOCK".as_ref()).unwrap());
    assert!(bytes(&machine) == [9; BLOCK], "what was written is there");
    assert!(bytes(&machine.crash_image(&Persist::None, 0)) == [1; BLOCK], "and not durable");
}

#[test]
fn removed_files_are_forgotten_when_they_are_closed() {
    let (sim, file) = with_file(BLOCK);
    sim.stop_recording();
    sim.remove(FILE.as_ref()).unwrap();
    sim.sync_dir(DIR.as_ref()).unwrap();
    assert_eq!(sim.state.lock().live.inos().len(), 1);
    drop(file);
    let state = sim.state.lock();
    let media = state.record.media();
    assert!(state.live.inos().is_empty() && media.files.is_empty() && media.pending.is_empty());
}
