//! Orders that are found by customer and by state, with a number that is unique: three indexes, which the engine keeps.
//!
//! ```text
//! cargo run -p foreshore --example secondary_index
//! ```

use foreshore::{Db, Error, IndexDef, Options, TableDef};
use std::time::Duration;

/// Customer, state, and number on the invoice, if there is one.
type Order = (&'static str, &'static str, Option<u32>);
/// The same, as it is read.
type OwnedOrder = (String, String, Option<u32>);

const BY_CUSTOMER: IndexDef<u64, Order, &str> =
    IndexDef::new("by customer", |_, order: &OwnedOrder, keys| keys.add(order.0.as_str()));
/// Only orders that are not delivered, so that the index stays small.
const OPEN_BY_STATE: IndexDef<u64, Order, &str> = IndexDef::new("open by state", |_, order: &OwnedOrder, keys| {
    if order.1 != "delivered" {
        keys.add(order.1.as_str());
    }
});
const BY_INVOICE: IndexDef<u64, Order, u32> =
    IndexDef::unique("by invoice", |_, order: &OwnedOrder, keys| order.2.iter().for_each(|number| keys.add(number)));

const ORDERS: TableDef<u64, Order> = TableDef::new("orders").with_indexes(&[&BY_CUSTOMER, &OPEN_BY_STATE, &BY_INVOICE]);

fn main() -> Result<(), Error> {
    let db = Options::in_memory().open("orders")?;
    db.run(|tx| {
        let orders = tx.open(ORDERS)?;
        orders.insert_new(1, ("ada", "packed", Some(100)))?;
        orders.insert_new(2, ("grace", "new", None))?;
        orders.insert_new(3, ("ada", "new", None))
    })?;
    println!("orders of ada: {:?}", orders_of(&db, "ada")?);
    assert_eq!(orders_of(&db, "ada")?, [1, 3]);

    // The entries move with the row, in its transaction.
    db.run(|tx| {
        let orders = tx.open(ORDERS)?;
        orders.update_with(1, |order| order.map(|(customer, _, invoice)| (customer, "delivered".into(), invoice)))
    })?;
    let reader = db.read();
    let open = reader.open(ORDERS)?.by_index(OPEN_BY_STATE)?.keys(..).collect::<Result<Vec<_>, _>>()?;
    println!("open orders: {open:?}");
    assert_eq!(open, [("new".to_owned(), 2), ("new".to_owned(), 3)]);

    // The write is refused, and the transaction may go on.
    let next = db.run(|tx| {
        let orders = tx.open(ORDERS)?;
        let taken = orders.put(2, ("grace", "packed", Some(100)));
        println!("an invoice that is taken: {}", taken.as_ref().expect_err("order 1 has it"));
        assert!(matches!(taken, Err(Error::IndexKeyExists { .. })));
        let last = orders.by_index(BY_INVOICE)?.keys(..).next_back().transpose()?;
        let next = last.map_or(1, |(number, _)| number + 1);
        orders.put(2, ("grace", "packed", Some(next)))?;
        Ok::<_, Error>(next)
    })?;
    assert_eq!(next, 101);
    assert_eq!(db.read().open(ORDERS)?.by_index(BY_INVOICE)?.get(next)?.map(|(id, _)| id), Some(2));
    drop(reader);
    db.close(Duration::from_secs(1))
}

fn orders_of(db: &Db, customer: &str) -> Result<Vec<u64>, Error> {
    let reader = db.read();
    let index = reader.open(ORDERS)?.by_index(BY_CUSTOMER)?;
    index.range(customer..=customer).map(|row| row.map(|(id, _)| id)).collect()
}
