//! The stepping: threads of another process, their turns and waits.

use super::{
    counts::{Counts, Plan},
    decoder::{Decoder, Instruction},
    symbols::Symbols,
    tally::WrittenLines,
    turns::{END, OPERATE, READY},
};
use foreshore::{Error, Result};
use nix::{
    errno::Errno,
    libc::{self, user_regs_struct},
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    sys::{
        ptrace::{self, Options},
        signal::Signal,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    mem,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A thread that is in the kernel for longer waits for something.
const WAIT: Duration = Duration::from_millis(1);
/// An operation that waits for longer is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Instructions of one background thread before the next one runs, in case it spins until that one has acted.
const SLICE: u32 = 20_000;
/// Slices in which background threads run on their own.
const SLICES: u32 = 100;

/// Starts `command`, which must call [`by_turns`](super::by_turns), and counts what its workers do.
///
/// # Errors
/// `Io` if `ptrace` is forbidden, or if the process ends early, waits for over 30 s, or cannot be read.
pub fn count(command: &mut Command, plan: Plan) -> Result<Counts> {
    let program = command.get_program().to_owned();
    // The kernel knows the tracer by its thread. With this one, its processor is forgotten too.
    let counted = thread::scope(|scope| scope.spawn(|| count_stepped(command, plan)).join());
    counted.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(|e| Error::io("step through", program, e))
}

fn count_stepped(command: &mut Command, plan: Plan) -> io::Result<Counts> {
    let mut stepped = Stepped::start(command)?;
    let mut tracer = Tracer::attach(stepped.child.id() as i32, &stepped.read_workers()?)?;
    // A round that does not count: the threads were stopped anywhere.
    tracer.round()?;
    tracer.run_background()?;
    tracer.tally = WrittenLines::default();
    let mut operations = 0;
    for round in 1..=plan.rounds {
        tracer.round()?;
        operations += tracer.workers.len() as u64;
        if round % plan.background_every.max(1) == 0 || round == plan.rounds {
            tracer.run_background()?;
        }
        if tracer.tally.instructions >= plan.instructions {
            break;
        }
    }
    let counts = tracer.tally.counts(operations, &mut Symbols::new(stepped.child.id() as i32));
    tracer.detach()?;
    stepped.wait()?;
    Ok(counts)
}

/// The process, which ends with this value.
struct Stepped {
    child: Child,
    /// It ends when this is closed.
    _alive: Option<ChildStdin>,
}

/// A worker as the process names it.
struct Named {
    thread: Pid,
    /// The descriptor from which it reads its turns.
    turns: u64,
    /// That of the other end.
    turns_by: i32,
}

impl Stepped {
    fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let alive = child.stdin.take();
        Ok(Self { child, _alive: alive })
    }

    /// Waits until the workers are warm.
    fn read_workers(&mut self) -> io::Result<Vec<Named>> {
        let ended = || io::Error::other("the process ended before its workers were warm");
        let output = self.child.stdout.take().ok_or_else(ended)?;
        let mut lines = BufReader::new(output).lines();
        loop {
            let line = lines.next().ok_or_else(ended)??;
            if let Some(names) = line.strip_prefix(READY) {
                // What the process still prints is not read, and must not fill the pipe.
                thread::spawn(move || lines.for_each(drop));
                return names.split_whitespace().map(|name| named(name).ok_or_else(ended)).collect();
            }
        }
    }

    /// Waits until it ends of its own accord.
    fn wait(mut self) -> io::Result<()> {
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("the process ended with {status}"))) }
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        // All fail if it has ended. It ends only when its tracer has seen the end of each thread.
        let _ = self.child.kill();
        let process = self.child.id() as i32;
        for thread in threads(process).unwrap_or_default().into_iter().filter(|thread| thread.as_raw() != process) {
            while waitpid(thread, Some(WaitPidFlag::__WALL)).is_ok_and(|status| !is_end(status)) {}
        }
        let _ = self.child.wait();
    }
}

fn named(name: &str) -> Option<Named> {
    let mut numbers = name.split(':').map(|number| number.parse::<i32>().ok());
    let mut next = || numbers.next()?;
    Some(Named { thread: Pid::from_raw(next()?), turns: next()? as u64, turns_by: next()? })
}

