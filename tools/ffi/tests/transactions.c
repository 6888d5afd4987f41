/* Isolation, rollback, savepoints and runs. */
#include "test.h"
#include <pthread.h>

static void savepoints(fs_db *db) {
    fs_tx *tx = NULL;
    fs_table *table = begin(db, NULL, &tx);
    uint64_t first = 0, second = 0;
    OK(fs_savepoint(tx, &first));
    OK(fs_put(table, "s", 1, "1", 1));
    OK(fs_savepoint(tx, &second));
    OK(fs_delete(table, "s", 1));
    OK(fs_rollback_to(tx, second));
    OK(fs_contains(table, "s", 1));
    OK(fs_rollback_to(tx, first));
    EXPECT(FS_NOT_FOUND, fs_contains(table, "s", 1));
    EXPECT(FS_NO_SAVEPOINT, fs_rollback_to(tx, second));
    OK(fs_release(tx, first));
    EXPECT(FS_NO_SAVEPOINT, fs_release(tx, first));
    OK(fs_put(table, "r", 1, "1", 1));
    OK(fs_rollback(tx));
    EXPECT(FS_ENDED, fs_rollback(tx));
    fs_table_free(table);
    fs_tx_free(tx);
    table = begin(db, NULL, &tx);
    EXPECT(FS_NOT_FOUND, fs_contains(table, "r", 1));
    OK(fs_put(table, "r", 1, "1", 1));
    fs_tx_free(tx); /* rolls back */
    fs_table_free(table);
}

static void conflicts(fs_db *db) {
    fs_tx_options snapshot = {
        .struct_size = sizeof snapshot, .isolation = FS_SNAPSHOT, .durability = FS_RELAXED, .label = "old"};
    fs_tx *old = NULL, *young = NULL, *reader = NULL;
    fs_table *mine = begin(db, &snapshot, &old);
    EXPECT(FS_NOT_FOUND, fs_contains(mine, "c", 1));
    fs_table *other = begin(db, NULL, &young);
    OK(fs_put(other, "c", 1, "1", 1));
    OK(fs_commit(young, NULL));
    fs_status status = fs_put(mine, "c", 1, "2", 1);
    EXPECT(FS_CONFLICT, status);
    CHECK(fs_is_retryable(status) && strlen(fs_message()) > 0);
    CHECK(!fs_is_retryable(FS_KEY_EXISTS) && !fs_is_retryable(FS_OK));
    EXPECT(FS_ROLLED_BACK, fs_contains(mine, "c", 1));
    EXPECT(FS_ROLLED_BACK, fs_commit(old, NULL));
    fs_table_free(mine);
    fs_table_free(other);
    fs_tx_free(old);
    fs_tx_free(young);

    fs_tx_options latest = {.struct_size = sizeof latest, .label = "report", .latest = 1};
    OK(fs_begin_read(db, &latest, &reader));
    OK(fs_table_open(reader, "rows", &mine));
    OK(fs_contains(mine, "c", 1));
    EXPECT(FS_READ_ONLY, fs_put(mine, "c", 1, "3", 1));
    EXPECT(FS_NO_TABLE, fs_table_open(reader, "none", &other));
    OK(fs_commit(reader, NULL));
    fs_table_free(mine);
    fs_tx_free(reader);
}

/* A snapshot beyond its limit ends, of bytes or of age, of its own or of the database. */
static void snapshot_limits(void) {
    enum { OF_TX_BYTES, OF_DB_BYTES, OF_TX_AGE, OF_DB_AGE, NONE, KEYS = 250 };
    for (int limit = OF_TX_BYTES; limit <= NONE; limit++) {
        fs_options of_db = {.struct_size = sizeof of_db, .flags = FS_OPEN_IN_MEMORY, .memory_limit = 64 << 20};
        fs_tx_options of_tx = {.struct_size = sizeof of_tx};
        of_db.snapshot_max_bytes = limit == OF_DB_BYTES ? 64 << 10 : 0;
        of_tx.snapshot_max_bytes = limit == OF_TX_BYTES ? 64 << 10 : 0;
        of_db.snapshot_max_age_ms = limit == OF_DB_AGE;
        of_tx.snapshot_max_age_ms = limit == OF_TX_AGE;
        fs_db *db = NULL;
        fs_tx *reader = NULL, *tx = NULL;
        fs_table *old = NULL;
        static char value[1000];
        OK(fs_open(NULL, &of_db, &db));
        fs_table *table = begin(db, NULL, &tx);
        for (int key = 0; key < KEYS; key++)
            OK(fs_put(table, &key, sizeof key, value, sizeof value));
        OK(fs_commit(tx, NULL));
        fs_table_free(table);
        fs_tx_free(tx);
        OK(fs_begin_read(db, &of_tx, &reader));
        OK(fs_table_open(reader, "rows", &old));
        int first = 0;
        OK(fs_contains(old, &first, sizeof first));
        /* Old versions of 1000 bytes, kept for the reader alone. The writers also find out that it is too old. */
        fs_status status = FS_OK;
        for (int i = 0; i < 20 * KEYS && status == FS_OK; i++) {
            int key = i % KEYS;
            table = begin(db, NULL, &tx);
            OK(fs_put(table, &key, sizeof key, value, sizeof value));
            OK(fs_commit(tx, NULL));
            fs_table_free(table);
            fs_tx_free(tx);
            status = fs_contains(old, &first, sizeof first);
        }
        EXPECT(limit == NONE ? FS_OK : FS_SNAPSHOT_TOO_OLD, status);
        fs_table_free(old);
        fs_tx_free(reader);
        fs_db_free(db);
    }
}

