//! Arguments that name a database and a table, and their opening.

use crate::exit::Failure;
use crate::types::{Columns, Form, RowTypes};
use clap::Args;
use foreshore::{Db, ListedTable, Options};
use foreshore_bench::units;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The database of a verb.
#[derive(Args)]
pub(crate) struct Database {
    /// Directory of the database
    ///
    /// No other process may have the database open. If it was not closed, this recovers it: files are written, and no
    /// committed row changes.
    dir: PathBuf,
    /// The engine's memory limit
    #[arg(long, default_value = "256MiB", value_parser = |text: &str| units::size("memory", text))]
    memory: u64,
    /// How long a restart after a crash may take: the log that it reads follows from that
    #[arg(long, value_name = "TIME", value_parser = |text: &str| units::time("restart-target", text))]
    restart_target: Option<Duration>,
    /// Directory to which the log is archived
    ///
    /// Name the directory that the application names, if it has an archive. Without it, log that this verb reuses is
    /// missing there, and a restore cannot pass the gap.
    #[arg(long)]
    archive: Option<PathBuf>,
}

impl Database {
    /// Opens the database, which exists. After a crash that recovers it.
    pub(crate) fn open(&self) -> Result<Db, Failure> {
        self.options()?.open_existing(&self.dir).map_err(Failure::unopened)
    }

    /// Opens the database, and creates it if there is none.
    pub(crate) fn open_or_create(&self) -> Result<Db, Failure> {
        self.options()?.open(&self.dir).map_err(Failure::unopened)
    }

    /// Opens the database, which is closed, without a write to its files.
    pub(crate) fn open_read_only(&self) -> Result<Db, Failure> {
        self.options()?.open_read_only(&self.dir).map_err(Failure::unopened)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn options(&self) -> Result<Options, Failure> {
        let mut options = Options::new().memory_limit(self.memory);
        if let Some(time) = self.restart_target {
            options = options.restart_target(time);
        }
        if let Some(dir) = &self.archive {
            // Not created, as another name would be that of a second archive.
            if !dir.is_dir() {
                return Err(Failure::Refused(format!("there is no archive: {} is no directory", dir.display())));
            }
            options = options.archive(dir);
        }
        Ok(options)
    }
}

/// How bytes are written: those of `bytes` and `[u8;N]`, and rows of types that this program does not know.
#[derive(Args)]
pub(crate) struct Bytes {
    /// Bytes are hex digits, as input and as output (the default)
    #[arg(long)]
    hex: bool,
    /// Bytes are UTF-8, as input and as output. A backslash is \\, a byte that belongs to no character is \xNN
    #[arg(long, conflicts_with = "hex")]
    utf8: bool,
}

impl Bytes {
    fn form(&self) -> Form {
        if self.utf8 { Form::Utf8 } else { Form::Hex }
    }

    /// Refuses the choice of a form for a dump that is no CSV.
    pub(crate) fn check_for_csv(&self, is_csv: bool) -> Result<(), Failure> {
        if is_csv || !(self.hex || self.utf8) {
            return Ok(());
        }
        Err(Failure::Refused("--hex and --utf8 are for --csv: other dumps have hex digits".to_owned()))
    }

    /// Returns the columns of a table as CSV.
    pub(crate) fn columns(&self, key_type: &str, value_type: &str) -> Result<Columns, Failure> {
        let refused = || Failure::Refused(format!("there is no CSV for rows of {key_type} to {value_type}"));
        Columns::of(key_type, value_type, self.form()).ok_or_else(refused)
    }
}

/// A table of the database, and how its rows are written.
#[derive(Args)]
pub(crate) struct Table {
    /// Name of the table
    table: String,
    #[command(flatten)]
    bytes: Bytes,
}

impl Table {
    pub(crate) fn name(&self) -> &str {
        &self.table
    }

    /// Finds the types of the table among those that are listed.
    pub(crate) fn types(&self, tables: &[ListedTable]) -> Result<RowTypes, Failure> {
        let found = named(tables, &self.table)?;
        Ok(RowTypes::new(&found.key_type, &found.value_type, self.bytes.form()))
    }
}

/// Finds a table by name.
pub(crate) fn named<'t>(tables: &'t [ListedTable], name: &str) -> Result<&'t ListedTable, Failure> {
    let found = tables.iter().find(|table| table.name == name);
    found.ok_or_else(|| Failure::Refused(format!("there is no table {name:?}")))
}

/// Returns the tables of these names, or all if none is named.
pub(crate) fn chosen(tables: Vec<ListedTable>, names: &[String]) -> Result<Vec<ListedTable>, Failure> {
    if names.is_empty() {
        return Ok(tables);
    }
    names.iter().try_for_each(|name| named(&tables, name).map(drop))?;
    Ok(tables.into_iter().filter(|table| names.contains(&table.name)).collect())
}
