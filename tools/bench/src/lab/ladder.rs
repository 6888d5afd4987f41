//! The steps from a log that makes each commit wait, by Aether's techniques, to the engine's own log.

use super::{
    Row,
    bank::Bank,
    experiment::Lab,
    subject::{BUFFERS, built},
};
use crate::{
    Config,
    config::{Commit, Parts, Workload},
};
use foreshore::Device;
use foreshore_classics::early_release::EarlyRelease;
use foreshore_classics::log_buffers::BufferKind;

/// Subscribers for each branch that is asked for: as many as the default scales have.
const SUBSCRIBERS_PER_BRANCH: u64 = 10_000;

/// One step: a log with the techniques up to it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) name: String,
    commit: Commit,
    elr: EarlyRelease,
    log_buffer: BufferKind,
}

impl Step {
    /// The baseline, early lock release, flush pipelining, and then each other log buffer in place of the mutex. The
    /// last is the engine's own log.
    pub(super) fn all() -> Vec<Self> {
        let step = |name: &str, commit, elr, log_buffer| Self { name: name.to_owned(), commit, elr, log_buffer };
        let mutex = BufferKind::Mutex;
        let mut steps = vec![
            step("baseline", Commit::Blocking, EarlyRelease::Off, mutex),
            step("+elr", Commit::Blocking, EarlyRelease::Full, mutex),
            step("+pipelining", Commit::Pipelined, EarlyRelease::Full, mutex),
        ];
        let others = built(&BUFFERS).into_iter().filter(|&buffer| buffer != mutex);
        steps.extend(others.map(|buffer| step(&format!("+{buffer}"), Commit::Pipelined, EarlyRelease::Full, buffer)));
        steps
    }

    /// The options of a row with this step, and its threads. A client whose commits block has a thread of its own.
    pub(super) fn config(&self, base: &Config, clients: usize, cores: usize) -> (Config, usize) {
        let threads = if self.commit == Commit::Blocking { clients } else { clients.min(cores) };
        let Self { commit, elr, log_buffer, .. } = *self;
        let parts = Parts { elr, log_buffer, ..base.parts };
        (Config { commit, parts, clients: clients.div_ceil(threads), ..base.clone() }, threads)
    }

    /// The fields of a row that say which step it is.
    pub(super) fn fields(&self) -> Row {
        Row::new()
            .with("step", self.name.clone())
            .with("commit", self.commit.to_string())
            .with("elr", self.elr.to_string())
            .with("buffer", self.log_buffer.to_string())
    }
}

/// The options that all rows of a workload share, and notes them.
pub(super) fn configure(lab: &mut Lab<'_>, workload: Workload, device: Device, millis: u64) -> Config {
    let scale = match workload {
        Workload::Tpcb => lab.settings.scale,
        _ => lab.settings.scale.map(|branches| branches * SUBSCRIBERS_PER_BRANCH),
    };
    let base = Bank::options(lab, workload.default_scale(), millis, device);
    let base = Config { scale: scale.unwrap_or(base.scale), ..base };
    lab.configure(if workload == Workload::Tpcb { "branches" } else { "subscribers" }, base.scale);
    lab.configure("device", device.to_string());
    lab.configure("secs", base.window.secs.as_secs_f64());
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_leads_from_waits_to_the_log_of_the_engine() {
        let steps = Step::all();
        let own = Config::default();
        let (first, _) = steps[0].config(&own, 32, 2);
        assert_eq!((first.commit, first.parts.elr, first.clients), (Commit::Blocking, EarlyRelease::Off, 1));
        let (last, threads) = steps[steps.len() - 1].config(&own, 32, 2);
        assert_eq!(
            (last.commit, last.parts.elr, last.parts.log_buffer),
            (own.commit, own.parts.elr, own.parts.log_buffer)
        );
        assert_eq!((threads, last.clients), (2, 16));
        assert_eq!(steps.len(), 2 + BUFFERS.len());
    }
}
