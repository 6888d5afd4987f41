/* Foreshore: an embedded, multi-writer, ACID storage manager.
 *
 * Made from tools/ffi/src by `cargo run -p foreshore-header -- write`. Do not edit.
 *
 * STATUS. Each function that can fail returns an fs_status, and fs_message() has the words, for the thread that got it.
 *
 * OWNERSHIP. What a function stores through a pointer to a handle belongs to the caller, which frees it with the
 * function named for it: fs_db_free, fs_tx_free, fs_table_free, fs_cursor_free, fs_reader_free, fs_index_free,
 * fs_buffer_free, fs_queue_free. The order is free: a table, cursor or reader of a transaction that has ended returns
 * FS_ENDED. Bytes passed in are copied.
 *
 * THREADS. fs_db and fs_queue: any threads at once. fs_tx with its fs_table, fs_cursor and fs_reader: one thread at a
 * time, which may change; a second one gets FS_IN_USE. Unchecked: fs_buffer is for one thread at a time, and the row that
 * fs_cursor_next has stored stays until the next call with the cursor. No handle may be freed while it is used.
 *
 * FORKS. A child process that was forked after fs_open gets FS_FORKED from every call with the handles of its parent,
 * its queues too. It may open the database itself when the parent has closed it. A child that is forked inside a
 * function that the library calls must not return from it: it is aborted.
 */

#ifndef FORESHORE_H
#define FORESHORE_H

#include <stddef.h>
#include <stdint.h>

// The database lives in memory, and is gone when it is closed.
#define FS_OPEN_IN_MEMORY 1

// The database must exist, was closed, and no byte of it changes.
#define FS_OPEN_READ_ONLY 2

// The database must exist.
#define FS_OPEN_EXISTING 4

// Isolation: serializable, the default.
#define FS_SERIALIZABLE 0

// Isolation: all reads are of one moment.
#define FS_SNAPSHOT 1

// Isolation: each read is of what is committed.
#define FS_READ_COMMITTED 2

// Durability: the commit survives power loss, the default.
#define FS_DURABLE 0

// Durability: the commit is in the log buffer, and survives power loss soon after.
#define FS_RELAXED 1

// No group-commit window: a group is written as soon as the device is free.
#define FS_NO_WINDOW UINT64_MAX

// Restores up to the end of the archive, or of the last backup without an archive.
#define FS_UNTIL_END 0

// Restores up to `until_lsn`.
#define FS_UNTIL_LSN 1

// Restores up to `until_secs` and `until_nanos`.
#define FS_UNTIL_TIME 2

// What the function of `fs_update_with` returns to remove the row. It is no status and no usual number of an error.
#define FS_REMOVE_ROW 1000000

// The row of the lower bound itself does not belong to the range.
#define FS_LOWER_EXCLUDED 1

// The row of the upper bound itself belongs to the range.
#define FS_UPPER_INCLUDED 2

// From the smallest key on.
#define FS_FORWARD 0

// From the largest key on.
#define FS_BACKWARD 1

