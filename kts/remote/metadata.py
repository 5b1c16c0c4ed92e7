"""The topic ``__remote_log_metadata``: which copies of segments are in tiered storage, and in which state (KIP-405).

A record has no key. Its value is three unsigned varints (frame version 1, API key, version) and a flexible message: a
copy (API key 0) or a change of its state (1). Messages 2 and 3 say nothing about copies.

Source: RemoteLogMetadataSerde, RemoteLogSegmentState, the messages of Kafka's module storage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from kts.codec.columns import decode
from kts.errors import CorruptRecordError, InvalidRequestError, InvalidTopicError
from kts.model import uuid_text
from kts.protocol.fields import fields_of
from kts.protocol.reading import Cursor, Read, read_uvarint, struct_reader
from kts.segment.checkpoints import read_leader_epochs
from kts.segment.entries import at
from kts.segment.names import LEADER_EPOCHS, check_topic, parse_directory_name, parse_file_name
from kts.segment.segment import Segment
from kts.store import addresses
from kts.store.source import Source

TOPIC = "__remote_log_metadata"
COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED = range(4)
FRAME_VERSION = 1
NEWEST_VERSION = 1
MAX_ELEMENTS = 1_000_000  # leader epochs and tagged fields of one record
OBJECT_PREFIX, OBJECT_KEY = 1, 2  # tags of Aiven's custom metadata

_BEFORE = {  # the states that a state may follow
    COPY_STARTED: (COPY_STARTED,),
    COPY_FINISHED: (COPY_STARTED, COPY_FINISHED),
    DELETE_STARTED: (COPY_STARTED, COPY_FINISHED, DELETE_STARTED),
    DELETE_FINISHED: (DELETE_STARTED, DELETE_FINISHED),
}
_COPY = """
    of                          {}      0+
        partition               {}      0+
            topic               string  0+
            topic_id            uuid    0+
            number              int32   0+
        segment_id              uuid    0+
    start_offset                int64   0+
    end_offset                  int64   0+
    broker_id                   int32   0+
    max_timestamp               int64   0+
    event_timestamp             int64   0+
    leader_epochs               []      0+
        epoch                   int32   0+
        offset                  int64   0+
    size                        int32   0+
    custom_metadata             bytes   0+  null 0+
    state                       int8    0+
"""
_UPDATE = """
    of                          {}      0+
        partition               {}      0+
            topic               string  0+
            topic_id            uuid    0+
            number              int32   0+
        segment_id              uuid    0+
    broker_id                   int32   0+
    event_timestamp             int64   0+
    custom_metadata             bytes   0+  null 0+
    state                       int8    0+
"""
_TABLES = {0: _COPY, 1: _UPDATE}


@cache
def _reader(api_key: int, version: int) -> Read:
    return struct_reader(fields_of(_TABLES[api_key], NEWEST_VERSION), version, True)[0]


class PartitionId(NamedTuple):
    """A partition of one topic id: a topic that was deleted and created again has another one."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} of topic id {self.topic_id}"


class Copy(NamedTuple):
    """A copy of a segment in tiered storage.

    Attributes
    ----------
    segment_id : str
        Names its objects; a segment that is copied again gets another one.
    start_offset, end_offset : int
        The offsets that the segment has, both included.
    leader_epochs : tuple of (epoch, offset)
        The epochs with records in the segment, each with its first offset there.
    size_bytes : int
        Of the original ``.log``.
    max_timestamp_ms : int or None
        The greatest timestamp of its batches; None if it is not known.
    object_prefix, object_key : str or None
        Where the objects are, if the plugin noted it.
    problem : str
        Why nothing but its place is known; empty if all is.
    measured : bool
        The end, the epochs and the size are those of the objects, and nothing else states them.
    """

    of: PartitionId
    segment_id: str
    start_offset: int
    end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    size_bytes: int
    max_timestamp_ms: int | None
    event_ms: int
    state: int
    object_prefix: str | None = None
    object_key: str | None = None
    problem: str = ""
    measured: bool = False

    def epoch_ends(self) -> Iterator[tuple[int, int, int]]:
        """Each epoch with its first and last offset in the segment."""
        starts = [*self.leader_epochs, (-1, self.end_offset + 1)]
        for (epoch, first), (_, following) in zip(starts, starts[1:], strict=False):
            yield epoch, first, following - 1


