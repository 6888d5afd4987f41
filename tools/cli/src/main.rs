//! The program `foreshore`. `exit` lists the exit statuses.

#![forbid(unsafe_code)]

mod bar;
mod bench;
mod exit;
mod generate;
mod history;
mod inspect;
mod interrupt;
mod lab;
mod output;
mod shell;
mod top;
mod types;

use clap::{CommandFactory, Parser, Subcommand};
use exit::{Failure, STATUSES};
use foreshore::Error;
use inspect::{
    backup, check, clear, compact, del, dump, get, info, load, log, page, put, rename, repair, restore, salvage, scan,
    stats, tables,
};
use std::{ffi::OsString, process::ExitCode};

/// Foreshore, an embedded, multi-writer, ACID storage manager.
///
/// `info`, `log` and `page` only read files, also of a database that is in use. The verbs from `stats` to `load`,
/// `backup`, `compact` and `shell` open the database, which no other process may use meanwhile. If it was not closed,
/// that recovers it: files are written, and no committed row changes. `salvage` only reads the database. `repair`
/// writes damaged pages only.
#[derive(Parser)]
#[command(name = "foreshore", version, after_help = STATUSES)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

/// The verbs. Those that look into a database are described in their own files.
#[derive(Subcommand)]
enum Verb {
    Info(info::InfoArguments),
    Stats(stats::StatsArguments),
    Check(check::CheckArguments),
    Tables(tables::TablesArguments),
    Get(get::GetArguments),
    Put(put::PutArguments),
    Del(del::DelArguments),
    Scan(scan::ScanArguments),
    Rename(rename::RenameArguments),
    Clear(clear::ClearArguments),
    Dump(dump::DumpArguments),
    Load(load::LoadArguments),
    Log(log::LogArguments),
    Page(page::PageArguments),
    Backup(backup::BackupArguments),
    Restore(restore::RestoreArguments),
    Verify(restore::VerifyArguments),
    Compact(compact::CompactArguments),
    Repair(repair::RepairArguments),
    Salvage(salvage::SalvageArguments),
    Shell(shell::ShellArguments),
    Top(top::TopArguments),
    /// Run a workload, measure it, and check that nothing was lost
    Bench(Box<bench::Arguments>),
    /// Measure designs from the literature beside those of the engine
    Lab(Box<lab::Arguments>),
    Completions(generate::CompletionsArguments),
    Man(generate::ManArguments),
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

impl Verb {
    fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Info(arguments) => info::run(arguments),
            Self::Stats(arguments) => stats::run(arguments),
            Self::Check(arguments) => check::run(arguments),
            Self::Tables(arguments) => tables::run(arguments),
            Self::Get(arguments) => get::run(arguments),
            Self::Put(arguments) => put::run(arguments),
            Self::Del(arguments) => del::run(arguments),
            Self::Scan(arguments) => scan::run(arguments),
            Self::Rename(arguments) => rename::run(arguments),
            Self::Clear(arguments) => clear::run(arguments),
            Self::Dump(arguments) => dump::run(arguments),
            Self::Load(arguments) => load::run(arguments),
            Self::Log(arguments) => log::run(arguments),
            Self::Page(arguments) => page::run(arguments),
            Self::Backup(arguments) => backup::run(arguments),
            Self::Restore(arguments) => restore::run(arguments),
            Self::Verify(arguments) => restore::verify(arguments),
            Self::Compact(arguments) => compact::run(arguments),
            Self::Repair(arguments) => repair::run(arguments),
            Self::Salvage(arguments) => salvage::run(arguments),
            Self::Shell(arguments) => shell::run(arguments),
            Self::Top(arguments) => top::run(arguments),
            Self::Bench(arguments) => checked(bench::run(arguments)?),
            Self::Lab(arguments) => checked(lab::run(arguments)?),
            Self::Completions(arguments) => generate::completions(arguments, Arguments::command()),
            Self::Man(arguments) => generate::man(arguments, Arguments::command()),
            Self::Other(words) => Err(unknown_verb(words).into()),
        }
    }
}

fn main() -> ExitCode {
    match Arguments::parse().verb.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let message = failure.to_string();
            if !message.is_empty() {
                eprintln!("error: {message}");
            }
            failure.code()
        }
    }
}

/// Says whether every check of a benchmark or an experiment is true.
fn checked(is_true: bool) -> Result<(), Failure> {
    if is_true {
        return Ok(());
    }
    eprintln!("error: a check is false");
    Err(Failure::No)
}

fn unknown_verb(words: &[OsString]) -> Error {
    let verb = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let expected = "info, stats, check, tables, get, put, del, scan, rename, clear, dump, load, log, page, backup, \
                    restore, verify, compact, repair, salvage, shell, top, bench, lab, completions or man";
    Error::InvalidOption { name: "verb", value: verb, expected: expected.to_owned() }
}
