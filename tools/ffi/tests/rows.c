/* Rows, scans and ranges. */
#include "test.h"

/* Reads all keys of a scan, each of one letter, and ends it. */
static const char *keys(fs_cursor *cursor) {
    static char found[64];
    size_t count = 0, key_len, value_len;
    const void *key, *value;
    fs_status status;
    while ((status = fs_cursor_next(cursor, &key, &key_len, &value, &value_len)) == FS_OK) {
        CHECK(key_len == 1 && count < sizeof found - 1);
        CHECK(value_len == 1 && memcmp(key, value, 1) == 0);
        found[count++] = *(const char *)key;
    }
    EXPECT(FS_NOT_FOUND, status);
    EXPECT(FS_NOT_FOUND, fs_cursor_next(cursor, NULL, NULL, NULL, NULL));
    fs_cursor_free(cursor);
    found[count] = 0;
    return found;
}

static const char *range(fs_table *table, const char *lower, const char *upper, uint32_t flags, uint32_t direction) {
    fs_range range = {.lower = lower, .lower_len = 1, .upper = upper, .upper_len = 1, .flags = flags};
    fs_cursor *cursor = NULL;
    OK(fs_scan(table, &range, direction, &cursor));
    return keys(cursor);
}

static void points(fs_table *table, fs_buffer *value) {
    EXPECT(FS_NOT_FOUND, fs_get(table, "a", 1, value));
    CHECK(fs_buffer_len(value) == 0);
    OK(fs_put(table, "a", 1, "one", 3));
    OK(fs_put(table, "a", 1, "two", 3));
    OK(fs_get(table, "a", 1, value));
    CHECK(fs_buffer_len(value) == 3 && memcmp(fs_buffer_data(value), "two", 3) == 0);
    OK(fs_get_for_update(table, "a", 1, value));
    CHECK(fs_buffer_len(value) == 3);
    EXPECT(FS_NOT_FOUND, fs_get_for_update(table, "b", 1, value));
    CHECK(fs_buffer_len(value) == 0);
    EXPECT(FS_KEY_EXISTS, fs_insert(table, "a", 1, "x", 1));
    OK(fs_insert(table, "", 0, NULL, 0)); /* an empty key, an empty value */
    OK(fs_get(table, NULL, 0, value));
    OK(fs_contains(table, "a", 1));
    EXPECT(FS_NOT_FOUND, fs_contains(table, "b", 1));
    OK(fs_delete(table, "a", 1));
    EXPECT(FS_NOT_FOUND, fs_delete(table, "a", 1));
    OK(fs_delete(table, "", 0));

    char large[2000];
    memset(large, 'k', sizeof large);
    EXPECT(FS_KEY_TOO_LARGE, fs_put(table, large, sizeof large, "", 0));
    size_t size = 3 << 20;
    char *huge = malloc(size);
    CHECK(huge);
    memset(huge, 'v', size);
    OK(fs_put(table, "huge", 4, huge, size));
    OK(fs_get(table, "huge", 4, value));
    CHECK(fs_buffer_len(value) == size && memcmp(fs_buffer_data(value), huge, size) == 0);
    OK(fs_delete(table, "huge", 4));
    free(huge);
}

