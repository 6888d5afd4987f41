//! The lives of a database under one seed.

mod end;

use super::check::{self, Asked, Found, Prepared};
use super::copies::{Copies, Left};
use super::device::{self, Device};
use super::history::{Outcome, Rows, TABLES, Txn};
use super::inspect::{checked, names, read, within_limits};
use super::numbers::{self, Numbers};
use super::part::{Parts, Place};
use super::plan::{self, Trouble, one_in, one_of};
use super::report::Report;
use super::rows::{key, large_value, value};
use super::session::Session;
use super::shared::Shared;
use super::visit::Visits;
use crate::Random;
use foreshore::{Db, Error, TableDef};
use foreshore_io::Sim;
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::schedule;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const DIR: &str = "db";
/// Rows of the last table where it is large.
const FILLED: u16 = 1_800;
/// Power losses in one recovery and soon behind it, at most.
const NESTED: u32 = 3;

/// Starts in one life, at most.
const STARTS: u32 = 40;

// Parts of a life beside its sessions, which have the numbers from 0 on.
/// The rows that the last table has at first.
const FILLING: u32 = 100;
/// What goes wrong.
const TROUBLE: u32 = 101;
/// A device that lets writes land in an order of its own.
const DEVICE: u32 = 102;
/// Checkpoints beside the sessions.
const CHECKPOINTS: u32 = 104;
/// A backup beside the sessions.
const BACKUP: u32 = 105;
/// What is restored after a start.
const RESTORE: u32 = 106;
/// Its end, and what power losses leave, which cannot be left out.
const ENDING: u32 = 103;
/// The first start, with its options; one more for each one that fails.
const OPENING: u32 = 200;
/// A short use behind the first start, and the power loss at its end; one more for each start that fails.
const VISIT: u32 = 300;

/// The lives of one run.
pub(super) struct Lives {
    random: Random,
    parts: Arc<Parts>,
    /// The life.
    place: Place,
    is_verbose: bool,
    /// Whether no thread that can run is held up for long.
    is_prompt: bool,
    disk: Sim,
    /// Whether writes of this life go to a page cache.
    is_buffered: bool,
    /// What the database holds for sure.
    base: Rows,
    txns: Vec<Txn>,
    prepared: BTreeMap<String, Prepared>,
    moment: u64,
    numbers: Numbers,
    visits: Visits,
    keys: (u16, u16),
    copies: Copies,
    report: Report,
}

impl Lives {
    pub(super) fn new(mut random: Random, parts: Arc<Parts>, seed: u64, is_verbose: bool, is_prompt: bool) -> Self {
        let keys = (one_of(&mut random, &[2, 5, 12, 60, 200]), one_of(&mut random, &[60, 300, 2_000]));
        let disk = Sim::new(seed);
        disk.stop_recording();
        Self {
            random,
            copies: Copies::new(&parts),
            parts,
            place: Place::default(),
            is_verbose,
            is_prompt,
            disk,
            is_buffered: false,
            base: Rows::new(),
            txns: Vec::new(),
            prepared: BTreeMap::new(),
            moment: 1,
            numbers: Numbers::default(),
            visits: Visits::default(),
            keys,
            report: Report::default(),
        }
    }

    /// Says something, which must not be a scheduling point: a verbose run is the same as a silent one.
    fn say(&self, what: impl FnOnce() -> String) {
        if self.is_verbose {
            println!("  {}", what());
        }
    }

    /// Returns what was counted so far.
    pub(super) fn report(&self) -> Report {
        self.report
    }

