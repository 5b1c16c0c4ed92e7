"""The committed offsets of consumer groups, from ``__consumer_offsets`` alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kts.arguments import choice, suggestion
from kts.coordinator_records.columns import decode_records
from kts.dataset.newest import Loader
from kts.dataset.options import BATCH_BYTES, ON_ERROR, Path
from kts.dataset.partition import LogDirs, PartitionLog
from kts.dataset.paths import matching_topics, open_path, select
from kts.errors import CorruptRecordError, DamageWarning, KtsError
from kts.segment.rereading import warn

if TYPE_CHECKING:
    import pyarrow as pa

DECODED = {  # by the names here
    "group": "group",
    "topic": "committedTopic",
    "partition": "committedPartition",
    "currentOffset": "committedOffset",
    "leaderEpoch": "committedLeaderEpoch",
    "metadata": "committedMetadata",
    "commitTimestamp": "commitTimestamp",
    "expireTimestamp": "expireTimestamp",
}


class Current(NamedTuple):
    """The current record of a key: the newest one."""

    key: bytes
    offset: int
    value: bytes


def committed_offsets(
    path: Path | Sequence[Path],
    *,
    groups: Sequence[str] | None = None,
    topics: Sequence[str] | None = None,
    on_error: str = "raise",
) -> pa.Table:
    """The current committed offset of each group, topic and partition, as a broker would load it.

    Parameters
    ----------
    path : path or list of paths
        Log directories with ``__consumer_offsets``, or partitions of it.
    groups, topics : list of str, optional
        Only these; each must have a committed offset. Topics may be patterns, as ``ord*``.
    on_error : str
        ``raise``, or ``skip``: leave out what is damaged, with a warning.

    Returns
    -------
    pyarrow.Table
        group, topic, partition, currentOffset, logEndOffset, lag, leaderEpoch, metadata, commitTimestamp,
        expireTimestamp; ordered by group, topic, partition. ``logEndOffset`` is that of the files under ``path``, and
        null if the partition is not there; ``lag`` is the distance to it.

    Raises
    ------
    FileNotFoundError, TypeError, ValueError, UnknownTopicOrPartitionError
        A wrong argument, or there is no ``__consumer_offsets``.
    CorruptRecordError
        Damage, with ``.path``.

    Notes
    -----
    The last record of each key counts. Offsets that a transaction commits count once it is committed; deleted ones are
    left out. Source: GroupMetadataManager.loadGroupsAndOffsets (3.9).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    choice("on_error", on_error, ON_ERROR)
    opened = open_path(path)
    logs = select(opened, path, decoder="offsets")
    found = committed_in(logs, opened if isinstance(opened, LogDirs) else {}, on_error == "skip")
    for name, wanted in (("group", groups), ("topic", topics)):
        if wanted is not None:
            chosen = chosen_of(name, wanted, found[name].unique().to_pylist(), f"committed offset of {name}")
            found = found.filter(pc.is_in(found[name], pa.array(chosen, pa.string())))
    return found


def chosen_of(name: str, wanted: Sequence[str], there: Iterable[str], what: str) -> list[str]:
    """The groups or topics that are wanted, of those there; topics may be patterns.

    Raises
    ------
    ValueError
        One is not there; ``what`` is what there is none of.
    """
    known, chosen = sorted(there), []
    if isinstance(wanted, str):
        raise TypeError(f"{name}s: expected a list of names, found {wanted!r}")
    for one in wanted:
        if not isinstance(one, str):
            raise TypeError(f"{name}s: expected names, found {one!r}")
        meant = matching_topics(one, known, internal=True) if name == "topic" else [one] if one in known else []
        if not meant:
            hint = suggestion(one, known)
            message = f"{name}s: there is no {what} {one}"
            raise ValueError(f"{message}; {hint}" if hint else message)
        chosen += meant
    return chosen


def committed_in(logs: Sequence[PartitionLog], known: Mapping[Any, PartitionLog], skip: bool) -> pa.Table:
    """The table of ``committed_offsets``, of partitions of ``__consumer_offsets``; known are the logs of topics."""
    return committed_of([(log, current_records(log, skip)) for log in logs], known, skip)


def committed_of(
    records: Sequence[tuple[PartitionLog, list[Current]]], known: Mapping[Any, PartitionLog], skip: bool
) -> pa.Table:
    """As ``committed_in``, of the current records of partitions."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pa.concat_tables([_of_partition(log, current, skip) for log, current in records])
    found = found.sort_by([("group", "ascending"), ("topic", "ascending"), ("partition", "ascending")])
    places = zip(found["topic"].to_pylist(), found["partition"].to_pylist(), strict=True)
    ends = pa.array(log_end_offsets(known, places, skip), pa.int64())
    place = found.column_names.index("currentOffset") + 1
    found = found.add_column(place, "logEndOffset", ends)
    return found.add_column(place + 1, "lag", pc.subtract(ends, found["currentOffset"]))


def current_records(log: PartitionLog, skip: bool) -> list[Current]:
    """The current records of one partition of the topic, without tombstones."""
    loader = Loader()
    for damage in loader.read(log, BATCH_BYTES, "skip" if skip else "raise").damage:
        warn(str(damage), damage.path, type(damage))
    return [Current(key, offset, value) for key, (offset, value) in loader.newest.items() if value is not None]


def refuse(log: PartitionLog, offset: int, reason: str, skip: bool) -> None:
    """Raise because a record is none of its topic, or warn that it is left out."""
    message = f"offset {offset} of {log.topic}-{log.partition} is not a record of {log.topic}"
    if not skip:
        raise CorruptRecordError(f"{message}: {reason}", path=log.path, offset=offset)
    warn(f"{log.path}: {message} and is left out: {reason}", log.path, DamageWarning)


def _of_partition(log: PartitionLog, current: Sequence[Current], skip: bool) -> pa.Table:
    """The committed offsets in one partition of the topic."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, offsets, values = zip(*current, strict=True) if current else ((), (), ())
    columns, refused = decode_records(
        "offsets", ["recordType", *DECODED.values()], pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    )
    for row, reason in refused:
        refuse(log, offsets[row], reason, skip)
    kept = pc.and_(pc.equal(columns["recordType"], "OffsetCommit"), pc.is_valid(columns["committedOffset"]))
    return pa.table({name: columns[known] for name, known in DECODED.items()}).filter(pc.fill_null(kept, False))


def log_end_offsets(
    logs: Mapping[Any, PartitionLog], places: Iterable[tuple[str, int]], skip: bool
) -> Iterator[int | None]:
    """The log end offset of each place, a topic and a partition, read once; None if it is not there."""
    known: dict[tuple[str, int], int | None] = {}
    for place in places:
        if place not in known:
            log = logs.get(place)
            try:
                known[place] = None if log is None else log.log_end_offset
            except KtsError as error:
                if not skip:
                    raise
                warn(f"{place[0]}-{place[1]}: its log end offset is unknown: {error}", error.path, DamageWarning)
                known[place] = None
        yield known[place]