struct transfer {
    fs_db *db;
    const char *first, *second;
    int runs;
};

static int add_to_both(fs_tx *tx, void *arg) {
    struct transfer *transfer = arg;
    fs_table *table = NULL;
    fs_status status = fs_table_open(tx, "rows", &table);
    const char *names[] = {transfer->first, transfer->second};
    fs_buffer *value = fs_buffer_new();
    transfer->runs++;
    for (int i = 0; status == FS_OK && i < 2; i++) {
        unsigned count = 0;
        status = fs_get(table, names[i], 1, value);
        if (status == FS_OK)
            memcpy(&count, fs_buffer_data(value), sizeof count);
        if (status == FS_OK || status == FS_NOT_FOUND) {
            count++;
            status = fs_put(table, names[i], 1, &count, sizeof count);
        }
    }
    fs_buffer_free(value);
    fs_table_free(table);
    return (int)status;
}

enum { RUNS = 200 };

static void *add_often(void *arg) {
    struct transfer *transfer = arg;
    fs_tx_options options = {.struct_size = sizeof options, .durability = FS_RELAXED, .deadline_ms = 60000};
    for (int i = 0; i < RUNS; i++)
        OK(fs_run(transfer->db, &options, add_to_both, transfer, NULL));
    return NULL;
}

static unsigned count_of(fs_db *db, const char *name) {
    unsigned count = 0;
    fs_tx *tx = NULL;
    fs_table *table = begin(db, NULL, &tx);
    fs_buffer *value = fs_buffer_new();
    OK(fs_get(table, name, 1, value));
    memcpy(&count, fs_buffer_data(value), sizeof count);
    fs_buffer_free(value);
    fs_table_free(table);
    fs_tx_free(tx);
    return count;
}

static int refuse(fs_tx *tx, void *arg) {
    fs_table *table = NULL;
    EXPECT(FS_INVALID, fs_commit(tx, NULL)); /* the run ends it */
    EXPECT(FS_INVALID, fs_rollback(tx));
    OK(fs_table_open(tx, "rows", &table));
    OK(fs_put(table, "x", 1, "1", 1));
    *(fs_table **)arg = table;
    return 7;
}

static void runs(fs_db *db) {
    /* Two threads that meet in a deadlock again and again, and lose nothing. */
    struct transfer one = {db, "p", "q", 0}, two = {db, "q", "p", 0};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, add_often, &one) == 0);
    add_often(&two);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(count_of(db, "p") == 2 * RUNS && count_of(db, "q") == 2 * RUNS);
    CHECK(one.runs >= RUNS && two.runs >= RUNS);

    fs_table *kept = NULL;
    int result = 0;
    EXPECT(FS_ABORTED, fs_run(db, NULL, refuse, &kept, &result));
    CHECK(result == 7);
    EXPECT(FS_ENDED, fs_contains(kept, "x", 1));
    fs_table_free(kept);
}

struct writer {
    fs_tx *tx;
    fs_table *table;
    const char *second;
    fs_status status;
};

static void *write_second(void *arg) {
    struct writer *writer = arg;
    writer->status = fs_put(writer->table, writer->second, 1, "", 0);
    return NULL;
}

/* Of two transactions that wait for each other, one is told of the deadlock and the other goes on. */
static void deadlocks(fs_db *db) {
    struct writer one = {.second = "b"}, two = {.second = "a"};
    one.table = begin(db, NULL, &one.tx);
    two.table = begin(db, NULL, &two.tx);
    OK(fs_put(one.table, "a", 1, "", 0));
    OK(fs_put(two.table, "b", 1, "", 0));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, write_second, &one) == 0);
    write_second(&two);
    CHECK(pthread_join(thread, NULL) == 0);
    EXPECT(one.status == FS_OK ? FS_DEADLOCK : FS_OK, two.status);
    EXPECT(one.status == FS_OK ? FS_OK : FS_DEADLOCK, one.status);
    EXPECT(FS_ROLLED_BACK, fs_commit(one.status == FS_OK ? two.tx : one.tx, NULL));
    OK(fs_commit(one.status == FS_OK ? one.tx : two.tx, NULL));
    fs_table_free(one.table);
    fs_table_free(two.table);
    fs_tx_free(one.tx);
    fs_tx_free(two.tx);
}

void test_transactions(void) {
    fs_db *db = open_in_memory();
    fs_tx *tx = NULL;
    fs_table_free(begin(db, NULL, &tx));
    OK(fs_commit(tx, NULL)); /* the table exists */
    fs_tx_free(tx);
    savepoints(db);
    conflicts(db);
    deadlocks(db);
    runs(db);
    fs_db_free(db);
    snapshot_limits();
}