    /// Lives all of them.
    ///
    /// # Errors
    /// Says what is wrong.
    pub(super) fn all(&mut self) -> Result<(), String> {
        let lives = 1 + self.random.below(4) as u32;
        let is_large = one_in(&mut self.random, 8);
        for life in 0..lives {
            self.place = Place::default().part(life);
            if !self.parts.has(&self.place) {
                continue;
            }
            self.random = self.parts.random(&self.place.part(ENDING));
            let db = self.open()?;
            self.compare(&db)?;
            numbers::create(&db)?;
            self.visits.create(&db)?;
            if life == 0 && is_large && self.choices(FILLING).is_some() {
                self.fill(&db).map_err(|error| format!("fill the last table: {error} ({error:?})"))?;
            }
            self.live(db)?;
        }
        self.place = Place::default().part(lives);
        self.random = self.parts.random(&self.place.part(ENDING));
        let db = self.open()?;
        self.compare(&db)?;
        db.close(Duration::ZERO).map_err(|error| format!("the last close: {error}"))
    }

    /// The choices of one of this life's parts, unless it is left out.
    fn choices(&self, number: u32) -> Option<Random> {
        let place = self.place.part(number);
        self.parts.has(&place).then(|| self.parts.random(&place))
    }

    /// Opens the database. Power may be lost meanwhile.
    fn open(&mut self) -> Result<Db, String> {
        for attempt in 0..=STARTS {
            self.report.starts += 1;
            // A creation has few operations, and several steps that each start may find undone.
            let is_new = self.report.starts == 1;
            let mut random = self.choices(OPENING + attempt);
            if let Some(random) = &mut random
                && attempt < NESTED
                && one_in(random, if is_new { 2 } else { 3 })
            {
                let among = one_of(random, if is_new { &[60] } else { &[4, 40, 160] });
                let at = self.disk.ops() + random.below(among);
                self.disk.inject(Fault { at, kind: FaultKind::Crash, sticky: false });
            }
            let options = self.copies.with_archive(plan::options(random, &self.disk, self.prepared.len()));
            self.say(|| format!("start {}: {options:?}", self.report.starts));
            let opened = options.open(DIR);
            schedule::progress();
            // Before the look: until then a background thread may lose the power.
            self.disk.clear_faults();
            match opened {
                Ok(db) if !self.disk.is_off() => match self.visit(db, attempt)? {
                    Some(db) => return Ok(db),
                    None => continue,
                },
                Ok(_) => {}
                Err(_) if self.disk.is_off() => {}
                // What is prepared may need more memory than these options give.
                Err(
                    Error::UndoMemory { .. } | Error::TransactionTooLarge { .. } | Error::TooManyTransactions { .. },
                ) if !self.prepared.is_empty() => continue,
                Err(error) => return Err(format!("open: {error} ({error:?})")),
            }
            self.report.nested += 1;
            self.lose_power();
        }
        Err("no options open it".to_owned())
    }

    /// Uses the database behind a start until power is lost, or returns it unused.
    fn visit(&mut self, db: Db, attempt: u32) -> Result<Option<Db>, String> {
        let may_be = attempt < NESTED && self.visits.is_created();
        let Some(mut random) = self.choices(VISIT + attempt).filter(|_| may_be) else { return Ok(Some(db)) };
        if one_in(&mut random, 2) {
            return Ok(Some(db));
        }
        let among = one_of(&mut random, &[20, 100, 1_000, 1_000]);
        let at = self.disk.ops() + random.below(among);
        self.disk.inject(Fault { at, kind: FaultKind::Crash, sticky: false });
        let waiting = || db.stats().recovery.pending_pages;
        let first = waiting();
        self.visits.run(&db, &self.disk, &mut random)?;
        self.disk.power_off();
        let (last, taken) = (waiting(), db.stats().checkpoint.checkpoints);
        self.say(|| format!("a short use: {first} pages waited, then {last}, {taken} checkpoints"));
        self.report.waiting += u32::from(last > 0);
        drop(db);
        schedule::progress();
        self.lose_power();
        Ok(None)
    }

