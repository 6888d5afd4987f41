"""Foreshore: an embedded, multi-writer, ACID storage manager.

    import foreshore

    with foreshore.open("bank") as db:
        with db.begin() as tx:                      # durable when the block ends
            tx.table("accounts", str, int)["ada"] = 100
"""

import asyncio
import contextlib
import functools
import json as _json
import os
from typing import Any, Awaitable, Callable, Dict, List, Optional, Sequence, Tuple

from . import _errors
from ._errors import *  # noqa: F403
from ._copies import DamagedPage, Prepared, Repaired, Restored, repair, restore, verify_backup
from ._foreshore import ByIndex, Index, Rows, Savepoint, Table, Ticket, Transaction, __version__
from ._foreshore import Database as _Database
from ._values import ValueReader

__all__ = ["AsyncTransaction", "ByIndex", "DamagedPage", "Database", "Index", "Prepared", "Repaired", "Restored", "Rows"]
__all__ += ["Savepoint", "Table", "Ticket", "Transaction", "ValueReader"]
__all__ += ["in_memory", "json", "open", "repair", "restore", "verify_backup"]
__all__ += [
    "Error", "Invalid", "Panic", "Retryable", "Deadlock", "Conflict", "LockTimeout", "SnapshotTooOld",
    "TransactionTooOld", "Busy", "TableChanged", "Exhausted", "TransactionError", "Ended", "InUse", "RolledBack",
    "TransactionTooLarge", "RowLocked", "OwnThreadLock", "RollbackParked", "NoSavepoint", "NoPrepared",
    "PreparedExists", "PreparedBusy", "PreparedName", "TableError", "KeyExists", "KeyTooLarge", "ValueTooLarge",
    "NoTable", "TableName", "TableTypes", "Indexed", "Undecodable", "TableExists", "ReaderFailed", "IndexKeyExists",
    "IndexMismatch", "NoIndex", "IndexTypes", "LoadOrder", "DatabaseError", "Forked", "NoDatabase", "Locked",
    "ReadOnly", "NotClosed", "Closed", "BadBackup", "Foreign", "Newer", "StorageError", "IoError", "NoSpace",
    "Corrupted", "Poisoned", "NoMemory",
]

#: The type of values that are stored as JSON: ``tx.table("documents", str, foreshore.json)``.
json = "json"


class Database(_Database):
    """An open database, for any number of threads. ``open`` and ``in_memory`` make it. A ``with`` block closes it."""

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin_async(self, **options: Any) -> "AsyncTransaction":
        """Begins a transaction of which an event loop awaits the commit. Its options are those of ``begin``.

        Locks are waited for in the thread of the loop, so this is for transactions that meet no others. ``run_async``
        is for all.
        """
        return AsyncTransaction(self.begin(**options))

    def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Runs ``function(tx, *args)`` in a transaction, commits it, and returns its value.

        The commit is durable when this returns. The function is called again if a deadlock or a conflict ended its
        transaction, so it must leave nothing behind but rows. If it raises another error, the transaction is rolled
        back. ``TransactionTooOld`` is raised at once, and so is ``LockTimeout`` unless there is a ``deadline``.
        ``SystemExit``, ``KeyboardInterrupt`` and the like end the run in any case. The options are those of ``begin``.
        """
        return self._run((lambda tx: function(tx, *args)) if args else function, **options)

    async def run_async(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Runs ``function(tx, *args)`` like ``run``, on a thread of the loop's executor. No thread waits for the disk."""
        loop = asyncio.get_running_loop()
        body = (lambda tx: function(tx, *args)) if args else function
        value, ticket = await loop.run_in_executor(None, functools.partial(self._run_pipelined, body, **options))
        await ticket
        return value

    def transaction(self, function: Optional[Callable[..., Any]] = None, /, **options: Any) -> Callable[..., Any]:
        """Makes a function of a transaction one that runs in a transaction, as ``run`` does.

            @db.transaction
            def deposit(tx, name, amount): ...

            deposit("ada", 10)
        """
        if function is None:
            return functools.partial(self.transaction, **options)
        if asyncio.iscoroutinefunction(function):
            raise TypeError("a transaction that is run again cannot be a coroutine: use `run_async` with a function")
        run, body = self._run, function

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return run((lambda tx: body(tx, *args, **kwargs)), **options)

        return wrapper

    def prepared(self) -> List[Prepared]:
        """Returns the prepared transactions: ``commit_prepared`` or ``rollback_prepared`` ends each by its name."""
        return [Prepared(*one) for one in self._prepared()]

    def stats(self) -> Dict[str, Any]:
        """Returns the counters of the database."""
        found: Dict[str, Any] = _json.loads(self._stats_json())
        return found


