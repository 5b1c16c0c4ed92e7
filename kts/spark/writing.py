"""The writers behind ``df.write.format("kts")`` and ``writeStream``: tasks write segments aside, the driver commits."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from kts.arguments import INT32_MAX, suggestion
from kts.behaviour import GENERATIONS
from kts.codec.rows import row_times
from kts.compression import CODEC_NAMES
from kts.config import TIMESTAMP_TYPES, LogConfig
from kts.log import staging
from kts.segment.commits import read_commits
from kts.segment.rereading import warn
from kts.spark.options import KNOWN, UNIT_OPTION, Values, local_path, wrong
from kts.spark.planning import unseen
from kts.spark.schema import RECORD_TYPES, arrow_schema
from kts.spark.shipping import ship
from kts.store import addresses, local
from kts.store.source import files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

OPTIONS = (
    "path",
    "topic",
    "compression.type",
    "batch.size",
    "num.partitions",
    "sortBy",
    "timestampType",
    "timeUnit",
    "release",
)
_OF_SPARK = ("checkpointlocation", "queryname")  # which it passes on
_TIMESTAMP_TYPE = "message.timestamp.type"
ROWS = 10_000  # of Spark 4.0's streams, which have no Arrow batches, that are made columns at a time
# The types of the columns that are written; other columns of a read are left out.
WRITTEN = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz", "bigint", "string"),
}
# Local properties that Spark gives the tasks of a streaming query.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"

# From Spark 4.1 on streams have Arrow batches.
_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)


@dataclass(frozen=True)
class WriteOptions:
    """All options of a write, checked."""

    path: str
    topic: str | None
    compression: str
    batch_bytes: int
    partitions: int
    sort: bool
    unit: str | None
    config: LogConfig


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write.

    Raises
    ------
    ValueError
        An option is missing, unknown or invalid, or options contradict each other.
    """
    raw = {name.lower(): str(value) for name, value in given.items()}
    read = Values(raw)
    own = {name.lower() for name in OPTIONS}
    settings = {name: text.strip() for name, text in raw.items() if name not in own and name not in _OF_SPARK}
    headers = settings.pop("includeheaders", "true")  # of Spark's Kafka sink, which writes a column headers anyway
    if headers.lower() not in ("true", "false"):
        raise wrong("includeHeaders", "true or false", headers)
    for name in settings:
        _refuse_others(name)
    kind = read.text("timestampType")
    if kind is not None:
        if kind not in TIMESTAMP_TYPES:
            raise wrong("timestampType", " or ".join(TIMESTAMP_TYPES), kind)
        if settings.setdefault(_TIMESTAMP_TYPE, kind) != kind:
            raise ValueError(f"options timestampType and {_TIMESTAMP_TYPE} contradict each other: give one of them")
    release = None if read.text("release") is None else read.choice("release", GENERATIONS)
    try:
        config = LogConfig.of(settings, release=release)
    except (TypeError, ValueError) as error:
        hint = suggestion(next(iter(settings)), OPTIONS) if len(settings) == 1 else None
        raise ValueError(f"option {error}{'' if hint is None else f'; {hint}'}") from error
    if not raw.get("path", "").strip():
        raise ValueError(
            'option path is missing: name a log directory, as in df.write.format("kts").mode("append").save("/data"), '
            'writeStream.format("kts").start("/data"); saveAsTable, writeTo, toTable and INSERT name none'
        )
    path = local_path(raw["path"])
    if addresses.is_served(path):
        raise ValueError(f"option path: expected a directory, found {path!r}: write to one, and `kts copy` it")
    sort = read.text("sortBy")
    if sort not in (None, "timestamp"):
        raise wrong("sortBy", "timestamp", sort or "")
    return WriteOptions(
        path=os.path.abspath(path),
        topic=read.text("topic"),
        compression=_codec(read),
        batch_bytes=read.size("batch.size", staging.BATCH_BYTES, INT32_MAX),
        partitions=read.positive("num.partitions", INT32_MAX) or 1,
        sort=sort is not None,
        unit=read.unit("timeUnit"),
        config=config,
    )


def _codec(read: Values) -> str:
    text = read.text("compression.type")
    name = "none" if text in (None, "uncompressed") else text
    if name not in CODEC_NAMES:
        raise wrong("compression.type", " or ".join(CODEC_NAMES), text or "")
    return name


def _refuse_others(name: str) -> None:
    if name.startswith("kafka."):
        raise ValueError(
            f"option {name} is for clients of a broker, and kts writes Kafka's files without one: leave it out, or "
            "name the setting without kafka., as in compression.type, batch.size, segment.bytes"
        )
    if name in {one.lower() for one in KNOWN}:
        raise ValueError(f"option {name} is for reading: leave it out; a write has {', '.join(OPTIONS)}")


def check_written(schema: StructType, options: WriteOptions) -> None:
    """Check the columns of the rows. Others are not written, as by Spark's Kafka sink: a warning names them.

    Raises
    ------
    ValueError
        A column is missing, or of a wrong type.
    """
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    others = [name for name in found if name not in WRITTEN and name not in RECORD_TYPES]
    if others:
        hints = [f"{name}: {hint}" for name in others if (hint := suggestion(name, WRITTEN))]
        said = f"not written, because records have no such columns: {', '.join(others)}"
        warn("; ".join([f"{said} (they have {', '.join(WRITTEN)})", *hints]), options.path)
    for name, kind in found.items():
        if name in WRITTEN and kind not in WRITTEN[name]:
            raise ValueError(f"column {name}: expected {' or '.join(WRITTEN[name])}, found {kind}; cast it")
    if "value" not in found:
        raise ValueError(f"column value is missing: the rows have {', '.join(found) or 'no columns'}")
    if options.topic is None and "topic" not in found:
        raise ValueError("the topic is missing: give option topic, or the rows a column topic")


