//! Processes that run seeds, and the file that remembers how far they came.
//!
//! Each process gets its seeds one at a time on its standard input and answers each with a line. A process that fails
//! a seed ends; the next seed has a new one. One that does not answer for [`PATIENCE`] is killed, and its seed has
//! failed.

use crate::Asked;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long a seed may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long a seed may take with a defect, which may be one that never ends.
const PATIENCE_WITH_DEFECT: Duration = Duration::from_secs(60);
/// Seeds between two notes in the file.
const NOTE_EVERY: u64 = 200;

/// Returns how long a whole seed may take.
pub(crate) fn patience(asked: &Asked) -> Duration {
    if asked.mutant.is_some() { PATIENCE_WITH_DEFECT } else { PATIENCE }
}

/// What all seeds together have done.
#[derive(Debug, Default)]
struct Totals {
    seeds: u64,
    /// Transactions, commits, starts, power losses, those in recoveries and beside waiting pages, lives stopped by a
    /// fault, restores.
    counts: [u64; 8],
    failed: BTreeMap<u64, String>,
}

#[derive(Debug)]
struct Progress {
    next: u64,
    end: u64,
    running: BTreeSet<u64>,
    totals: Totals,
}

impl Progress {
    /// All seeds below this one are through.
    fn done_below(&self) -> u64 {
        self.running.first().copied().unwrap_or(self.next)
    }
}

/// Runs the seeds; true if all are well.
///
/// # Errors
/// If a process cannot be started, or the file cannot be written.
pub(crate) fn run(program: &Path, asked: &Asked) -> Result<bool, String> {
    let (mut from, end) = (asked.from, asked.from.saturating_add(asked.seeds));
    let mut totals = Totals::default();
    if let Some(state) = asked.state.as_deref().filter(|path| path.exists()) {
        (from, totals) = read_state(state, from)?;
    }
    let begun = Instant::now();
    let progress = Mutex::new(Progress { next: from, end, running: BTreeSet::new(), totals });
    let jobs = asked.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, |count| count.get()));
    let outcomes: Result<Vec<()>, String> = thread::scope(|scope| {
        let keepers: Vec<_> = (0..jobs).map(|_| scope.spawn(|| keep(program, &progress, asked))).collect();
        keepers
            .into_iter()
            .map(|keeper| keeper.join().unwrap_or_else(|_| Err("a keeper panicked".to_owned())))
            .collect()
    });
    let progress = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(state) = &asked.state {
        write_state(state, &progress)?;
    }
    outcomes?;
    let Totals { seeds, counts: [txns, commits, starts, losses, nested, waiting, stopped, restores], failed } =
        &progress.totals;
    println!(
        "{seeds} seeds in {:.0?}, {} failed: {txns} transactions, {commits} commits, {starts} starts, {losses} power losses, {nested} \
         of them in recoveries, {waiting} while pages waited for their redo, {stopped} lives stopped by faults, {restores} restores",
        begun.elapsed(),
        failed.len()
    );
    Ok(failed.is_empty())
}

/// Keeps one process at work until no seed is left.
fn keep(program: &Path, progress: &Mutex<Progress>, asked: &Asked) -> Result<(), String> {
    let lock = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    let mut worker: Option<Worker> = None;
    loop {
        let seed = {
            let mut progress = lock();
            if progress.next >= progress.end {
                return Ok(());
            }
            let seed = progress.next;
            progress.next += 1;
            progress.running.insert(seed);
            seed
        };
        let mut at_work = match worker.take() {
            Some(worker) => worker,
            None => Worker::start(program, asked, patience(asked))?,
        };
        let answer = at_work.run(&seed.to_string()).map_err(|failure| failure.why);
        let mut progress = lock();
        progress.running.remove(&seed);
        progress.totals.seeds += 1;
        match answer {
            Ok(counts) => {
                progress.totals.counts.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
                worker = Some(at_work);
            }
            Err(why) => {
                let mutant = asked.mutant.iter().map(|name| format!(" --mutant '{name}'")).collect::<String>();
                println!("FAIL cargo run -p foreshore-sim -- --seed {seed}{mutant}: {why}");
                progress.totals.failed.insert(seed, why);
                if asked.is_first {
                    progress.end = progress.next;
                }
                drop(at_work);
            }
        }
        if let Some(state) = asked.state.as_deref().filter(|_| progress.totals.seeds.is_multiple_of(NOTE_EVERY)) {
            write_state(state, &progress)?;
        }
    }
}

