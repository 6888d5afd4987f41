"""Values as files, which are read in parts."""

import io
import os
from typing import Any

from ._foreshore import RawValue


class ValueReader(io.RawIOBase):
    """One value as a file that is read, as it was when ``Table.open_value`` made it. It ends with its transaction.

    Each read is an operation of the transaction: ``io.BufferedReader`` makes small ones faster.
    """

    def __init__(self, value: RawValue) -> None:
        super().__init__()
        self._value = value
        self._at = 0

    @property
    def size(self) -> int:
        """The length of the value in bytes."""
        return self._value.size

    def read_at(self, at: int, size: int) -> bytes:
        """Returns the bytes from ``at`` on, at most ``size``, as far as the value goes."""
        if self.closed:
            raise ValueError("the file is closed")
        return self._value.read_at(at, size)

    def readinto(self, buffer: Any) -> int:
        """Fills ``buffer`` from the present position on, and returns the number of bytes."""
        with memoryview(buffer).cast("B") as view:
            found = self.read_at(self._at, len(view))
            view[: len(found)] = found
        self._at += len(found)
        return len(found)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position."""
        if self.closed:
            raise ValueError("the file is closed")
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}
        if whence not in starts:
            raise ValueError(f"whence {whence} is none of 0, 1 and 2")
        start = starts[whence]
        if start + offset < 0:
            raise ValueError("the position would be negative")
        self._at = start + offset
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
