"""A place in the bytes of a frame: the one bounds check, and what an error says about where it is.

Nothing that the bytes claim is believed before it is compared with the bytes left; what is read is never larger than a
fixed multiple of the frame, because all elements of arrays and all tagged fields together have a bound.
"""

from __future__ import annotations

from typing import NoReturn

from kts.errors import InvalidRequestError


class Cursor:
    """A place in a frame.

    Parameters
    ----------
    frame : memoryview
        What follows the size.
    budget : int
        How many elements of arrays and tagged fields it may have, all together.
    """

    __slots__ = ("budget", "buffer", "end", "position", "trail")

    def __init__(self, frame: memoryview, budget: int) -> None:
        self.buffer = frame
        self.position = 0
        self.end = len(frame)
        self.budget = budget
        self.trail: list[str] = []  # the fields around an error, the innermost first

    def need(self, count: int, what: str) -> None:
        """Go on only if ``count`` bytes are left."""
        if count > self.end - self.position:
            self.fail(f"{count} bytes for {what}", f"{self.end - self.position} left")

    def fail(self, expected: str, found: str) -> NoReturn:
        raise InvalidRequestError(f"expected {expected}, found {found}", position=self.position)

    def charge(self, count: int, least: int, what: str) -> None:
        """Go on only if ``count`` elements of at least ``least`` bytes can follow, and the budget has them."""
        if count * least > self.end - self.position:
            self.fail(f"at least {count * least} bytes for {count} {what}", f"{self.end - self.position} left")
        self.budget -= count
        if self.budget < 0:
            self.fail(f"at most {self.budget + count} more {what}", f"{count}")


def read_uvarint(cursor: Cursor) -> int:
    """An unsigned varint of at most 32 bits."""
    value = shift = 0
    while True:
        if cursor.position >= cursor.end:
            cursor.fail("another byte of a varint", "the end")
        byte = cursor.buffer[cursor.position]
        cursor.position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            cursor.fail("a varint of at most 5 bytes", "a longer one")
    if value > 0xFFFFFFFF:
        cursor.fail("a varint of at most 32 bits", f"{value}")
    return value
