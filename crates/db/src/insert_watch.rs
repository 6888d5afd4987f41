//! Waits for inserts into a table.

use crate::watches::{Waiter, WatchKey, Watches};
use crate::{Db, Error, Result, TableDef, TxnOptions};
use foreshore_base::TableRef;
use foreshore_base::key::{Key, Value};
use foreshore_sync::{Clock, Parker, SystemClock};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

impl Db {
    /// Begins to watch a table for inserts, so that a consumer of a queue can wait for work without polling. Creates
    /// the table if there is none.
    ///
    /// A consumer makes the watch once, and then repeats two steps: it takes a row in a transaction, and waits on the
    /// watch if it has found none. No insert is missed in between. A consumer that skips locked rows waits with a
    /// timeout, see [`InsertWatch`].
    ///
    /// # Errors
    /// Those of [`run`](Self::run) and [`Transaction::open`](crate::Transaction::open).
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # use std::time::Duration;
    /// # let db = Db::in_memory()?;
    /// const JOBS: TableDef<u64, &str> = TableDef::new("jobs");
    /// # let producer = db.clone();
    /// let consumer = std::thread::spawn(move || {
    ///     let mut inserts = db.watch_inserts(JOBS)?;
    ///     loop {
    ///         if let Some((_, job)) = db.run(|tx| tx.open(JOBS)?.pop_first())? {
    ///             return Ok::<_, Error>(job);
    ///         }
    ///         inserts.wait(Duration::MAX)?;
    ///     }
    /// });
    /// producer.run(|tx| tx.open(JOBS)?.put(1, "sweep"))?;
    /// assert_eq!(consumer.join().unwrap()?, "sweep");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn watch_inserts<K: Key + 'static, V: Value + 'static>(&self, def: TableDef<'_, K, V>) -> Result<InsertWatch> {
        self.run_with(TxnOptions::new().label("watch"), |tx| {
            let key = tx.open(def)?.watch()?;
            let (name, key_type) = (Some(def.name().into()), Some(K::type_name().into()));
            let watches = Arc::clone(self.engine().catalogue.watches());
            Ok(InsertWatch { watches, table: TableRef { id: key.table(), name, key_type }, key })
        })
    }
}

/// A watch for inserts into a table: [`Db::watch_inserts`] makes it.
///
/// It is signalled when a transaction that has inserted rows commits. The rows are then visible to every transaction
/// that begins afterwards; to [`Db::read`], once the commit is durable. A wait takes the signal, so it covers all
/// commits since the last wait returned, or since the watch was made. Wait first and read the table afterwards, or read
/// it in a transaction that begins after the last wait.
///
/// - A signal may come without an insert. A rollback signals too, because it may free rows that a consumer has skipped
///   as locked. So does the commit of a transaction that has locked rows and changed nothing. Both signal the caller's
///   own watch as well, so pause before the next try.
/// - **A consumer that skips locked rows waits with a timeout.** A row that it has skipped may become free without a
///   signal. The transaction that locked it has then updated it, changed other rows, or read it at serializable.
/// - All watches of a table are signalled, so of several consumers one gets a single row, and the others wait again.
/// - A commit that inserts nothing pays nothing for a watch. Another one pays a fence and a load, and more only while a
///   watch of its table has no signal yet.
///
/// A watch is also a future, which resolves like a wait without a timeout. It can be awaited again:
/// `(&mut watch).await`.
#[must_use = "a dropped watch is not signalled"]
pub struct InsertWatch {
    watches: Arc<Watches>,
    key: WatchKey,
    /// For errors.
    table: TableRef,
}

impl InsertWatch {
    /// Waits until the watch is signalled, for at most `timeout`, and returns whether it was. [`Duration::MAX`] means
    /// no limit. Blocks the thread, so the caller holds no transaction open that others may wait for.
    ///
    /// # Errors
    /// - `Closed`, `Poisoned`: the database has stopped.
    /// - `TableDropped`: no row comes any more. A new watch creates the table anew.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let (clock, parker) = (SystemClock::new(), Parker::current());
        let until = clock.now() + timeout;
        loop {
            let left = if timeout == Duration::MAX { timeout } else { until.since(clock.now()) };
            let waiter = (!left.is_zero()).then(|| Waiter::Thread(parker.unparker()));
            let is_signalled = self.take_signal(waiter)?;
            if is_signalled || left.is_zero() {
                return Ok(is_signalled);
            }
            // WAIT: park - for a signal, the end of the database or the table, or the timeout.
            parker.park_timeout(left);
        }
    }

    fn take_signal(&self, waiter: Option<Waiter>) -> Result<bool> {
        self.watches.take_signal(self.key, waiter).map_err(|error| match error {
            Error::TableDropped { .. } => Error::TableDropped { table: self.table.clone() },
            other => other,
        })
    }
}

impl Future for InsertWatch {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self.take_signal(Some(Waiter::Task(context.waker().clone()))) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for InsertWatch {
    fn drop(&mut self) {
        self.watches.remove(self.key);
    }
}

impl fmt::Debug for InsertWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InsertWatch").field("table", &self.table).finish_non_exhaustive()
    }
}
