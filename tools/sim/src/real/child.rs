//! The process that works on a directory, and its side of the pipe.
//!
//! It reports each commit to its parent on its standard output, in messages of two words. Its exit status says how it
//! ended:
//!
//! | status | end |
//! |---|---|
//! | 0 | the shift is over, and the database is closed |
//! | 3 | an error of the engine, which its standard error says |
//! | anything else | a panic, an abort, or a signal |

use super::plan::{SHRINKS_EVERY, is_refusal, options};
use super::work::{Shift, Told, work};
use foreshore::{Db, Device, Error, Result};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The kind of a message is in the upper half of its first word, a thread in the lower one.
pub(super) const KIND_SHIFT: u32 = 32;
pub(super) const COMMITTED: u64 = 1;
pub(super) const PREPARED: u64 = 2;
/// The process runs its own code.
pub(super) const BEGUN: u64 = 3;
/// The database is open.
pub(super) const OPENED: u64 = 4;
/// The disk has refused a transaction.
pub(super) const REFUSED_BY_DISK: u64 = 5;
/// The exit status after an error of the engine.
pub(super) const REFUSED: u8 = 3;

/// What a child is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// The directory of the database.
    pub(super) dir: PathBuf,
    /// Decides the options.
    pub(super) seed: u64,
    /// How long it works, once the database is open.
    pub(super) millis: u64,
    /// Whether the disk may refuse what it asks for.
    pub(super) is_disk_bad: bool,
    /// How often it opens the directory again after an error.
    pub(super) reopens: u32,
    /// Whether it writes through the page cache.
    pub(super) is_buffered: bool,
    /// The point, and the pass of it, at which it kills itself.
    pub(super) kill: Option<(String, u64)>,
}

impl Order {
    /// As arguments of a program.
    pub(super) fn to_args(&self) -> Vec<String> {
        let mut args = vec!["real".to_owned(), "child".to_owned(), self.dir.display().to_string()];
        let numbers = [self.seed, self.millis, u64::from(self.is_disk_bad), u64::from(self.reopens)];
        args.extend(numbers.map(|number| number.to_string()));
        args.push(u64::from(self.is_buffered).to_string());
        args.extend(self.kill.iter().flat_map(|(name, pass)| [name.clone(), pass.to_string()]));
        args
    }

    fn from_args(args: &[String]) -> Option<Self> {
        let (dir, rest) = args.split_first()?;
        let (numbers, kill) = rest.split_at_checked(5)?;
        let numbers: Vec<u64> = numbers.iter().map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let &[seed, millis, is_disk_bad, reopens, is_buffered] = numbers.as_slice() else { return None };
        let kill = match kill {
            [] => None,
            [name, pass] => Some((name.clone(), pass.parse().ok()?)),
            _ => return None,
        };
        Some(Self {
            dir: dir.into(),
            seed,
            millis,
            is_disk_bad: is_disk_bad != 0,
            reopens: u32::try_from(reopens).ok()?,
            is_buffered: is_buffered != 0,
            kill,
        })
    }
}

/// Runs the child of a command line.
#[must_use]
pub(super) fn run(args: &[String]) -> ExitCode {
    let Some(order) = Order::from_args(args) else {
        eprintln!("not an order: {args:?}");
        return ExitCode::from(2);
    };
    #[cfg(debug_assertions)]
    if let Some((name, pass)) = order.kill.clone() {
        foreshore_sync::pause::kill_at(name, pass);
    }
    if tell(BEGUN, 0, 0).is_err() {
        return ExitCode::from(2);
    }
    let done = serve(&order);
    #[cfg(debug_assertions)]
    if order.kill.is_some() {
        eprintln!("passes\t{}", foreshore_sync::pause::passes());
    }
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(REFUSED)
        }
    }
}

/// Opens the directory and works, and begins again after an error as often as the order says.
fn serve(order: &Order) -> Result<()> {
    let until = Instant::now() + Duration::from_millis(order.millis);
    let mut reopens = 0;
    loop {
        let done = open(&order.dir, order).and_then(|db| live(&db, order, until));
        match done {
            Err(error) if reopens < order.reopens => {
                reopens += 1;
                eprintln!("begins again: {error}");
            }
            done => return done,
        }
    }
}

fn open(dir: &Path, order: &Order) -> Result<Db> {
    let options = options(order.seed);
    let db = match order.is_buffered {
        true => options.device(Device::Buffered).open(dir)?,
        false => options.open(dir)?,
    };
    let _ = tell(OPENED, 0, 0);
    Ok(db)
}

/// Works until the shift is over, then closes the database.
fn live(db: &Db, order: &Order, until: Instant) -> Result<()> {
    let shift = Shift {
        until,
        most: u64::MAX,
        is_disk_bad: order.is_disk_bad,
        shrinks: order.seed.is_multiple_of(SHRINKS_EVERY),
    };
    let report = |thread, number, told| {
        let kind = match told {
            Told::Committed => COMMITTED,
            Told::Prepared => PREPARED,
            Told::Refused => REFUSED_BY_DISK,
        };
        // A parent that is gone kills its child.
        tell(kind, thread, number).map_err(|error| Error::io("write", "standard output", error))
    };
    let worked = match work(db, shift, &report) {
        // It was refused when the shift was over.
        Err(error) if is_refusal(&error) => Ok(()),
        worked => worked,
    };
    let closed = db.close(Duration::ZERO);
    worked.and(closed)
}

/// A message that a kill cuts short is the last one in the pipe, and the parent leaves it out.
fn tell(kind: u64, thread: u64, number: u64) -> std::io::Result<()> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(kind << KIND_SHIFT | thread).to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_through_a_command_line_as_it_is() {
        let plain = Order { dir: "/tmp/a b".into(), seed: 7, millis: 9, reopens: 2, ..Order::default() };
        let full = Order { is_disk_bad: true, kill: Some(("wal: a point".into(), 3)), ..plain.clone() };
        for order in [plain, full] {
            assert_eq!(Order::from_args(&order.to_args()[2..]), Some(order));
        }
        assert_eq!(Order::from_args(&["dir".into(), "1".into()]), None);
    }
}
