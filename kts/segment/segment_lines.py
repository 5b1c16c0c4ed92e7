"""Files of a log directory that only kts has, next to the checkpoints: lines of closed segments, which brokers ignore.

A file is whole or says nothing::

    0                   version
    2                   segments
    1a2b3c4d            CRC-32C of the lines below, in hex
    topic partition base-offset ...
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import ClassVar

from kts._codec import crc32c
from kts.errors import LogStorageError
from kts.store import publishing
from kts.store.source import Source, files

Blocks = dict[tuple[str, int], str]  # the lines of each partition, without topic and partition

_PIECE_BYTES = 2**18


class SegmentLines:
    """Such a file: read, change, write.

    Attributes
    ----------
    fault : str or None
        Why the existing file is not usable.
    file, line, line_bytes : str, pattern, int
        Its name; topic, partition and the rest of a line; no line is longer.
    expected : str
        What a line has, in words.
    """

    file: ClassVar[str]
    line: ClassVar[re.Pattern[str]]
    line_bytes: ClassVar[int]
    expected: ClassVar[str]

    def __init__(self, directory: str, source: Source = files) -> None:
        self.path = os.path.join(directory, self.file)
        self._source = source
        self.fault: str | None = None
        self._blocks: Blocks = {}
        self._changed = False
        found = self._read()
        if isinstance(found, str):
            self.fault = found
        else:
            self._blocks = found

    def _lines(self, topic: str, partition: int) -> list[str]:
        """A partition's lines, from the base offset on."""
        return self._blocks.get((topic, partition), "").split("\n")[:-1]

    def _replace(self, topic: str, partition: int, lines: Mapping[int, str]) -> None:
        """Replace a partition's lines by base offset."""
        block = "".join(f"{base} {line}\n" for base, line in sorted(lines.items()))
        if block == self._blocks.get((topic, partition), ""):
            return
        self._changed = True
        if block:
            self._blocks[topic, partition] = block
        else:
            del self._blocks[topic, partition]

    def forget(self, topic: str, partition: int) -> None:
        """Remove a partition's lines."""
        self._replace(topic, partition, {})

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
        publishing.publish(self.path, f"0\n{len(lines)}\n{crc32c(body):08x}\n".encode() + body)
        self._changed, self.fault = False, None

    def _read(self) -> Blocks | str:
        """The lines by partition, or why the existing file is not usable."""
        try:
            if not self._source.exists(self.path):
                return {}
            with self._source.open_file(self.path) as file:
                size = file.size()
                count = sum(file.read(at, _PIECE_BYTES).count(b"\n") for at in range(0, size, _PIECE_BYTES))
                if size > self.line_bytes * (count + 1):  # a file of zeros never fills memory
                    return f"expected at most {self.line_bytes} bytes a line, found {size} bytes in {count} lines"
                return self._parsed(file.read(0, size))
        except LogStorageError as error:
            return error.message

    def _parsed(self, data: bytes) -> Blocks | str:
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
        found = self.line.findall(text)
        if len(found) != count:
            wrong = next(line for line in text.split("\n") if not self.line.fullmatch(f"{line}\n"))
            return f"expected {self.expected}, found {wrong[:80]!r}"
        collected: dict[tuple[str, int], list[str]] = {}
        for topic, partition, rest in found:
            collected.setdefault((topic, int(partition)), []).append(rest)
        return {key: "".join(block) for key, block in collected.items()}
