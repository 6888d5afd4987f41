//! Writes in the order of their keys, which find the leaf of the write before without a descent.

use crate::common::{self, Bed, Model, Rng};
use foreshore_base::{Error, PageId, Result};
use foreshore_sync::primitive::thread;
use foreshore_txn::Txn;
use std::sync::{Arc, mpsc};
use std::time::Duration;

const VALUE: [u8; 100] = [7; 100];

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Returns the leaf of a row, which is locked.
fn leaf_of(bed: &Bed, number: u32) -> PageId {
    bed.run(|txn| {
        bed.tree.get_for_update(txn, &key(number), &mut Vec::new())?;
        let row = txn.last_row(bed.tree.table()).expect("the row");
        Ok(bed.pool.exclusive_at(row.page).expect("the leaf is as it was left").pid())
    })
}

#[test]
fn writes_in_the_leaf_of_the_last_one_need_no_descent() {
    type Write = fn(&Bed, &mut Txn, u32) -> Result<()>;
    let writes: [(&str, Write); 5] = [
        ("an insert", |bed, txn, number| bed.tree.insert_new(txn, &key(number + 1), &VALUE)),
        ("an update", |bed, txn, number| bed.tree.update(txn, &key(number), &[8; 100]).map(drop)),
        ("a put", |bed, txn, number| bed.tree.put(txn, &key(number), &[9; 50]).map(drop)),
        ("a lock", |bed, txn, number| bed.tree.get_for_update(txn, &key(number), &mut Vec::new()).map(drop)),
        ("a remove", |bed, txn, number| bed.tree.remove(txn, &key(number)).map(drop)),
    ];
    let bed = Arc::new(Bed::new(256));
    for number in (0..2000).step_by(2) {
        bed.run(|txn| bed.tree.insert_new(txn, &key(number), &VALUE));
    }
    let near = (1000..).step_by(2).find(|&number| leaf_of(&bed, number - 2) == leaf_of(&bed, number + 20)).unwrap();
    for (what, write) in writes {
        for (number, is_near) in [(near + 20, true), (0, false), (1998, false)] {
            let ((begun, begins), (done, ends)) = (mpsc::channel(), mpsc::channel());
            let (go, goes) = mpsc::channel();
            let writer = thread::spawn({
                let bed = bed.clone();
                move || {
                    let mut txn = bed.begin();
                    for number in [near - 2, near] {
                        bed.tree.put(&mut txn, &key(number), &VALUE).unwrap();
                    }
                    begun.send(()).unwrap();
                    goes.recv().unwrap();
                    write(&bed, &mut txn, number).unwrap();
                    done.send(()).unwrap();
                    txn.rollback().unwrap();
                }
            });
            begins.recv().unwrap();
            // Every descent begins at the root.
            let root = bed.pool.exclusive(bed.tree.root()).unwrap();
            go.send(()).unwrap();
            let wait = if is_near { Duration::from_secs(20) } else { Duration::from_millis(20) };
            let is_done = ends.recv_timeout(wait).is_ok();
            drop(root);
            assert_eq!(is_done, is_near, "{what} of row {number} after puts of rows around row {near}");
            writer.join().unwrap();
        }
    }
    bed.verify();
}

/// Writes some neighbours among the keys of one thread, up or down.
fn write_run(bed: &Bed, txn: &mut Txn, thread: u32, rng: &mut Rng, mine: &mut Model) -> Result<()> {
    let (first, len, write) = (rng.below(400), 1 + rng.below(40), rng.below(4));
    let is_upward = rng.below(2) == 0;
    for at in 0..len {
        let number = first + if is_upward { at } else { len - at };
        let key = key(2 * number as u32 + thread);
        if write == 0 {
            assert_eq!(bed.tree.remove(txn, &key)?, mine.remove(&key[..]), "thread {thread}");
            continue;
        }
        let mut found = Vec::new();
        if write == 1 && bed.tree.get_for_update(txn, &key, &mut found)? {
            assert_eq!(Some(&found), mine.get(&key[..]), "thread {thread}");
        }
        let value = common::value(rng);
        assert_eq!(bed.tree.put(txn, &key, &value)?, mine.insert(key.to_vec(), value), "thread {thread}");
    }
    Ok(())
}

fn attempt(bed: &Bed, thread: u32, rng: &mut Rng, own: &mut Model) -> Result<()> {
    let mut txn = bed.begin();
    let mut mine = own.clone();
    for _ in 0..1 + rng.below(4) {
        write_run(bed, &mut txn, thread, rng, &mut mine)?;
    }
    if rng.below(4) == 0 {
        return txn.rollback().map(drop);
    }
    drop(txn.commit()?);
    *own = mine;
    Ok(())
}

/// The keys of both threads alternate, so each splits, fills and empties the leaves in which the other writes.
#[test]
fn two_threads_write_runs_of_neighbours() {
    let bed = Arc::new(Bed::new(256));
    let threads = [0, 1].map(|thread| {
        let bed = bed.clone();
        thread::spawn(move || {
            let (mut rng, mut own, mut victims) = (Rng(u64::from(thread)), Model::new(), 0);
            for _ in 0..300 {
                match attempt(&bed, thread, &mut rng, &mut own) {
                    Ok(()) => {}
                    Err(Error::Deadlock { .. }) => victims += 1,
                    Err(error) => panic!("thread {thread}: {error:?}"),
                }
            }
            assert!(victims < 300, "thread {thread} has never committed");
            own
        })
    });
    let mut expected = Model::new();
    threads.into_iter().for_each(|thread| expected.extend(thread.join().unwrap()));
    assert_eq!(bed.contents(), expected);
    bed.verify();
    assert!(bed.trees.stats().leaf_splits > 20, "leaves were split");
    let (bed, restart) = Arc::into_inner(bed).unwrap().crash();
    assert_eq!((restart.losers, bed.contents()), (0, expected));
}
