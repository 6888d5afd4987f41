use super::*;
use foreshore_sync::primitive::thread;
use foreshore_wal::Record;
use foreshore_wal::log_buffer::{LogBuffer, Staging};

/// Envelope and eight bytes of payload.
const SIZE: u64 = 32;

fn laser(ring: usize, limit: u64, groups: usize) -> Laser {
    Laser::new(Ring::new(ring, Lsn(0)).expect("memory"), limit, groups)
}

fn append(laser: &Laser, tag: u64, payload: &[u8], dep: Lsn) -> Lsn {
    let parts = [payload];
    laser.append(0, &Record { tag, flags: 0, parts: &parts }, dep)
}

/// Tags of the records that one call of `drain` yields, in order, and its cut.
fn drain(laser: &Laser, prev: Lsn) -> (Vec<u64>, Lsn) {
    let mut staging = Staging::new(64 << 10);
    let cut = laser.drain(prev, &mut staging).unwrap().cut;
    (staging.records().map(|(_, tag)| tag).collect(), cut)
}

/// Group numbers passed since the buffer was made.
fn groups_passed(laser: &Laser) -> u64 {
    distance(Draw::empty(FIRST).group(), laser.look().group())
}

#[test]
fn places_of_the_table_are_used_again_and_again() {
    let laser = laser(4096, 2 * SIZE, 256);
    let (mut cut, mut tags) = (Lsn(0), Vec::new());
    for tag in 0..4096 {
        assert!(laser.admit(0, SIZE).is_some(), "drained room is admitted again");
        append(&laser, tag, &[1; 8], cut);
        if tag % 64 == 63 {
            let (drained, next) = drain(&laser, cut);
            tags.extend(drained);
            cut = next;
        }
    }
    assert_eq!(tags, (0..4096).collect::<Vec<_>>());
    assert_eq!((cut, laser.current()), (Lsn(4096 * SIZE), cut));
    assert_eq!(groups_passed(&laser), 2048, "a group is full with two records");
}

#[test]
fn the_leader_closes_what_has_members_and_nothing_else() {
    let laser = laser(4096, 4096, 16);
    assert_eq!((laser.published(), groups_passed(&laser)), (0, 0));
    append(&laser, 1, &[1; 8], Lsn(0));
    assert_eq!((laser.published(), groups_passed(&laser)), (SIZE, 1));
    assert_eq!((laser.published(), groups_passed(&laser)), (SIZE, 1));
}

#[test]
fn a_large_record_has_a_group_of_its_own() {
    let laser = laser(4096, 2 * SIZE, 256);
    append(&laser, 1, &[1; 8], Lsn(0));
    append(&laser, 2, &[2; 1000], Lsn(0));
    assert_eq!(groups_passed(&laser), 1, "the small record's group is closed for it");
    append(&laser, 3, &[3; 8], Lsn(0));
    assert_eq!(groups_passed(&laser), 2, "it fills its own");
    assert_eq!(drain(&laser, Lsn(0)).0, [1, 2, 3]);
}

#[test]
fn a_member_stopped_in_its_copy_holds_back_the_cut_and_nothing_else() {
    let laser = laser(16 << 10, 16 * SIZE, 256);
    let early = append(&laser, 1, &[1; 8], Lsn(0));
    let (group, start) = laser.join(SIZE);
    assert_eq!(start, early.0);
    // Each call of the leader could close one more group of a single record: more than the table has.
    let mut cut = Lsn(0);
    for tag in 3..500 {
        append(&laser, tag, &[1; 8], cut);
        cut = drain(&laser, cut).1;
        assert_eq!(cut, Lsn(0), "not even the record that shares the stopped member's group");
    }
    assert!(groups_passed(&laser) < 256);
    let parts = [&[2; 8][..]];
    // SAFETY: the draw above is exclusive.
    unsafe { laser.ring.fill(start, &Checksummed::new(&Record { tag: 2, flags: 0, parts: &parts })) };
    group.copied.fetch_add(SIZE, Ordering::Release);
    assert_eq!(drain(&laser, cut), ((1..500).collect(), Lsn(499 * SIZE)));
}

#[test]
#[should_panic(expected = "groups may be closed")]
fn a_table_too_small_for_its_ring_is_refused() {
    laser(4096, SIZE, 256);
}

#[test]
fn records_of_many_threads_come_out_once_and_in_the_order_of_each() {
    const THREADS: u64 = 8;
    const RECORDS: u64 = 5_000;
    let laser = laser(8192, 4 * SIZE, 256);
    let mut seen = [0; THREADS as usize];
    thread::scope(|scope| {
        let session = |own: u64| {
            let laser = &laser;
            move || {
                let mut last = Lsn(0);
                for at in 0..RECORDS {
                    while laser.admit(0, SIZE).is_none() {
                        thread::yield_now();
                    }
                    last = append(laser, own << 32 | at, &[own as u8; 8], last);
                    assert!(laser.current() >= last);
                }
            }
        };
        let sessions: Vec<_> = (0..THREADS).map(|own| scope.spawn(session(own))).collect();
        let mut cut = Lsn(0);
        loop {
            // Read before the cut: it has all that the sessions have appended.
            let ended = sessions.iter().all(|session| session.is_finished());
            let (tags, next) = drain(&laser, cut);
            assert_eq!(next.0 - cut.0, tags.len() as u64 * SIZE);
            for tag in tags {
                let own = (tag >> 32) as usize;
                assert_eq!(tag & 0xffff_ffff, seen[own], "records of session {own} are out of order");
                seen[own] += 1;
            }
            cut = next;
            if ended {
                break;
            }
            thread::yield_now();
        }
    });
    assert_eq!(seen, [RECORDS; THREADS as usize]);
}
