//! What is loaded: clause 4.3.3 of the specification.

use super::numbers::{COUNTED_NAMES, Constants, Size, between, last_name};
use super::tables::{
    Address, BAD_CREDIT, CUSTOMERS, Cents, Customer, DISTRICTS, DISTRICTS_EACH, District, DistrictKey, HISTORY,
    History, HistoryKey, ITEMS, Item, LineKey, NEW_ORDERS, ORDER_LINES, ORDERS, Order, OrderKey, OrderLine, STOCKS,
    Stock, Text, WAREHOUSES, Warehouse, WarehouseId,
};
use crate::Progress;
use crate::random::Random;
use foreshore::{Db, Error, LoadOptions, Result, Timestamp};
use std::time::{SystemTime, UNIX_EPOCH};

/// Part of a page that loads fill of the tables whose rows grow: with `C_DATA`, and when an order is delivered.
const FILL_PERCENT: u8 = 90;
/// Rows of a loading transaction of items and stock.
const BATCH: u32 = 10_000;
/// Tells the draws of the population from those of the workers.
const POPULATION: u64 = 1 << 62;
/// What each customer has paid.
const FIRST_PAYMENT: Cents = 1000;
/// Digits and letters of an a-string.
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Fills an empty database, each table in the order of its keys. Durable when it returns.
///
/// # Errors
/// What the engine gives.
pub(super) fn load(db: &Db, size: Size, seed: u64, progress: &dyn Progress) -> Result<()> {
    let loader = Loader { db, size, seed, at: now() };
    progress.phase("loading items", u64::from(size.items));
    loader.in_batches(|first, last| loader.items(first, last), progress)?;
    for w_id in 1..=size.warehouses {
        progress.phase(&format!("loading stock of warehouse {w_id}"), u64::from(size.items));
        loader.in_batches(|first, last| loader.stock(w_id, first, last), progress)?;
        let row = loader.warehouse(w_id);
        db.run(|tx| tx.open(WAREHOUSES)?.load([(w_id, &row)]))?;
        progress.phase(&format!("loading districts of warehouse {w_id}"), u64::from(DISTRICTS_EACH));
        for d_id in 1..=DISTRICTS_EACH {
            loader.district((w_id, d_id))?;
            progress.at(u64::from(d_id));
        }
    }
    Ok(())
}

/// A load.
struct Loader<'a> {
    db: &'a Db,
    size: Size,
    seed: u64,
    at: Timestamp,
}

