//! Beyond the machine: what the counted contended read-modify-writes cost on more cores, by a model.
//!
//! An insert takes its time alone, and the transfer of a line for each contended read-modify-write. One of N cores
//! finds the line at another one with probability (N - 1) / N. A line serves one transfer at a time. One core copies
//! what is cut into groups.

use super::{
    Outcome, Row,
    chart::{Axis, Data, Figure, Panel, Series},
    log_insert::RECORD,
    row::find,
    subject::{BOUND_FETCH_ADD, BUFFERS},
};
use std::fmt::{self, Write as _};

/// Cores that are modelled.
const CORES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Bytes a second that one core copies into staging, where 8 to 12 GB/s are usual.
const COPIED_PER_S: f64 = 10e9;

/// One buffer: what the model knows of it.
#[derive(Clone, Copy, Debug)]
struct Insert {
    /// Seconds of an insert alone.
    alone: f64,
    /// Contended read-modify-writes, counted with two threads.
    contended: f64,
}

impl Insert {
    fn of(rows: &[Row], buffer: &str) -> Option<Self> {
        let at = |threads: usize| [("buffer", buffer.into()), ("threads", threads.into())];
        let alone = 1.0 / find(rows, &at(1), "records_per_s").filter(|rate| *rate > 0.0)?;
        Some(Self { alone, contended: find(rows, &at(2), "contended_rmw_per_record")? })
    }

    /// Returns the records a second on `cores` cores, if a line moves in `transfer` seconds.
    fn records_per_s(self, cores: usize, transfer: f64) -> f64 {
        let (cores, moves) = (cores as f64, self.contended * transfer);
        let by_threads = cores / (self.alone + moves * (cores - 1.0) / cores);
        // With one core no line moves.
        let by_line = if cores > 1.0 { 1.0 / moves } else { f64::INFINITY };
        by_threads.min(by_line).min(COPIED_PER_S / RECORD as f64)
    }
}

/// Returns the seconds in which a line moves: two threads that add to one counter take turns. `None` if two are as fast
/// as one, because then the line hardly moves.
fn transfer(rows: &[Row]) -> Option<f64> {
    let rate = |threads: usize| {
        let at = [("buffer", BOUND_FETCH_ADD.into()), ("threads", threads.into())];
        find(rows, &at, "records_per_s").filter(|rate| *rate > 0.0)
    };
    let (one, two) = (rate(1)?, rate(2)?);
    (two < one).then_some(1.0 / two)
}

/// Writes the section, if `log-insert` is among the outcomes.
pub(super) fn section(html: &mut String, outcomes: &[Outcome]) -> fmt::Result {
    let Some(outcome) = outcomes.iter().find(|outcome| outcome.experiment == "log-insert") else { return Ok(()) };
    writeln!(html, "<section id=\"model\">\n<div class=\"top\">\n<h2>Beyond the machine: a model</h2>")?;
    let Some(transfer) = transfer(&outcome.rows) else {
        let why =
            "Two threads add to one counter no slower than one, or were not measured: there is no time of a transfer.";
        return writeln!(html, "<p>{why}</p>\n</div>\n</section>");
    };
    let panel = panel(&outcome.rows, outcome.machine.cores, transfer);
    html.push_str(&Figure::new(&[panel]).html());
    writeln!(html, "</div>\n<dl>\n<dt>What is drawn</dt><dd>{}</dd>", drawn(transfer))?;
    writeln!(html, "<dt>A check of the model</dt><dd>{CHECK}</dd>\n</dl>\n</section>")
}