struct Worker {
    thread: Pid,
    turns: u64,
    pipe: File,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Stopped,
    /// In the kernel, perhaps waiting.
    Running,
}

struct Tracer {
    workers: Vec<Worker>,
    /// All threads but the workers.
    background: BTreeMap<Pid, State>,
    decoder: Decoder,
    tally: WrittenLines,
}

/// What a thread does between two looks.
enum Next {
    Stopped,
    Running,
    Ended,
}

impl Tracer {
    /// Stops all threads of the process. From here on they and this thread share one processor, so a step is shorter.
    fn attach(process: i32, named: &[Named]) -> io::Result<Self> {
        let open = |named: &Named| {
            let path = format!("/proc/{process}/fd/{}", named.turns_by);
            let pipe = File::options().write(true).open(path)?;
            Ok(Worker { thread: named.thread, turns: named.turns, pipe })
        };
        let workers = named.iter().map(open).collect::<io::Result<_>>()?;
        let mut tracer = Self {
            workers,
            background: BTreeMap::new(),
            decoder: Decoder::new(process)?,
            tally: WrittenLines::default(),
        };
        let processor = one_processor(process)?;
        let mut attached = Vec::new();
        // A thread that is not yet stopped may start another one.
        while let Some(new) = threads(process)?.into_iter().find(|thread| !attached.contains(thread)) {
            ptrace::seize(new, Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACECLONE)?;
            ptrace::interrupt(new)?;
            waitpid(new, Some(WaitPidFlag::__WALL))?;
            sched_setaffinity(new, &processor)?;
            if tracer.workers.iter().all(|worker| worker.thread != new) {
                tracer.background.insert(new, State::Stopped);
            }
            attached.push(new);
        }
        Ok(tracer)
    }

    /// Lets each worker run one operation.
    fn round(&mut self) -> io::Result<()> {
        (0..self.workers.len()).try_for_each(|worker| self.operation(worker))
    }

    /// Steps from the read of a turn to the next read of one.
    fn operation(&mut self, worker: usize) -> io::Result<()> {
        let Worker { thread, turns, pipe } = &mut self.workers[worker];
        let (thread, turns) = (*thread, *turns);
        pipe.write_all(&[OPERATE])?;
        let mut has_begun = false;
        loop {
            let registers = ptrace::getregs(thread)?;
            let instruction = self.decoder.at(registers.rip)?;
            let is_at_turn = instruction.is_syscall && registers.rax == libc::SYS_read as u64 && registers.rdi == turns;
            if is_at_turn && has_begun {
                return Ok(());
            }
            if !is_at_turn {
                has_begun = true;
                self.tally.instructions += 1;
                self.note(thread, &registers, &instruction, true);
            }
            match self.step(thread, may_wait(&registers, &instruction))? {
                Next::Stopped => {}
                Next::Running => self.wait_for(thread)?,
                Next::Ended => return Err(io::Error::other("a worker ended in an operation")),
            }
        }
    }

    fn note(&mut self, thread: Pid, registers: &user_regs_struct, instruction: &Instruction, is_operation: bool) {
        for line in instruction.lines(registers) {
            self.tally.note(line, registers.rip, thread.as_raw(), instruction.is_rmw, is_operation);
        }
    }

    /// Runs one instruction.
    fn step(&mut self, thread: Pid, may_wait: bool) -> io::Result<Next> {
        ptrace::step(thread, None)?;
        if !may_wait {
            return self.look(thread, None);
        }
        let begun = Instant::now();
        loop {
            match self.look(thread, Some(WaitPidFlag::WNOHANG))? {
                Next::Running if begun.elapsed() < WAIT => thread::yield_now(),
                next => return Ok(next),
            }
        }
    }

