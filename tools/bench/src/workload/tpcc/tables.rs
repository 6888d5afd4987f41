//! The nine tables, and the two indexes.
//!
//! Rows are structs with derived encodings, keys are tuples. Numbers that transactions change come first.

use foreshore::{Error, IndexDef, TableDef, Timestamp};
use foreshore_derive::Value;

/// Text of up to `N` characters, with spaces behind it, as clause 1.3.1 allows.
pub(super) type Text<const N: usize> = [u8; N];
/// An amount of money, in cents.
pub(super) type Cents = i64;
/// A tax or a discount, in ten-thousandths.
pub(super) type Rate = u16;

/// `W_ID`, from 1.
pub(super) type WarehouseId = u16;
/// `D_W_ID`, `D_ID`.
pub(super) type DistrictKey = (WarehouseId, u8);
/// `C_W_ID`, `C_D_ID`, `C_ID`.
pub(super) type CustomerKey = (WarehouseId, u8, u32);
/// `O_W_ID`, `O_D_ID`, `O_ID`.
pub(super) type OrderKey = (WarehouseId, u8, u32);
/// `OL_W_ID`, `OL_D_ID`, `OL_O_ID`, `OL_NUMBER`.
pub(super) type LineKey = (WarehouseId, u8, u32, u8);
/// `S_W_ID`, `S_I_ID`.
pub(super) type StockKey = (WarehouseId, u32);
/// Run, thread and number of the payment. The specification gives history no primary key.
pub(super) type HistoryKey = (u64, u32, u64);

/// Districts of a warehouse.
pub(super) const DISTRICTS_EACH: u8 = 10;
/// The longest `C_DATA`.
pub(super) const CUSTOMER_DATA_BYTES: usize = 500;
/// `C_CREDIT` of a customer with bad credit.
pub(super) const BAD_CREDIT: Text<2> = *b"BC";

#[derive(Clone, Debug, Value)]
#[foreshore(name = "tpcc address")]
pub(super) struct Address {
    pub(super) street_1: Text<20>,
    pub(super) street_2: Text<20>,
    pub(super) city: Text<20>,
    pub(super) state: Text<2>,
    pub(super) zip: Text<9>,
}

#[derive(Clone, Debug, Value)]
#[foreshore(name = "tpcc warehouse")]
pub(super) struct Warehouse {
    pub(super) ytd: Cents,
    pub(super) tax: Rate,
    pub(super) name: Text<10>,
    pub(super) address: Address,
}

#[derive(Clone, Debug, Value)]
#[foreshore(name = "tpcc district")]
pub(super) struct District {
    pub(super) ytd: Cents,
    pub(super) next_o_id: u32,
    pub(super) tax: Rate,
    pub(super) name: Text<10>,
    pub(super) address: Address,
}

#[derive(Clone, Debug, Value)]
#[foreshore(name = "tpcc customer")]
pub(super) struct Customer {
    pub(super) balance: Cents,
    pub(super) ytd_payment: Cents,
    pub(super) payment_cnt: u32,
    pub(super) delivery_cnt: u32,
    pub(super) credit_lim: Cents,
    pub(super) discount: Rate,
    pub(super) credit: Text<2>,
    pub(super) first: Text<16>,
    pub(super) middle: Text<2>,
    pub(super) last: Text<16>,
    pub(super) address: Address,
    pub(super) phone: Text<16>,
    pub(super) since: Timestamp,
    pub(super) data: Vec<u8>,
}

#[derive(Clone, Debug, Value)]
#[foreshore(name = "tpcc history")]
pub(super) struct History {
    pub(super) customer: (WarehouseId, u8, u32),
    pub(super) district: (WarehouseId, u8),
    pub(super) date: Timestamp,
    pub(super) amount: Cents,
    pub(super) data: Text<24>,
}

#[derive(Clone, Debug, Value)]
#[foreshore(name = "tpcc order")]
pub(super) struct Order {
    pub(super) c_id: u32,
    pub(super) entry_d: Timestamp,
    pub(super) ol_cnt: u8,
    pub(super) all_local: bool,
    /// `None` until the order is delivered.
    pub(super) carrier_id: Option<u8>,
}

#[derive(Clone, Debug, Value)]
#[foreshore(name = "tpcc order line")]
pub(super) struct OrderLine {
    pub(super) i_id: u32,
    pub(super) supply_w_id: WarehouseId,
    pub(super) quantity: u8,
    pub(super) amount: Cents,
    pub(super) dist_info: Text<24>,
    /// `None` until the order is delivered.
    pub(super) delivery_d: Option<Timestamp>,
}

#[derive(Clone, Debug, Value)]
#[foreshore(name = "tpcc item")]
pub(super) struct Item {
    pub(super) im_id: u32,
    pub(super) price: Cents,
    pub(super) name: Text<24>,
    pub(super) data: Text<50>,
}

#[derive(Clone, Debug, Value)]
#[foreshore(name = "tpcc stock")]
pub(super) struct Stock {
    pub(super) quantity: u8,
    pub(super) ytd: u64,
    pub(super) order_cnt: u32,
    pub(super) remote_cnt: u32,
    /// `S_DIST_01` to `S_DIST_10`, of 24 characters each.
    pub(super) dist: Text<240>,
    pub(super) data: Text<50>,
}

impl Stock {
    /// Returns `S_DIST_xx` of a district.
    pub(super) fn dist_info(&self, d_id: u8) -> Text<24> {
        let texts = self.dist.as_chunks().0;
        texts.get(usize::from(d_id).wrapping_sub(1)).copied().unwrap_or([b' '; 24])
    }
}

/// Finds customers by `C_W_ID`, `C_D_ID`, `C_LAST`, in the order of `C_FIRST`.
pub(super) const BY_NAME: IndexDef<CustomerKey, Customer, (WarehouseId, u8, Text<16>, Text<16>)> =
    IndexDef::new("by name", |&(w_id, d_id, _), customer: &Customer, keys| {
        keys.add((w_id, d_id, customer.last, customer.first));
    });
/// Finds orders by `O_W_ID`, `O_D_ID`, `O_C_ID`, in the order of `O_ID`.
pub(super) const BY_CUSTOMER: IndexDef<OrderKey, Order, CustomerKey> =
    IndexDef::new("by customer", |&(w_id, d_id, _), order: &Order, keys| keys.add((w_id, d_id, order.c_id)));

pub(super) const WAREHOUSES: TableDef<'_, WarehouseId, Warehouse> = TableDef::new("warehouse");
pub(super) const DISTRICTS: TableDef<'_, DistrictKey, District> = TableDef::new("district");
pub(super) const CUSTOMERS: TableDef<'_, CustomerKey, Customer> = TableDef::new("customer").with_indexes(&[&BY_NAME]);
pub(super) const HISTORY: TableDef<'_, HistoryKey, History> = TableDef::new("history");
pub(super) const NEW_ORDERS: TableDef<'_, OrderKey, ()> = TableDef::new("new_order");
pub(super) const ORDERS: TableDef<'_, OrderKey, Order> = TableDef::new("orders").with_indexes(&[&BY_CUSTOMER]);
pub(super) const ORDER_LINES: TableDef<'_, LineKey, OrderLine> = TableDef::new("order_line");
/// Key: `I_ID`.
pub(super) const ITEMS: TableDef<'_, u32, Item> = TableDef::new("item");
pub(super) const STOCKS: TableDef<'_, StockKey, Stock> = TableDef::new("stock");

/// The error for a database without a row that the population has.
pub(super) fn lost() -> Error {
    Error::Foreign { path: "tpcc".into(), why: "not the rows that TPC-C loads" }
}
