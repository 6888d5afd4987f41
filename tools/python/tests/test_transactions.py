"""Commit, rollback, isolation, retries and the life of handles."""

import gc
import threading

import foreshore
import pytest


def test_a_block_commits_or_rolls_back(db):
    with db.begin() as tx:
        tx.table("t", str, int)["a"] = 1
    assert not tx.is_open
    with pytest.raises(ZeroDivisionError):
        with db.begin() as tx:
            tx.table("t", str, int)["a"] = 2
            1 / 0
    with db.read() as tx:
        assert tx.table("t", str, int)["a"] == 1
        with pytest.raises(foreshore.ReadOnly):
            tx.table("t", str, int)["a"] = 3
        with pytest.raises(foreshore.TableTypes):
            tx.table("t", str, str)


def test_a_transaction_is_ended_by_hand(db):
    tx = db.begin(label="by hand")
    table = tx.table("t", str, int)
    table["a"] = 1
    rows = iter(table)
    csn = tx.commit()
    assert 0 < csn <= db.durable_csn
    for use in [tx.commit, tx.rollback, lambda: table["a"], lambda: next(rows), tx.savepoint]:
        with pytest.raises(foreshore.Ended):
            use()
    tx = db.begin()
    tx.table("t", str, int)["a"] = 2
    tx.rollback()
    ticket = db.begin().commit_pipelined()
    assert ticket.wait() and ticket.wait(timeout=1.0) and ticket.is_durable


def test_dropped_transactions_release_their_locks(db):
    with db.begin() as tx:
        tx.table("t", str, int)["a"] = 1
    tx = db.begin()
    tx.table("t", str, int)["a"] = 2
    del tx
    gc.collect()
    with db.begin(lock_timeout=1) as tx:
        assert tx.table("t", str, int).get_for_update("a", wait=False) == 1


def test_savepoints(db):
    with db.begin() as tx:
        table = tx.table("t", str, int)
        with tx.savepoint():
            table["a"] = 1
        with pytest.raises(ZeroDivisionError):
            with tx.savepoint():
                table["a"] = 2
                1 / 0
        assert table["a"] == 1
        outer = tx.savepoint()
        inner = tx.savepoint()
        table["a"] = 3
        outer.rollback()
        assert table["a"] == 1
        with pytest.raises(foreshore.NoSavepoint):
            inner.rollback()
        outer.release()


def test_a_conflict_is_retryable_and_ends_the_transaction(db):
    with db.begin() as tx:
        tx.table("t", str, int)["a"] = 0
    old = db.begin(isolation="snapshot")
    table = old.table("t", str, int)
    assert table["a"] == 0
    with db.begin() as tx:
        tx.table("t", str, int)["a"] = 1
    with pytest.raises(foreshore.Conflict) as raised:
        table["a"] = 2
    assert isinstance(raised.value, foreshore.Retryable) and raised.value.retryable and raised.value.status == 21
    with pytest.raises(foreshore.RolledBack):
        old.commit()


def test_a_function_is_run_again_until_it_commits(db):
    runs = []

    @db.transaction(isolation="snapshot", label="counted")
    def count(tx, by, *, name):
        runs.append(name)
        table = tx.table("t", str, int)
        old = table.get(name, 0)
        if len(runs) == 1:
            with db.begin() as other:
                other.table("t", str, int)[name] = 10
        table[name] = old + by
        return old

    with db.begin() as tx:
        tx.table("t", str, int)["warm"] = 0
    assert count(5, name="a") == 10 and len(runs) == 2
    with db.read() as tx:
        assert tx.table("t", str, int)["a"] == 15

    @db.transaction
    def refuse(tx):
        tx.table("t", str, int)["a"] = 99
        with pytest.raises(foreshore.Invalid):
            tx.commit()
        raise LookupError("as the function wants")

    with pytest.raises(LookupError):
        refuse()
    assert db.run(lambda tx, key: tx.table("t", str, int)[key], "a") == 15
    with pytest.raises(TypeError):

        @db.transaction
        async def coroutine(tx):
            pass


