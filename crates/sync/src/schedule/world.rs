//! The scheduler of one run: the hand-over between tasks, and the report of a stopped run.

use super::gate::{Command, Gate, POINTS_LEFT};
use super::state::{Decision, On, State, Status};
use std::backtrace::Backtrace;
use std::fmt::Write as _;
use std::sync::{Arc, PoisonError, mpsc};
use std::time::Duration;

/// The scheduler of one run, shared by its tasks.
#[derive(Debug)]
pub(super) struct World {
    state: std::sync::Mutex<State>,
    /// Receives one message at the end: `None` if all tasks ended, otherwise why the run was stopped.
    over: mpsc::SyncSender<Option<String>>,
}

impl World {
    /// Makes a run that has not begun.
    pub(super) const fn new(state: State, over: mpsc::SyncSender<Option<String>>) -> Self {
        Self { state: std::sync::Mutex::new(state), over }
    }

    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_ended(&self, task: usize) -> bool {
        self.lock().tasks[task].status == Status::Ended
    }

    /// Ends the caller's time slice, and returns when the caller is scheduled again.
    pub(super) fn give_way(&self, id: usize, yields: bool) {
        self.hand_over(self.lock(), Some(id), yields);
    }

    /// Blocks the caller on `on`. Returns whether the wait timed out.
    pub(super) fn wait(&self, id: usize, on: On, timeout: Option<Duration>) -> bool {
        let mut state = self.lock();
        // A deadline that overflows never passes.
        let until = timeout.and_then(|timeout| state.now.checked_add(u64::try_from(timeout.as_nanos()).ok()?));
        state.tasks[id].status = Status::Waiting { on, until };
        state.tasks[id].timed_out = false;
        self.hand_over(state, Some(id), false);
        self.lock().tasks[id].timed_out
    }

    /// Makes up to `max` tasks that wait for `on` ready.
    pub(super) fn wake(&self, on: On, max: usize) {
        self.lock().wake(on, max);
    }

    /// Decides which task runs next. The caller `id`, if it goes on, waits at its gate until it is chosen, and for ever
    /// once the run is over.
    pub(super) fn hand_over(&self, mut state: std::sync::MutexGuard<'_, State>, id: Option<usize>, yields: bool) {
        let next = if state.is_over { None } else { Some(state.decide(id, yields)) };
        match next {
            Some(Decision::Run(next, points)) => {
                if id == Some(next) {
                    POINTS_LEFT.set(points);
                    return;
                }
                let gate = state.tasks[next].gate.clone();
                let own = id.map(|id| state.tasks[id].gate.clone());
                drop(state);
                gate.send(Command::Run(points));
                if let Some(own) = own {
                    self.wait_at(&own);
                }
            }
            other => {
                if let Some(Decision::Stop(why)) = other {
                    state.is_over = true;
                    // The only message; the receiver waits for it.
                    let _ = self.over.try_send(why);
                }
                let own = id.map(|id| state.tasks[id].gate.clone());
                drop(state);
                if let Some(own) = own {
                    self.wait_at(&own);
                }
            }
        }
    }

    pub(super) fn wait_at(&self, gate: &Gate) {
        loop {
            match gate.receive() {
                Command::Run(points) => {
                    POINTS_LEFT.set(points);
                    return;
                }
                Command::ReportStack => {
                    let stack = format!("-- {}\n{}", thread_name(), Backtrace::force_capture());
                    self.lock().stacks.push(stack);
                }
            }
        }
    }

    /// Returns a report of a stopped run.
    pub(super) fn report(&self, why: String) -> String {
        let mut report = why;
        let mut state = self.lock();
        let now = state.now;
        let _ = write!(report, " after {} decisions, {:?}:", state.summary.decisions, Duration::from_nanos(now));
        for task in state.tasks.iter().filter(|task| task.status != Status::Ended) {
            let waits = match task.status {
                Status::Waiting { on, until } => {
                    let kind = match on {
                        On::Lock(_) => "a lock".to_owned(),
                        On::Signal(_) => "a signal".to_owned(),
                        On::End(task) => format!("the end of {}", state.tasks[task].name),
                    };
                    match until.map(|until| Duration::from_nanos(until.saturating_sub(now))) {
                        Some(left) => format!("waits for {kind}, for at most {left:?} more"),
                        None => format!("waits for {kind}"),
                    }
                }
                Status::Ready | Status::Ended => "ready".to_owned(),
            };
            let _ = write!(report, " [{} {waits}]", task.name);
        }
        if state.plan.stacks {
            let alive: Vec<Arc<Gate>> =
                state.tasks.iter().filter(|task| task.status != Status::Ended).map(|task| task.gate.clone()).collect();
            drop(state);
            alive.iter().for_each(|gate| gate.send(Command::ReportStack));
            for _ in 0..100 {
                // WAIT: park - the tasks show their stacks meanwhile.
                std::thread::sleep(Duration::from_millis(50));
                if self.lock().stacks.len() == alive.len() {
                    break;
                }
            }
            state = self.lock();
            state.stacks.iter().for_each(|stack| report.push_str(&format!("\n{stack}")));
        }
        report
    }
}

fn thread_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}
