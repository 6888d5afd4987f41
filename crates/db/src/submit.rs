//! Transactions as futures: closures that run on threads of the database.
//!
//! A submitted closure is a job of the worker pool. Its result travels through a [`Shared`] state:
//!
//! ```text
//! PENDING -> DONE -> OVER          the future takes the outcome
//! PENDING -> OVER                  the future is dropped
//! ```
//!
//! [`Completion`] is the obligation to leave PENDING: if it is dropped without an outcome, the outcome is `Closed`. An
//! error of a run is converted to the user's error type on the worker. That of a refused job or a failed commit is
//! converted when the future is polled.

use crate::engine::EngineRef;
use crate::run::run_until_final;
use crate::workers::{Job, WorkerPool};
use crate::{Db, Durability, Error, Transaction, TxnOptions};
use foreshore_sync::{LockRank, Mutex};
use foreshore_txn::ManagerRef;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

impl Db {
    /// Runs `f` in a transaction on a thread of the database, as [`run`](Self::run) does, and returns a future of the
    /// result. The future resolves when the commit is durable.
    ///
    /// An asynchronous program needs this because a transaction that waits for a lock blocks its thread. The future
    /// needs no runtime: any executor may poll it.
    ///
    /// - **Start.** The call puts `f` into a queue, and `f` starts as soon as a worker is free, whether the future is
    ///   polled or not. Closures start in the order of the calls. They may commit in any order.
    /// - **Workers.** There are up to twice as many as processors, and at least four. They start when they are needed,
    ///   and end after some idle seconds. A worker does not wait for the disk: it goes on with the next closure.
    /// - **Queue.** It has no limit. Each entry belongs to a future, so a program limits the queue by limiting its
    ///   futures.
    /// - **Cancellation.** If the future is dropped before `f` has started, `f` does not run. If `f` has started, the
    ///   transaction runs to its end and the result is dropped.
    /// - **Panic.** A panic of `f` rolls the transaction back and resumes where the future is polled. The worker goes
    ///   on.
    /// - **Close.** When the database is closed, or its last handle dropped, closures that have not started resolve to
    ///   [`Error::Closed`]. Closures that run are treated as other transactions are (see [`close`](Self::close)).
    ///
    /// `f` blocks its worker, so it should not wait for other futures. If it waits for another submitted closure, that
    /// one may find no worker and never start. A lock that a transaction of the caller holds delays every closure that
    /// needs it.
    ///
    /// # Errors
    /// The future resolves to the errors of [`run`](Self::run), or to `Io` if the system starts no thread.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// async fn take(db: &Db, number: u64) -> Result<Option<i64>, Error> {
    ///     db.submit(move |tx| tx.open(STOCK)?.update_with(number, |left| left?.checked_sub(1))).await
    /// }
    /// # use std::{pin::pin, sync::Arc, task::{Context, Poll, Wake}, thread::{self, Thread}};
    /// # struct Unpark(Thread);
    /// # impl Wake for Unpark {
    /// #     fn wake(self: Arc<Self>) { self.0.unpark(); }
    /// # }
    /// # db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
    /// # let (mut future, waker) = (pin!(take(&db, 1)), Arc::new(Unpark(thread::current())).into());
    /// # let taken = loop {
    /// #     match future.as_mut().poll(&mut Context::from_waker(&waker)) {
    /// #         Poll::Ready(taken) => break taken?,
    /// #         Poll::Pending => thread::park(),
    /// #     }
    /// # };
    /// # assert_eq!(taken, Some(9));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn submit<T, E>(&self, f: impl FnMut(&Transaction) -> Result<T, E> + Send + 'static) -> Submitted<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.submit_with(TxnOptions::new(), f)
    }

    /// Runs `f` like [`submit`](Self::submit), with options. A [deadline](TxnOptions::deadline) counts from this call.
    /// With [`Durability::Relaxed`] the future resolves when the commit record is in the log buffer, as
    /// [`run_with`](Self::run_with) returns then.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef, TxnOptions};
    /// # use std::time::Duration;
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// # async fn restock(db: &Db) -> Result<(), Error> {
    /// let options = TxnOptions::new().label("restock").deadline(Duration::from_secs(1));
    /// db.submit_with(options, |tx| tx.open(STOCK)?.put(1, 10)).await?;
    /// # Ok(())
    /// # }
    /// # let _ = restock(&db);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn submit_with<T, E>(
        &self,
        options: TxnOptions,
        f: impl FnMut(&Transaction) -> Result<T, E> + Send + 'static,
    ) -> Submitted<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let engine = self.engine();
        let options = options.requested_at(|| engine.admission.now());
        let shared = Arc::new(Shared(Mutex::new(LockRank::Leaf, State::Pending(None))));
        let completion = Completion(Some(Arc::clone(&shared)));
        let job = ClosureJob { references: self.hand_out(), options, f, completion };
        let pool = engine.background.workers();
        let place = pool.add(Box::new(job)).map(|number| (Arc::clone(pool), number));
        Submitted { shared, place }
    }
}