class Noted(NamedTuple):
    """Where a plugin noted that the objects of a copy are: the prefix of all keys, and the key behind it."""

    object_prefix: str | None
    object_key: str | None


class CopyUpdate(NamedTuple):
    """A change of a copy's state; ``noted`` is None if the plugin says nothing new."""

    of: PartitionId
    segment_id: str
    event_ms: int
    state: int
    noted: Noted | None


def read_event(value: bytes | None) -> Copy | CopyUpdate | None:
    """The event of a record; None for a message that is not about a copy.

    Raises
    ------
    InvalidRequestError
        The bytes are not such a message.
    """
    if value is None:
        raise InvalidRequestError("expected a message, found null")
    cursor = Cursor(memoryview(value), MAX_ELEMENTS)
    frame, api_key, version = (read_uvarint(cursor) for _ in range(3))
    if frame != FRAME_VERSION:
        raise InvalidRequestError(f"expected frame version {FRAME_VERSION}, found {frame}", position=0)
    if api_key not in _TABLES:
        return None
    if version > NEWEST_VERSION:
        raise InvalidRequestError(f"expected a version up to {NEWEST_VERSION}, found {version}", position=2)
    try:
        found: dict[str, Any] = _reader(api_key, version)(cursor)
    except InvalidRequestError as error:
        where = ".".join(reversed(cursor.trail)).replace(".[", "[")
        raise InvalidRequestError(f"{where}: {error.message}", position=error.position) from error
    if cursor.position != cursor.end:
        raise InvalidRequestError(f"expected the end, found {cursor.end - cursor.position} more bytes")
    partition = found["of"]["partition"]
    of = PartitionId(partition["topic"], uuid_text(partition["topic_id"]), partition["number"])
    segment_id = uuid_text(found["of"]["segment_id"])
    if found["state"] not in _BEFORE:
        raise InvalidRequestError(f"state: expected 0 to 3, found {found['state']}")
    noted = _noted(found["custom_metadata"])
    if api_key:
        _check_names(of)
        return CopyUpdate(of, segment_id, found["event_timestamp"], found["state"], noted)
    copy = Copy(
        of,
        segment_id,
        found["start_offset"],
        found["end_offset"],
        tuple((one["epoch"], one["offset"]) for one in found["leader_epochs"]),
        found["size"],
        found["max_timestamp"] if found["max_timestamp"] >= 0 else None,
        found["event_timestamp"],
        found["state"],
        *(noted or ()),
    )
    check_copy(copy)
    return copy


def check_copy(copy: Copy) -> None:
    """Raise InvalidRequestError if Kafka has no such topic, or the numbers of a copy contradict each other."""
    _check_names(copy.of)
    starts = [first for _, first in copy.leader_epochs]
    numbers = [epoch for epoch, _ in copy.leader_epochs]
    if not 0 <= copy.start_offset <= copy.end_offset:
        raise InvalidRequestError(f"expected offsets in order, found {copy.start_offset} to {copy.end_offset}")
    if copy.of.partition < 0 or copy.size_bytes < 0:
        raise InvalidRequestError(f"expected 0 or more, found partition {copy.of.partition}, size {copy.size_bytes}")
    rising = all(a < b for a, b in zip(starts, starts[1:], strict=False))
    if not starts or not rising or sorted(set(numbers)) != numbers:
        raise InvalidRequestError(f"leader_epochs: expected rising epochs and offsets, found {copy.leader_epochs}")
    if starts[0] < copy.start_offset or starts[-1] > copy.end_offset:
        raise InvalidRequestError(
            f"leader_epochs: expected offsets from {copy.start_offset} to {copy.end_offset}, found {copy.leader_epochs}"
        )


