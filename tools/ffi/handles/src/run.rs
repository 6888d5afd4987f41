//! Transactions as functions, run again when other transactions ended them.

use crate::{Database, Fault, Ticket, Transaction};
use foreshore::{Error, TxnOptions};

/// Why a run has ended.
enum Failed<E> {
    Engine(Error),
    Body(E),
}

impl<E> From<Error> for Failed<E> {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// Ends the handle of a run, also if its function panics.
///
/// A child that the function has forked must not get past this: whatever the function returns, the engine ends the
/// transaction, and may write to the log of the parent. So the child is aborted.
struct EndRun(Transaction);

impl Drop for EndRun {
    fn drop(&mut self) {
        self.0.shared().process().must_be_present();
        self.0.end_run();
    }
}

impl Transaction {
    /// Runs `body` in a transaction and commits it, as `Db::run_with` does. `body` gets a handle that ends when it
    /// returns. A child process that `body` has forked, and in which it returns, is aborted.
    ///
    /// # Errors
    /// The error of `body`, or that of the run.
    pub fn run<T, E: From<Fault>>(
        db: &Database,
        options: TxnOptions,
        mut body: impl FnMut(&Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let ran = db.get()?.run_with(options, |tx| Self::in_run(db, tx, &mut body));
        ran.map_err(outcome)
    }

    /// Runs `body` like [`run`](Self::run), and does not wait for the disk.
    ///
    /// # Errors
    /// The error of `body`, or that of the run.
    pub fn run_pipelined<T, E: From<Fault>>(
        db: &Database,
        options: TxnOptions,
        mut body: impl FnMut(&Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<(T, Ticket), E> {
        let ran = db.get()?.run_pipelined_with(options, |tx| Self::in_run(db, tx, &mut body));
        ran.map(|(value, ticket)| (value, Ticket::new(ticket, db.process()))).map_err(outcome)
    }

    fn in_run<T, E>(
        db: &Database,
        tx: &foreshore::Transaction,
        body: &mut impl FnMut(&Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, Failed<E>> {
        let handle = EndRun(Self::of_run(db.process(), tx));
        body(&handle.0).map_err(Failed::Body)
    }
}

fn outcome<E: From<Fault>>(failed: Failed<E>) -> E {
    match failed {
        Failed::Engine(error) => Fault::from(error).into(),
        Failed::Body(error) => error,
    }
}
