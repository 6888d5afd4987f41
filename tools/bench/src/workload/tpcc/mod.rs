//! TPC-C: the orders of a wholesale supplier.
//!
//! | table | key | rows at scale W |
//! |---|---|---|
//! | `warehouse` | `w_id` | W |
//! | `district` | `w_id`, `d_id` | 10 W |
//! | `customer` | `w_id`, `d_id`, `c_id` | 30,000 W |
//! | `history` | run, thread, number | 30,000 W, and one for each payment |
//! | `orders` | `w_id`, `d_id`, `o_id` | 30,000 W, and one for each order that is entered |
//! | `new_order` | as `orders` | 9,000 W: the orders that are not delivered |
//! | `order_line` | `w_id`, `d_id`, `o_id`, number | 5 to 15 for each order |
//! | `item` | `i_id` | 100,000 |
//! | `stock` | `w_id`, `i_id` | 100,000 W |
//! | `bench` | workload | 1 |
//!
//! The index `by name` finds customers by their last name, and `by customer` the orders of a customer. Five kinds of
//! transactions make the mix: 45 % New Order, 43 % Payment, 4 % each Order Status, Delivery and Stock Level.
//! `tpcc-new-order` and `tpcc-payment` run one kind alone. Money is in integer cents. The history has no primary key
//! in the specification. Here its key begins with the run, one above the largest in the table, so keys never meet.
//!
//! **Not a TPC-C result.** These choices differ from the specification, or are left open by it:
//!
//! - There are no terminals, so no keying and no think times. Each transaction is that of another terminal, whose
//!   warehouse and district are drawn.
//! - A Delivery is one transaction over all ten districts, and runs at once.
//! - The lines of an order are entered in the order of their items, so that two orders never wait for each other.
//!
//! **Isolation.** Clause 3.4.1 asks for level 3 among New Order, Payment, Delivery and Order Status, and for level 1 of
//! Stock Level. `serializable` meets that. `snapshot` does too: the mix has no dangerous structure ("Making snapshot
//! isolation serializable", Fekete and others, 2005). `read-committed` is allowed for Stock Level alone. The checks
//! hold at each level, because a row that is changed is locked before it is read.
//!
//! Source: TPC Benchmark C, Standard Specification, revision 5.11.

mod check;
mod draw;
mod numbers;
mod population;
mod tables;
mod transactions;

use super::{Audit, End, Transactions, Work, Worker, mark};
use crate::report::Kind;
use crate::{Config, Progress};
use draw::{Draw, Input, MIX, NEW_ORDER, PAYMENT};
use foreshore::{Db, Result, Transaction};
use numbers::Size;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tables::HistoryKey;
use transactions::Done;

const NAME: &str = "tpcc";

/// The workload at its scale.
#[derive(Debug)]
pub(super) struct Tpcc {
    seed: u64,
    size: Size,
    /// The only kind of transactions, by its place in the mix.
    only: Option<usize>,
    counts: Arc<Mutex<Counts>>,
}

/// What the workers of a row have done.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Transactions, and those that succeeded, in the order of the mix.
    kinds: [(u64, u64); MIX.len()],
    /// What they added to the sum that an audit counts.
    change: u64,
}

impl Tpcc {
    /// The whole mix.
    pub(super) fn new(config: &Config) -> Self {
        // The scale is checked before.
        let warehouses = u16::try_from(config.scale).unwrap_or(u16::MAX);
        Self { seed: config.seed, size: Size::new(warehouses), only: None, counts: Arc::default() }
    }

    /// Payment alone.
    pub(super) fn payment(config: &Config) -> Self {
        Self { only: Some(PAYMENT), ..Self::new(config) }
    }

    /// New Order alone.
    pub(super) fn new_order(config: &Config) -> Self {
        Self { only: Some(NEW_ORDER), ..Self::new(config) }
    }
}

impl Work for Tpcc {
    fn checks(&self) -> [&'static str; 2] {
        ["conditions", "changes"]
    }

    fn load(&self, db: &Db, progress: &dyn Progress) -> Result<()> {
        population::load(db, self.size, self.seed, progress)?;
        mark::set(db, NAME, u64::from(self.size.warehouses))
    }

    fn resume(&self, db: &Db, dir: &Path) -> Result<()> {
        mark::check(db, dir, NAME, ("scale", u64::from(self.size.warehouses)))
    }

    fn read_in(&self, db: &Db) -> Result<()> {
        check::read_in(db)
    }

    fn audit(&self, db: &Db) -> Result<Audit> {
        Ok(check::audit(db, self.size)?.into())
    }

    fn count_after(&self, before: u64, _: u64) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        before.wrapping_add(std::mem::take(&mut counts.change))
    }

    fn take_kinds(&self) -> Vec<Kind> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = std::mem::take(&mut counts.kinds);
        let named = MIX.iter().zip(kinds);
        named.map(|(&(kind, _), (transactions, succeeded))| Kind { kind, transactions, succeeded }).collect()
    }

    fn check_kinds(&self, kinds: &[Kind]) -> Vec<(&'static str, bool)> {
        vec![("success_ratios", check::succeed_as_expected(kinds))]
    }

    fn transactions(&self, worker: Worker) -> Box<dyn Transactions + Send> {
        Box::new(Calls {
            draw: Draw::new(self.seed, worker.stream(), self.size),
            only: self.only,
            next: None,
            history: (worker.run, worker.thread, 0),
            done: None,
            counts: Counts::default(),
            shared: Arc::clone(&self.counts),
        })
    }
}

/// The transactions of one worker.
struct Calls {
    draw: Draw,
    only: Option<usize>,
    /// What was drawn, and its place in the mix.
    next: Option<(usize, Input)>,
    /// The key of the next payment.
    history: HistoryKey,
    /// What the transaction did that was applied last.
    done: Option<Done>,
    counts: Counts,
    /// Gets the counts when the worker ends.
    shared: Arc<Mutex<Counts>>,
}

impl Transactions for Calls {
    fn draw(&mut self) {
        self.next = Some(match self.only {
            Some(kind) => (kind, self.draw.input(kind)),
            None => self.draw.any(),
        });
        self.history.2 += 1;
    }

    fn apply(&mut self, tx: &Transaction) -> Result<End> {
        let (_, input) = self.next.as_ref().expect("an input is drawn before it is applied");
        let done = transactions::apply(tx, input, self.history)?;
        self.done = Some(done);
        Ok(done.end)
    }

    fn ended(&mut self, _: End) {
        let ended = self.next.as_ref().zip(self.done);
        let ((kind, _), done) = ended.expect("a transaction ends after it was applied");
        let (transactions, succeeded) = &mut self.counts.kinds[*kind];
        *transactions += 1;
        *succeeded += u64::from(done.has_succeeded);
        self.counts.change = self.counts.change.wrapping_add(done.change);
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, own) in shared.kinds.iter_mut().zip(self.counts.kinds) {
            *sum = (sum.0 + own.0, sum.1 + own.1);
        }
        shared.change = shared.change.wrapping_add(self.counts.change);
    }
}

#[cfg(test)]
mod tests;