// What a call has come to. The numbers are stable. Those from 20 to 39 are retryable: the same transaction may
// succeed when it is run again.
enum fs_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Done.
  FS_OK = 0,
  // There is no such row, or the scan is over.
  FS_NOT_FOUND = 1,
  // A null pointer, text that is not UTF-8, an option out of range, or a call that is not allowed here.
  FS_INVALID = 10,
  // The transaction of this handle has ended, by a call of the program.
  FS_ENDED = 11,
  // Another thread is in a call with this transaction.
  FS_IN_USE = 12,
  // The database was opened before a fork, in the parent process.
  FS_FORKED = 13,
  // A defect of the library: it has panicked. The transaction can only be ended.
  FS_PANIC = 14,
  // The function of a run has asked for a rollback.
  FS_ABORTED = 15,
  // The victim of a deadlock.
  FS_DEADLOCK = 20,
  // Another transaction has changed the row since the snapshot was taken.
  FS_CONFLICT = 21,
  // A lock was not granted in time.
  FS_LOCK_TIMEOUT = 22,
  // The snapshot was cancelled because it was too old or kept too much.
  FS_SNAPSHOT_TOO_OLD = 23,
  // The transaction ran for longer than the database allows.
  FS_TRANSACTION_TOO_OLD = 24,
  // Too many transactions run, or undo memory or log space is used up.
  FS_BUSY = 25,
  // The table, or its indexes, were dropped or changed by another transaction.
  FS_TABLE_CHANGED = 26,
  // Each run was ended by other transactions, up to the limit of runs or the deadline.
  FS_EXHAUSTED = 27,
  // An earlier error has rolled the transaction back.
  FS_ROLLED_BACK = 40,
  // The transaction needs more undo space than there is.
  FS_TRANSACTION_TOO_LARGE = 41,
  // The row is locked, and the request does not wait.
  FS_ROW_LOCKED = 42,
  // The lock is held by a transaction that this thread used last, so the wait would have no end.
  FS_OWN_THREAD_LOCK = 43,
  // The rollback is parked: it goes on when there is space.
  FS_ROLLBACK_PARKED = 44,
  // The savepoint is gone, or of another transaction.
  FS_NO_SAVEPOINT = 45,
  // There is no prepared transaction of this name.
  FS_NO_PREPARED = 46,
  // A prepared transaction has the name already.
  FS_PREPARED_EXISTS = 47,
  // Another call is preparing, committing or rolling back the prepared transaction.
  FS_PREPARED_BUSY = 48,
  // The name of a prepared transaction is empty, too long, or has a zero byte.
  FS_PREPARED_NAME = 49,
  // A row with this key exists.
  FS_KEY_EXISTS = 50,
  // The key is too large.
  FS_KEY_TOO_LARGE = 51,
  // The value is too large.
  FS_VALUE_TOO_LARGE = 52,
  // There is no such table.
  FS_NO_TABLE = 53,
  // The name of a table is empty, too long, or has a zero byte.
  FS_TABLE_NAME = 54,
  // The table has keys or values of other types.
  FS_TABLE_TYPES = 55,
  // The table has an index that it was opened without, so it is only read.
  FS_INDEXED = 56,
  // A row does not decode to the types of its table.
  FS_UNDECODABLE = 57,
  // A table has the new name already.
  FS_TABLE_EXISTS = 58,
  // The function that reads a new value has failed.
  FS_READER_FAILED = 59,
  // There is no database in the directory.
  FS_NO_DATABASE = 60,
  // The database is open already, in this process or another.
  FS_LOCKED = 61,
  // The database, or the transaction, only reads.
  FS_READ_ONLY = 62,
  // The database was not closed, so it has to be opened for writing first.
  FS_NOT_CLOSED = 63,
  // The database has been closed.
  FS_CLOSED = 64,
  // The directory of a backup or of a restore is not empty, or that has not finished, or the restore is refused.
  FS_BAD_BACKUP = 65,
  // The files are not of Foreshore, or belong to another database.
  FS_FOREIGN = 66,
  // The files were written by a newer version.
  FS_NEWER = 67,
  // An operation of the system failed.
  FS_IO = 70,
  // There is no space on the disk.
  FS_NO_SPACE = 71,
  // Bytes on disk are not those that were written.
  FS_CORRUPTED = 72,
  // A write of the log has failed. The database must be opened again.
  FS_POISONED = 73,
  // All page frames are in use: the memory limit is too small.
  FS_NO_MEMORY = 74,
  // A unique index has the key for another row.
  FS_INDEX_KEY_EXISTS = 80,
  // An index disagrees with its table: it was built by another function.
  FS_INDEX_MISMATCH = 81,
  // The table has no such index.
  FS_NO_INDEX = 82,
  // The index was built by another definition.
  FS_INDEX_TYPES = 83,
  // The keys of a load do not ascend, or are not above those of the table.
  FS_LOAD_ORDER = 84,
  // An error without a number of its own.
  FS_OTHER = 99,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum fs_status fs_status;
#else
typedef int32_t fs_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Memory for a value. It grows as needed, and may be used for one call after another.
typedef struct fs_buffer fs_buffer;

// A scan of the rows of a table. It sees rows that its transaction writes ahead of it. It may read, and in a
// serializable transaction lock, some rows ahead of those that it has returned.
typedef struct fs_cursor fs_cursor;

// An open database. Any thread may use it, and several at once.
typedef struct fs_db fs_db;

// The definition of an index. Any thread may use it, and several at once.
typedef struct fs_index fs_index;

// Receives the index keys of a row, by `fs_keys_add`.
typedef struct fs_keys fs_keys;

// Commits that have completed, behind one descriptor. Any thread may use it, and several at once.
typedef struct fs_queue fs_queue;

// A reader of one value. It returns the same bytes until its transaction ends.
typedef struct fs_reader fs_reader;

// A table that is open in a transaction: keys and values are bytes, and keys are in the order of their bytes.
typedef struct fs_table fs_table;

// A transaction. One thread at a time may use it with its tables and cursors: a second one gets `FS_IN_USE`.
typedef struct fs_tx fs_tx;

