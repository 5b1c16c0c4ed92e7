"""The readers behind ``format("kts")``: the driver plans, one Python worker reads each task."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from kts.spark.options import EITHER, STREAM, STREAM_ONLY, parse_options
from kts.spark.schema import check_schema, default_schema
from kts.spark.shipping import ship

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before pyspark 4.2 a Python source has no limits, and a trigger reads all there is
    HAS_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """What pyspark 4.2 calls so."""
else:
    HAS_LIMITS = True

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kts.dataset.increments import Json
    from kts.spark.options import Options
    from kts.spark.planning import Task
    from kts.spark.streaming import Stream


def schema_of(given: Mapping[str, str]) -> str:
    """Spark's schema string of what is read when the user gives no schema."""
    from kts.spark.planning import select_logs

    options = parse_options(given, EITHER)
    select_logs(options)  # a mistyped path or topic fails in load()
    return default_schema(options)


class KtsPartition(InputPartition):
    """The work of one Spark task."""

    def __init__(self, task: Task) -> None:
        super().__init__(None)
        self.task = task

    def __reduce__(self) -> tuple[Any, ...]:
        return ship(self)


class KtsReader(DataSourceReader):
    """A batch read.

    Parameters
    ----------
    options : dict of str to str
        As the user gave them.
    schema : pyspark.sql.types.StructType
        The columns to build: the user's schema, else ``default_schema``.

    Notes
    -----
    There is no ``pushFilters``: Spark keeps the pushed plan with the DataFrame, so its next query would get wrong rows.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self.given = options
        self.schema = schema
        check_schema(schema, parse_options(options))

    def __reduce__(self) -> tuple[Any, ...]:
        return ship(self)

    def partitions(self) -> list[InputPartition]:
        """The tasks; runs on the driver, once for each DataFrame."""
        from kts.spark.planning import plan_tasks, warn_of_whole_read

        options = parse_options(self.given)
        tasks = plan_tasks(options)
        warn_of_whole_read(tasks, options)
        return [KtsPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task; runs on an executor."""
        from kts.spark.reading import read_task

        if not isinstance(partition, KtsPartition):  # Spark's placeholder for an empty list of tasks
            return iter(())
        return read_task(partition.task, parse_options(self.given), self.schema)


class KtsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read: on the driver it gives offsets and tasks, on an executor it reads one.

    Parameters
    ----------
    options : dict of str to str
        As the user gave them.
    schema : pyspark.sql.types.StructType
        As for ``KtsReader``.

    Notes
    -----
    What is wrong with the options is told by the first call: pyspark hides what is raised while a reader is made.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self.given = options
        self.schema = schema

    def __reduce__(self) -> tuple[Any, ...]:
        return ship(self)

    @cached_property
    def options(self) -> Options:
        """The options, checked together with the schema."""
        options = parse_options(self.given, STREAM)
        check_schema(self.schema, options)
        given = {name.lower() for name in self.given}
        for name in STREAM_ONLY:
            if name.lower() in given and not HAS_LIMITS:
                raise ValueError(
                    f"option {name} needs pyspark 4.2 or newer, found {pyspark.__version__}, where each micro-batch of "
                    "a Python source reads everything that is there: leave it out"
                )
        return options

    @cached_property
    def stream(self) -> Stream:
        """The state of this query on the driver."""
        from kts.spark.streaming import Stream

        return Stream(self.options)

    def initialOffset(self) -> Json:
        """Where a new query starts."""
        return self.stream.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that Spark passes to ``latestOffset``, unless a trigger takes everything."""
        most, least = self.options.max_offsets, self.options.min_offsets
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:
        """Keep to what is there now."""
        self.stream.prepare_available_now()

    def latestOffset(self, start: Json | None = None, limit: ReadLimit | None = None) -> Json:
        """The end of the next micro-batch; before pyspark 4.2 there are no arguments."""
        most = least = None
        if limit is not None and not isinstance(limit, ReadAllAvailable):
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            least = self.options.min_offsets
        return self.stream.latest(start, most, least, time.monotonic())

    def reportLatestOffset(self) -> Json | None:
        """The latest offsets, for the progress of the query."""
        return self.stream.reported()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a micro-batch; runs on the driver."""
        return [KtsPartition(task) for task in self.stream.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task; runs on an executor."""
        from kts.spark.reading import read_task

        if not isinstance(partition, KtsPartition):
            return iter(())
        return read_task(partition.task, self.options, self.schema)
