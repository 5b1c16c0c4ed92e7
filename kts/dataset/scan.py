"""kts.scan: the records of a path, whatever kind of path it is, as one Arrow stream."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES
from kts.dataset.partition import LogStartOffsets, PartitionLog, Path, open_path
from kts.dataset.plan import BATCH_BYTES, NO_END, STREAM_COLUMNS, Piece, plan, resolve_range
from kts.dataset.reader import read_piece
from kts.dataset.stream import milliseconds, options, scan_logs
from kts.errors import UnknownTopicOrPartitionError
from kts.segment.names import INTERNAL_TOPICS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BATCH_BYTES",
    "NO_END",
    "STREAM_COLUMNS",
    "Piece",
    "milliseconds",
    "plan",
    "read_piece",
    "resolve_range",
    "scan",
    "select",
]


def scan(
    path: Path | Sequence[Path],
    *,
    topics: Sequence[str] | str | None = None,
    partitions: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    starting_timestamp: int | datetime | None = None,
    ending_timestamp: int | datetime | None = None,
    starting_offsets: int | str | Mapping[Any, Any] | None = None,
    ending_offsets: int | str | Mapping[Any, Any] | None = None,
    columns: Sequence[str] | None = None,
    strict_time_range: bool = False,
    isolation: str = "read_uncommitted",
    include_control: bool = False,
    on_error: str = "raise",
    verify_crc: bool = True,
    log_start_offset: LogStartOffsets = None,
    batch_bytes: int = BATCH_BYTES,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    views: bool = False,
) -> pa.RecordBatchReader:
    """The records of a partition, a segment file, or log directories, as a stream of Arrow batches.

    Parameters
    ----------
    path : path or list of paths
        As for ``kts.open``.
    topics : list of str, optional
        None is every topic, without Kafka's internal ones in a log directory.
    partitions : list of int or {topic: list of int}, optional
        None is every partition.
    starting_timestamp, ending_timestamp : int (ms) or aware datetime, optional
        From the first offset with a timestamp >= start (none: nothing) to, without, the first with a timestamp >= end
        (none: the log's end), for each partition. They beat the offsets.
    starting_offsets, ending_offsets : int, str or {topic: {partition: int}}, optional
        From, and to without. -2 or "earliest", -1 or "latest"; ending also "high_watermark", the broker's checkpoint
        (the log's end if there is none). Offsets outside of the log select nothing there.
    columns : list of str, optional
        ``topic``, ``partition`` and those of ``kts.ALL_COLUMNS``; None is key, value, topic, partition, offset,
        timestamp, timestampType, headers.
    strict_time_range : bool
        Exactly the records with start <= timestamp < end, late ones too: everything behind the start is read.
    isolation : str
        ``read_committed`` leaves out aborted transactions, and ends at the first one that is still open.
    include_control : bool
        Control records too.
    on_error : str
        ``raise``, or ``skip``: leave out what is damaged and say so with ``warnings``: file, position and bytes. What
        lies in a record behind the last field that ``columns`` needs is not looked at, but for its CRC.
    verify_crc : bool
        False skips CRCs only.
    log_start_offset : int or mapping, optional
        As for ``kts.open``.
    batch_bytes : int
        About how many bytes a batch.
    max_decompressed_bytes : int
        Bound on the decompressed bytes of a record batch or wrapper message.
    views : bool
        Keys and values as ``binary_view``.

    Returns
    -------
    pyarrow.RecordBatchReader
        By topic, partition, offset. Files are opened as they are reached; at most a few batches are in memory.

    Raises
    ------
    FileNotFoundError, TypeError, ValueError, UnknownTopicOrPartitionError
        At once, for wrong arguments.
    CorruptRecordError
        While reading, after the rows before the damage, with ``.path`` and ``.position``.
    """
    asked: dict[str, Any] = {
        "starting_timestamp": starting_timestamp,
        "ending_timestamp": ending_timestamp,
        "starting_offsets": starting_offsets,
        "ending_offsets": ending_offsets,
        "columns": columns,
        "strict_time_range": strict_time_range,
        "isolation": isolation,
        "include_control": include_control,
        "on_error": on_error,
        "verify_crc": verify_crc,
        "batch_bytes": batch_bytes,
        "max_decompressed_bytes": max_decompressed_bytes,
        "views": views,
    }
    checked = options(**asked)
    logs = select(path, topics=topics, partitions=partitions, log_start_offset=log_start_offset)
    known = {(log.topic, log.partition) for log in logs}
    for name, given in (("starting_offsets", checked.starting_offsets), ("ending_offsets", checked.ending_offsets)):
        for topic, partition in given if isinstance(given, dict) else ():
            if (topic, partition) not in known:
                raise UnknownTopicOrPartitionError(f"{name}: {topic}-{partition} is not among what is read")
    return scan_logs(logs, **asked)


def select(
    path: Path | Sequence[Path],
    *,
    topics: Sequence[str] | str | None = None,
    partitions: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    log_start_offset: LogStartOffsets = None,
) -> list[PartitionLog]:
    """The partitions of a path that are meant, by topic and partition.

    Raises
    ------
    UnknownTopicOrPartitionError
        A topic or partition that is named and not there.
    """
    names = _topics(topics)
    wanted = _partitions(partitions)
    opened = open_path(path, log_start_offset=log_start_offset)
    logs = [opened] if isinstance(opened, PartitionLog) else list(opened.values())
    where = ", ".join(os.fspath(one) for one in ([path] if isinstance(path, (str, os.PathLike)) else path))
    known = {log.topic for log in logs}
    if names is None:
        named = set(wanted) if isinstance(wanted, dict) else set()
        if not isinstance(opened, PartitionLog):
            logs = [log for log in logs if log.topic not in INTERNAL_TOPICS or log.topic in named]
    else:
        logs = [log for log in logs if log.topic in names]
    for topic in [*(names or []), *(wanted if isinstance(wanted, dict) else [])]:
        if topic not in known:
            there = ", ".join(sorted(known)) or "none at all"
            raise UnknownTopicOrPartitionError(f"expected the topic {topic!r} in {where}, found {there}")
    if wanted is None:
        return logs
    found = {(log.topic, log.partition) for log in logs}
    if isinstance(wanted, dict):
        for topic, numbers in wanted.items():
            for number in numbers:
                if (topic, number) not in found and (names is None or topic in names):
                    raise UnknownTopicOrPartitionError(f"expected partition {topic}-{number} in {where}, found none")
        return [log for log in logs if log.partition in wanted.get(log.topic, ())]
    for number in wanted:
        if not any(number == partition for _, partition in found):
            raise UnknownTopicOrPartitionError(f"expected a partition {number} in {where}, found none")
    return [log for log in logs if log.partition in wanted]


def _topics(topics: object) -> list[str] | None:
    if topics is None:
        return None
    if isinstance(topics, str):
        return [topics]
    if not isinstance(topics, (Sequence, set, frozenset)) or isinstance(topics, (bytes, bytearray)):
        raise TypeError(f"topics: expected a list of names, found {topics!r}")
    for topic in topics:
        if not isinstance(topic, str):
            raise TypeError(f"topics: expected names, found {topic!r}")
    return list(topics)


def _partitions(partitions: object) -> list[int] | dict[str, list[int]] | None:
    if partitions is None:
        return None
    if isinstance(partitions, Mapping):
        for topic in partitions:
            if not isinstance(topic, str):
                raise TypeError(f"partitions: expected {{topic: [int]}}, found the key {topic!r}")
        return {topic: _numbers(numbers) for topic, numbers in partitions.items()}
    return _numbers(partitions)


def _numbers(values: object) -> list[int]:
    if not isinstance(values, (Sequence, set, frozenset, range)) or isinstance(values, (str, bytes, bytearray)):
        raise TypeError(f"partitions: expected a list of ints or {{topic: list}}, found {values!r}")
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"partitions: expected ints, found {value!r}")
        if value < 0:
            raise ValueError(f"partitions: expected 0 or more, found {value}")
    return list(values)