// Options of a database. Set `struct_size` to `sizeof(fs_options)`, and leave zero what is to have its default.
typedef struct {
  // `sizeof(fs_options)`.
  size_t struct_size;
  // `FS_OPEN_IN_MEMORY`, `FS_OPEN_READ_ONLY`, `FS_OPEN_EXISTING`.
  uint32_t flags;
  // Transactions that may run at once, up to 1024, the default.
  uint32_t max_transactions;
  // Bytes of memory; 1 GiB by default.
  uint64_t memory_limit;
  // Milliseconds that a transaction waits for a lock; 10000 by default.
  uint64_t lock_timeout_ms;
  // Bytes of log that a restart reads; 512 MiB by default.
  uint64_t log_budget;
  // Bytes of a temporary file for undo; none by default.
  uint64_t spill_limit;
  // Milliseconds that a restart after a crash may take: the log that it reads follows from that, up to `log_budget`.
  // By default only `log_budget` bounds it.
  uint64_t restart_target_ms;
  // The directory to which the log is copied before it is reused, for `fs_restore`; null for none.
  const char *archive;
  // Bytes that the archive may have, beyond which its oldest files are removed. No limit by default.
  uint64_t archive_limit;
  // Milliseconds after which a snapshot is cancelled, with `FS_SNAPSHOT_TOO_OLD`. No limit by default.
  uint64_t snapshot_max_age_ms;
  // Bytes of old versions that one snapshot may keep. No limit by default.
  uint64_t snapshot_max_bytes;
  // Milliseconds after which a transaction is rolled back, with `FS_TRANSACTION_TOO_OLD`. No limit by default.
  uint64_t transaction_max_age_ms;
  // How the files are written: `direct`, past the page cache, `buffered`, through it, or `auto`. Null for `auto`,
  // which is `direct` where the file system allows it. With `null` or `delay:TIME` nothing is on a disk.
  const char *device;
  // Whether pages are written to the doublewrite file first, so that power loss leaves none torn: `auto`, `on` or
  // `off`. Null for `auto`, which writes them there unless the device writes pages whole. With `off` a torn page may
  // lose rows.
  const char *doublewrite;
  // Microseconds that a group of commits may wait for further ones; 50 by default. `FS_NO_WINDOW` for none.
  uint64_t group_window_us;
} fs_options;

// What a check has found.
typedef struct {
  // Tables.
  uint64_t tables;
  // Rows in them.
  uint64_t rows;
  // Pages in use.
  uint64_t pages;
  // Damaged pages.
  uint64_t damaged;
} fs_report;

// What a backup holds.
typedef struct {
  // All commits with a number up to this one are in the copy.
  uint64_t csn;
  // Pages of the data file.
  uint64_t pages;
  // Bytes of log.
  uint64_t log_bytes;
  // Pages that are set aside as damaged, in the copy too.
  uint64_t quarantined;
} fs_backup_info;

// Options of a restore. Set `struct_size` to `sizeof(fs_restore_options)`, and leave zero what is to have its default.
typedef struct {
  // `sizeof(fs_restore_options)`.
  size_t struct_size;
  // The directory to which the log was archived, or null.
  const char *archive;
  // The directories of the increments of the backup, in their order. Null if there are none.
  const char *const *increments;
  // Their number.
  size_t increment_count;
  // `FS_UNTIL_END`, `FS_UNTIL_LSN` or `FS_UNTIL_TIME`.
  uint32_t until;
  // Nanoseconds of the time, below 1000000000.
  uint32_t until_nanos;
  // The position: commits whose records have LSNs up to this one, as `fs_archive` returns it.
  uint64_t until_lsn;
  // Seconds since 1970: commits that were written to the log by then.
  int64_t until_secs;
} fs_restore_options;

// What was restored, or would be.
typedef struct {
  // The position: the commits whose records have LSNs up to it, and no others.
  uint64_t lsn;
  // The position as a number of commits.
  uint64_t csn;
  // The end of the last backup: the first position that can be restored from it.
  uint64_t backup_lsn;
  // Pages of the data file.
  uint64_t pages;
  // Bytes of log.
  uint64_t log_bytes;
  // Pages that are set aside as damaged. What they held is lost.
  uint64_t quarantined;
  // When the last group of the log was written, in seconds since 1970. Zero if the log does not say.
  int64_t time_secs;
  // Nanoseconds of that time, below 1000000000.
  uint32_t time_nanos;
} fs_restored;

// What a repair has done, or would do.
typedef struct {
  // Pages of the database.
  uint64_t pages;
  // Damaged pages that were repaired.
  uint64_t repaired;
  // Damaged pages that were not.
  uint64_t unrepaired;
} fs_repaired;

// Options of a transaction. Set `struct_size` to `sizeof(fs_tx_options)`, and leave zero what is to have its default.
typedef struct {
  // `sizeof(fs_tx_options)`.
  size_t struct_size;
  // `FS_SERIALIZABLE`, `FS_SNAPSHOT` or `FS_READ_COMMITTED`.
  uint32_t isolation;
  // `FS_DURABLE` or `FS_RELAXED`.
  uint32_t durability;
  // Milliseconds that the transaction waits for a lock; those of the database by default.
  uint64_t lock_timeout_ms;
  // Milliseconds after which no wait goes on, and `fs_run` runs the function no more. By default no wait has such an
  // end, and `fs_run` stops after three lock timeouts.
  uint64_t deadline_ms;
  // A name that errors of other transactions show, or null. A process may use 1024 names.
  const char *label;
  // For `fs_begin_read`: not zero to read commits that are not durable yet, too.
  uint32_t latest;
  // Milliseconds after which its snapshot is cancelled; those of the database by default.
  uint64_t snapshot_max_age_ms;
  // Bytes of old versions that its snapshot may keep; those of the database by default.
  uint64_t snapshot_max_bytes;
} fs_tx_options;

