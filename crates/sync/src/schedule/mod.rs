//! A seeded scheduler for whole programs, under `--cfg foreshore_sim`: one thread runs at a time, and a seed decides which.
//!
//! **Choice.** The engine runs on threads of the system, each with its own stack and thread-locals. A thread gives way only in
//! a call of [`crate::primitive`]. The other candidate was the shuttle build, which runs threads as coroutines. It shrinks the
//! engine's capacities, shares one set of thread-locals among all threads, has no time, and decides anew at every atomic
//! access. Here an access costs a decrement, a decision costs about a switch of the system, and the engine is the one that
//! ships. What is lost is nothing: neither of the two models weak orderings, which loom does.
//!
//! **Protocol.**
//! 1. A task is a thread that [`spawn`] has started in a run. Exactly one task runs, and all others wait at their gates.
//! 2. Each call of a primitive is a step. When the steps of a turn are used up, or a task has to wait, it decides which task
//!    runs next, opens that task's gate and waits at its own.
//! 3. A task that waits for a lock, a signal or the end of another task is not ready. Waking it makes it ready and nothing else.
//! 4. Time is a number. It grows with each decision, and jumps to the next deadline when no task is ready. With
//!    [`Plan::jump_one_in`] it also jumps now and then while tasks are ready: a thread may be descheduled for that long.
//! 5. A run stops when no task is ready and no deadline is left, when no [`progress`] was noted for the patience of the plan, and
//!    after too many decisions. Its threads wait for ever then: the caller reports and ends the process.
//!
//! **Invariant:** everything that a run does follows from its plan. Random hash keys are constant ([`keys`]), the machine has
//! four processors, and a key of a wait that is an address is compared for equality alone.

mod atomic;
mod keys;
mod lock;

pub use atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence};
pub(crate) use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Processors that the engine sees.
pub(crate) const PARALLELISM: usize = 4;
/// How much time a decision takes, in nanoseconds.
const DECISION: u64 = 1_000;
/// How much time a look at the clock takes, in nanoseconds.
const LOOK: u64 = 100;

/// What a run follows from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything else.
    pub seed: u64,
    /// Steps of a turn on average.
    pub mean_turn: u32,
    /// One decision in so many lets time jump to a deadline although tasks are ready; none if zero.
    pub jump_one_in: u32,
    /// Whether tasks differ in how often they are chosen, by factors up to 64.
    pub uneven: bool,
    /// How long a run goes on without [`progress`].
    pub patience: Duration,
    /// Decisions at most.
    pub most_decisions: u64,
    /// Whether a report of a stop shows the stacks of all tasks.
    pub stacks: bool,
}

/// What a run that ended was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// A sum over all decisions: equal for runs that were the same.
    pub trace: u64,
    /// Decisions.
    pub decisions: u64,
    /// The time that has passed in the run.
    pub time: Duration,
}

/// What a task waits for. The addresses are those of the primitives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Lock(usize),
    Signal(usize),
    End(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready,
    Waiting { on: On, until: Option<u64> },
    Ended,
}

#[derive(Debug)]
struct Task {
    name: String,
    status: Status,
    /// Whether the last wait ended by its time.
    timed_out: bool,
    weight: u64,
    gate: Arc<Gate>,
}

/// What a task at its gate is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    /// It is its turn, of so many steps.
    Run(u32),
    /// To show its stack, and to wait on.
    Show,
}

#[derive(Debug)]
struct Gate {
    told: std::sync::Mutex<Told>,
    changed: std::sync::Condvar,
}

#[derive(Debug)]
struct State {
    plan: Plan,
    random: u64,
    tasks: Vec<Task>,
    now: u64,
    progress_at: u64,
    summary: Summary,
    /// The run is over.
    is_over: bool,
    stacks: Vec<String>,
}

#[derive(Debug)]
struct World {
    state: std::sync::Mutex<State>,
    /// Told once when the run is over: why, if it was stopped.
    over: mpsc::SyncSender<Option<String>>,
}

struct Me {
    world: Arc<World>,
    id: usize,
}

