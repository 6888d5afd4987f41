/* Backups, archives, restores to the end, to a position and to a time, and repair. */
#include "test.h"
#include <time.h>
#include <unistd.h>

struct paths {
    char database[512], archive[512], backup[512], increment[512], restored[600];
};

static void put(fs_db *db, const char *row) {
    fs_tx *tx = NULL;
    fs_table *table = begin(db, NULL, &tx);
    OK(fs_put(table, row, 1, row, 1));
    OK(fs_commit(tx, NULL));
    fs_table_free(table);
    fs_tx_free(tx);
}

/* Whether the database in `path` has exactly these rows, each of one letter. */
static void has_rows(const char *path, const char *rows) {
    fs_db *db = NULL;
    fs_tx *tx = NULL;
    fs_table *table = NULL;
    OK(fs_open(path, NULL, &db));
    OK(fs_begin_read(db, NULL, &tx));
    OK(fs_table_open(tx, "rows", &table));
    for (const char *row = rows; *row; row++)
        OK(fs_contains(table, row, 1));
    uint64_t count = 0;
    OK(fs_count(table, NULL, &count));
    CHECK(count == strlen(rows));
    fs_table_free(table);
    fs_tx_free(tx);
    fs_db_free(db);
}

static const char *target(struct paths *paths, const char *name) {
    snprintf(paths->restored, sizeof paths->restored, "%s-%s", paths->database, name);
    return paths->restored;
}

static void restores(struct paths *paths) {
    fs_options archived = {.struct_size = sizeof archived, .archive = paths->archive, .archive_limit = 1 << 30};
    fs_db *db = NULL;
    OK(fs_open(paths->database, &archived, &db));
    put(db, "a");
    OK(fs_backup(db, paths->backup, NULL));
    put(db, "b");
    fs_backup_info info = {0};
    OK(fs_backup_since(db, paths->increment, paths->backup, &info));
    CHECK(info.csn > 0);
    EXPECT(FS_BAD_BACKUP, fs_backup_since(db, target(paths, "none"), paths->archive, NULL));
    put(db, "c");
    uint64_t lsn = 0;
    OK(fs_archive(db, &lsn));
    CHECK(lsn > 0);
    struct timespec pause = {.tv_nsec = 20000000}, now;
    nanosleep(&pause, NULL); /* the times of the log differ */
    clock_gettime(CLOCK_REALTIME, &now);
    nanosleep(&pause, NULL);
    put(db, "d");
    OK(fs_archive(db, NULL));
    fs_db_free(db);

    const char *increments[] = {paths->increment};
    fs_restored restored = {0}, again = {0};
    OK(fs_restore(paths->backup, target(paths, "alone"), NULL, &restored));
    CHECK(restored.lsn == restored.backup_lsn && restored.pages > 0);
    has_rows(paths->restored, "a");
    EXPECT(FS_BAD_BACKUP, fs_restore(paths->backup, paths->restored, NULL, NULL)); /* it is not empty */

    fs_restore_options options = {.struct_size = sizeof options, .increments = increments, .increment_count = 1};
    OK(fs_restore(paths->backup, target(paths, "increment"), &options, NULL));
    has_rows(paths->restored, "ab");
    options.archive = paths->archive;
    OK(fs_verify_backup(paths->backup, &options, &restored));
    CHECK(restored.lsn > lsn && restored.time_secs > 1600000000);
    OK(fs_restore(paths->backup, target(paths, "end"), &options, NULL));
    has_rows(paths->restored, "abcd");
    options.until = FS_UNTIL_LSN;
    options.until_lsn = lsn;
    OK(fs_restore(paths->backup, target(paths, "position"), &options, &restored));
    CHECK(restored.lsn == lsn && restored.csn > 0);
    has_rows(paths->restored, "abc");
    options.until = FS_UNTIL_TIME;
    options.until_secs = restored.time_secs;
    options.until_nanos = restored.time_nanos;
    OK(fs_restore(paths->backup, target(paths, "its time"), &options, &again));
    CHECK(again.time_secs == restored.time_secs && again.time_nanos == restored.time_nanos);
    has_rows(paths->restored, "abc");
    options.until_secs = now.tv_sec;
    options.until_nanos = (uint32_t)now.tv_nsec;
    OK(fs_restore(paths->backup, target(paths, "time"), &options, NULL));
    has_rows(paths->restored, "abc");
    options.until = FS_UNTIL_LSN;
    options.until_lsn = 1;
    EXPECT(FS_BAD_BACKUP, fs_verify_backup(paths->backup, &options, NULL));

    options.until = 9;
    EXPECT(FS_INVALID, fs_verify_backup(paths->backup, &options, NULL));
    options.until = FS_UNTIL_TIME;
    options.until_nanos = 1000000000;
    EXPECT(FS_INVALID, fs_verify_backup(paths->backup, &options, NULL));
    options.increments = NULL;
    EXPECT(FS_INVALID, fs_verify_backup(paths->backup, &options, NULL));
    options.until = FS_UNTIL_END;
    options.increments = increments;
    options.increment_count = SIZE_MAX / 2;
    EXPECT(FS_INVALID, fs_verify_backup(paths->backup, &options, NULL));
    EXPECT(FS_INVALID, fs_verify_backup(NULL, NULL, NULL));
    EXPECT(FS_INVALID, fs_restore(paths->backup, NULL, NULL, NULL));
    EXPECT(FS_INVALID, fs_backup_since(NULL, paths->increment, paths->backup, NULL));
    EXPECT(FS_INVALID, fs_archive(NULL, NULL));
}

