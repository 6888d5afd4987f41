//! The inputs of transactions, drawn as clauses 2.4.1 to 2.8.1 say.
//!
//! Each input is that of another terminal, so it has any warehouse as its home.

use super::numbers::{Constants, Size, between, last_name, nurand};
use super::tables::{Cents, CustomerKey, DISTRICTS_EACH, DistrictKey, StockKey, Text, WarehouseId};
use crate::random::Random;

/// The kinds of transactions, with the percentage of each in the mix.
pub(super) const MIX: [(&str, u64); 5] =
    [("NEW_ORDER", 45), ("PAYMENT", 43), ("ORDER_STATUS", 4), ("DELIVERY", 4), ("STOCK_LEVEL", 4)];
/// Places in [`MIX`].
pub(super) const NEW_ORDER: usize = 0;
pub(super) const PAYMENT: usize = 1;
pub(super) const DELIVERY: usize = 3;

/// Of a hundred customers, how many are given by their last name.
const BY_NAME_PERCENT: u64 = 60;
/// Of a hundred payments, how many are those of a customer of the own warehouse.
const HOME_PERCENT: u64 = 85;
/// How a customer of a district is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Id(u32),
    Last(Text<16>),
}

/// A line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineInput {
    pub(super) number: u8,
    /// The item and the warehouse that supplies it.
    pub(super) stock: StockKey,
    pub(super) quantity: u8,
}

/// The input of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    NewOrder { customer: CustomerKey, lines: Vec<LineInput> },
    Payment { home: DistrictKey, of: DistrictKey, customer: Named, amount: Cents },
    OrderStatus { home: DistrictKey, customer: Named },
    Delivery { w_id: WarehouseId, carrier_id: u8 },
    StockLevel { home: DistrictKey, threshold: u8 },
}

/// Draws inputs for one thread.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    random: Random,
    size: Size,
    constants: Constants,
}

impl Draw {
    /// Inputs for `stream` of a run with `seed`.
    pub(super) fn new(seed: u64, stream: u64, size: Size) -> Self {
        Self { random: Random::new(seed, stream), size, constants: Constants::of_run(seed) }
    }

    /// Draws an input of the mix, and its place in [`MIX`].
    pub(super) fn any(&mut self) -> (usize, Input) {
        let mut percent = self.random.below(100);
        let mut kind = 0;
        while percent >= MIX[kind].1 {
            percent -= MIX[kind].1;
            kind += 1;
        }
        (kind, self.input(kind))
    }

    /// Draws an input of one kind, given by its place in [`MIX`].
    pub(super) fn input(&mut self, kind: usize) -> Input {
        let home = (1 + self.random.below(u64::from(self.size.warehouses)) as u16, self.district());
        match kind {
            NEW_ORDER => {
                let customer = (home.0, home.1, self.customer_id());
                Input::NewOrder { customer, lines: self.lines(home.0) }
            }
            PAYMENT => Input::Payment {
                home,
                of: self.district_of_payer(home),
                customer: self.customer(),
                amount: between(&mut self.random, 100, 500_000) as i64,
            },
            DELIVERY => Input::Delivery { w_id: home.0, carrier_id: between(&mut self.random, 1, 10) as u8 },
            2 => Input::OrderStatus { home, customer: self.customer() },
            _ => Input::StockLevel { home, threshold: between(&mut self.random, 10, 20) as u8 },
        }
    }

    fn district(&mut self) -> u8 {
        1 + self.random.below(u64::from(DISTRICTS_EACH)) as u8
    }

    fn customer_id(&mut self) -> u32 {
        1 + nurand(&mut self.random, 1023, self.constants.customer, u64::from(self.size.customers)) as u32
    }

    fn customer(&mut self) -> Named {
        if self.random.below(100) < BY_NAME_PERCENT {
            Named::Last(last_name(self.constants.name(&mut self.random, self.size.names())))
        } else {
            Named::Id(self.customer_id())
        }
    }

    fn district_of_payer(&mut self, home: DistrictKey) -> DistrictKey {
        if self.random.below(100) < HOME_PERCENT {
            return home;
        }
        (self.remote(home.0), self.district())
    }

    /// Draws a warehouse that is not `home`, if there is another.
    fn remote(&mut self, home: WarehouseId) -> WarehouseId {
        match self.size.warehouses {
            1 => home,
            warehouses => 1 + (home + self.random.below(u64::from(warehouses) - 1) as u16) % warehouses,
        }
    }

    /// Draws the lines of an order, in the order of their items. Of a hundred orders one ends with an item that does
    /// not exist, and of a hundred lines one is supplied by another warehouse.
    ///
    /// All orders lock their stock in this order, so no two of them wait for each other.
    fn lines(&mut self, home: WarehouseId) -> Vec<LineInput> {
        let count = between(&mut self.random, 5, 15) as u8;
        let is_to_fail = self.random.below(100) == 0;
        let mut lines: Vec<LineInput> = (1..=count).map(|number| self.line(home, number)).collect();
        if is_to_fail && let Some(last) = lines.last_mut() {
            last.stock.1 = self.size.items + 1;
        }
        lines.sort_unstable_by_key(|line| (line.stock.1, line.stock.0, line.number));
        lines
    }

    fn line(&mut self, home: WarehouseId, number: u8) -> LineInput {
        let i_id = 1 + nurand(&mut self.random, 8191, self.constants.item, u64::from(self.size.items)) as u32;
        let w_id = if self.random.below(100) == 0 { self.remote(home) } else { home };
        LineInput { number, stock: (w_id, i_id), quantity: between(&mut self.random, 1, 10) as u8 }
    }
}
