"""What a table knows of the logs whose records it has: offsets and topic ids, as JSON that is checked when it is read.

An Iceberg table has them in the snapshot of each commit and, because snapshots expire, in its own properties; a Parquet
folder has them in its ledger.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kts.arguments import INT32_MAX, INT64_MAX
from kts.dataset.increments import Offsets, TopicIds, to_json
from kts.errors import InvalidTopicError, KtsError, LogStorageError
from kts.model import TopicPartition
from kts.segment.names import TOPIC_ID, check_topic
from kts.store.protocol import Result
from kts.tables.rows import lost_race

OFFSETS = "kts.offsets"  # {"orders": {"0": 23}}, the offset of the next record
TOPIC_IDS = "kts.topic.ids"  # {"orders": "0pRNyzbsQCOp2wUfl5aKFA"}, where the topic had an id
SNAPSHOT = "kts.snapshot"  # of a table's properties: the snapshot whose offsets they are
NO_SNAPSHOT = "none"  # of a new table
ATTEMPTS = 20  # of a commit, against programs that rewrite or expire what is there
MOST_BYTES = 64 << 20  # of a text: millions of partitions
NEXT = (
    "give the offset of the next record of each partition that the table has as from_offsets, such as"
    ' \'{"orders": {"0": 23}}\', or earliest or latest'
)

_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_TOPIC_ID = re.compile(TOPIC_ID)
_SNAPSHOT = re.compile(r"none|[0-9]{1,19}")


@dataclass(frozen=True)
class TableState:
    """The offset of the next record of each partition that was read, and the ids of the topics."""

    offsets: Offsets = field(default_factory=dict)
    topic_ids: TopicIds = field(default_factory=dict)


class LostOffsetsError(LogStorageError):
    """What a table knew is lost or malformed: only who runs it can state it again."""


# --- as JSON --------------------------------------------------------------------------------------


def parsed(text: str | bytes) -> Any:
    """The value of JSON text.

    Raises
    ------
    ValueError
        It is too long, nested too deep, or no JSON; or an object has a name twice.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"expected at most {MOST_BYTES} bytes, found {len(text)}")
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it has a name twice")
    return found


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def as_object(value: Any, what: str) -> dict[str, Any]:
    """A JSON object, or ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"expected an object as {what}, found {value!r:.80}")
    return value


def offsets_of(value: Any, lowest: int = 0) -> Offsets:
    """Offsets by topic and partition, as JSON has them; ValueError says what is wrong."""
    found: Offsets = {}
    for topic, partitions in as_object(value, "the offsets").items():
        _check_topic(topic)
        for partition, offset in as_object(partitions, f"the partitions of {topic}").items():
            if not _PARTITION.fullmatch(partition) or int(partition) > INT32_MAX:
                raise ValueError(f"expected the number of a partition of {topic}, found {partition!r:.80}")
            if type(offset) is not int or not lowest <= offset <= INT64_MAX:
                raise ValueError(f"expected an offset of {topic}-{partition}, found {offset!r:.80}")
            found[TopicPartition(topic, int(partition))] = offset
    return found


def topic_ids_of(value: Any) -> TopicIds:
    """Topic ids, as JSON has them; ValueError says what is wrong."""
    found = as_object(value, "the topic ids")
    for topic, topic_id in found.items():
        _check_topic(topic)
        if not isinstance(topic_id, str) or not _TOPIC_ID.fullmatch(topic_id):
            raise ValueError(f"expected the id of {topic}, found {topic_id!r:.80}")
    return found


def _check_topic(name: str) -> None:
    try:
        check_topic(name)
    except InvalidTopicError as error:
        raise ValueError(str(error)) from error


# --- in an Iceberg table --------------------------------------------------------------------------


class Snapshot(NamedTuple):
    """A snapshot of an Iceberg table."""

    parent: int | None
    properties: Mapping[str, str]  # its summary


def snapshot_properties(state: TableState) -> dict[str, str]:
    """The properties of a snapshot that has all records before these offsets."""
    told = {OFFSETS: to_json(state.offsets), TOPIC_IDS: state.topic_ids}
    return {name: json.dumps(value, separators=(",", ":")) for name, value in told.items()}


def table_properties(state: TableState, snapshot: int | None) -> dict[str, str]:
    """The properties of a table whose snapshot has these; None is a new table, without one."""
    return snapshot_properties(state) | {SNAPSHOT: NO_SNAPSHOT if snapshot is None else str(snapshot)}


def state_in(properties: Mapping[str, str], whose: str) -> TableState | None:
    """The state in the properties of a snapshot or of a table; None if it has none."""
    try:
        if (told := properties.get(OFFSETS)) is None:
            return None
        return TableState(offsets_of(parsed(told)), topic_ids_of(parsed(properties.get(TOPIC_IDS, "{}"))))
    except ValueError as error:
        raise LostOffsetsError(
            f"{whose}: the properties {OFFSETS} and {TOPIC_IDS} are malformed: {error}: {NEXT}"
        ) from error


def find_state(
    table: str,
    properties: Mapping[str, str],
    snapshots: Mapping[int, Snapshot],
    current: int | None,
    older: Callable[[], Iterable[Mapping[int, Snapshot]]],
) -> tuple[TableState, bool]:
    """What an Iceberg table knows of its logs, and whether its own properties say so too.

    Parameters
    ----------
    table : str
        Its name, for errors.
    properties : mapping
        Of the table.
    snapshots : mapping
        All that have not expired.
    current : int or None
        The one whose rows the table shows.
    older : callable
        Called where snapshots expired, it gives those of earlier metadata files of the table, newest first.

    Raises
    ------
    LostOffsetsError
        No snapshot that the current rows come from tells it, and the table's properties do not, or belong to other
        rows; or what tells it is malformed.

    Notes
    -----
    The newest of the snapshots that the current one descends from goes first: after a rollback it is the one that was
    rolled back to, and after a compaction or a deletion, which have no offsets, the one before. The table's properties
    stand in for snapshots that expired, if the current one descends from the snapshot to which they belong: a table
    that was rolled back or replaced still has the properties of what it was. Rows tell nothing: whoever deletes rows
    wants them to stay deleted.
    """
    noted = properties.get(SNAPSHOT)
    if noted is not None and not _SNAPSHOT.fullmatch(noted):
        raise LostOffsetsError(f"{table}: the property {SNAPSHOT} is malformed: found {noted!r:.80}: {NEXT}")
    own = state_in(properties, table)
    at, oldest = current, None
    while at is not None and (found := snapshots.get(at)) is not None:
        if (state := state_in(found.properties, f"{table}, snapshot {at}")) is not None:
            return state, own is not None and noted == str(at)
        at, oldest = found.parent, at
    if own is None:
        if current is None:
            return TableState(), True
        raise LostOffsetsError(
            f"{table}: the offsets up to which it has the logs are lost: neither the snapshots that its rows come from"
            f" have the property {OFFSETS}, nor the table: {NEXT}"
        )
    if noted == NO_SNAPSHOT or (noted is not None and _descends(at or oldest, int(noted), older)):
        return own, True
    told = properties[OFFSETS]
    raise LostOffsetsError(
        f"{table}: its property {OFFSETS} belongs to snapshot {noted}, and it cannot be shown that snapshot {current},"
        " which it has now, descends from it: the table was rolled back or replaced, or its history is gone; the"
        f" property says {told if len(told) < 1000 else told[:1000] + ' ...'}: {NEXT}"
    )


def _descends(snapshot: int | None, ancestor: int, older: Callable[[], Iterable[Mapping[int, Snapshot]]]) -> bool:
    """Whether a snapshot is another one, or descends from it, without offsets of its own in between.

    A program that expires snapshots may leave the oldest one without a parent, so that only earlier metadata files tell
    it.
    """
    known: dict[int, Snapshot] = {}
    for more in older() if snapshot not in (None, ancestor) else ():
        for one, found in more.items():
            if one not in known or known[one].parent is None:
                known[one] = found
        while snapshot is not None and snapshot != ancestor and (step := known.get(snapshot)) is not None:
            if step.parent is None or OFFSETS in step.properties:
                break
            snapshot = step.parent
        if snapshot == ancestor:
            break
    return snapshot == ancestor


# --- commits --------------------------------------------------------------------------------------


def attempted(
    table: str, commit: Callable[[], Result], lost_race: type[Exception], prepare: Callable[[], object]
) -> Result:
    """The result of a commit, made again where another program committed first.

    Parameters
    ----------
    table : str
        Its name, for errors.
    commit : callable
        It raises LogStorageError.
    lost_race : type
        What caused that error if the table was changed meanwhile.
    prepare : callable
        Called before it is made again.

    Raises
    ------
    KtsError
        Another program was first each time.
    """
    for _ in range(ATTEMPTS):
        try:
            return commit()
        except LogStorageError as error:
            if not isinstance(error.__cause__, lost_race):
                raise
            prepare()
    raise KtsError(f"{table}: in {ATTEMPTS} attempts another program committed first each time; run again")


# --- of a table -----------------------------------------------------------------------------------


class Known:
    """What a table knows of the logs whose records it has: the base of the tables of each engine.

    Attributes
    ----------
    name : str
        The table's.
    offsets : dict
        Of the next record of each partition that was read.
    topic_ids : dict
        Of the topics that had these offsets; the next commit keeps what is added.
    kept : bool
        Whether the table has this wherever it keeps it; else the next run commits it, even without rows.
    lost : bool
        Whether it is not known, and will be stated.
    times_ms : tuple of int or None
        The first and the last time that its column ``timestamp`` can hold, if not all that microseconds can.
    """

    name: str
    times_ms: tuple[int, int] | None = None

    def learn(self, find: Callable[[], tuple[TableState, bool]], stated: bool) -> None:
        """Set it all as a function finds it; LostOffsetsError is raised unless it will be stated."""
        self.lost = False
        try:
            self._found, self.kept = find()
        except LostOffsetsError:
            if not stated:
                raise
            self._found, self.kept, self.lost = TableState(), False, True
        self.offsets, self.topic_ids = dict(self._found.offsets), dict(self._found.topic_ids)

    def check_race(self, find: Callable[[], tuple[TableState, bool]]) -> None:
        """Raise LogLockedError if a function finds something else now."""
        try:
            found, lost = find()[0], False
        except LostOffsetsError:
            found, lost = TableState(), True
        if found != self._found or lost != self.lost:
            raise lost_race(self.name)

    def state(self, offsets: Offsets) -> TableState:
        """What the table knows once it has the records before these offsets."""
        return TableState(offsets, dict(self.topic_ids))

    def committed(self, state: TableState) -> None:
        """Set it as a commit kept it."""
        self._found, self.kept, self.lost = state, True, False
        self.offsets = dict(state.offsets)
