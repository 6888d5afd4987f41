//! Records that were appended and forced are read back, with every buffer, over segments and incarnations.

use crate::common::*;
use foreshore_base::{Error, GroupNo, InvalidOption, Lsn};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::{Fs, Mem};
use foreshore_wal::{Dep, Log, LogOptions, MAX_TAG, Record, Session, flags};
use std::sync::Arc;

fn mem() -> Arc<dyn Fs> {
    Arc::new(Mem::null())
}

#[test]
fn records_come_back_whole_and_in_order() {
    for buffer in KINDS {
        let fs = mem();
        let options = LogOptions { buffer: buffer.maker(), ..small() };
        let log = fresh(&fs, &options);
        let mut session = log.session().unwrap();
        let mut lsns = Vec::new();
        for (i, len) in [0, 1, 7, 8, 9, 100, log.max_record()].into_iter().enumerate() {
            let bytes = payload(i as u64, len);
            let (a, b) = bytes.split_at(len / 3);
            session.reserve(Session::cost(len)).unwrap();
            let flags = if i % 2 == 0 { flags::COMMIT } else { 0 };
            let dep = lsns.last().map_or(Dep::none(), |&lsn| Dep::none().transaction(lsn));
            lsns.push(session.append(Record { tag: MAX_TAG - i as u64, flags, parts: &[a, b] }, dep));
        }
        assert!(lsns.is_sorted_by(|a, b| a < b));
        assert_eq!(log.durable(), Lsn::ZERO);
        log.force(lsns[6]).unwrap();
        assert!(log.durable() >= lsns[6] && log.sealed() >= lsns[6]);
        drop((session, log));

        let (log, recovered) = open(&fs, &options).unwrap();
        assert_eq!((recovered.end(), recovered.max_lsn()), (lsns[6], lsns[6]));
        assert_eq!(log.durable(), lsns[6]);
        let records = all(&recovered);
        assert_eq!(records.len(), 7);
        for (i, record) in records.iter().enumerate() {
            assert_eq!((record.lsn, record.tag), (lsns[i], MAX_TAG - i as u64));
            assert_eq!(record.flags == flags::COMMIT, i % 2 == 0);
            assert_eq!(record.payload, payload(i as u64, record.payload.len()));
        }
        assert_eq!(records[6].payload.len(), log.max_record());
    }
}

#[test]
fn the_log_rolls_over_segments_and_incarnations() {
    for buffer in KINDS {
        let fs = mem();
        let options = LogOptions { buffer: buffer.maker(), ..small() };
        create(&fs, &options).unwrap();
        let (mut tag, mut last) = (0, Lsn::ZERO);
        for run in 0..4 {
            let (log, recovered) = open(&fs, &options).unwrap();
            assert_eq!(recovered.incarnation().0, run + 1);
            assert_eq!(tags(&recovered), (0..tag).collect::<Vec<_>>());
            let mut session = log.session().unwrap();
            for _ in 0..100 {
                let lsn = append(&mut session, tag, &payload(tag, 1000 + tag as usize)).unwrap();
                assert!(lsn > last, "stamps rise over incarnations");
                last = lsn;
                tag += 1;
                if tag.is_multiple_of(5) {
                    log.force(lsn).unwrap();
                }
            }
            assert!(log.retained_bytes() > u64::from(run + 1) * 100_000);
            assert!(log.stats().segments_made > 0);
            log.close().unwrap();
        }
        let (_, recovered) = open(&fs, &options).unwrap();
        let records = all(&recovered);
        for (i, record) in records.iter().enumerate() {
            assert_eq!(record.payload, payload(i as u64, 1000 + i));
        }
        // A reader may start at any group, and finds the records from there on.
        let middle = records[200].group;
        let rest = from(&recovered, middle);
        assert_eq!(rest, records.iter().filter(|r| r.group >= middle).cloned().collect::<Vec<_>>());
        assert_eq!(from(&recovered, recovered.next_group()), []);
    }
}

