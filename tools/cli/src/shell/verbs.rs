//! The verbs of a line. Their words are those of the program's verbs of the same names.

use crate::inspect::bounds::Bounds;
use crate::inspect::database::Table;
use crate::inspect::scan::{Lines, Scan};
use crate::inspect::{clear::Clear, del::Del, get::Get, put::Put, rename::Rename, tables::Tables};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

/// A verb and its words, quoted as in a POSIX shell: `get pairs '[7, "x"]'`. `help VERB` has its options.
#[derive(Parser)]
#[command(
    multicall = true,
    disable_help_flag = true,
    override_usage = "VERB [WORD]...",
    subcommand_value_name = "VERB",
    subcommand_help_heading = "Verbs"
)]
pub(super) struct ShellLine {
    #[command(subcommand)]
    pub(super) verb: Verb,
}

#[derive(Subcommand)]
pub(super) enum Verb {
    /// List the tables with their types
    Tables(Tables),
    /// Print the value of a key
    Get(Get),
    /// Set the value of a key
    Put(Put),
    /// Remove the row of a key
    Del(Del),
    /// Print the rows of a table in key order
    Scan(Scan),
    /// Print the rows from a key to the one before another
    Range(Between),
    /// Print the rows whose keys begin with these characters or bytes
    Prefix(Beginning),
    /// Print the number of rows
    Count(Counted),
    /// Give a table another name
    Rename(Rename),
    /// Remove all rows of a table, whatever their number
    Clear(Clear),
    /// Begin a transaction, which the next lines belong to
    Begin,
    /// Commit the transaction, durably
    Commit,
    /// Roll the transaction back
    Rollback,
    /// Print how long each line takes, or no longer
    Timing {
        /// Whether to print it
        switch: Switch,
    },
    /// End the shell. An open transaction is rolled back
    #[command(alias = "exit")]
    Quit,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Switch {
    On,
    Off,
}

/// The rows of a range.
#[derive(Args)]
pub(super) struct Between {
    #[command(flatten)]
    pub(super) table: Table,
    /// The first key, itself included
    #[arg(allow_negative_numbers = true)]
    pub(super) from: String,
    /// The key before which the rows end [default: the end of the table]
    #[arg(allow_negative_numbers = true)]
    pub(super) to: Option<String>,
    #[command(flatten)]
    pub(super) lines: Lines,
}

/// The rows of a prefix.
#[derive(Args)]
pub(super) struct Beginning {
    #[command(flatten)]
    pub(super) table: Table,
    /// The characters or bytes; of tuples, a JSON array of the first parts
    pub(super) prefix: String,
    #[command(flatten)]
    pub(super) lines: Lines,
}

/// The rows that are counted.
#[derive(Args)]
pub(super) struct Counted {
    #[command(flatten)]
    pub(super) table: Table,
    #[command(flatten)]
    pub(super) bounds: Bounds,
}

/// Lists the verbs by name, with whether a table follows.
pub(super) fn names() -> Vec<(String, bool)> {
    let has_table = |verb: &clap::Command| verb.get_arguments().any(|argument| argument.get_id() == "table");
    let mut names: Vec<_> =
        ShellLine::command().get_subcommands().map(|verb| (verb.get_name().to_owned(), has_table(verb))).collect();
    names.push(("help".to_owned(), false));
    names
}