// A range of keys: from `lower` on, and below `upper`, unless `flags` say otherwise. A null pointer is no bound.
typedef struct {
  // The lower bound, or null.
  const void *lower;
  // Its bytes.
  size_t lower_len;
  // The upper bound, or null.
  const void *upper;
  // Its bytes.
  size_t upper_len;
  // `FS_LOWER_EXCLUDED`, `FS_UPPER_INCLUDED`.
  uint32_t flags;
} fs_range;

// Stores the next bytes of a value in `buffer`, at most `len`, and returns their number. Zero at the end, and -1 if it
// fails. It must not use the transaction.
typedef ptrdiff_t (*fs_read)(void *arg, void *buffer, size_t len);

// Changes a value. `old` is null if there is no row. The new value goes to `new_value` by `fs_buffer_set`. Returns
// zero to store it, `FS_REMOVE_ROW` to remove the row, and anything else, such as a status, to leave it as it is. It
// may use the transaction. `new_value` belongs to the library and ends with the call: do not free it. No exception of
// C++ and no `longjmp` may leave the function.
typedef int (*fs_change)(void *arg, const void *old, size_t old_len, fs_buffer *new_value);

// Options of a load. Set `struct_size` to `sizeof(fs_load_options)`, and leave zero what is to have its default.
typedef struct {
  // `sizeof(fs_load_options)`.
  size_t struct_size;
  // How much of each page is filled, in percent: 10 to 100, the default. The rest is for later rows between them.
  uint32_t fill_percent;
} fs_load_options;

// Stores the next row of a load, whose bytes stay until the next call. Returns zero if there is one, `FS_NOT_FOUND` at
// the end, and anything else to load nothing. It must not use the transaction. No exception of C++ and no `longjmp`
// may leave the function.
typedef int (*fs_next_row)(void *arg,
                           const void **key,
                           size_t *key_len,
                           const void **value,
                           size_t *value_len);

// Adds the index keys of a row: one, several, or none, so that the index does not find the row. It is called with the
// old and the new row of each change, also on other threads, and must depend on nothing else. It must not use the
// transaction. Zero, or anything else if the row has no such form: then the call returns `FS_UNDECODABLE`, and the
// transaction is rolled back. `keys` belongs to the library and ends with the call. No exception of C++ and no
// `longjmp` may leave the function.
typedef int (*fs_index_keys)(void *arg,
                             const void *key,
                             size_t key_len,
                             const void *value,
                             size_t value_len,
                             fs_keys *keys);

// The definition of an index. Set `struct_size` to `sizeof(fs_index_options)`.
typedef struct {
  // `sizeof(fs_index_options)`.
  size_t struct_size;
  // The name of the index.
  const char *name;
  // The function that adds the keys of a row. They are bytes, in the order of their bytes.
  fs_index_keys keys;
  // Passed to the function, for the life of the process.
  void *arg;
  // The version of the function; 1 by default. Raise it when the function changes: the next open of a table with the
  // index builds it anew.
  uint64_t version;
  // Not zero if no two rows may have the same key.
  uint32_t unique;
} fs_index_options;

// A commit that has completed.
typedef struct {
  // The tag of `fs_commit_queued`.
  uint64_t tag;
  // `FS_OK` if the commit is durable.
  fs_status status;
} fs_completion;

// Called once when a commit is durable, with `FS_OK`, or cannot be. `message` belongs to the library and ends with the
// call. It runs on a thread of the library, or in a call of another thread: it must be short and must not wait for a
// lock or for another commit.
typedef void (*fs_on_durable)(void *arg, fs_status status, const char *message);

// A transaction as a function: it returns zero to commit, and anything else to roll back.
typedef int (*fs_body)(fs_tx *tx, void *arg);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the message of the last error that a function has returned to this thread, empty if there was none.
//
// The text belongs to the library. It stays until the next error of this thread.
const char *fs_message(void);

// Makes an empty buffer. Free it with `fs_buffer_free`.
fs_buffer *fs_buffer_new(void);

// Returns the bytes of the buffer, which stay until it is used for the next call. Null for a null buffer.
const void *fs_buffer_data(const fs_buffer *buffer);

// Returns the number of bytes in the buffer. Zero for a null buffer.
size_t fs_buffer_len(const fs_buffer *buffer);

// Sets the bytes of the buffer, as the function of `fs_update_with` does.
fs_status fs_buffer_set(fs_buffer *buffer, const void *data, size_t len);