#[test]
fn every_start_repeats_the_last_group_and_readers_pass_over_it() {
    let fs = mem();
    let log = fresh(&fs, &small());
    let mut session = log.session().unwrap();
    for tag in 0..3 {
        let lsn = append(&mut session, tag, &payload(tag, 8000)).unwrap();
        log.force(lsn).unwrap();
    }
    drop((session, log));
    // The repetitions roll over several segments.
    for start in 0..20 {
        let (log, recovered) = open(&fs, &small()).unwrap();
        assert_eq!(recovered.next_group(), GroupNo(4));
        for first in 1..=4 {
            let found: Vec<_> = from(&recovered, GroupNo(first)).iter().map(|record| record.tag).collect();
            assert_eq!(found, (first - 1..3).collect::<Vec<_>>(), "start {start}, from group {first}");
        }
        assert_eq!(log.next_group(), GroupNo(4));
    }
    let (log, _) = open(&fs, &small()).unwrap();
    log.truncate(GroupNo(3)).unwrap();
    log.truncate(GroupNo(3)).unwrap();
    drop(log);
    let (_, recovered) = open(&fs, &small()).unwrap();
    assert_eq!((recovered.first_group(), tags(&recovered)), (GroupNo(3), vec![2]));
}

#[test]
fn truncated_segments_are_used_again_and_the_rest_stays() {
    let fs = mem();
    let options = small();
    let log = fresh(&fs, &options);
    let mut session = log.session().unwrap();
    let mut groups = Vec::new();
    for tag in 0..400 {
        groups.push(log.next_group());
        let lsn = append(&mut session, tag, &payload(tag, 3000)).unwrap();
        log.force(lsn).unwrap();
        if tag >= 40 {
            log.truncate(groups[tag as usize - 40]).unwrap();
        }
        log.prepare_step();
    }
    let stats = log.stats();
    assert_eq!((stats.records, stats.groups, stats.writes), (400, 400, 400));
    assert!(stats.segments_recycled > 10, "{stats:?}");
    assert!(stats.segments_made < 16, "{stats:?}");
    assert!(log.retained_bytes() < 400 * 4096);
    let kept = log.bytes_since(groups[360]);
    assert!((40 * 4096..=41 * 4096).contains(&kept), "{kept}");
    drop((session, log));

    let (log, recovered) = open(&fs, &options).unwrap();
    assert!(recovered.first_group() <= groups[359]);
    let read = tags(&recovered);
    assert_eq!(read, (read[0]..400).collect::<Vec<_>>());
    assert!(read[0] > 300 && read[0] <= 359);
    assert_eq!(log.bytes_since(GroupNo(0)), log.retained_bytes());
}

#[test]
fn large_records_travel_as_fragments_between_others() {
    for buffer in FRAGMENTING {
        let fs = mem();
        let options = LogOptions { buffer: buffer.maker(), ..small() };
        let log = fresh(&fs, &options);
        let (mut one, mut two) = (log.session().unwrap(), log.session().unwrap());
        let big = payload(7, 300_001);
        let group = log.next_group();
        let before = append(&mut two, 1, b"before").unwrap();
        let (head, tail) = big.split_at(100_000);
        let record = Record { tag: 7, flags: flags::COMMIT, parts: &[head, b"", tail] };
        let lsn = one.append_large(record, Dep::none().page(before)).unwrap();
        let small = one.append_large(Record { tag: 8, flags: 0, parts: &[b"fits"] }, Dep::none()).unwrap();
        two.reserve(Session::cost(5)).unwrap();
        two.append(Record { tag: 2, flags: 0, parts: &[b"after"] }, Dep::none().page(small));
        log.close().unwrap();
        let (_, recovered) = open(&fs, &options).unwrap();
        let records = all(&recovered);
        assert_eq!(records.iter().map(|r| r.tag).collect::<Vec<_>>(), [1, 7, 8, 2]);
        assert_eq!((records[1].lsn, records[1].flags, records[1].group), (lsn, flags::COMMIT, group));
        assert!(records[1].payload == big);
        assert_eq!((records[2].lsn, &records[2].payload[..]), (small, &b"fits"[..]));
        // A reader that starts behind the first fragment does not get a part of the record.
        let rest: Vec<u64> = from(&recovered, group.next()).iter().map(|r| r.tag).collect();
        assert!(!rest.contains(&7) && rest.ends_with(&[8, 2]), "{rest:?}");
    }
}