    fn lose_power(&mut self) {
        self.disk.power_off();
        self.report.losses += 1;
        self.is_buffered = false;
        let policy = plan::policy(&mut self.random);
        let seed = self.random.below(u64::MAX);
        let at = self.disk.ops();
        self.say(|| format!("power is lost at operation {at}: {policy:?}"));
        self.disk = self.disk.crash_image(&policy, seed);
        self.disk.stop_recording();
    }

    /// Compares what is there with what was done, which is the base of what comes.
    fn compare(&mut self, db: &Db) -> Result<(), String> {
        self.visits.check(db)?;
        let found = Found { rows: read(db)?, prepared: names(db)? };
        check::check_recovered(&self.base, &self.txns, &self.prepared, &found)?;
        if let Some(mut random) = self.choices(RESTORE) {
            let left = Left { base: &self.base, txns: &self.txns, prepared: &self.prepared, found: &found };
            self.report.restores += self.copies.check(db, &self.disk, &left, &mut random)?;
        }
        self.prepared.retain(|name, _| found.prepared.contains(name));
        for entry in self.prepared.values_mut() {
            entry.asked = Asked::Nothing;
            entry.txn.keep_what_is_locked();
        }
        self.say(|| format!("{} rows, prepared: {:?}", found.rows.len(), found.prepared));
        self.base = found.rows;
        self.txns.clear();
        // A check waits for those that have created or dropped tables, which prepared ones may have.
        if self.prepared.is_empty() {
            checked(db)?;
        }
        Ok(())
    }

    /// Fills the last table with more pages than the smallest pool has frames.
    fn fill(&mut self, db: &Db) -> Result<(), Error> {
        self.keys.1 = FILLED;
        for first in (0..FILLED).step_by(100) {
            let mut rows = Rows::new();
            for number in first..first + 100 {
                self.moment = large_value(self.moment + 1);
                rows.insert((3, number), self.moment);
            }
            let filled = db.run(|tx| {
                let table = tx.open(TableDef::<&[u8], &[u8]>::new(TABLES[3]))?;
                rows.iter().try_for_each(|(row, number)| table.insert(&key(row.1)[..], &value(*number)[..]).map(drop))
            });
            schedule::progress();
            match filled {
                // Its time is short in this life: the table stays as it is.
                Err(Error::TransactionTooOld { .. }) => return Ok(()),
                result => result?,
            }
            self.base.append(&mut rows);
        }
        Ok(())
    }

    /// A life: sessions at work, and its end.
    fn live(&mut self, db: Db) -> Result<(), String> {
        let mut trouble = Trouble::None;
        self.is_buffered = false;
        if let Some(mut random) = self.choices(TROUBLE) {
            trouble = Trouble::draw(&mut random);
            self.is_buffered = one_in(&mut random, 4);
        }
        let trouble = if self.is_buffered { trouble.in_cache() } else { trouble };
        self.say(|| format!("trouble: {trouble:?}, page cache: {}", self.is_buffered));
        self.copies.note(trouble);
        self.disk.set_buffered(self.is_buffered);
        // Background work may meet the fault at once.
        let (at, met) = (self.disk.ops(), self.disk.faults_met());
        match trouble {
            Trouble::None | Trouble::Kill(_) => {}
            Trouble::Crash(after) => {
                self.disk.inject(Fault { at: at + after, kind: FaultKind::Crash, sticky: false });
            }
            Trouble::Fault { at: after, kind, sticky } => self.disk.inject(Fault { at: at + after, kind, sticky }),
            Trouble::Read(after) => self.disk.inject_read_error(self.disk.reads() + after, false),
        }
        let mut shared =
            Shared::new(db, (&self.disk, met), self.keys, trouble, self.moment, std::mem::take(&mut self.prepared));
        shared.is_prompt = self.is_prompt;
        *shared.numbers.lock() = std::mem::take(&mut self.numbers).restarted();
        shared.resolves_one_in = one_of(&mut self.random, &[1, 1, 8]);
        let shared = Arc::new(shared);
        self.work(&shared)?;
        // Sessions that have ended leave nothing behind: the last handle is here.
        let shared = Arc::into_inner(shared).ok_or("a session has not ended")?;
        // ORDERING: Relaxed, no other thread is there.
        self.moment = shared.moments.load(Ordering::Relaxed);
        let is_closed = shared.is_closing();
        self.txns = shared.txns.into_inner();
        self.numbers = shared.numbers.into_inner();
        self.prepared = shared.prepared.into_inner();
        self.report.txns += self.txns.len();
        self.report.commits += self.txns.iter().filter(|txn| matches!(txn.outcome, Outcome::Committed(_))).count();
        if let Some(wrong) = shared.wrong.into_inner() {
            return Err(wrong);
        }
        let operations = self.disk.ops() - at;
        self.say(|| format!("{} transactions, {operations} operations", self.txns.len()));
        let checked = check::check(&self.base, &self.txns, &self.prepared);
        if checked.is_err() {
            self.txns.iter().for_each(|txn| self.say(|| format!("{txn:?}")));
        }
        checked?;
        within_limits(&shared.db)?;
        let killed = shared.killed.into_inner();
        self.end(shared.db, (trouble, met), is_closed, killed)
    }

