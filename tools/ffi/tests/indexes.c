/* Secondary indexes: built, kept, read, checked and dropped. */
#include "test.h"

/* A key for each letter of the value. A value that begins with `!` has no such form. */
static int letters(void *arg, const void *key, size_t key_len, const void *value, size_t value_len, fs_keys *keys) {
    (void)key, (void)key_len;
    const char *text = value;
    ++*(unsigned *)arg;
    if (value_len > 0 && text[0] == '!')
        return 1;
    for (size_t i = 0; i < value_len; i++)
        OK(fs_keys_add(keys, text + i, 1));
    return 0;
}

/* The value itself. */
static int whole(void *arg, const void *key, size_t key_len, const void *value, size_t value_len, fs_keys *keys) {
    (void)key, (void)key_len;
    fs_tx *tx = *(fs_tx **)arg;
    uint64_t savepoint = 0;
    if (tx)
        EXPECT(FS_IN_USE, fs_savepoint(tx, &savepoint)); /* it must not use the transaction */
    OK(fs_keys_add(keys, value, value_len));
    return 0;
}

static fs_index *define(const char *name, fs_index_keys keys, void *arg, uint64_t version, uint32_t unique) {
    fs_index_options options = {
        .struct_size = sizeof options, .name = name, .keys = keys, .arg = arg, .version = version, .unique = unique};
    fs_index *index = NULL;
    OK(fs_index_new(&options, &index));
    return index;
}

static fs_status open_indexed(fs_tx *tx, const fs_index *const *indexes, size_t count, fs_table **table) {
    return fs_table_open_indexed(tx, "indexed", "bytes", "bytes", indexes, count, table);
}

/* The keys of the rows that a scan returns, each of one letter. */
static const char *found(fs_table *table, fs_index *index, const char *lower, const char *upper, uint32_t direction) {
    static char keys[64];
    fs_range range = {.lower = lower, .lower_len = 1, .upper = upper, .upper_len = 1, .flags = FS_UPPER_INCLUDED};
    fs_cursor *cursor = NULL;
    const void *key;
    size_t count = 0, key_len;
    fs_status status;
    OK(fs_index_scan(table, index, &range, direction, &cursor));
    while ((status = fs_cursor_next(cursor, &key, &key_len, NULL, NULL)) == FS_OK) {
        CHECK(key_len == 1 && count < sizeof keys - 1);
        keys[count++] = *(const char *)key;
    }
    EXPECT(FS_NOT_FOUND, status);
    fs_cursor_free(cursor);
    keys[count] = 0;
    return keys;
}

static void rows(fs_table *table, fs_index *by_letter, fs_index *by_value) {
    fs_buffer *key = fs_buffer_new(), *value = fs_buffer_new();
    OK(fs_put(table, "1", 1, "abc", 3));
    OK(fs_put(table, "2", 1, "bd", 2));
    OK(fs_put(table, "3", 1, "b\0", 2));
    CHECK(!strcmp(found(table, by_letter, "b", "b", FS_FORWARD), "123"));
    CHECK(!strcmp(found(table, by_letter, "b", "b", FS_BACKWARD), "321"));
    CHECK(!strcmp(found(table, by_letter, "c", NULL, FS_FORWARD), "12"));
    CHECK(!strcmp(found(table, by_letter, NULL, "a", FS_FORWARD), "31"));
    OK(fs_index_get(table, by_value, "bd", 2, key, value));
    CHECK(fs_buffer_len(key) == 1 && *(const char *)fs_buffer_data(key) == '2' && fs_buffer_len(value) == 2);
    OK(fs_index_get(table, by_letter, "b", 1, key, NULL));
    CHECK(*(const char *)fs_buffer_data(key) == '1');
    EXPECT(FS_NOT_FOUND, fs_index_get(table, by_value, "b", 1, key, value));
    CHECK(fs_buffer_len(key) == 0 && fs_buffer_len(value) == 0);

    /* A write that is refused changes nothing, and each other write keeps both. */
    EXPECT(FS_INDEX_KEY_EXISTS, fs_put(table, "4", 1, "bd", 2));
    EXPECT(FS_NOT_FOUND, fs_contains(table, "4", 1));
    OK(fs_put(table, "1", 1, "x", 1));
    OK(fs_delete(table, "2", 1));
    CHECK(!strcmp(found(table, by_letter, NULL, NULL, FS_FORWARD), "331"));
    uint64_t entries = 0;
    OK(fs_index_check(table, by_letter, &entries));
    CHECK(entries == 3);
    OK(fs_index_check(table, by_value, NULL));
    fs_buffer_free(key);
    fs_buffer_free(value);
}