    /// Whether a thread that was stepped has stopped again.
    fn look(&mut self, thread: Pid, flag: Option<WaitPidFlag>) -> io::Result<Next> {
        loop {
            let flags = WaitPidFlag::__WALL | flag.unwrap_or(WaitPidFlag::empty());
            match waitpid(thread, Some(flags))? {
                WaitStatus::StillAlive => return Ok(Next::Running),
                WaitStatus::Stopped(_, Signal::SIGTRAP) => return Ok(Next::Stopped),
                WaitStatus::Stopped(_, signal) => ptrace::step(thread, signal)?,
                WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_CLONE) => {
                    // The new thread is about to stop for the first time.
                    let new = Pid::from_raw(ptrace::getevent(thread)? as i32);
                    self.background.insert(new, State::Running);
                    ptrace::step(thread, None)?;
                }
                WaitStatus::PtraceEvent(..) => return Ok(Next::Stopped),
                _ => return Ok(Next::Ended),
            }
        }
    }

    /// Runs the background threads until the worker's wait is over.
    fn wait_for(&mut self, worker: Pid) -> io::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            self.run_slices()?;
            match self.look(worker, Some(WaitPidFlag::WNOHANG))? {
                Next::Stopped => return Ok(()),
                Next::Running => thread::sleep(WAIT / 20),
                Next::Ended => return Err(io::Error::other("a worker ended in an operation")),
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("an operation waits for more than {PATIENCE:?}")))
    }

    /// Runs the background threads until all of them wait.
    fn run_background(&mut self) -> io::Result<()> {
        for _ in 0..SLICES {
            if !self.run_slices()? {
                // What another one's last act has woken.
                thread::sleep(WAIT);
                if !self.run_slices()? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Runs each background thread until it waits, or for a slice. Returns whether any ran.
    fn run_slices(&mut self) -> io::Result<bool> {
        let mut any = false;
        let threads: Vec<Pid> = self.background.keys().copied().collect();
        for thread in threads {
            for _ in 0..SLICE {
                if self.background[&thread] == State::Running {
                    match self.look(thread, Some(WaitPidFlag::WNOHANG))? {
                        Next::Running => break,
                        Next::Stopped => self.background.insert(thread, State::Stopped),
                        Next::Ended => {
                            self.background.remove(&thread);
                            break;
                        }
                    };
                }
                any = true;
                let registers = ptrace::getregs(thread)?;
                let instruction = self.decoder.at(registers.rip)?;
                self.note(thread, &registers, &instruction, false);
                if !matches!(self.step(thread, may_wait(&registers, &instruction))?, Next::Stopped) {
                    self.background.insert(thread, State::Running);
                }
            }
        }
        Ok(any)
    }

    /// Lets go of all threads, and ends the workers.
    fn detach(mut self) -> io::Result<()> {
        for (thread, state) in mem::take(&mut self.background) {
            if state == State::Running {
                self.stop(thread)?;
            }
            ptrace::detach(thread, None)?;
        }
        for Worker { thread, pipe, .. } in &mut self.workers {
            pipe.write_all(&[END])?;
            ptrace::detach(*thread, None)?;
        }
        Ok(())
    }

    /// Stops a thread in the kernel. The signal of its last step is taken too, because without a tracer it would end
    /// the process.
    fn stop(&mut self, thread: Pid) -> io::Result<()> {
        loop {
            ptrace::interrupt(thread)?;
            if let WaitStatus::Stopped(_, Signal::SIGTRAP) = waitpid(thread, Some(WaitPidFlag::__WALL))? {
                return Ok(());
            }
            if let Next::Stopped = self.step(thread, true)? {
                return Ok(());
            }
        }
    }
}

fn is_end(status: WaitStatus) -> bool {
    matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..))
}

/// Whether the next step enters the kernel, where a thread may wait for another one. A thread that was stopped there
/// goes back to it.
fn may_wait(registers: &user_regs_struct, instruction: &Instruction) -> bool {
    instruction.is_syscall || registers.orig_rax.cast_signed() >= 0
}

/// The threads of a process.
fn threads(process: i32) -> io::Result<Vec<Pid>> {
    let entries = fs::read_dir(format!("/proc/{process}/task"))?;
    let mut threads = Vec::new();
    for entry in entries {
        threads.extend(entry?.file_name().to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw));
    }
    Ok(threads)
}

/// Binds this thread to one of its processors, not the same for each process.
fn one_processor(process: i32) -> io::Result<CpuSet> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let allowed: Vec<usize> = (0..CpuSet::count()).filter(|&number| allowed.is_set(number) == Ok(true)).collect();
    let mut processor = CpuSet::new();
    processor.set(*allowed.get(process as usize % allowed.len().max(1)).ok_or(Errno::EINVAL)?)?;
    sched_setaffinity(Pid::from_raw(0), &processor)?;
    Ok(processor)
}
