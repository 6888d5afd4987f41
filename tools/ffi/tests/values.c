/* Values in parts, and values that a function changes. */
#include "test.h"

enum { SIZE = 3 << 20 };

struct source {
    size_t left, upto; /* it fails where `upto` bytes are left */
    fs_table *table;
};

struct rows {
    unsigned next, end, refuses_at;
    fs_table *table;
    unsigned char key[4];
};

/* Rows of ascending numbers, whose values are their keys. */
static int next_row(void *arg, const void **key, size_t *key_len, const void **value, size_t *value_len) {
    struct rows *rows = arg;
    EXPECT(FS_IN_USE, fs_contains(rows->table, "k", 1)); /* it must not use the transaction */
    if (rows->next == rows->end)
        return FS_NOT_FOUND;
    if (rows->next == rows->refuses_at && rows->refuses_at > 0)
        return 7;
    for (int i = 0; i < 4; i++)
        rows->key[i] = (unsigned char)(rows->next >> (24 - 8 * i));
    rows->next++;
    *key = *value = rows->key;
    *key_len = *value_len = sizeof rows->key;
    return 0;
}

static uint64_t pages_of(fs_db *db) {
    fs_report report = {0};
    OK(fs_check(db, &report));
    return report.pages;
}

/* A load is whole or nothing. The next numbers go on above those of its rows. */
static void loads(fs_db *db) {
    fs_tx *tx = NULL;
    fs_table *table = NULL;
    uint64_t count = 0, id = 0;
    OK(fs_begin(db, NULL, &tx));
    OK(fs_table_open(tx, "loaded", &table));
    struct rows rows = {.end = 20000, .refuses_at = 10000, .table = table};
    EXPECT(FS_ABORTED, fs_load(table, NULL, next_row, &rows, &count));
    CHECK(strstr(fs_message(), "7") && count == 0);
    OK(fs_count(table, NULL, &count));
    CHECK(count == 0);
    rows = (struct rows){.end = 20000, .table = table};
    OK(fs_load(table, NULL, next_row, &rows, &count));
    CHECK(count == 20000);
    rows.next = 0;
    EXPECT(FS_LOAD_ORDER, fs_load(table, NULL, next_row, &rows, NULL));
    rows = (struct rows){.next = 20000, .end = 20010, .table = table};
    OK(fs_load(table, NULL, next_row, &rows, NULL));
    OK(fs_count(table, NULL, &count));
    CHECK(count == 20010);
    OK(fs_contains(table, "\0\0\x4e\x29", 4)); /* 20009 */
    OK(fs_skip_ids(table, 20009));
    OK(fs_next_id(table, &id));
    CHECK(id == 20010);
    OK(fs_skip_ids(table, 5)); /* never back */
    OK(fs_next_id(table, &id));
    CHECK(id == 20011);
    EXPECT(FS_INVALID, fs_skip_ids(table, UINT64_MAX));
    EXPECT(FS_INVALID, fs_skip_ids(NULL, 1));
    EXPECT(FS_INVALID, fs_load(NULL, NULL, next_row, &rows, NULL));
    EXPECT(FS_INVALID, fs_load(table, NULL, NULL, NULL, NULL));
    OK(fs_commit(tx, NULL));
    fs_table_free(table);
    fs_tx_free(tx);

    /* Pages that are filled to a tenth are about ten times as many. */
    uint64_t before = pages_of(db);
    fs_load_options sparse = {.struct_size = sizeof sparse, .fill_percent = 10};
    OK(fs_begin(db, NULL, &tx));
    OK(fs_table_open(tx, "sparse", &table));
    rows = (struct rows){.end = 20000, .table = table};
    OK(fs_load(table, &sparse, next_row, &rows, NULL));
    sparse.fill_percent = 300;
    EXPECT(FS_INVALID, fs_load(table, &sparse, next_row, &rows, NULL));
    OK(fs_commit(tx, NULL));
    fs_table_free(table);
    fs_tx_free(tx);
    CHECK(pages_of(db) - before > 5 * before);
}

/* Bytes that count down, in pieces of odd lengths. */
static ptrdiff_t next_bytes(void *arg, void *buffer, size_t len) {
    struct source *source = arg;
    if (source->left == source->upto && source->upto > 0)
        return -1;
    EXPECT(FS_IN_USE, fs_contains(source->table, "k", 1)); /* it must not use the transaction */
    size_t count = len > 1001 ? 1001 : len;
    if (count > source->left - source->upto)
        count = source->left - source->upto;
    for (size_t i = 0; i < count; i++)
        ((unsigned char *)buffer)[i] = (unsigned char)(source->left-- % 251);
    return (ptrdiff_t)count;
}

static ptrdiff_t too_many(void *arg, void *buffer, size_t len) {
    (void)arg, (void)buffer;
    return (ptrdiff_t)len + 1;
}

