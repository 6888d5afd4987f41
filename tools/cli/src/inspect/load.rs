//! `foreshore load`: reads what `dump` has written.

use super::batch::Batch;
use super::csv;
use super::database::{Bytes, Database, named};
use super::dump_format::{Line, VERSION};
use crate::exit::Failure;
use crate::types::{Cell, Form, RowTypes};
use clap::Args;
use foreshore::Db;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Load tables from the text of a dump
///
/// The database may exist or not. A table that is missing is created, and one with other types is refused. A row
/// replaces that of the same key; other rows stay.
///
/// Rows are committed durably in transactions of at most 1000 rows and about 1 MiB. If the load fails, the transactions
/// before stay, and the load can be repeated. A dump that was cut off is loaded as far as it goes, and refused at its
/// end.
#[derive(Args)]
pub(crate) struct LoadArguments {
    #[command(flatten)]
    database: Database,
    /// File with the dump [default: standard input]
    file: Option<PathBuf>,
    /// Only this table; may be given several times [default: all]
    #[arg(long = "table", value_name = "TABLE")]
    tables: Vec<String>,
    /// The text is CSV with a header, as `dump --csv` prints it, for the one table that --table names
    #[arg(long, requires = "tables")]
    csv: bool,
    /// With --csv: type of the keys, to create the table [default: that of the table]
    #[arg(long, value_name = "TYPE", requires_all = ["csv", "value_type"])]
    key_type: Option<String>,
    /// With --csv: type of the values, to create the table
    #[arg(long, value_name = "TYPE", requires_all = ["csv", "key_type"])]
    value_type: Option<String>,
    #[command(flatten)]
    bytes: Bytes,
}

pub(crate) fn run(arguments: &LoadArguments) -> Result<(), Failure> {
    arguments.bytes.check_for_csv(arguments.csv)?;
    let mut lines = Lines::open(arguments.file.as_deref())?;
    let (tables, rows) = if arguments.csv { load_csv(arguments, &mut lines)? } else { load(arguments, &mut lines)? };
    eprintln!("loaded tables: {tables}, rows: {rows}");
    Ok(())
}

/// The lines of the text.
struct Lines {
    from: Box<dyn BufRead>,
    /// Path of the file.
    name: String,
    text: String,
    number: u64,
}

impl Lines {
    fn open(file: Option<&Path>) -> Result<Self, Failure> {
        let from: Box<dyn BufRead> = match file {
            None => Box::new(io::stdin().lock()),
            Some(path) => match File::open(path) {
                Ok(file) => Box::new(BufReader::new(file)),
                Err(error) => return Err(Failure::Refused(format!("cannot open {}: {error}", path.display()))),
            },
        };
        let name = file.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
        Ok(Self { from, name, text: String::new(), number: 0 })
    }

    /// Returns the next line of a dump.
    fn line(&mut self) -> Result<Option<Line>, Failure> {
        self.text.clear();
        self.number += 1;
        match self.from.read_line(&mut self.text) {
            Ok(0) => Ok(None),
            Ok(_) => Line::parse(&self.text).map(Some).map_err(|why| self.refused(&why)),
            Err(error) => Err(self.refused(&error.to_string())),
        }
    }

    /// Reads the first line of a dump.
    fn begin(&mut self) -> Result<(), Failure> {
        match self.line()? {
            Some(Line::Version(..=VERSION)) => Ok(()),
            Some(Line::Version(found)) => {
                let name = &self.name;
                let why =
                    format!("{name} has dump version {found}, this build reads up to {VERSION}: use a newer build");
                Err(Failure::Refused(why))
            }
            _ => Err(self.refused("the text does not begin as a dump")),
        }
    }

    /// Returns the next record of CSV.
    fn record(&mut self) -> Result<Option<Vec<Cell>>, Failure> {
        match csv::read(&mut *self.from, &mut self.text, &mut self.number) {
            Ok(false) => Ok(None),
            Ok(true) => csv::parse(&self.text).map(Some).map_err(|why| self.refused(&why)),
            Err(error) => Err(self.refused(&error.to_string())),
        }
    }

    fn refused(&self, why: &str) -> Failure {
        Failure::Refused(format!("line {}: {why}", self.number))
    }

    /// Adds the line to a failure that it causes.
    fn place(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Refused(why) => self.refused(&why),
            other => other,
        }
    }
}

