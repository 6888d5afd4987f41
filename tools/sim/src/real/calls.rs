//! System calls that fail, in the ordinary build: `strace` fails the n-th call of its kind in each thread.
//!
//! The process returns a typed error or goes on. After an error it opens the directory again, in the same process; at
//! the end the parent opens it. No acknowledged commit is lost, and nothing panics. If an allocation of the process
//! itself gets no memory, it aborts, which counts as a kill.

use super::asked::Asked;
use super::child::Order;
use super::ledger::Ledger;
use super::mounts::{command, scratch, text};
use super::plan::options;
use super::process::{Ended, Running, own_program};
use super::totals::Totals;
use crate::random::{Random, mixed};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Calls with the errors that the kernel may answer them with, and the largest n that is drawn.
const CALLS: [(&str, &[&str], u64); 15] = [
    ("pwrite64", &["EIO", "ENOSPC", "EINTR", "EDQUOT"], 60),
    ("pwritev2", &["EIO", "ENOSPC", "EINTR"], 40),
    ("pread64", &["EIO", "EINTR"], 60),
    ("fdatasync", &["EIO", "ENOSPC", "EINTR"], 40),
    ("fsync", &["EIO", "ENOSPC", "EINTR"], 12),
    ("fallocate", &["ENOSPC", "EIO", "EINTR"], 6),
    ("openat", &["EMFILE", "ENFILE", "EIO", "ENOMEM", "EINTR", "ENOSPC"], 60),
    ("ftruncate", &["EIO", "EINTR", "ENOSPC"], 1),
    ("mmap", &["ENOMEM"], 60),
    ("renameat", &["EIO", "ENOSPC"], 16),
    ("unlinkat", &["EIO"], 4),
    ("clone3", &["EAGAIN"], 12),
    ("getdents64", &["EIO"], 4),
    ("fadvise64", &["EIO"], 4),
    ("flock", &["EINTR", "ENOLCK"], 2),
];
/// How long a process works, in milliseconds.
const SHIFT: u64 = 350;
/// Rounds on one directory.
const ROUNDS_OF_A_DIRECTORY: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn run(asked: &Asked, totals: &mut Totals) -> Result<(), String> {
    if let Err(why) = command("strace", &["-o", "/dev/null", "-e", "inject=fsync:error=EIO", "true"]) {
        totals.skip("calls", &why);
        return Ok(());
    }
    let base = scratch("calls")?;
    let (mut dir, mut ledger) = (base.join("0"), Ledger::default());
    let count = if asked.call.is_some() { 1 } else { asked.count.unwrap_or(24) };
    for round in 0..count {
        if round > 0 && round % ROUNDS_OF_A_DIRECTORY == 0 {
            let _ = fs::remove_dir_all(&dir);
            (dir, ledger) = (base.join(round.to_string()), Ledger::default());
        }
        let seed = asked.seed + round;
        let fault = match &asked.call {
            Some(call) => Fault::parse(call)?,
            None => Fault::drawn(seed, round),
        };
        let log = base.join("strace.log");
        let outcome = fault.make(seed, &dir, &log, &mut ledger, totals);
        let outcome = outcome.map_err(|why| format!("{why}; kept: {}", dir.display()));
        if !totals.round(outcome, &format!("--call {fault} --seed {seed}")) {
            (dir, ledger) = (base.join(format!("after-{round}")), Ledger::default());
        }
    }
    if totals.is_well() {
        let _ = fs::remove_dir_all(&base);
    }
    Ok(())
}

/// A call, the error that it is answered with, and when.
struct Fault {
    call: String,
    error: String,
    /// Of the calls of a thread: `7` is the seventh, `7+` that and all that follow.
    when: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}@{}", self.call, self.error, self.when)
    }
}

impl Fault {
    fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(call, rest)| Some((call, rest.split_once('@')?)));
        let (call, (error, when)) = parts.ok_or_else(|| format!("{text}: not NAME=ERROR@N"))?;
        Ok(Self { call: call.to_owned(), error: error.to_owned(), when: when.to_owned() })
    }

    /// Each call in turn; one in four goes on failing.
    fn drawn(seed: u64, round: u64) -> Self {
        let mut random = Random::new(mixed(seed));
        let (call, errors, most) = CALLS[(round % CALLS.len() as u64) as usize];
        let error = errors[random.below(errors.len() as u64) as usize];
        let magnitude = random.below(u64::from(most.ilog2()) + 1);
        let n = (1 + random.below(2 << magnitude)).min(most);
        let goes_on = random.below(4) == 0 && error != "EINTR";
        let when = format!("{n}{}", if goes_on { "+" } else { "" });
        Self { call: call.to_owned(), error: error.to_owned(), when }
    }

    fn make(&self, seed: u64, dir: &Path, log: &Path, ledger: &mut Ledger, totals: &mut Totals) -> Result<(), String> {
        let mut random = Random::new(mixed(seed ^ 1));
        // This one writes past the page cache.
        let is_buffered = random.below(2) == 0 && self.call != "pwritev2";
        let order = Order {
            dir: dir.to_owned(),
            seed,
            millis: SHIFT,
            is_disk_bad: true,
            reopens: 2,
            is_buffered,
            ..Order::default()
        };
        let Self { call, error, when } = self;
        let inject = format!("inject={call}:error={error}:when={when}");
        let trace = format!("trace={call}");
        let wrapper =
            ["strace", "-f", "-qq", "-y", "-Z", "--seccomp-bpf", "-o", text(log), "-e", &trace, "-e", &inject];
        let running = Running::start(&own_program()?, &wrapper.map(str::to_owned), &order)?;
        let ended = running.wait(PATIENCE)?;
        let made = injected(log);
        totals.count_many(&format!("{call} {error}"), made);
        totals.commits += ended.heard.commits;
        judge(&ended)?;
        let answer = match (made, ended.is_through()) {
            (0, _) => "rounds without a failing call",
            (_, true) if ended.said.contains("begins again") => "answered with an error, opened again",
            (_, true) => "went on",
            (_, false) => "ended by an error",
        };
        totals.count(answer);
        let options = options(seed);
        let options = if is_buffered { options.device(foreshore::Device::Buffered) } else { options };
        ledger
            .verify_files(&options, dir, &ended.heard, seed)
            .map_err(|why| format!("{why}; process: {}", ended.said.trim()))
    }
}

/// Checks for an end by a typed error, in order, or for want of memory.
fn judge(ended: &Ended) -> Result<(), String> {
    // The last one is the standard library's, at the start of a thread.
    let aborts = ["memory allocation of", "failed to allocate an alternative stack"];
    let is_out_of_memory = !ended.has_begun || aborts.iter().any(|words| ended.said.contains(words));
    if is_out_of_memory { Ok(()) } else { ended.expect_no_panic() }
}

/// Calls that have failed by the log of the tracer.
fn injected(log: &Path) -> u64 {
    let text = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter(|line| line.ends_with("(INJECTED)")).count() as u64
}
