//! The options and the path of a database.

use super::{
    calls::{NAME, call},
    ffi,
};
use crate::{
    engine::Setup,
    error::{Error, Result},
    workload::Workload,
};
use std::{ffi::CString, os::unix::ffi::OsStrExt};

/// Values from which on they lie in blob files: RocksDB's "BlobDB" documentation.
const BLOB_BYTES: u32 = 4096;

/// Returns the options of the database in RocksDB's own notation.
fn options(setup: &Setup<'_>) -> String {
    let (memtables, cores) = (setup.cache / 4, crate::proc::cores());
    let queues = match setup.variant {
        "pipelined" => "enable_pipelined_write=true",
        "two-queues" => "two_write_queues=true",
        _ => "enable_pipelined_write=false",
    };
    let blobs = match setup.purpose.workload {
        Workload::Values => {
            format!(";enable_blob_files=true;min_blob_size={BLOB_BYTES};enable_blob_garbage_collection=true")
        }
        _ => String::new(),
    };
    format!(
        "create_if_missing=true;{queues};compression=kNoCompression;bottommost_compression=kNoCompression;\
         write_buffer_size={};max_write_buffer_number=4;max_background_jobs={};max_open_files=-1;\
         block_based_table_factory={{block_cache={};filter_policy=bloomfilter:10:false;\
         data_block_index_type=kDataBlockBinaryAndHash;data_block_hash_table_util_ratio=0.75}}",
        memtables / 4,
        cores.max(2),
        setup.cache - memtables,
    ) + &blobs
}

/// Returns the path of a database.
pub(super) fn path_of(setup: &Setup<'_>) -> Result<CString> {
    CString::new(setup.dir.as_os_str().as_bytes()).map_err(Error::failed(NAME, "open"))
}

/// Options of a database, destroyed when they are dropped.
pub(super) struct ParsedOptions(*mut ffi::Options);

impl ParsedOptions {
    pub(super) fn new(setup: &Setup<'_>) -> Result<Self> {
        let text = CString::new(options(setup)).map_err(Error::failed(NAME, "parse options"))?;
        // SAFETY: both options are new, and the text ends with a zero.
        unsafe {
            let (base, parsed) = (ffi::rocksdb_options_create(), Self(ffi::rocksdb_options_create()));
            let made = call("parse options", |error| {
                ffi::rocksdb_get_options_from_string(base, text.as_ptr(), parsed.0, error);
            });
            ffi::rocksdb_options_destroy(base);
            made.map(|()| parsed)
        }
    }

    /// Returns the pointer that calls take.
    pub(super) const fn get(&self) -> *mut ffi::Options {
        self.0
    }
}

impl Drop for ParsedOptions {
    fn drop(&mut self) {
        // SAFETY: a database is closed before its options are dropped.
        unsafe { ffi::rocksdb_options_destroy(self.0) };
    }
}
