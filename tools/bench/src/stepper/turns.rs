//! The stepped process: workers that run their operations by turns.
//!
//! Each worker reads a byte from a pipe of its own before each operation, so the tracer sees where an operation begins
//! and ends. The tracer learns of the workers by one line on standard output, when all of them are warm.

use super::counts::Operations;
use foreshore::{Error, Result};
use std::{
    io::{self, PipeReader, Read, Write},
    os::fd::AsRawFd,
    sync::mpsc::{Sender, channel},
    thread,
    time::{Duration, Instant},
};

/// Begins the line that names the workers.
pub(super) const READY: &str = "by turns:";
/// A byte in a pipe: an operation.
pub(super) const OPERATE: u8 = 1;
/// A byte in a pipe: the end.
pub(super) const END: u8 = 0;

/// Runs the operations of each worker for `warm_up`, then by the turns that the tracer gives. Ends when the tracer says
/// so.
///
/// # Errors
/// What an operation gives; `Io` if there is no tracer.
pub(crate) fn by_turns(workers: Vec<Operations<'_>>, warm_up: Duration) -> Result<()> {
    // A tracer that was killed must not leave this process waiting.
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let (ready, all_ready) = channel();
    // Open until all workers have ended, because the end of one must not wake the others.
    let mut writers = Vec::new();
    thread::scope(|scope| {
        let mut running = Vec::new();
        for operations in workers {
            let (reader, writer) = io::pipe().map_err(|e| Error::io("create", "a pipe", e))?;
            let (ready, turns_by) = (ready.clone(), writer.as_raw_fd());
            running.push(scope.spawn(move || work(operations, warm_up, &reader, ready, turns_by)));
            writers.push(writer);
        }
        drop(ready);
        let names: Vec<String> = all_ready.iter().take(running.len()).collect();
        if names.len() == running.len() {
            let mut out = io::stdout().lock();
            writeln!(out, "\n{READY} {}", names.join(" "))
                .and_then(|()| out.flush())
                .map_err(|e| Error::io("write", "standard output", e))?;
        } else {
            writers
                .iter_mut()
                .try_for_each(|writer| writer.write_all(&[END]))
                .map_err(|e| Error::io("write", "a pipe", e))?;
        }
        running
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn work(
    mut operate: Operations<'_>,
    warm_up: Duration,
    turns: &PipeReader,
    ready: Sender<String>,
    turns_by: i32,
) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < warm_up {
        operate()?;
    }
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let _ = ready.send(format!("{thread}:{}:{turns_by}", turns.as_raw_fd()));
    // Without a sender left the list of workers ends, however many of them failed.
    drop(ready);
    let mut turn = [END];
    loop {
        // Not by libc, whose own read-modify-writes would count.
        rustix::io::retry_on_intr(|| rustix::io::read(turns, &mut turn))
            .map_err(|e| Error::io("read", "a pipe", e.into()))?;
        if turn == [END] {
            return Ok(());
        }
        operate()?;
    }
}
