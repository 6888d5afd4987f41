/* What the tests in C share. */
#ifndef TEST_H
#define TEST_H

#include <foreshore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program unless a call returns the expected status. */
#define EXPECT(expected, call)                                                                                         \
    do {                                                                                                               \
        fs_status got_ = (call);                                                                                       \
        if (got_ != (expected)) {                                                                                      \
            fprintf(stderr, "%s:%d: %s returned %d, not %s: %s\n", __FILE__, __LINE__, #call, (int)got_, #expected,    \
                    fs_message());                                                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define OK(call) EXPECT(FS_OK, call)

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Opens a database in memory. */
static inline fs_db *open_in_memory(void) {
    fs_options options = {.struct_size = sizeof options, .flags = FS_OPEN_IN_MEMORY, .memory_limit = 64 << 20};
    fs_db *db = NULL;
    OK(fs_open(NULL, &options, &db));
    return db;
}

/* Begins a transaction with its table `rows`. */
static inline fs_table *begin(fs_db *db, const fs_tx_options *options, fs_tx **tx) {
    fs_table *table = NULL;
    OK(fs_begin(db, options, tx));
    OK(fs_table_open(*tx, "rows", &table));
    return table;
}

void test_rows(void);
void test_transactions(void);
void test_commits(void);
void test_database(const char *folder);
void test_prepared(const char *folder);
void test_copies(const char *folder);
void test_indexes(void);
void test_values(void);
void test_misuse(const char *folder);

#endif
