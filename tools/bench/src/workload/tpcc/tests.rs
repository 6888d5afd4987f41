use super::draw::{LineInput, Named};
use super::numbers::{Constants, last_name};
use super::population::is_original;
use super::tables::{
    BAD_CREDIT, CUSTOMERS, Customer, CustomerKey, DISTRICTS, DISTRICTS_EACH, HISTORY, ITEMS, NEW_ORDERS, ORDER_LINES,
    ORDERS, STOCKS, Text, WAREHOUSES,
};
use super::*;
use crate::home::Home;
use crate::row::{Check, measure};
use crate::run::prepare;
use crate::{
    Silent,
    config::{Commit, Storage, Window},
};
use foreshore::{Device, Error, IndexDef, Isolation, Options, TableDef};
use std::time::Duration;

mod conditions;

/// A few rows of each table.
const SMALL: Size = Size { warehouses: 2, items: 200, customers: 30 };

fn small() -> Tpcc {
    Tpcc { size: SMALL, ..Tpcc::new(&Config::default()) }
}

fn loaded() -> (Db, Tpcc) {
    let db = Options::in_memory().open("tpcc").unwrap();
    let tpcc = small();
    tpcc.load(&db, &Silent).unwrap();
    (db, tpcc)
}

/// Runs one transaction to its end.
fn end(db: &Db, input: &Input, history: HistoryKey) -> Done {
    let tx = db.begin();
    let done = transactions::apply(&tx, input, history).unwrap();
    match done.end {
        End::Commit => drop(tx.commit().unwrap()),
        End::Rollback => tx.rollback().unwrap(),
    }
    done
}

/// Runs `n` transactions of one worker.
fn transact(db: &Db, tpcc: &Tpcc, n: usize) {
    let mut calls = tpcc.transactions(Worker { run: 1, thread: 0 });
    for _ in 0..n {
        calls.draw();
        let tx = db.begin();
        let end = calls.apply(&tx).unwrap();
        match end {
            End::Commit => drop(tx.commit().unwrap()),
            End::Rollback => tx.rollback().unwrap(),
        }
        calls.ended(end);
    }
}

fn customer(db: &Db, key: CustomerKey) -> Customer {
    db.read().open(CUSTOMERS).unwrap().get(key).unwrap().unwrap()
}

#[test]
fn draws_follow_the_specification() {
    let size = Size::new(5);
    let mut draw = Draw::new(1, 0, size);
    let mut kinds = [0_u64; MIX.len()];
    let (mut lines, mut remote_lines, mut failing, mut far_payers, mut by_name) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    let mut customers = vec![0_u32; 3001];
    for _ in 0..100_000 {
        let (kind, input) = draw.any();
        kinds[kind] += 1;
        match input {
            Input::NewOrder { customer: (w_id, d_id, c_id), lines: of } => {
                assert!((1..=5).contains(&w_id) && (1..=DISTRICTS_EACH).contains(&d_id));
                assert!((5..=15).contains(&of.len()) && of.is_sorted_by_key(|line| line.stock.1));
                let mut numbers: Vec<_> = of.iter().map(|line| usize::from(line.number)).collect();
                numbers.sort_unstable();
                assert!(numbers.into_iter().eq(1..=of.len()));
                assert!(of.iter().all(|line| (1..=10).contains(&line.quantity) && (1..=5).contains(&line.stock.0)));
                customers[c_id as usize] += 1;
                lines += of.len() as u64;
                remote_lines += of.iter().filter(|line| line.stock.0 != w_id).count() as u64;
                let (last, others) = of.split_last().unwrap();
                assert!(others.iter().all(|line| (1..=100_000).contains(&line.stock.1)));
                failing += u64::from(last.stock.1 == 100_001);
            }
            Input::Payment { home, of, customer, amount } => {
                assert!((100..=500_000).contains(&amount) && (home == of || home.0 != of.0));
                far_payers += u64::from(home != of);
                by_name += u64::from(matches!(customer, Named::Last(_)));
            }
            Input::OrderStatus { .. } => {}
            Input::Delivery { carrier_id, .. } => assert!((1..=10).contains(&carrier_id)),
            Input::StockLevel { threshold, .. } => assert!((10..=20).contains(&threshold)),
        }
    }
    for ((name, percent), drawn) in MIX.into_iter().zip(kinds) {
        assert!(drawn.abs_diff(percent * 1000) < 800, "{name}: {drawn}");
    }
    let near = |part: u64, of: u64, thousandths: u64| part.abs_diff(of * thousandths / 1000) < of / 100;
    assert!(near(far_payers, kinds[PAYMENT], 150) && near(by_name, kinds[PAYMENT], 600));
    assert!((300..600).contains(&failing), "{failing}");
    assert!(remote_lines.abs_diff(lines / 100) < lines / 500, "{remote_lines} of {lines}");
    // Uniform draws would meet no customer much more often than the others: 15 times each, on average.
    assert!(customers[0] == 0 && *customers.iter().max().unwrap() > 60);
}

