"""A Python data source of Spark that yields batches which are there already: what kts would be if it cost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

SEGMENTS = 4


def ready_made_source() -> type[Any]:
    """A data source whose tasks decode nothing: each yields the same prepared batch again and again."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class ReadyMadeReader(DataSourceReader):
        def __init__(self, options: dict[str, str]) -> None:
            self.path, self.repeats = options["path"], int(options["repeats"])

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(index) for index in range(SEGMENTS)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import pyarrow as pa

            with pa.ipc.open_file(self.path) as file:
                batch = file.get_batch(0)
                for _ in range(self.repeats):
                    yield batch

    class ReadyMade(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready_made"

        def schema(self) -> str:
            return (
                "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
                " timestampType int"
            )

        def reader(self, schema: Any) -> DataSourceReader:
            return ReadyMadeReader(dict(self.options))

    return ReadyMade


def write_ready_made(partition: Path, path: Path, records: int) -> int:
    """One batch as kts would yield it, in an Arrow file; how often each task yields it."""
    import pyarrow as pa

    import kts

    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    batch = next(iter(kts.scan(partition, columns=columns)))
    micros = batch.column("timestamp").cast(pa.timestamp("us", "UTC"))  # what Spark takes
    batch = batch.set_column(columns.index("timestamp"), "timestamp", micros)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as file:
        file.write_batch(batch)
    return max(1, round(records / SEGMENTS / int(batch.num_rows)))
