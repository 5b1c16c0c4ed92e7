"""The reader behind ``format("kts")``: the driver plans, one Python worker reads each task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kts.spark.options import parse_options
from kts.spark.schema import check_schema
from kts.spark.shipping import ship

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kts.spark.planning import Task


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
        from kts.spark.planning import plan_tasks

        return [KtsPartition(task) for task in plan_tasks(parse_options(self.given))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task; runs on an executor."""
        from kts.spark.reading import read_task

        if not isinstance(partition, KtsPartition):  # Spark's placeholder for an empty list of tasks
            return iter(())
        return read_task(partition.task, parse_options(self.given), self.schema)
