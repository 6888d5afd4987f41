"""Awaited commits."""

import asyncio
import gc
import weakref

import foreshore
import pytest
from foreshore import _aio


def test_256_commits_in_flight_wake_the_loop_a_few_times(path):
    async def main(db):
        tickets = []
        for n in range(256):
            tx = db.begin()
            tx.table("t", int, int)[n] = n
            tickets.append(tx.commit_pipelined())
        numbers = await asyncio.gather(*tickets)
        assert numbers == sorted(set(numbers)) and numbers[-1] <= db.durable_csn
        return _aio.completions().wake_ups

    with foreshore.open(path) as db:
        groups = db.stats()["log"]["groups"]
        wake_ups = asyncio.run(main(db))
        assert 1 <= wake_ups <= db.stats()["log"]["groups"] - groups + 1
        with db.read() as tx:
            assert len(tx.table("t", int, int)) == 256


def test_a_commit_is_durable_when_its_await_returns(path):
    async def main(db):
        for n in range(100):
            tx = db.begin()
            tx.table("t", int, int)[n] = n
            assert 0 < await tx.commit_pipelined() <= db.durable_csn

    with foreshore.open(path) as db:
        asyncio.run(main(db))


def test_an_async_block_commits_or_rolls_back(db):
    async def main():
        async with db.begin_async() as tx:
            tx.table("t", int, int)[1] = 1
        tx = db.begin_async()
        tx.table("t", int, int)[2] = 2
        assert await tx.commit() > 0
        with pytest.raises(ZeroDivisionError):
            async with db.begin_async() as tx:
                tx.table("t", int, int)[3] = 3
                1 / 0
        async with db.begin_async() as tx:
            with tx.savepoint() as savepoint:
                tx.table("t", int, int)[4] = 4
                savepoint.rollback()
            assert tx.tables() == [("t", "i64", "i64")]
            await tx.rollback()
        assert not tx.is_open

    asyncio.run(main())
    with db.read() as tx:
        assert list(tx.table("t", int, int)) == [1, 2]


def test_tables_are_renamed_and_cleared_by_an_async_transaction(db):
    async def main():
        async with db.begin_async() as tx:
            for name in ["a", "b"]:
                tx.table(name, int, int)[1] = 1
            assert tx.rename_table("a", "c") and not tx.rename_table("a", "d")
            assert tx.clear_table("b") and not tx.clear_table("a")

    asyncio.run(main())
    with db.read() as tx:
        assert [name for name, _, _ in tx.tables()] == ["b", "c"]
        assert list(tx.table("b", int, int)) == [] and list(tx.table("c", int, int)) == [1]


def test_tasks_that_contend_for_a_row_lose_nothing(db):
    def add(tx, by):
        table = tx.table("t", str, int)
        table["sum"] = (table.get_for_update("sum") or 0) + by
        return by

    async def main():
        return await asyncio.gather(*(db.run_async(add, n) for n in range(50)))

    assert asyncio.run(main()) == list(range(50))
    with db.read() as tx:
        assert tx.table("t", str, int)["sum"] == sum(range(50))


def test_a_cancelled_wait_does_not_undo_the_commit(db):
    async def main():
        tx = db.begin()
        tx.table("t", int, int)[1] = 1
        ticket = tx.commit_pipelined()
        waiting = asyncio.ensure_future(asyncio.wait_for(ticket, 10))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        other = db.begin().commit_pipelined()
        await other
        assert other.is_durable
        with pytest.raises(RuntimeError):
            await other

    asyncio.run(main())
    asyncio.run(main())
    with db.read(latest=True) as tx:
        assert len(tx.table("t", int, int)) == 1


def test_a_cancelled_wait_keeps_no_loop(db):
    async def main():
        loop = asyncio.get_running_loop()
        # The loop ends before the commit is told.
        loop.remove_reader(_aio.completions().queue.fileno())
        tx = db.begin()
        tx.table("t", int, int)[1] = 1
        _aio.durable(tx.commit_pipelined()).cancel()
        return weakref.ref(loop)

    loop = asyncio.run(main())
    gc.collect()
    assert loop() is None
