//! What a seed decides: options, workload, faults.

use super::history::Level;
use crate::Random;
use foreshore::{DoublewriteKind, Durability, Group, Isolation, Options, TxnOptions};
use foreshore_classics::early_release::EarlyRelease;
use foreshore_classics::group_policies::TimedGroup;
use foreshore_classics::growth::GrowthKind;
use foreshore_classics::intents::IntentKind;
use foreshore_classics::log_buffers::{BufferKind, BufferOptions, WaitKind};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_classics::status_tables::StatusKind;
use foreshore_io::sim::{FaultKind, Persist};
use foreshore_io::{Fs, Sim};
use std::sync::Arc;
use std::time::Duration;

/// Half of the transactions that may run at once, at least.
const FEW: usize = 6;
const RELEASES: [EarlyRelease; 3] = [EarlyRelease::Off, EarlyRelease::SharedOnly, EarlyRelease::Full];

/// The time that a transaction waits for a lock: longer than one waits for space while it holds locks.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(15);

/// One of `choices`.
pub(super) fn one_of<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}

/// True once in so many times.
pub(super) fn one_in(random: &mut Random, count: u64) -> bool {
    random.below(count) == 0
}

/// A fault of a write, as one of the write-back.
pub(super) const fn in_cache(kind: FaultKind) -> FaultKind {
    match kind {
        FaultKind::Eio => FaultKind::LateEio,
        FaultKind::Enospc => FaultKind::LateEnospc,
        other => other,
    }
}

/// Options of the database, drawn anew at each start; the defaults without `random`. It has `prepared` prepared
/// transactions.
pub(super) fn options(random: Option<Random>, disk: &Sim, prepared: usize) -> Options {
    let options = Options::new()
        .memory_limit(16 << 20)
        .lab(|lab| lab.segment_bytes = 64 << 10)
        .log_budget(1 << 20)
        .lock_timeout(LOCK_TIMEOUT)
        .lab(|lab| lab.fs = Some(Arc::new(disk.clone()) as Arc<dyn Fs>));
    match random {
        Some(mut random) => {
            let options = drawn(options, &mut random);
            // Others run beside them.
            if prepared > FEW { options.max_transactions(FEW + prepared) } else { options }
        }
        None => options,
    }
}

fn drawn(options: Options, random: &mut Random) -> Options {
    let mut options = options
        .memory_limit(one_of(random, &[4 << 20, 4 << 20, 6 << 20, 16 << 20]))
        .log_budget(one_of(random, &[256 << 10, 256 << 10, 1 << 20]))
        .max_transactions(one_of(random, &[64, 64, 1024, 2 * FEW]))
        .lab(|lab| {
            lab.replacement = one_of(random, &ReplacementKind::ALL).maker();
            lab.status = one_of(random, &StatusKind::ALL).maker();
            lab.fast_intents =
                one_of(random, &[IntentKind::Table, IntentKind::Fastpath, IntentKind::Fastpath]).is_fast();
            lab.hold_until_durable = one_of(random, &RELEASES).hook();
            lab.growth = one_of(random, &[GrowthKind::Inline, GrowthKind::Ahead, GrowthKind::Ahead]).rule();
        })
        .doublewrite(one_of(random, &[DoublewriteKind::Auto, DoublewriteKind::Auto, DoublewriteKind::On]))
        .lab(|lab| lab.profile = one_in(random, 8));
    // Half of the runs have the default, the other kinds are for measurements.
    if one_in(random, 2) {
        let (kind, slots) = (one_of(random, &BufferKind::ALL), one_of(random, &[1, 2, 4]));
        let wait = one_of(random, &[WaitKind::Park, WaitKind::Spin]);
        let buffer = BufferOptions { wait, slots, ..BufferOptions::new(kind) };
        options = options.lab(|lab| lab.log_buffer = buffer.maker().expect("slots in their range"));
    }
    if one_in(random, 2) {
        let timed = |policy: TimedGroup| options.clone().lab(|lab| lab.group = Some(policy.source()));
        options = match random.below(6) {
            0 => timed(TimedGroup::Adaptive),
            1 => timed(TimedGroup::Delay(Duration::from_micros(1 + random.below(2_000)))),
            2 => timed(TimedGroup::Fixed { time: Some(Duration::from_millis(1)), txns: Some(3), bytes: None }),
            3 => timed(TimedGroup::Fixed { time: None, txns: Some(2), bytes: Some(4096) }),
            4 => options.group(Group::Window(Duration::from_micros(1 + random.below(2_000)))),
            _ => options.group(Group::Greedy),
        };
    }
    if one_in(random, 3) {
        options =
            options.lab(|lab| lab.undo_limit = Some(64 << 10)).spill_limit(one_of(random, &[0, 256 << 10, 1 << 20]));
    }
    if one_in(random, 8) {
        options = options.snapshot_max_age(Duration::from_millis(50)).snapshot_max_bytes(8 << 10);
    }
    if one_in(random, 8) {
        options = options.transaction_max_age(Duration::from_millis(one_of(random, &[20, 1_000])));
    }
    let workers = one_of(random, &[None, Some(1), Some(1), Some(1), Some(3)]);
    let waits_from = one_of(random, &[None, Some(0), Some(0), Some(0), Some(64 << 10)]);
    let undo_waits_from = one_of(random, &[None, Some(0), Some(0), Some(20)]);
    // With read-around, few misses bring a small database into memory.
    let reads_around = one_in(random, 2);
    options.lab(|lab| {
        (lab.redo_workers, lab.redo_waits_from, lab.read_around) = (workers, waits_from, reads_around);
        lab.undo_waits_from = undo_waits_from;
    })
}

