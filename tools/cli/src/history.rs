//! `foreshore lab history`: records a history of transactions and checks its isolation.

use clap::{Args, ValueEnum};
use foreshore::Error;
use foreshore_history::{Base, Config, History, Kind, Outcome, check, drive, edn, json};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Sessions work on a database that loses power, and what they asked for and saw is written down and checked.
///
/// The database is on a simulated disk. The check is that of the chosen isolation level, in real time: every
/// transaction sees what was acknowledged before it began.
#[derive(Args)]
pub(crate) struct Arguments {
    /// read-committed, snapshot or serializable
    #[arg(long, default_value_t = Base::Serializable)]
    isolation: Base,
    /// What writes do: append to lists, or replace registers
    #[arg(long, value_enum, default_value_t = Writes::Append)]
    kind: Writes,
    /// Sessions at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=32))]
    sessions: u64,
    /// Transactions of each session
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    txns: u64,
    /// Keys
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    keys: u64,
    /// Losses of power
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=1000))]
    losses: u64,
    /// Seed of all choices but how threads interleave
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// edn: events in real-time order, one a line; json: sessions of transactions
    #[arg(long, value_enum, default_value_t = Format::Edn)]
    format: Format,
    /// Where the history goes; `-` is standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Writes {
    Append,
    Register,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Edn,
    Json,
}

impl Arguments {
    fn config(&self) -> Config {
        let kind = match self.kind {
            Writes::Append => Kind::Append,
            Writes::Register => Kind::Register,
        };
        let Self { isolation, sessions, txns, keys, losses, seed, .. } = *self;
        Config { kind, isolation, sessions, txns, keys, losses, seed, planted: None }
    }
}

/// Writes the history and says whether it passes.
pub(crate) fn run(arguments: &Arguments) -> Result<bool, Error> {
    let config = arguments.config();
    let history = drive(&config)?;
    let text = match arguments.format {
        Format::Edn => edn(&history),
        Format::Json => json(&history),
    };
    write(&arguments.out, &text)?;
    eprintln!("{}", summary(&history));
    let checked = check(&history, config.level());
    match &checked {
        Ok(()) => eprintln!("allowed: {}", config.level()),
        Err(violation) => eprintln!("not allowed: {}: {violation}", config.level()),
    }
    Ok(checked.is_ok())
}

fn write(out: &Path, text: &str) -> Result<(), Error> {
    let (written, name) = if out == Path::new("-") {
        (io::stdout().write_all(text.as_bytes()), Path::new("standard output"))
    } else {
        (fs::write(out, text), out)
    };
    written.map_err(|e| Error::io("write", name, e))
}

fn summary(history: &History) -> String {
    let count = |outcome| history.count(outcome);
    format!(
        "{} transactions: {} committed, {} rolled back, {} indeterminate",
        history.txns.len(),
        count(Outcome::Ok),
        count(Outcome::Fail),
        count(Outcome::Info)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Lab {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(words: &str) -> Result<Arguments, clap::Error> {
        Lab::try_parse_from(["history"].into_iter().chain(words.split_whitespace())).map(|lab| lab.arguments)
    }

    #[test]
    fn options_are_taken_as_users_type_them() {
        let words = "--isolation serializable --kind register --sessions 3 --txns 50 --keys 4 --seed 7 --format json --out x.json";
        let arguments = parse(words).unwrap();
        assert!(matches!(arguments.format, Format::Json));
        let config = arguments.config();
        assert_eq!((config.kind, config.isolation), (Kind::Register, Base::Serializable));
        assert_eq!((config.sessions, config.txns, config.keys, config.seed), (3, 50, 4, 7));
        assert!(parse("--isolation chaos --out x").is_err());
        assert!(parse("--sessions 0 --out x").is_err());
    }

    #[test]
    fn a_history_goes_to_the_file_in_its_format() {
        let dir = std::env::temp_dir().join(format!("foreshore-history-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for (kind, format, begin) in [
            ("append", "edn", "{:index 0 :type :invoke :process 0 :f :txn :value [[:r 0 nil] [:r 1 nil]]}\n"),
            ("register", "json", "[\n[{\"events\":[{\"Read\":{\"variable\":0,\"version\":null}},"),
        ] {
            let out = dir.join(format);
            let words =
                format!("--kind {kind} --format {format} --sessions 2 --txns 20 --keys 2 --out {}", out.display());
            assert!(run(&parse(&words).unwrap()).unwrap());
            let text = fs::read_to_string(out).unwrap();
            assert!(text.starts_with(begin), "{text}");
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