// Frees a buffer. Null is allowed.
void fs_buffer_free(fs_buffer *buffer);

// Opens the database in the directory `path`, and creates it if there is none. Close and free it with `fs_db_free`.
//
// `options` may be null. `path` may be null with `FS_OPEN_IN_MEMORY`.
fs_status fs_open(const char *path,
                  const fs_options *options,
                  fs_db **db);

// Closes the database: refuses new transactions, waits at most `wait_ms` for running ones, and releases the directory.
// What needs the database returns `FS_CLOSED` afterwards, of a new transaction its first operation. The handle stays
// until `fs_db_free`.
fs_status fs_close(const fs_db *db,
                   uint64_t wait_ms);

// Frees a database, and closes it first if it is open: transactions that run are rolled back. Null is allowed. In the
// child of a fork the memory stays in use and nothing is closed.
void fs_db_free(fs_db *db);

// Waits until every commit before the call is durable, relaxed ones too.
fs_status fs_sync(const fs_db *db);

// Takes a checkpoint: a restart then has almost nothing to redo.
fs_status fs_checkpoint(const fs_db *db);

// Makes the file of the database as short as its rows allow, while others read and write. Stores the bytes by which it
// is shorter, unless `truncated` is null. It is for a database of which much was removed.
fs_status fs_compact(const fs_db *db,
                     uint64_t *truncated);

// Stores the number of the newest durable commit. All commits before it are durable, too.
fs_status fs_durable_csn(const fs_db *db, uint64_t *csn);

// Checks every page and every table while the database is in use. `FS_CORRUPTED` if a page is damaged; `report`, which
// may be null, is filled in all the same.
fs_status fs_check(const fs_db *db,
                   fs_report *report);

// Stores the counters of the database as a JSON object, with an object of numbers for each layer, and some numbers of
// the whole.
fs_status fs_stats_json(const fs_db *db,
                        fs_buffer *json);

// Returns not zero if the same transaction may succeed when it is run again.
int32_t fs_is_retryable(int32_t status);

// Returns the version of the library.
const char *fs_version(void);

// Copies the database to the directory `dir` while it is in use. The copy can be opened. `info` may be null.
fs_status fs_backup(const fs_db *db,
                    const char *dir,
                    fs_backup_info *info);

// Copies to the directory `dir` what has changed since the backup in the directory `base`. `fs_restore` takes it as an
// increment of that one. `info` may be null. `FS_BAD_BACKUP` if the database does not know the base.
fs_status fs_backup_since(const fs_db *db,
                          const char *dir,
                          const char *base,
                          fs_backup_info *info);

// Copies the durable log to the archive, and stores the LSN up to which it is archived, unless `lsn` is null. It is
// the position of all commits that were durable before the call. Zero without an archive.
fs_status fs_archive(const fs_db *db,
                     uint64_t *lsn);

// Restores the backup in the directory `backup`, its increments and the log of an archive to the directory `target`,
// which is empty or absent. It is a database with another id: give it an archive of its own. Backup and archive are
// only read. `options` and `restored` may be null. `FS_BAD_BACKUP` if log is missing or the position cannot be
// reached.
fs_status fs_restore(const char *backup,
                     const char *target,
                     const fs_restore_options *options,
                     fs_restored *restored);

// Reads and checks all that `fs_restore` would read, and writes nothing.
fs_status fs_verify_backup(const char *backup,
                           const fs_restore_options *options,
                           fs_restored *restored);

// Repairs damaged pages of the closed database in the directory `dir` from its backup and the log since, of which an
// archive, or null, may have a part. If `dry_run` is not zero, nothing is written. `repaired` may be null.
// `FS_CORRUPTED` if a page stays damaged, which the message explains; `repaired` is filled in all the same.
fs_status fs_repair(const char *dir,
                    const char *backup,
                    const char *archive,
                    int32_t dry_run,
                    fs_repaired *repaired);

// Begins a transaction that reads and writes. `options` may be null. Free it with `fs_tx_free`, also after its end.
fs_status fs_begin(const fs_db *db,
                   const fs_tx_options *options,
                   fs_tx **tx);

// Begins a transaction that reads a snapshot and waits for no writer. Of `options`, which may be null, `label`,
// `latest`, `snapshot_max_age_ms` and `snapshot_max_bytes` count.
fs_status fs_begin_read(const fs_db *db,
                        const fs_tx_options *options,
                        fs_tx **tx);

// Rolls a transaction back and waits until what it has read is durable. Its handle stays until `fs_tx_free`. One that
// an error has rolled back, or in which a call has panicked, is no error here. The transaction has ended, also if this
// returns an error. The exceptions are those of `fs_commit`.
fs_status fs_rollback(const fs_tx *tx);

// Frees a transaction, and rolls it back first if it has not ended. Tables and cursors of it may be freed later; they
// return `FS_ENDED`. Null is allowed. In the child of a fork nothing is rolled back.
void fs_tx_free(fs_tx *tx);

