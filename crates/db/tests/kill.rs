//! Guards the promise that nothing acknowledged is lost and nothing is half there when the process is killed.
//!
//! A child process runs transactions on a directory, in several threads, and reports each acknowledged commit through
//! its standard output. The parent kills it at a random moment, opens the database itself, and looks for every reported
//! commit and for the sums that must hold. Then the next child goes on with the same directory.
//!
//! `FORESHORE_KILLS` sets the number of rounds.

use foreshore::{Db, Error, Options, TableDef};
use std::{
    collections::VecDeque,
    env,
    error::Error as StdError,
    io::{Read, Write, stdout},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
const TELLERS: TableDef<u64, i64> = TableDef::new("tellers");
const BRANCHES: TableDef<u64, i64> = TableDef::new("branches");
/// (thread, sequence) to (account, teller, branch, delta).
const HISTORY: TableDef<(u64, u64), (u64, u64, u64, i64)> = TableDef::new("history");

const ACCOUNT_COUNT: u64 = 1000;
const TELLER_COUNT: u64 = 10;
const BRANCH_COUNT: u64 = 2;
const THREADS: u64 = 4;
/// Commits in flight of each pipelining thread.
const WINDOW: usize = 16;
/// Sequence numbers that a round may use.
const ROUND: u64 = 1 << 32;

type Fallible<T = ()> = Result<T, Box<dyn StdError + Send + Sync>>;

fn main() -> Fallible {
    match env::var("FORESHORE_KILL_CHILD") {
        Ok(round) => child(Path::new(&env::var("FORESHORE_KILL_DIR")?), round.parse()?),
        Err(_) => parent(),
    }
}

/// A small pool and small segments, so that eviction, checkpoints and rolls happen within a round.
fn options() -> Options {
    Options::new().memory_limit(8 << 20).segment_bytes(256 << 10).log_budget(2 << 20)
}

fn parent() -> Fallible {
    let rounds = env::var("FORESHORE_KILLS").map_or(Ok(20), |text| text.parse::<u64>())?;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    println!("{rounds} kills, seed {seed}");
    let mut random = Random(seed);
    let dir = temp_dir(seed);
    let mut settled = Balances::default();
    let mut acknowledged = 0;
    for round in 1..=rounds {
        let reported = run_and_kill(&dir, round, Duration::from_millis(random.below(120)))?;
        acknowledged += reported.len();
        verify(&dir, &reported, &mut settled)
            .map_err(|error| format!("round {round}, seed {seed}, {}: {error}", dir.display()))?;
    }
    println!("{acknowledged} commits acknowledged, none lost");
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// Starts a child, waits for its first report, then kills it after `delay`. Returns all it reported.
fn run_and_kill(dir: &Path, round: u64, delay: Duration) -> Fallible<Vec<(u64, u64)>> {
    let mut child = Command::new(env::current_exe()?)
        .env("FORESHORE_KILL_CHILD", round.to_string())
        .env("FORESHORE_KILL_DIR", dir)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut pipe = child.stdout.take().ok_or("the child has no output")?;
    let mut bytes = vec![0; 16];
    let started = pipe.read_exact(&mut bytes).is_ok();
    std::thread::sleep(delay);
    child.kill()?;
    if !started {
        return Err("the child ended before its first commit".into());
    }
    pipe.read_to_end(&mut bytes)?;
    let status = child.wait()?;
    if status.code().is_some() {
        return Err(format!("the child ended by itself: {status}").into());
    }
    let number = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
    Ok(bytes.chunks_exact(16).map(|report| (number(&report[..8]), number(&report[8..]))).collect())
}

/// Balances of all accounts, tellers and branches.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Balances([Vec<i64>; 3]);

impl Default for Balances {
    fn default() -> Self {
        Self([ACCOUNT_COUNT, TELLER_COUNT, BRANCH_COUNT].map(|count| vec![0; count as usize]))
    }
}

/// Looks for the commits that the last child reported. `settled` are the balances of the round before, whose history was
/// removed; the history found now makes up the difference, and is removed too.
fn verify(dir: &Path, reported: &[(u64, u64)], settled: &mut Balances) -> Fallible {
    let db = options().open(dir)?;
    db.check()?;
    let tx = db.begin();
    let history = tx.open(HISTORY)?;
    history.lock_against_writes()?;
    for &key in reported {
        if history.get(key)?.is_none() {
            return Err(format!("commit {key:?} was acknowledged and is lost").into());
        }
    }
    let rows = history.iter().collect::<Result<Vec<_>, _>>()?;
    for (_, (account, teller, branch, delta)) in &rows {
        for (balances, id) in settled.0.iter_mut().zip([account, teller, branch]) {
            balances[*id as usize] += delta;
        }
    }
    for (def, wanted) in [ACCOUNTS, TELLERS, BRANCHES].into_iter().zip(&settled.0) {
        let table = tx.open(def)?;
        table.lock_against_writes()?;
        let stored = table.iter().collect::<Result<Vec<_>, _>>()?;
        if !stored.into_iter().eq((0..).zip(wanted.iter().copied())) {
            return Err(format!("{} do not match the {} rows of the history", def.name(), rows.len()).into());
        }
    }
    tx.commit()?;
    // Beyond the reported ones only those may be there that were in flight when the child was killed.
    if rows.len() > reported.len() + THREADS as usize * (WINDOW + 2) {
        return Err(format!("{} commits survived, {} were reported", rows.len(), reported.len()).into());
    }
    for part in rows.chunks(500) {
        db.run(|tx| {
            let history = tx.open(HISTORY)?;
            part.iter().try_for_each(|(key, _)| history.remove(key).map(drop))
        })?;
    }
    Ok(())
}

/// Runs transactions until it is killed.
fn child(dir: &Path, round: u64) -> Fallible {
    let db = options().open(dir)?;
    db.run(|tx| {
        let (accounts, tellers, branches) = (tx.open(ACCOUNTS)?, tx.open(TELLERS)?, tx.open(BRANCHES)?);
        tx.open(HISTORY)?;
        if accounts.get(0)?.is_some() {
            return Ok(());
        }
        (0..ACCOUNT_COUNT).try_for_each(|id| accounts.insert_new(id, 0))?;
        (0..TELLER_COUNT).try_for_each(|id| tellers.insert_new(id, 0))?;
        (0..BRANCH_COUNT).try_for_each(|id| branches.insert_new(id, 0))?;
        Ok::<_, Error>(())
    })?;
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, failed) = (&db, &failed);
            scope.spawn(move || {
                let worked = if thread % 2 == 0 { block(db, thread, round) } else { pipeline(db, thread, round) };
                if let Err(error) = worked {
                    eprintln!("thread {thread}: {error}");
                    failed.store(true, Ordering::Relaxed);
                    std::process::exit(1);
                }
            });
        }
    });
    Err("the child was not killed".into())
}

