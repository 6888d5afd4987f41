/* Values in parts, and values that a function changes. */
#include "test.h"

enum { SIZE = 3 << 20 };

struct source {
    size_t left, upto; /* it fails where `upto` bytes are left */
    fs_table *table;
};

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
    fs_db_free(db);
}