/* Page 3 is the root of the catalogue. Its image in the doublewrite file goes, too. */
static void damage(const char *database) {
    static const char zeros[8192];
    char path[600];
    const struct {
        const char *file;
        long from, upto;
    } lost[] = {{"data", 3 * 8192L, 4 * 8192L}, {"dw", 4096, 259 * 4096L}};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", database, lost[i].file);
        FILE *file = fopen(path, "r+b");
        CHECK(file && fseek(file, lost[i].from, SEEK_SET) == 0);
        for (long at = lost[i].from; at < lost[i].upto; at += 4096)
            CHECK(fwrite(zeros, 1, 4096, file) == 4096);
        CHECK(fclose(file) == 0);
    }
}

static void repairs(struct paths *paths) {
    fs_db *db = NULL;
    fs_repaired done = {0};
    OK(fs_repair(paths->database, paths->backup, paths->archive, 0, &done));
    CHECK(done.pages > 0 && done.repaired == 0 && done.unrepaired == 0);
    damage(paths->database);
    OK(fs_repair(paths->database, paths->backup, paths->archive, 1, &done));
    CHECK(done.repaired == 1 && done.unrepaired == 0);
    EXPECT(FS_CORRUPTED, fs_open(paths->database, NULL, &db)); /* the dry run has written nothing */
    OK(fs_repair(paths->database, paths->backup, paths->archive, 0, &done));
    CHECK(done.repaired == 1 && done.unrepaired == 0);
    has_rows(paths->database, "abcd");
    EXPECT(FS_INVALID, fs_repair(NULL, paths->backup, NULL, 0, NULL));
    EXPECT(FS_NO_DATABASE, fs_repair(target(paths, "absent"), paths->backup, NULL, 0, NULL));
}

void test_copies(const char *folder) {
    struct paths paths;
    snprintf(paths.database, sizeof paths.database, "%s/copied", folder);
    snprintf(paths.archive, sizeof paths.archive, "%s/archive", folder);
    snprintf(paths.backup, sizeof paths.backup, "%s/full", folder);
    snprintf(paths.increment, sizeof paths.increment, "%s/increment", folder);
    restores(&paths);
    repairs(&paths);
}
