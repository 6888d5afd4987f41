"""Restores of backups and archives, and repair of damaged pages."""

import datetime
import math
import os
from typing import List, NamedTuple, Optional, Sequence, Union

from . import _foreshore

Path = Union[str, "os.PathLike[str]"]
Time = Union[float, datetime.datetime]


class Prepared(NamedTuple):
    """A prepared transaction, which waits to be committed or rolled back."""

    name: str
    label: str
    #: Seconds since it was prepared, or since the database was opened if that is later.
    age: float


class Restored(NamedTuple):
    """What was restored, or would be."""

    #: The position: the commits whose records have LSNs up to it, and no others.
    lsn: int
    #: The position as a number of commits.
    csn: int
    #: The end of the last backup: the first position that can be restored from it.
    backup_lsn: int
    #: When the last group of the log was written, in nanoseconds since 1970: the ``until_time_ns``
    #: that ends there once the log goes on. ``None`` if the log does not say.
    time_ns: Optional[int]
    pages: int
    log_bytes: int
    #: Pages that are set aside as damaged. What they held is lost.
    quarantined: int


class DamagedPage(NamedTuple):
    """A damaged page. ``why`` says how it is damaged, or why it could not be repaired."""

    page: int
    table: Optional[str]
    why: str


class Repaired(NamedTuple):
    """What a repair has done, or would do."""

    pages: int
    repaired: List[DamagedPage]
    unrepaired: List[DamagedPage]


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def _nanoseconds(time: Optional[Time], time_ns: Optional[int]) -> Optional[int]:
    """Returns the end of a restore, without a rounding of integers."""
    if time is None:
        ns = time_ns
    elif time_ns is not None:
        raise ValueError("`until_time` and `until_time_ns` exclude each other")
    elif isinstance(time, datetime.datetime):
        ns = (time.astimezone(datetime.timezone.utc) - _EPOCH) // datetime.timedelta(microseconds=1) * 1000
    elif math.isfinite(time):
        whole = math.floor(time)
        ns = whole * 10**9 + int((time - whole) * 1e9)
    else:
        ns = -1
    if ns is not None and not 0 <= ns < 1 << 63:
        raise ValueError(f"{time if time_ns is None else time_ns} is no time after 1970")
    return ns


def restore(
    backup: Path,
    target: Path,
    *,
    increments: Sequence[Path] = (),
    archive: Optional[Path] = None,
    until_lsn: Optional[int] = None,
    until_time: Optional[Time] = None,
    until_time_ns: Optional[int] = None,
) -> Restored:
    """Restores a backup, its increments in their order and the log in an archive to the new directory ``target``.

    It ends with the archive, or with the last backup without one. ``until_lsn`` is a position: ``Ticket.record_lsn`` of a
    commit, or what ``Database.archive`` returns. ``until_time`` is a ``datetime``, or seconds since 1970, and
    ``until_time_ns`` the same in nanoseconds. The result is a database with another id, so give it an archive of its own.
    Backup and archive are only read.
    """
    until = _nanoseconds(until_time, until_time_ns)
    # Without a target the native function only verifies.
    return Restored(*_foreshore.restore(backup, os.fspath(target), list(increments), archive, until_lsn, until))


def verify_backup(
    backup: Path,
    *,
    increments: Sequence[Path] = (),
    archive: Optional[Path] = None,
    until_lsn: Optional[int] = None,
    until_time: Optional[Time] = None,
    until_time_ns: Optional[int] = None,
) -> Restored:
    """Reads and checks all that ``restore`` would read, and writes nothing."""
    until = _nanoseconds(until_time, until_time_ns)
    return Restored(*_foreshore.restore(backup, None, list(increments), archive, until_lsn, until))


def repair(path: Path, backup: Path, *, archive: Optional[Path] = None, dry_run: bool = False) -> Repaired:
    """Repairs damaged pages of the closed database in ``path`` from its backup and the log since.

    The archive is read if the database no longer has that log. With ``dry_run`` nothing is written. A page that is not
    certain is not repaired: ``unrepaired`` says why.
    """
    pages, repaired, unrepaired = _foreshore.repair(path, backup, archive, dry_run)
    return Repaired(pages, [DamagedPage(*page) for page in repaired], [DamagedPage(*page) for page in unrepaired])
