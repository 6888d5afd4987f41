"""Awaited commits: completed tickets wake the event loop through one descriptor, once for many of them."""

import asyncio
from typing import Dict
from weakref import WeakKeyDictionary

from ._foreshore import Queue, Ticket


class Completions:
    """The commits that one event loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.queue = Queue()
        self.futures: Dict[int, "asyncio.Future[int]"] = {}
        self.next_tag = 0
        #: How often the loop was woken.
        self.wake_ups = 0
        # The loop refers to this object, and this object not to the loop, so that both can be collected.
        loop.add_reader(self.queue.fileno(), self._wake)

    def add(self, loop: asyncio.AbstractEventLoop, ticket: Ticket) -> "asyncio.Future[int]":
        future: "asyncio.Future[int]" = loop.create_future()
        self.next_tag += 1
        tag = self.next_tag
        self.futures[tag] = future
        # One that is cancelled refers to its loop, which may be closed before the commit is durable.
        future.add_done_callback(lambda _: self.futures.pop(tag, None))
        try:
            self.queue.add(ticket, tag)
        except BaseException:
            future.cancel()
            raise
        return future

    def _wake(self) -> None:
        self.wake_ups += 1
        for tag, csn, error in self.queue.take():
            future = self.futures.pop(tag, None)
            # A future that was cancelled is done. Its commit is not undone.
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(csn)
            else:
                future.set_exception(error)


_completions: "WeakKeyDictionary[asyncio.AbstractEventLoop, Completions]" = WeakKeyDictionary()


def completions() -> Completions:
    """Returns the commits that the running event loop waits for."""
    loop = asyncio.get_running_loop()
    found = _completions.get(loop)
    if found is None:
        found = _completions[loop] = Completions(loop)
    return found


def durable(ticket: Ticket) -> "asyncio.Future[int]":
    """Returns a future of the running event loop that resolves to the commit number when the commit is durable."""
    return completions().add(asyncio.get_running_loop(), ticket)
