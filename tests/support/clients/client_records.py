"""Records for the tests of real clients, and what the readers of each generation see of them."""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

NOON_MS = 1_760_000_000_000
CREATE, APPEND, NONE = "CreateTime", "LogAppendTime", "NoTimestampType"
Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """What a test gives to a producer."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: Headers = ()


class Sent(NamedTuple):
    """What RecordMetadata says; None for what the client's has not."""

    offset: int
    timestamp: int | None


class Row(NamedTuple):
    """What a consumer sees; None for what it has not."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    timestamp_type: str | None
    headers: Headers | None


def make(rng: random.Random, count: int, *, text: bool = False) -> list[Record]:
    """Records of up to 150 bytes whose times jump back and forth, each with a key or a value, some with headers."""
    records, now = [], NOON_MS
    words = [rng.randbytes(rng.randrange(1, 24)) for _ in range(100)]
    for number in range(count):
        now += rng.choice((0, 1, 1, 7, 40, 1000, -35, -900))
        key = rng.choice((None, b"", f"key {number}".encode(), rng.choice(words)))
        value = b" ".join(rng.choices(words, k=rng.randrange(8)))
        headers: Headers = ()
        if rng.random() < 0.1:
            headers = tuple(
                (rng.choice(("a", "é", "trace-id")), rng.choice((None, b"", b"\x00\xff", f"{number}".encode())))
                for _ in range(rng.randrange(1, 4))
            )
        if key is not None and rng.random() < 0.05:
            records.append(Record(key, None, now, headers))
        else:
            records.append(Record(key, value, now, headers))
    if text:  # for a client that takes lines, to which nothing and null are the same, and which takes no headers
        return [
            Record(base64.b64encode(one.key) if one.key else None, base64.b64encode(one.value or b"0"), None)
            for one in records
        ]
    return records


def rows(records: Sequence[Record], *, partition: int = 0, timestamp_type: str = CREATE) -> list[Row]:
    """What a consumer of the newest generation sees of them at offsets 0, 1, 2 and so on."""
    return [
        Row(partition, offset, one.key, one.value, one.timestamp, timestamp_type, one.headers)
        for offset, one in enumerate(records)
    ]


def search(seen: Sequence[Row], targets: Sequence[int]) -> list[tuple[int, int] | None]:
    """For each target the first offset whose time is not before it, by looking at every record."""
    answers: list[tuple[int, int] | None] = []
    for target in targets:
        found = next((one for one in seen if one.timestamp is not None and one.timestamp >= target), None)
        answers.append(None if found is None or found.timestamp is None else (found.offset, found.timestamp))
    return answers


def search_one_segment(
    seen: Sequence[Row], bases: Sequence[int], first: int, targets: Sequence[int]
) -> list[tuple[int, int] | None]:
    """The same as Kafka does it: only in the first segment, of those from `bases` on, with such a time, wherever that
    is; what it has before `first` is no answer."""
    answers: list[tuple[int, int] | None] = []
    for target in targets:
        segments = [seen[low:high] for low, high in zip(bases, [*bases[1:], len(seen)], strict=True)]
        one = next((segment for segment in segments if search(segment, [target])[0]), ())
        answers += search([row for row in one if row.offset >= first], [target])
    return answers


def to_json(records: Sequence[Record]) -> list[list[Any]]:
    """As java/clients/ClientLoop.java takes them."""

    def encoded(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    return [
        [encoded(one.key), encoded(one.value), one.timestamp, [[name, encoded(data)] for name, data in one.headers]]
        for one in records
    ]


def from_json(line: Sequence[Any]) -> Row:
    """As java/clients/ClientLoop.java gives them."""

    def decoded(data: str | None) -> bytes | None:
        return None if data is None else base64.b64decode(data)

    partition, offset, key, value, timestamp, timestamp_type, headers = line
    named = None if headers is None else tuple((name, decoded(data)) for name, data in headers)
    return Row(partition, offset, decoded(key), decoded(value), timestamp, timestamp_type, named)