impl Loader<'_> {
    /// Returns the draws of a part of the population: the same ones for the same seed.
    fn random(&self, w_id: WarehouseId, d_id: u8, first: u32) -> Random {
        Random::new(self.seed, POPULATION | (u64::from(w_id) << 40) | (u64::from(d_id) << 32) | u64::from(first))
    }

    /// Calls `load` for the first and the last item of each batch.
    fn in_batches(&self, load: impl Fn(u32, u32) -> Result<u64>, progress: &dyn Progress) -> Result<()> {
        for first in (1..=self.size.items).step_by(BATCH as usize) {
            let last = self.size.items.min(first + (BATCH - 1));
            load(first, last)?;
            progress.at(u64::from(last));
        }
        Ok(())
    }

    fn items(&self, first: u32, last: u32) -> Result<u64> {
        self.db.run(|tx| {
            let mut random = self.random(0, 0, first);
            let rows = (first..=last).map(|i_id| (i_id, item(&mut random)));
            tx.open(ITEMS)?.load_owned(LoadOptions::new(), rows)
        })
    }

    fn stock(&self, w_id: WarehouseId, first: u32, last: u32) -> Result<u64> {
        self.db.run(|tx| {
            let mut random = self.random(w_id, 0, first);
            let rows = (first..=last).map(|i_id| ((w_id, i_id), stock(&mut random)));
            tx.open(STOCKS)?.load_owned(LoadOptions::new(), rows)
        })
    }

    /// Loads a district with its customers, their history, and its orders.
    fn district(&self, key: DistrictKey) -> Result<()> {
        let mut random = self.random(key.0, key.1, 0);
        let district = self.district_row(&mut random);
        let customers: Vec<Customer> = (1..=self.size.customers).map(|c_id| self.customer(&mut random, c_id)).collect();
        let customers = || (1..).zip(&customers).map(|(c_id, customer)| ((key.0, key.1, c_id), customer));
        let history: Vec<_> = (1..=self.size.customers).map(|c_id| self.history(&mut random, key, c_id)).collect();
        let orders = self.orders(&mut random, key);
        let lines: Vec<_> = orders.iter().flat_map(|order| self.lines(&mut random, order)).collect();
        let growing = LoadOptions::new().fill_percent(FILL_PERCENT);
        self.db.run(|tx| {
            tx.open(DISTRICTS)?.load([(key, &district)])?;
            tx.open(CUSTOMERS)?.load_with(growing, customers())?;
            tx.open(HISTORY)?.load(history.iter().map(|(key, row)| (key, row)))?;
            tx.open(ORDERS)?.load_with(growing, orders.iter().map(|(key, row)| (key, row)))?;
            let new = orders.iter().filter(|(_, order)| order.carrier_id.is_none());
            tx.open(NEW_ORDERS)?.load(new.map(|(key, _)| (key, ())))?;
            tx.open(ORDER_LINES)?.load_with(growing, lines.iter().map(|(key, row)| (key, row)))?;
            Ok::<_, Error>(())
        })
    }

    fn warehouse(&self, w_id: WarehouseId) -> Warehouse {
        let random = &mut self.random(w_id, 0, 0);
        Warehouse {
            ytd: i64::from(DISTRICTS_EACH) * self.district_ytd(),
            tax: random.below(2001) as u16,
            name: text(random, 6, 10),
            address: address(random),
        }
    }

    fn district_row(&self, random: &mut Random) -> District {
        District {
            ytd: self.district_ytd(),
            next_o_id: self.size.customers + 1,
            tax: random.below(2001) as u16,
            name: text(random, 6, 10),
            address: address(random),
        }
    }

    /// Each customer has paid once: 30,000.00 in the size that the specification sets.
    fn district_ytd(&self) -> Cents {
        FIRST_PAYMENT * i64::from(self.size.customers)
    }

    fn customer(&self, random: &mut Random, c_id: u32) -> Customer {
        let name = match c_id {
            ..=COUNTED_NAMES => u64::from(c_id - 1),
            _ => Constants::LOAD.name(random, COUNTED_NAMES),
        };
        Customer {
            balance: -FIRST_PAYMENT,
            ytd_payment: FIRST_PAYMENT,
            payment_cnt: 1,
            delivery_cnt: 0,
            credit_lim: 5_000_000,
            discount: random.below(5001) as u16,
            credit: if random.below(10) == 0 { BAD_CREDIT } else { *b"GC" },
            first: text(random, 8, 16),
            middle: *b"OE",
            last: last_name(name),
            address: address(random),
            phone: digits(random),
            since: self.at,
            data: letters(random, 300, 500),
        }
    }

    /// One payment for each customer.
    fn history(&self, random: &mut Random, (w_id, d_id): DistrictKey, c_id: u32) -> (HistoryKey, History) {
        let districts_before = (u64::from(w_id) - 1) * u64::from(DISTRICTS_EACH) + u64::from(d_id) - 1;
        let number = districts_before * u64::from(self.size.customers) + u64::from(c_id);
        let customer = (w_id, d_id, c_id);
        let data = text(random, 12, 24);
        ((0, 0, number), History { customer, district: (w_id, d_id), date: self.at, amount: FIRST_PAYMENT, data })
    }

    /// One order of each customer, in any order.
    fn orders(&self, random: &mut Random, (w_id, d_id): DistrictKey) -> Vec<(OrderKey, Order)> {
        let mut customers: Vec<u32> = (1..=self.size.customers).collect();
        for at in (1..customers.len()).rev() {
            customers.swap(at, random.below(at as u64 + 1) as usize);
        }
        let order = |(o_id, c_id)| {
            let carrier_id = (o_id <= self.size.delivered()).then(|| between(random, 1, 10) as u8);
            let ol_cnt = between(random, 5, 15) as u8;
            ((w_id, d_id, o_id), Order { c_id, entry_d: self.at, ol_cnt, all_local: true, carrier_id })
        };
        (1..).zip(customers).map(order).collect()
    }

    fn lines(&self, random: &mut Random, (key, order): &(OrderKey, Order)) -> Vec<(LineKey, OrderLine)> {
        let &(w_id, d_id, o_id) = key;
        let is_delivered = order.carrier_id.is_some();
        let line = |number| {
            let line = OrderLine {
                i_id: 1 + random.below(u64::from(self.size.items)) as u32,
                supply_w_id: w_id,
                quantity: 5,
                amount: if is_delivered { 0 } else { between(random, 1, 999_999) as i64 },
                dist_info: text(random, 24, 24),
                delivery_d: is_delivered.then_some(order.entry_d),
            };
            ((w_id, d_id, o_id, number), line)
        };
        (1..=order.ol_cnt).map(line).collect()
    }
}

