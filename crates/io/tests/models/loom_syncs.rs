//! Models of the syncs of one open file: no writer gets a success for a page that the kernel has dropped.

use foreshore_io::model::Syncs;
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::thread;
use foreshore_sync::{LockRank, Mutex};
use std::sync::Arc;
use std::{io, mem};

/// The page cache of a file, as Linux keeps it: a failed write-back marks its pages clean, and the next sync reports it
/// once.
struct Cache(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    dirty: Vec<usize>,
    durable: Vec<usize>,
    /// Write-backs until the one that fails, if one will.
    until_failure: Option<u32>,
    is_error: bool,
}

impl Pages {
    fn write_back(&mut self) {
        let pages = mem::take(&mut self.dirty);
        match self.until_failure.as_mut() {
            Some(0) => {
                self.until_failure = None;
                self.is_error = true;
            }
            left => {
                left.into_iter().for_each(|left| *left -= 1);
                self.durable.extend(pages);
            }
        }
    }
}

impl Cache {
    fn new(until_failure: Option<u32>) -> Self {
        Self(Mutex::new(LockRank::Leaf, Pages { until_failure, ..Pages::default() }))
    }

    fn write(&self, page: usize) -> io::Result<()> {
        self.0.lock().dirty.push(page);
        Ok(())
    }

    /// Syncs in two steps, write-back and report: another sync may come between them.
    fn sync(&self) -> io::Result<()> {
        self.0.lock().write_back();
        let is_error = mem::take(&mut self.0.lock().is_error);
        if is_error { Err(rustix::io::Errno::NOSPC.into()) } else { Ok(()) }
    }

    fn assert_durable(&self, page: usize) {
        assert!(
            self.0.lock().durable.contains(&page),
            "page {page} is lost, and its writer was told that it is durable"
        );
    }
}

fn file(until_failure: Option<u32>) -> Arc<(Syncs, Cache)> {
    Arc::new((Syncs::new(), Cache::new(until_failure)))
}

fn write(file: &(Syncs, Cache), page: usize) -> bool {
    let (syncs, cache) = file;
    let is_told = syncs.write_durable(|| cache.write(page), || cache.sync()).is_ok();
    if is_told {
        cache.assert_durable(page);
    }
    is_told
}

/// Two writers, of which the first sync fails, and one that begins when both have ended.
fn a_sync_fails() {
    let file = file(Some(0));
    let writers: Vec<_> = (0..2)
        .map(|page| {
            let file = file.clone();
            thread::spawn(move || write(&file, page))
        })
        .collect();
    let told = writers.into_iter().filter_map(|writer| writer.join().ok()).filter(|told| *told).count();
    assert!(told < 2, "no handle was told of the failure");
    assert!(write(&file, 2), "a later writer is forgiven");
}

/// Two writers, and the kernel that writes back by itself, and fails.
fn the_kernel_writes_back_and_fails() {
    let file = file(Some(0));
    let mut threads: Vec<_> = (0..2)
        .map(|page| {
            let file = file.clone();
            thread::spawn(move || _ = write(&file, page))
        })
        .collect();
    let kernel = file.clone();
    threads.push(thread::spawn(move || kernel.1.0.lock().write_back()));
    threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
}

#[test]
fn a_failed_sync_fails_all_that_wrote_before_it_ended() {
    check(a_sync_fails);
}

#[test]
fn a_failed_write_back_fails_all_that_wrote_before_it_was_reported() {
    check(the_kernel_writes_back_and_fails);
}

#[test]
#[should_panic(expected = "is lost")]
fn a_failure_that_only_its_caller_gets_is_noticed() {
    mutated("syncs: a failure fails its caller alone", a_sync_fails);
}

#[test]
#[should_panic(expected = "is lost")]
fn a_generation_that_is_noted_too_late_is_noticed() {
    mutated("syncs: the generation is noted behind the write", a_sync_fails);
}