// Marks a point to which `fs_rollback_to` can roll back, and stores its number.
fs_status fs_savepoint(const fs_tx *tx, uint64_t *savepoint);

// Rolls back what was changed since a savepoint. The savepoint stays, and later ones are gone.
fs_status fs_rollback_to(const fs_tx *tx, uint64_t savepoint);

// Gives up a savepoint and those after it. What was changed since stays.
fs_status fs_release(const fs_tx *tx, uint64_t savepoint);

// Lists the tables. Stores in `names` three texts for each, with a zero byte behind each of them: its name, the type
// of its keys and that of its values. Stores the number of tables, unless `count` is null.
fs_status fs_tables(const fs_tx *tx,
                    fs_buffer *names,
                    uint64_t *count);

// Drops the table `name` with all its rows. `FS_NOT_FOUND` if there is none.
fs_status fs_drop_table(const fs_tx *tx, const char *name);

// Renames the table `name` with its rows, its indexes and its numbers. `FS_NOT_FOUND` if there is none, and
// `FS_TABLE_EXISTS` if another table has the new name; then the transaction goes on.
fs_status fs_rename_table(const fs_tx *tx,
                          const char *name,
                          const char *new_name);

// Removes all rows of the table `name`, in a time that does not depend on their number. `FS_NOT_FOUND` if there is no
// such table. Open the table again afterwards: one that was opened before is that of the removed rows.
fs_status fs_clear_table(const fs_tx *tx,
                         const char *name);

// Opens the table `name` of bytes, and creates it if there is none and the transaction writes. Free it with
// `fs_table_free`.
fs_status fs_table_open(const fs_tx *tx,
                        const char *name,
                        fs_table **table);

// Opens the table `name` like `fs_table_open`, with the names of its types as Rust programs see them: `u64`, `str`,
// `(u64,str)`. Keys and values must be encoded as these types are, which nothing checks.
fs_status fs_table_open_typed(const fs_tx *tx,
                              const char *name,
                              const char *key_type,
                              const char *value_type,
                              fs_table **table);

// Opens the table `name`, whatever its types, and creates none. Keys and values are those types' encodings.
fs_status fs_table_open_existing(const fs_tx *tx,
                                 const char *name,
                                 fs_table **table);

// Frees a table. Its transaction and its cursors go on. Null is allowed.
void fs_table_free(fs_table *table);

// Copies the value of a key to `value`. `FS_NOT_FOUND` if there is none; then the buffer is empty.
fs_status fs_get(const fs_table *table, const void *key, size_t key_len, fs_buffer *value);

// Copies the value of a key to `value` like `fs_get`, and locks the row for a write in this transaction. That avoids
// the deadlock of two transactions that both read a row and then both write it.
fs_status fs_get_for_update(const fs_table *table,
                            const void *key,
                            size_t key_len,
                            fs_buffer *value);

// Returns `FS_OK` if there is a row of the key, and `FS_NOT_FOUND` if there is none.
fs_status fs_contains(const fs_table *table, const void *key, size_t key_len);

// Sets the value of a key, whether there is a row of it or not.
fs_status fs_put(const fs_table *table,
                 const void *key,
                 size_t key_len,
                 const void *value,
                 size_t value_len);

// Sets the value of a new key. `FS_KEY_EXISTS` if there is a row of it.
fs_status fs_insert(const fs_table *table,
                    const void *key,
                    size_t key_len,
                    const void *value,
                    size_t value_len);

// Removes the row of a key. `FS_NOT_FOUND` if there is none.
fs_status fs_delete(const fs_table *table, const void *key, size_t key_len);

// Removes the rows of a range, which may be null for all rows. Stores how many there were, unless `count` is null.
fs_status fs_delete_range(const fs_table *table,
                          const fs_range *range,
                          uint64_t *count);

// Counts the rows of a range, which may be null for all rows, by a scan.
fs_status fs_count(const fs_table *table, const fs_range *range, uint64_t *count);

// Stores a number for a new row, from 1 on. No two calls get the same one, also after a crash.
fs_status fs_next_id(const fs_table *table, uint64_t *id);

// Makes the numbers of `fs_next_id` begin above `last`, for calls that begin later: after a load of rows that have
// numbers. It takes effect at once, durably, and no rollback takes it back. A smaller `last` changes nothing.
fs_status fs_skip_ids(const fs_table *table,
                      uint64_t last);

// Sets the value of a key to the bytes that `read` returns, and stores their number, unless `count` is null. No whole
// value is in memory, unless the table has indexes. `FS_READER_FAILED` if `read` fails; then the row is unchanged and
// the transaction goes on.
fs_status fs_put_reader(const fs_table *table,
                        const void *key,
                        size_t key_len,
                        fs_read read,
                        void *arg,
                        uint64_t *count);

