//! The files of a fixture, packed into one file of the tree. Runs of zeros are left out.
//!
//! ```text
//!  of each file: name length u16, name | length u64 | runs up to that length: zeros u32, bytes u32, the bytes
//! ```

use foreshore_base::codec::{Decoder, Put};
use foreshore_base::crc32c;
use foreshore_io::{Fs, Kind, Mem};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Zeros in a row that are worth a run of their own.
const ZEROS: [u8; 12] = [0; 12];
const BLOCK: usize = 4096;

/// Files by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files(pub(crate) BTreeMap<String, Vec<u8>>);

impl Files {
    /// Copies the files in these directories.
    pub(crate) fn of(fs: &Arc<dyn Fs>, dirs: &[&str]) -> Self {
        let mut files = Self::default();
        for dir in dirs {
            for path in fs.list(Path::new(dir)).unwrap().into_iter().map(|name| Path::new(dir).join(name)) {
                if fs.kind(&path).unwrap() == Some(Kind::File) {
                    let file = fs.open(&path).unwrap();
                    let mut bytes = vec![0; file.len().unwrap() as usize];
                    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
                    files.0.insert(path.to_str().unwrap().to_owned(), bytes);
                }
            }
        }
        files
    }

    /// A new file system in memory that holds these files.
    pub(crate) fn restore(&self) -> Arc<dyn Fs> {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        for (path, bytes) in &self.0 {
            let path = Path::new(path);
            fs.create_dir(path.parent().unwrap()).unwrap();
            fs.create(path).unwrap().write_at(bytes, 0).unwrap();
        }
        fs
    }

    /// The same files as `fs` holds now, by directory, for a comparison.
    pub(crate) fn again(&self, fs: &Arc<dyn Fs>) -> Self {
        let mut dirs: Vec<_> = self.0.keys().map(|path| Path::new(path).parent().unwrap().to_str().unwrap()).collect();
        dirs.dedup();
        dirs.sort_unstable();
        dirs.dedup();
        Self::of(fs, &dirs)
    }

    /// The paths that end so.
    pub(crate) fn ending(&self, end: &str) -> Vec<String> {
        self.0.keys().filter(|path| path.ends_with(end)).cloned().collect()
    }

    /// Changes a block of a file, and makes its checksum at `crc` fit. That covers what lies before it, or all behind
    /// byte 12 if it is at 8.
    pub(crate) fn forge(&mut self, path: &str, at: usize, crc: usize, change: impl FnOnce(&mut [u8])) {
        let block = &mut self.0.get_mut(path).unwrap()[at..at + BLOCK];
        change(block);
        let sum = if crc == 8 { crc32c(&block[12..]) } else { crc32c(&block[..crc]) };
        block[crc..crc + 4].copy_from_slice(&sum.to_le_bytes());
    }

    fn pack(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (path, bytes) in &self.0 {
            out.put_short_bytes(path.as_bytes());
            out.put_u64(bytes.len() as u64);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let zeros = rest.iter().take_while(|&&byte| byte == 0).count();
                let behind = &rest[zeros..];
                let len = behind.windows(ZEROS.len()).position(|next| next == ZEROS).unwrap_or(behind.len());
                out.put_u32(zeros as u32);
                out.put_u32(len as u32);
                out.put(&behind[..len]);
                rest = &behind[len..];
            }
        }
        out
    }

    fn unpack(packed: &[u8]) -> Self {
        let (mut from, mut files) = (Decoder::new(packed), Self::default());
        while !from.is_empty() {
            let path = String::from_utf8(from.short_bytes().unwrap().to_vec()).unwrap();
            let len = from.u64().unwrap() as usize;
            let mut bytes = Vec::with_capacity(len);
            while bytes.len() < len {
                let (zeros, count) = (from.u32().unwrap() as usize, from.u32().unwrap() as usize);
                bytes.resize(bytes.len() + zeros, 0);
                bytes.extend_from_slice(from.bytes(count).unwrap());
            }
            assert_eq!(bytes.len(), len, "{path}");
            files.0.insert(path, bytes);
        }
        files
    }

    /// Reads a fixture of format 1. With `FORESHORE_WRITE_FIXTURES=1`, `made` is written in its place first.
    pub(crate) fn fixture(name: &str, made: &Self) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/format-1").join(name);
        let packed = made.pack();
        assert!(Self::unpack(&packed) == *made, "{name} is packed wrongly");
        if std::env::var_os("FORESHORE_WRITE_FIXTURES").is_some() {
            std::fs::write(&path, packed).unwrap();
        }
        Self::unpack(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }
}
