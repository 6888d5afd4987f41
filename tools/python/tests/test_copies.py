"""Backups, archives, restores to the end, to a position and to a time, and repair."""

import datetime
import time

import foreshore
import pytest
from foreshore import _copies


def put(db, row):
    tx = db.begin()
    tx.table("t", str, int)[row] = 1
    ticket = tx.commit_pipelined()
    assert ticket.wait()
    return ticket


def rows(path):
    with foreshore.open(path) as db, db.read() as tx:
        return "".join(tx.table("t", str, int))


@pytest.fixture
def copies(path, tmp_path):
    """A closed database of four rows, of which a backup has one and an increment two. Returns the third commit."""
    archive, full, increment = tmp_path / "archive", tmp_path / "full", tmp_path / "increment"
    with foreshore.open(path, archive=archive, archive_limit=1 << 30) as db:
        put(db, "a")
        db.backup(full)
        put(db, "b")
        assert db.backup_since(increment, full) > 0
        third = put(db, "c")
        assert db.archive() >= third.record_lsn
        time.sleep(0.02)
        now = time.time()
        time.sleep(0.02)
        put(db, "d")
        db.archive()
    return archive, full, increment, third.record_lsn, now


def test_a_restore_ends_where_it_is_told(copies, tmp_path):
    archive, full, increment, lsn, now = copies
    restored = foreshore.restore(full, tmp_path / "alone")
    assert rows(tmp_path / "alone") == "a"
    assert restored.lsn == restored.backup_lsn and restored.pages > 0 and restored.quarantined == 0
    foreshore.restore(full, tmp_path / "both", increments=[increment])
    assert rows(tmp_path / "both") == "ab"
    verified = foreshore.verify_backup(full, increments=[increment], archive=archive)
    assert verified.lsn > lsn and abs(verified.time_ns - time.time_ns()) < 60 * 10**9
    assert foreshore.restore(full, tmp_path / "end", archive=archive).lsn == verified.lsn
    assert rows(tmp_path / "end") == "abcd"
    restored = foreshore.restore(full, tmp_path / "position", increments=[increment], archive=archive, until_lsn=lsn)
    assert restored.lsn == lsn and restored.csn >= lsn
    assert rows(tmp_path / "position") == "abc"
    moment = datetime.datetime.fromtimestamp(now, datetime.timezone.utc)
    for name, until in [("seconds", now), ("datetime", moment)]:
        foreshore.restore(full, tmp_path / name, archive=archive, until_time=until)
        assert rows(tmp_path / name) == "abc"


def test_the_time_of_a_restore_is_one_to_restore_to(path, tmp_path):
    archive, full = tmp_path / "archive", tmp_path / "full"
    with foreshore.open(path, archive=archive) as db:
        put(db, "a")
        db.backup(full)
        ends = []
        for _ in range(20):
            put(db, "b")
            db.archive()
            ends.append(foreshore.verify_backup(full, archive=archive))
        put(db, "c")  # the log goes on after the last of the times
        db.archive()
    for end in ends:
        # A float would miss the last digits of most of them.
        again = foreshore.verify_backup(full, archive=archive, until_time_ns=end.time_ns)
        assert (again.lsn, again.csn, again.time_ns) == (end.lsn, end.csn, end.time_ns)


def test_a_datetime_is_exact_to_the_microsecond():
    utc = datetime.timezone.utc
    for microsecond in range(0, 1000000, 997):
        moment = datetime.datetime(2026, 1, 2, 3, 4, 5, microsecond, utc)
        expected = int(moment.replace(microsecond=0).timestamp()) * 10**9 + microsecond * 1000
        assert _copies._nanoseconds(moment, None) == expected


def test_a_restore_wants_a_target(copies):
    with pytest.raises(TypeError):
        foreshore.restore(copies[1], None)


def test_a_restore_that_is_refused_writes_nothing(copies, tmp_path):
    archive, full, increment, lsn, now = copies
    target = tmp_path / "target"
    for options in [{"until_lsn": 1}, {"increments": [increment, increment]}, {"until_lsn": lsn + 10**9}]:
        with pytest.raises(foreshore.BadBackup):
            foreshore.restore(full, target, archive=archive, **options)
    for until in [{"until_lsn": 1, "until_time": now}, {"until_time": now, "until_time_ns": 1},
                  {"until_lsn": 1, "until_time_ns": 1}, {"until_time": float("nan")}, {"until_time": float("inf")},
                  {"until_time": 1e300}, {"until_time": -1.0}, {"until_time_ns": -1}, {"until_time_ns": 1 << 64}]:
        with pytest.raises(ValueError):
            foreshore.restore(full, target, archive=archive, **until)
    with pytest.raises(foreshore.NoDatabase):
        foreshore.verify_backup(tmp_path / "none")
    assert [path for path in target.rglob("*") if path.is_file()] == []
    foreshore.restore(full, target)
    assert rows(target) == "a"
    target = tmp_path / "other"
    target.mkdir()
    (target / "data").touch()
    with pytest.raises(foreshore.BadBackup):
        foreshore.restore(full, target)


def test_a_repair_takes_a_page_from_the_backup_and_the_log(copies, path):
    archive, full = copies[:2]
    assert foreshore.repair(path, full, archive=archive)[1:] == ([], [])
    with open(path / "data", "r+b") as data, open(path / "dw", "r+b") as images:
        data.seek(3 * 8192)  # the root of the catalogue
        data.write(bytes(8192))
        images.seek(4096)
        images.write(bytes(258 * 4096))
    planned = foreshore.repair(path, full, archive=archive, dry_run=True)
    with pytest.raises(foreshore.Corrupted):
        foreshore.open(path)
    repaired = foreshore.repair(path, full, archive=archive)
    assert repaired == planned and repaired.pages > 0 and repaired.unrepaired == []
    assert [page.page for page in repaired.repaired] == [3] and repaired.repaired[0].why
    assert rows(path) == "abcd"


def test_limits_of_snapshots_and_transactions():
    with foreshore.in_memory(snapshot_max_age=0.01, snapshot_max_bytes=1 << 20, transaction_max_age=0.01) as db:
        for begin, error in [(db.read, foreshore.SnapshotTooOld), (db.begin, foreshore.TransactionTooOld)]:
            with db.begin(isolation="read-committed") as tx:
                tx.table("t", str, int)["a"] = 1
            old = begin()
            table = old.table("t", str, int)
            table.get("a")
            with pytest.raises(error):
                for n in range(1000):
                    time.sleep(0.002)
                    db.run(lambda tx: tx.table("u", int, int).replace(n, n))
                    table.get("a")
    for option in ["snapshot_max_age", "snapshot_max_bytes", "transaction_max_age"]:
        with pytest.raises(ValueError):
            foreshore.in_memory(**{option: 0})
