"""Access to the header fields of entries. Only the compiled core knows the layout.

An entry is a record batch (magic 2), a message (magic 0 or 1) or a wrapper message. No other Python file needs a byte
position:

>>> import kts
>>> from kts.codec.layout import Entries, read_header
>>> records = kts.encode({"offset": [5, 6], "timestamp": [10, 11], "value": [b"a", b"b"]}, base_offset=5)
>>> entries = Entries(records)  # one walk over all headers
>>> len(entries), entries.end
(1, 77)
>>> entries[0].last_offset, entries[0].producer_id  # one entry: about 0.2 us in all
(6, -1)
>>> entries.column("last_offset")  # many entries: arrays, views of the table
array([6])
>>> read_header(records[:61]).max_timestamp  # the first bytes of an entry, its end may be elsewhere
11

``Entries(..., verify_crc=True)`` fills ``all_sound`` and ``crc_ok``; ``until_damage=True`` stops before an entry with
an impossible size or magic and keeps the ``error`` instead of raising it; ``start=`` is added to the positions.

``OVERHEAD_BYTES`` are the offset and the size, which the size field does not count. ``SMALLEST_ENTRY_BYTES`` is a
message of magic 0 without key and value. ``HEADER_BYTES`` is the longest header, of a record batch: enough for
``read_header``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._codec import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    ENTRY,
    HAS_TIMESTAMP,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    OVERHEAD_BYTES,
    SMALLEST_ENTRY_BYTES,
    TRANSACTIONAL,
    Entries,
    Entry,
    crc32,
    read_header,
)

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "CODEC_MASK",
    "CONTROL",
    "DELETE_HORIZON",
    "ENTRY",
    "HAS_TIMESTAMP",
    "HEADER_BYTES",
    "LOG_APPEND_TIME",
    "OVERHEAD_BYTES",
    "SMALLEST_ENTRY_BYTES",
    "TRANSACTIONAL",
    "Entries",
    "Entry",
    "candidates",
    "claimed_offset",
    "claimed_size",
    "is_sound_message",
    "read_header",
    "same_message_header",
]

_CRC, _MAGIC, _VALUE = 12, 16, {0: 22, 1: 30}  # positions of a message's CRC, magic and value, if its key is null


def same_message_header(one: bytes | memoryview, other: bytes | memoryview) -> bool:
    """Whether two messages have the same offset, magic, attributes, timestamp and key length."""
    end = _VALUE.get(one[_MAGIC], len(one))
    return one[: _CRC - 4] == other[: _CRC - 4] and one[_MAGIC:end] == other[_MAGIC:end]


def claimed_offset(data: bytes | memoryview, at: int = 0) -> int | None:
    """Offset of an entry by its offset field alone, which no CRC covers; None if the field is incomplete."""
    offset = data[at : at + 8]
    return int.from_bytes(offset, "big", signed=True) if len(offset) == 8 else None


def claimed_size(data: bytes | memoryview, at: int = 0) -> int | None:
    """Size of an entry by its size field alone, which may be damaged; None if the field is incomplete."""
    size = data[at + 8 : at + OVERHEAD_BYTES]
    return int.from_bytes(size, "big", signed=True) + OVERHEAD_BYTES if len(size) == 4 else None


def is_sound_message(entry: bytes | memoryview) -> bool:
    """Whether bytes are one whole message of any magic but 2, with the CRC that it states."""
    stated = int.from_bytes(entry[_CRC:_MAGIC], "big")
    return len(entry) > _MAGIC and claimed_size(entry) == len(entry) and crc32(entry[_MAGIC:]) == stated


def candidates(data: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Positions where an entry could begin, by its magic and the signs of its numbers; claimed sizes and offsets."""
    count = max(len(data) - SMALLEST_ENTRY_BYTES + 1, 0)
    raw = np.frombuffer(data, np.uint8)
    likely = (raw[_MAGIC : _MAGIC + count] <= 2) & (raw[:count] < 128) & (raw[8 : 8 + count] < 128)
    likely &= (raw[8 : 8 + count] | raw[9 : 9 + count] | raw[10 : 10 + count] | raw[11 : 11 + count]) != 0
    at = np.flatnonzero(likely)
    sizes, offsets = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    for i in range(4):
        sizes = sizes << 8 | raw[at + 8 + i]
    for i in range(8):
        offsets = offsets << 8 | raw[at + i]
    return at, sizes + OVERHEAD_BYTES, offsets
