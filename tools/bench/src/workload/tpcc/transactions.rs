//! The five transactions: clauses 2.4.2 to 2.8.2.
//!
//! A row that is changed is locked before it is read, so no change is lost at any isolation level.

use super::draw::{Input, LineInput, Named};
use super::population::{is_original, now};
use super::tables::{
    BAD_CREDIT, BY_CUSTOMER, BY_NAME, CUSTOMER_DATA_BYTES, CUSTOMERS, Cents, Customer, CustomerKey, DISTRICTS,
    DISTRICTS_EACH, DistrictKey, HISTORY, History, HistoryKey, ITEMS, LineKey, NEW_ORDERS, ORDER_LINES, ORDERS, Order,
    OrderKey, OrderLine, Rate, STOCKS, Stock, StockKey, Text, WAREHOUSES, WarehouseId, lost,
};
use crate::workload::End;
use foreshore::{Key, Result, RowLock, Table, Timestamp, Transaction, Value};
use std::collections::BTreeSet;
use std::hint::black_box;

/// Orders of a district whose items a Stock Level looks at.
const LAST_ORDERS: u32 = 20;

/// What a transaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) end: End,
    /// Whether the order was entered, or an order of each district delivered. All others succeed.
    pub(super) has_succeeded: bool,
    /// What it adds to the sum of all that transactions change: see [`super::check`].
    pub(super) change: u64,
}

/// Runs a transaction up to its end. A payment is noted under `history`.
///
/// # Errors
/// What the engine gives; `Foreign` if the database lacks a row of the population.
pub(super) fn apply(tx: &Transaction, input: &Input, history: HistoryKey) -> Result<Done> {
    let done = |change| Done { end: End::Commit, has_succeeded: true, change };
    match *input {
        Input::NewOrder { customer, ref lines } => Ok(match new_order(tx, customer, lines)? {
            Some(change) => done(change),
            None => Done { end: End::Rollback, has_succeeded: false, change: 0 },
        }),
        Input::Payment { home, of, customer, amount } => {
            payment(tx, (home, of), customer, amount, history)?;
            Ok(done(amount.cast_unsigned() + 1))
        }
        Input::OrderStatus { home, customer } => order_status(tx, home, customer).map(|()| done(0)),
        Input::Delivery { w_id, carrier_id } => {
            let delivered = delivery(tx, w_id, carrier_id)?;
            Ok(Done { has_succeeded: delivered == u64::from(DISTRICTS_EACH), ..done(delivered) })
        }
        Input::StockLevel { home, threshold } => {
            black_box(stock_level(tx, home, threshold)?);
            Ok(done(0))
        }
    }
}

/// Changes a row that must be there, and returns what it is then.
fn change<K: Key, V: Value<Owned = V>>(
    table: &Table<'_, K, V>,
    key: K::Ref<'_>,
    change: impl FnOnce(&mut V),
) -> Result<V> {
    let mut row = table.get_for_update(&key)?.ok_or_else(lost)?;
    change(&mut row);
    table.put(&key, V::to_ref(&row))?;
    Ok(row)
}

/// Returns a row that must be there.
fn get<K: Key, V: Value<Owned = V>>(table: &Table<'_, K, V>, key: K::Ref<'_>) -> Result<V> {
    table.get(&key)?.ok_or_else(lost)
}

