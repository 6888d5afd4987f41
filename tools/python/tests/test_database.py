"""Databases on disk: open, close, backup, forks, kills."""

import faulthandler
import gc
import os
import signal
import subprocess
import sys
import textwrap

import foreshore
import pytest
from foreshore import _aio


def put(db, key, value):
    with db.begin() as tx:
        tx.table("t", str, int)[key] = value


def test_a_database_is_opened_again(path):
    with foreshore.open(path, memory_limit=64 << 20, lock_timeout=1.5, max_transactions=10) as db:
        put(db, "a", 1)
        with pytest.raises(foreshore.Locked):
            foreshore.open(path)
    with pytest.raises(foreshore.Closed):
        put(db, "a", 2)
    with foreshore.open(path, read_only=True) as db, foreshore.open(path, read_only=True):
        with db.read() as tx:
            assert tx.table("t", str, int)["a"] == 1
        with pytest.raises(foreshore.ReadOnly):
            put(db, "a", 2)
    with pytest.raises(foreshore.NoDatabase):
        foreshore.open(path / "none", existing=True)


def test_backup_check_and_counters(path, tmp_path):
    with foreshore.open(path) as db:
        put(db, "a", 1)
        db.checkpoint()
        db.sync()
        assert db.check() == {"tables": 1, "rows": 1, "pages": db.check()["pages"]}
        with db.begin() as tx:
            tx.table("large", int, bytes)[1] = bytes(5 << 20)
        with db.begin() as tx:
            tx.drop_table("large")
        assert db.compact() > 0
        assert db.backup(tmp_path / "copy") > 0
        with pytest.raises(foreshore.BadBackup):
            db.backup(tmp_path / "copy")
        assert db.stats()["txn"]["commits"] >= 1
        db.close(wait=1)
    with foreshore.open(tmp_path / "copy") as db, db.read() as tx:
        assert tx.table("t", str, int)["a"] == 1


def test_a_restart_target_bounds_the_log():
    with foreshore.in_memory(restart_target=4.0) as db:
        assert db.stats()["checkpoint"]["budget"] == 4 * (32 << 20)  # until a restart was measured
    with foreshore.in_memory(restart_target=3600, log_budget=100 << 20) as db:
        assert db.stats()["checkpoint"]["budget"] == 100 << 20
    for target in [0, -1, float("nan")]:
        with pytest.raises(ValueError):
            foreshore.in_memory(restart_target=target)


def test_how_files_are_written(path):
    with foreshore.open(path, device="buffered", doublewrite="off", group_window=0) as db:
        put(db, "a", 1)
        stats = db.stats()
        assert stats["backend"] == "buffered" and stats["page_writes"] == "plain"
    with foreshore.open(path, doublewrite="on", group_window=100e-6) as db:
        assert db.stats()["page_writes"] == "doublewrite"
    for refused in [{"device": "floppy"}, {"doublewrite": "perhaps"}, {"group_window": 20}]:
        with pytest.raises(foreshore.Invalid):
            foreshore.open(path, **refused)


