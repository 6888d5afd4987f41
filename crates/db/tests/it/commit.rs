//! What a commit promises in each of its forms.

use crate::support::{NUMBERS, fill, in_memory};
use foreshore::{CommitTicket, Db, Durability, Error, Options, ReadOptions, ReadTransaction, TxnOptions};
use foreshore_io::sim::Persist;
use foreshore_io::{File, FileLayer, Fs, FsLayer, Mem};
use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

/// How long a slow device takes for each sync.
const DELAY: Duration = Duration::from_millis(100);

/// A device in memory that is slow once it is told so: the creation of a database needs many syncs.
#[derive(Debug)]
struct Slow {
    below: Mem,
    is_slow: Arc<AtomicBool>,
}

#[derive(Debug)]
struct SlowFile {
    below: Arc<dyn File>,
    is_slow: Arc<AtomicBool>,
}

impl FsLayer for Slow {
    fn below(&self) -> &dyn Fs {
        &self.below
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(SlowFile { below: file, is_slow: Arc::clone(&self.is_slow) })
    }
}

impl SlowFile {
    fn sleep(&self) {
        if self.is_slow.load(Ordering::Relaxed) {
            std::thread::sleep(DELAY);
        }
    }
}

impl FileLayer for SlowFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> foreshore_base::Result<()> {
        self.sleep();
        self.below.write_durable(buf, offset)
    }

    fn sync(&self) -> foreshore_base::Result<()> {
        self.sleep();
        self.below.sync()
    }
}

/// A new database on a slow device.
fn slow() -> Db {
    let is_slow = Arc::new(AtomicBool::new(false));
    let fs: Arc<dyn Fs> = Arc::new(Slow { below: Mem::null(), is_slow: Arc::clone(&is_slow) });
    let db = Options::new().memory_limit(16 << 20).lab(|lab| lab.fs = Some(fs)).open("/db").unwrap();
    is_slow.store(true, Ordering::Relaxed);
    db
}

fn write(db: &Db, key: u64, options: TxnOptions) -> foreshore::Transaction {
    let tx = db.begin_with(options);
    tx.open(NUMBERS).unwrap().insert(key, 1).unwrap();
    tx
}

#[test]
fn a_blocking_commit_is_durable_when_it_returns() {
    let db = slow();
    let csn = write(&db, 1, TxnOptions::new()).commit().unwrap();
    assert!(db.durable_csn() >= csn);
}

#[test]
fn a_pipelined_commit_becomes_durable_without_anybody_waiting() {
    let db = slow();
    let tickets: Vec<CommitTicket> =
        (0..50).map(|key| write(&db, key, TxnOptions::new()).commit_pipelined().unwrap()).collect();
    assert!(!tickets[49].is_durable(), "fifty commits take less than one sync");
    // In commit order, whichever ticket is asked first.
    assert!(tickets[49].wait_timeout(Duration::from_secs(20)).unwrap());
    assert!(tickets.iter().all(CommitTicket::is_durable));
    assert!(tickets.windows(2).all(|pair| pair[0].csn() < pair[1].csn()));
}

#[test]
fn a_relaxed_commit_is_made_durable_by_sync() {
    let db = slow();
    write(&db, 0, TxnOptions::new()).commit().unwrap();
    let csn = write(&db, 1, TxnOptions::new().durability(Durability::Relaxed)).commit().unwrap();
    db.sync().unwrap();
    assert!(db.durable_csn() >= csn);
}

/// A commit survives power loss once its ticket, relaxed first, was hardened, blocking or awaited; without that it may
/// be lost.
#[test]
fn a_relaxed_commit_survives_power_loss_once_it_is_hardened() {
    let mut lost = 0;
    for is_awaited in [false, true] {
        for hardens in [false, true] {
            let sim = crate::script::disk(7);
            let db = crate::script::options(&sim).open(crate::support::DIR).unwrap();
            write(&db, 0, TxnOptions::new()).commit().unwrap();
            let ticket = write(&db, 1, TxnOptions::new().durability(Durability::Relaxed)).commit_pipelined().unwrap();
            ticket.wait().unwrap();
            assert!(!ticket.is_durable(), "acknowledged, and nobody has written it");
            match (hardens, is_awaited) {
                (false, _) => drop(ticket),
                (true, false) => ticket.harden().wait().unwrap(),
                (true, true) => {
                    let mut ticket = pin!(ticket.harden());
                    let mut poll = || ticket.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    assert!(poll().is_pending());
                    while poll().is_pending() {
                        db.step();
                    }
                }
            }
            let again = crate::script::open(&sim.crash_image(&foreshore_io::sim::Persist::None, 1)).unwrap();
            let found = again.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap();
            assert!(!hardens || found == Some(1), "hardened, and lost");
            lost += u32::from(found.is_none());
        }
    }
    assert_eq!(lost, 2, "who does not harden takes the risk");
}

