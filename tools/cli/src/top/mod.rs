//! `foreshore top`: rates of a program that serves its metrics.
//!
//! A database is open in one process, so this verb asks that process. Nothing is read but the text of
//! `foreshore::metrics`.
//!
//! | module | does |
//! |---|---|
//! | `scrape` | asks over HTTP |
//! | `sample` | parses the text |
//! | `view` | two samples to rates |
//! | `screen` | rates to lines of a terminal |

mod sample;
mod scrape;
mod screen;
mod view;

use crate::exit::Failure;
use crate::output::Output;
use clap::Args;
use foreshore_bench::units;
use sample::Sample;
use scrape::Target;
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};
use view::View;

/// Watch a program: rates, group size, waits, the oldest transaction
///
/// The program serves the text of foreshore::metrics over HTTP, as the example serve_metrics does. At a terminal the
/// lines are drawn anew for each interval, until Ctrl-C ends it. Times by class are there if the program switches
/// profiling on.
#[derive(Args)]
pub(crate) struct TopArguments {
    /// Where the metrics are: http://HOST:PORT/PATH. The default of the path is /metrics
    #[arg(default_value = "http://127.0.0.1:9184/metrics")]
    url: Target,
    /// The time from one sample to the next
    #[arg(long, default_value = "2s", value_parser = |text: &str| units::time("interval", text))]
    interval: Duration,
    /// End after one interval
    #[arg(long)]
    once: bool,
    /// Print an object for each interval (schema/top.json)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &TopArguments) -> Result<(), Failure> {
    if arguments.interval.is_zero() {
        return Err(Failure::Refused("option interval: expected more than 0s".to_owned()));
    }
    let is_drawn = !arguments.json && !arguments.once && io::stdout().is_terminal();
    let mut before = take(&arguments.url)?;
    loop {
        thread::sleep(arguments.interval);
        let after = match take(&arguments.url) {
            Ok(after) => after,
            // The program may come back.
            Err(failure) if is_drawn => {
                let rows = [("no answer", failure.to_string())];
                draw(&screen::frame(&arguments.url.to_string(), &rows, screen::size()))?;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let view = View::between(&before.1, &after.1, after.0 - before.0);
        if is_drawn {
            draw(&screen::frame(&arguments.url.to_string(), &view.rows(), screen::size()))?;
        } else {
            print(&view, arguments.json)?;
        }
        if arguments.once {
            return Ok(());
        }
        before = after;
    }
}

/// Prints an interval below those before.
fn print(view: &View, as_json: bool) -> Result<(), Failure> {
    let mut out = Output::new();
    if as_json {
        out.json(&view.json())?;
    } else {
        screen::lines(&view.rows()).iter().try_for_each(|line| out.line(line))?;
    }
    out.end()
}

/// Asks for the metrics, and notes when.
fn take(target: &Target) -> Result<(Instant, Sample), Failure> {
    let text = target.get().map_err(|why| Failure::Failed(foreshore::Error::io("read", target.to_string(), why)))?;
    let at = Instant::now();
    let sample = Sample::parse(&text).map_err(|why| Failure::Refused(format!("{target}: {why}")))?;
    Ok((at, sample))
}

fn draw(frame: &str) -> Result<(), Failure> {
    let mut out = io::stdout();
    out.write_all(frame.as_bytes()).and_then(|()| out.flush()).map_err(Failure::output)
}
