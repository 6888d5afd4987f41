//! What is missing, in a file without a name, since it grows with the damage.
//!
//! Each line is a gap, or the key of the row that was found behind the gaps before it. So the end of a gap is found by
//! a second reader that runs ahead.

use crate::exit::Failure;
use foreshore::Error;
use serde_json::{Map, Value as Json};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub(super) struct Spool {
    path: PathBuf,
    file: BufWriter<File>,
    len: u64,
}

impl Spool {
    /// Makes an empty file at `path`, whose name is removed at once.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.and_then(|file| fs::remove_file(path).map(|()| BufWriter::new(file)));
        let file = file.map_err(|error| Error::io("create", path, error))?;
        Ok(Self { path: path.to_owned(), file, len: 0 })
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Adds a gap. Its end, if it has one, is added later.
    pub(super) fn gap(&mut self, gap: &Json) -> Result<(), Failure> {
        self.add(gap)
    }

    /// Ends the gaps before the row `key`; `None` for the end of the table.
    pub(super) fn end_gaps(&mut self, key: Option<Json>) -> Result<(), Failure> {
        self.add(&Json::Array(key.into_iter().collect()))
    }

    fn add(&mut self, item: &Json) -> Result<(), Failure> {
        let line = format!("{item}\n");
        self.file.write_all(line.as_bytes()).map_err(|error| Error::io("write", &self.path, error))?;
        self.len += line.len() as u64;
        Ok(())
    }

    /// Shows the gaps in the bytes `range`, with their ends in the field `before`.
    pub(super) fn each(
        &mut self,
        range: Range<u64>,
        mut show: impl FnMut(Json) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let read = |error| Failure::from(Error::io("read", &self.path, error));
        self.file.flush().map_err(read)?;
        let (mut items, mut ends) = (self.items(range.clone()), self.items(range));
        let mut end = None;
        for item in &mut items {
            match item.map_err(read)? {
                Json::Object(mut gap) => {
                    if end.is_none() && is_range(&gap) {
                        let next = ends.find_map(|item| match item {
                            Ok(Json::Object(_)) => None,
                            end => Some(end),
                        });
                        end = next.transpose().map_err(read)?;
                    }
                    let before = end.as_ref().filter(|_| is_range(&gap)).and_then(|end| end.get(0)).cloned();
                    gap.insert("before".to_owned(), before.unwrap_or_default());
                    show(gap.into())?;
                }
                _ => end = None,
            }
        }
        Ok(())
    }

    fn items(&self, Range { start, end }: Range<u64>) -> impl Iterator<Item = io::Result<Json>> {
        let lines = BufReader::new(Reader { file: self.file.get_ref(), at: start }.take(end - start)).lines();
        lines.map(|line| Ok(serde_json::from_str(&line?)?))
    }
}

/// Whether rows are missing in a range of keys.
fn is_range(gap: &Map<String, Json>) -> bool {
    gap["key"].is_null()
}

/// Reads a file from an offset of its own.
struct Reader<'f> {
    file: &'f File,
    at: u64,
}

impl Read for Reader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(buf, self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}