#[test]
fn buffers_without_fragments_take_a_quarter_of_the_ring_and_refuse_more() {
    for buffer in KINDS.into_iter().filter(|kind| !FRAGMENTING.contains(kind)) {
        let fs = mem();
        let options = LogOptions { buffer: buffer.maker(), segment_bytes: 256 << 10, ..small() };
        let log = fresh(&fs, &options);
        assert_eq!(Session::cost(log.max_record()), options.ring_bytes / 4);
        assert_eq!((log.max_large(), log.max_reserve()), (log.max_record(), options.ring_bytes / 4));
        let mut session = log.session().unwrap();
        let bytes = payload(1, log.max_record() + 1);
        let refused = session.append_large(Record { tag: 1, flags: 0, parts: &[&bytes] }, Dep::none());
        let (len, max) = (bytes.len(), log.max_record());
        assert!(
            matches!(refused, Err(Error::ValueTooLarge { len: l, max: m, .. }) if (l, m) == (len, max)),
            "{refused:?}"
        );
        let whole = Record { tag: 2, flags: 0, parts: &[&bytes[..max]] };
        session.append_large(whole, Dep::none()).unwrap();
        drop(session);
        log.close().unwrap();
        let records = all(&open(&fs, &options).unwrap().1);
        assert_eq!((records.len(), records[0].tag), (1, 2));
        assert!(records[0].payload == bytes[..max]);
    }
}

/// All buffers write the same groups: each takes over from another, and from its unflushed end.
#[test]
fn a_log_is_opened_with_another_buffer_each_time() {
    let fs = mem();
    let options = |buffer: BufferKind| LogOptions { buffer: buffer.maker(), ..small() };
    create(&fs, &options(KINDS[0])).unwrap();
    let (mut expected, mut tag, mut last) = (Vec::new(), 0, Lsn::ZERO);
    for (round, buffer) in (0..2 * KINDS.len()).map(|i| (i, KINDS[i % KINDS.len()])) {
        let (log, recovered) = open(&fs, &options(buffer)).unwrap();
        let records = all(&recovered);
        assert_eq!(records.iter().map(|record| record.tag).collect::<Vec<_>>(), expected, "before {buffer}, {round}");
        assert!(records.iter().all(|record| record.payload == payload(record.tag, 700 + record.tag as usize)));
        let mut sessions = [log.session().unwrap(), log.session().unwrap()];
        for i in 0..12 {
            let session = &mut sessions[i % 2];
            session.reserve(Session::cost(700 + tag as usize)).unwrap();
            let bytes = payload(tag, 700 + tag as usize);
            let record = Record { tag, flags: 0, parts: &[&bytes] };
            let lsn = session.append(record, Dep::none().page(last));
            assert!(lsn > last, "stamps rise from buffer to buffer");
            last = lsn;
            tag += 1;
        }
        log.force(last).unwrap();
        expected.extend(tag - 12..tag);
        // Appended and never forced: the process ends here, without a close.
        append(&mut sessions[0], 1 << 40, b"lost").unwrap();
    }
    assert_eq!(tags(&open(&fs, &options(KINDS[0])).unwrap().1), expected);
}

