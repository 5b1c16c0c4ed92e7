"""Damage of files at rest, and what of a log it leaves: edits of sound bytes, the entries they touch, Kafka's rules.

Nothing of kts is used: entries, records and checksums are those of the reference decoder.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from support.reference import reference

Files = dict[str, bytes]  # contents of a partition directory by name
Row = tuple[int, int, bytes | None, bytes | None]  # offset, timestamp, key, value


@dataclass(frozen=True)
class Entry:
    """A batch or outermost message of a sound file."""

    position: int
    end: int
    magic: int
    last_offset: int
    rows: tuple[Row, ...]

    @property
    def sealed(self) -> int:
        """Where the bytes begin that a CRC covers, or that must be right: the offset and the epoch are before them."""
        return self.position + (16 if self.magic == 2 else 8)


def entries(data: bytes) -> list[Entry]:
    """The entries of a sound file."""
    headers = reference.scan_batches(data)
    decoded = reference.decode_entries(data)
    return [
        Entry(
            header["position"],
            header["position"] + header["sizeInBytes"],
            header["magic"],
            header["lastOffset"],
            tuple((row["offset"], row["timestamp"], row["key"], row["value"]) for row in rows),
        )
        for header, (_, rows) in zip(headers, decoded, strict=True)
    ]


@dataclass(frozen=True)
class Edit:
    """Bytes of a file that others take the place of."""

    position: int
    removed: int
    inserted: bytes

    def apply(self, data: bytes) -> bytes:
        return data[: self.position] + self.inserted + data[self.position + self.removed :]


@dataclass
class Damage:
    """What was done to one file."""

    file: str
    kind: str
    before: bytes | None  # None: the file was not there
    after: bytes | None  # None: the file is gone
    edit: Edit | None = None

    def __str__(self) -> str:
        edit = self.edit
        where = f" at {edit.position}: {edit.removed} -> {len(edit.inserted)} bytes" if edit else ""
        return f"{self.file}: {self.kind}{where}"

    @cached_property
    def entries(self) -> list[Entry]:
        return entries(self.before or b"") if self.file.endswith(".log") else []

    @cached_property
    def touched(self) -> list[Entry]:
        """Sound entries of a ``.log`` file whose bytes are not there any more, one behind the other."""
        before, after = self.before or b"", self.after or b""
        touched, end = [], 0
        for entry in self.entries:
            found = after.find(before[entry.position : entry.end], end)
            if found < 0:
                touched.append(entry)
            else:
                end = found + entry.end - entry.position
        return touched

    @cached_property
    def disguised(self) -> list[Entry]:
        """Touched entries of which all that a CRC covers is still there: they look sound, at another offset."""
        before, after = self.before or b"", self.after or b""
        return [entry for entry in self.touched if before[entry.sealed : entry.end] in after]


# --- ways to damage -------------------------------------------------------------------------------


def overwritten(rng: random.Random, data: bytes) -> Edit:
    at, count = _range(rng, data)
    return Edit(at, count, rng.choice((rng.randbytes(count), b"\xff" * count)))


def flipped(rng: random.Random, data: bytes) -> Edit:
    at = rng.randrange(len(data))
    return Edit(at, 1, bytes([data[at] ^ 1 << rng.randrange(8)]))


def zeroed(rng: random.Random, data: bytes) -> Edit:
    at, count = _range(rng, data)
    return Edit(at, count, bytes(count))


def zeroed_to_the_end(rng: random.Random, data: bytes) -> Edit:
    at = rng.randrange(len(data))
    return Edit(at, len(data) - at, bytes(len(data) - at))


def cut(rng: random.Random, data: bytes) -> Edit:
    at = rng.randrange(len(data))
    return Edit(at, len(data) - at, b"")


def emptied(rng: random.Random, data: bytes) -> Edit:
    return Edit(0, len(data), b"")


def cut_in_the_middle(rng: random.Random, data: bytes) -> Edit:
    return Edit(*_range(rng, data), b"")


def inserted(rng: random.Random, data: bytes) -> Edit:
    count = rng.choice((1, 12, 13, 100, 700))
    return Edit(rng.randrange(len(data) + 1), 0, rng.choice((bytes(count), rng.randbytes(count))))


def padded(rng: random.Random, data: bytes) -> Edit:
    return Edit(len(data), 0, rng.randbytes(rng.choice((1, 8, 11, 12, 17, 60, 500))))


def zero_tail(rng: random.Random, data: bytes) -> Edit:
    return Edit(len(data), 0, bytes(rng.choice((1, 8, 12, 24, 500, 4096, 24 * 500))))


WAYS: list[Callable[[random.Random, bytes], Edit]] = [
    overwritten, flipped, zeroed, zeroed_to_the_end, cut, emptied, cut_in_the_middle, inserted, padded, zero_tail,
]  # fmt: skip


def _range(rng: random.Random, data: bytes) -> tuple[int, int]:
    at = rng.randrange(len(data))
    return at, min(rng.choice((1, 2, 4, 8, 30, 200, 1000)), len(data) - at)


def edited(rng: random.Random, name: str, data: bytes) -> Damage | None:
    """One random edit of a file; None if nothing differs afterwards."""
    ways = WAYS if data else [padded, zero_tail]
    way = rng.choice(ways)
    edit = way(rng, data)
    after = edit.apply(data)
    return None if after == data else Damage(name, way.__name__, data, after, edit)


def removed(name: str, data: bytes) -> Damage:
    return Damage(name, "missing", data, None)


# --- what is left ---------------------------------------------------------------------------------


def valid_prefix(data: bytes) -> bytes:
    """The entries at the front whose sizes fit and whose CRCs are right: what recovery of a segment keeps."""
    end = 0
    try:
        for at, size, _ in reference.entries(data):
            header = reference.scan_batches(data[at : at + size])[0]
            if not header["crcOk"]:
                break
            end = at + size
    except reference.Corrupt:
        pass
    return data[:end]


def recovered(logs: Mapping[int, bytes], recovery_point: int, rebuilt: Iterable[int] = ()) -> dict[int, bytes]:
    """What Kafka's recovery leaves of the ``.log`` files, by base offset.

    Parameters
    ----------
    logs : mapping of base offset to bytes
        As they lie on the disk.
    recovery_point : int
        Segments from the one that holds it on are recovered: each is cut at its first invalid entry, and where bytes
        were lost, all segments behind it are deleted. Those below are not looked at.
    rebuilt : iterable of base offsets
        Segments whose indexes are rebuilt on loading, so that they are cut too, wherever they lie.
    """
    left = {base: valid_prefix(data) if base in set(rebuilt) else data for base, data in logs.items()}
    bases = sorted(left)
    first = max((base for base in bases if base <= recovery_point), default=bases[0] if bases else 0)
    for base in [base for base in bases if base >= first]:
        whole, left[base] = left[base], valid_prefix(left[base])
        if len(left[base]) < len(whole):
            return {kept: data for kept, data in left.items() if kept <= base}
    return left


def rows_of(data: bytes) -> list[Row]:
    """The records of sound bytes, up to a wrapper message that its own damaged offset contradicts."""
    found: list[Row] = []
    try:
        for _, rows in reference.decode_entries(data):
            found += [(row["offset"], row["timestamp"], row["key"], row["value"]) for row in rows]
    except reference.Corrupt:
        pass
    return found


def logs_of(files: Mapping[str, bytes]) -> dict[int, bytes]:
    """The live ``.log`` files by base offset."""
    return {int(name[:20]): data for name, data in files.items() if len(name) == 24 and name.endswith(".log")}


def described(damages: Iterable[Damage], **more: Any) -> str:
    """One line for a failing test."""
    return "; ".join([str(one) for one in damages] + [f"{name}={value}" for name, value in more.items()])