class KtsCommitMessage(WriterCommitMessage):
    """What one task wrote, and for which batch of which streaming query."""

    def __init__(self, logs: Sequence[staging.StagedLog], query: str | None = None) -> None:
        self.logs = list(logs)
        self.query = query

    def __reduce__(self) -> tuple[Any, ...]:
        return ship(self)


class _Writer:
    """What both writers share."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        self.options = parse_write_options(options)  # here: an absolute path is the driver's
        self.schema = schema
        check_written(schema, self.options)
        if overwrite:
            raise ValueError(
                "expected mode append, or output mode append or update, found one that replaces what is there: "
                "kts appends"
            )
        staging.check_free(self.options.path)
        self.counts = staging.partition_counts(self.options.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return ship(self)

    def _root(self, write_id: str) -> str:
        """The directory of all tasks of a write, for an executor."""
        if not files.exists(self.options.path):
            raise unseen(self.options.path)
        return staging.staging_root(self.options.path, write_id)

    def _write(self, batches: Iterator[pa.RecordBatch], root: str) -> list[staging.StagedLog]:
        """Write the rows of one task aside; runs on an executor."""
        import pyarrow as pa

        options, context = self.options, TaskContext.get()
        with staging.StagedWriter(
            root,
            options.config,
            self.counts,
            default_count=options.partitions,
            topic=options.topic,
            task=0 if context is None else context.partitionId(),
            compression=options.compression,
            batch_bytes=options.batch_bytes,
            sort=options.sort,
        ) as writer:
            for batch in batches:
                writer.append(_in_ms(pa.Table.from_batches([batch]), options.unit))
            return writer.finish()

    def _commit(self, messages: Sequence[Any], query: str | None = None, batch: int = -1) -> None:
        logs = [log for message in messages if message is not None for log in message.logs]
        staging.commit(
            self.options.path,
            logs,
            self.options.config,
            query=query,
            batch=batch,
            sorted_by_time=self.options.sort,
        )


class KtsWriter(_Writer, DataSourceArrowWriter):
    """A batch write.

    Parameters
    ----------
    options : dict of str to str
        As the user gave them.
    schema : pyspark.sql.types.StructType
        The columns of the rows.
    overwrite : bool
        Spark's mode; refused if true.
    """

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self.write_id = uuid.uuid4().hex
        local.make_directory(staging.staging_root(self.options.path, self.write_id))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task aside; runs on an executor."""
        return KtsCommitMessage(self._write(iterator, self._root(self.write_id)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible; runs on the driver."""
        self._commit(messages)
        self.abort(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks wrote aside."""
        staging.remove_staging(self.options.path, write_id=self.write_id)


class KtsStreamWriter(_Writer, _StreamWriter):
    """A streaming write; each batch of a query is committed once, whatever fails and restarts.

    Spark makes one for each batch.
    """

    def write(self, iterator: Iterator[pa.RecordBatch] | Iterator[Row]) -> WriterCommitMessage:
        """Write the rows of one task of a batch aside; runs on an executor."""
        context = TaskContext.get()
        query, batch = (None if context is None else context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
        if query is None or batch is None:
            raise RuntimeError(
                f"expected the task of a streaming query, found none: Spark gave no {QUERY_ID}, {BATCH_ID}"
            )
        root = self._root(f"{_stream(query)}{int(batch):016x}")
        batches = iterator if _StreamWriter is not DataSourceStreamWriter else _columns(iterator, self.schema)
        if read_commits(self.options.path).streams.get(query, -1) >= int(batch):  # committed before the query stopped
            for _ in batches:
                pass
            return KtsCommitMessage([], query)
        local.make_directory(root, parents=False)
        return KtsCommitMessage(self._write(batches, root), query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the rows of a batch visible, unless they are; runs on the driver."""
        query = self._query(messages)
        if query is not None:
            self._commit(messages, query, batchId)
        self.abort(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what the tasks of a batch, and of earlier ones, wrote aside."""
        query = self._query(messages)
        if query is not None:
            staging.remove_staging(self.options.path, stream=_stream(query), batch=batchId)

    @staticmethod
    def _query(messages: Sequence[Any]) -> str | None:
        return next((message.query for message in messages if message is not None), None)


def _in_ms(rows: pa.Table, unit: str | None) -> pa.Table:
    """Rows whose timestamps are integers of ms."""
    names = rows.column_names
    if "timestamp" not in names:
        return rows
    times = row_times(rows.column("timestamp").combine_chunks(), unit, how=UNIT_OPTION)
    return rows.set_column(names.index("timestamp"), "timestamp", times)


def _stream(query: str) -> str:
    """16 hex digits of a query."""
    return hashlib.sha256(query.encode()).hexdigest()[:16]


def _columns(rows: Iterator[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Rows as Spark 4.0 gives them to a streaming write, as batches."""
    import pyarrow as pa

    arrow = arrow_schema(schema)
    while part := list(islice(rows, ROWS)):
        yield pa.RecordBatch.from_pylist([row.asDict(recursive=True) for row in part], schema=arrow)