def test_threads_that_deadlock_lose_nothing(db):
    with db.begin() as tx:
        for name in "pq":
            tx.table("t", str, int)[name] = 0

    def add(first, second):
        for _ in range(200):

            @db.transaction(durability="relaxed", deadline=60)
            def both(tx):
                table = tx.table("t", str, int)
                table[first] = table[first] + 1
                table[second] = table[second] + 1

            both()

    threads = [threading.Thread(target=add, args=names) for names in ["pq", "qp"]]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    with db.read(latest=True) as tx:
        assert dict(tx.table("t", str, int).items()) == {"p": 400, "q": 400}


def test_of_two_that_wait_for_each_other_one_is_told(db):
    with db.begin() as tx:
        tx.table("t", str, int)
    outcomes = []

    def write(table, key):
        try:
            table[key] = 1
            outcomes.append(None)
        except foreshore.Error as error:
            outcomes.append(type(error))

    one, two = db.begin(), db.begin()
    tables = [tx.table("t", str, int) for tx in (one, two)]
    tables[0]["a"] = tables[1]["b"] = 1
    thread = threading.Thread(target=write, args=[tables[0], "b"])
    thread.start()
    write(tables[1], "a")
    thread.join()
    assert set(outcomes) == {None, foreshore.Deadlock}


@pytest.mark.parametrize(
    "use",
    [
        lambda table: table.__setitem__("a", 2),
        lambda table: table.__delitem__("a"),
        lambda table: table.get_for_update("a"),
        lambda table: table.replace("a", 2),
        lambda table: table.pop("a"),
        lambda table: table.update_with("a", lambda _: 2),
        lambda table: table["a"],
        lambda table: "a" in table,
        lambda table: list(table),
        lambda table: len(table),
    ],
    ids=["set", "delete", "get for update", "replace", "pop", "update", "get", "contains", "scan", "count"],
)
def test_waits_release_the_interpreter(db, use):
    """A thread that waits for a row lock would stop the thread that holds it, if it held the interpreter."""
    with db.begin() as tx:
        tx.table("t", str, int)["a"] = 0
    holder = db.begin()
    holder.table("t", str, int)["a"] = 1
    waits = threading.Event()
    used = []

    def wait():
        with db.begin() as tx:
            table = tx.table("t", str, int)
            waits.set()
            use(table)
            used.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait()
    while db.stats()["lock"]["waits"] == 0:
        pass
    holder.commit()
    thread.join()
    assert used == [True]


def test_waits_for_the_disk_release_the_interpreter(path, tmp_path, turns):
    with foreshore.open(path) as db:

        def begun(**options):
            tx = db.begin(**options)
            tx.table("t", int, bytes)[1] = bytes(1000)
            return tx

        tx, ticket = begun, lambda: begun(durability="relaxed").commit_pipelined()
        turns.are_given_by(tx, lambda tx: tx.commit())
        turns.are_given_by(tx, lambda tx: tx.__exit__(None, None, None))
        turns.are_given_by(ticket, lambda ticket: ticket.wait())
        turns.are_given_by(tx, lambda tx: tx.prepare("p") or db.rollback_prepared("p"))
        turns.are_given_by(lambda: begun(durability="relaxed").commit(), lambda _: db.sync())
        turns.are_given_by(lambda: begun().commit(), lambda _: db.checkpoint())
        turns.are_given_by(lambda: None, lambda _: db.check())
        turns.are_given_by(lambda: tmp_path / f"copy {db.durable_csn} {begun().commit()}", db.backup)


def test_a_commit_is_durable_when_it_is_acknowledged(path):
    with foreshore.open(path) as db:
        for n in range(100):
            tx = db.begin()
            tx.table("t", int, int)[n] = n
            assert 0 < tx.commit() <= db.durable_csn


def test_a_second_thread_is_refused(db):
    with db.begin() as tx:
        tx.table("t", str, int)["a"] = 0
    holder = db.begin()
    holder.table("t", str, int)["a"] = 1
    waiter = db.begin()
    table = waiter.table("t", str, int)

    def write():
        while True:
            try:
                table["a"] = 2
                return
            except foreshore.InUse:  # the main thread was in a call
                pass

    thread = threading.Thread(target=write)
    thread.start()
    while True:
        try:
            table.get("z")
        except foreshore.InUse:
            break
    holder.commit()
    thread.join()
    waiter.commit()