/// How a transaction runs.
pub(super) struct TxnPlan {
    pub(super) options: TxnOptions,
    pub(super) level: Level,
    pub(super) is_relaxed: bool,
    /// Whether its time is so short that it may be over in any wait.
    pub(super) is_hasty: bool,
}

impl TxnPlan {
    pub(super) fn draw(random: &mut Random) -> Self {
        let (isolation, level) = one_of(
            random,
            &[
                (Isolation::Serializable, Level::Serializable),
                (Isolation::Serializable, Level::Serializable),
                (Isolation::Snapshot, Level::Snapshot),
                (Isolation::ReadCommitted, Level::ReadCommitted),
            ],
        );
        let is_relaxed = one_in(random, 5);
        let durability = if is_relaxed { Durability::Relaxed } else { Durability::Durable };
        let mut options = TxnOptions::new().isolation(isolation).durability(durability).label("session");
        let is_hasty = one_in(random, 8);
        if is_hasty {
            let time = Duration::from_micros(one_of(random, &[0, 50, 2_000]));
            options = if one_in(random, 2) { options.lock_timeout(time) } else { options.deadline(time) };
        }
        Self { options, level, is_relaxed, is_hasty }
    }
}

/// What goes wrong in one life of the database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Trouble {
    /// Nothing.
    None,
    /// Power is lost in the operation of the disk with this number, counted from the start of the life.
    Crash(u64),
    /// An operation fails, or all from there on.
    Fault {
        /// Its number, counted from the start of the life.
        at: u64,
        /// How.
        kind: FaultKind,
        /// Whether all later ones do.
        sticky: bool,
    },
    /// A read fails.
    Read(u64),
    /// The process is killed after so long. The machine goes on, and with it the page cache.
    Kill(Duration),
}

impl Trouble {
    /// Draws what goes wrong.
    pub(super) fn draw(random: &mut Random) -> Self {
        // As many among the first ten as among the first hundred.
        let among = one_of(random, &[10, 100, 1_000]);
        let at = random.below(among);
        match random.below(9) {
            0 => Self::None,
            8 => {
                let most = one_of(random, &[1_000, 20_000, 200_000]);
                Self::Kill(Duration::from_micros(random.below(most)))
            }
            1..=4 => Self::Crash(at),
            5 => Self::Fault {
                at,
                kind: one_of(random, &[FaultKind::Eio, FaultKind::LateEio]),
                sticky: one_in(random, 2),
            },
            6 => Self::Fault {
                at,
                kind: one_of(random, &[FaultKind::Enospc, FaultKind::Enospc, FaultKind::LateEnospc]),
                sticky: one_in(random, 2),
            },
            _ if one_in(random, 3) => Self::Read(at),
            _ => {
                let short = FaultKind::ShortWrite(random.below(4096) as usize);
                let kind = one_of(random, &[short, FaultKind::Eintr]);
                Self::Fault { at, kind, sticky: false }
            }
        }
    }

    /// The same where writes go to a page cache: what fails is the write-back, and the medium has nothing that the
    /// cache has not.
    pub(super) const fn in_cache(self) -> Self {
        match self {
            Self::Fault { at, kind: FaultKind::Eio, sticky } => Self::Fault { at, kind: FaultKind::LateEio, sticky },
            // What only a cache does is to fail later.
            Self::Crash(at) if at % 2 == 0 => Self::Fault { at, kind: FaultKind::LateEio, sticky: at % 4 == 0 },
            other => other,
        }
    }

    /// Whether the database may stop.
    pub(super) const fn may_stop(self) -> bool {
        // A sync that a signal interrupts is not repeated.
        !matches!(self, Self::None | Self::Fault { kind: FaultKind::ShortWrite(_), .. })
    }

    /// Whether space may be missing.
    pub(super) const fn is_full(self) -> bool {
        matches!(self, Self::Fault { kind: FaultKind::Enospc | FaultKind::LateEnospc, .. })
    }
}

/// What a power loss leaves.
pub(super) fn policy(random: &mut Random) -> Persist {
    match random.below(14) {
        n @ 0..10 => Persist::ALL[n as usize],
        10 => Persist::Random(0.1),
        11 => Persist::Random(0.9),
        12 => Persist::Whole(0.3),
        _ => Persist::Whole(0.7),
    }
}
