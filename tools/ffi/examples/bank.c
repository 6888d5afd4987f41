/* A bank: a durable transfer, a retried one, and a scan. Run it twice: the balances go on.
 *
 *   cc -Wall -Wextra -Werror bank.c $(pkg-config --cflags --libs foreshore) -o bank && ./bank bank.db
 */
#include <foreshore.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(fs_status status, const char *what) {
    if (status != FS_OK) {
        fprintf(stderr, "%s: %s\n", what, fs_message());
        exit(1);
    }
}

struct transfer {
    const char *from, *to;
    int64_t amount;
};

/* Returns the balance of an account, and locks its row for the write that follows. */
static fs_status balance_of(fs_table *accounts, const char *name, int64_t *balance) {
    fs_buffer *value = fs_buffer_new();
    fs_status status = fs_get_for_update(accounts, name, strlen(name), value);
    *balance = 0;
    if (status == FS_OK)
        memcpy(balance, fs_buffer_data(value), sizeof *balance);
    fs_buffer_free(value);
    return status == FS_NOT_FOUND ? FS_OK : status;
}

/* Moves money. fs_run calls it again if a deadlock has ended its transaction. */
static int move(fs_tx *tx, void *arg) {
    const struct transfer *transfer = arg;
    fs_table *accounts = NULL;
    int64_t from = 0, to = 0;
    fs_status status = fs_table_open(tx, "accounts", &accounts);
    if (status == FS_OK)
        status = balance_of(accounts, transfer->from, &from);
    if (status == FS_OK)
        status = balance_of(accounts, transfer->to, &to);
    from -= transfer->amount;
    to += transfer->amount;
    if (status == FS_OK)
        status = fs_put(accounts, transfer->from, strlen(transfer->from), &from, sizeof from);
    if (status == FS_OK)
        status = fs_put(accounts, transfer->to, strlen(transfer->to), &to, sizeof to);
    fs_table_free(accounts);
    return (int)status;
}

int main(int argc, char **argv) {
    fs_db *db = NULL;
    must(fs_open(argc > 1 ? argv[1] : "bank.db", NULL, &db), "open");

    /* A transaction, step by step. */
    fs_tx *tx = NULL;
    fs_table *accounts = NULL;
    int64_t opening = 100;
    must(fs_begin(db, NULL, &tx), "begin");
    must(fs_table_open(tx, "accounts", &accounts), "open a table");
    fs_status inserted = fs_insert(accounts, "ada", 3, &opening, sizeof opening);
    if (inserted != FS_KEY_EXISTS)
        must(inserted, "insert");
    must(fs_commit(tx, NULL), "commit"); /* durable when it returns */
    fs_table_free(accounts);
    fs_tx_free(tx);

    /* A transaction as a function, run again after a deadlock. */
    struct transfer transfer = {"ada", "bob", 10};
    must(fs_run(db, NULL, move, &transfer, NULL), "transfer");

    /* A snapshot of all accounts, in the order of their names. */
    fs_cursor *cursor = NULL;
    must(fs_begin_read(db, NULL, &tx), "begin");
    must(fs_table_open(tx, "accounts", &accounts), "open a table");
    must(fs_scan(accounts, NULL, FS_FORWARD, &cursor), "scan");
    const void *key, *value;
    size_t key_len, value_len;
    fs_status status;
    while ((status = fs_cursor_next(cursor, &key, &key_len, &value, &value_len)) == FS_OK) {
        int64_t balance;
        memcpy(&balance, value, sizeof balance);
        printf("%.*s: %" PRId64 "\n", (int)key_len, (const char *)key, balance);
    }
    if (status != FS_NOT_FOUND)
        must(status, "next");
    fs_cursor_free(cursor);
    fs_table_free(accounts);
    fs_tx_free(tx);

    must(fs_close(db, 1000), "close");
    fs_db_free(db);
    return 0;
}
