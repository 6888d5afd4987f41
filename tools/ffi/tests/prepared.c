/* Two-phase commit, also over a restart. */
#include "test.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_disable() (void)0
#define __lsan_enable() (void)0
#endif

static fs_db *open_at(const char *path) {
    fs_db *db = NULL;
    OK(fs_open(path, NULL, &db));
    return db;
}

/* Writes the row of a letter, and prepares the transaction under a name. */
static void prepare(fs_db *db, const char *row, const char *name, fs_status expected) {
    fs_tx *tx = NULL;
    fs_table *table = begin(db, NULL, &tx);
    OK(fs_put(table, row, 1, row, 1));
    EXPECT(expected, fs_prepare(tx, name));
    EXPECT(FS_ENDED, fs_commit(tx, NULL)); /* also after an error */
    fs_table_free(table);
    fs_tx_free(tx);
}

static fs_status row_of(fs_db *db, const char *row) {
    fs_tx *tx = NULL;
    fs_table *table = NULL;
    OK(fs_begin_read(db, NULL, &tx));
    OK(fs_table_open(tx, "rows", &table));
    fs_status status = fs_contains(table, row, 1);
    fs_table_free(table);
    fs_tx_free(tx);
    return status;
}

static void are_prepared(fs_db *db, const char *names, size_t len, uint64_t expected) {
    fs_buffer *found = fs_buffer_new();
    uint64_t count = 0;
    OK(fs_prepared(db, found, &count));
    CHECK(count == expected && fs_buffer_len(found) == len && memcmp(fs_buffer_data(found), names, len) == 0);
    OK(fs_prepared(db, found, NULL));
    fs_buffer_free(found);
}

void test_prepared(const char *folder) {
    char path[512];
    snprintf(path, sizeof path, "%s/prepared", folder);
    fs_db *db = open_at(path);
    fs_tx *tx = NULL;
    fs_table_free(begin(db, NULL, &tx));
    OK(fs_commit(tx, NULL)); /* the table exists */
    fs_tx_free(tx);

    prepare(db, "a", "order 1", FS_OK);
    prepare(db, "b", "order 2", FS_OK);
    prepare(db, "c", "order 2", FS_PREPARED_EXISTS);
    prepare(db, "c", "", FS_PREPARED_NAME);
    OK(fs_begin_read(db, NULL, &tx));
    EXPECT(FS_READ_ONLY, fs_prepare(tx, "a reader"));
    fs_tx_free(tx);
    are_prepared(db, "order 1\0order 2", 16, 2);
    EXPECT(FS_NOT_FOUND, row_of(db, "a"));
    fs_db_free(db);

    __lsan_disable(); /* errors name them by their names, which an open keeps for the life of the process */
    db = open_at(path);
    __lsan_enable();
    are_prepared(db, "order 1\0order 2", 16, 2);
    /* Its row is locked. */
    fs_tx_options hurried = {.struct_size = sizeof hurried, .lock_timeout_ms = 20};
    fs_table *table = begin(db, &hurried, &tx);
    EXPECT(FS_LOCK_TIMEOUT, fs_put(table, "a", 1, "x", 1));
    fs_table_free(table);
    fs_tx_free(tx);
    uint64_t csn = 0;
    OK(fs_commit_prepared(db, "order 1", &csn));
    CHECK(csn > 0);
    OK(fs_rollback_prepared(db, "order 2"));
    EXPECT(FS_NO_PREPARED, fs_commit_prepared(db, "order 1", NULL));
    EXPECT(FS_NO_PREPARED, fs_rollback_prepared(db, "order 2"));
    are_prepared(db, "", 0, 0);
    OK(row_of(db, "a"));
    EXPECT(FS_NOT_FOUND, row_of(db, "b"));
    EXPECT(FS_NOT_FOUND, row_of(db, "c"));

    EXPECT(FS_INVALID, fs_prepare(NULL, "x"));
    EXPECT(FS_INVALID, fs_prepared(db, NULL, NULL));
    EXPECT(FS_INVALID, fs_commit_prepared(db, NULL, NULL));
    EXPECT(FS_INVALID, fs_rollback_prepared(NULL, "x"));
    fs_db_free(db);
}
