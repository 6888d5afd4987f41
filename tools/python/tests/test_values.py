"""Values in parts, and values that a function changes."""

import gc
import io
import threading
import weakref

import foreshore
import pytest

SIZE = 3 << 20
BYTES = bytes(n % 251 for n in range(SIZE))


def test_a_value_is_written_from_a_file(db):
    class Pieces:
        """Returns no more than a thousand bytes at once."""

        def __init__(self):
            self.file = io.BytesIO(BYTES)

        def read(self, size):
            return self.file.read(min(size, 1001))

    with db.begin() as tx:
        files = tx.table("files", str, bytes)
        assert files.put_from("a", Pieces()) == SIZE and files["a"] == BYTES
        assert files.put_from("b", io.BytesIO(BYTES), length=5) == 5 and files["b"] == BYTES[:5]
        with pytest.raises(foreshore.ReaderFailed):
            files.put_from("b", io.BytesIO(b"short"), length=6)

        class Failing:
            def __init__(self, outcome):
                self.outcome = outcome

            def read(self, size):
                return self.outcome(size)

        for outcome, error in [
            (lambda size: 1 // 0, ZeroDivisionError),
            (lambda size: "text", TypeError),
            (lambda size: bytes(size + 1), ValueError),
            (lambda size: files["a"], foreshore.InUse),
        ]:
            with pytest.raises(error):
                files.put_from("b", Failing(outcome))
        assert files["b"] == BYTES[:5]  # the transaction goes on
        with pytest.raises(TypeError):
            tx.table("texts", str, str).put_from("a", io.BytesIO(b"x"))


def test_a_value_is_read_as_a_file(db):
    with db.begin() as tx:
        files = tx.table("files", str, bytes)
        files["a"] = BYTES
        assert files.open_value("none") is None
        with files.open_value("a") as file:
            assert file.size == SIZE and file.readable() and file.seekable() and not file.writable()
            files["a"] = b""  # the file keeps what it has found
            assert file.read(10) == BYTES[:10] and file.tell() == 10
            assert file.seek(-5, io.SEEK_END) == SIZE - 5 and file.read() == BYTES[-5:] and file.read(1) == b""
            assert file.seek(1000) == 1000 and file.seek(24, io.SEEK_CUR) == 1024
            assert io.BufferedReader(file).read() == BYTES[1024:]
        with pytest.raises(ValueError):
            file.read_at(0, 1)
        with files.open_value("a") as file:
            assert file.read() == b""
            with pytest.raises(ValueError):
                file.seek(-1)
            with pytest.raises(ValueError):
                file.seek(0, 7)
        files["a"] = BYTES
        left = files.open_value("a")
    with pytest.raises(foreshore.Ended):
        left.read(1)
    with db.read() as tx, tx.table("files", str, bytes).open_value("a") as file:
        assert file.read_at(SIZE - 3, 10) == BYTES[-3:] and file.read_at(SIZE + 1, 10) == b""


def test_a_value_is_changed_by_a_function(db):
    with db.begin() as tx:
        table = tx.table("t", str, int)
        add = lambda by: lambda old: (old or 0) + by
        assert table.update_with("a", add(5)) == 5 and table.update_with("a", add(2)) == 7 and table["a"] == 7
        assert table.update_with("a", lambda old: None) is None and "a" not in table
        assert table.update_with("a", lambda old: None) is None
        table["a"] = 1
        for function, error in [(lambda old: old // 0, ZeroDivisionError), (lambda old: "text", TypeError)]:
            with pytest.raises(error):
                table.update_with("a", function)
        assert table["a"] == 1
        # The function may use the transaction.
        assert table.update_with("b", lambda old: table["a"] + 1) == 2


def test_a_cycle_through_a_merge_function_is_collected(db):
    class Counter:
        def __init__(self, tx):
            self.table = tx.table("t", int, int, merge=self.add)

        def add(self, old, more):
            return (old or 0) + more

    with db.begin() as tx:
        tx.table("t", int, int)[1] = 1
    counter = Counter(db.begin())
    assert counter.table.merge(1, 2) == 3
    gone = weakref.ref(counter)
    del counter
    gc.collect()
    assert gone() is None
    with db.begin(lock_timeout=0.02) as tx:  # the transaction of the merge has released its lock
        assert tx.table("t", int, int)[1] == 1


BY_LENGTH = foreshore.Index("by length", int, lambda _, value: [len(value)])


@pytest.mark.parametrize(
    "make",
    [
        lambda tx, table: tx,
        lambda tx, table: table,
        lambda tx, table: iter(table),
        lambda tx, table: table.open_value(1),
        lambda tx, table: table.by_index(BY_LENGTH),
        lambda tx, table: table.by_index(BY_LENGTH).range(),
        lambda tx, table: tx.savepoint(),
    ],
    ids=["transaction", "table", "rows", "value", "index", "rows of an index", "savepoint"],
)
def test_a_rollback_by_the_last_handle_releases_the_interpreter(db, turns, make):
    def last_handle():
        tx = db.begin()
        table = tx.table("t", int, bytes, indexes=[BY_LENGTH])
        for n in range(2000):
            table[n] = b"x"
        return [make(tx, table)]

    turns.are_given_by(last_handle, lambda last: last.clear())


def test_merges_take_turns(db):
    def merge_often():
        for _ in range(100):
            db.run(lambda tx: tx.table("t", str, int, merge=add).merge("a", 2), durability="relaxed")

    add = lambda old, more: (old or 0) + more
    threads = [threading.Thread(target=merge_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with db.begin() as tx:
        table = tx.table("t", str, int, merge=add)
        assert table["a"] == 600 and table.merge("a", 1) == 601 and table["a"] == 601
        with pytest.raises(TypeError):
            tx.table("t", str, int).merge("a", 1)
        with pytest.raises(TypeError):
            tx.table("t", str, int, merge=lambda old, more: None).merge("a", 1)