std::thread_local! {
    static ME: RefCell<Option<Me>> = const { RefCell::new(None) };
    /// Steps that are left of the turn.
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

/// The world and the number of the calling task; `None` on a thread that is none, or that is ending.
fn me() -> Option<(Arc<World>, usize)> {
    ME.try_with(|me| me.borrow().as_ref().map(|me| (me.world.clone(), me.id))).ok().flatten()
}

/// The number of the calling task.
pub(crate) fn index() -> Option<usize> {
    ME.try_with(|me| me.borrow().as_ref().map(|me| me.id)).ok().flatten()
}

/// One step: may give way to another task.
#[inline]
pub(crate) fn step() {
    let _ = LEFT.try_with(|left| match left.get() {
        0 => turn_is_over(),
        more => left.set(more - 1),
    });
}

#[cold]
fn turn_is_over() {
    match me() {
        None => LEFT.set(u32::MAX),
        Some((world, id)) => world.give_way(id, false),
    }
}

/// Gives way to another task that is ready.
pub(crate) fn yield_now() {
    match me() {
        None => std::thread::yield_now(),
        Some((world, id)) => world.give_way(id, true),
    }
}

/// Notes that something asked for was done: the run is not stuck.
pub fn progress() {
    if let Some((world, _)) = me() {
        let mut state = world.lock();
        state.progress_at = state.now;
    }
}

/// The time: of the run on a task, of the system elsewhere.
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
    /// Waits for its end. A panic of its body is an end.
    pub fn join(self) {
        if let (Some(task), Some((world, id))) = (self.task, me()) {
            while !world.has_ended(task) {
                world.wait(id, On::End(task), None);
            }
        }
        // What is left of the thread are destructors of its thread-locals.
        drop(self.thread.join());
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
    step();
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
        LEFT.set(u32::MAX);
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
    let random = plan.seed;
    let state = State {
        plan,
        random,
        tasks: Vec::new(),
        now: 0,
        progress_at: 0,
        summary: Summary::default(),
        is_over: false,
        stacks: Vec::new(),
    };
    let world = Arc::new(World { state: std::sync::Mutex::new(state), over });
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

impl World {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ended(&self, task: usize) -> bool {
        self.lock().tasks[task].status == Status::Ended
    }

    /// Lets another task run, and returns when it is the caller's turn again.
    fn give_way(&self, id: usize, yields: bool) {
        self.hand_over(self.lock(), Some(id), yields);
    }

    /// Makes the caller wait; true if that ended by its time.
    fn wait(&self, id: usize, on: On, timeout: Option<Duration>) -> bool {
        let mut state = self.lock();
        // A deadline beyond the end of time never comes.
        let until = timeout.and_then(|timeout| state.now.checked_add(u64::try_from(timeout.as_nanos()).ok()?));
        state.tasks[id].status = Status::Waiting { on, until };
        state.tasks[id].timed_out = false;
        self.hand_over(state, Some(id), false);
        self.lock().tasks[id].timed_out
    }

    fn wake(&self, on: On, most: usize) {
        self.lock().wake(on, most);
    }

    /// Decides what runs next. A caller with a number waits for its turn.
    fn hand_over(&self, mut state: std::sync::MutexGuard<'_, State>, id: Option<usize>, yields: bool) {
        let next = if state.is_over { None } else { Some(state.decide(id, yields)) };
        match next {
            Some(Decision::Run(next, steps)) => {
                if id == Some(next) {
                    LEFT.set(steps);
                    return;
                }
                let gate = state.tasks[next].gate.clone();
                let own = id.map(|id| state.tasks[id].gate.clone());
                drop(state);
                gate.tell(Told::Run(steps));
                if let Some(own) = own {
                    self.wait_at(&own);
                }
            }
            other => {
                if let Some(Decision::Stop(why)) = other {
                    state.is_over = true;
                    // The one message; the receiver waits for it.
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

    fn wait_at(&self, gate: &Gate) {
        let mut told = gate.told.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match std::mem::replace(&mut *told, Told::Nothing) {
                Told::Run(steps) => {
                    LEFT.set(steps);
                    return;
                }
                Told::Show => {
                    let stack = format!("-- {}\n{}", index_name(), Backtrace::force_capture());
                    self.lock().stacks.push(stack);
                }
                Told::Nothing => told = gate.changed.wait(told).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// What a stopped run looks like.
    fn report(&self, why: String) -> String {
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
                    let until = until.map(|until| Duration::from_nanos(until.saturating_sub(now)));
                    format!("waits for {kind}, still for {until:?}")
                }
                Status::Ready | Status::Ended => "ready".to_owned(),
            };
            let _ = write!(report, " [{} {waits}]", task.name);
        }
        if state.plan.stacks {
            let alive: Vec<Arc<Gate>> =
                state.tasks.iter().filter(|task| task.status != Status::Ended).map(|task| task.gate.clone()).collect();
            drop(state);
            alive.iter().for_each(|gate| gate.tell(Told::Show));
            for _ in 0..100 {
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

fn index_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

impl Gate {
    fn tell(&self, what: Told) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = what;
        self.changed.notify_one();
    }
}

enum Decision {
    /// This task, for so many steps.
    Run(usize, u32),
    /// The run is over: why, if it did not end by itself.
    Stop(Option<String>),
}

impl State {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.random)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn add(&mut self, name: &str) -> usize {
        let weight = if self.plan.uneven { [1, 8, 64][self.below(3) as usize] } else { 1 };
        let gate = Gate { told: std::sync::Mutex::new(Told::Nothing), changed: std::sync::Condvar::new() };
        let name = format!("{}:{name}", self.tasks.len());
        self.tasks.push(Task { name, status: Status::Ready, timed_out: false, weight, gate: Arc::new(gate) });
        self.tasks.len() - 1
    }

    /// Makes up to `most` of those ready that wait for this, chosen at random.
    fn wake(&mut self, on: On, most: usize) {
        let waits = |task: &Task| matches!(task.status, Status::Waiting { on: own, .. } if own == on);
        let mut waiting: Vec<usize> = (0..self.tasks.len()).filter(|&id| waits(&self.tasks[id])).collect();
        for _ in 0..most {
            if waiting.is_empty() {
                return;
            }
            let chosen = if most < waiting.len() { self.below(waiting.len() as u64) as usize } else { 0 };
            self.tasks[waiting.swap_remove(chosen)].status = Status::Ready;
        }
    }

    fn decide(&mut self, id: Option<usize>, yields: bool) -> Decision {
        self.now += DECISION;
        self.summary.decisions += 1;
        let is_alone = |state: &Self| {
            let mut ready = (0..state.tasks.len()).filter(|&other| state.tasks[other].status == Status::Ready);
            yields && ready.next() == id && ready.next().is_none()
        };
        // A task that yields until time has passed must not wait for ever where it is the only one.
        let jump = self.plan.jump_one_in;
        if is_alone(self) && self.below(8) == 0 || jump > 0 && self.below(u64::from(jump)) == 0 {
            self.jump();
        }
        self.expire();
        while !self.tasks.iter().any(|task| task.status == Status::Ready) {
            if !self.jump() {
                let why = "no task can go on".to_owned();
                let is_end = self.tasks.iter().all(|task| task.status == Status::Ended);
                self.summary.time = Duration::from_nanos(self.now);
                return Decision::Stop(if is_end { None } else { Some(why) });
            }
            self.expire();
        }
        if self.summary.decisions > self.plan.most_decisions {
            return Decision::Stop(Some("too many decisions".to_owned()));
        }
        if Duration::from_nanos(self.now - self.progress_at) > self.plan.patience {
            return Decision::Stop(Some("nothing has ended for too long".to_owned()));
        }
        let next = self.choose(if yields && !is_alone(self) { id } else { None });
        self.summary.trace = mixed(self.summary.trace ^ mixed(self.now) ^ next as u64);
        let steps = self.below(2 * u64::from(self.plan.mean_turn)) as u32;
        Decision::Run(next, steps)
    }

    /// A task that is ready, but for `not`.
    fn choose(&mut self, not: Option<usize>) -> usize {
        let may = |id: usize, task: &Task| task.status == Status::Ready && Some(id) != not;
        let weights = self.tasks.iter().enumerate().map(|(id, task)| if may(id, task) { task.weight } else { 0 });
        let total: u64 = weights.clone().sum();
        let weights: Vec<u64> = weights.collect();
        let mut point = self.below(total);
        weights
            .iter()
            .position(|&weight| {
                let is_here = point < weight;
                point = point.saturating_sub(weight);
                is_here
            })
            .expect("the point lies below the sum")
    }

    /// Ends waits whose time is over.
    fn expire(&mut self) {
        let now = self.now;
        for task in &mut self.tasks {
            if matches!(task.status, Status::Waiting { until: Some(until), .. } if until <= now) {
                (task.status, task.timed_out) = (Status::Ready, true);
            }
        }
    }

    /// Moves the time to the next deadline; false if there is none.
    fn jump(&mut self) -> bool {
        let deadline = |task: &Task| match task.status {
            Status::Waiting { until, .. } => until,
            Status::Ready | Status::Ended => None,
        };
        let Some(next) = self.tasks.iter().filter_map(deadline).min() else { return false };
        self.now = self.now.max(next);
        true
    }
}

/// The finaliser of SplitMix64.
const fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