#[test]
fn pipelined_commits_need_a_step_of_the_flusher_only() {
    let fs = mem();
    let log = fresh(&fs, &small());
    let mut session = log.session().unwrap();
    let lsn = append(&mut session, 1, b"commit").unwrap();
    let ticket = log.ticket(lsn, lsn.csn(), lsn);
    assert_eq!(log.flush_step(), foreshore_sync::NextWake::OnSignal);
    assert!(!ticket.is_durable());
    log.flush_soon(&mut session, lsn);
    assert_eq!(log.flush_step(), foreshore_sync::NextWake::Now);
    assert!(ticket.is_durable());
    ticket.wait().unwrap();
    assert_eq!((ticket.record_lsn(), ticket.csn()), (lsn, lsn.csn()));
    assert_eq!(log.flush_step(), foreshore_sync::NextWake::OnSignal);
    assert_eq!(log.stats().groups, 1);
}

#[test]
fn an_empty_cut_seals_no_group() {
    let fs = mem();
    let log = fresh(&fs, &small());
    let mut session = log.session().unwrap();
    let first = log.next_group();
    let lsn = append(&mut session, 1, b"x").unwrap();
    assert_eq!(log.next_group(), first);
    for _ in 0..3 {
        log.force(lsn).unwrap();
        log.force(log.current()).unwrap();
        log.flush_soon(&mut session, lsn);
        log.flush_step();
    }
    assert_eq!(log.next_group(), first.next());
}

#[test]
fn sessions_and_space_are_given_back() {
    let fs = mem();
    let options = small();
    let log = fresh(&fs, &options);
    let sessions: Vec<_> = (0..8).map(|_| log.session().unwrap()).collect();
    assert!(matches!(log.session(), Err(Error::TooManyTransactions { max: 8, .. })));
    drop(sessions);
    // Each round would keep the whole ring if drop did not release it.
    for _ in 0..100 {
        let mut sessions: Vec<_> = (0..4).map(|_| log.session().unwrap()).collect();
        sessions.iter_mut().for_each(|session| session.reserve(log.max_reserve()).unwrap());
    }
    // The same holds for a release while the session lives.
    let mut sessions: Vec<_> = (0..8).map(|_| log.session().unwrap()).collect();
    for session in &mut sessions {
        session.reserve(log.max_reserve()).unwrap();
        session.release();
    }
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let fs = mem();
    let cases: [(&str, LogOptions); 5] = [
        ("segment_bytes", LogOptions { segment_bytes: 65537, ..small() }),
        ("segment_bytes", LogOptions { segment_bytes: 4096, ..small() }),
        ("ring_bytes", LogOptions { ring_bytes: 100_000, ..small() }),
        ("max_sessions", LogOptions { max_sessions: 0, ..small() }),
        ("ready_segments", LogOptions { ready_segments: 0, ..small() }),
    ];
    for (expected, options) in cases {
        let error = create(&fs, &options).unwrap_err();
        assert!(matches!(error, Error::InvalidOption(InvalidOption { name, .. }) if name == expected), "{error:?}");
    }
}

#[test]
fn a_log_is_not_created_over_another_and_foreign_ones_are_refused() {
    let fs = mem();
    let options = small();
    create(&fs, &options).unwrap();
    assert!(matches!(create(&fs, &options), Err(Error::Io { op: "create", .. })));
    let other = foreshore_base::Uuid([9; 16]);
    let error = Log::open(&fs, &dir(), other, &options).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error:?}");
    open(&fs, &options).unwrap();
}

/// The last group was sealed for larger segments than those of the next start, which writes it once more.
#[test]
fn a_large_last_group_survives_a_change_to_small_segments() {
    let fs = mem();
    let large = LogOptions { segment_bytes: 256 << 10, ring_bytes: 512 << 10, ..small() };
    let log = fresh(&fs, &large);
    let mut session = log.session().unwrap();
    // Two groups of more than 96 KiB leave less than that in the segment.
    for tag in 0..8 {
        let lsn = append(&mut session, tag, &payload(tag, 25_000)).unwrap();
        if tag % 4 == 3 {
            log.force(lsn).unwrap();
        }
    }
    drop((session, log));
    for _ in 0..3 {
        let (log, recovered) = open(&fs, &small()).unwrap();
        assert_eq!(tags(&recovered), (0..8).collect::<Vec<_>>());
        drop(log);
    }
}