def _check_names(of: PartitionId) -> None:
    try:
        check_topic(of.topic)
    except InvalidTopicError as error:
        raise InvalidRequestError(f"topic: {error.message}") from error


def _noted(data: bytes | None) -> Noted | None:
    """What the plugin noted; bytes that are not of Aiven's form say nothing.

    Raises
    ------
    InvalidRequestError
        The names would lead out of the store.

    Notes
    -----
    Source: SegmentCustomMetadataSerde, SegmentCustomMetadataField.
    """
    if not data:
        return None
    found: dict[int, str] = {}
    try:
        cursor = Cursor(memoryview(data), MAX_ELEMENTS)
        count = read_uvarint(cursor)
        cursor.charge(count, 2, "fields")
        for _ in range(count):
            tag, size = read_uvarint(cursor), read_uvarint(cursor)
            cursor.need(size, "a field")
            end = cursor.position + size
            if tag in (OBJECT_PREFIX, OBJECT_KEY):
                length = read_uvarint(cursor) - 1
                if length < 0 or cursor.position + length != end:
                    cursor.fail("a string", f"{size} bytes")
                found[tag] = str(cursor.buffer[cursor.position : end], "utf-8")
            cursor.position = end
    except (InvalidRequestError, UnicodeDecodeError):
        return None
    noted = Noted(found.get(OBJECT_PREFIX), found.get(OBJECT_KEY))
    for name in (noted.object_key or "", (noted.object_prefix or "") + (noted.object_key or "")):
        if name.startswith("/") or "://" in name or "\0" in name or {".", ".."} & {*name.split("/")}:
            raise InvalidRequestError(
                f"custom_metadata: expected the key of an object below the root of the store, found {name!r}: a scheme,"
                " a slash in front, NUL, and . or .. between slashes are refused"
            )
    return noted


class History:
    """The copies of one partition, as the events tell them in order.

    Attributes
    ----------
    copies : dict
        All copies by segment id, each in its last state.
    changes : list of Copy
        Each copy when it was finished, and when its deletion began, in this order.
    unseen : dict
        The last state by segment id of copies whose first event is lost.
    has_start : bool
        Whether no earlier events may be lost, as retention of the metadata topic loses them.
    """

    def __init__(self, of: PartitionId, has_start: bool = True) -> None:
        self.of = of
        self.has_start = has_start
        self.copies: dict[str, Copy] = {}
        self.changes: list[Copy] = []
        self.unseen: dict[str, int] = {}

    def add(self, event: Copy | CopyUpdate) -> None:
        """The next event. As in Kafka, one that its copy's state does not allow is dropped.

        Source: RemoteLogMetadataCache.
        """
        known = self.copies.get(event.segment_id)
        if isinstance(event, Copy):
            if known is not None and known.state != COPY_STARTED:
                return
            now = event
        elif known is None:
            self.unseen[event.segment_id] = event.state
            return
        elif known.state not in _BEFORE[event.state]:
            return
        else:
            now = known._replace(state=event.state, event_ms=event.event_ms)
            if event.noted is not None:
                now = now._replace(**event.noted._asdict())
        self.copies[event.segment_id] = now
        if now.state in (COPY_FINISHED, DELETE_STARTED) and (known is None or known.state != now.state):
            self.changes.append(now)

    def says_of(self, segment_id: str) -> bool:
        """Whether the events tell all that matters of a copy: what it is, or that it was deleted."""
        return segment_id in self.copies or self.unseen.get(segment_id, COPY_FINISHED) != COPY_FINISHED

    def behind(self, earlier: Sequence[Copy]) -> History:
        """The same events after those of earlier copies."""
        made = History(self.of, self.has_start)
        made.copies = {copy.segment_id: copy for copy in earlier} | self.copies
        made.changes = [*earlier, *self.changes]
        return made

    def in_state(self, *states: int) -> list[Copy]:
        """The copies whose last state is one of these, by offset."""
        found = (copy for copy in self.copies.values() if copy.state in states)
        return sorted(found, key=lambda copy: (copy.start_offset, copy.event_ms))