// Makes a reader of the value of a key. `FS_NOT_FOUND` if there is none. Free it with `fs_reader_free`.
fs_status fs_get_reader(const fs_table *table,
                        const void *key,
                        size_t key_len,
                        fs_reader **reader);

// Returns the length of the value in bytes. Zero for a null reader.
uint64_t fs_reader_len(const fs_reader *reader);

// Copies the bytes from `at` on to `buffer`, at most `len`, as far as the value goes. Stores how many there were in
// `count`.
fs_status fs_read_at(const fs_reader *reader,
                     uint64_t at,
                     void *buffer,
                     size_t len,
                     size_t *count);

// Frees a reader. Null is allowed.
void fs_reader_free(fs_reader *reader);

// Changes the value of a key by a function, under a lock of the row: a merge of it with what the function knows. So no
// change of another transaction is lost. Copies the new value to `value`, which may be null. `FS_NOT_FOUND` if there
// is no row afterwards. `FS_ABORTED` if the function has refused; then the row is locked and unchanged. `result`,
// unless it is null, gets what the function has returned, if it was called.
fs_status fs_update_with(const fs_table *table,
                         const void *key,
                         size_t key_len,
                         fs_change change,
                         void *arg,
                         fs_buffer *value,
                         int *result);

// Inserts the rows that `next` returns, whose keys ascend and are above all keys of the table. Stores their number,
// unless `count` is null. That is much faster than single inserts. The table is locked until the transaction ends, and
// its commit waits until it is durable. `options` may be null.
//
// All rows are loaded or none. `FS_LOAD_ORDER` for a key that is not above those before it, and `FS_ABORTED` if `next`
// has refused: the transaction goes on.
fs_status fs_load(const fs_table *table,
                  const fs_load_options *options,
                  fs_next_row next,
                  void *arg,
                  uint64_t *count);

// Begins a scan of a range, which may be null for all rows. Free it with `fs_cursor_free`.
fs_status fs_scan(const fs_table *table,
                  const fs_range *range,
                  uint32_t direction,
                  fs_cursor **cursor);

// Begins a scan of the rows whose keys begin with `prefix`. Free it with `fs_cursor_free`.
fs_status fs_scan_prefix(const fs_table *table,
                         const void *prefix,
                         size_t prefix_len,
                         uint32_t direction,
                         fs_cursor **cursor);

// Stores the next row, which belongs to the cursor and stays until its next call, of whatever thread. `FS_NOT_FOUND`
// at the end. After an error no row was passed over; an error of a scan by an index ends it, and the next call returns
// it again. Pointers to what is not wanted may be null.
fs_status fs_cursor_next(const fs_cursor *cursor,
                         const void **key,
                         size_t *key_len,
                         const void **value,
                         size_t *value_len);

// Frees a cursor. Null is allowed.
void fs_cursor_free(fs_cursor *cursor);

// Makes the definition of an index. The library keeps the function and `arg` for the life of the process. Free the
// handle with `fs_index_free`.
//
// Make each definition once. A process may use 1024: one counts when it is used first, by an open or a read, and again
// for each other type of the keys of tables. Further ones return `FS_INVALID` there.
fs_status fs_index_new(const fs_index_options *options,
                       fs_index **index);

// Frees the handle of a definition. Null is allowed.
void fs_index_free(fs_index *index);

// Adds an index key of the row, in the function of an index.
fs_status fs_keys_add(fs_keys *keys, const void *key, size_t key_len);

// Opens the table `name` like `fs_table_open_typed`, with indexes. A transaction that writes builds those that are
// missing or were built by another definition, and each write of the table keeps them. A table that has other indexes
// too is only read: a write returns `FS_INDEXED`. If two rows have one key of a new unique index, this returns
// `FS_INDEX_KEY_EXISTS` and the transaction is rolled back.
fs_status fs_table_open_indexed(const fs_tx *tx,
                                const char *name,
                                const char *key_type,
                                const char *value_type,
                                const fs_index *const *indexes,
                                size_t count,
                                fs_table **table);

// Copies the key and the value of the row with an index key, the first of several. `FS_NOT_FOUND` if there is none;
// then the buffers are empty. `FS_NO_INDEX` if the table has no such index, `FS_INDEX_TYPES` if another definition has
// built it. `key` and `value` may be null.
fs_status fs_index_get(const fs_table *table,
                       const fs_index *index,
                       const void *index_key,
                       size_t index_key_len,
                       fs_buffer *key,
                       fs_buffer *value);

// Begins a scan of the rows whose index keys lie in a range, which may be null for all, in the order of the index
// keys. `fs_cursor_next` returns their keys and values. After an error it returns the same error again. Free it with
// `fs_cursor_free`. If the transaction changes the index key of a row, the scan may return the row again.
fs_status fs_index_scan(const fs_table *table,
                        const fs_index *index,
                        const fs_range *range,
                        uint32_t direction,
                        fs_cursor **cursor);

