/* A database on disk: open, close, backup, check, statistics. */
#include "test.h"

static fs_db *open_with(const char *path, uint32_t flags) {
    fs_options options = {.struct_size = sizeof options, .flags = flags, .lock_timeout_ms = 500, .max_transactions = 64};
    fs_db *db = NULL;
    OK(fs_open(path, &options, &db));
    return db;
}

/* The log that a restart may have to read follows from its time, at 32 MiB a second until one was measured. */
static void restart_target(void) {
    fs_options options = {.struct_size = sizeof options, .flags = FS_OPEN_IN_MEMORY, .restart_target_ms = 4000};
    fs_db *db = NULL;
    fs_buffer *json = fs_buffer_new();
    OK(fs_open(NULL, &options, &db));
    OK(fs_stats_json(db, json));
    static const char budget[] = "\"budget\":134217728}";
    CHECK(memmem(fs_buffer_data(json), fs_buffer_len(json), budget, sizeof budget - 1));
    fs_buffer_free(json);
    fs_db_free(db);
}

static int stats_have(fs_db *db, const char *text) {
    fs_buffer *json = fs_buffer_new();
    OK(fs_stats_json(db, json));
    int is_there = memmem(fs_buffer_data(json), fs_buffer_len(json), text, strlen(text)) != NULL;
    fs_buffer_free(json);
    return is_there;
}

/* How the files are written. */
static void storage(const char *folder) {
    char path[512];
    snprintf(path, sizeof path, "%s/storage", folder);
    fs_db *db = NULL;
    fs_options options = {.struct_size = sizeof options, .device = "buffered", .doublewrite = "off"};
    OK(fs_open(path, &options, &db));
    CHECK(stats_have(db, "\"backend\":\"buffered\"") && stats_have(db, "\"page_writes\":\"plain\""));
    fs_db_free(db);
    options.device = NULL;
    options.doublewrite = "on";
    options.group_window_us = FS_NO_WINDOW;
    OK(fs_open(path, &options, &db));
    CHECK(stats_have(db, "\"page_writes\":\"doublewrite\""));
    fs_db_free(db);
    options.group_window_us = 20000000; /* more than 10 s */
    EXPECT(FS_INVALID, fs_open(path, &options, &db));
    CHECK(strstr(fs_message(), "group"));
    options.group_window_us = 100;
    options.device = "floppy";
    EXPECT(FS_INVALID, fs_open(path, &options, &db));
    options.device = NULL;
    options.doublewrite = "perhaps";
    EXPECT(FS_INVALID, fs_open(path, &options, &db));
}

static void has_row(fs_db *db) {
    fs_tx *tx = NULL;
    fs_table *table = NULL;
    fs_buffer *value = fs_buffer_new();
    OK(fs_begin_read(db, NULL, &tx));
    OK(fs_table_open(tx, "rows", &table));
    OK(fs_get(table, "k", 1, value));
    CHECK(fs_buffer_len(value) == 1);
    fs_buffer_free(value);
    fs_table_free(table);
    fs_tx_free(tx);
}

void test_database(const char *folder) {
    char path[512], copy[512];
    snprintf(path, sizeof path, "%s/database", folder);
    snprintf(copy, sizeof copy, "%s/copy", folder);
    restart_target();
    storage(folder);
    fs_db *db = NULL, *other = NULL;
    fs_options existing = {.struct_size = sizeof existing, .flags = FS_OPEN_EXISTING};
    EXPECT(FS_NO_DATABASE, fs_open(path, &existing, &db));

    db = open_with(path, 0);
    EXPECT(FS_LOCKED, fs_open(path, NULL, &other));
    fs_tx *tx = NULL;
    fs_table *table = begin(db, NULL, &tx);
    OK(fs_put(table, "k", 1, "v", 1));
    uint64_t csn = 0;
    OK(fs_commit(tx, &csn));
    CHECK(csn > 0);
    fs_table_free(table);
    fs_tx_free(tx);

    /* Another transaction holds the row: the wait has an end. */
    fs_tx *holder = NULL;
    fs_table *held = begin(db, NULL, &holder);
    OK(fs_put(held, "k", 1, "w", 1));
    table = begin(db, NULL, &tx);
    EXPECT(FS_OWN_THREAD_LOCK, fs_put(table, "k", 1, "x", 1));
    fs_table_free(held);
    fs_table_free(table);
    fs_tx_free(holder);
    fs_tx_free(tx);

    OK(fs_checkpoint(db));
    fs_report report = {0};
    OK(fs_check(db, &report));
    CHECK(report.tables == 1 && report.rows == 1 && report.pages > 0 && report.damaged == 0);
    OK(fs_check(db, NULL));
    table = begin(db, NULL, &tx);
    static const char large[100000];
    for (unsigned i = 0; i < 100; i++)
        OK(fs_put(table, &i, sizeof i, large, sizeof large));
    OK(fs_commit(tx, NULL));
    fs_table_free(table);
    fs_tx_free(tx);
    table = begin(db, NULL, &tx);
    fs_range numbers = {.upper = "k", .upper_len = 1};
    OK(fs_delete_range(table, &numbers, NULL));
    OK(fs_commit(tx, NULL));
    fs_table_free(table);
    fs_tx_free(tx);
    uint64_t truncated = 0;
    OK(fs_compact(db, &truncated));
    CHECK(truncated > 0);
    OK(fs_compact(db, NULL));
    fs_backup_info info = {0};
    OK(fs_backup(db, copy, &info));
    CHECK(info.csn >= csn && info.pages > 0 && info.quarantined == 0);
    EXPECT(FS_BAD_BACKUP, fs_backup(db, copy, NULL));
    fs_buffer *json = fs_buffer_new();
    OK(fs_stats_json(db, json));
    CHECK(fs_buffer_len(json) > 100 && *(const char *)fs_buffer_data(json) == '{');
    fs_buffer_free(json);

    OK(fs_close(db, 1000));
    OK(fs_begin(db, NULL, &tx));
    EXPECT(FS_CLOSED, fs_table_open(tx, "rows", &table));
    fs_tx_free(tx);
    EXPECT(FS_CLOSED, fs_sync(db));
    fs_db_free(db);

    db = open_with(path, FS_OPEN_READ_ONLY);
    other = open_with(path, FS_OPEN_READ_ONLY);
    has_row(db);
    table = begin(other, NULL, &tx);
    EXPECT(FS_READ_ONLY, fs_put(table, "k", 1, "w", 1));
    fs_table_free(table);
    fs_tx_free(tx);
    fs_db_free(db);
    fs_db_free(other);

    /* A backup has to be opened for writing once. */
    fs_options read_only = {.struct_size = sizeof read_only, .flags = FS_OPEN_READ_ONLY};
    EXPECT(FS_NOT_CLOSED, fs_open(copy, &read_only, &db));
    db = open_with(copy, FS_OPEN_EXISTING);
    has_row(db);
    fs_db_free(db);
}
