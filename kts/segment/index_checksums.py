"""The index checksums of a log directory: the state of each segment's indexes when ``kts.Log`` closed them.

The log confirms every index entry that an answer uses. That does not detect missing entries, as when an index was cut
between two of them. So its length, its checksum and its last entry are compared with the recorded ones. The file is
next to the checkpoints, and brokers ignore it::

    0                           version
    2                           segments
    1a2b3c4d                    CRC-32C of the lines below, in hex
    topic partition base-offset log-bytes index-bytes index-crc32c timeindex-bytes timeindex-crc32c time offset

Time and offset are those of the last time-index entry. A line is valid while the log has the recorded length;
otherwise the segment was appended to or truncated. A line only adds distrust.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from kts._codec import crc32c
from kts.errors import LogStorageError
from kts.segment import files

FILE = "kts-index-checksum-checkpoint"

_LINE = re.compile(r"(?am)^(\S+) (\d{1,10}) ((?:\d{1,19} ){6}-?\d{1,19} \d{1,19}\n)")

_LINE_BYTES = 512  # no line is longer
_PIECE_BYTES = 2**18

Blocks = dict[tuple[str, int], str]  # the lines of each partition, without topic and partition


class Sealed(NamedTuple):
    """The state of a segment's indexes when it was closed.

    Attributes
    ----------
    log_bytes : int
        Length of the ``.log``; if it differs now, the other fields do not apply.
    last_timestamp_ms, last_offset : int
        The last entry of the time index; (-1, base offset) if it had none.
    """

    log_bytes: int
    index_bytes: int
    index_crc: int
    time_index_bytes: int
    time_index_crc: int
    last_timestamp_ms: int
    last_offset: int

    @classmethod
    def of(cls, log_bytes: int, index: bytes, time_index: bytes, last_entry: tuple[int, int]) -> Sealed:
        """Build it from the bytes of both files, without preallocated zeros."""
        return cls(log_bytes, len(index), crc32c(index), len(time_index), crc32c(time_index), *last_entry)

    def index_differs(self, index: bytes) -> bool:
        """True if an ``.index`` is not the one that was closed; trailing zeros are preallocated room."""
        return _differ(index, self.index_bytes, self.index_crc)

    def time_index_differs(self, time_index: bytes) -> bool:
        """True if a ``.timeindex`` is not the one that was closed."""
        return _differ(time_index, self.time_index_bytes, self.time_index_crc)

    def end_differs(self, time_index_bytes: int, last_entry: tuple[int, int]) -> bool:
        """True if a time index has another length, without preallocated zeros, or another last entry."""
        return (time_index_bytes, *last_entry) != (self.time_index_bytes, self.last_timestamp_ms, self.last_offset)


class IndexChecksums:
    """The index checksum file of a log directory: read, change, write.

    Attributes
    ----------
    fault : str or None
        Why the existing file is not usable.
    """

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, FILE)
        self.fault: str | None = None
        self._blocks: Blocks = {}
        self._changed = False
        found = _read(self.path)
        if isinstance(found, str):
            self.fault = found
        else:
            self._blocks = found

    def of(self, topic: str, partition: int) -> dict[int, Sealed]:
        """The segments of a partition by base offset."""
        block = self._blocks.get((topic, partition), "")
        numbers = [[int(one) for one in line.split(" ")] for line in block.split("\n")[:-1]]
        return {line[0]: Sealed(*line[1:]) for line in numbers}

    def replace(self, topic: str, partition: int, segments: Mapping[int, Sealed]) -> None:
        """Replace the lines of a partition."""
        block = "".join(f"{base} {' '.join(map(str, sealed))}\n" for base, sealed in sorted(segments.items()))
        if block == self._blocks.get((topic, partition), ""):
            return
        self._changed = True
        if block:
            self._blocks[topic, partition] = block
        else:
            del self._blocks[topic, partition]

    def write(self) -> None:
        """Write the file atomically, if its content changed."""
        if not self._changed:
            return
        lines = [
            f"{topic} {partition} {line}\n"
            for (topic, partition), block in self._blocks.items()
            for line in block.split("\n")[:-1]
        ]
        body = "".join(lines).encode()
        if os.path.isdir(self.path):
            return  # a directory of this name blocks only this file
        files.write_atomically(self.path, f"0\n{len(lines)}\n{crc32c(body):08x}\n".encode() + body)
        self._changed, self.fault = False, None


def _differ(data: bytes, count: int, crc: int) -> bool:
    used = memoryview(data)[:count]
    return len(used) < count or crc32c(used) != crc or any(data[count:])


def _read(path: str) -> Blocks | str:
    """The lines by partition, or why the existing file is not usable."""
    try:
        if not files.exists(path):
            return {}
        with files.open_file(path) as file:
            size = file.size()
            count = sum(file.read(at, _PIECE_BYTES).count(b"\n") for at in range(0, size, _PIECE_BYTES))
            if size > _LINE_BYTES * (count + 1):  # a file of zeros never fills memory
                return f"expected at most {_LINE_BYTES} bytes a line, found {size} bytes in {count} lines"
            return _blocks(file.read(0, size))
    except LogStorageError as error:
        return error.message


def _blocks(data: bytes) -> Blocks | str:
    """The lines by partition, or what is wrong with the file."""
    head = data.split(b"\n", 3)
    if len(head) < 4 or head[0] != b"0":
        return "expected version 0, a count and a checksum, found something else"
    crc = f"{crc32c(head[3]):08x}"
    if head[2] != crc.encode():
        return f"expected the checksum {crc} of its lines, found {head[2][:16].decode('latin-1')!r}"
    text = head[3].decode("latin-1")
    count = text.count("\n")
    if head[1] != str(count).encode():
        return f"expected the count {count} of its lines, found {head[1][:16].decode('latin-1')!r}"
    found = _LINE.findall(text)
    if len(found) != count:
        wrong = next(line for line in text.split("\n") if not _LINE.fullmatch(f"{line}\n"))
        return f"expected a partition and eight numbers, found {wrong[:80]!r}"
    collected: dict[tuple[str, int], list[str]] = {}
    for topic, partition, numbers in found:
        collected.setdefault((topic, int(partition)), []).append(numbers)
    return {key: "".join(block) for key, block in collected.items()}