/// Enters an order, and returns what it changes; `None` if an item does not exist. The order is to be rolled back then.
fn new_order(tx: &Transaction, customer: CustomerKey, lines: &[LineInput]) -> Result<Option<u64>> {
    let (w_id, d_id, c_id) = customer;
    let warehouse = get(&tx.open(WAREHOUSES)?, w_id)?;
    let district = change(&tx.open(DISTRICTS)?, (w_id, d_id), |district| district.next_o_id += 1)?;
    let discount = get(&tx.open(CUSTOMERS)?, customer)?.discount;
    let o_id = district.next_o_id - 1;
    let all_local = lines.iter().all(|line| line.stock.0 == w_id);
    let order = Order { c_id, entry_d: now(), ol_cnt: lines.len() as u8, all_local, carrier_id: None };
    tx.open(ORDERS)?.insert_new((w_id, d_id, o_id), &order)?;
    tx.open(NEW_ORDERS)?.insert_new((w_id, d_id, o_id), ())?;
    let i_ids: Vec<u32> = lines.iter().map(|line| line.stock.1).collect();
    let items = tx.open(ITEMS)?.get_many(&i_ids)?;
    let (stocks, order_lines) = (tx.open(STOCKS)?, tx.open(ORDER_LINES)?);
    let (mut sum, mut changed) = (0, 1);
    for (line, item) in lines.iter().zip(items) {
        let (supply_w_id, i_id) = line.stock;
        // The lines before have been entered, as clause 2.4.2.3 demands.
        let Some(item) = item else { return Ok(None) };
        let stock = change(&stocks, line.stock, |stock| take(stock, line.quantity, supply_w_id != w_id))?;
        let is_brand = is_original(&item.data) && is_original(&stock.data);
        let amount = i64::from(line.quantity) * item.price;
        let dist_info = stock.dist_info(d_id);
        let row = OrderLine { i_id, supply_w_id, quantity: line.quantity, amount, dist_info, delivery_d: None };
        order_lines.insert_new((w_id, d_id, o_id, line.number), &row)?;
        sum += amount;
        changed += u64::from(line.quantity) + 1 + u64::from(supply_w_id != w_id);
        black_box((item.name, stock.quantity, is_brand));
    }
    black_box(total(sum, discount, i64::from(warehouse.tax) + i64::from(district.tax)));
    Ok(Some(changed))
}

/// Takes a quantity from a stock, which is filled up by 91 before it falls below 10.
fn take(stock: &mut Stock, quantity: u8, is_remote: bool) {
    let filled = if stock.quantity >= quantity + 10 { stock.quantity } else { stock.quantity + 91 };
    stock.quantity = filled - quantity;
    stock.ytd += u64::from(quantity);
    stock.order_cnt += 1;
    stock.remote_cnt += u32::from(is_remote);
}

/// The total of an order, by the discount of its customer and both taxes.
fn total(sum: Cents, discount: Rate, tax: i64) -> Cents {
    let one = 10_000;
    sum * (one - i64::from(discount)) / one * (one + tax) / one
}

/// Books a payment at the district `home` of a customer of the district `of`.
fn payment(
    tx: &Transaction,
    (home, of): (DistrictKey, DistrictKey),
    customer: Named,
    amount: Cents,
    history: HistoryKey,
) -> Result<()> {
    let warehouse = change(&tx.open(WAREHOUSES)?, home.0, |warehouse| warehouse.ytd += amount)?;
    let district = change(&tx.open(DISTRICTS)?, home, |district| district.ytd += amount)?;
    let customers = tx.open(CUSTOMERS)?;
    let key = find(&customers, of, customer)?;
    black_box(change(&customers, key, |row| {
        row.balance -= amount;
        row.ytd_payment += amount;
        row.payment_cnt += 1;
        if row.credit == BAD_CREDIT {
            note(&mut row.data, key, home, amount);
        }
    })?);
    let mut data: Text<24> = [b' '; 24];
    data[..10].copy_from_slice(&warehouse.name);
    data[14..].copy_from_slice(&district.name);
    let row = History { customer: key, district: home, date: now(), amount, data };
    tx.open(HISTORY)?.insert_new(history, &row)
}

/// Puts a payment in front of `C_DATA`.
fn note(data: &mut Vec<u8>, (c_w_id, c_d_id, c_id): CustomerKey, (w_id, d_id): DistrictKey, amount: Cents) {
    let mut noted =
        format!("{c_id} {c_d_id} {c_w_id} {d_id} {w_id} {}.{:02} ", amount / 100, amount % 100).into_bytes();
    noted.append(data);
    noted.truncate(CUSTOMER_DATA_BYTES);
    *data = noted;
}