/// A transaction that [`Db::submit`] has queued: a future of its result.
///
/// Dropping the future before the closure has started cancels the closure.
#[must_use = "a dropped future cancels a closure that has not started"]
pub struct Submitted<T, E> {
    shared: Arc<Shared<T, E>>,
    /// Its job's number in the pool.
    place: Option<(Arc<WorkerPool>, u64)>,
}

impl<T, E: From<Error>> Future for Submitted<T, E> {
    type Output = Result<T, E>;

    /// # Panics
    /// With the panic of the closure. Also if the future is polled after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        match self.shared.take_or_wait(context.waker()) {
            None => Poll::Pending,
            Some(Outcome::Result(result)) => Poll::Ready(result),
            Some(Outcome::Failed(error)) => Poll::Ready(Err(error.into())),
            Some(Outcome::Panicked(panic)) => resume_unwind(panic),
        }
    }
}

impl<T, E> Drop for Submitted<T, E> {
    fn drop(&mut self) {
        if self.shared.abandon()
            && let Some((pool, number)) = self.place.take()
        {
            drop(pool.cancel(number));
        }
    }
}

impl<T, E> fmt::Debug for Submitted<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitted").finish_non_exhaustive()
    }
}

/// What became of a job.
enum Outcome<T, E> {
    Result(Result<T, E>),
    /// The engine's own error: the closure did not run, or its commit may not survive.
    Failed(Error),
    Panicked(Box<dyn Any + Send>),
}

/// State that a job shares with its future.
struct Shared<T, E>(Mutex<State<T, E>>);

enum State<T, E> {
    /// The waker is that of the last poll.
    Pending(Option<Waker>),
    Done(Outcome<T, E>),
    Over,
}

impl<T, E> Shared<T, E> {
    /// Replaces the state by the one that `change` returns. Dropping a value or a waker runs code of users, so the
    /// caller drops what else `change` returns, without the lock.
    fn change<R>(&self, change: impl FnOnce(State<T, E>) -> (State<T, E>, R)) -> R {
        let mut state = self.0.lock();
        let (new, left) = change(mem::replace(&mut *state, State::Over));
        *state = new;
        left
    }

    /// Takes the outcome, or registers the waker in place of an earlier one.
    fn take_or_wait(&self, waker: &Waker) -> Option<Outcome<T, E>> {
        let waker = waker.clone();
        let (outcome, _old) = self.change(|state| match state {
            State::Pending(old) => (State::Pending(Some(waker)), (None, old)),
            State::Done(outcome) => (State::Over, (Some(outcome), Some(waker))),
            State::Over => panic!("a future is polled after it was ready"),
        });
        outcome
    }

    /// Stores the outcome, unless the future is gone.
    fn complete(&self, outcome: Outcome<T, E>) {
        let (waker, _dropped) = self.change(|state| match state {
            State::Pending(waker) => (State::Done(outcome), (waker, None)),
            left => (left, (None, Some(outcome))),
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Discards the outcome, now or when the job ends. Returns whether the job has not ended yet.
    fn abandon(&self) -> bool {
        let left = self.change(|state| (State::Over, state));
        matches!(left, State::Pending(_))
    }
}

/// The obligation to complete a future, once.
struct Completion<T, E>(Option<Arc<Shared<T, E>>>);

impl<T, E> Completion<T, E> {
    fn complete(mut self, outcome: Outcome<T, E>) {
        if let Some(shared) = self.0.take() {
            shared.complete(outcome);
        }
    }
}

impl<T, E> Drop for Completion<T, E> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.complete(Outcome::Failed(Error::Closed));
        }
    }
}

/// A closure in the queue.
struct ClosureJob<T, E, F> {
    /// References for its transactions. They keep the engine in memory, but do not keep the database open.
    references: (EngineRef, ManagerRef),
    options: TxnOptions,
    f: F,
    completion: Completion<T, E>,
}

impl<T, E, F> Job for ClosureJob<T, E, F>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
    F: FnMut(&Transaction) -> Result<T, E> + Send + 'static,
{
    fn run(self: Box<Self>) {
        let Self { references: (engine, txns), options, f, completion } = *self;
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let begin = |options| Transaction::begin((engine.clone(), txns.clone()), options);
            run_until_final(&engine, begin, options, true, f)
        }));
        match ran {
            Err(panic) => completion.complete(Outcome::Panicked(panic)),
            Ok((result, _)) if options.durability == Durability::Relaxed => {
                completion.complete(Outcome::Result(result));
            }
            Ok((result, ended)) => ended.into_ticket().on_durable(move |durable| {
                completion.complete(match durable {
                    Ok(()) => Outcome::Result(result),
                    Err(error) => Outcome::Failed(error),
                });
            }),
        }
    }

    fn refuse(self: Box<Self>, error: Error) {
        self.completion.complete(Outcome::Failed(error));
    }
}