static void scans(fs_table *table) {
    for (char key = 'a'; key <= 'h'; key++)
        OK(fs_put(table, &key, 1, &key, 1));
    CHECK(!strcmp(range(table, NULL, NULL, 0, FS_FORWARD), "abcdefgh"));
    CHECK(!strcmp(range(table, NULL, NULL, 0, FS_BACKWARD), "hgfedcba"));
    CHECK(!strcmp(range(table, "c", "f", 0, FS_FORWARD), "cde"));
    CHECK(!strcmp(range(table, "c", "f", FS_LOWER_EXCLUDED | FS_UPPER_INCLUDED, FS_FORWARD), "def"));
    CHECK(!strcmp(range(table, "c", NULL, FS_LOWER_EXCLUDED, FS_BACKWARD), "hgfed"));
    CHECK(!strcmp(range(table, "f", "c", 0, FS_FORWARD), ""));

    fs_cursor *cursor = NULL;
    OK(fs_scan(table, NULL, FS_FORWARD, &cursor));
    CHECK(!strcmp(keys(cursor), "abcdefgh"));
    OK(fs_scan_prefix(table, "c", 1, FS_FORWARD, &cursor));
    CHECK(!strcmp(keys(cursor), "c"));
    OK(fs_scan_prefix(table, "", 0, FS_BACKWARD, &cursor));
    CHECK(!strcmp(keys(cursor), "hgfedcba"));

    uint64_t count = 0;
    fs_range some = {.lower = "b", .lower_len = 1, .upper = "d", .upper_len = 1};
    OK(fs_count(table, &some, &count));
    CHECK(count == 2);
    OK(fs_delete_range(table, &some, &count));
    CHECK(count == 2);
    OK(fs_count(table, NULL, &count));
    CHECK(count == 6);
    OK(fs_delete_range(table, NULL, NULL));
    OK(fs_count(table, NULL, &count));
    CHECK(count == 0);
}

static void types(fs_tx *tx) {
    fs_table *table = NULL;
    OK(fs_table_open_typed(tx, "stock", "u64", "i64", &table));
    fs_table_free(table);
    EXPECT(FS_TABLE_TYPES, fs_table_open(tx, "stock", &table));
    OK(fs_table_open_existing(tx, "stock", &table));
    /* The key 7 and the value 10, as Rust programs write them. */
    OK(fs_put(table, "\0\0\0\0\0\0\0\7", 8, "\12\0\0\0\0\0\0\0", 8));
    fs_table_free(table);
    EXPECT(FS_NO_TABLE, fs_table_open_existing(tx, "none", &table));
    EXPECT(FS_TABLE_NAME, fs_table_open(tx, "", &table));

    fs_buffer *names = fs_buffer_new();
    uint64_t count = 0;
    OK(fs_tables(tx, names, &count));
    static const char both[] = "rows\0bytes\0bytes\0stock\0u64\0i64";
    CHECK(count == 2 && fs_buffer_len(names) == sizeof both && memcmp(fs_buffer_data(names), both, sizeof both) == 0);
    EXPECT(FS_INVALID, fs_tables(tx, NULL, NULL));
    fs_buffer_free(names);

    EXPECT(FS_NOT_FOUND, fs_rename_table(tx, "none", "other"));
    EXPECT(FS_TABLE_EXISTS, fs_rename_table(tx, "stock", "rows"));
    EXPECT(FS_TABLE_NAME, fs_rename_table(tx, "stock", ""));
    OK(fs_rename_table(tx, "stock", "stored"));
    EXPECT(FS_NO_TABLE, fs_table_open_existing(tx, "stock", &table));
    OK(fs_table_open_typed(tx, "stored", "u64", "i64", &table));
    OK(fs_contains(table, "\0\0\0\0\0\0\0\7", 8));
    fs_table_free(table);
    EXPECT(FS_NOT_FOUND, fs_clear_table(tx, "stock"));
    OK(fs_clear_table(tx, "stored"));
    OK(fs_table_open_typed(tx, "stored", "u64", "i64", &table));
    EXPECT(FS_NOT_FOUND, fs_contains(table, "\0\0\0\0\0\0\0\7", 8));
    fs_table_free(table);
    OK(fs_rename_table(tx, "stored", "stock"));
    OK(fs_drop_table(tx, "stock"));
    EXPECT(FS_NOT_FOUND, fs_drop_table(tx, "stock"));
}

void test_rows(void) {
    fs_db *db = open_in_memory();
    fs_buffer *value = fs_buffer_new();
    fs_tx *tx = NULL;
    fs_table *table = begin(db, NULL, &tx);
    points(table, value);
    scans(table);
    types(tx);
    uint64_t first = 0, second = 0;
    OK(fs_next_id(table, &first));
    OK(fs_next_id(table, &second));
    CHECK(second > first);
    OK(fs_commit(tx, NULL));
    fs_table_free(table);
    fs_tx_free(tx);
    fs_buffer_free(value);
    fs_db_free(db);
}
