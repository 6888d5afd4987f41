//! The end of a life.

use super::Lives;
use crate::engine::history::Outcome;
use crate::engine::plan::{self, Trouble, one_in, one_of};
use foreshore::Db;
use foreshore_io::Sim;
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_sync::schedule;
use std::time::Duration;

impl Lives {
    /// Ends a life in one of the ways that there are.
    pub(super) fn end(
        &mut self,
        db: Db,
        (trouble, met): (Trouble, u64),
        is_closed: bool,
        killed: Option<Sim>,
    ) -> Result<(), String> {
        let is_poisoned = db.sync().is_err();
        self.disk.clear_faults();
        let is_off = self.disk.is_off();
        let may_stop = trouble.may_stop() && (is_off || self.disk.faults_met() > met);
        self.report.stopped += u32::from(is_poisoned);
        if is_poisoned && !is_off && !is_closed && !may_stop {
            return Err(format!("the database has stopped: {:?}", db.sync()));
        }
        if !is_poisoned {
            // `sync` has made all commits durable.
            let all = self.txns.iter_mut().filter(|txn| matches!(txn.outcome, Outcome::Committed(_)));
            all.for_each(|txn| txn.durable = txn.durable.min(self.moment));
        }
        match self.random.below(4) {
            _ if killed.is_some() => drop(db),
            0 if !is_off => {
                let met = self.disk.faults_met();
                if one_in(&mut self.random, 3) {
                    let at = self.disk.ops() + self.random.below(20);
                    let kind = one_of(&mut self.random, &[FaultKind::Crash, FaultKind::Eio, FaultKind::Enospc]);
                    let kind = if self.is_buffered { plan::in_cache(kind) } else { kind };
                    self.disk.inject(Fault { at, kind, sticky: one_in(&mut self.random, 2) });
                    self.copies.note_failure();
                }
                let closed = db.close(Duration::from_secs(1));
                let has_struck = self.disk.is_off() || self.disk.faults_met() > met;
                self.disk.clear_faults();
                match closed {
                    // What background work met just before may come out here.
                    Err(error) if !is_poisoned && !may_stop && !has_struck => {
                        return Err(format!("close: {error} ({error:?})"));
                    }
                    _ => drop(db),
                }
                if self.disk.is_off() {
                    self.lose_power();
                }
            }
            1 if !is_off => drop(db),
            _ => {
                self.disk.power_off();
                drop(db);
                self.lose_power();
            }
        }
        if let Some(machine) = killed {
            self.say(|| "the process was killed".to_owned());
            self.disk = machine;
            self.disk.clear_faults();
        }
        self.fail_unasked();
        schedule::progress();
        Ok(())
    }

    /// Lets the kernel fail to write a file back, now and then, where it has a page cache.
    fn fail_unasked(&mut self) {
        if self.is_buffered && one_in(&mut self.random, 3) {
            let file = one_of(&mut self.random, &["db/data", "db/dw", "db/log/ctl"]);
            self.say(|| format!("the write-back of {file} fails"));
            // There may be no such file.
            let _ = self.disk.fail_write_back(file.as_ref());
        }
    }
}
