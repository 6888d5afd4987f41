//! The calls of RocksDB's C header that the workloads need (`rocksdb/c.h`, 7.8).

use std::ffi::{c_char, c_int, c_uchar};

/// Declares opaque types.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub(super) struct $name {
                private: [u8; 0],
            }
        )*
    };
}

opaque! { Db Options TransactionDb TransactionDbOptions TransactionOptions Transaction WriteOptions ReadOptions
FlushOptions Iterator Pinned Snapshot EnvOptions SstFileWriter IngestOptions WriteBatch }

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub(super) fn rocksdb_free(allocated: *mut std::ffi::c_void);

    pub(super) fn rocksdb_options_create() -> *mut Options;
    pub(super) fn rocksdb_options_destroy(options: *mut Options);
    pub(super) fn rocksdb_get_options_from_string(
        base: *const Options,
        text: *const c_char,
        parsed: *mut Options,
        error: *mut *mut c_char,
    );

    pub(super) fn rocksdb_open(options: *const Options, name: *const c_char, error: *mut *mut c_char) -> *mut Db;
    pub(super) fn rocksdb_close(db: *mut Db);
    pub(super) fn rocksdb_compact_range(
        db: *mut Db,
        start: *const c_char,
        start_len: usize,
        limit: *const c_char,
        limit_len: usize,
    );

    pub(super) fn rocksdb_flush_wal(db: *mut Db, sync: c_uchar, error: *mut *mut c_char);
    pub(super) fn rocksdb_create_iterator(db: *mut Db, options: *const ReadOptions) -> *mut Iterator;
    pub(super) fn rocksdb_write(
        db: *mut Db,
        options: *const WriteOptions,
        batch: *mut WriteBatch,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_writebatch_create() -> *mut WriteBatch;
    pub(super) fn rocksdb_writebatch_destroy(batch: *mut WriteBatch);
    pub(super) fn rocksdb_writebatch_delete_range(
        batch: *mut WriteBatch,
        start: *const c_char,
        start_len: usize,
        end: *const c_char,
        end_len: usize,
    );

    pub(super) fn rocksdb_envoptions_create() -> *mut EnvOptions;
    pub(super) fn rocksdb_envoptions_destroy(options: *mut EnvOptions);
    pub(super) fn rocksdb_sstfilewriter_create(env: *const EnvOptions, options: *const Options) -> *mut SstFileWriter;
    pub(super) fn rocksdb_sstfilewriter_destroy(writer: *mut SstFileWriter);
    pub(super) fn rocksdb_sstfilewriter_open(writer: *mut SstFileWriter, name: *const c_char, error: *mut *mut c_char);
    pub(super) fn rocksdb_sstfilewriter_put(
        writer: *mut SstFileWriter,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_sstfilewriter_finish(writer: *mut SstFileWriter, error: *mut *mut c_char);
    pub(super) fn rocksdb_ingestexternalfileoptions_create() -> *mut IngestOptions;
    pub(super) fn rocksdb_ingestexternalfileoptions_destroy(options: *mut IngestOptions);
    pub(super) fn rocksdb_ingestexternalfileoptions_set_move_files(options: *mut IngestOptions, moves: c_uchar);
    pub(super) fn rocksdb_ingest_external_file(
        db: *mut Db,
        files: *const *const c_char,
        count: usize,
        options: *const IngestOptions,
        error: *mut *mut c_char,
    );

    pub(super) fn rocksdb_transactiondb_options_create() -> *mut TransactionDbOptions;
    pub(super) fn rocksdb_transactiondb_options_destroy(options: *mut TransactionDbOptions);
    pub(super) fn rocksdb_transactiondb_open(
        options: *const Options,
        transactions: *const TransactionDbOptions,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut TransactionDb;
    pub(super) fn rocksdb_transactiondb_close(db: *mut TransactionDb);
    pub(super) fn rocksdb_transactiondb_create_snapshot(db: *mut TransactionDb) -> *const Snapshot;
    pub(super) fn rocksdb_transactiondb_release_snapshot(db: *mut TransactionDb, snapshot: *const Snapshot);
    pub(super) fn rocksdb_transactiondb_get_pinned(
        db: *mut TransactionDb,
        options: *const ReadOptions,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    ) -> *mut Pinned;
    pub(super) fn rocksdb_transactiondb_multi_get(
        db: *mut TransactionDb,
        options: *const ReadOptions,
        keys: usize,
        keys_list: *const *const c_char,
        key_lens: *const usize,
        values: *mut *mut c_char,
        value_lens: *mut usize,
        errors: *mut *mut c_char,
    );
    pub(super) fn rocksdb_transactiondb_create_iterator(
        db: *mut TransactionDb,
        options: *const ReadOptions,
    ) -> *mut Iterator;
    pub(super) fn rocksdb_transactiondb_flush(
        db: *mut TransactionDb,
        options: *const FlushOptions,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_transactiondb_flush_wal(db: *mut TransactionDb, sync: c_uchar, error: *mut *mut c_char);

    pub(super) fn rocksdb_transaction_options_create() -> *mut TransactionOptions;
    pub(super) fn rocksdb_transaction_options_destroy(options: *mut TransactionOptions);
    pub(super) fn rocksdb_transaction_options_set_lock_timeout(options: *mut TransactionOptions, millis: i64);
    pub(super) fn rocksdb_transaction_begin(
        db: *mut TransactionDb,
        write: *const WriteOptions,
        options: *const TransactionOptions,
        old: *mut Transaction,
    ) -> *mut Transaction;
    pub(super) fn rocksdb_transaction_commit(txn: *mut Transaction, error: *mut *mut c_char);
    pub(super) fn rocksdb_transaction_rollback(txn: *mut Transaction, error: *mut *mut c_char);
    pub(super) fn rocksdb_transaction_destroy(txn: *mut Transaction);
    pub(super) fn rocksdb_transaction_get_pinned_for_update(
        txn: *mut Transaction,
        options: *const ReadOptions,
        key: *const c_char,
        key_len: usize,
        exclusive: c_uchar,
        error: *mut *mut c_char,
    ) -> *mut Pinned;
    pub(super) fn rocksdb_transaction_get_pinned(
        txn: *mut Transaction,
        options: *const ReadOptions,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    ) -> *mut Pinned;
    pub(super) fn rocksdb_transaction_create_iterator(
        txn: *mut Transaction,
        options: *const ReadOptions,
    ) -> *mut Iterator;
    pub(super) fn rocksdb_transaction_put(
        txn: *mut Transaction,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    pub(super) fn rocksdb_transaction_delete(
        txn: *mut Transaction,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    );

    pub(super) fn rocksdb_pinnableslice_value(pinned: *const Pinned, len: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_pinnableslice_destroy(pinned: *mut Pinned);

    pub(super) fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    pub(super) fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    pub(super) fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, sync: c_uchar);

    pub(super) fn rocksdb_readoptions_create() -> *mut ReadOptions;
    pub(super) fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    pub(super) fn rocksdb_readoptions_set_snapshot(options: *mut ReadOptions, snapshot: *const Snapshot);

    pub(super) fn rocksdb_flushoptions_create() -> *mut FlushOptions;
    pub(super) fn rocksdb_flushoptions_destroy(options: *mut FlushOptions);

    pub(super) fn rocksdb_iter_destroy(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_valid(iterator: *const Iterator) -> c_uchar;
    pub(super) fn rocksdb_iter_seek(iterator: *mut Iterator, key: *const c_char, key_len: usize);
    pub(super) fn rocksdb_iter_next(iterator: *mut Iterator);
    pub(super) fn rocksdb_iter_key(iterator: *const Iterator, len: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_iter_value(iterator: *const Iterator, len: *mut usize) -> *const c_char;
    pub(super) fn rocksdb_iter_get_error(iterator: *const Iterator, error: *mut *mut c_char);
}

/// Whether a C function answers yes.
pub(super) const YES: c_uchar = 1;

// The sizes that the header gives these types.
const _: () = assert!(size_of::<c_int>() == 4 && size_of::<usize>() == 8);