/* The transactions that find a table with its indexes. */
static void later(fs_db *db, fs_index *by_letter) {
    fs_tx *tx = NULL;
    fs_table *table = NULL;
    OK(fs_begin_read(db, NULL, &tx));
    OK(open_indexed(tx, NULL, 0, &table));
    CHECK(!strcmp(found(table, by_letter, "x", "x", FS_FORWARD), "1"));
    fs_table_free(table);
    fs_tx_free(tx);

    OK(fs_begin(db, NULL, &tx));
    OK(open_indexed(tx, NULL, 0, &table));
    EXPECT(FS_INDEXED, fs_put(table, "5", 1, "y", 1));
    fs_table_free(table);
    OK(fs_table_open_existing(tx, "indexed", &table));
    EXPECT(FS_INVALID, fs_index_get(table, by_letter, "x", 1, NULL, NULL)); /* its types are not known */
    fs_table_free(table);
    EXPECT(FS_NOT_FOUND, fs_drop_index(tx, "indexed", "none"));
    OK(fs_drop_index(tx, "indexed", "by value"));
    const fs_index *indexes[] = {by_letter};
    OK(open_indexed(tx, indexes, 1, &table));
    OK(fs_put(table, "5", 1, "y", 1));
    EXPECT(FS_UNDECODABLE, fs_put(table, "6", 1, "!", 1));
    EXPECT(FS_ROLLED_BACK, fs_contains(table, "5", 1));
    fs_table_free(table);
    fs_tx_free(tx);
}

/* An index with another version is built anew, and one that is missing is told. */
static void versions(fs_db *db, fs_index *old) {
    unsigned calls = 0;
    fs_index *new = define("by letter", letters, &calls, 2, 0);
    fs_index *none = define("none", letters, &calls, 0, 0);
    const fs_index *indexes[] = {new};
    fs_tx *tx = NULL;
    fs_table *table = NULL;
    OK(fs_begin(db, NULL, &tx));
    OK(fs_drop_index(tx, "indexed", "by value"));
    OK(open_indexed(tx, indexes, 1, &table));
    CHECK(calls == 2); /* rows 1 and 3 */
    EXPECT(FS_INVALID, open_indexed(tx, indexes, SIZE_MAX / 2, &table));
    CHECK(!strcmp(found(table, new, "x", "x", FS_FORWARD), "1"));
    EXPECT(FS_INDEX_TYPES, fs_index_get(table, old, "x", 1, NULL, NULL));
    EXPECT(FS_NO_INDEX, fs_index_get(table, none, "x", 1, NULL, NULL));
    OK(fs_commit(tx, NULL));
    fs_table_free(table);
    fs_tx_free(tx);
    fs_index_free(new);
    fs_index_free(none);
}

static void misuse(fs_table *table, fs_index *index) {
    fs_index *none = NULL;
    fs_cursor *cursor = NULL;
    fs_index_options options = {.struct_size = sizeof options, .name = "x"};
    EXPECT(FS_INVALID, fs_index_new(NULL, &none));
    EXPECT(FS_INVALID, fs_index_new(&options, &none));
    options.keys = letters;
    EXPECT(FS_INVALID, fs_index_new(&options, NULL));
    EXPECT(FS_INVALID, fs_keys_add(NULL, "x", 1));
    EXPECT(FS_INVALID, fs_index_get(table, NULL, "x", 1, NULL, NULL));
    EXPECT(FS_INVALID, fs_index_get(table, index, NULL, 1, NULL, NULL));
    EXPECT(FS_INVALID, fs_index_scan(table, index, NULL, 9, &cursor));
    EXPECT(FS_INVALID, fs_index_check(NULL, index, NULL));
    EXPECT(FS_INVALID, fs_drop_index(NULL, "t", "i"));
    EXPECT(FS_INVALID, fs_table_open_indexed(NULL, "t", "bytes", "bytes", NULL, 0, &table));
    fs_index_free(NULL);
}

void test_indexes(void) {
    fs_db *db = open_in_memory();
    fs_tx *tx = NULL;
    fs_table *table = NULL;
    unsigned calls = 0;
    static fs_tx *writer; /* of the function, whose argument stays */
    fs_index *by_letter = define("by letter", letters, &calls, 0, 0);
    fs_index *by_value = define("by value", whole, &writer, 0, 1);
    const fs_index *indexes[] = {by_letter, by_value};
    OK(fs_begin(db, NULL, &tx));
    EXPECT(FS_INVALID, open_indexed(tx, NULL, 1, &table));
    writer = tx;
    OK(open_indexed(tx, indexes, 2, &table));
    rows(table, by_letter, by_value);
    CHECK(calls > 0);
    misuse(table, by_letter);
    OK(fs_commit(tx, NULL));
    writer = NULL;
    EXPECT(FS_ENDED, fs_index_get(table, by_letter, "x", 1, NULL, NULL));
    fs_table_free(table);
    fs_tx_free(tx);
    later(db, by_letter);
    versions(db, by_letter);
    fs_index_free(by_letter);
    fs_index_free(by_value);
    fs_db_free(db);
}