fn item(random: &mut Random) -> Item {
    Item {
        im_id: between(random, 1, 10_000) as u32,
        price: between(random, 100, 10_000) as i64,
        name: text(random, 14, 24),
        data: data(random),
    }
}

fn stock(random: &mut Random) -> Stock {
    Stock {
        quantity: between(random, 10, 100) as u8,
        ytd: 0,
        order_cnt: 0,
        remote_cnt: 0,
        dist: text(random, 240, 240),
        data: data(random),
    }
}

fn address(random: &mut Random) -> Address {
    let mut zip = *b"000011111";
    zip[..4].copy_from_slice(&digits::<4>(random));
    Address {
        street_1: text(random, 10, 20),
        street_2: text(random, 10, 20),
        city: text(random, 10, 20),
        state: std::array::from_fn(|_| b'A' + random.below(26) as u8),
        zip,
    }
}

/// Draws `I_DATA` or `S_DATA`: one in ten has `ORIGINAL` somewhere in it.
fn data(random: &mut Random) -> Text<50> {
    let bytes = between(random, 26, 50);
    let mut data = text(random, bytes, bytes);
    if random.below(10) == 0 {
        let at = random.below(bytes - ORIGINAL.len() as u64 + 1) as usize;
        data[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
    }
    data
}

const ORIGINAL: &[u8] = b"ORIGINAL";

/// Returns whether `I_DATA` or `S_DATA` has `ORIGINAL` in it.
pub(super) fn is_original(data: &[u8]) -> bool {
    data.windows(ORIGINAL.len()).any(|part| part == ORIGINAL)
}

/// Draws an a-string of `least` to `most` letters and digits, with spaces behind.
fn text<const N: usize>(random: &mut Random, least: u64, most: u64) -> Text<N> {
    let mut text = [b' '; N];
    let bytes = between(random, least, most) as usize;
    text[..bytes].fill_with(|| letter(random));
    text
}

fn letters(random: &mut Random, least: u64, most: u64) -> Vec<u8> {
    (0..between(random, least, most)).map(|_| letter(random)).collect()
}

fn letter(random: &mut Random) -> u8 {
    LETTERS[random.below(LETTERS.len() as u64) as usize]
}

/// Draws an n-string.
fn digits<const N: usize>(random: &mut Random) -> Text<N> {
    std::array::from_fn(|_| b'0' + random.below(10) as u8)
}

/// Returns the time of the system clock.
pub(super) fn now() -> Timestamp {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or_else(|_| Timestamp::default(), Timestamp::from)
}
