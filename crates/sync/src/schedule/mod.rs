//! A seeded scheduler for whole programs, under `--cfg foreshore_sim`: one thread runs at a time, and a seed decides
//! which.
//!
//! **Choice.** The engine runs on threads of the system, each with its own stack and thread-locals. A thread yields
//! only in a call of [`crate::primitive`]. The alternative was the shuttle build, which runs threads as coroutines.
//! But shuttle shrinks the engine's capacities, shares one set of thread-locals among all threads, has no time, and
//! decides at every atomic access. Here an access costs a decrement, a decision costs about one context switch, and
//! the engine is the one that ships. Neither models weak orderings; loom does.
//!
//! **Protocol.**
//! 1. A task is a thread that [`spawn`] has started in a run. Exactly one task runs, and all others wait at their
//!    gates.
//! 2. Each call of a primitive is a scheduling point. When those of a time slice are used up, or a task waits, it
//!    decides which task runs next, opens that task's gate and waits at its own.
//! 3. A task that waits for a lock, a signal or the end of another task is not ready. Waking it only makes it ready.
//! 4. Time is a number. It grows with each decision, and jumps to the next deadline when no task is ready. While the
//!    only ready task yields, it jumps now and then by up to a millisecond. With [`Plan::jump_one_in`] it also jumps
//!    to the next deadline now and then while tasks are ready: a thread may be descheduled for that long.
//! 5. A run stops when no task is ready and no deadline is left, when no [`progress`] was noted for the plan's
//!    patience, and after too many decisions. Its threads then wait forever: the caller reports and ends the process.
//!
//! **Invariant:** everything that a run does follows from its plan. Random hash keys are constant ([`keys`]), the
//! machine has four processors, and addresses used as wait keys are only compared for equality.

mod atomic;
mod gate;
mod keys;
mod lock;
mod plan;
pub(crate) mod platform;
mod state;
#[cfg(test)]
mod tests;
mod world;

pub use plan::{Plan, Summary};

use gate::POINTS_LEFT;
use state::{On, State, Status};
use std::cell::RefCell;
use std::io;
use std::sync::{Arc, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use world::World;

/// Processors that the engine sees.
pub(crate) const PARALLELISM: usize = 4;
/// Time that a read of the clock takes, in nanoseconds.
const LOOK: u64 = 100;

struct Me {
    world: Arc<World>,
    id: usize,
}

std::thread_local! {
    static ME: RefCell<Option<Me>> = const { RefCell::new(None) };
}

/// Returns the world and the number of the calling task; `None` on a thread that is no task, or that is ending.
fn me() -> Option<(Arc<World>, usize)> {
    ME.try_with(|me| me.borrow().as_ref().map(|me| (me.world.clone(), me.id))).ok().flatten()
}

/// Returns the number of the calling task.
pub(crate) fn index() -> Option<usize> {
    ME.try_with(|me| me.borrow().as_ref().map(|me| me.id)).ok().flatten()
}

/// A scheduling point: may yield to another task.
#[inline]
pub(crate) fn scheduling_point() {
    let _ = POINTS_LEFT.try_with(|left| match left.get() {
        0 => slice_is_over(),
        more => left.set(more - 1),
    });
}

#[cold]
fn slice_is_over() {
    match me() {
        None => POINTS_LEFT.set(u32::MAX),
        Some((world, id)) => world.give_way(id, false),
    }
}

/// Yields to another ready task.
pub fn yield_now() {
    match me() {
        None => std::thread::yield_now(),
        Some((world, id)) => world.give_way(id, true),
    }
}

/// Notes that a request was completed: the run is not stuck.
pub fn progress() {
    if let Some((world, _)) = me() {
        let mut state = world.lock();
        state.progress_at = state.now;
    }
}

/// Returns the time: of the run on a task, of the system elsewhere.
pub(crate) fn instant() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let Some((world, _)) = me() else { return Instant::now() };
    let mut state = world.lock();
    state.now += LOOK;
    *ORIGIN.get_or_init(Instant::now) + Duration::from_nanos(state.now)
}

/// A started thread.
#[derive(Debug)]
pub struct Handle {
    /// Its number, if it is a task.
    task: Option<usize>,
    thread: JoinHandle<()>,
}

impl Handle {
    /// Waits for its end.
    ///
    /// # Errors
    /// The panic of its body.
    pub fn join(self) -> std::thread::Result<()> {
        if let (Some(task), Some((world, id))) = (self.task, me()) {
            while !world.has_ended(task) {
                // WAIT: park - until the task ends.
                world.wait(id, On::End(task), None);
            }
        }
        // Only destructors of its thread-locals remain.
        self.thread.join()
    }
}

/// Starts a thread: a task if the caller is one.
///
/// # Errors
/// Those of the system.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Handle> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    let Some((world, _)) = me() else {
        return Ok(Handle { task: None, thread: builder.spawn(body)? });
    };
    let task = world.lock().add(name);
    let thread = builder.spawn(move || as_task(world, task, body))?;
    scheduling_point();
    Ok(Handle { task: Some(task), thread })
}

fn as_task(world: Arc<World>, id: usize, body: impl FnOnce()) {
    let gate = world.lock().tasks[id].gate.clone();
    ME.set(Some(Me { world: world.clone(), id }));
    world.wait_at(&gate);
    let _end = End(world, id);
    body();
}

/// Ends the task when it is dropped, also by a panic.
struct End(Arc<World>, usize);

impl Drop for End {
    fn drop(&mut self) {
        ME.set(None);
        POINTS_LEFT.set(u32::MAX);
        let mut state = self.0.lock();
        state.tasks[self.1].status = Status::Ended;
        state.wake(On::End(self.1), usize::MAX);
        self.0.hand_over(state, None, false);
    }
}

/// Runs `body` and every task that it starts, to the end of the last one.
///
/// # Errors
/// Says why the run was stopped. Its threads are left as they are.
pub fn run<R: Send + 'static>(plan: Plan, body: impl FnOnce() -> R + Send + 'static) -> Result<(R, Summary), String> {
    keys::need();
    let (over, is_over) = mpsc::sync_channel(1);
    let world = Arc::new(World::new(State::new(plan), over));
    let result = Arc::new(std::sync::Mutex::new(None));
    let (task, answer) = (world.lock().add("main"), result.clone());
    let main = world.clone();
    let body = move || *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(body());
    std::thread::Builder::new()
        .name("main".to_owned())
        .spawn(move || as_task(main, task, body))
        .map_err(|error| error.to_string())?;
    world.hand_over(world.lock(), None, false);
    if let Some(why) = is_over.recv().unwrap_or_else(|_| Some("the run is lost".to_owned())) {
        return Err(world.report(why));
    }
    let result = result.lock().unwrap_or_else(PoisonError::into_inner).take();
    let summary = world.lock().summary;
    result.map(|result| (result, summary)).ok_or_else(|| "the main task has panicked".to_owned())
}
