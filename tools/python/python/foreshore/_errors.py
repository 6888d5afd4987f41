"""The errors of Foreshore, as a tree. Each leaf has the status number of the C library."""

from typing import Dict, Type


class Error(Exception):
    """An error of Foreshore. ``status`` is its number, which is the same in the C library."""

    status: int = 99
    retryable: bool = False


class Invalid(Error, ValueError):
    """An argument is out of range, or the call is not allowed here."""

    status = 10


class Panic(Error):
    """A defect of the library. The transaction can only be ended."""

    status = 14


class Retryable(Error):
    """The same transaction may succeed when it is run again.

    ``Database.run`` does that. It raises ``TransactionTooOld`` at once, and ``LockTimeout`` unless there is a ``deadline``.
    """

    retryable = True


class Deadlock(Retryable):
    """The transaction was the victim of a deadlock."""

    status = 20


class Conflict(Retryable):
    """Another transaction has changed the row since the snapshot was taken."""

    status = 21


class LockTimeout(Retryable):
    """A lock was not granted in time."""

    status = 22


class SnapshotTooOld(Retryable):
    """The snapshot was cancelled because it was too old or kept too much."""

    status = 23


class TransactionTooOld(Retryable):
    """The transaction ran for longer than the database allows."""

    status = 24


class Busy(Retryable):
    """Too many transactions run, or undo memory or log space is used up."""

    status = 25


class TableChanged(Retryable):
    """Another transaction has dropped the table, or changed its indexes."""

    status = 26


class Exhausted(Retryable):
    """Each run was ended by other transactions, up to the limit of runs or the deadline."""

    status = 27


class TransactionError(Error):
    """The transaction cannot go on, or not in this way."""


class Ended(TransactionError):
    """The transaction has ended, by a call of the program."""

    status = 11


class InUse(TransactionError):
    """Another thread is in a call with this transaction."""

    status = 12


class RolledBack(TransactionError):
    """An earlier error has rolled the transaction back."""

    status = 40


class TransactionTooLarge(TransactionError):
    """The transaction needs more undo space than there is."""

    status = 41


class RowLocked(TransactionError):
    """The row is locked, and the request does not wait."""

    status = 42


class OwnThreadLock(TransactionError):
    """The lock is held by a transaction that this thread used last, so the wait would have no end."""

    status = 43


class RollbackParked(TransactionError):
    """The rollback is parked: it goes on when there is space."""

    status = 44


class NoSavepoint(TransactionError):
    """The savepoint is gone, or of another transaction."""

    status = 45


class NoPrepared(TransactionError):
    """There is no prepared transaction of this name. If there was one, its end is durable."""

    status = 46


class PreparedExists(TransactionError):
    """A prepared transaction has the name already."""

    status = 47


class PreparedBusy(TransactionError):
    """Another call is preparing, committing or rolling back the prepared transaction."""

    status = 48


class PreparedName(TransactionError, ValueError):
    """The name of a prepared transaction is empty, too long, or has a zero byte."""

    status = 49


class TableError(Error):
    """A row or a table is not as the request needs it. The transaction goes on."""


class KeyExists(TableError):
    """A row with this key exists."""

    status = 50


class KeyTooLarge(TableError, ValueError):
    """The key is too large."""

    status = 51


class ValueTooLarge(TableError, ValueError):
    """The value is too large."""

    status = 52


class NoTable(TableError):
    """There is no such table."""

    status = 53


class TableName(TableError, ValueError):
    """The name of a table is empty, too long, or has a zero byte."""

    status = 54


class TableTypes(TableError, TypeError):
    """The table has keys or values of other types."""

    status = 55


class Indexed(TableError):
    """The table has an index that it was opened without. So it is only read."""

    status = 56


class Undecodable(TableError):
    """A row does not decode to the types of its table."""

    status = 57


class TableExists(TableError):
    """A table has the new name already."""

    status = 58


class ReaderFailed(TableError):
    """The file that a value is read from has ended before its length. The row is unchanged."""

    status = 59


class IndexKeyExists(TableError):
    """A unique index has the key for another row."""

    status = 80


class IndexMismatch(TableError):
    """An index disagrees with its table: it was built by another function."""

    status = 81


class NoIndex(TableError):
    """The table has no such index."""

    status = 82


class IndexTypes(TableError, TypeError):
    """The index was built by another definition."""

    status = 83


class LoadOrder(TableError, ValueError):
    """The keys of a load do not ascend, or are not above those of the table. Nothing is loaded."""

    status = 84


class DatabaseError(Error):
    """The database cannot be opened, or cannot do this."""


class Forked(DatabaseError):
    """The database was opened before a fork, in the parent process."""

    status = 13


class NoDatabase(DatabaseError):
    """There is no database in the directory."""

    status = 60


class Locked(DatabaseError):
    """The database is open already, in this process or another."""

    status = 61


class ReadOnly(DatabaseError):
    """The database, or the transaction, only reads."""

    status = 62


class NotClosed(DatabaseError):
    """The database was not closed, so it has to be opened for writing first."""

    status = 63


class Closed(DatabaseError):
    """The database has been closed."""

    status = 64


class BadBackup(DatabaseError):
    """The directory of a backup or of a restore is not empty, or that has not finished, or the restore is refused."""

    status = 65


class Foreign(DatabaseError):
    """The files are not of Foreshore, or belong to another database."""

    status = 66


class Newer(DatabaseError):
    """The files were written by a newer version."""

    status = 67


class StorageError(Error):
    """The disk, or the memory limit, is in the way."""


class IoError(StorageError):
    """An operation of the system failed."""

    status = 70


class NoSpace(StorageError):
    """There is no space on the disk. Free some; the database need not be opened again."""

    status = 71


class Corrupted(StorageError):
    """Bytes on disk are not those that were written."""

    status = 72


class Poisoned(StorageError):
    """A write of the log has failed. The database must be opened again."""

    status = 73


class NoMemory(StorageError):
    """All page frames are in use: the memory limit is too small."""

    status = 74


def _leaves(cls: Type[Error]) -> Dict[int, Type[Error]]:
    found = {cls.status: cls} if "status" in vars(cls) else {}
    for below in cls.__subclasses__():
        found.update(_leaves(below))
    return found


BY_STATUS: Dict[int, Type[Error]] = _leaves(Error)
