//! Model checking: running a model under loom or a test under shuttle, and mutants that they must fail.
//!
//! A model that no mutation can break proves nothing, so kernels carry named switches at the lines whose order matters:
//! `if !mutant("latch: no release fence") { fence(Release) }`. In ordinary builds [`mutant`] is the constant `false`.
//!
//! | cfg | run | with a mutant | explores |
//! |---|---|---|---|
//! | `foreshore_loom` | `check(model)`, `check_large(model)` | `mutated(name, model)` | every order of steps of a small model, and weak orderings |
//! | `foreshore_shuttle` | `shuttle(iterations, test)` | `shuttle_mutated(name, iterations, test)` | many orders of steps of a large test |
//! | `foreshore_sim` | `schedule::run(plan, body)` | `plant(name)` | one order of steps of the whole engine for each seed |
//!
//! Names that begin with `sabotage` are planted defects of protocols; `xtask/sabotage.txt` lists the suite that finds
//! each. In a build with `foreshore_sim`, `FORESHORE_MUTANT` plants one in a process that has not planted another.
//!
//! A shuttle test that fails prints its schedule; `replay(schedule, test)` runs that one again.

#[cfg(any(foreshore_loom, foreshore_shuttle))]
std::thread_local! {
    // Both run all threads of a model as coroutines of the test's own thread, so they share this cell.
    static ACTIVE: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Whether the line named `name` is switched off in this model.
#[cfg(any(foreshore_loom, foreshore_shuttle))]
pub fn mutant(name: &'static str) -> bool {
    ACTIVE.get() == Some(name)
}

/// The line that [`plant`] has switched off in this process.
#[cfg(foreshore_sim)]
static PLANTED: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Switches the line named `name` off for the rest of the process; returns false if another one is.
#[cfg(foreshore_sim)]
pub fn plant(name: String) -> bool {
    PLANTED.set(name).is_ok()
}

/// Whether the line named `name` is switched off in this process.
#[cfg(foreshore_sim)]
pub fn mutant(name: &'static str) -> bool {
    let asked = || std::env::var("FORESHORE_MUTANT").unwrap_or_default();
    PLANTED.get_or_init(asked) == name
}

/// Whether the line named `name` is switched off in this model: never, outside model builds.
#[cfg(not(any(foreshore_loom, foreshore_shuttle, foreshore_sim)))]
#[inline(always)]
pub const fn mutant(_name: &'static str) -> bool {
    false
}

/// Switches a line off during its life, which a panic ends too.
#[cfg(any(foreshore_loom, foreshore_shuttle))]
struct SwitchedOff;

#[cfg(any(foreshore_loom, foreshore_shuttle))]
impl SwitchedOff {
    fn new(name: &'static str) -> Self {
        ACTIVE.set(Some(name));
        Self
    }
}

#[cfg(any(foreshore_loom, foreshore_shuttle))]
impl Drop for SwitchedOff {
    fn drop(&mut self) {
        ACTIVE.set(None);
    }
}

/// Explores every interleaving of `model` within loom's bounds; panics on the first that fails.
///
/// A model's first thread starts the actors and waits for them. One that is an actor itself makes the search shorter
/// and weaker: loom begins with it, and each other beginning is one of the few preemptions. Planted defects are missed.
#[cfg(foreshore_loom)]
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    loom::model(model);
}

/// Runs [`check`] with one preemption fewer than `LOOM_MAX_PREEMPTIONS`: for a model of many threads or steps, beside
/// smaller models of its parts.
#[cfg(foreshore_loom)]
pub fn check_large(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.map(|bound| bound.saturating_sub(1));
    builder.check(model);
}

/// Runs [`check`] with the line named `name` switched off.
#[cfg(foreshore_loom)]
pub fn mutated(name: &'static str, model: impl Fn() + Send + Sync + 'static) {
    let _off = SwitchedOff::new(name);
    loom::model(model);
}

/// Runs `test` under `iterations` random schedules and as many of probabilistic concurrency testing, which finds bugs
/// that need a few well-placed switches. Panics on the first that fails. `FORESHORE_SHUTTLE_FACTOR` multiplies the
/// iterations.
///
/// The schedules are the same in each run, so that a passing run stays one. `FORESHORE_SHUTTLE_SEED` is a number that
/// selects others.
///
/// Everything that the test starts comes from [`crate::primitive`] or [`crate::spawn`], and no state outlives an
/// iteration.
#[cfg(foreshore_shuttle)]
pub fn shuttle(iterations: usize, test: impl Fn() + Send + Sync + 'static) {
    schedules(iterations as f64 * shuttle_factor(), test);
}

#[cfg(foreshore_shuttle)]
fn schedules(iterations: f64, test: impl Fn() + Send + Sync + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    let mut seed = asked("FORESHORE_SHUTTLE_SEED").unwrap_or(0_u64).wrapping_mul(1 << 32);
    let test = std::sync::Arc::new(test);
    // In rounds, so that a bug that one kind of schedule finds soon does not wait for all of the other.
    let (mut left, mut round) = ((iterations as usize).max(1), 100);
    while left > 0 {
        round = left.min(2 * round);
        left -= round;
        seed = seed.wrapping_add(1);
        let (random, switched) = (test.clone(), test.clone());
        shuttle::Runner::new(RandomScheduler::new_from_seed(seed, round), shuttle_config()).run(move || random());
        // Random schedules look for bugs that need more than three switches at given places.
        shuttle::Runner::new(PctScheduler::new_from_seed(seed, 3, round), shuttle_config()).run(move || switched());
    }
}

#[cfg(foreshore_shuttle)]
fn shuttle_factor() -> f64 {
    asked("FORESHORE_SHUTTLE_FACTOR").unwrap_or(1.0)
}

/// Returns the number that a variable of the environment has.
#[cfg(foreshore_shuttle)]
fn asked<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Runs [`shuttle`] with the line named `name` switched off, and up to ten times as long, however small the factor is;
/// it ends with the first failing schedule.
#[cfg(foreshore_shuttle)]
pub fn shuttle_mutated(name: &'static str, iterations: usize, test: impl Fn() + Send + Sync + 'static) {
    let _off = SwitchedOff::new(name);
    schedules(10.0 * iterations as f64 * shuttle_factor().max(1.0), test);
}

/// Runs the schedule that a failing [`shuttle`] has printed.
#[cfg(foreshore_shuttle)]
pub fn replay(schedule: &str, test: impl Fn() + Send + Sync + 'static) {
    let scheduler = shuttle::scheduler::ReplayScheduler::new_from_encoded(schedule);
    shuttle::Runner::new(scheduler, shuttle_config()).run(test);
}

/// Returns a random number below `bound`, the same one in a replay: a test under [`shuttle`] draws its plan from it.
#[cfg(foreshore_shuttle)]
pub fn choose(bound: u64) -> u64 {
    shuttle::rand::Rng::gen_range(&mut shuttle::rand::thread_rng(), 0..bound)
}

#[cfg(foreshore_shuttle)]
fn shuttle_config() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    // The engine's stack frames are larger than shuttle expects, in unoptimised builds in particular.
    config.stack_size = 256 << 10;
    // Every ordering is taken as SeqCst, which is known.
    config.silence_warnings = true;
    config
}
