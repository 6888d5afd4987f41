//! Models of the buffers that draw regions under a lock. Every cut is whole records and never falls, everything
//! appended is cut in the end, and no thread hangs. The ring is made of cells that loom watches, so a read of
//! unreleased bytes fails as a data race.

use foreshore_base::Lsn;
use foreshore_classics::log_buffers::{Ring, Shape, WaitKind};
use foreshore_sync::primitive::thread::{self, JoinHandle};
use foreshore_wal::Record;
use foreshore_wal::log_buffer::{LogBuffer, Staging};
use std::sync::Arc;

/// Envelope and eight bytes of payload.
pub(crate) const SIZE: u64 = 32;

/// One place in the array, groups of any size that fit. In models session 0 waits for its turn in the release queue.
pub(crate) fn shape(wait: WaitKind) -> Shape {
    Shape { wait, sessions: 3, slots: 1, pool: 3, group: 8 * SIZE }
}

pub(crate) fn ring(records: u64) -> Ring {
    Ring::new((records * SIZE) as usize, Lsn(0)).expect("memory")
}

pub(crate) fn append(log: &impl LogBuffer, session: usize) -> Lsn {
    let payload = [session as u8 + 1; 8];
    let parts = [&payload[..]];
    log.append(session, &Record { tag: 0, flags: 0, parts: &parts }, Lsn(0))
}

pub(crate) fn spawn<B: LogBuffer + 'static>(log: &Arc<B>, body: impl FnOnce(&B) + Send + 'static) -> JoinHandle<()> {
    let log = log.clone();
    thread::spawn(move || body(&log))
}

pub(crate) fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("an actor ends"));
}

/// Cuts once behind `last`; what it yields is whole records.
pub(crate) fn cut(log: &impl LogBuffer, last: Lsn) -> Lsn {
    let mut staging = Staging::new(4096);
    let cut = log.drain(last, &mut staging).expect("no call is refused").cut;
    assert!(cut >= last, "the cut falls");
    assert_eq!(staging.data_len() as u64, cut.0 - last.0, "the cut is what was copied");
    for record in staging.data().chunks(SIZE as usize) {
        let mark = record[24];
        assert!(mark != 0 && record[24..32] == [mark; 8], "a record that is not whole: {record:?}");
    }
    cut
}

/// Runs one session for each of `sessions`, with that many records, beside `cuts` cuts; then one more cut, which has
/// everything.
pub(crate) fn run<B: LogBuffer + 'static>(log: B, sessions: &[u64], cuts: usize) {
    let log = Arc::new(log);
    let total = Lsn(sessions.iter().sum::<u64>() * SIZE);
    let writer = |(session, &records): (usize, &u64)| {
        spawn(&log, move |log| {
            let mut last = Lsn(0);
            for _ in 0..records {
                let lsn = append(log, session);
                assert!(lsn > last && lsn <= log.current(), "stamps rise");
                last = lsn;
            }
        })
    };
    let mut actors: Vec<_> = sessions.iter().enumerate().map(writer).collect();
    // The cutter ends before the last cut begins, as one leader does before the next.
    let cutter = foreshore_sync::primitive::Arc::new(foreshore_sync::primitive::atomic::AtomicU64::new(0));
    if cuts > 0 {
        let done = cutter.clone();
        actors.push(spawn(&log, move |log| {
            let last = (0..cuts).fold(Lsn(0), |last, _| cut(log, last));
            // ORDERING: Relaxed, the join that follows orders it.
            done.store(last.0, foreshore_sync::primitive::atomic::Ordering::Relaxed);
        }));
    }
    join(actors);
    // ORDERING: Relaxed, as above.
    let last = Lsn(cutter.load(foreshore_sync::primitive::atomic::Ordering::Relaxed));
    assert_eq!(cut(&*log, last), total, "all that was appended is released");
    assert_eq!(log.current(), total);
}