class UsedElsewhere:
    """A transaction in which a thread waits for a row lock until the exit."""

    def __init__(self, db):
        with db.begin() as tx:
            tx.table("t", str, int)["a"] = 0
        self.holder = db.begin()
        self.holder.table("t", str, int)["a"] = 1

    def begin_wait(self, table):
        self.thread = threading.Thread(target=self.write, args=[table])
        self.thread.start()
        while True:
            try:
                table.get("z")
            except foreshore.InUse:
                break

    @staticmethod
    def write(table):
        while True:
            try:
                table["a"] = 2
                return
            except foreshore.InUse:  # the main thread was in a call
                pass

    def end_wait(self):
        self.holder.commit()
        self.thread.join()


def test_a_block_that_cannot_commit_says_so(db):
    used = UsedElsewhere(db)
    with pytest.raises(foreshore.InUse):
        with db.begin() as tx:
            used.begin_wait(tx.table("t", str, int))
    assert tx.is_open
    used.end_wait()
    tx.commit()
    with db.read() as tx:
        assert tx.table("t", str, int)["a"] == 2


def test_a_savepoint_that_cannot_roll_back_says_so(db):
    used = UsedElsewhere(db)
    tx = db.begin()
    table = tx.table("t", str, int)
    with pytest.raises(foreshore.InUse) as raised:
        with tx.savepoint():
            used.begin_wait(table)
            1 / 0
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    used.end_wait()
    with pytest.raises(ZeroDivisionError):
        with tx.savepoint():
            tx.rollback()
            1 / 0


def test_an_exit_ends_a_run(db):
    runs = []

    def leave(tx):
        runs.append(tx)
        table = tx.table("t", str, int)
        table.get("a")
        with db.begin() as other:
            other.table("t", str, int)["a"] = len(runs)
        with pytest.raises(foreshore.Conflict):
            table["a"] = 9
        raise SystemExit(3)

    with db.begin() as tx:
        tx.table("t", str, int)["a"] = 0
    for run in [db.run, db._run_pipelined]:
        with pytest.raises(SystemExit) as raised:
            run(leave, isolation="snapshot")
        assert raised.value.code == 3
    assert len(runs) == 2


def test_a_ticket_waits_for_the_disk_though_its_commit_is_relaxed(db):
    for n in range(100):
        tx = db.begin(durability="relaxed")
        tx.table("t", str, int)["a"] = n
        ticket = tx.commit_pipelined()
        assert ticket.wait() and ticket.is_durable and db.durable_csn >= ticket.csn


def test_threads_wait_for_one_ticket(db):
    waited = []
    for n in range(20):
        tx = db.begin()
        tx.table("t", str, int)["a"] = n
        ticket = tx.commit_pipelined()
        threads = [threading.Thread(target=lambda: waited.append(ticket.wait() and ticket.is_durable)) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert waited == [True] * 80


def test_options_are_checked(db):
    for options in [{"isolation": "none"}, {"durability": "none"}, {"lock_timeout": -1}, {"deadline": float("nan")}]:
        with pytest.raises(ValueError):
            db.begin(**options)
    with pytest.raises(TypeError):
        db.begin(colour="blue")
    with pytest.raises(foreshore.Invalid):
        foreshore.in_memory(memory_limit=1)


def test_every_error_has_its_own_number():
    assert {name for name, cls in vars(foreshore._errors).items() if isinstance(cls, type)} <= {*foreshore.__all__}
    leaves = [cls for cls in vars(foreshore).values() if isinstance(cls, type) and issubclass(cls, foreshore.Error)]
    numbers = [cls.status for cls in leaves if "status" in vars(cls)]
    assert len(numbers) == len(set(numbers)) > 40
    assert all(cls.retryable == (20 <= cls.status < 40) for cls in leaves if "status" in vars(cls))