    fn work(&mut self, shared: &Arc<Shared>) -> Result<(), String> {
        let mut random = self.parts.random(&self.place);
        let sessions = 1 + random.below(6) as u32;
        let most = one_of(&mut random, &[4, 12, 40, 80]);
        let actions = 1 + random.below(most) as u32;
        // A write that is held has no place on a machine whose process was killed.
        let is_held = one_in(&mut random, 3) && !matches!(shared.trouble, Trouble::Kill(_));
        let reorders = is_held.then(|| self.choices(DEVICE)).flatten();
        let device = reorders.map(|mut random| Device::start(&self.disk, random.below(u64::MAX)));
        let mut handles = Vec::new();
        if shared.trouble.is_full() && one_in(&mut random, 2) {
            let (disk, after) = (self.disk.clone(), Duration::from_micros(random.below(100_000)));
            let heal = move || {
                device::pause(after);
                disk.clear_faults();
            };
            handles.push(schedule::spawn("space", heal).map_err(|error| error.to_string())?);
        }
        if let Trouble::Kill(after) = shared.trouble {
            let (shared, disk) = (shared.clone(), self.disk.clone());
            let kill = move || {
                device::pause(after);
                let machine = disk.kill();
                *shared.killed.lock() = Some(machine);
            };
            handles.push(schedule::spawn("kill", kill).map_err(|error| error.to_string())?);
        }
        if one_in(&mut random, 6)
            && let Some(mut random) = self.choices(CHECKPOINTS)
        {
            let (shared, parts, place) = (shared.clone(), self.parts.clone(), self.place.part(CHECKPOINTS));
            let count = random.below(40);
            let body = move || Session::new(&shared, &parts, place, sessions).take_checkpoints(count);
            handles.push(schedule::spawn("checkpoints", body).map_err(|error| error.to_string())?);
        }
        if let Some(mut random) = self.choices(BACKUP)
            && one_in(&mut random, 3)
        {
            let (shared, slot, dir) = (shared.clone(), self.copies.slot(), format!("backup-{}", self.report.starts));
            let body = move || slot.fill(&shared, dir, random);
            handles.push(schedule::spawn("backup", body).map_err(|error| error.to_string())?);
        }
        for number in 0..sessions {
            let place = self.place.part(number);
            if self.parts.has(&place) {
                let (shared, parts) = (shared.clone(), self.parts.clone());
                let body = move || Session::new(&shared, &parts, place, number).run(actions);
                handles.push(schedule::spawn("session", body).map_err(|error| error.to_string())?);
            }
        }
        // A panic is noted by its hook.
        handles.into_iter().for_each(|handle| drop(handle.join()));
        if let Some(device) = device {
            device?.stop();
        }
        Ok(())
    }
}