def test_damage_is_told(path):
    with foreshore.open(path) as db:
        put(db, "a", 1)
    for file in path.iterdir():
        if file.name == "data":
            os.truncate(file, 8192)
    with pytest.raises(foreshore.Corrupted):
        foreshore.open(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_refused(path):
    with foreshore.open(path) as db:
        tx = db.begin()
        table = tx.table("t", str, int)
        table["a"] = 1
        tickets = [db.begin().commit_pipelined() for _ in range(2)]
        queue = _aio.Queue()
        child = os.fork()
        if child == 0:
            refused = 0
            uses = [db.begin, lambda: table["a"], tx.commit, db.sync, tx.__exit__, tickets[0].wait, queue.take]
            uses += [lambda: tickets[0].is_durable, lambda: _aio.Queue().add(tickets[0], 1), lambda: queue.add(tickets[1], 1)]
            for use in uses:
                try:
                    use(*[None] * 3) if use == tx.__exit__ else use()
                except foreshore.Forked:
                    refused += 1
            del tx, table, tickets, queue, uses
            with foreshore.in_memory() as own:
                put(own, "b", 2)
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10
        assert all(ticket.wait() for ticket in tickets)
        tx.commit()
        db.check()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_leaves_a_run_is_aborted(path):
    """The run would commit or roll back, and write to the log of the parent."""
    parent = os.getpid()

    def fork(tx, fails):
        tx.table("t", str, int)["a"] = 1
        child = os.fork()
        if child == 0:
            faulthandler.disable()  # the abort is meant, and a report of it reads like a failure
        else:
            assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGABRT
        if fails:
            raise LookupError

    with foreshore.open(path) as db:
        try:
            db.run(fork, False)
            with pytest.raises(LookupError):
                db.run(fork, True)
        finally:
            if os.getpid() != parent:
                os._exit(0)
        put(db, "b", 2)
        db.check()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_keeps_no_lock(path):
    closed = os.pipe()
    db = foreshore.open(path)
    child = os.fork()
    if child == 0:
        os.read(closed[0], 1)
        try:
            with foreshore.open(path) as own:
                put(own, "a", 1)
            os._exit(0)
        finally:
            os._exit(1)
    db.close()
    with foreshore.open(path) as db:  # while the child lives
        put(db, "b", 2)
    os.write(closed[1], b"!")
    assert os.waitpid(child, 0)[1] == 0
    with foreshore.open(path) as db, db.read() as tx:
        assert len(tx.table("t", str, int)) == 2


def test_a_transaction_keeps_its_database(path):
    tx = foreshore.open(path).begin()
    gc.collect()
    tx.table("t", str, int)["a"] = 1
    tx.commit()
    del tx
    assert foreshore.open(path).read().table("t", str, int)["a"] == 1
    assert list(foreshore.open(path).read().table("t", str, int)) == ["a"]


@pytest.mark.parametrize("end", ["commit", "rollback", "commit_pipelined", "rollback_pipelined", "prepare", "with"])
def test_an_ended_transaction_keeps_no_database(path, end):
    db = foreshore.open(path)
    tx = db.begin()
    tx.table("t", int, int)[1] = 1
    if end == "with":
        with tx:
            pass
    else:
        getattr(tx, end)(*(["name"] if end == "prepare" else []))
    del db
    with foreshore.open(path):
        assert not tx.is_open


WRITER = textwrap.dedent(
    """
    import sys, foreshore
    db = foreshore.open(sys.argv[1])
    with db.begin() as tx:
        table = tx.table("t", int, int)
        first = (table.last() or (-1, 0))[0] + 1
    for n in range(first, 10**9):
        with db.begin() as tx:
            tx.table("t", int, int)[n] = n
            tx.table("u", int, int)[n] = n
        print(n, flush=True)
    """
)


def test_a_kill_loses_nothing_that_was_acknowledged(path):
    """Each kill is at another moment. Both tables have what was printed, and neither more than the other."""
    for acknowledged in [1, 20, 75, 150, 300]:
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        last = [int(writer.stdout.readline()) for _ in range(acknowledged)][-1]
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.wait()
        last = max([last, *map(int, rest[:-1])])
        with foreshore.open(path) as db, db.read() as tx:
            rows = list(tx.table("t", int, int))
            assert rows == list(range(len(rows))) and len(rows) > last
            assert list(tx.table("u", int, int)) == rows
            db.check()


def test_transactions_leak_no_memory(path):
    """After a warm-up, a hundred thousand transactions of all ends need no memory."""

    def rss():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def some(count):
        for n in range(count):
            tx = db.begin(durability="relaxed")
            table = tx.table("t", int, (str, bytes))
            table[n % 100] = ("text", b"bytes")
            assert table[n % 100] == ("text", b"bytes")
            for _ in table[:3]:
                pass
            if n % 3 == 0:
                tx.commit()
            elif n % 3 == 1:
                tx.rollback()

    count = int(os.environ.get("FORESHORE_LEAK", "100000"))
    # On disk: a database in memory keeps its log there.
    with foreshore.open(path, memory_limit=16 << 20) as db:
        some(count // 5)
        before = rss()
        some(count)
        assert rss() - before < 8 << 20


def test_the_types_of_a_rust_program(path):
    """A database that the program ``foreshore`` has loaded, whose rows Rust has encoded."""
    program = os.environ.get("FORESHORE_PROGRAM")
    if not program:
        pytest.skip("FORESHORE_PROGRAM does not name the program")
    with foreshore.open(path) as db, db.begin() as tx:
        tx.table("pairs", ("u64", str), "(i64,str)")[1, "a\0b"] = (-5, "x")
        tx.table("numbers", int, float)[-3] = 1.5
        tx.table("names", str, "option<bytes>")["ü"] = b"\x00\xff"

    def foreshore_(*arguments, **more):
        return subprocess.run([program, *arguments], check=True, capture_output=True, text=True, **more).stdout

    assert foreshore_("scan", str(path), "pairs", "--json").strip() != ""
    assert foreshore_("get", str(path), "numbers", "--", "-3").strip() == "1.5"
    assert foreshore_("get", str(path), "names", "ü").strip().strip('"') == "00ff"
    foreshore_("put", str(path), "pairs", '[2,"b"]', '[7,"y"]')
    foreshore_("put", str(path), "numbers", "--", "-9", "2.25")
    foreshore_("check", str(path))
    with foreshore.open(path) as db, db.read() as tx:
        assert list(tx.table("pairs", ("u64", str), "(i64,str)").items()) == [((1, "a\0b"), (-5, "x")), ((2, "b"), (7, "y"))]
        assert list(tx.table("numbers", int, float).items()) == [(-9, 2.25), (-3, 1.5)]
