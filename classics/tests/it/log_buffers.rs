//! A database runs over each log buffer, and each takes over from another, from its unflushed end too.

use foreshore::{Error, Options, TableDef};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::{Fs, Mem};
use foreshore_wal::log_buffer::{LogBuffer, MakeLogBuffer, NewLogBuffer};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
/// Rows of a round.
const COUNT: u64 = 50;

/// Counts what it makes.
#[derive(Debug)]
struct Counting(Arc<dyn MakeLogBuffer>, AtomicUsize);

impl MakeLogBuffer for Counting {
    fn fragments(&self) -> bool {
        self.0.fragments()
    }

    fn make(&self, new: &NewLogBuffer<'_>) -> io::Result<Arc<dyn LogBuffer>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.make(new)
    }
}

#[test]
fn a_database_is_opened_with_another_log_buffer_each_time() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    for (round, kind) in (0..).zip(BufferKind::ALL.into_iter().chain(BufferKind::ALL)) {
        let maker = kind.maker().map(|maker| Arc::new(Counting(maker, AtomicUsize::new(0))));
        let options = Options::new().memory_limit(4 << 20).log_budget(256 << 10).lab(|lab| {
            lab.segment_bytes = 64 << 10;
            lab.fs = Some(fs.clone());
            lab.log_buffer = maker.clone().map(|maker| maker as _);
        });
        let db = options.open("database").unwrap();
        let seen = db.run(|tx| {
            let rows = tx.open(ROWS)?;
            let seen: Vec<(u64, u64)> = rows.iter().collect::<Result<_, _>>()?;
            for key in round * COUNT..(round + 1) * COUNT {
                rows.insert(&key, &round)?;
            }
            Ok::<_, Error>(seen)
        });
        let expected: Vec<(u64, u64)> = (0..round * COUNT).map(|key| (key, key / COUNT)).collect();
        assert_eq!(seen.unwrap(), expected, "before {kind}, round {round}");
        if let Some(maker) = maker {
            assert_eq!(maker.1.load(Ordering::Relaxed), 1, "{kind}");
        }
        // Every other database ends without a close, so that the next one replays its log.
        if round % 2 == 0 {
            db.close(Duration::from_secs(10)).unwrap();
        }
    }
}
