/* What a program must not do, and the library sees: null pointers, ended handles, bad options, forks. */
#include "test.h"
#include <sys/wait.h>
#include <unistd.h>

static void nulls(fs_db *db) {
    fs_tx *tx = NULL;
    fs_table *table = begin(db, NULL, &tx);
    fs_buffer *value = fs_buffer_new();
    fs_cursor *cursor = NULL;
    fs_queue *queue = NULL;
    uint64_t number = 0;
    size_t count = 0;
    EXPECT(FS_INVALID, fs_open(NULL, NULL, &db));
    EXPECT(FS_INVALID, fs_open("x", NULL, NULL));
    EXPECT(FS_INVALID, fs_close(NULL, 0));
    EXPECT(FS_INVALID, fs_sync(NULL));
    EXPECT(FS_INVALID, fs_checkpoint(NULL));
    EXPECT(FS_INVALID, fs_durable_csn(db, NULL));
    EXPECT(FS_INVALID, fs_backup(db, NULL, NULL));
    EXPECT(FS_INVALID, fs_check(NULL, NULL));
    EXPECT(FS_INVALID, fs_stats_json(db, NULL));
    EXPECT(FS_INVALID, fs_begin(NULL, NULL, &tx));
    EXPECT(FS_INVALID, fs_begin(db, NULL, NULL));
    EXPECT(FS_INVALID, fs_begin_read(db, NULL, NULL));
    EXPECT(FS_INVALID, fs_commit(NULL, NULL));
    EXPECT(FS_INVALID, fs_commit_pipelined(NULL, NULL, NULL, NULL));
    EXPECT(FS_INVALID, fs_commit_queued(tx, NULL, 0, NULL));
    EXPECT(FS_INVALID, fs_rollback(NULL));
    EXPECT(FS_INVALID, fs_savepoint(tx, NULL));
    EXPECT(FS_INVALID, fs_rollback_to(NULL, 0));
    EXPECT(FS_INVALID, fs_release(NULL, 0));
    EXPECT(FS_INVALID, fs_drop_table(tx, NULL));
    EXPECT(FS_INVALID, fs_table_open(tx, NULL, &table));
    EXPECT(FS_INVALID, fs_table_open(tx, "\xFF", &table));
    EXPECT(FS_INVALID, fs_table_open_typed(tx, "t", NULL, "u64", &table));
    EXPECT(FS_INVALID, fs_table_open_existing(NULL, "t", &table));
    EXPECT(FS_INVALID, fs_get(table, "k", 1, NULL));
    EXPECT(FS_INVALID, fs_get(table, NULL, 1, value));
    EXPECT(FS_INVALID, fs_get_for_update(NULL, "k", 1, value));
    EXPECT(FS_INVALID, fs_contains(NULL, "k", 1));
    EXPECT(FS_INVALID, fs_put(table, "k", 1, NULL, 1));
    EXPECT(FS_INVALID, fs_insert(NULL, "k", 1, "v", 1));
    EXPECT(FS_INVALID, fs_delete(table, NULL, 1));
    EXPECT(FS_INVALID, fs_delete_range(NULL, NULL, NULL));
    EXPECT(FS_INVALID, fs_count(table, NULL, NULL));
    EXPECT(FS_INVALID, fs_next_id(table, NULL));
    EXPECT(FS_INVALID, fs_scan(table, NULL, FS_FORWARD, NULL));
    EXPECT(FS_INVALID, fs_scan(table, NULL, 9, &cursor));
    EXPECT(FS_INVALID, fs_scan_prefix(table, NULL, 1, FS_FORWARD, &cursor));
    EXPECT(FS_INVALID, fs_cursor_next(NULL, NULL, NULL, NULL, NULL));
    fs_range strange = {.flags = 64};
    EXPECT(FS_INVALID, fs_scan(table, &strange, FS_FORWARD, &cursor));
    EXPECT(FS_INVALID, fs_run(db, NULL, NULL, NULL, NULL));
    EXPECT(FS_INVALID, fs_queue_new(NULL));
    OK(fs_queue_new(&queue));
    EXPECT(FS_INVALID, fs_queue_take(queue, NULL, 1, &count));
    CHECK(strstr(fs_message(), "completions"));
    CHECK(fs_buffer_data(NULL) == NULL && fs_buffer_len(NULL) == 0);
    fs_db_free(NULL);
    fs_tx_free(NULL);
    fs_table_free(NULL);
    fs_cursor_free(NULL);
    fs_buffer_free(NULL);
    fs_queue_free(NULL);
    OK(fs_savepoint(tx, &number)); /* nothing of it has ended the transaction */
    fs_queue_free(queue);
    fs_buffer_free(value);
    fs_table_free(table);
    fs_tx_free(tx);
}