// Compares an index with its table, and stores the number of entries, unless `count` is null. `FS_INDEX_MISMATCH` if
// they differ: the function has changed, and its version has not.
fs_status fs_index_check(const fs_table *table,
                         const fs_index *index,
                         uint64_t *count);

// Drops an index of the table `table`. `FS_NOT_FOUND` if there is none.
fs_status fs_drop_index(const fs_tx *tx, const char *table, const char *index);

// Makes a queue. Free it with `fs_queue_free`.
fs_status fs_queue_new(fs_queue **queue);

// Returns an eventfd that is readable while the queue holds completions, for `poll` and its kin. One wake-up serves
// many commits. The queue owns it: do not read or close it. -1 for a null queue.
int fs_queue_fd(const fs_queue *queue);

// Takes completions, at most `max`, oldest first, without a wait. Stores them in `completions` and their number in
// `count`.
fs_status fs_queue_take(const fs_queue *queue,
                        fs_completion *completions,
                        size_t max,
                        size_t *count);

// Frees a queue. Completions that it still gets are lost; the commits are not. Null is allowed.
void fs_queue_free(fs_queue *queue);

// Commits, and returns when the commit survives power loss, or at once if the transaction is relaxed. Stores the
// number of the commit, which orders commits, unless `csn` is null.
//
// The transaction has ended, also if this returns an error. There are three exceptions: `FS_IN_USE`; `FS_FORKED`,
// after which it goes on in the parent; and `FS_INVALID`, for it is null or that of a run. `FS_ROLLED_BACK` if an
// error has ended it before, `FS_PANIC` if a call with it has panicked. After `FS_POISONED` the commit may or may not
// survive.
fs_status fs_commit(const fs_tx *tx,
                    uint64_t *csn);

// Commits without a wait for the disk: the order is fixed, the locks are free, and `on_durable` is called when the
// commit is durable. If this returns an error, `on_durable` is not called; otherwise it is, once, and maybe before
// this returns. It may be null. The transaction ends as it does by `fs_commit`.
fs_status fs_commit_pipelined(const fs_tx *tx,
                              fs_on_durable on_durable,
                              void *arg,
                              uint64_t *csn);

// Commits without a wait for the disk. The queue gets `tag` when the commit is durable, or cannot be. The transaction
// ends as it does by `fs_commit`.
fs_status fs_commit_queued(const fs_tx *tx,
                           const fs_queue *queue,
                           uint64_t tag,
                           uint64_t *csn);

// Prepares a transaction under `name`: the first phase of a two-phase commit. It is durable when this returns, and
// keeps its locks until `fs_commit_prepared` or `fs_rollback_prepared`, now or after any number of restarts. `tx` has
// ended, also if this returns an error, as by `fs_commit`.
//
// After `FS_PREPARED_EXISTS`, `FS_PREPARED_NAME` and other errors it is rolled back. After `FS_POISONED` it may or may
// not be prepared: `fs_prepared` tells after the next open.
fs_status fs_prepare(const fs_tx *tx,
                     const char *name);

// Stores the names of the prepared transactions in `names`, each with a zero byte behind it, and their number in
// `count`, which may be null. Transactions that a call is ending are left out.
fs_status fs_prepared(const fs_db *db,
                      fs_buffer *names,
                      uint64_t *count);

// Commits the prepared transaction `name`, and returns when the commit survives power loss. Stores its number, unless
// `csn` is null. `FS_NO_PREPARED` if there is none of this name: if there was one, its end is durable.
fs_status fs_commit_prepared(const fs_db *db,
                             const char *name,
                             uint64_t *csn);

// Rolls the prepared transaction `name` back. The rollback is durable when this returns. `FS_NO_PREPARED` as for
// `fs_commit_prepared`.
fs_status fs_rollback_prepared(const fs_db *db,
                               const char *name);

// Runs `body` in a transaction and commits it, durably unless it is relaxed. `body` is called again, whatever it has
// returned, if a deadlock or a conflict with other transactions has ended its transaction. So it must leave nothing
// behind but rows.
//
// If `body` returns another number than zero, this rolls back and returns `FS_ABORTED`, and `result`, unless it is
// null, gets the number. The transaction belongs to the run: `body` does not end it and does not free it.
//
// The runs are at most 100, and none begins after `deadline_ms`, or without it after the time of three lock timeouts.
// One that `FS_TRANSACTION_TOO_OLD` has ended is the last, and so is one that `FS_LOCK_TIMEOUT` has ended without a
// deadline. If `body` forks, the child has to exit or to call `exec` in it: where it returns from it, it is aborted.
fs_status fs_run(const fs_db *db,
                 const fs_tx_options *options,
                 fs_body body,
                 void *arg,
                 int *result);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FORESHORE_H */
