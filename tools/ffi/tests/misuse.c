/* What a program must not do, and the library sees: null pointers, ended handles, bad options, forks. */
#include "test.h"
#include <pthread.h>
#include <signal.h>
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
    EXPECT(FS_INVALID, fs_compact(NULL, NULL));
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
    EXPECT(FS_INVALID, fs_rename_table(tx, "rows", NULL));
    EXPECT(FS_INVALID, fs_clear_table(tx, NULL));
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

/* In the child of a fork, inside the function of a run: it returns to the library. */
static int fork_and_return(fs_tx *tx, void *arg) {
    fs_table *table = NULL;
    int status = 0;
    OK(fs_table_open(tx, "rows", &table));
    OK(fs_put(table, "r", 1, "", 0));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        return *(int *)arg;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    fs_table_free(table);
    return *(int *)arg;
}

/* A child keeps no lock of its parent, and opens the database when the parent has closed it. */
static void children_open(const char *path) {
    int closed[2];
    int status = 0;
    fs_db *db = NULL;
    OK(fs_open(path, NULL, &db));
    CHECK(pipe(closed) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        CHECK(read(closed[0], &byte, 1) == 1);
        OK(fs_open(path, NULL, &db));
        OK(fs_check(db, NULL));
        fs_db_free(db);
        _exit(0);
    }
    fs_db_free(db);
    OK(fs_open(path, NULL, &db)); /* while the child lives */
    fs_db_free(db);
    CHECK(write(closed[1], "", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(closed[0]);
    close(closed[1]);
}

static void forks(const char *folder) {
    char path[512];
    snprintf(path, sizeof path, "%s/forked", folder);
    fs_db *db = NULL;
    fs_tx *tx = NULL;
    fs_queue *queue = NULL;
    fs_completion done;
    size_t taken = 0;
    OK(fs_queue_new(&queue));
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
        EXPECT(FS_FORKED, fs_queue_take(queue, &done, 1, &taken));
        fs_table_free(table);
        fs_tx_free(tx);
        fs_db_free(db);
#ifndef __SANITIZE_ADDRESS__ /* it may hang in the child of a process with threads */
        /* A database of its own. */
        db = open_in_memory();
        table = begin(db, NULL, &tx);
        OK(fs_put(table, "f", 1, "", 0));
        EXPECT(FS_FORKED, fs_commit_queued(tx, queue, 0, NULL));
        OK(fs_commit(tx, NULL));
#endif
        fs_queue_free(queue);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(fs_commit(tx, NULL));
    fs_table_free(table);
    fs_tx_free(tx);
    fs_queue_free(queue);
    for (int result = 0; result < 2; result++)
        EXPECT(result ? FS_ABORTED : FS_OK, fs_run(db, NULL, fork_and_return, &result, NULL));
    OK(fs_check(db, NULL));
    fs_db_free(db);
    children_open(path);
}

enum { ROWS = 20000 };

/* Counts the rows that this thread gets. */
static void *take_rows(void *arg) {
    size_t rows = 0;
    for (;;) {
        fs_status status = fs_cursor_next(arg, NULL, NULL, NULL, NULL);
        if (status == FS_NOT_FOUND)
            return (void *)rows;
        if (status == FS_IN_USE)
            continue;
        OK(status);
        rows++;
    }
}

/* Each row is handed out once, whatever the threads. */
static void threads(fs_db *db) {
    fs_tx *tx = NULL;
    fs_cursor *cursor = NULL;
    fs_table *table = begin(db, NULL, &tx);
    for (unsigned i = 0; i < ROWS; i++)
        OK(fs_put(table, &i, sizeof i, "", 0));
    OK(fs_scan(table, NULL, FS_FORWARD, &cursor));
    pthread_t thread;
    void *theirs = NULL;
    CHECK(pthread_create(&thread, NULL, take_rows, cursor) == 0);
    size_t mine = (size_t)take_rows(cursor);
    CHECK(pthread_join(thread, &theirs) == 0);
    CHECK(mine + (size_t)theirs == ROWS);
    fs_cursor_free(cursor);
    fs_table_free(table);
    fs_tx_free(tx);
}

/* A destructor of the program, which runs after those of the library. */
static void at_thread_end(void *arg) {
    EXPECT(FS_INVALID, fs_sync(NULL));
    CHECK(!strcmp(fs_message(), ""));
    *(int *)arg = 1;
}

static pthread_key_t key;

static void *end_late(void *arg) {
    CHECK(pthread_setspecific(key, arg) == 0);
    EXPECT(FS_INVALID, fs_sync(NULL));
    return NULL;
}

static void ending_threads(void) {
    int has_run = 0;
    pthread_t thread;
    CHECK(pthread_key_create(&key, at_thread_end) == 0);
    CHECK(pthread_create(&thread, NULL, end_late, &has_run) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && has_run);
}

void test_misuse(const char *folder) {
    fs_db *db = open_in_memory();
    nulls(db);
    options(db);
    ended(db);
    threads(db);
    ending_threads();
    fs_db_free(db);
    forks(folder);
}
