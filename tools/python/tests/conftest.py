import sys
import threading
import time

import foreshore
import pytest


@pytest.fixture
def db():
    with foreshore.in_memory(memory_limit=64 << 20) as db:
        yield db


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


class Turns:
    """Counts the turns of another thread, which has one when this thread waits or releases the interpreter."""

    def __init__(self):
        self.count, self.is_over = 0, False

    def run(self):
        while not self.is_over:
            self.count += 1
            time.sleep(0)

    def are_given_by(self, prepare, call):
        """Checks that `call` of what `prepare` returns gives a turn."""

        def is_given():
            prepared = prepare()
            before = self.count
            call(prepared)
            return self.count > before

        # A busy machine may not run the other thread in time.
        assert any(is_given() for _ in range(50))


@pytest.fixture
def turns():
    turns = Turns()
    thread = threading.Thread(target=turns.run)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)  # a thread runs until it waits or releases the interpreter
    thread.start()
    try:
        yield turns
    finally:
        turns.is_over = True
        sys.setswitchinterval(interval)
        thread.join()
