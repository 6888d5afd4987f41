//! The checks: the twelve consistency conditions of clause 3.3.2, and whether every commit is there.
//!
//! All that transactions add up is added up here: orders, their quantities and stock counts, payments and their cents,
//! and deliveries. A transaction knows how it changes the sum, so a lost update, a lost row and half a transaction are
//! seen.
//!
//! Condition 11 is written for a database without deliveries. Here the orders that were delivered are counted in too:
//! orders - new orders = those loaded as delivered + the sum of `C_DELIVERY_CNT`.

use super::numbers::Size;
use super::tables::{
    BY_CUSTOMER, BY_NAME, CUSTOMERS, Cents, DISTRICTS, DISTRICTS_EACH, District, DistrictKey, HISTORY, ITEMS, LineKey,
    NEW_ORDERS, ORDER_LINES, ORDERS, Order, OrderLine, STOCKS, WAREHOUSES, WarehouseId,
};
use crate::report::Kind;
use crate::workload::Audit;
use foreshore::{ByIndex, Db, Error, Key, ReadTransaction, Result, Value};
use std::iter::Peekable;

/// What an audit found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The consistency conditions, the first at 0.
    pub(super) conditions: [bool; 12],
    /// Whether there are as many warehouses, districts, customers, items and stocks as were loaded.
    pub(super) is_complete: bool,
    /// Whether the indexes agree with their tables.
    pub(super) indexes_agree: bool,
    count: u64,
    next_run: u64,
}

impl From<Found> for Audit {
    fn from(found: Found) -> Self {
        let is_sound = found.conditions == [true; 12] && found.is_complete && found.indexes_agree;
        Self { is_sound, count: found.count, next_run: found.next_run }
    }
}

/// Scans all tables of a quiet database.
///
/// # Errors
/// What the engine gives.
pub(super) fn audit(db: &Db, size: Size) -> Result<Found> {
    let tx = &db.read();
    let paid = Paid::read(tx, size)?;
    let found = Found {
        conditions: [true; 12],
        is_complete: paid.is_complete,
        indexes_agree: true,
        count: paid.count,
        next_run: paid.next_run,
    };
    let mut scan = Scan { tx, size, paid, found };
    scan.stock()?;
    let mut last = 0;
    for entry in tx.open(WAREHOUSES)?.iter() {
        let (w_id, warehouse) = entry?;
        scan.found.is_complete &= w_id == last + 1 && w_id <= size.warehouses;
        last = w_id;
        scan.warehouse(w_id, warehouse.ytd)?;
    }
    scan.found.is_complete &= last == size.warehouses;
    scan.indexes()?;
    Ok(scan.found)
}

/// The payments in the history.
struct Paid {
    /// Of each customer, by [`place`].
    by_customer: Vec<Cents>,
    /// At each district, in the order of their keys.
    at_district: Vec<Cents>,
    is_complete: bool,
    count: u64,
    next_run: u64,
}

impl Paid {
    fn read(tx: &ReadTransaction, size: Size) -> Result<Self> {
        let districts = usize::from(size.warehouses) * usize::from(DISTRICTS_EACH);
        let by_customer = vec![0; districts * size.customers as usize];
        let mut paid = Self { by_customer, at_district: vec![0; districts], is_complete: true, count: 0, next_run: 1 };
        for entry in tx.open(HISTORY)?.iter() {
            let ((run, ..), payment) = entry?;
            let (w_id, d_id, c_id) = payment.customer;
            let customer = place(size, (w_id, d_id), c_id).and_then(|at| paid.by_customer.get_mut(at));
            let district = place_of_district(payment.district).and_then(|at| paid.at_district.get_mut(at));
            let (Some(customer), Some(district)) = (customer, district) else {
                paid.is_complete = false;
                continue;
            };
            *customer += payment.amount;
            *district += payment.amount;
            paid.count = paid.count.wrapping_add(payment.amount.cast_unsigned()).wrapping_add(1);
            paid.next_run = paid.next_run.max(run + 1);
        }
        Ok(paid)
    }
}

/// The place of a district among all.
fn place_of_district((w_id, d_id): DistrictKey) -> Option<usize> {
    if !(1..=DISTRICTS_EACH).contains(&d_id) {
        return None;
    }
    Some(usize::from(w_id).checked_sub(1)? * usize::from(DISTRICTS_EACH) + usize::from(d_id - 1))
}

