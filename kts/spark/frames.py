"""DataFrames of ``format("kts")`` whose ranges are arguments: what ``where`` on times and partitions cannot do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from kts.codec.columns import check_columns
from kts.dataset.options import ScanOptions
from kts.dataset.paths import named_topics, numbers_of_partitions
from kts.errors import UnknownTopicOrPartitionError
from kts.options import camel_case, options_of
from kts.spark.options import UNIT_OPTION, parse_options
from kts.spark.planning import select_logs
from kts.spark.schema import ddl, types_of
from kts.times import Length, Time, length_of, milliseconds, show_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Paths = str | PathLike[str] | Sequence[str | PathLike[str]] | None


def read(
    spark: SparkSession,
    path: Paths,
    *,
    start: Time | None = None,
    end: Time | None = None,
    topics: Sequence[str] | str | None = None,
    partitions: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    columns: Sequence[str] | None = None,
    strict: bool = True,
    allowed_lateness: Length = ScanOptions.allowed_lateness,
    **options: Any,
) -> DataFrame:
    """The records of log directories between two times, as a new DataFrame.

    Parameters
    ----------
    spark : SparkSession
    path : path or list of paths
        As for ``load``; None reads the option ``remote`` alone.
    start, end : int (ms), aware datetime, date, numpy.datetime64 or text, optional
        The records with start <= timestamp < end; text as for ``kts.scan``.
    topics : list of str, optional
        None is every topic, except Kafka's internal ones.
    partitions : list of int or {topic: list of int}, optional
        None is every partition.
    columns : list of str, optional
        The columns to decode; None is those of ``format("kts")``.
    strict : bool
        True is what ``where`` on ``timestamp`` gives, late records included. False takes the offsets of Spark's Kafka
        source: it ends before the first record at or after ``end``. With ``granularity`` ``batch`` or ``segment``, True
        gives those that may hold a record of the range.
    allowed_lateness : int (ms), timedelta, text such as "1h", or None
        As for ``kts.scan``; None reads to the log's end, which is the default of ``latest=True``.
    options
        More of the data source's options by name, as ``includeHeaders=True``, also in the spelling of ``kts.scan``, as
        ``on_error="skip"``: ``starting_timestamp`` and ``ending_timestamp`` are ``start`` and ``end``,
        ``strict_time_range`` is ``strict``. ``timeUnit``, or ``unit``, is that of ``start`` and ``end`` as integers.

    Returns
    -------
    pyspark.sql.DataFrame
        Planned when it is used. ``explain()`` names the path, the range and the columns.

    Notes
    -----
    Spark (4.1 to 4.3 at least) keeps a filter that it pushed to a Python source with the DataFrame, and uses it for
    the next query too. Each call of this function is a read of its own.
    """
    named = _spelled(options)
    start = _one_of("start", start, named.pop("startingTimestamp", None), "starting_timestamp")
    end = _one_of("end", end, named.pop("endingTimestamp", None), "ending_timestamp")
    asked = {name: _text(value) for name, value in named.items()}
    unit = asked.get("timeUnit")
    starts = None if start is None else milliseconds("start", start, unit, how=UNIT_OPTION)
    ends = None if end is None else milliseconds("end", end, unit, how=UNIT_OPTION)
    if starts is not None and ends is not None and starts > ends:
        raise ValueError(f"start: {show_time(starts)} is after end {show_time(ends)}")
    if starts is not None:
        asked["startingTimestamp"] = str(starts)
        asked.setdefault("startingOffsetsByTimestampStrategy", "latest")
    if ends is not None:
        asked["endingTimestamp"] = str(ends)
    between = None
    if starts is not None or ends is not None:
        asked["timeUnit"] = "ms"
        asked.setdefault("strictTimeRange", _text(strict))
        of_scan = allowed_lateness == ScanOptions.allowed_lateness
        if ends is not None and asked["strictTimeRange"] == "true" and not (of_scan and asked.get("latest") == "true"):
            lateness = length_of("allowed_lateness", allowed_lateness)
            asked.setdefault("allowedLateness", "unlimited" if lateness is None else str(lateness))
        between = f"{_shown(starts, 'start')} <= timestamp < {_shown(ends, 'end')}"
    paths = [fspath(path)] if isinstance(path, (str, PathLike)) else [fspath(one) for one in path or ()]
    asked |= _chosen(paths, topics, partitions, asked)
    parsed = parse_options({"paths": json.dumps(paths), **asked})
    what = "" if parsed.granularity == "record" else f", granularity {parsed.granularity}"
    where = [parsed.shown + what]
    where += [f"{name} {asked[name]}" for name in ("subscribe", "assign") if name in asked]
    where += [] if between is None else [between]
    reader = spark.read.format(_registered(spark, f"kts {'; '.join(where)}")).options(**asked)
    if columns is not None:
        types = types_of(parsed)
        names = check_columns(columns, (), tuple(types))
        if not names:
            raise ValueError("columns: expected at least one name, found none")
        reader = reader.schema(ddl(names, types))
    return reader.load(paths[0] if len(paths) == 1 else paths or None)


def damage(spark: SparkSession, path: Paths, **asked: Any) -> DataFrame:
    """What a read with ``onError=skip`` leaves out: one row for each stretch of bytes.

    Parameters
    ----------
    spark : SparkSession
    path : path or list of paths
        As for ``load``.
    asked
        Of ``kts.spark.read``, but ``columns``; give those of the read.

    Returns
    -------
    pyspark.sql.DataFrame
        topic, partition, segment, path, position, sizeInBytes, offset, reason. ``sizeInBytes`` is null where the end of
        a segment is lost; ``offset`` is set where a decoder refused a record.
    """
    asked.pop("onError", None)
    return read(spark, path, granularity="damage", **asked)


def _spelled(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the data source's names: those of ``kts.scan`` differ in their spelling."""
    known, found = options_of(ScanOptions), dict[str, Any]()
    for name, value in options.items():
        one = known.get(name)
        own = one.spark_names[0] if one is not None and one.spark else camel_case(name)
        if own in found:
            raise TypeError(f"{name}: expected it once, found it also as {own}")
        if value is not None:
            found[own] = value
    return found


