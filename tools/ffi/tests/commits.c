/* Pipelined commits: callbacks and queues. */
#include "test.h"
#include <poll.h>
#include <pthread.h>

enum { COMMITS = 256 };

struct counter {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int durable;
    fs_db *db;
};

/* A commit on its way to disk. */
struct commit {
    struct counter *counter;
    uint64_t csn;
};

/* Returns whether a commit is durable. */
static int is_durable(fs_db *db, uint64_t csn) {
    uint64_t durable = 0;
    OK(fs_durable_csn(db, &durable));
    return csn > 0 && durable >= csn;
}

static void note(void *arg, fs_status status, const char *message) {
    struct commit *commit = arg;
    struct counter *counter = commit->counter;
    CHECK(status == FS_OK && !strcmp(message, ""));
    CHECK(is_durable(counter->db, commit->csn));
    pthread_mutex_lock(&counter->mutex);
    counter->durable++;
    pthread_cond_signal(&counter->changed);
    pthread_mutex_unlock(&counter->mutex);
}

/* Begins a transaction that writes the row of a number. */
static fs_tx *write_row(fs_db *db, int number) {
    fs_tx *tx = NULL;
    fs_table *table = begin(db, NULL, &tx);
    OK(fs_put(table, &number, sizeof number, "", 0));
    fs_table_free(table);
    return tx;
}

static void callbacks(fs_db *db) {
    struct counter counter = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, db};
    static struct commit commits[COMMITS];
    uint64_t last = 0;
    for (int i = 0; i < COMMITS; i++) {
        fs_tx *tx = write_row(db, i);
        commits[i] = (struct commit){&counter, 0};
        OK(fs_commit_pipelined(tx, note, &commits[i], &commits[i].csn));
        CHECK(commits[i].csn > last);
        last = commits[i].csn;
        EXPECT(FS_ENDED, fs_commit_pipelined(tx, note, &commits[i], NULL)); /* calls nothing */
        fs_tx_free(tx);
    }
    pthread_mutex_lock(&counter.mutex);
    while (counter.durable < COMMITS)
        pthread_cond_wait(&counter.changed, &counter.mutex);
    CHECK(counter.durable == COMMITS);
    pthread_mutex_unlock(&counter.mutex);
    CHECK(is_durable(db, last));
    fs_tx *tx = write_row(db, 0);
    OK(fs_commit_pipelined(tx, NULL, NULL, NULL));
    fs_tx_free(tx);
    OK(fs_sync(db));
}

/* A commit that waits is durable when it returns. */
static void waits(fs_db *db) {
    for (int i = 0; i < COMMITS; i++) {
        fs_tx *tx = write_row(db, i);
        uint64_t csn = 0;
        OK(fs_commit(tx, &csn));
        CHECK(is_durable(db, csn));
        fs_tx_free(tx);
    }
}

static void queues(fs_db *db) {
    fs_queue *queue = NULL;
    uint64_t csns[COMMITS];
    OK(fs_queue_new(&queue));
    for (int i = 0; i < COMMITS; i++) {
        fs_tx *tx = write_row(db, i);
        OK(fs_commit_queued(tx, queue, (uint64_t)i, &csns[i]));
        fs_tx_free(tx);
    }
    char seen[COMMITS] = {0};
    int count = 0;
    while (count < COMMITS) {
        struct pollfd poller = {.fd = fs_queue_fd(queue), .events = POLLIN};
        CHECK(poll(&poller, 1, 10000) == 1);
        fs_completion done[64];
        size_t taken = 0;
        OK(fs_queue_take(queue, done, 64, &taken));
        for (size_t i = 0; i < taken; i++) {
            OK(done[i].status);
            CHECK(done[i].tag < COMMITS && !seen[done[i].tag]);
            CHECK(is_durable(db, csns[done[i].tag]));
            seen[done[i].tag] = 1;
            count++;
        }
    }
    struct pollfd poller = {.fd = fs_queue_fd(queue), .events = POLLIN};
    fs_completion none;
    size_t taken = 1;
    OK(fs_queue_take(queue, &none, 1, &taken));
    CHECK(taken == 0 && poll(&poller, 1, 0) == 0);
    fs_queue_free(queue);
    CHECK(fs_queue_fd(NULL) == -1);
}

void test_commits(void) {
    fs_db *db = open_in_memory();
    waits(db);
    callbacks(db);
    queues(db);
    fs_db_free(db);
}