/// The place of a customer among all.
fn place(size: Size, district: DistrictKey, c_id: u32) -> Option<usize> {
    if !(1..=size.customers).contains(&c_id) {
        return None;
    }
    Some(place_of_district(district)? * size.customers as usize + (c_id - 1) as usize)
}

/// A running audit.
struct Scan<'a> {
    tx: &'a ReadTransaction,
    size: Size,
    paid: Paid,
    found: Found,
}

impl Scan<'_> {
    /// Notes whether a condition, counted from 1, is true of some rows.
    fn condition(&mut self, number: usize, is_true: bool) {
        self.found.conditions[number - 1] &= is_true;
    }

    fn add(&mut self, number: u64) {
        self.found.count = self.found.count.wrapping_add(number);
    }

    fn stock(&mut self) -> Result<()> {
        let items = self.tx.open(ITEMS)?.keys(..).try_fold(0, |count, key| key.map(|_| count + 1))?;
        let mut stocks = 0;
        for entry in self.tx.open(STOCKS)?.iter() {
            let (_, stock) = entry?;
            stocks += 1;
            self.found.is_complete &= (10..=100).contains(&stock.quantity);
            self.add(stock.ytd + u64::from(stock.order_cnt) + u64::from(stock.remote_cnt));
        }
        let all = u64::from(self.size.items) * u64::from(self.size.warehouses);
        self.found.is_complete &= items == u64::from(self.size.items) && stocks == all;
        Ok(())
    }

    fn warehouse(&mut self, w_id: WarehouseId, ytd: Cents) -> Result<()> {
        let (mut sum, mut paid, mut last) = (0, 0, 0);
        for entry in self.tx.open(DISTRICTS)?.range((w_id, 0)..=(w_id, u8::MAX)) {
            let (key, district) = entry?;
            self.found.is_complete &= key.1 == last + 1;
            last = key.1;
            let here = place_of_district(key).and_then(|at| self.paid.at_district.get(at)).copied().unwrap_or(0);
            self.condition(9, district.ytd == here);
            (sum, paid) = (sum + district.ytd, paid + here);
            self.district(key, &district)?;
        }
        self.found.is_complete &= last == DISTRICTS_EACH;
        self.condition(1, ytd == sum);
        self.condition(8, ytd == paid);
        Ok(())
    }

    fn district(&mut self, key: DistrictKey, district: &District) -> Result<()> {
        let (w_id, d_id) = key;
        let all = (w_id, d_id, 0)..=(w_id, d_id, u32::MAX);
        let new: Vec<u32> =
            self.tx.open(NEW_ORDERS)?.keys(all.clone()).map(|key| key.map(|key| key.2)).collect::<Result<_>>()?;
        if let (Some(&first), Some(&last)) = (new.first(), new.last()) {
            self.condition(2, district.next_o_id.checked_sub(1) == Some(last));
            self.condition(3, last - first + 1 == new.len() as u32);
        }
        let all_lines = (w_id, d_id, 0, 0)..=(w_id, d_id, u32::MAX, u8::MAX);
        let mut lines = self.tx.open(ORDER_LINES)?.range(all_lines).peekable();
        let mut seen = Orders { owed: vec![0; self.size.customers as usize], ..Orders::default() };
        for entry in self.tx.open(ORDERS)?.range(all) {
            let ((.., o_id), order) = entry?;
            self.condition(5, order.carrier_id.is_none() == new.binary_search(&o_id).is_ok());
            self.order(&mut seen, o_id, &order, &mut lines)?;
        }
        while lines.next().transpose()?.is_some() {
            seen.lines += 1;
        }
        self.condition(2, district.next_o_id.checked_sub(1) == Some(seen.last));
        self.condition(4, seen.lines_promised == seen.lines);
        self.add(seen.count);
        self.customers(key, &seen, new.len() as u64)
    }

    /// Reads an order and its lines.
    fn order(
        &mut self,
        seen: &mut Orders,
        o_id: u32,
        order: &Order,
        lines: &mut Peekable<impl Iterator<Item = Result<(LineKey, OrderLine)>>>,
    ) -> Result<()> {
        let (mut count, mut sum) = (0, 0);
        // Lines before have no order.
        while let Some(line) = lines.next_if(|line| line.as_ref().map_or(true, |(key, _)| key.2 <= o_id)) {
            let ((_, _, line_o_id, _), line) = line?;
            seen.lines += 1;
            if line_o_id == o_id {
                count += 1;
                self.condition(7, line.delivery_d.is_none() == order.carrier_id.is_none());
                sum += line.delivery_d.map_or(0, |_| line.amount);
            }
        }
        self.condition(6, count == u64::from(order.ol_cnt));
        seen.last = o_id;
        seen.count += 1;
        seen.lines_promised += u64::from(order.ol_cnt);
        match (order.c_id as usize).checked_sub(1).and_then(|at| seen.owed.get_mut(at)) {
            Some(owed) => *owed += sum,
            None => self.found.is_complete = false,
        }
        Ok(())
    }

    fn customers(&mut self, key: DistrictKey, seen: &Orders, new_orders: u64) -> Result<()> {
        let (w_id, d_id) = key;
        let (mut count, mut delivered) = (0, 0);
        for entry in self.tx.open(CUSTOMERS)?.range((w_id, d_id, 0)..=(w_id, d_id, u32::MAX)) {
            let ((.., c_id), customer) = entry?;
            let paid = place(self.size, key, c_id).and_then(|at| self.paid.by_customer.get(at)).copied();
            let owed = seen.owed.get(c_id.wrapping_sub(1) as usize).copied();
            let (Some(paid), Some(owed)) = (paid, owed) else {
                self.found.is_complete = false;
                continue;
            };
            self.condition(10, customer.balance == owed - paid);
            self.condition(12, customer.balance + customer.ytd_payment == owed);
            count += 1;
            delivered += u64::from(customer.delivery_cnt);
        }
        self.found.is_complete &= count == self.size.customers;
        self.condition(11, seen.count == new_orders + u64::from(self.size.delivered()) + delivered);
        self.add(delivered);
        Ok(())
    }

    fn indexes(&mut self) -> Result<()> {
        let customers = agrees(&self.tx.open(CUSTOMERS)?.by_index(BY_NAME)?)?;
        self.found.indexes_agree = customers && agrees(&self.tx.open(ORDERS)?.by_index(BY_CUSTOMER)?)?;
        Ok(())
    }
}