static void streams(fs_tx *tx, fs_table *table) {
    struct source source = {.left = SIZE, .table = table};
    uint64_t written = 0;
    OK(fs_put_reader(table, "large", 5, next_bytes, &source, &written));
    CHECK(written == SIZE && source.left == 0);
    source = (struct source){.left = SIZE, .upto = 2 << 20, .table = table};
    EXPECT(FS_READER_FAILED, fs_put_reader(table, "large", 5, next_bytes, &source, NULL));
    EXPECT(FS_READER_FAILED, fs_put_reader(table, "large", 5, too_many, NULL, NULL));

    fs_reader *reader = NULL;
    EXPECT(FS_NOT_FOUND, fs_get_reader(table, "none", 4, &reader));
    OK(fs_get_reader(table, "large", 5, &reader));
    CHECK(fs_reader_len(reader) == SIZE);
    OK(fs_put(table, "large", 5, "", 0)); /* the reader keeps what it has found */
    unsigned char bytes[1000];
    size_t count = 0;
    for (uint64_t at = 0; at < SIZE + 5000; at += 77777) {
        size_t expected = at >= SIZE ? 0 : SIZE - at < sizeof bytes ? SIZE - at : sizeof bytes;
        OK(fs_read_at(reader, at, bytes, sizeof bytes, &count));
        CHECK(count == expected);
        for (size_t i = 0; i < count; i++)
            CHECK(bytes[i] == (SIZE - at - i) % 251);
    }
    OK(fs_read_at(reader, 0, NULL, 0, &count));
    CHECK(count == 0);
    EXPECT(FS_INVALID, fs_read_at(reader, 0, NULL, 1, &count));
    EXPECT(FS_INVALID, fs_read_at(NULL, 0, bytes, 1, &count));
    EXPECT(FS_INVALID, fs_put_reader(table, "k", 1, NULL, NULL, NULL));
    EXPECT(FS_INVALID, fs_get_reader(table, "k", 1, NULL));
    CHECK(fs_reader_len(NULL) == 0);
    OK(fs_commit(tx, NULL));
    EXPECT(FS_ENDED, fs_read_at(reader, 0, bytes, 1, &count));
    fs_reader_free(reader);
    fs_reader_free(NULL);
}

/* Adds to the number of a row. A number that would be negative is refused, and zero removes the row. */
static int add(void *arg, const void *old, size_t old_len, fs_buffer *new_value) {
    int number = 0;
    CHECK(old ? old_len == sizeof number : old_len == 0);
    if (old)
        memcpy(&number, old, sizeof number);
    number += *(int *)arg;
    OK(fs_buffer_set(new_value, &number, sizeof number));
    return number < 0 ? 7 : number == 0 ? FS_REMOVE_ROW : 0;
}

/* Fails with a status that another call has returned. */
static int fail(void *arg, const void *old, size_t old_len, fs_buffer *new_value) {
    (void)old, (void)old_len, (void)new_value;
    return *(fs_status *)arg;
}

static void changes(fs_tx *tx, fs_table *table) {
    fs_buffer *value = fs_buffer_new();
    int two = 2, less = -5, all = -4, number = 0, result = -1;
    OK(fs_update_with(table, "n", 1, add, &two, NULL, NULL));
    OK(fs_update_with(table, "n", 1, add, &two, value, &result));
    CHECK(result == 0);
    memcpy(&number, fs_buffer_data(value), sizeof number);
    CHECK(fs_buffer_len(value) == sizeof number && number == 4);
    EXPECT(FS_ABORTED, fs_update_with(table, "n", 1, add, &less, value, &result));
    CHECK(result == 7);
    for (int i = 0; i < 2; i++) { /* no status removes the row */
        fs_status status = i ? FS_DEADLOCK : FS_NOT_FOUND;
        EXPECT(FS_ABORTED, fs_update_with(table, "n", 1, fail, &status, value, &result));
        CHECK(result == (int)status);
    }
    OK(fs_get(table, "n", 1, value));
    memcpy(&number, fs_buffer_data(value), sizeof number);
    CHECK(number == 4);
    EXPECT(FS_NOT_FOUND, fs_update_with(table, "n", 1, add, &all, value, &result));
    CHECK(result == FS_REMOVE_ROW);
    EXPECT(FS_NOT_FOUND, fs_contains(table, "n", 1));
    EXPECT(FS_INVALID, fs_update_with(table, "n", 1, NULL, NULL, value, &result));
    EXPECT(FS_INVALID, fs_buffer_set(NULL, "", 0));
    OK(fs_rollback(tx));
    fs_buffer_free(value);
}

void test_values(void) {
    fs_db *db = open_in_memory();
    fs_tx *tx = NULL;
    fs_table *table = begin(db, NULL, &tx);
    streams(tx, table);
    fs_table_free(table);
    fs_tx_free(tx);
    table = begin(db, NULL, &tx);
    changes(tx, table);
    fs_table_free(table);
    fs_tx_free(tx);
    loads(db);
    fs_db_free(db);
}