/// Returns the key of a customer. Of those with a last name it is the one in the middle, by first names. Reads the
/// index alone, so that the row is not locked before a writer locks it.
fn find(customers: &Table<'_, CustomerKey, Customer>, (w_id, d_id): DistrictKey, by: Named) -> Result<CustomerKey> {
    match by {
        Named::Id(c_id) => Ok((w_id, d_id, c_id)),
        Named::Last(last) => {
            let names = (w_id, d_id, last, [0; 16])..=(w_id, d_id, last, [u8::MAX; 16]);
            let found: Vec<_> = customers.by_index(BY_NAME)?.keys(names).collect::<Result<_>>()?;
            let middle = found.len().div_ceil(2).checked_sub(1).ok_or_else(lost)?;
            Ok(found[middle].1)
        }
    }
}

/// Reads the last order of a customer.
fn order_status(tx: &Transaction, home: DistrictKey, customer: Named) -> Result<()> {
    let customers = tx.open(CUSTOMERS)?;
    let key = find(&customers, home, customer)?;
    black_box(get(&customers, key)?);
    let last = tx.open(ORDERS)?.by_index(BY_CUSTOMER)?.range(key..=key).next_back();
    let ((w_id, d_id, o_id), order) = last.transpose()?.ok_or_else(lost)?;
    black_box(order);
    for line in tx.open(ORDER_LINES)?.range((w_id, d_id, o_id, 0)..=(w_id, d_id, o_id, u8::MAX)) {
        black_box(line?);
    }
    Ok(())
}

/// Delivers the oldest new order of each district, and returns how many there were.
fn delivery(tx: &Transaction, w_id: WarehouseId, carrier_id: u8) -> Result<u64> {
    let tables = Shipping {
        new_orders: tx.open(NEW_ORDERS)?,
        orders: tx.open(ORDERS)?,
        lines: tx.open(ORDER_LINES)?,
        customers: tx.open(CUSTOMERS)?,
    };
    let at = now();
    let mut delivered = 0;
    for d_id in 1..=DISTRICTS_EACH {
        delivered += u64::from(tables.deliver((w_id, d_id), carrier_id, at)?);
    }
    Ok(delivered)
}

/// The tables of a delivery, open.
struct Shipping<'tx> {
    new_orders: Table<'tx, OrderKey, ()>,
    orders: Table<'tx, OrderKey, Order>,
    lines: Table<'tx, LineKey, OrderLine>,
    customers: Table<'tx, CustomerKey, Customer>,
}

impl Shipping<'_> {
    /// Delivers the oldest new order of a district. Returns whether there was one.
    fn deliver(&self, (w_id, d_id): DistrictKey, carrier_id: u8, at: Timestamp) -> Result<bool> {
        let new = (w_id, d_id, 0)..=(w_id, d_id, u32::MAX);
        let Some((key, ())) = self.new_orders.range_locked(new, RowLock::update()).next().transpose()? else {
            return Ok(false);
        };
        self.new_orders.remove(key)?;
        let order = change(&self.orders, key, |order| order.carrier_id = Some(carrier_id))?;
        let mut sum = 0;
        let of_order = (w_id, d_id, key.2, 0)..=(w_id, d_id, key.2, u8::MAX);
        for entry in self.lines.range_locked(of_order, RowLock::update()) {
            let (key, line) = entry?;
            sum += line.amount;
            self.lines.put(key, &OrderLine { delivery_d: Some(at), ..line })?;
        }
        change(&self.customers, (w_id, d_id, order.c_id), |customer| {
            customer.balance += sum;
            customer.delivery_cnt += 1;
        })?;
        Ok(true)
    }
}

/// Counts the items of the last orders of a district whose stock is below `threshold`.
fn stock_level(tx: &Transaction, (w_id, d_id): DistrictKey, threshold: u8) -> Result<usize> {
    let next = get(&tx.open(DISTRICTS)?, (w_id, d_id))?.next_o_id;
    // In the order in which orders lock their stock.
    let mut keys = BTreeSet::new();
    for line in tx.open(ORDER_LINES)?.range((w_id, d_id, next.saturating_sub(LAST_ORDERS), 0)..(w_id, d_id, next, 0)) {
        keys.insert((w_id, line?.1.i_id));
    }
    let keys: Vec<StockKey> = keys.into_iter().collect();
    let stocks = tx.open(STOCKS)?.get_many(&keys)?;
    stocks.into_iter().try_fold(0, |low, stock| {
        let stock = stock.ok_or_else(lost)?;
        Ok(low + usize::from(stock.quantity < threshold))
    })
}