static void options(fs_db *db) {
    fs_db *none = NULL;
    fs_tx *tx = NULL;
    fs_options unsized_ = {.flags = FS_OPEN_IN_MEMORY};
    EXPECT(FS_INVALID, fs_open(NULL, &unsized_, &none));
    fs_options both = {.struct_size = sizeof both, .flags = FS_OPEN_READ_ONLY | FS_OPEN_EXISTING};
    EXPECT(FS_INVALID, fs_open("x", &both, &none));
    fs_options little = {.struct_size = sizeof little, .flags = FS_OPEN_IN_MEMORY, .memory_limit = 1};
    EXPECT(FS_INVALID, fs_open(NULL, &little, &none));
    /* A program that was built with an older header knows fewer fields. */
    fs_options older = {.struct_size = offsetof(fs_options, memory_limit), .flags = FS_OPEN_IN_MEMORY, .memory_limit = 1};
    OK(fs_open(NULL, &older, &none));
    fs_db_free(none);
    fs_tx_options isolation = {.struct_size = sizeof isolation, .isolation = 9};
    EXPECT(FS_INVALID, fs_begin(db, &isolation, &tx));
    fs_tx_options durability = {.struct_size = sizeof durability, .durability = 9};
    EXPECT(FS_INVALID, fs_begin(db, &durability, &tx));
}

static void ended(fs_db *db) {
    fs_tx *tx = NULL;
    fs_cursor *cursor = NULL;
    fs_table *table = begin(db, NULL, &tx);
    OK(fs_put(table, "e", 1, "", 0));
    OK(fs_scan(table, NULL, FS_FORWARD, &cursor));
    OK(fs_cursor_next(cursor, NULL, NULL, NULL, NULL));
    fs_tx_free(tx); /* before its table and its cursor */
    EXPECT(FS_ENDED, fs_contains(table, "e", 1));
    EXPECT(FS_ENDED, fs_cursor_next(cursor, NULL, NULL, NULL, NULL));
    fs_table_free(table);
    fs_cursor_free(cursor);

    /* A database that is freed before its transaction is closed. */
    fs_db *short_lived = open_in_memory();
    table = begin(short_lived, NULL, &tx);
    fs_db_free(short_lived);
    EXPECT(FS_CLOSED, fs_put(table, "e", 1, "", 0));
    fs_table_free(table);
    fs_tx_free(tx);
}

static void forks(const char *folder) {
    char path[512];
    snprintf(path, sizeof path, "%s/forked", folder);
    fs_db *db = NULL;
    fs_tx *tx = NULL;
    OK(fs_open(path, NULL, &db));
    fs_table *table = begin(db, NULL, &tx);
    OK(fs_put(table, "f", 1, "", 0));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        fs_tx *other = NULL;
        EXPECT(FS_FORKED, fs_begin(db, NULL, &other));
        EXPECT(FS_FORKED, fs_put(table, "f", 1, "", 0));
        EXPECT(FS_FORKED, fs_commit(tx, NULL));
        fs_table_free(table);
        fs_tx_free(tx);
        fs_db_free(db);
        /* A database of its own. */
        db = open_in_memory();
        table = begin(db, NULL, &tx);
        OK(fs_put(table, "f", 1, "", 0));
        OK(fs_commit(tx, NULL));
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(fs_commit(tx, NULL));
    fs_table_free(table);
    fs_tx_free(tx);
    OK(fs_check(db, NULL));
    fs_db_free(db);
}

void test_misuse(const char *folder) {
    fs_db *db = open_in_memory();
    nulls(db);
    options(db);
    ended(db);
    fs_db_free(db);
    forks(folder);
}