#[test]
fn names_and_constants_are_those_of_the_specification() {
    assert_eq!(&last_name(371), b"PRICALLYOUGHT   ");
    assert_eq!(&last_name(0), b"BARBARBAR       ");
    assert_eq!(&last_name(777), b"CALLYCALLYCALLY ");
    let distances: Vec<u64> =
        (0..500).map(|seed| Constants::of_run(seed).last.abs_diff(Constants::LOAD.last)).collect();
    assert!(distances.iter().all(|far| (65..=119).contains(far) && ![96, 112].contains(far)));
    assert!(distances.iter().any(|far| far != &distances[0]));
}

#[test]
fn the_population_follows_its_rules() {
    let db = Options::in_memory().open("tpcc").unwrap();
    let size = Size { warehouses: 1, items: 5000, customers: 1200 };
    population::load(&db, size, 1, &Silent).unwrap();
    let tx = db.read();
    let items: Vec<_> = tx.open(ITEMS).unwrap().iter().map(|row| row.unwrap().1).collect();
    let original = items.iter().filter(|item| is_original(&item.data)).count();
    assert!(items.len() == 5000 && original.abs_diff(500) < 110, "{original}");
    assert!(items.iter().all(|item| (100..=10_000).contains(&item.price) && (1..=10_000).contains(&item.im_id)));
    let stocks: Vec<_> = tx.open(STOCKS).unwrap().iter().map(|row| row.unwrap().1).collect();
    assert!(stocks.len() == 5000 && stocks.iter().all(|stock| (10..=100).contains(&stock.quantity)));
    assert_ne!(stocks[0].dist_info(1), stocks[0].dist_info(10));
    let customers: Vec<_> = tx.open(CUSTOMERS).unwrap().range((1, 3, 0)..(1, 4, 0)).map(Result::unwrap).collect();
    assert_eq!(customers.len(), 1200);
    let bad = customers.iter().filter(|(_, customer)| customer.credit == BAD_CREDIT).count();
    assert!(bad.abs_diff(120) < 55, "{bad}");
    for &((.., c_id), ref customer) in &customers {
        assert!(c_id > 1000 || customer.last == last_name(u64::from(c_id - 1)));
        assert!((300..=500).contains(&customer.data.len()) && customer.discount <= 5000);
        assert!(customer.address.zip.ends_with(b"11111"));
    }
    let orders: Vec<_> = tx.open(ORDERS).unwrap().range((1, 3, 0)..(1, 4, 0)).map(Result::unwrap).collect();
    let mut of: Vec<u32> = orders.iter().map(|(_, order)| order.c_id).collect();
    assert!(!of.is_sorted());
    of.sort_unstable();
    assert!(of.into_iter().eq(1..=1200));
    for &((.., o_id), ref order) in &orders {
        assert_eq!(order.carrier_id.is_some(), o_id <= 840);
        assert!((5..=15).contains(&order.ol_cnt));
    }
    assert_eq!(tx.open(NEW_ORDERS).unwrap().keys(..).count(), 3600);
    assert_eq!(tx.open(HISTORY).unwrap().keys(..).count(), 12_000);
    assert!(Audit::from(check::audit(&db, size).unwrap()).is_sound);
}