#[test]
fn a_ticket_is_a_future() {
    struct Notify(Mutex<bool>, Condvar);
    impl Wake for Notify {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() = true;
            self.1.notify_all();
        }
    }
    let db = slow();
    let notify = Arc::new(Notify(Mutex::new(false), Condvar::new()));
    let waker = Waker::from(Arc::clone(&notify));
    let ticket = write(&db, 1, TxnOptions::new()).commit_pipelined().unwrap();
    let mut ticket = pin!(ticket);
    loop {
        match ticket.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => break result.unwrap(),
            Poll::Pending => {
                let guard = notify.0.lock().unwrap();
                let (mut guard, timeout) =
                    notify.1.wait_timeout_while(guard, Duration::from_secs(20), |woken| !*woken).unwrap();
                assert!(!timeout.timed_out(), "the waker was never called");
                *guard = false;
            }
        }
    }
    assert!(ticket.is_durable());
}

#[test]
fn a_reader_of_a_commit_is_acknowledged_after_it() {
    let db = slow();
    write(&db, 1, TxnOptions::new()).commit().unwrap();
    let writer = write(&db, 1, TxnOptions::new()).commit_pipelined().unwrap();
    // The lock went with the commit record, so the reader does not wait for the disk; its acknowledgement does.
    let reader = db.begin();
    assert_eq!(reader.open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
    let ticket = reader.commit_pipelined().unwrap();
    assert!(!writer.is_durable() && !ticket.is_durable());
    ticket.wait().unwrap();
    assert!(writer.is_durable());
}

/// A row that was changed, one that was removed, and a range that has become empty.
#[test]
fn a_reader_of_the_latest_is_acknowledged_after_what_it_has_read() {
    type Read = fn(&ReadTransaction) -> bool;
    let reads: [Read; 3] = [
        |reader| reader.open(NUMBERS).unwrap().get(0).unwrap() == Some(1),
        |reader| reader.open(NUMBERS).unwrap().get(2).unwrap().is_none(),
        |reader| reader.open(NUMBERS).unwrap().range(2..).next().is_none(),
    ];
    let change = |db: &Db| {
        let tx = write(db, 0, TxnOptions::new());
        tx.open(NUMBERS).unwrap().remove(2).unwrap();
        tx.commit_pipelined().unwrap()
    };
    for sees in reads {
        let db = slow();
        fill(&db, 3);
        let written = change(&db);
        let reader = db.read_with(ReadOptions::new().latest());
        assert!(sees(&reader), "it waits for nobody");
        reader.finish().unwrap().wait().unwrap();
        assert!(written.is_durable());
    }
    for sees in reads {
        let sim = crate::script::disk(5);
        let db = crate::script::options(&sim).open(crate::support::DIR).unwrap();
        fill(&db, 3);
        let found_after_power_loss = || {
            let again = crate::script::open(&sim.crash_image(&Persist::None, 1)).unwrap();
            sees(&again.read())
        };
        let _written = change(&db);
        let reader = db.read_with(ReadOptions::new().latest());
        assert!(sees(&reader));
        let mut ticket = pin!(reader.finish().unwrap());
        let mut poll = || ticket.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending() && !found_after_power_loss(), "what was read may be lost");
        while poll().is_pending() {
            db.step();
        }
        assert!(found_after_power_loss(), "acknowledged, and lost");
    }
}

#[test]
fn absence_and_ranges_rest_on_the_commit_that_made_them_true() {
    let db = slow();
    write(&db, 1, TxnOptions::new()).commit().unwrap();
    let remover = db.begin();
    remover.open(NUMBERS).unwrap().remove(1).unwrap();
    let removed = remover.commit_pipelined().unwrap();
    for range in [false, true] {
        let reader = db.begin();
        let table = reader.open(NUMBERS).unwrap();
        assert!(if range { table.iter().next().is_none() } else { table.get(1).unwrap().is_none() });
        let ticket = reader.commit_pipelined().unwrap();
        assert!(ticket.csn() >= removed.csn());
    }
    removed.wait().unwrap();
}

#[test]
fn a_table_whose_creation_is_not_durable_makes_its_users_wait() {
    let db = slow();
    let created = write(&db, 1, TxnOptions::new()).commit_pipelined().unwrap();
    let reader = db.begin();
    reader.open(NUMBERS).unwrap();
    let ticket = reader.commit_pipelined().unwrap();
    assert!(ticket.csn() >= created.csn());
    ticket.wait().unwrap();
    assert!(created.is_durable());
}

#[test]
fn commits_are_numbered_in_their_order() {
    let (db, _) = in_memory();
    fill(&db, 1);
    let mut last = db.durable_csn();
    for n in 0..20 {
        let tx = db.begin();
        tx.open(NUMBERS).unwrap().insert(0, n).unwrap();
        let csn = tx.commit().unwrap();
        assert!(csn > last);
        last = csn;
    }
    assert!(matches!(db.run(|tx| tx.open(NUMBERS)?.insert_new(0, 0)), Err(Error::KeyExists { .. })));
}