/// Loads a dump. Returns the counts of tables and rows.
fn load(arguments: &LoadArguments, lines: &mut Lines) -> Result<(usize, u64), Failure> {
    lines.begin()?;
    // No database was created for a text that is no dump.
    let db = arguments.database.open_or_create()?;
    let mut load = Load { db: &db, wanted: &arguments.tables, table: None, tables: Vec::new(), rows: 0, loaded: 0 };
    while let Some(line) = lines.line()? {
        let is_end = matches!(line, Line::End { .. });
        load.line(line).map_err(|failure| lines.place(failure))?;
        if is_end {
            return load.counts();
        }
    }
    load.end_table()?;
    Err(lines.refused("the dump was cut off: its last line is missing"))
}

struct Load<'l> {
    db: &'l Db,
    wanted: &'l [String],
    /// The table whose rows are being read, if it is wanted.
    table: Option<(Batch<'l>, RowTypes)>,
    /// Names of the tables of the dump, as far as it has been read.
    tables: Vec<String>,
    /// Rows of the dump, as far as it has been read.
    rows: u64,
    /// Rows of tables that are loaded.
    loaded: u64,
}

impl Load<'_> {
    fn is_wanted(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|wanted| wanted == name)
    }

    fn line(&mut self, line: Line) -> Result<(), Failure> {
        match line {
            Line::Version(_) => Err(Failure::Refused("another dump begins before the end of this one".to_owned())),
            Line::Table { name, key_type, value_type } => {
                self.end_table()?;
                self.tables.push(name.clone());
                if self.is_wanted(&name) {
                    let types = RowTypes::new(&key_type, &value_type, Form::Hex);
                    self.table = Some((Batch::begin(self.db, name, key_type, value_type)?, types));
                }
                Ok(())
            }
            Line::Row { key, value } => self.row(key, value),
            Line::End { tables, rows } => {
                self.end_table()?;
                if (tables, rows) == (self.tables.len() as u64, self.rows) {
                    return Ok(());
                }
                Err(Failure::Refused("rows or tables are missing: the dump has others than it says".to_owned()))
            }
        }
    }

    fn row(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), Failure> {
        let Some(last) = self.tables.last() else {
            return Err(Failure::Refused("a row comes before the first table".to_owned()));
        };
        self.rows += 1;
        let Some((batch, types)) = &mut self.table else { return Ok(()) };
        if !types.fits(&key, &value) {
            return Err(Failure::Refused(format!("the row is no encoding of the types of table {last:?}")));
        }
        batch.add(key, value)
    }

    fn end_table(&mut self) -> Result<(), Failure> {
        if let Some((batch, _)) = self.table.take() {
            self.loaded += batch.end()?;
        }
        Ok(())
    }

    fn counts(&self) -> Result<(usize, u64), Failure> {
        if let Some(absent) = self.wanted.iter().find(|name| !self.tables.contains(name)) {
            return Err(Failure::Refused(format!("the dump has no table {absent:?}")));
        }
        Ok((self.tables.iter().filter(|name| self.is_wanted(name)).count(), self.loaded))
    }
}

/// Loads CSV into one table. Returns the counts of tables and rows.
fn load_csv(arguments: &LoadArguments, lines: &mut Lines) -> Result<(usize, u64), Failure> {
    let [name] = &arguments.tables[..] else {
        return Err(Failure::Refused("CSV is of one table: give --table once".to_owned()));
    };
    let header = lines.record()?;
    let columns = |lines: &Lines, key_type: &str, value_type: &str| {
        let columns = arguments.bytes.columns(key_type, value_type)?;
        let names = columns.names();
        match &header {
            Some(cells) if cells.iter().map(Option::as_ref).eq(names.iter().map(Some)) => Ok(columns),
            _ => Err(lines.refused(&format!("expected the header {}", names.join(",")))),
        }
    };
    let (db, columns, key_type, value_type) = match (&arguments.key_type, &arguments.value_type) {
        (Some(key), Some(value)) => {
            // No database is created for a text that is refused.
            let columns = columns(lines, key, value)?;
            (arguments.database.open_or_create()?, columns, key.clone(), value.clone())
        }
        _ => {
            let db = arguments.database.open()?;
            let tables = db.read().tables()?;
            let table = named(&tables, name)?;
            let columns = columns(lines, &table.key_type, &table.value_type)?;
            (db, columns, table.key_type.clone(), table.value_type.clone())
        }
    };
    let mut batch = Batch::begin(&db, name.clone(), key_type, value_type)?;
    while let Some(cells) = lines.record()? {
        let (key, value) = columns.read(cells).map_err(|why| lines.refused(&why))?;
        batch.add(key, value).map_err(|failure| lines.place(failure))?;
    }
    Ok((1, batch.end()?))
}
