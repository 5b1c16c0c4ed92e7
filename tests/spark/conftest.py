"""One Spark session for all tests here, in `local[2]`, quick to start and with workers that run this Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from support.kafka.jvm import spark_environ
from support.spark.applications import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of real Spark; skipped without a JDK or pyspark."""
    environ = spark_environ()
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("kts tests")
        .config(map=SETTINGS)
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # failures are looked at where they are expected
    yield session
    session.stop()


Load = Callable[..., "DataFrame"]


@pytest.fixture
def load(spark: SparkSession) -> Load:
    """``load(path, schema=None, **options)``: a fresh read through ``format("kts")``."""

    def load(path: object, schema: str | None = None, **options: object) -> DataFrame:
        reader = spark.read.format("kts").options(**{name: str(value) for name, value in options.items()})
        if schema is not None:
            reader = reader.schema(schema)
        return reader.load([str(one) for one in path] if isinstance(path, list) else str(path))

    return load
