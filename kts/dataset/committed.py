"""The committed offsets of consumer groups, from ``__consumer_offsets`` alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kts.arguments import choice, suggestion
from kts.coordinator_records.columns import DECODERS, decode_records
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
        if wanted is None:
            continue
        known = sorted(found[name].unique().to_pylist())
        chosen = []
        for one in wanted:
            meant = matching_topics(one, known, internal=True) if name == "topic" else [one] if one in known else []
            if not meant:
                hint = suggestion(one, known)
                message = f"{name}s: there is no committed offset of {name} {one}"
                raise ValueError(f"{message}; {hint}" if hint else message)
            chosen += meant
        found = found.filter(pc.is_in(found[name], pa.array(chosen, pa.string())))
    return found


def committed_in(logs: Sequence[PartitionLog], known: Mapping[Any, PartitionLog], skip: bool) -> pa.Table:
    """The table of ``committed_offsets``, of partitions of ``__consumer_offsets``; known are the logs of topics."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pa.concat_tables([_of_partition(log, skip) for log in logs])
    found = found.sort_by([("group", "ascending"), ("topic", "ascending"), ("partition", "ascending")])
    ends = pa.array(_log_end_offsets(known, found, skip), pa.int64())
    place = found.column_names.index("currentOffset") + 1
    found = found.add_column(place, "logEndOffset", ends)
    return found.add_column(place + 1, "lag", pc.subtract(ends, found["currentOffset"]))


def _of_partition(log: PartitionLog, skip: bool) -> pa.Table:
    """The committed offsets in one partition of the topic."""
    import pyarrow as pa
    import pyarrow.compute as pc

    loader = Loader()
    for damage in loader.read(log, BATCH_BYTES, "skip" if skip else "raise").damage:
        warn(str(damage), damage.path, type(damage))
    current = [(key, *entry) for key, entry in loader.newest.items() if entry[1] is not None]
    keys, offsets, values = zip(*current, strict=True) if current else ((), (), ())
    columns, refused = decode_records(
        "offsets", ["recordType", *DECODED.values()], pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    )
    topic = DECODERS["offsets"].topic
    for row, reason in refused:
        message = f"offset {offsets[row]} of {log.topic}-{log.partition} is not a record of {topic}"
        if not skip:
            raise CorruptRecordError(f"{message}: {reason}", path=log.path, offset=offsets[row])
        warn(f"{log.path}: {message} and is left out: {reason}", log.path, DamageWarning)
    kept = pc.and_(pc.equal(columns["recordType"], "OffsetCommit"), pc.is_valid(columns["committedOffset"]))
    return pa.table({name: columns[known] for name, known in DECODED.items()}).filter(pc.fill_null(kept, False))


def _log_end_offsets(logs: Mapping[Any, PartitionLog], found: pa.Table, skip: bool) -> Iterator[int | None]:
    """The log end offset of each row's partition, read once."""
    known: dict[tuple[str, int], int | None] = {}
    for place in zip(found["topic"].to_pylist(), found["partition"].to_pylist(), strict=True):
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