#[test]
fn an_order_takes_its_stock_and_is_rolled_back_if_an_item_does_not_exist() {
    let (db, tpcc) = loaded();
    let begun = tpcc.audit(&db).unwrap();
    let line = |number, stock, quantity| LineInput { number, stock, quantity };
    let failing = Input::NewOrder { customer: (1, 2, 3), lines: vec![line(1, (1, 7), 5), line(2, (1, 201), 1)] };
    assert_eq!(end(&db, &failing, (1, 0, 1)), Done { end: End::Rollback, has_succeeded: false, change: 0 });
    assert_eq!(tpcc.audit(&db).unwrap(), begun);
    let stock = |key| db.read().open(STOCKS).unwrap().get(key).unwrap().unwrap();
    let (near, far) = (stock((1, 7)), stock((2, 9)));
    let order = Input::NewOrder { customer: (1, 2, 3), lines: vec![line(2, (1, 7), 10), line(1, (2, 9), 1)] };
    // The order, and for each line its quantity, its count, and whether it is remote.
    assert_eq!(end(&db, &order, (1, 0, 1)), Done { end: End::Commit, has_succeeded: true, change: 1 + 11 + 2 + 1 });
    let taken = |from: u8, quantity| if from >= quantity + 10 { from - quantity } else { from + 91 - quantity };
    let (near_after, far_after) = (stock((1, 7)), stock((2, 9)));
    assert_eq!((near_after.quantity, far_after.quantity), (taken(near.quantity, 10), taken(far.quantity, 1)));
    assert_eq!((near_after.ytd, near_after.order_cnt, near_after.remote_cnt), (10, 1, 0));
    assert_eq!((far_after.ytd, far_after.order_cnt, far_after.remote_cnt), (1, 1, 1));
    let tx = db.read();
    assert_eq!(tx.open(DISTRICTS).unwrap().get((1, 2)).unwrap().unwrap().next_o_id, 32);
    let order = tx.open(ORDERS).unwrap().get((1, 2, 31)).unwrap().unwrap();
    assert!((order.c_id, order.ol_cnt, order.all_local, order.carrier_id) == (3, 2, false, None));
    assert!(tx.open(NEW_ORDERS).unwrap().contains((1, 2, 31)).unwrap());
    let line = tx.open(ORDER_LINES).unwrap().get((1, 2, 31, 2)).unwrap().unwrap();
    let price = tx.open(ITEMS).unwrap().get(7).unwrap().unwrap().price;
    assert_eq!((line.i_id, line.amount, line.dist_info), (7, 10 * price, near.dist_info(2)));
}