/// Solid what was measured on the cores of the machine, dashed the model.
fn panel(rows: &[Row], cores: usize, transfer: f64) -> Panel {
    let mut lines = Vec::new();
    for buffer in BUFFERS {
        let Some(insert) = Insert::of(rows, buffer) else { continue };
        let measured = |threads: &usize| {
            let at = [("buffer", buffer.into()), ("threads", (*threads).into())];
            Some((*threads as f64, find(rows, &at, "records_per_s")?)).filter(|_| *threads <= cores)
        };
        let modelled = |cores: usize| (cores as f64, insert.records_per_s(cores, transfer));
        lines.push(Series { name: buffer.to_owned(), points: CORES.iter().filter_map(measured).collect() });
        lines.push(Series { name: format!("{buffer}, model"), points: CORES.map(modelled).to_vec() });
    }
    Panel {
        title: format!("log-insert, {RECORD}-byte records: measured and modelled"),
        x: Axis::log("cores, a thread each", 2),
        y: Axis::log("records per second", 10),
        data: Data::Lines(lines),
    }
}

fn drawn(transfer: f64) -> String {
    format!(
        "Solid lines are measured, on the cores that this machine has. Dashed lines are a model and no measurement. N cores \
         make N / (alone + c t (N - 1) / N) records a second, at most 1 / (c t), and at most the {} million that one core \
         copies into groups at {} GB/s. <i>alone</i> is the time of an insert with one thread, c the contended \
         read-modify-writes of a record, counted with two threads. t = {:.0} ns is the time in which a line moves to another \
         core: two threads that add to one counter take turns ({BOUND_FETCH_ADD}). The model knows nothing of lines that are \
         written without a read-modify-write, and nothing of threads that sleep.",
        (COPIED_PER_S / RECORD as f64 / 1e6).round(),
        COPIED_PER_S / 1e9,
        transfer * 1e9,
    )
}

/// From docs/results/16-cores.
const CHECK: &str = "On sixteen virtual cores of a Xeon, one fetch-and-add saturates at 14.0 million a second with 4 threads and at \
    14.2 with 16, so t is 71 ns there, and does not depend on the number of threads. With the counts at 4 threads, the model \
    gives for 16 threads, in millions of records a second, and the machine made: lanes 83 and 65 (82 with 4 threads), faa 13.6 \
    and 7.4, laser 6.5 and 5.8, delegated 2.1 and 2.9. It is 2.5 to 5.6 times too high for the buffers whose appends sleep \
    under a mutex: mutex 5.6 and 2.2, carray 5.6 and 2.2, hybrid 5.0 and 1.5, decoupled 6.7 and 1.2. So it tells the distance \
    between lanes and the others, and not the order of the others.";

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of docs/results/16-cores, where `CHECK` has its figures from.
    #[test]
    fn the_model_gives_what_the_check_says() {
        let transfer = 1.0 / 14_027_268.0;
        let million = |alone: f64, contended| {
            let insert = Insert { alone: 1.0 / alone, contended };
            (insert.records_per_s(16, transfer) / 1e5).round() / 10.0
        };
        let modelled = [
            million(20_552_615.0, 0.001),
            million(13_605_391.0, 1.031),
            million(11_444_550.0, 2.167),
            million(6_563_148.0, 6.769),
            million(10_742_979.0, 2.505),
            million(9_919_456.0, 2.516),
            million(10_539_470.0, 2.804),
            million(10_748_066.0, 2.082),
        ];
        assert_eq!(modelled, [83.3, 13.6, 6.5, 2.1, 5.6, 5.6, 5.0, 6.7]);
    }

    #[test]
    fn one_core_is_as_fast_as_measured_and_needs_no_transfer() {
        let insert = Insert { alone: 1e-7, contended: 2.0 };
        assert!((insert.records_per_s(1, 1e-7) - 1e7).abs() < 1.0);
        // With two, half of the accesses move the line, and the line is the limit.
        assert!((insert.records_per_s(2, 1e-7) - 5e6).abs() < 1.0);
    }

    #[test]
    fn a_line_that_does_not_move_gives_no_model() {
        let row = |threads: usize, rate| {
            Row::new().with("buffer", BOUND_FETCH_ADD).with("threads", threads).measured("records_per_s", rate)
        };
        assert_eq!(transfer(&[row(1, 50e6), row(2, 20e6)]), Some(5e-8));
        assert_eq!(transfer(&[row(1, 50e6), row(2, 90e6)]), None);
        assert_eq!(transfer(&[row(1, 50e6)]), None);
    }
}
