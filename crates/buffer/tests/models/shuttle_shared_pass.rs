//! Promise: while two threads write the pages of a pass home, no page needs the log before the group that the caller
//! gets.

use crate::common::{UUID, count, init};
use foreshore_base::PageId;
use foreshore_buffer::{Pool, PoolOptions};
use foreshore_io::{Fs, Mem};
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_wal::{Log, LogOptions};
use std::path::Path;

const PAGES: u64 = 4;
const SCHEDULES: usize = 500;

fn storm() {
    let options = LogOptions { ring_bytes: 64 << 10, max_sessions: 8, background: false, ..LogOptions::default() };
    let log = Log::discarding(&options).expect("a log");
    let mem = Mem::null();
    let [data, doublewrite] = ["data", "dw"].map(|name| mem.create(Path::new(name)).expect("memory"));
    Pool::create_files(&*doublewrite, UUID).expect("memory");
    let options = PoolOptions { frames: 2 * PAGES as usize, background: false, ..PoolOptions::default() };
    let pool = Pool::open(data, doublewrite, UUID, log.clone(), &options).expect("a pool");
    let mut session = log.session().expect("a session");
    // Each in a group of its own.
    for number in 1..=PAGES {
        let lsn = init(&pool, &mut session, PageId(number)).expect("nothing fails");
        log.force(lsn).expect("nothing fails");
    }
    let helper = {
        let pool = pool.clone();
        thread::spawn(move || {
            for _ in 0..PAGES {
                pool.help_step();
                thread::yield_now();
            }
        })
    };
    pool.flush_older_than(log.next_group(), |oldest| {
        assert!(pool.min_rec_group().is_none_or(|needed| needed >= oldest), "a page needs the log before {oldest}");
        Ok(())
    })
    .expect("nothing fails");
    assert_eq!(pool.min_rec_group(), None, "the pass has ended and pages are not home");
    helper.join().expect("the helper ends");
    count(&pool, &mut session, PageId(1)).expect("nothing fails");
}

#[test]
fn the_caller_is_told_of_a_group_that_no_page_precedes() {
    shuttle(SCHEDULES, storm);
}

#[test]
#[should_panic]
fn a_batch_under_way_that_counts_as_home_is_noticed() {
    shuttle_mutated("write-back: a batch under way counts as home", SCHEDULES, storm);
}