def _one_of(name: str, value: Any, other: Any, other_name: str) -> Any:
    if value is not None and other is not None:
        raise TypeError(f"{name}: expected it or {other_name}, found both")
    return other if value is None else value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def _shown(ms: int | None, default: str) -> str:
    return default if ms is None else show_time(ms)


def _chosen(
    paths: list[str],
    topics: Sequence[str] | str | None,
    partitions: Sequence[int] | Mapping[str, Sequence[int]] | None,
    asked: dict[str, str],
) -> dict[str, str]:
    """The option for topics and partitions."""
    names, wanted = named_topics(topics), numbers_of_partitions(partitions)
    if wanted is None:
        return {} if names is None else {"subscribe": ",".join(names)}
    if isinstance(wanted, dict):
        if names is not None and {*names} != {*wanted}:
            raise ValueError(f"partitions: expected those of {', '.join(names)}, found {', '.join(wanted)}")
        return {"assign": json.dumps(wanted)}
    if names is None:
        only: dict[str, str] = {
            name: asked[name]
            for name in ("storageOptions", "logStartOffset", "remote", "remoteOptions", "granularity", "decoder")
            if name in asked
        }
        logs = select_logs(parse_options({"paths": json.dumps(paths), **only}))
        names = sorted({log.topic for log in logs if log.partition in wanted})
        if not names:
            raise UnknownTopicOrPartitionError(f"partitions: expected some that are there, found {wanted}")
        there = {(log.topic, log.partition) for log in logs}
        return {"assign": json.dumps({name: [one for one in wanted if (name, one) in there] for name in names})}
    return {"assign": json.dumps(dict.fromkeys(names, wanted))}


def _registered(spark: SparkSession, name: str) -> str:
    """The data source under a name that says what is read: plans show nothing else of a Python source."""
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Named(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            from kts.spark.source import schema_of

            return schema_of(self.options)

        def reader(self, schema: StructType) -> DataSourceReader:
            from kts.spark.source import KtsReader

            return KtsReader(dict(self.options), schema)

    spark.dataSource.register(Named)
    return name
