"""Found by Spark, which imports every module named ``pyspark_*``: why ``format("kts")`` needs no registration.

Nothing here may raise or take long, because Spark imports it for each Python data source of any kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # no pyspark, or one before 4.0: nothing to offer
    pass
else:
    if TYPE_CHECKING:
        from typing import Any

        from pyspark.sql.datasource import (
            DataSourceReader,
            DataSourceStreamReader,
            DataSourceStreamWriter,
            DataSourceWriter,
        )
        from pyspark.sql.types import StructType

    class DefaultSource(DataSource):
        """Kafka's log directories as a table: ``spark.read.format("kts").load("/var/lib/kafka/data")``; or a stream."""

        @classmethod
        def name(cls) -> str:
            """What goes into ``format(...)``."""
            return "kts"

        def schema(self) -> str:
            """Spark's schema string of what is read when the user gives no schema."""
            from kts.spark.source import schema_of

            return schema_of(self.options)

        def reader(self, schema: StructType) -> DataSourceReader:
            """A reader of the columns that ``schema`` names."""
            from kts.spark.source import KtsReader

            return KtsReader(dict(self.options), schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            """A reader of streaming queries: ``spark.readStream``."""
            from kts.spark.source import KtsStreamReader

            return KtsStreamReader(dict(self.options), schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            """A writer of rows with these columns: ``df.write.format("kts").mode("append").save(directory)``."""
            from kts.spark.writing import KtsWriter

            return KtsWriter(dict(self.options), schema, overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            """A writer of a streaming query's rows: ``df.writeStream.format("kts").start(directory)``."""
            from kts.spark.writing import KtsStreamWriter

            return KtsStreamWriter(dict(self.options), schema, overwrite)

        def __reduce__(self) -> tuple[Any, ...]:
            from kts.spark.shipping import ship

            return ship(self)