/// Each commit waits for its own durability.
fn block(db: &Db, thread: u64, round: u64) -> Fallible {
    let mut random = Random(round * THREADS + thread);
    for sequence in round * ROUND.. {
        let drawn = draw(&mut random);
        db.run(|tx| transfer(tx, (thread, sequence), drawn))?;
        report(thread, sequence)?;
    }
    Ok(())
}

/// Commits are reported as their tickets come true.
fn pipeline(db: &Db, thread: u64, round: u64) -> Fallible {
    let mut random = Random(round * THREADS + thread);
    let mut window = VecDeque::new();
    for sequence in round * ROUND.. {
        let drawn = draw(&mut random);
        let ticket = loop {
            let tx = db.begin();
            match transfer(&tx, (thread, sequence), drawn).and_then(|()| tx.commit_pipelined()) {
                Ok(ticket) => break ticket,
                Err(error) if error.is_retryable() || matches!(error, Error::RolledBack) => {}
                Err(error) => return Err(error.into()),
            }
        };
        window.push_back((sequence, ticket));
        if window.len() > WINDOW {
            let (sequence, ticket) = window.pop_front().expect("the window is full");
            ticket.wait()?;
            report(thread, sequence)?;
        }
    }
    Ok(())
}

fn transfer(tx: &foreshore::Transaction, key: (u64, u64), drawn: (u64, u64, u64, i64)) -> Result<(), Error> {
    let (account, teller, branch, delta) = drawn;
    for (def, id) in [(ACCOUNTS, account), (TELLERS, teller), (BRANCHES, branch)] {
        let table = tx.open(def)?;
        let balance = table.get_for_update(id)?.expect("every row was loaded in the first transaction");
        table.insert(id, balance + delta)?;
    }
    tx.open(HISTORY)?.insert_new(key, drawn)
}

fn draw(random: &mut Random) -> (u64, u64, u64, i64) {
    let delta = random.below(2000) as i64 - 1000;
    (random.below(ACCOUNT_COUNT), random.below(TELLER_COUNT), random.below(BRANCH_COUNT), delta)
}

/// A report that the kill cuts short is the last thing in the pipe, and the parent leaves it out.
fn report(thread: u64, sequence: u64) -> Fallible {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&thread.to_le_bytes());
    bytes[8..].copy_from_slice(&sequence.to_le_bytes());
    let mut out = stdout().lock();
    out.write_all(&bytes)?;
    out.flush()?;
    Ok(())
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

fn temp_dir(seed: u64) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kill-{seed}"))
}
