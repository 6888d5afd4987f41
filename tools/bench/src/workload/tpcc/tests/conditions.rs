//! Each check can fail.

use super::*;

/// What must not be, and the conditions that show it, counted from 1.
type Flaw = (&'static str, &'static [usize], fn(&Transaction) -> Result<()>);

/// Order 3 of a district is loaded as delivered, order 25 as new.
const FLAWS: [Flaw; 12] = [
    ("a warehouse with more than its districts", &[1, 8], |tx| {
        let warehouses = tx.open(WAREHOUSES)?;
        let row = warehouses.get(1)?.unwrap();
        warehouses.put(1, &tables::Warehouse { ytd: row.ytd + 1, ..row })
    }),
    ("a lost number of an order", &[2], |tx| {
        let districts = tx.open(DISTRICTS)?;
        let row = districts.get((2, 3))?.unwrap();
        districts.put((2, 3), &tables::District { next_o_id: row.next_o_id + 1, ..row })
    }),
    ("a lost new order", &[3, 5, 11], |tx| tx.open(NEW_ORDERS)?.remove((1, 1, 25)).map(drop)),
    ("a line without an order", &[4], |tx| {
        let lines = tx.open(ORDER_LINES)?;
        let line = lines.get((1, 1, 3, 1))?.unwrap();
        lines.insert_new((1, 1, 900, 1), &line)
    }),
    ("a carrier of a new order", &[5, 7], |tx| {
        let orders = tx.open(ORDERS)?;
        let row = orders.get((1, 1, 25))?.unwrap();
        orders.put((1, 1, 25), &tables::Order { carrier_id: Some(1), ..row })
    }),
    ("a count of lines that belongs to another order", &[6], |tx| {
        let orders = tx.open(ORDERS)?;
        for (o_id, more) in [(3, 1), (4, -1)] {
            let row = orders.get((1, 1, o_id))?.unwrap();
            orders.put((1, 1, o_id), &tables::Order { ol_cnt: row.ol_cnt.wrapping_add_signed(more), ..row })?;
        }
        Ok(())
    }),
    ("a line of a delivered order that is not delivered", &[7], |tx| {
        let lines = tx.open(ORDER_LINES)?;
        let row = lines.get((1, 1, 3, 2))?.unwrap();
        lines.put((1, 1, 3, 2), &tables::OrderLine { delivery_d: None, ..row })
    }),
    ("a lost payment", &[8, 9, 10], |tx| tx.open(HISTORY)?.remove((0, 0, 7)).map(drop)),
    ("a district with more than was paid", &[1, 9], |tx| {
        let districts = tx.open(DISTRICTS)?;
        let row = districts.get((2, 3))?.unwrap();
        districts.put((2, 3), &tables::District { ytd: row.ytd + 1, ..row })
    }),
    ("a balance that was not paid", &[10], |tx| {
        let customers = tx.open(CUSTOMERS)?;
        let row = customers.get((1, 1, 9))?.unwrap();
        let (balance, ytd_payment) = (row.balance - 5, row.ytd_payment + 5);
        customers.put((1, 1, 9), &Customer { balance, ytd_payment, ..row })
    }),
    ("a delivery that was not made", &[11], |tx| {
        let customers = tx.open(CUSTOMERS)?;
        let row = customers.get((1, 1, 9))?.unwrap();
        customers.put((1, 1, 9), &Customer { delivery_cnt: row.delivery_cnt + 1, ..row })
    }),
    ("a payment that is counted twice", &[12], |tx| {
        let customers = tx.open(CUSTOMERS)?;
        let row = customers.get((1, 1, 9))?.unwrap();
        customers.put((1, 1, 9), &Customer { ytd_payment: row.ytd_payment + 5, ..row })
    }),
];

#[test]
fn every_condition_can_fail() {
    let (db, _) = loaded();
    let whole = check::audit(&db, SMALL).unwrap();
    assert!(whole.conditions == [true; 12] && whole.is_complete && whole.indexes_agree);
    for (name, broken, flaw) in FLAWS {
        let (db, tpcc) = loaded();
        db.run(flaw).unwrap();
        let found = check::audit(&db, SMALL).unwrap();
        let conditions: Vec<usize> = (1..=12).filter(|number| !found.conditions[number - 1]).collect();
        assert_eq!(conditions, broken, "{name}");
        assert!(found.is_complete && found.indexes_agree && !tpcc.audit(&db).unwrap().is_sound, "{name}");
    }
    assert!((1..=12).all(|number| FLAWS.iter().any(|(_, broken, _)| broken.contains(&number))));
}

/// The index as it would be made by a function that loses some customers.
const FORGETFUL: IndexDef<CustomerKey, Customer, (u16, u8, Text<16>, Text<16>)> =
    IndexDef::new("by name", |&(w_id, d_id, _), customer: &Customer, keys| {
        if customer.payment_cnt != 77 {
            keys.add((w_id, d_id, customer.last, customer.first));
        }
    });
const FORGETTING: TableDef<'_, CustomerKey, Customer> = TableDef::new("customer").with_indexes(&[&FORGETFUL]);

#[test]
fn lost_rows_and_a_broken_index_are_seen() {
    let flaws: [Flaw; 5] = [
        ("a lost customer", &[], |tx| tx.open(CUSTOMERS)?.remove((1, 1, 9)).map(drop)),
        ("a lost stock", &[], |tx| tx.open(STOCKS)?.remove((2, 9)).map(drop)),
        ("a lost item", &[], |tx| tx.open(ITEMS)?.remove(9).map(drop)),
        ("a lost warehouse", &[], |tx| tx.open(WAREHOUSES)?.remove(2).map(drop)),
        ("an index that lacks a customer", &[], |tx| {
            let customers = tx.open(FORGETTING)?;
            let row = customers.get((1, 1, 9))?.unwrap();
            customers.put((1, 1, 9), &Customer { payment_cnt: 77, ..row })
        }),
    ];
    for (name, _, flaw) in flaws {
        let (db, tpcc) = loaded();
        db.run(flaw).unwrap();
        assert!(!tpcc.audit(&db).unwrap().is_sound, "{name}");
    }
}

#[test]
fn a_lost_update_that_breaks_no_condition_is_counted() {
    let (db, tpcc) = loaded();
    let before = tpcc.audit(&db).unwrap();
    db.run(|tx| {
        let stocks = tx.open(STOCKS)?;
        let row = stocks.get((1, 9))?.unwrap();
        stocks.put((1, 9), &tables::Stock { ytd: row.ytd + 3, ..row })
    })
    .unwrap();
    let after = tpcc.audit(&db).unwrap();
    assert!(after.is_sound && after.count == before.count + 3);
}
