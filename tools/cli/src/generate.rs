//! `foreshore completions` and `foreshore man`: what shells and `man` read, made from the arguments of the program.

use crate::exit::Failure;
use crate::output::Output;
use clap::{Args, Command};
use clap_complete::Shell;
use std::fs;
use std::path::PathBuf;

/// Print a script by which a shell completes verbs and options
///
/// For bash: `foreshore completions bash > /etc/bash_completion.d/foreshore`.
#[derive(Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

/// Write manual pages, one for the program and one for each verb
///
/// `man DIR/foreshore.1` shows the first of them.
#[derive(Args)]
pub(crate) struct ManArguments {
    /// Directory to write them to. It is created if it is absent
    dir: PathBuf,
}

/// Prints the completions of `program`.
pub(crate) fn completions(arguments: &CompletionsArguments, mut program: Command) -> Result<(), Failure> {
    let (name, mut script) = (program.get_name().to_owned(), Vec::new());
    clap_complete::generate(arguments.shell, &mut program, name, &mut script);
    let mut out = Output::new();
    String::from_utf8_lossy(&script).lines().try_for_each(|line| out.line(line))?;
    out.end()
}

/// Writes the manual pages of `program`.
pub(crate) fn man(arguments: &ManArguments, program: Command) -> Result<(), Failure> {
    let dir = &arguments.dir;
    let failed = |op| move |error| Failure::Failed(foreshore_base::Error::io(op, dir, error).into());
    fs::create_dir_all(dir).map_err(failed("create"))?;
    clap_mangen::generate_to(program, dir).map_err(failed("write"))
}
