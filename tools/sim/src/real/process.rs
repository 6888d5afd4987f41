//! A child process as its parent sees it.

use super::child::{BEGUN, COMMITTED, KIND_SHIFT, OPENED, Order, PREPARED, REFUSED, REFUSED_BY_DISK};
use super::ledger::Heard;
use super::work::Told;
use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The number of SIGKILL.
const KILL: i32 = 9;

/// This program.
pub(super) fn own_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| error.to_string())
}

/// What has come through the pipe.
#[derive(Debug, Default)]
struct Come {
    heard: Heard,
    has_begun: bool,
    has_opened: bool,
    wrong: Option<String>,
}

/// A child at work. Dropped, it is killed.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    come: Arc<Mutex<Come>>,
    readers: Vec<JoinHandle<Vec<u8>>>,
}

/// How a child ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Its exit status.
    pub(super) status: ExitStatus,
    /// What it was told.
    pub(super) heard: Heard,
    /// What it has written to its standard error.
    pub(super) said: String,
    /// Whether it came as far as its own code.
    pub(super) has_begun: bool,
}

impl Ended {
    /// Whether SIGKILL ended it.
    #[must_use]
    pub(super) fn is_killed(&self) -> bool {
        self.status.signal() == Some(KILL)
    }

    /// Whether it ended with the shift.
    #[must_use]
    pub(super) fn is_through(&self) -> bool {
        self.status.success()
    }

    /// Whether an error of the engine ended it.
    #[must_use]
    pub(super) fn is_refused(&self) -> bool {
        self.status.code() == Some(REFUSED.into())
    }

    /// The last line that it has said, but for counts.
    #[must_use]
    pub(super) fn last_words(&self) -> &str {
        self.said.lines().rfind(|line| !line.starts_with("passes\t")).unwrap_or("nothing")
    }

    /// An error for an end that is neither orderly nor a typed error.
    ///
    /// # Errors
    /// What it has said, if it panicked or was aborted.
    pub(super) fn expect_no_panic(&self) -> Result<(), String> {
        let is_typed = self.is_killed() || self.is_through() || self.is_refused();
        match is_typed && !self.said.contains("panicked at") {
            true => Ok(()),
            false => Err(format!("the process ended by {}: {}", self.status, self.said.trim())),
        }
    }
}

impl Running {
    /// Starts `program` with an order, behind the words of `wrapper`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(program: &Path, wrapper: &[String], order: &Order) -> Result<Self, String> {
        let mut words = wrapper.iter().cloned().chain([program.display().to_string()]).chain(order.to_args());
        let first = words.next().ok_or("no program")?;
        let mut child = Command::new(&first)
            .args(words)
            // A tracer and what it traces are killed together.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{first}: {error}"))?;
        let come = Arc::new(Mutex::new(Come::default()));
        let (mut out, mut err) =
            (child.stdout.take().ok_or("no output")?, child.stderr.take().ok_or("no standard error")?);
        let noted = come.clone();
        let reader = thread::spawn(move || {
            let mut message = [0; 16];
            while out.read_exact(&mut message).is_ok() {
                note(&mut locked(&noted), &message);
            }
            Vec::new()
        });
        let said = thread::spawn(move || {
            let mut bytes = Vec::new();
            // What came before an error is all there is.
            let _ = err.read_to_end(&mut bytes);
            bytes
        });
        Ok(Self { child, come, readers: vec![reader, said] })
    }

    /// Waits until `is_so` or the child has ended, for `patience` at most; false if it is not so.
    fn wait_until(&mut self, patience: Duration, is_so: impl Fn(&Come) -> bool) -> bool {
        let until = Instant::now() + patience;
        loop {
            if is_so(&locked(&self.come)) {
                return true;
            }
            let has_ended = self.child.try_wait().map_or(true, |status| status.is_some());
            if has_ended || Instant::now() > until {
                return is_so(&locked(&self.come));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the first commit; false if there is none.
    pub(super) fn wait_for_commit(&mut self, patience: Duration) -> bool {
        self.wait_until(patience, |come| come.heard.commits > 0)
    }

    /// Waits for the database to be open; false if it is not.
    pub(super) fn wait_for_open(&mut self, patience: Duration) -> bool {
        self.wait_until(patience, |come| come.has_opened)
    }

    /// Waits for its end; false if it still runs.
    pub(super) fn wait_for_end(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if self.child.try_wait().map_or(true, |status| status.is_some()) {
                return true;
            }
            thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Kills it with all that it has started.
    pub(super) fn kill(&mut self) {
        // One that has ended is none of its group any more, and others may have its number.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let group = format!("-{}", self.child.id());
        let _ = self.child.kill();
        let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).output();
    }

    /// Waits for its end. One that does not end within `patience` is killed.
    ///
    /// # Errors
    /// If it does not end, or its messages were not in order.
    pub(super) fn wait(mut self, patience: Duration) -> Result<Ended, String> {
        let until = Instant::now() + patience;
        let status = loop {
            match self.child.try_wait().map_err(|error| error.to_string())? {
                Some(status) => break status,
                None if Instant::now() > until => {
                    let stacks = group_stacks(self.child.id());
                    return Err(format!("the process has not ended in {patience:?}:\n{stacks}"));
                }
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        let mut outputs = self.readers.drain(..).map(|reader| reader.join().unwrap_or_default());
        let said = outputs.nth(1).unwrap_or_default();
        drop(outputs);
        let come = std::mem::take(&mut *locked(&self.come));
        if let Some(wrong) = come.wrong {
            return Err(wrong);
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok(Ended { status, heard: come.heard, said, has_begun: come.has_begun })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.readers.is_empty() {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

fn locked(come: &Mutex<Come>) -> MutexGuard<'_, Come> {
    come.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(come: &mut Come, message: &[u8; 16]) {
    let word = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().expect("eight bytes"));
    let (first, number) = (word(0), word(8));
    let (kind, thread) = (first >> KIND_SHIFT, first & ((1 << KIND_SHIFT) - 1));
    let noted = match kind {
        COMMITTED => come.heard.note(thread, number, Told::Committed),
        PREPARED => come.heard.note(thread, number, Told::Prepared),
        REFUSED_BY_DISK => come.heard.note(thread, number, Told::Refused),
        BEGUN => {
            come.has_begun = true;
            Ok(())
        }
        OPENED => {
            come.has_opened = true;
            Ok(())
        }
        _ => Err(format!("a message of kind {kind}")),
    };
    come.wrong = come.wrong.take().or(noted.err());
}

/// What the processes of a group wait for in the kernel.
fn group_stacks(group: u32) -> String {
    let is_in = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name in brackets: state, parent, group.
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(2)?.parse().ok()) == Some(group)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_in);
    pids.map(stacks).collect::<Vec<_>>().join("\n")
}

/// What the threads of a process wait for in the kernel.
fn stacks(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let line = |task: std::fs::DirEntry| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        format!("{} {} {}", read("comm").trim(), read("wchan"), read("syscall").trim())
    };
    tasks.map(line).collect::<Vec<_>>().join("\n")
}
