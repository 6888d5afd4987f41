//! Counters by a merge operator: the definition of the table says how an operand changes a value, and `merge` applies
//! it under the lock of the row. So no increment is lost, and no caller reads before it writes.
//!
//! ```text
//! cargo run -p foreshore --example counters
//! ```

use foreshore::{Db, Durability, Error, MergeDef, TableDef, TxnOptions};
use std::thread;

/// Number of visits, least and greatest time in milliseconds.
type Visits = (u64, u32, u32);

/// An operand is the visits of a page that are to be added.
const ADD: MergeDef<Visits> = MergeDef::new(|old: Option<Visits>, new: &Visits| match old {
    None => *new,
    Some((count, least, greatest)) => (count + new.0, least.min(new.1), greatest.max(new.2)),
});
const PAGES: TableDef<&str, Visits> = TableDef::new("pages").with_merge(&ADD);

const THREADS: u32 = 4;
const EACH: u32 = 500;

fn main() -> Result<(), Error> {
    let db = Db::in_memory()?;
    // A counter that may miss the last millisecond after a power loss need not wait for the disk.
    let relaxed = TxnOptions::new().durability(Durability::Relaxed);
    thread::scope(|scope| {
        let visit = |milliseconds| {
            db.run_with(relaxed, |tx| {
                let pages = tx.open(PAGES)?;
                // In the order of the keys, so that two transactions never wait for each other.
                pages.merge("/", (1, milliseconds, milliseconds))?;
                pages.merge("/news", (1, milliseconds, milliseconds)).map(drop)
            })
        };
        let count = move |number: u32| (0..EACH).try_for_each(|at| visit(number * EACH + at));
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || count(number))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    db.sync()?;
    for page in db.read().open(PAGES)?.iter() {
        let (name, (count, least, greatest)) = page?;
        println!("{name}: {count} visits of {least} to {greatest} ms");
        assert_eq!((count, least, greatest), (u64::from(THREADS * EACH), 0, THREADS * EACH - 1));
    }
    Ok(())
}
