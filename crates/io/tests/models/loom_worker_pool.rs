//! Models of the worker pool: when a batch has ended no thread runs one of its tasks any more, and none waits for ever.

use foreshore_io::model::WorkerPool;
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::{UnsafeCell, thread};
use std::sync::Arc;

/// Cells that tasks write to. Loom fails when two threads access the same cell.
struct Cells([UnsafeCell<u32>; 2]);

// SAFETY: a cell is touched by the one task that has it, and by the caller when the batch is over; the models check
// that.
unsafe impl Sync for Cells {}
// SAFETY: as above.
unsafe impl Send for Cells {}

type Task = (Arc<Cells>, usize);

fn act((cells, at): Task) {
    // SAFETY: as said at `Cells`.
    cells.0[at].with_mut(|cell| unsafe { *cell += 1 });
}

fn batch(pool: &WorkerPool<Task>) {
    let cells = Arc::new(Cells([UnsafeCell::new(0), UnsafeCell::new(0)]));
    pool.run([0, 1].map(|at| (cells.clone(), at)).into_iter());
    for cell in &cells.0 {
        // SAFETY: the batch is over.
        cell.with_mut(|cell| unsafe { assert_eq!(*cell, 1, "a task was not done once") });
    }
}

fn one_caller() {
    batch(&WorkerPool::new(1, act));
}

fn two_callers() {
    let pool = Arc::new(WorkerPool::new(0, act));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let pool = pool.clone();
            thread::spawn(move || batch(&pool))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a batch ends"));
}

#[test]
fn a_batch_is_over_when_its_tasks_are_done() {
    check(one_caller);
}

#[test]
fn callers_do_tasks_of_each_other() {
    check(two_callers);
}

#[test]
#[should_panic]
fn a_task_that_counts_too_early_is_noticed() {
    mutated("workers: a task counts as done when it is taken", one_caller);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_end_of_a_batch_must_be_told() {
    mutated("workers: the end of a batch is kept quiet", one_caller);
}
