//! `insert-ladder`: inserts into tables of their own, as the steps of Shore-MT are undone one by one.

use super::{
    Row,
    bank::Bank,
    chart::{Axis, Panel, Plot},
    experiment::{Experiment, Lab},
    repeat::{median, rounds},
    row::find,
};
use crate::{
    Config,
    config::{Commit, Parts, Workload},
    report,
};
use foreshore::{Device, Result};
use foreshore_classics::{
    growth::GrowthKind, intents::IntentKind, log_buffers::BufferKind, replacement::ReplacementKind,
};

pub(super) struct InsertLadder;

/// The parts of each step: all undone, and one part after the other as the engine has it. The last is the engine.
fn steps(engine: Parts) -> [(&'static str, Parts); 6] {
    let baseline = Parts {
        replacement: ReplacementKind::Lru,
        growth: GrowthKind::Inline,
        log_buffer: BufferKind::Mutex,
        intents: IntentKind::Table,
        ..engine
    };
    let pool = Parts { replacement: engine.replacement, ..baseline };
    let space = Parts { growth: engine.growth, ..pool };
    let copies = Parts { log_buffer: BufferKind::Decoupled, ..space };
    let intents = Parts { intents: engine.intents, ..copies };
    let log = Parts { log_buffer: engine.log_buffer, ..intents };
    [
        ("baseline", baseline),
        ("+buffer pool", pool),
        ("+free space", space),
        ("+log copies", copies),
        ("+lock manager", intents),
        ("+lanes", log),
    ]
}

/// The step that is Shore-MT's own; the one behind it is Foreshore's.
const ALL_OF_SHORE_MT: &str = "+lock manager";

#[derive(Clone, Copy, Debug)]
struct Point {
    name: &'static str,
    parts: Parts,
    threads: usize,
}

impl Point {
    /// A fresh database for each row: a window fills a gigabyte.
    fn measure(&self, lab: &Lab<'_>, base: &Config) -> Result<report::Row> {
        let config = Config { threads: vec![self.threads], parts: self.parts, ..base.clone() };
        let mut bank = Bank::load(lab, Workload::Insert, &config)?;
        let row = bank.row(lab, &config, self.threads)?;
        bank.check(lab, &config)?;
        Ok(row)
    }

    fn row(&self, measured: &[report::Row], batch: u32) -> Row {
        let (middle, keys) = median(measured, |row: &report::Row| row.tps);
        Row::new()
            .with("step", self.name)
            .with("policy", self.parts.replacement.to_string())
            .with("growth", self.parts.growth.to_string())
            .with("buffer", self.parts.log_buffer.to_string())
            .with("intents", self.parts.intents.to_string())
            .with("threads", self.threads)
            .measured("tps", middle.tps)
            .measured("records_per_s", middle.tps * f64::from(batch))
            .measured("p99_us", middle.latency.p99_us)
            .measured("cpu_user_cores", middle.time.cpu_user_cores)
            .measured("cpu_system_cores", middle.time.cpu_system_cores)
            .with("breakdown", serde_json::to_value(middle.time.breakdown).unwrap_or_default())
            .measured("cpu_stolen_cores", middle.time.cpu_stolen_cores)
            .with("repeats", keys.into_iter().map(|tps| (tps * 10.0).round() / 10.0).collect::<Vec<_>>())
    }
}

impl Experiment for InsertLadder {
    fn name(&self) -> &'static str {
        "insert-ladder"
    }

    fn figure(&self) -> &'static str {
        "Multicore support in databases, slides on the optimization of Shore"
    }

    fn paper(&self) -> &'static str {
        "Shore-MT on a Sun T2000, 8 cores with 4 contexts each, data on disks and the log in memory. Each client inserts into a \
         table of its own and commits every 1000 records, so nothing conflicts. Shore did not scale. Its bottlenecks were \
         removed one by one: each time scalability rose, or a smaller bottleneck took the place. In the first step a scalable \
         mutex in the free space manager, and a latch taken outside of it, cost one thread 30 % and gave 32 threads 200 % more. \
         A thread's cache of allocations cut the checks of pages by 95 %. At the end one thread is nearly 3 times as fast as \
         in Shore, and inserts into the log are the next bottleneck."
    }

    fn differs(&self) -> &'static str {
        "Only parts that Foreshore or `classics/` has are undone, so the baseline is no Shore. `baseline`: a mutex and a list for \
         each hit in the buffer pool (`lru`), the file grown by a page when one is needed (`inline`), records copied under the mutex \
         of the log buffer (`mutex`), each intent in the lock table (`table`). Then, one by one: the pool's own replacement, which \
         takes no lock on a hit; pages taken ahead of need in batches; copies outside of the mutex (`decoupled`), as in Shore-MT's \
         extended queuing lock; intents in words of the session. The last step, `lanes`, is not Shore-MT's. These steps of \
         Shore-MT have no counterpart, because the engine has only the end of them: pin-if-pinned and the locks of buckets, the \
         cuckoo table and the lists of pages in transit (a direct-mapped table, reads by version), MCS in place of pthread \
         mutexes, the circular log buffer with flushes beside inserts, and checkpoints beside which transactions begin and end. \
         Data and log lie in memory, unless a device is named. Commits block."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let threads = lab.threads(&[1, 2, 4, 8, 16, 32], &[1, 2, 8, 32]);
        let device = if lab.settings.device == Device::Auto { Device::Null } else { lab.settings.device };
        let base = Bank::options(lab, Workload::Insert.default_scale(), lab.choose(2000, 300), device);
        let base = Config { commit: Commit::Blocking, scale: Workload::Insert.default_scale(), ..base };
        lab.configure("batch", base.records.batch);
        lab.configure("commit", base.commit.to_string());
        lab.configure("device", device.to_string());
        lab.configure("secs", base.window.secs.as_secs_f64());
        lab.configure("repeat", lab.settings.repeat.unwrap_or(ROUNDS));
        lab.machine = Bank::load(lab, Workload::Insert, &base)?.machine()?;
        let of = |&threads: &usize| steps(base.parts).map(|(name, parts)| Point { name, parts, threads });
        let points: Vec<Point> = threads.iter().flat_map(of).collect();
        let measured = rounds(lab, ROUNDS, &points, |point| point.measure(lab, &base))?;
        Ok(points.iter().zip(&measured).map(|(point, measured)| point.row(measured, base.records.batch)).collect())
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let (x, y) = (Axis::log("threads", 2), Axis::linear("transactions of 1000 records per second"));
        let plot = Plot { x, y, of: ["threads", "tps"] };
        plot.panels(rows, |_| "inserts".to_owned(), |row| row.text("step").to_owned())
    }

    /// What the ladder gives with one thread and with the most.
    fn findings(&self, rows: &[Row]) -> Vec<String> {
        let most = rows.iter().filter_map(|row| row.number("threads")).fold(1.0, f64::max) as usize;
        let gain = |step: &str, threads: usize| {
            let tps = |step: &str| find(rows, &[("step", step.into()), ("threads", threads.into())], "tps");
            let ratio = tps(step)? / tps("baseline")?;
            let plural = if threads == 1 { "" } else { "s" };
            Some(format!("{threads} thread{plural}: {step} / baseline {ratio:.2}"))
        };
        let steps = [ALL_OF_SHORE_MT, "+lanes"];
        [1, most].into_iter().flat_map(|threads| steps.map(|step| gain(step, threads))).flatten().collect()
    }
}

const ROUNDS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_changes_one_part_and_the_last_is_the_engine() {
        let engine = Parts::default();
        let shown: Vec<String> = steps(engine).iter().map(|(_, parts)| parts.to_string()).collect();
        for pair in shown.windows(2) {
            let differ = pair[0].split(' ').zip(pair[1].split(' ')).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 1, "{pair:?}");
        }
        assert_eq!(shown[shown.len() - 1], engine.to_string());
    }
}