/// A process that runs seeds.
pub(crate) struct Worker {
    child: Child,
    answers: mpsc::Receiver<String>,
    patience: Duration,
}

/// A run that was not well.
pub(crate) struct Failure {
    pub(crate) why: String,
    /// The list of the parts that had run, if it is known.
    pub(crate) parts: Option<String>,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, parts: None }
    }
}

impl Worker {
    /// Starts a process that is given up when a run takes longer than `patience`.
    pub(crate) fn start(program: &Path, asked: &Asked, patience: Duration) -> Result<Self, String> {
        let mut command = Command::new(program);
        asked.mutant.iter().for_each(|name| _ = command.arg("--mutant").arg(name));
        let mut child = command
            .arg("--worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let output = child.stdout.take().ok_or("the worker has no output")?;
        let (send, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, answers, patience })
    }

    /// Has a run made, and returns its counts, or why it has failed.
    pub(crate) fn run(&mut self, wanted: &str) -> Result<[u64; 8], Failure> {
        let input = self.child.stdin.as_mut().ok_or_else(|| "the worker has no input".to_owned())?;
        writeln!(input, "{wanted}").and_then(|()| input.flush()).map_err(|error| format!("the worker: {error}"))?;
        let answer = match self.answers.recv_timeout(self.patience) {
            Ok(answer) => answer,
            Err(mpsc::RecvTimeoutError::Timeout) => return Err(format!("no answer in {:?}", self.patience).into()),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(format!("the process ended: {:?}", self.child.wait()).into());
            }
        };
        if let Some(failed) = answer.strip_prefix("FAIL ") {
            let (parts, why) = failed.split_once(" parts ").unwrap_or(("", failed));
            return Err(Failure { why: why.to_owned(), parts: Some(parts.to_owned()) });
        }
        let (answer, _trace) = answer.split_once(" trace ").unwrap_or((&answer, ""));
        let counts = answer.strip_prefix("ok ").unwrap_or(answer).split(' ');
        let counts: Vec<u64> = counts.filter_map(|count| count.parse().ok()).collect();
        counts.try_into().map_err(|_| format!("an answer of another version: {answer}").into())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines `next N`, `counts …` and `FAIL seed why`.
fn write_state(path: &Path, progress: &Progress) -> Result<(), String> {
    let Totals { seeds, counts, failed } = &progress.totals;
    let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
    let mut text = format!("next {}\nseeds {seeds}\ncounts {}\n", progress.done_below(), counts.join(" "));
    for (seed, why) in failed {
        let _ = writeln!(text, "FAIL {seed} {why}");
    }
    let draft = path.with_extension("new");
    let write = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, path));
    write.map_err(|error| format!("{}: {error}", path.display()))
}

fn read_state(path: &Path, from: u64) -> Result<(u64, Totals), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (mut next, mut totals) = (from, Totals::default());
    for line in text.lines() {
        let bad = || format!("{}: not understood: {line}", path.display());
        match line.split_once(' ') {
            Some(("next", number)) => next = number.parse().map_err(|_| bad())?,
            Some(("seeds", number)) => totals.seeds = number.parse().map_err(|_| bad())?,
            Some(("counts", counts)) => {
                let counts: Vec<u64> = counts.split(' ').filter_map(|count| count.parse().ok()).collect();
                totals.counts = counts.try_into().map_err(|_| bad())?;
            }
            Some(("FAIL", failed)) => {
                let (seed, why) = failed.split_once(' ').ok_or_else(bad)?;
                totals.failed.insert(seed.parse().map_err(|_| bad())?, why.to_owned());
            }
            _ => return Err(bad()),
        }
    }
    Ok((next.max(from), totals))
}
