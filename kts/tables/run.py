"""Adds the new records of logs to a table: each once, whatever is interrupted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kts.avro import AvroSchema
from kts.dataset import scan as scanning
from kts.dataset.increments import Losses, Offsets, Reach, TopicIds, name_of, reach_of, to_json
from kts.dataset.options import Path, ScanOptions, flat_offsets
from kts.dataset.partition import LogDirs, PartitionLog
from kts.dataset.paths import open_log_dirs, selected
from kts.errors import CorruptRecordError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kts.model import EARLIEST, LATEST, TopicPartition
from kts.segment.rereading import settled, warn
from kts.store import addresses
from kts.tables.options import SyncOptions
from kts.tables.rows import (
    DAY,
    DAY_MS,
    FIRST_MS,
    LAST_MS,
    READ,
    Days,
    Plausible,
    fitted,
    table_rows,
    table_schema,
    with_times_within,
)
from kts.tables.state import Known, offsets_of
from kts.tables.values import RECORD, Schemas, ValueDecoder, decoder_of, read_schema, registered
from kts.times import Time, milliseconds, wall_clock

EARLIEST_MS = 946_684_800_000  # 2000-01-01: Kafka is younger, the times of its records may be older
AHEAD_MS = 366 * DAY_MS
REJECTED = "_rejected"  # ends the name of the table of what was not decoded
REGISTRY = "_schemas"  # the topic of a schema registry
ADVICE = "set fail_on_data_loss to false (--no-fail-on-data-loss) to go on with what is there"


class Target(Protocol):
    """A table that is appended to; see also ``kts.tables.state.Known``."""

    name: str
    offsets: Offsets
    topic_ids: TopicIds
    kept: bool
    lost: bool
    times_ms: tuple[int, int] | None
    created: str | None
    schema: pa.Schema

    def append(self, rows: pa.Table, offsets: Offsets) -> None:
        """Add rows and set the offsets, both or, after any crash, none.

        Raises
        ------
        LogLockedError
            Another program has added records since the offsets were read.
        """


@dataclass
class Added:
    """What a run added to a table.

    Attributes
    ----------
    table : str
        Its name.
    records, commits : int
        How many rows were added, in how many commits.
    without_day, without_timestamp : int
        How many of these rows have no ``day``, or no ``timestamp``.
    offsets : dict of TopicPartition to int
        The offset of the next record of each partition that the table has.
    created : str or None
        Where the table lies, if this run made it.
    removed : int or None
        Of a table of the latest state: how many rows went, because their key has a newer record or none.
    """

    table: str
    records: int = 0
    commits: int = 0
    without_day: int = 0
    without_timestamp: int = 0
    offsets: Offsets = field(default_factory=dict)
    created: str | None = None
    removed: int | None = None

    def count(self, rows: pa.Table, offsets: Offsets) -> None:
        """Count rows that were committed."""
        self.offsets = offsets
        self.commits += 1
        self.records += rows.num_rows
        self.without_day += rows.column(DAY).null_count
        self.without_timestamp += rows.column("timestamp").null_count


@dataclass
class Synced:
    """What a run did.

    Attributes
    ----------
    tables : list of Added
        The table, and the one of what was not decoded.
    held_back : dict of TopicPartition to int
        How many offsets of each partition lie above the high watermark, or above the last stable offset: a later run
        adds them.
    """

    tables: list[Added]
    held_back: Offsets


@dataclass(frozen=True)
class SyncSource:
    """The logs of a run, and how their records become rows of tables."""

    table: str
    logs: Sequence[PartitionLog]
    there: frozenset[TopicPartition]  # these and others in the same paths
    options: ScanOptions
    losses: Losses
    to_end: bool
    plausible: Plausible
    decoder: ValueDecoder | None
    from_offsets: Offsets | str | None
    max_days: int

    @property
    def topic_ids(self) -> TopicIds:
        """The ids of the topics, where their partitions have one."""
        ids = {topic: log.topic_id for topic, log in {log.topic: log for log in self.logs}.items()}
        return {topic: found for topic, found in ids.items() if found is not None}

    @property
    def tables(self) -> list[tuple[str, pa.Schema]]:
        """The names of the table and, with a decoder, of the one of what was not decoded; and their columns."""
        if self.decoder is None:
            return [(self.table, table_schema())]
        return [
            (self.table, table_schema(self.decoder.type)),
            (f"{self.table}{REJECTED}", table_schema(reason=True)),
        ]


def source_of(asked: SyncOptions, threads: int = 1, isolation: str = ScanOptions.isolation) -> SyncSource:
    """The arguments that both engines have, checked, and the partitions that are read; isolation is the default."""
    options = ScanOptions(
        columns=READ, isolation=asked.isolation or isolation, on_error=asked.on_error, threads=threads
    )
    losses = Losses(asked.fail_on_data_loss, ADVICE)
    plausible = plausible_times(asked.plausible_from, asked.plausible_to, asked.unit)
    stated = _stated(asked.from_offsets)
    opened, logs = selected(asked.path, asked)
    if asked.registry:
        logs = [log for log in logs if log.topic != REGISTRY]
    decoder = _decoder(asked, opened, logs)
    table = os.fspath(asked.table).rstrip("/")
    places = {addresses.real(log.path) for log in logs}
    if not table or addresses.real(table) in places | {os.path.dirname(place) for place in places}:
        found = f"{table}, which holds the logs" if table else repr(os.fspath(asked.table))
        raise ValueError(f"table: expected the name of a table, or a folder of its own, found {found}")
    return SyncSource(
        table,
        sorted(logs, key=name_of),
        frozenset(opened),
        options,
        losses,
        asked.to_end,
        plausible,
        decoder,
        stated,
        asked.max_days,
    )


def _stated(given: Any) -> Offsets | str | None:
    """The argument ``from_offsets``, checked."""
    if given is None or (isinstance(given, str) and given in ("earliest", "latest")):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(
            f"from_offsets: expected earliest, latest or {{topic: {{partition: int}}}}, found {given!r:.80}"
        )
    flat = flat_offsets(given, "from_offsets")
    try:
        return offsets_of(to_json({TopicPartition(*name): offset for name, offset in flat.items()}), EARLIEST)
    except ValueError as error:
        raise ValueError(f"from_offsets: {error}") from error


def plausible_times(plausible_from: Time | None, plausible_to: Time | None, unit: str | None) -> Plausible:
    """The times that get a day, from the arguments of these names."""
    start, end = EARLIEST_MS, wall_clock() + AHEAD_MS
    if plausible_from is not None:
        start = milliseconds("plausible_from", plausible_from, unit)
    if plausible_to is not None:
        end = milliseconds("plausible_to", plausible_to, unit)
    if start > end:
        raise ValueError(f"plausible_from: {start} is after plausible_to {end}")
    for name, ms in (("plausible_from", start), ("plausible_to", end)):
        if not FIRST_MS <= ms <= LAST_MS:
            raise ValueError(f"{name}: expected a time in the years 1 to 9999, which have days, found {ms} ms")
    return Plausible(start, end)


def _decoder(asked: SyncOptions, opened: LogDirs, logs: Sequence[PartitionLog]) -> ValueDecoder | None:
    """How the values of logs are decoded; None if they are not."""
    if asked.value_format is None:
        for name, given in (("value_schema", asked.value_schema is not None), ("registry", asked.registry)):
            if given:
                raise ValueError(f"{name}: give value_format as well")
        return None
    schema = None if asked.value_schema is None else read_schema(os.fspath(asked.value_schema))
    if not asked.registry:
        return decoder_of(asked.value_format, schema)
    if asked.value_format == "text":
        raise ValueError("registry: text has no schema; leave it out, or decode json or avro")
    schemas = _registered(opened)
    if schema is not None:
        return decoder_of(asked.value_format, schema, schemas)
    subjects = {f"{log.topic}-value" for log in logs}
    known = {schemas.newest[subject] for subject in subjects if subject in schemas.newest}
    if not known:
        raise ValueError(
            f"registry: expected a schema of the subject {', '.join(sorted(subjects))}, found none: give value_schema,"
            " the file of the schema that the column gets. Subjects that are named after records (RecordNameStrategy,"
            " TopicRecordNameStrategy) are not looked up yet; with value_schema each value is decoded by its id"
        )
    if len(known) != 1:
        raise ValueError(
            f"registry: expected one newest schema of {', '.join(sorted(subjects))}, found {len(known)}: choose one"
            " topic, or give value_schema"
        )
    (newest,) = known
    if newest.format != asked.value_format:
        raise ValueError(f"value_format: expected {newest.format}, which the registry has, found {asked.value_format}")
    return decoder_of(asked.value_format, newest.text, schemas, newest.needs)


def _registered(opened: LogDirs) -> Schemas:
    there = [log for log in opened.values() if log.topic == REGISTRY]
    if not there:
        raise UnknownTopicOrPartitionError(
            f"registry: there is no topic {REGISTRY} among the partitions: give the log directories that hold it, too"
        )
    return registered(scanning.records(there, ScanOptions(columns=RECORD)).read_all())


def avro_schemas(
    path: Path | Sequence[Path], *, storage_options: Mapping[str, Any] | None = None
) -> dict[int, AvroSchema]:
    """The Avro schemas of a registry by their ids, as ``kts.avro.decode`` takes them.

    Parameters
    ----------
    path, storage_options
        As for ``kts.open_log_dirs``: log directories that have the topic ``_schemas``.

    Raises
    ------
    UnknownTopicOrPartitionError
        They have no such topic.
    InvalidRecordError
        A record of it is not one of a schema registry.
    """
    known = _registered(open_log_dirs(path, storage_options=storage_options)).by_id
    found = {number: known[number] for number in known}
    return {number: AvroSchema(one.text, one.needs) for number, one in found.items() if one.format == "avro"}


def shaped(batch: pa.RecordBatch, plausible: Plausible, decoder: ValueDecoder | None) -> list[pa.RecordBatch]:
    """The rows of records in the table and, with a decoder, in the one of what was not decoded."""
    if decoder is None:
        return [table_rows(batch, plausible)]
    values, refused = decoder.decode(batch.column("value"), batch.column("headers"))
    if not refused:
        return [
            table_rows(batch, plausible, values),
            table_rows(batch.slice(0, 0), plausible, reason=pa.nulls(0, pa.string())),
        ]
    sound = np.ones(batch.num_rows, bool)
    rows = sorted(refused)
    sound[rows] = False
    kept, reasons = pa.array(sound), pa.array([refused[row] for row in rows], pa.string())
    return [
        table_rows(batch.filter(kept), plausible, values.filter(kept)),
        table_rows(batch.take(pa.array(rows)), plausible, reason=reasons),
    ]


class Bounds:
    """Which offsets of each partition are new to tables.

    Attributes
    ----------
    known : list of dict
        For each table, the offset of the next record of each partition when the run began.
    begins : list of dict
        For each table, the first offset that it lacks.
    reached : dict
        One after the last offset that was read, or is about to be.

    Parameters
    ----------
    tables : sequence of Known
        As they are when the run begins. Their topic ids become those of the logs, and their offsets what
        ``from_offsets`` states where they have none.

    Raises
    ------
    ValueError
        Offsets were stated, and all tables know theirs.
    """

    def __init__(self, source: SyncSource, tables: Sequence[Target | Known]) -> None:
        self.source = source
        self._state(tables)
        self.known = [self._known(table, source.topic_ids) for table in tables]
        self.begins: list[Offsets] = [{} for _ in tables]
        self.reached: Offsets = {}
        self._held_back: Offsets = {}
        topics = {log.topic for log in source.logs}
        for offsets in self.known:  # partitions of these topics that the tables know, and the paths lack
            source.losses.check_gone({name: at for name, at in offsets.items() if name.topic in topics}, source.there)

    def _state(self, tables: Sequence[Target | Known]) -> None:
        """Give tables that have no offsets those that were stated."""
        stated = self.source.from_offsets
        if stated is None:
            return
        without = [table for table in tables if table.lost or not table.offsets]
        if not without:
            told = ", ".join(f"{table.name} {json.dumps(to_json(table.offsets))}" for table in tables)
            raise ValueError(f"from_offsets: the table knows its offsets ({told}): leave from_offsets out")
        offsets = self._numbers(stated)
        for table in without:
            table.offsets, table.kept = dict(offsets), False

    def _numbers(self, stated: Offsets | str) -> Offsets:
        """What was stated, for each partition that is read, as numbers."""
        logs = {name_of(log): log for log in self.source.logs}
        if isinstance(stated, str):
            stated = dict.fromkeys(logs, EARLIEST if stated == "earliest" else LATEST)
        if missing := sorted(map(str, logs.keys() - stated.keys())):
            raise ValueError(f"from_offsets: expected each partition that is read, found none for {', '.join(missing)}")
        found = {}
        for name, offset in stated.items():
            if offset < 0 and name not in logs:
                raise ValueError(f"from_offsets: {name} is not read, so that it needs an offset as a number")
            if name in logs:
                reach = self._reach(logs[name].listed(skip_damage=self.source.options.skip_damage))
                offset = {EARLIEST: reach.first, LATEST: reach.stable}.get(offset, offset)
                if offset > reach.end:
                    raise ValueError(f"from_offsets: {name} ends at offset {reach.end}, found {offset}")
            found[name] = offset
        return found

    def _reach(self, log: PartitionLog) -> Reach:
        options = self.source.options
        return reach_of(
            log, options.isolation, above_high_watermark=self.source.to_end, skip_damage=options.skip_damage
        )

    def _known(self, table: Target | Known, topic_ids: TopicIds) -> Offsets:
        """The offsets of a table, without those of topics that have another id now."""
        known = table.offsets
        for topic, now in topic_ids.items():
            before = table.topic_ids.get(topic, now)
            if before != now:
                self.source.losses.tell(
                    f"{table.name}: the topic {topic} had the id {before} when it was read, and has {now}: it was"
                    " created again, or is another cluster's"
                )
                known = {name: offset for name, offset in known.items() if name.topic != topic}
        table.topic_ids.update(topic_ids)
        return known

    def of(self, log: PartitionLog) -> tuple[int, int]:
        """The first offset that a table lacks or an earlier attempt did not get to, and the end of what is stable.

        Parameters
        ----------
        log : PartitionLog
            With a fixed list of segments.
        """
        losses, name, reach = self.source.losses, name_of(log), self._reach(log)
        end = reach.stable
        if name not in self.reached:
            for begins, known in zip(self.begins, self.known, strict=True):
                begins[name] = self._begin(known.get(name), name, reach)
        elif self.reached[name] < reach.first:  # deleted since the last attempt
            losses.check_start(name, self.reached[name], end, reach.first)
        begin = max(self.reached.get(name, min(begins[name] for begins in self.begins)), reach.first)
        self.reached[name] = begin
        self._held_back[name] = max(reach.end - max(begin, end), 0)
        return begin, end

    def _begin(self, known: int | None, name: TopicPartition, reach: Reach) -> int:
        """The offset of the first record that a table lacks."""
        if known is None:
            return reach.first
        self.source.losses.check_end(name, known, reach.end)
        if known > reach.end:
            return reach.stable
        self.source.losses.check_start(name, known, reach.end, reach.first)
        return max(known, reach.first)

    @property
    def held_back(self) -> Offsets:
        """The number of offsets of each partition that are not stable yet, where there are any."""
        return {name: count for name, count in self._held_back.items() if count}

    def offsets(self, number: int) -> Offsets:
        """Those of a table once it has everything that was reached."""
        begins = self.begins[number]
        return self.known[number] | {name: max(offset, begins[name]) for name, offset in self.reached.items()}


class Run:
    """One run: the partitions one after another, and a commit whenever there are enough rows."""

    def __init__(
        self,
        source: SyncSource,
        targets: Sequence[Target],
        commit_bytes: int,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.source, self.commit_bytes, self.progress = source, commit_bytes, progress
        self.bounds = Bounds(source, targets)
        self.sinks = [
            _Sink(target, known, source.max_days) for target, known in zip(targets, self.bounds.known, strict=True)
        ]

    def finish(self) -> Synced:
        """Read and commit everything that is new."""
        try:
            for log in self.source.logs:
                settled(partial(self._read, log), goes_on=True)
        except (CorruptRecordError, OffsetOutOfRangeError):
            self._commit()  # what was read before
            raise
        self._commit()
        return Synced([sink.added for sink in self.sinks], self.bounds.held_back)

    def _read(self, log: PartitionLog) -> None:
        """The new records of a partition."""
        log, name = log.listed(skip_damage=self.source.options.skip_damage), name_of(log)
        begin, end = self.bounds.of(log)
        if begin >= end:
            return
        key = (name.topic, name.partition)
        options = replace(self.source.options, starting_offsets={key: begin}, ending_offsets={key: end})
        for batch in scanning.records([log], options, deleted=lambda path, source: nullcontext()):
            self._take(name, batch)
        self._reach(name, end)

    def _take(self, name: TopicPartition, batch: pa.RecordBatch) -> None:
        tables = shaped(batch, self.source.plausible, self.source.decoder)
        for sink, rows, begins in zip(self.sinks, tables, self.bounds.begins, strict=True):
            if begins[name] > self.bounds.reached[name]:
                rows = rows.filter(pc.greater_equal(rows.column("offset"), begins[name]))
            if rows.num_rows:
                sink.take(rows)
        self._reach(name, batch.column("offset")[-1].as_py() + 1)
        if sum(sink.waiting_bytes for sink in self.sinks) >= self.commit_bytes:
            self._commit()

    def _reach(self, name: TopicPartition, offset: int) -> None:
        if self.progress is not None:
            self.progress(offset - self.bounds.reached[name])
        self.bounds.reached[name] = offset

    def _commit(self) -> None:
        for number, sink in enumerate(self.sinks):
            sink.commit(self.bounds.offsets(number))


class _Sink:
    """A table, and the rows that wait for its next commit."""

    def __init__(self, target: Target, known: Offsets, max_days: int) -> None:
        self.target, self.max_days = target, max_days
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self.added = Added(target.name, offsets=known, created=target.created)

    def take(self, rows: pa.RecordBatch) -> None:
        """Keep rows for the next commit."""
        rows = fitted(rows, self.target.schema)
        if self.target.times_ms is not None:
            rows = with_times_within(rows, *self.target.times_ms)
        self.waiting.append(rows)
        self.waiting_bytes += rows.nbytes

    def commit(self, offsets: Offsets) -> None:
        """Commit the rows, unless the table has all of these offsets."""
        if offsets == self.added.offsets and self.target.kept:
            return
        rows = pa.Table.from_batches(self.waiting, schema=self.target.schema)
        days = Days(self.max_days)
        rows = days.bounded(rows)
        if days.left_out:
            warn(
                f"{self.target.name}: a commit has records of {self.max_days + len(days.left_out):,} days, each of"
                f" which would be a file: those of {len(days.left_out):,} days with the fewest records are added"
                f" without a day; give more max_days (now {self.max_days:,}), or plausible_from and plausible_to",
                None,
            )
        self.target.append(rows, offsets)
        self.waiting, self.waiting_bytes = [], 0
        self.added.count(rows, offsets)