class AsyncTransaction:
    """A transaction of which an event loop awaits the end. An ``async with`` block commits it."""

    __slots__ = ("_tx",)

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def table(
        self,
        name: str,
        key: Any = bytes,
        value: Any = bytes,
        *,
        indexes: Sequence[Index] = (),
        merge: Optional[Callable[[Any, Any], Any]] = None,
    ) -> Table:
        """Opens a table, as ``Transaction.table`` does."""
        return self._tx.table(name, key, value, indexes=indexes, merge=merge)

    def raw(self, name: str) -> Table:
        """Opens a table of any types, as ``Transaction.raw`` does."""
        return self._tx.raw(name)

    def savepoint(self) -> Savepoint:
        """Marks a point to roll back to."""
        return self._tx.savepoint()

    def tables(self) -> "list[Tuple[str, str, str]]":
        """Returns the tables with the names of their types."""
        return self._tx.tables()

    def drop_table(self, name: str) -> bool:
        """Drops a table. Returns whether there was one."""
        return self._tx.drop_table(name)

    def drop_index(self, table: str, index: str) -> bool:
        """Drops an index of a table. Returns whether there was one."""
        return self._tx.drop_index(table, index)

    def prepare(self, name: str) -> None:
        """Prepares the transaction, as ``Transaction.prepare`` does. It waits for the disk."""
        self._tx.prepare(name)

    def rename_table(self, name: str, new_name: str) -> bool:
        """Renames a table, as ``Transaction.rename_table`` does. Returns whether there was one."""
        return self._tx.rename_table(name, new_name)

    def clear_table(self, name: str) -> bool:
        """Removes all rows of a table, as ``Transaction.clear_table`` does. Returns whether there is one."""
        return self._tx.clear_table(name)

    @property
    def is_open(self) -> bool:
        """Whether the program has not ended the transaction."""
        return self._tx.is_open

    def commit(self) -> Awaitable[int]:
        """Commits at once. The result resolves to the commit number when the commit is durable."""
        return self._tx.commit_pipelined()

    def rollback(self) -> Awaitable[int]:
        """Rolls back at once. The result resolves when what was read is durable."""
        return self._tx.rollback_pipelined()

    async def __aenter__(self) -> "AsyncTransaction":
        return self

    async def __aexit__(self, kind: Optional[type], *_: object) -> None:
        if not self.is_open:
            return
        if kind is None:
            await self.commit()
        else:
            # The exception of the block is the one to tell.
            with contextlib.suppress(_errors.Error):
                await self.rollback()


def open(path: "str | os.PathLike[str]", **options: Any) -> Database:
    """Opens the database in the directory ``path``, and creates it if there is none.

    Options: ``memory_limit``, ``log_budget``, ``spill_limit`` in bytes, ``lock_timeout`` in seconds,
    ``max_transactions``, ``existing=True`` to create none, ``read_only=True`` to change no byte. ``restart_target``:
    seconds that a restart after a crash may take. The log that it reads follows from that, up to ``log_budget``.
    ``archive``: the directory to which the log is copied before it is reused, up to ``archive_limit`` bytes, for
    ``restore``. ``snapshot_max_age`` in seconds, ``snapshot_max_bytes``, and ``transaction_max_age`` in seconds cancel
    snapshots and transactions that keep too much. They have no limit by default. ``device`` is ``"direct"``, past the
    page cache, ``"buffered"``, through it, or ``"auto"``. ``doublewrite`` is ``"on"``, ``"off"``, with which a power loss
    may tear pages, or ``"auto"``. ``group_window``: seconds that a group of commits may wait for others, 0 for none.
    """
    return Database(os.fspath(path), **options)


def in_memory(**options: Any) -> Database:
    """Opens a new database in memory. It is gone when it is closed."""
    return Database(None, **options)
