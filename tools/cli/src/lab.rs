//! `foreshore lab`: options, and where the results go.

use crate::{bar::Bar, history};
use clap::{Args, Subcommand};
use foreshore::{Device, Error};
use foreshore_bench::{
    lab::{self, Outcome, Settings},
    units,
};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

/// Each experiment writes EXPERIMENT.json and EXPERIMENT.svg; all of them together also an index.html.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    record: Option<Record>,
    #[arg(help = experiments(), required = true)]
    experiment: Option<String>,
    /// buffer-trace: the trace, in the ARC format, plain or zstd [default: a made-up one]
    file: Option<PathBuf>,
    /// The points that matter most, in at most three minutes an experiment
    #[arg(long)]
    quick: bool,
    /// log-size: also a ring that stays in the cache
    #[arg(long)]
    l1: bool,
    /// Where the results go
    #[arg(long, value_name = "DIR", default_value = "lab")]
    out: PathBuf,
    /// Device of the experiments that write: auto, direct, buffered, null, delay:300us
    #[arg(long, default_value = "auto")]
    device: Device,
    /// Measured time of each point [default: what the experiment chooses]
    #[arg(long, value_parser = |text: &str| units::time("secs", text))]
    secs: Option<Duration>,
    /// Repeats of each point; the median is reported [default: what the experiment chooses]
    #[arg(long)]
    repeat: Option<usize>,
    /// Worker threads [default: what the experiment chooses]
    #[arg(long, value_delimiter = ',')]
    threads: Vec<usize>,
    /// Branches of the experiments that run TPC-B, and 10,000 subscribers of TATP for each [default: what the
    /// experiment chooses]
    #[arg(long)]
    scale: Option<u64>,
    /// Pages of the experiments on the buffer pool [default: what the experiment chooses]
    #[arg(long)]
    pages: Option<u64>,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the JSON of an experiment to this file too; `-` is standard output, and the table goes to standard error
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// What the lab writes down instead of running an experiment.
#[derive(Subcommand)]
enum Record {
    /// Record a history of transactions, and check its isolation
    History(history::Arguments),
    /// Write index.html again from the JSON files of experiments
    Page(Page),
}

#[derive(Args)]
struct Page {
    /// Where the JSON files are, and index.html goes
    dir: PathBuf,
    /// Where the runs come from: commit, day, machine
    #[arg(long)]
    note: Option<String>,
}

impl Arguments {
    fn settings(&self) -> Settings {
        Settings {
            quick: self.quick,
            l1: self.l1,
            device: self.device,
            secs: self.secs,
            repeat: self.repeat,
            threads: self.threads.clone(),
            scale: self.scale,
            pages: self.pages,
            trace: self.file.clone(),
            seed: self.seed,
        }
    }
}

/// The experiments by name.
fn experiments() -> String {
    format!("One of {}, or {}", lab::names().collect::<Vec<_>>().join(", "), lab::ALL)
}

/// Runs, prints the rows of each experiment as it ends, and says where the files are. False if a history is not what
/// its isolation allows.
pub(crate) fn run(arguments: &Arguments) -> Result<bool, Error> {
    match &arguments.record {
        Some(Record::History(arguments)) => return history::run(arguments),
        Some(Record::Page(Page { dir, note })) => return lab::page(dir, note.as_deref()).map(|()| true),
        None => {}
    }
    let experiment = arguments.experiment.as_deref().unwrap_or(lab::ALL);
    let mut done = |outcome: &Outcome| print(outcome, arguments.json.as_deref());
    lab::run(experiment, &arguments.settings(), &arguments.out, &Bar::new(), &mut done)?;
    eprintln!("results are in {}", arguments.out.display());
    Ok(true)
}

fn print(outcome: &Outcome, json: Option<&Path>) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |e| Error::io("write", path, e)
    };
    let (table, stdout) = (outcome.table() + "\n", Path::new("standard output"));
    if json == Some(Path::new("-")) {
        eprint!("{table}");
        return io::stdout().write_all(outcome.json().as_bytes()).map_err(failed(stdout));
    }
    io::stdout().write_all(table.as_bytes()).map_err(failed(stdout))?;
    json.map_or(Ok(()), |path| fs::write(path, outcome.json()).map_err(failed(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Lab {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(words: &str) -> Arguments {
        Lab::try_parse_from(["lab"].into_iter().chain(words.split_whitespace())).unwrap().arguments
    }

    #[test]
    fn options_are_taken_as_users_type_them() {
        let settings = parse("log-size --quick --l1 --device delay:300us --secs 200ms --threads 1,2").settings();
        assert!(settings.quick && settings.l1);
        assert_eq!(settings.device, Device::Delay(Duration::from_micros(300)));
        assert_eq!((settings.secs, settings.threads), (Some(Duration::from_millis(200)), vec![1, 2]));
        assert_eq!(format!("{:?}", parse("all").settings()), format!("{:?}", Settings::default()));
    }

    #[test]
    fn a_trace_follows_the_experiment() {
        assert_eq!(parse("buffer-trace some.lis --quick").settings().trace, Some("some.lis".into()));
    }

    #[test]
    fn a_history_is_recorded_with_options_of_its_own() {
        assert!(matches!(parse("history --sessions 3 --out x.edn").record, Some(Record::History(_))));
        assert!(parse("log-insert --out lab").record.is_none());
        assert!(Lab::try_parse_from(["lab"]).is_err());
    }

    #[test]
    fn a_page_is_written_of_a_folder_with_a_note() {
        let Some(Record::Page(Page { dir, note })) = parse("page some/dir --note today").record else { panic!() };
        assert_eq!((dir, note.as_deref()), (PathBuf::from("some/dir"), Some("today")));
        assert!(run(&parse("page no/such/folder")).is_err());
    }

    #[test]
    fn an_unknown_experiment_is_refused_with_those_that_exist() {
        let refused = run(&parse("log-inserts"));
        let Err(Error::InvalidOption { name: "experiment", expected, .. }) = refused else { panic!("{refused:?}") };
        assert!(expected.contains("log-insert,") && expected.contains("all"), "{expected}");
    }

    #[test]
    fn the_help_lists_every_experiment() {
        let help = Lab::command().render_long_help().to_string();
        assert!(lab::names().all(|name| help.contains(name)), "{help}");
    }
}
