//! A run of one seed, or of parts of it.

use super::life::Lives;
use super::part::{Parts, Place};
use super::plan::{one_in, one_of};
use super::report::Report;
use foreshore_sync::schedule::{self, Plan};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

/// Which run is wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Decides all that the run does.
    pub seed: u64,
    /// Decides the switches of threads, together with the seed.
    pub schedule: u64,
    /// The only parts that run; `None`: all parts.
    pub only: Option<BTreeSet<Place>>,
    /// Says what happens, and shows all stacks if it gets stuck.
    pub is_verbose: bool,
}

/// What is wrong, and the parts that had run by then.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is wrong.
    pub why: String,
    /// The parts that had run.
    pub parts: BTreeSet<Place>,
}

/// Runs a seed.
///
/// # Errors
/// Says what is wrong.
pub fn run(wanted: Wanted) -> Result<Report, Failure> {
    let Wanted { seed, schedule, only, is_verbose } = wanted;
    let parts = Arc::new(Parts::new(seed, only));
    let mut random = parts.random(&Place::default());
    watch_panics();
    take_panic();
    let plan = Plan {
        seed: seed ^ schedule << 32,
        mean_slice: one_of(&mut random, &[2, 8, 30, 200, 1_000]),
        jump_one_in: one_of(&mut random, &[0, 0, 500, 5_000]),
        uneven: one_in(&mut random, 2),
        patience: Duration::from_secs(600),
        most_decisions: 20_000_000,
        stacks: is_verbose,
    };
    let is_prompt = plan.jump_one_in == 0;
    let its_parts = parts.clone();
    let ended = schedule::run(plan, move || {
        let mut lives = Lives::new(random, its_parts, seed, is_verbose, is_prompt);
        lives.all().map(|()| lives.report()).map_err(|why| format!("life {}: {why}", lives.report().starts))
    });
    let result = match (ended, take_panic()) {
        (Ok((_, _)), Some(panic)) => Err(panic),
        (Ok((outcome, summary)), None) => outcome.map(|report| Report { summary, ..report }),
        (Err(why), Some(panic)) => Err(format!("{panic}; {why}")),
        (Err(why), None) => Err(why),
    };
    result.map_err(|why| Failure { why, parts: parts.run() })
}

/// The first panic of any thread since it was last taken.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

fn take_panic() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Has panics noted, also those that a background step survives.
fn watch_panics() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANIC.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| format!("a panic: {panic}"));
            before(panic);
        }));
    });
}
