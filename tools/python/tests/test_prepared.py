"""Two-phase commit, also over a restart."""

import foreshore
import pytest


def prepare(db, row, name):
    tx = db.begin(label="orders")
    tx.table("t", str, int)[row] = 1
    tx.prepare(name)
    return tx


def rows(db):
    with db.read() as tx:
        return list(tx.table("t", str, int))


def test_prepared_transactions_are_ended_by_their_names(path):
    with foreshore.open(path) as db:
        with db.begin() as tx:
            tx.table("t", str, int)
        tx = prepare(db, "a", "order 1")
        assert not tx.is_open
        with pytest.raises(foreshore.Ended):
            tx.commit()
        prepare(db, "b", "order 2")
        for name, error in [("order 2", foreshore.PreparedExists), ("", foreshore.PreparedName), ("a\0b", foreshore.PreparedName)]:
            with pytest.raises(error):
                prepare(db, "c", name)
        with pytest.raises(foreshore.ReadOnly):
            db.read().prepare("a reader")
        assert rows(db) == []
    with foreshore.open(path) as db:
        waiting = db.prepared()
        assert [(one.name, one.label) for one in waiting] == [("order 1", "orders"), ("order 2", "orders")]
        assert all(one.age >= 0 for one in waiting)
        with pytest.raises(foreshore.LockTimeout):
            with db.begin(lock_timeout=0.02) as tx:
                tx.table("t", str, int)["a"] = 2
        assert db.commit_prepared("order 1") > 0
        db.rollback_prepared("order 2")
        assert rows(db) == ["a"] and db.prepared() == []
        for end in [db.commit_prepared, db.rollback_prepared]:
            with pytest.raises(foreshore.NoPrepared):
                end("order 1")


def test_a_block_that_prepares_does_not_commit(db):
    with db.begin() as tx:
        tx.table("t", str, int)
    with db.begin() as tx:
        tx.table("t", str, int)["a"] = 1
        tx.prepare("order")
    assert rows(db) == []
    db.commit_prepared("order")
    assert rows(db) == ["a"]
