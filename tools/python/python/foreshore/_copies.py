"""Restores of backups and archives, and repair of damaged pages."""

import datetime
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
    #: When the last group of the log was written, in seconds since 1970. ``None`` if the log does not say.
    time: Optional[float]
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


def _seconds(time: Optional[Time]) -> Optional[float]:
    return time.timestamp() if isinstance(time, datetime.datetime) else time


def restore(
    backup: Path,
    target: Path,
    *,
    increments: Sequence[Path] = (),
    archive: Optional[Path] = None,
    until_lsn: Optional[int] = None,
    until_time: Optional[Time] = None,
) -> Restored:
    """Restores a backup, its increments in their order and the log in an archive to the new directory ``target``.

    It ends with the archive, or with the last backup without one. ``until_lsn`` is a position: ``Ticket.record_lsn`` of a
    commit, or what ``Database.archive`` returns. ``until_time`` is a ``datetime``, or seconds since 1970. The result is a
    database with another id, so give it an archive of its own. Backup and archive are only read.
    """
    return Restored(*_foreshore.restore(backup, target, list(increments), archive, until_lsn, _seconds(until_time)))


def verify_backup(
    backup: Path,
    *,
    increments: Sequence[Path] = (),
    archive: Optional[Path] = None,
    until_lsn: Optional[int] = None,
    until_time: Optional[Time] = None,
) -> Restored:
    """Reads and checks all that ``restore`` would read, and writes nothing."""
    return Restored(*_foreshore.restore(backup, None, list(increments), archive, until_lsn, _seconds(until_time)))


def repair(path: Path, backup: Path, *, archive: Optional[Path] = None, dry_run: bool = False) -> Repaired:
    """Repairs damaged pages of the closed database in ``path`` from its backup and the log since.

    The archive is read if the database no longer has that log. With ``dry_run`` nothing is written. A page that is not
    certain is not repaired: ``unrepaired`` says why.
    """
    pages, repaired, unrepaired = _foreshore.repair(path, backup, archive, dry_run)
    return Repaired(pages, [DamagedPage(*page) for page in repaired], [DamagedPage(*page) for page in unrepaired])