#[test]
fn a_payment_by_name_finds_the_customer_in_the_middle() {
    let (db, tpcc) = loaded();
    let (name, first): (Text<16>, fn(u8) -> Text<16>) = (last_name(999), |at| [b'A' + at; 16]);
    let named = [(5, 3), (9, 0), (20, 2), (21, 1)];
    db.run(|tx| {
        let customers = tx.open(CUSTOMERS)?;
        for (c_id, at) in named {
            let mut row = customers.get((2, 4, c_id))?.unwrap();
            (row.last, row.first, row.credit, row.data) = (name, first(at), BAD_CREDIT, vec![b'.'; 500]);
            customers.put((2, 4, c_id), &row)?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    let before = customer(&db, (2, 4, 21));
    let input = Input::Payment { home: (1, 3), of: (2, 4), customer: Named::Last(name), amount: 1234 };
    end(&db, &input, (1, 0, 1));
    // The second of four.
    let after = customer(&db, (2, 4, 21));
    assert_eq!((after.balance, after.ytd_payment), (before.balance - 1234, before.ytd_payment + 1234));
    assert_eq!((after.payment_cnt, after.data.len()), (before.payment_cnt + 1, 500));
    assert!(after.data.starts_with(b"21 4 2 3 1 12.34 ..."));
    let tx = db.read();
    let noted = tx.open(HISTORY).unwrap().get((1, 0, 1)).unwrap().unwrap();
    assert_eq!((noted.customer, noted.district, noted.amount), ((2, 4, 21), (1, 3), 1234));
    assert!(tpcc.audit(&db).unwrap().is_sound);
}

#[test]
fn a_delivery_takes_the_oldest_order_of_each_district() {
    let (db, tpcc) = loaded();
    let deliver = Input::Delivery { w_id: 2, carrier_id: 7 };
    let tx = db.read();
    let c_id = tx.open(ORDERS).unwrap().get((2, 6, 22)).unwrap().unwrap().c_id;
    let lines: Vec<_> = tx.open(ORDER_LINES).unwrap().range((2, 6, 22, 0)..(2, 6, 23, 0)).map(Result::unwrap).collect();
    let before = customer(&db, (2, 6, c_id));
    assert_eq!(end(&db, &deliver, (1, 0, 1)), Done { end: End::Commit, has_succeeded: true, change: 10 });
    let after = customer(&db, (2, 6, c_id));
    assert_eq!(after.balance, before.balance + lines.iter().map(|(_, line)| line.amount).sum::<i64>());
    assert_eq!(after.delivery_cnt, 1);
    assert_eq!(db.read().open(ORDERS).unwrap().get((2, 6, 22)).unwrap().unwrap().carrier_id, Some(7));
    // Nine orders of each district are loaded as new.
    for _ in 0..8 {
        assert!(end(&db, &deliver, (1, 0, 1)).has_succeeded);
    }
    assert_eq!(end(&db, &deliver, (1, 0, 1)), Done { end: End::Commit, has_succeeded: false, change: 0 });
    assert!(tpcc.audit(&db).unwrap().is_sound);
}

#[test]
fn every_change_is_counted_and_one_order_in_a_hundred_is_rolled_back() {
    let (db, tpcc) = loaded();
    let begun = tpcc.audit(&db).unwrap();
    transact(&db, &tpcc, 5000);
    let expected = tpcc.count_after(begun.count, 0);
    let after = tpcc.audit(&db).unwrap();
    assert!(begun.is_sound && after.is_sound);
    assert_eq!((after.count, after.next_run), (expected, 2));
    let kinds = tpcc.take_kinds();
    assert_eq!(kinds.iter().map(|kind| kind.transactions).sum::<u64>(), 5000);
    assert!(kinds[NEW_ORDER].transactions > kinds[NEW_ORDER].succeeded);
    assert_eq!(tpcc.check_kinds(&kinds), [("success_ratios", true)]);
    for broken in [0, 1, 2, 4] {
        let mut kinds = kinds.clone();
        kinds[broken].succeeded = kinds[broken].transactions * 9 / 10;
        assert_eq!(tpcc.check_kinds(&kinds), [("success_ratios", false)], "{}", MIX[broken].0);
    }
    // The counts were taken.
    assert_eq!(tpcc.count_after(5, 0), 5);
}

#[test]
fn one_kind_runs_alone() {
    let (db, _) = loaded();
    for (tpcc, name) in
        [(Tpcc::payment(&Config::default()), "PAYMENT"), (Tpcc::new_order(&Config::default()), "NEW_ORDER")]
    {
        let tpcc = Tpcc { size: SMALL, ..tpcc };
        let begun = tpcc.audit(&db).unwrap();
        transact(&db, &tpcc, 100);
        assert_eq!(tpcc.audit(&db).unwrap().count, tpcc.count_after(begun.count, 0));
        let ran: Vec<_> = tpcc.take_kinds().into_iter().filter(|kind| kind.transactions > 0).collect();
        assert!(ran.len() == 1 && ran[0].kind == name && ran[0].transactions == 100, "{ran:?}");
    }
}

/// Orders, payments and deliveries of four threads meet in two warehouses, at each level.
#[test]
fn the_conditions_are_true_after_concurrent_runs_and_after_reopening() {
    for (isolation, commit) in [
        (Isolation::Serializable, Commit::Pipelined),
        (Isolation::Snapshot, Commit::Pipelined),
        (Isolation::ReadCommitted, Commit::Async),
    ] {
        let config = Config {
            isolation,
            commit,
            clients: 4,
            window: Window::of(Duration::from_millis(150)),
            storage: Storage { device: Device::Null, memory: 32 << 20, segment: 4 << 20, ..Storage::default() },
            ..Config::default()
        };
        let (home, tpcc) = (Home::new(&config).unwrap(), small());
        let mut found = prepare(&tpcc, &home, &Silent).unwrap();
        let row = measure(&config, &home, &tpcc, 4, &mut found, Check::LiveAndReopened, &Silent).unwrap();
        assert!(row.checks.passed() && row.ended.commits > 0, "{isolation}: {:?}", row.checks);
    }
}

#[test]
fn the_database_of_another_scale_is_refused() {
    let (db, tpcc) = loaded();
    tpcc.resume(&db, Path::new("tpcc")).unwrap();
    let other = Tpcc::new(&Config { scale: 3, ..Config::default() });
    assert!(matches!(other.resume(&db, Path::new("tpcc")), Err(Error::InvalidOption { name: "scale", .. })));
}
