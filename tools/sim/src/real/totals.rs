//! What a verb has done.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

/// Counts, printed as one line of JSON at the end.
#[derive(Debug)]
pub(super) struct Totals {
    verb: &'static str,
    seed: u64,
    begun: Instant,
    pub(super) rounds: u64,
    pub(super) commits: u64,
    failed: u64,
    /// Faults made, by name.
    faults: BTreeMap<String, u64>,
    /// What could not be done here, with the reason.
    skipped: BTreeMap<String, String>,
}

impl Totals {
    pub(super) fn new(verb: &'static str, seed: u64) -> Self {
        let (faults, skipped) = (BTreeMap::new(), BTreeMap::new());
        Self { verb, seed, begun: Instant::now(), rounds: 0, commits: 0, failed: 0, faults, skipped }
    }

    pub(super) const fn is_well(&self) -> bool {
        self.failed == 0
    }

    /// Counts a fault that was made.
    pub(super) fn count(&mut self, fault: &str) {
        self.count_many(fault, 1);
    }

    pub(super) fn count_many(&mut self, fault: &str, times: u64) {
        if times == 0 {
            return;
        }
        *self.faults.entry(fault.to_owned()).or_default() += times;
    }

    /// Notes what cannot be done here, and says so.
    pub(super) fn skip(&mut self, what: &str, why: &str) {
        println!("skipped: {what}: {why}");
        self.skipped.insert(what.to_owned(), why.to_owned());
    }

    /// Notes the outcome of a round that `arguments` repeat, and says so if it has failed.
    pub(super) fn round(&mut self, outcome: Result<(), String>, arguments: &str) -> bool {
        self.rounds += 1;
        if let Err(why) = &outcome {
            self.failed += 1;
            let verb = self.verb;
            let release = if cfg!(debug_assertions) { "" } else { "--release " };
            println!("FAIL cargo run {release}-p foreshore-sim -- real {verb} {arguments}: {why}");
        }
        outcome.is_ok()
    }

    pub(super) fn json(&self) -> String {
        let Self { verb, seed, rounds, commits, failed, .. } = self;
        let mut text = format!(
            r#"{{"verb":"{verb}","seed":{seed},"rounds":{rounds},"failed":{failed},"commits":{commits},"seconds":{}"#,
            self.begun.elapsed().as_secs()
        );
        let faults: Vec<String> = self.faults.iter().map(|(name, count)| format!("{name:?}:{count}")).collect();
        let skipped: Vec<String> = self.skipped.iter().map(|(what, why)| format!("{what:?}:{why:?}")).collect();
        for (name, entries) in [("faults", faults), ("skipped", skipped)] {
            // A string takes all.
            let _ = write!(text, r#","{name}":{{{}}}"#, entries.join(","));
        }
        text + "}"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_one_line_of_json_and_remember_a_failure() {
        let mut totals = Totals::new("cuts", 7);
        totals.count("ext4");
        totals.count("ext4");
        totals.skip("btrfs", "no \"mkfs\"");
        assert!(totals.round(Ok(()), "") && totals.is_well());
        assert!(!totals.round(Err("lost".to_owned()), "--seed 7") && !totals.is_well());
        let json = totals.json();
        assert!(json.starts_with(r#"{"verb":"cuts","seed":7,"rounds":2,"failed":1,"commits":0,"seconds":"#), "{json}");
        assert!(json.ends_with(r#","faults":{"ext4":2},"skipped":{"btrfs":"no \"mkfs\""}}"#), "{json}");
    }
}