/// What the orders of a district come to.
#[derive(Default)]
struct Orders {
    count: u64,
    last: u32,
    /// Sum of `O_OL_CNT`.
    lines_promised: u64,
    lines: u64,
    /// Of each customer, for what was delivered.
    owed: Vec<Cents>,
}

fn agrees<K: Key + 'static, V: Value + 'static, I: Key + 'static>(index: &ByIndex<'_, K, V, I>) -> Result<bool> {
    match index.check() {
        Ok(_) => Ok(true),
        Err(Error::IndexMismatch { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads what transactions read, so that it is in memory.
///
/// # Errors
/// What the engine gives.
pub(super) fn read_in(db: &Db) -> Result<()> {
    let tx = db.read();
    tx.open(ITEMS)?.iter().try_for_each(|row| row.map(drop))?;
    tx.open(STOCKS)?.iter().try_for_each(|row| row.map(drop))?;
    tx.open(CUSTOMERS)?.iter().try_for_each(|row| row.map(drop))?;
    tx.open(CUSTOMERS)?.by_index(BY_NAME)?.keys(..).try_for_each(|entry| entry.map(drop))?;
    tx.open(ORDERS)?.by_index(BY_CUSTOMER)?.range(..).try_for_each(|row| row.map(drop))?;
    tx.open(ORDER_LINES)?.iter().try_for_each(|row| row.map(drop))
}

/// Transactions of a kind from which on their success is checked.
const ENOUGH: u64 = 1000;

/// Returns whether one in a hundred New Orders was rolled back, within five standard deviations, and all Payments,
/// Order Statuses and Stock Levels succeeded. A Delivery may find no order in a district.
pub(super) fn succeed_as_expected(kinds: &[Kind]) -> bool {
    use super::draw::{DELIVERY, NEW_ORDER};
    kinds.iter().enumerate().all(|(place, kind)| match place {
        NEW_ORDER if kind.transactions < ENOUGH => true,
        NEW_ORDER => {
            let failed = (kind.transactions - kind.succeeded) as f64 / kind.transactions as f64;
            (failed - 0.01).abs() <= 5.0 * (0.01 * 0.99 / kind.transactions as f64).sqrt()
        }
        DELIVERY => true,
        _ => kind.succeeded == kind.transactions,
    })
}
