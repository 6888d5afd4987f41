//! A deadline ends every wait of a transaction, and the error names what it waited for.

use crate::support::{DIR, NUMBERS, TEXTS, fill};
use foreshore::{Db, Error, Options, TxnOptions};
use foreshore_io::Mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The lock timeout. A wait that the deadline does not end takes so long, and one for undo memory ten seconds.
const LONG: Duration = Duration::from_secs(600);
/// A wait that takes longer was not ended by the deadline.
const SOON: Duration = Duration::from_secs(8);
const DEADLINE: Duration = Duration::from_millis(60);

fn database() -> Db {
    let options = Options::new()
        .memory_limit(16 << 20)
        .lab(|lab| lab.undo_limit = Some(64 << 10))
        .lock_timeout(LONG)
        .max_transactions(2);
    let db = options.lab(|lab| lab.fs = Some(Arc::new(Mem::null()))).open(DIR).unwrap();
    fill(&db, 2);
    db.run(|tx| tx.open(TEXTS).map(drop)).unwrap();
    db
}

/// Has a transaction that is begun and one that is run come to their deadlines, and returns the causes.
fn meets(db: &Db, work: impl Fn(&foreshore::Transaction) -> Result<(), Error>) -> [Error; 2] {
    let hurried = TxnOptions::new().label("hurried").deadline(DEADLINE);
    let began = Instant::now();
    let outcomes = [
        {
            let tx = db.begin_with(hurried);
            let outcome = work(&tx);
            let ended = tx.rollback();
            ended.unwrap();
            outcome
        },
        db.run_with(hurried, |tx| work(tx)),
    ];
    assert!(began.elapsed() >= 2 * DEADLINE && began.elapsed() < SOON, "{:?}", began.elapsed());
    outcomes.map(|outcome| {
        let Err(Error::Deadline { holder: "holder", elapsed, cause, .. }) = outcome else { panic!("{outcome:?}") };
        assert!(elapsed >= DEADLINE && elapsed < SOON, "{elapsed:?}");
        (*cause).clone()
    })
}

#[test]
fn a_deadline_ends_waits_for_locks_for_undo_memory_and_for_a_session() {
    let db = database();
    let holder = db.begin_with(TxnOptions::new().label("holder"));
    holder.open(NUMBERS).unwrap().insert(1, 10).unwrap();
    std::thread::scope(|scope| {
        let waits = || meets(&db, |tx| tx.open(NUMBERS)?.insert(1, 2).map(drop));
        // In another thread, which has not begun the holder.
        let causes = scope.spawn(waits).join().unwrap();
        assert!(causes.iter().all(|cause| matches!(cause, Error::LockTimeout { .. })), "{causes:?}");
    });
    // Most of the memory, so that it lasts for no other transaction.
    let long = ["x", "y"].map(|text| text.repeat(1500));
    let texts = holder.open(TEXTS).unwrap();
    (0..12).for_each(|n| drop(texts.insert("a", &*long[n % 2]).unwrap()));
    let causes = meets(&db, |tx| {
        let texts = tx.open(TEXTS)?;
        (0..200).try_for_each(|n| texts.insert("z", &*long[n % 2]).map(drop))
    });
    assert!(causes.iter().all(|cause| matches!(cause, Error::UndoMemory { .. })), "{causes:?}");
    let _last = db.begin();
    let causes = meets(&db, |tx| tx.open(NUMBERS).map(drop));
    assert!(causes.iter().all(|cause| matches!(cause, Error::TooManyTransactions { .. })), "{causes:?}");
    holder.commit().unwrap();
}
