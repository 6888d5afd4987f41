/*
 * Functions over WiredTiger's handles, which are structs of function pointers. Keys are `Q`, values are `u`.
 * Every function returns WiredTiger's error code, 0 for success.
 */

#include <stdint.h>
#include <stdlib.h>
#include <wiredtiger.h>

/* A session with a cursor for each table, opened once. */
struct shim_session {
	WT_SESSION *session;
	size_t tables;
	WT_CURSOR *cursors[];
};

const char *shim_version(int *major, int *minor, int *patch)
{
	return wiredtiger_version(major, minor, patch);
}

const char *shim_error(int code)
{
	return wiredtiger_strerror(code);
}

int shim_is_rollback(int code)
{
	return code == WT_ROLLBACK;
}

int shim_is_not_found(int code)
{
	return code == WT_NOTFOUND;
}

int shim_is_duplicate(int code)
{
	return code == WT_DUPLICATE_KEY;
}

int shim_open(const char *home, const char *config, WT_CONNECTION **connection)
{
	return wiredtiger_open(home, NULL, config, connection);
}

int shim_close(WT_CONNECTION *connection)
{
	return connection->close(connection, NULL);
}

int shim_create(WT_CONNECTION *connection, const char *uri, const char *config)
{
	WT_SESSION *session;
	int code = connection->open_session(connection, NULL, NULL, &session);
	if (code != 0)
		return code;
	code = session->create(session, uri, config);
	int closed = session->close(session, NULL);
	return code != 0 ? code : closed;
}

int shim_checkpoint(struct shim_session *shim)
{
	return shim->session->checkpoint(shim->session, NULL);
}

void shim_session_close(struct shim_session *shim)
{
	shim->session->close(shim->session, NULL);
	free(shim);
}

/* Opens a session with a cursor for each table, configured by `cursors`. */
int shim_session_open(WT_CONNECTION *connection, const char *const *uris, size_t tables, const char *cursors,
	struct shim_session **out)
{
	struct shim_session *shim = calloc(1, sizeof *shim + tables * sizeof shim->cursors[0]);
	if (shim == NULL)
		return WT_PANIC;
	shim->tables = tables;
	int code = connection->open_session(connection, NULL, "isolation=snapshot", &shim->session);
	if (code != 0) {
		free(shim);
		return code;
	}
	for (size_t table = 0; table < tables && code == 0; table++)
		code = shim->session->open_cursor(shim->session, uris[table], NULL, cursors, &shim->cursors[table]);
	if (code != 0) {
		shim_session_close(shim);
		return code;
	}
	*out = shim;
	return 0;
}

int shim_begin(struct shim_session *shim)
{
	return shim->session->begin_transaction(shim->session, NULL);
}

int shim_commit(struct shim_session *shim)
{
	return shim->session->commit_transaction(shim->session, NULL);
}

int shim_rollback(struct shim_session *shim)
{
	return shim->session->rollback_transaction(shim->session, NULL);
}

static int value_of(WT_CURSOR *cursor, const void **value, size_t *len)
{
	WT_ITEM item;
	int code = cursor->get_value(cursor, &item);
	if (code == 0) {
		*value = item.data;
		*len = item.size;
	}
	return code;
}

/* The value is valid until the cursor moves or its transaction ends. */
int shim_get(struct shim_session *shim, size_t table, uint64_t key, const void **value, size_t *len)
{
	WT_CURSOR *cursor = shim->cursors[table];
	cursor->set_key(cursor, key);
	int code = cursor->search(cursor);
	return code != 0 ? code : value_of(cursor, value, len);
}

static void set_value(WT_CURSOR *cursor, const void *value, size_t len)
{
	WT_ITEM item = {0};
	item.data = value;
	item.size = len;
	cursor->set_value(cursor, &item);
}

/* Replaces the value of the row that the cursor stands on. */
int shim_update(struct shim_session *shim, size_t table, const void *value, size_t len)
{
	WT_CURSOR *cursor = shim->cursors[table];
	set_value(cursor, value, len);
	return cursor->update(cursor);
}

int shim_insert(struct shim_session *shim, size_t table, uint64_t key, const void *value, size_t len)
{
	WT_CURSOR *cursor = shim->cursors[table];
	cursor->set_key(cursor, key);
	set_value(cursor, value, len);
	return cursor->insert(cursor);
}

/* Deletes the row that the cursor stands on. */
int shim_remove(struct shim_session *shim, size_t table)
{
	WT_CURSOR *cursor = shim->cursors[table];
	return cursor->remove(cursor);
}

int shim_remove_key(struct shim_session *shim, size_t table, uint64_t key)
{
	WT_CURSOR *cursor = shim->cursors[table];
	cursor->set_key(cursor, key);
	return cursor->remove(cursor);
}

/* Deletes all rows from `first` to `last`. */
int shim_truncate(struct shim_session *shim, size_t table, uint64_t first, uint64_t last)
{
	WT_SESSION *session = shim->session;
	WT_CURSOR *start = shim->cursors[table], *stop;
	int code = session->open_cursor(session, start->uri, NULL, NULL, &stop);
	if (code != 0)
		return code;
	start->set_key(start, first);
	stop->set_key(stop, last);
	code = session->truncate(session, NULL, start, stop, NULL);
	int closed = stop->close(stop);
	int reset = start->reset(start);
	return code != 0 ? code : closed != 0 ? closed : reset;
}

/* Opens a session with a bulk cursor of one table, which is empty, as its only cursor. */
int shim_bulk_open(WT_CONNECTION *connection, const char *uri, struct shim_session **out)
{
	struct shim_session *shim;
	int code = shim_session_open(connection, NULL, 0, NULL, &shim);
	if (code != 0)
		return code;
	struct shim_session *grown = realloc(shim, sizeof *shim + sizeof shim->cursors[0]);
	if (grown == NULL) {
		shim_session_close(shim);
		return WT_PANIC;
	}
	code = grown->session->open_cursor(grown->session, uri, NULL, "bulk", &grown->cursors[0]);
	if (code != 0) {
		shim_session_close(grown);
		return code;
	}
	grown->tables = 1;
	*out = grown;
	return 0;
}

/* Closes the bulk cursor, which writes its last pages. */
int shim_bulk_end(struct shim_session *shim)
{
	WT_CURSOR *cursor = shim->cursors[0];
	shim->tables = 0;
	return cursor->close(cursor);
}

int shim_reset(struct shim_session *shim, size_t table)
{
	WT_CURSOR *cursor = shim->cursors[table];
	return cursor->reset(cursor);
}

/* Stands on the first row at or behind `from`. */
int shim_seek(struct shim_session *shim, size_t table, uint64_t from, uint64_t *key, const void **value, size_t *len)
{
	WT_CURSOR *cursor = shim->cursors[table];
	int exact;
	cursor->set_key(cursor, from);
	int code = cursor->search_near(cursor, &exact);
	if (code == 0 && exact < 0)
		code = cursor->next(cursor);
	if (code == 0)
		code = cursor->get_key(cursor, key);
	return code != 0 ? code : value_of(cursor, value, len);
}

/* Moves to the next row; from the end to the first one. */
int shim_next(struct shim_session *shim, size_t table, uint64_t *key, const void **value, size_t *len)
{
	WT_CURSOR *cursor = shim->cursors[table];
	int code = cursor->next(cursor);
	if (code == 0)
		code = cursor->get_key(cursor, key);
	return code != 0 ? code : value_of(cursor, value, len);
}
