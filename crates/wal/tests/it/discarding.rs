//! A log without files: sessions append and groups are cut as usual, and nothing is kept.

use crate::common::*;
use foreshore_base::GroupNo;
use foreshore_wal::{Log, LogOptions, Session};
use std::thread;

const RECORDS: u64 = 2000;

#[test]
fn a_log_without_files_takes_more_than_its_buffer_holds() {
    for buffer in KINDS {
        for background in [false, true] {
            let log = Log::discarding(&LogOptions { buffer: buffer.maker(), background, ..small() }).unwrap();
            thread::scope(|scope| {
                for _ in 0..3 {
                    let mut session = log.session().unwrap();
                    let log = &log;
                    scope.spawn(move || {
                        let last =
                            (0..RECORDS).map(|tag| append(&mut session, tag, &payload(tag, 100)).unwrap()).last();
                        log.force(last.unwrap()).unwrap();
                        assert!(log.durable() >= last.unwrap());
                    });
                }
            });
            let stats = log.stats();
            assert_eq!(stats.records, 3 * RECORDS);
            assert_eq!(stats.record_bytes, 3 * RECORDS * Session::cost(100) as u64);
            assert!(stats.groups > 1 && stats.group_bytes >= stats.record_bytes, "{stats:?}");
            assert_eq!((stats.writes, stats.segments_made), (0, 0));
            log.truncate(log.next_group()).unwrap();
            assert_eq!((log.retained_bytes(), log.bytes_since(GroupNo(0))), (0, 0));
            log.close().unwrap();
        }
    }
}
