//! Many threads on one tree, in a pool far smaller than the tree.

use crate::common::{self, Bed, Model, Rng, key};
use foreshore_base::Error;
use foreshore_base::limits::MAX_KEY;
use foreshore_sync::primitive::thread;
use std::sync::Arc;
use std::time::Duration;

const THREADS: u64 = 8;
const ROUNDS: u64 = 120;
const OWN_KEYS: usize = 60;
const SHARED_KEYS: usize = 12;

fn own_key(thread: u64, number: usize) -> Vec<u8> {
    // Neighbours in the tree belong to different threads.
    let mut key = key(number);
    key.truncate(MAX_KEY - 1);
    key.push(b'0' + thread as u8);
    key
}

fn shared_key(number: usize) -> Vec<u8> {
    format!("shared-{number}").into_bytes()
}

/// Adds one to a counter, in a row of varying length.
fn count_up(bed: &Bed, txn: &mut foreshore_txn::Txn, key: &[u8], pad: usize) -> Result<(), Error> {
    let mut value = Vec::new();
    let found = bed.tree.get_for_update(txn, key, &mut value)?;
    let count = if found { u64::from_le_bytes(value[..8].try_into().unwrap()) } else { 0 };
    value.clear();
    value.extend_from_slice(&(count + 1).to_le_bytes());
    value.resize(8 + pad, 0xcc);
    bed.tree.put(txn, key, &value)?;
    Ok(())
}

/// Runs one transaction: changes of the thread's own keys, which no other thread touches, and of shared counters.
/// Returns how many counts it has added.
fn attempt(bed: &Bed, thread: u64, rng: &mut Rng, own: &mut Model) -> Result<u64, Error> {
    let mut txn = bed.begin_as("worker", Duration::from_secs(30));
    let (mut mine, mut counts) = (own.clone(), 0);
    for _ in 0..1 + rng.below(5) {
        let key = own_key(thread, rng.below(OWN_KEYS));
        match rng.below(5) {
            0 => assert_eq!(bed.tree.remove(&mut txn, &key)?, mine.remove(&key)),
            1 => {
                let mut value = Vec::new();
                let found = bed.tree.get(&mut txn, &key, &mut value)?;
                assert_eq!(found.then_some(&value), mine.get(&key), "thread {thread}");
            }
            2 => {
                counts += 1;
                count_up(bed, &mut txn, &shared_key(rng.below(SHARED_KEYS)), rng.below(900))?;
            }
            _ => {
                let value = common::value(rng);
                assert_eq!(bed.tree.put(&mut txn, &key, &value)?, mine.insert(key, value), "thread {thread}");
            }
        }
    }
    if rng.below(5) == 0 {
        txn.rollback()?;
        return Ok(0);
    }
    drop(txn.commit()?);
    *own = mine;
    Ok(counts)
}

#[test]
fn eight_threads_lose_nothing_in_sixty_four_frames() {
    let bed = Arc::new(Bed::new(64));
    // Rows that are there from the start have no absence to lock the table for.
    for number in 0..SHARED_KEYS {
        bed.run(|txn| bed.tree.put(txn, &shared_key(number), &0_u64.to_le_bytes()));
    }
    let workers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let bed = bed.clone();
            thread::spawn(move || {
                let (mut rng, mut own, mut total, mut victims) = (Rng(thread), Model::new(), 0, 0);
                for _ in 0..ROUNDS {
                    match attempt(&bed, thread, &mut rng, &mut own) {
                        Ok(counts) => total += counts,
                        Err(Error::Deadlock { .. }) => victims += 1,
                        Err(error) => panic!("thread {thread}: {error:?}"),
                    }
                }
                assert!(victims < ROUNDS, "thread {thread} never got through");
                (own, total)
            })
        })
        .collect();
    let (mut expected, mut total) = (Model::new(), 0);
    for worker in workers {
        let (own, counts) = worker.join().unwrap();
        expected.extend(own);
        total += counts;
    }
    let check = |bed: &Bed| {
        let mut contents = bed.contents();
        let sum: u64 = (0..SHARED_KEYS)
            .map(|number| contents.remove(&shared_key(number)).unwrap())
            .map(|value| u64::from_le_bytes(value[..8].try_into().unwrap()))
            .sum();
        assert_eq!(sum, total, "every committed count is there once");
        assert_eq!(contents, expected);
        assert!(bed.verify().pages.len() > 64, "the tree is larger than the pool");
    };
    check(&bed);
    let bed = Arc::into_inner(bed).unwrap();
    let (bed, restart) = bed.crash();
    assert_eq!(restart.losers, 0);
    check(&bed);
}
