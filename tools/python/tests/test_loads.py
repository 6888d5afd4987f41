"""Loads of many rows, and the numbers that go on above theirs."""

import foreshore
import pytest


def pages(db):
    return db.check()["pages"]


def test_rows_are_loaded_behind_the_others(db):
    with db.begin() as tx:
        table = tx.table("t", int, str)
        assert table.load((n, str(n)) for n in range(20000)) == 20000
        assert table.load({20000: "a", 20001: "b"}.items()) == 2
        assert table.load([]) == 0
        with pytest.raises(foreshore.LoadOrder):
            table.load([(30000, "c"), (5, "d")])
    with db.read() as tx:
        table = tx.table("t", int, str)
        assert len(table) == 20002 and table[19999] == "19999" and table.last() == (20001, "b")
        with pytest.raises(foreshore.ReadOnly):
            table.load([(30000, "c")])


def test_a_load_that_fails_leaves_nothing(db):
    def rows(table, error):
        for n in range(1000):
            yield n, n
        with pytest.raises(foreshore.InUse):
            table.get(1)
        raise error

    with db.begin() as tx:
        table = tx.table("t", int, int)
        for error in [LookupError("gone"), KeyboardInterrupt()]:
            with pytest.raises(type(error)):
                table.load(rows(table, error))
            assert len(table) == 0
        for wrong in [[(1, "text")], [(1,)], [3], 7]:
            with pytest.raises((TypeError, ValueError)):
                table.load(wrong)
        table[1] = 1
    with db.read() as tx:
        assert list(tx.table("t", int, int).items()) == [(1, 1)]


def test_a_load_keeps_indexes(db):
    by_value = foreshore.Index("by value", int, lambda key, value: [value])
    with db.begin() as tx:
        table = tx.table("t", int, int, indexes=[by_value])
        table.load((n, -n) for n in range(1000))
        assert table.by_index(by_value).check() == 1000 and table.by_index(by_value)[-7] == (7, -7)


def test_pages_are_filled_as_far_as_told(db):
    found = []
    for name, percent in [("full", 100), ("sparse", 10)]:
        before = pages(db)
        with db.begin() as tx:
            tx.table(name, int, int).load(((n, n) for n in range(20000)), fill_percent=percent)
        found.append(pages(db) - before)
    assert found[1] > 5 * found[0]
    with db.begin() as tx:
        for percent, error in [(0, foreshore.Invalid), (101, foreshore.Invalid), (300, OverflowError)]:
            with pytest.raises(error):
                tx.table("t", int, int).load([], fill_percent=percent)


def test_numbers_go_on_above_those_of_loaded_rows(db):
    with db.begin() as tx:
        table = tx.table("t", int, str)
        table.load((n, "x") for n in range(1, 5001))
        table.skip_ids(table.last()[0])
        assert table.next_id() == 5001
        table.skip_ids(3)
        assert table.next_id() == 5002
        with pytest.raises(foreshore.Invalid):
            table.skip_ids(1 << 63)