Histories = dict[PartitionId, History]


class MetadataTopic:
    """The metadata partitions of log directories; each call sees them as they are now.

    Parameters
    ----------
    directories : list of (str, Source)
        Log directories. Those without a metadata partition count for nothing.

    Notes
    -----
    Of several replicas of a metadata partition one is read: that with the latest leader epoch, or else the highest log
    end offset, as Kafka compares logs.

    Source: LeaderEpochFileCache, OffsetAndEpoch.
    """

    def __init__(self, directories: Iterable[tuple[str, Source]]) -> None:
        self.directories = {addresses.absolute(directory): source for directory, source in directories}
        self._read: dict[str, tuple[Any, _Replica]] = {}  # by directory: its files, and what they say

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_read": {}}

    def partitions(self) -> dict[str, Source]:
        """The directories of the metadata partitions."""
        found = {}
        for directory, source in self.directories.items():
            for entry in source.list_directory(directory) if source.directory_exists(directory) else ():
                name = parse_directory_name(entry.name)
                if name is not None and name.topic == TOPIC and not name.state:
                    found[entry.path] = source
        return found

    def histories(self) -> Histories:
        """What the metadata partitions say of each partition.

        Raises
        ------
        CorruptRecordError
            A metadata partition is damaged.
        """
        chosen: dict[int, _Replica] = {}
        for path, source in self.partitions().items():
            logs = _logs_in(path, source)
            epochs = os.path.join(path, LEADER_EPOCHS)
            state = [(one, source.identity(one)) for one in (*(log.path for log in logs), epochs)]
            known = self._read.get(path)
            if known is None or known[0] != state:
                known = self._read[path] = state, _read_replica(logs, epochs, source)
            number, replica = _number_of(path), known[1]
            if number not in chosen or replica.end > chosen[number].end:
                chosen[number] = replica
        together: Histories = {}
        for replica in chosen.values():
            together |= replica.histories  # all events of a partition are in one metadata partition
        return together


class _Replica(NamedTuple):
    """A replica of a metadata partition: what it says, and its latest leader epoch and log end offset."""

    histories: Histories
    end: tuple[int, int]


def _number_of(path: str) -> int:
    name = parse_directory_name(os.path.basename(path))
    return 0 if name is None else name.partition


def _logs_in(path: str, source: Source) -> list[Segment]:
    found = []
    for entry in source.list_directory(path):
        name = parse_file_name(entry.name)
        if name is not None and name.suffix == ".log" and not name.transition:
            found.append(Segment(entry.path, TOPIC, _number_of(path), name.base_offset, source=source))
    return found


def _read_replica(logs: list[Segment], epochs_path: str, source: Source) -> _Replica:
    found: Histories = {}
    epoch, end = max(read_leader_epochs(epochs_path, source) or [(-1, 0)])[0], 0
    has_start = not logs or logs[0].base_offset == 0
    for log in logs:
        for position, data in log.slices():
            try:
                rows = decode(data, ["offset", "position", "value", "control", "partitionLeaderEpoch"])
            except CorruptRecordError as error:
                raise at(error, log.path, position) from error.__cause__
            columns = (rows.column(name).to_pylist() for name in rows.schema.names)
            for offset, place, value, control, its_epoch in zip(*columns, strict=True):
                epoch, end = max(epoch, its_epoch), offset + 1
                if control:
                    continue
                event = _event(log, position + place, offset, value, read_event)
                if event is not None:
                    found.setdefault(event.of, History(event.of, has_start)).add(event)
    return _Replica(found, (epoch, end))


def _event(
    log: Segment,
    position: int,
    offset: int,
    value: bytes | None,
    read: Callable[[bytes | None], Copy | CopyUpdate | None],
) -> Copy | CopyUpdate | None:
    try:
        return read(value)
    except InvalidRequestError as error:
        message = f"offset {offset} is not a record of {TOPIC}: {error.message}"
        raise CorruptRecordError(message, path=log.path, position=position, offset=offset) from error
