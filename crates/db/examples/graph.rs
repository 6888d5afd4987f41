//! A graph: edges lie by their source and by their target, so that both directions are ranges. One transaction writes
//! both, and a snapshot walks the graph beside writers.
//!
//! ```text
//! cargo run -p foreshore --example graph
//! ```

use foreshore::{Db, Error, ReadTransaction, TableDef, Transaction};
use std::collections::{BTreeMap, VecDeque};

/// Source and target to the length of the road. The roads from a town lie together.
const ROADS: TableDef<(&str, &str), u32> = TableDef::new("roads");
/// Target and source: the roads to a town.
const BACK: TableDef<(&str, &str), ()> = TableDef::new("roads back");

fn main() -> Result<(), Error> {
    let db = Db::in_memory()?;
    db.run(|tx| {
        for (from, to, km) in
            [("Ayr", "Oban", 190), ("Ayr", "Perth", 130), ("Perth", "Oban", 150), ("Oban", "Ayr", 190)]
        {
            connect(tx, from, to, km)?;
        }
        Ok::<_, Error>(())
    })?;
    let reader = db.read();
    let steps = reachable(&reader, "Perth")?;
    println!("from Perth: {steps:?}");
    assert_eq!(steps, BTreeMap::from([("Ayr".to_owned(), 2), ("Oban".to_owned(), 1), ("Perth".to_owned(), 0)]));

    // A town goes with its roads in both directions, or not at all.
    let removed = db.run(|tx| remove(tx, "Oban"))?;
    println!("{removed} roads are closed");
    assert_eq!(removed, 3);
    assert_eq!(reachable(&db.read(), "Perth")?.len(), 1);
    assert_eq!(reachable(&reader, "Perth")?.len(), 3, "the snapshot is that of before");
    Ok(())
}

fn connect(tx: &Transaction, from: &str, to: &str, km: u32) -> Result<(), Error> {
    tx.open(ROADS)?.put((from, to), km)?;
    tx.open(BACK)?.put((to, from), ())
}

/// Removes a town, and returns how many roads it had.
fn remove(tx: &Transaction, town: &str) -> Result<u64, Error> {
    let (roads, back) = (tx.open(ROADS)?, tx.open(BACK)?);
    let mut count = 0;
    for road in roads.prefix((town,)) {
        let ((from, to), _) = road?;
        back.remove((&*to, &*from))?;
        count += 1;
    }
    for road in back.prefix((town,)) {
        let ((to, from), ()) = road?;
        roads.remove((&*from, &*to))?;
        count += 1;
    }
    roads.remove_range((town, "")..(&*format!("{town}\0"), ""))?;
    back.remove_range((town, "")..(&*format!("{town}\0"), ""))?;
    Ok(count)
}

/// Returns the towns that can be reached, with the number of roads to each.
fn reachable(reader: &ReadTransaction, from: &str) -> Result<BTreeMap<String, u32>, Error> {
    let roads = reader.open(ROADS)?;
    let (mut steps, mut queue) = (BTreeMap::from([(from.to_owned(), 0)]), VecDeque::from([from.to_owned()]));
    while let Some(town) = queue.pop_front() {
        for road in roads.prefix((&*town,)) {
            let ((_, to), _) = road?;
            if !steps.contains_key(&to) {
                steps.insert(to.clone(), steps[&town] + 1);
                queue.push_back(to);
            }
        }
    }
    Ok(steps)
}
