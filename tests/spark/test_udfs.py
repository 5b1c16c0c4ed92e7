"""kts inside the user's own functions, of each kind that Spark has, on record sets and indexes in binary columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from support.golden import golden

import kts
from kts.spark import decode_udf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = golden("demo", "orders")
RECORDS = "array<struct<offset:bigint,value:binary>>"
HEADERS = "array<struct<baseOffset:bigint,lastOffset:bigint,sizeInBytes:int>>"
NAMES = ["baseOffset", "lastOffset", "sizeInBytes"]
Family = dict[str, Callable[..., Any]]


def plain(arrow: bool) -> Family:
    """A row at a time; with ``arrow`` Spark moves the rows as Arrow, the function is the same."""
    from pyspark.sql.functions import udf

    return {
        "decode": udf(lambda data: kts.decode(data, ["offset", "value"]).to_pylist(), RECORDS, useArrow=arrow),
        "max_timestamp": udf(lambda data: kts.max_timestamp(data).timestamp_ms, "bigint", useArrow=arrow),
        "scan_batches": udf(lambda data: kts.scan_batches(data).select(NAMES).to_pylist(), HEADERS, useArrow=arrow),
        "lookup": udf(lambda data, base, ms: kts.TimeIndex(data, base).lookup(ms)[1], "bigint", useArrow=arrow),
    }


def pandas() -> Family:
    """A Series at a time."""
    import pandas as pd
    from pyspark.sql.functions import pandas_udf

    def decode(sets: pd.Series) -> pd.Series:
        return sets.map(lambda data: kts.decode(data, ["offset", "value"]).to_pylist())

    def max_timestamp(sets: pd.Series) -> pd.Series:
        return sets.map(lambda data: kts.max_timestamp(data).timestamp_ms)

    def scan_batches(sets: pd.Series) -> pd.Series:
        return sets.map(lambda data: kts.scan_batches(data).select(NAMES).to_pylist())

    def lookup(indexes: pd.Series, bases: pd.Series, times: pd.Series) -> pd.Series:
        rows = zip(indexes, bases, times, strict=True)
        return pd.Series([kts.TimeIndex(data, base).lookup(ms)[1] for data, base, ms in rows])

    for function in (decode, max_timestamp, scan_batches, lookup):  # Spark needs types, not their names
        function.__annotations__ = dict.fromkeys(function.__annotations__, pd.Series)
    return {
        "decode": pandas_udf(decode, RECORDS),
        "max_timestamp": pandas_udf(max_timestamp, "bigint"),
        "scan_batches": pandas_udf(scan_batches, HEADERS),
        "lookup": pandas_udf(lookup, "bigint"),
    }


def arrow() -> Family:
    """An Array at a time, without an object per record."""
    from pyspark.sql import functions

    if not hasattr(functions, "arrow_udf"):
        pytest.skip("needs pyspark 4.1 or newer, for its arrow_udf; get it by: pip install -U 'pyspark[sql]'")

    def max_timestamp(sets: pa.Array) -> pa.Array:
        return pa.array([kts.max_timestamp(one.as_buffer()).timestamp_ms for one in sets], pa.int64())

    def scan_batches(sets: pa.Array) -> pa.Array:
        found = [kts.scan_batches(one.as_buffer()).select(NAMES).to_struct_array() for one in sets]
        ends = np.cumsum([0, *map(len, found)])
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.concat_arrays(found))

    def lookup(indexes: pa.Array, bases: pa.Array, times: pa.Array) -> pa.Array:
        rows = zip(indexes, bases.to_pylist(), times.to_pylist(), strict=True)
        return pa.array([kts.TimeIndex(one.as_buffer(), base).lookup(ms)[1] for one, base, ms in rows], pa.int64())

    for function in (max_timestamp, scan_batches, lookup):
        function.__annotations__ = dict.fromkeys(function.__annotations__, pa.Array)
    return {
        "decode": decode_udf(["offset", "value"]),
        "max_timestamp": functions.arrow_udf(max_timestamp, "bigint"),
        "scan_batches": functions.arrow_udf(scan_batches, HEADERS),
        "lookup": functions.arrow_udf(lookup, "bigint"),
    }


KINDS: dict[str, Callable[[], Family]] = {
    "plain": lambda: plain(False),
    "plain, moved as Arrow": lambda: plain(True),
    "pandas": pandas,
    "arrow": arrow,
}


def expected(data: bytes) -> tuple[Any, ...]:
    rows = [(row["offset"], row["value"]) for row in kts.decode(data, ["offset", "value"]).to_pylist()]
    headers = [tuple(row.values()) for row in kts.scan_batches(data).select(NAMES).to_pylist()]
    return rows, kts.max_timestamp(data).timestamp_ms, headers


def plainly(row: Any) -> tuple[Any, ...]:
    records = [(one.offset, None if one.value is None else bytes(one.value)) for one in row.records]
    return records, row.newest, [tuple(one) for one in row.headers]


@pytest.mark.parametrize("kind", KINDS)
def test_functions_of_each_kind_give_what_kts_gives(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """On a column of Kafka's records (each value is a record set), on log files and on index files of binaryFile."""
    from pyspark.sql.functions import col, lit, regexp_extract

    family = KINDS[kind]()
    logs = ORDERS.logs("orders-0")
    sets = [log.read_bytes()[: kts.scan_batches(log.read_bytes())["position"][3].as_py()] for log in logs]
    with kts.Log(tmp_path / "sets-0") as log:
        log.append_rows({"timestamp": range(1000, 1000 + len(sets)), "value": sets})
    of_kafka = spark.read.format("kts").load(str(tmp_path)).select(col("value").alias("content"))
    of_files = spark.read.format("binaryFile").load([str(one) for one in logs[:2]]).orderBy("path").select("content")
    columns = [family["decode"]("content").alias("records"), family["max_timestamp"]("content").alias("newest")]
    columns.append(family["scan_batches"]("content").alias("headers"))
    for frame, data in ((of_kafka, sets), (of_files, [one.read_bytes() for one in logs[:2]])):
        assert [plainly(row) for row in frame.select(*columns).collect()] == [expected(one) for one in data]

    index_files = [one.with_suffix(".timeindex") for one in logs]
    base = regexp_extract("path", r"(\d{20})", 1).cast("bigint").alias("base")
    indexes = spark.read.format("binaryFile").load([str(one) for one in index_files]).select("path", "content", base)
    middle = kts.max_timestamp(logs[1].read_bytes()).timestamp_ms - 60_000
    found = indexes.select("path", family["lookup"]("content", "base", lit(middle)).alias("at")).orderBy("path")
    ours = [kts.TimeIndex(one.read_bytes(), int(one.stem)).lookup(middle)[1] for one in index_files]
    assert [row["at"] for row in found.collect()] == ours and len({*ours}) > 1


@pytest.mark.parametrize("kind", ["plain", "pandas", "arrow"])
def test_the_times_of_records_are_looked_up_in_an_index(spark: SparkSession, kind: str) -> None:
    """``lookup_many`` takes a whole column of ``unix_millis(timestamp)``, as of Spark's Kafka source."""
    import pandas as pd
    from pyspark.sql import functions as f

    log = ORDERS.logs("orders-0")[1]
    entries, base = log.with_suffix(".timeindex").read_bytes(), int(log.stem)

    def series(times: pd.Series) -> pd.Series:
        return pd.Series(kts.TimeIndex(entries, base).lookup_many(times.to_numpy())[1])

    def array(times: pa.Array) -> pa.Array:
        return pa.array(kts.TimeIndex(entries, base).lookup_many(np.asarray(times))[1])

    series.__annotations__ = dict.fromkeys(series.__annotations__, pd.Series)
    array.__annotations__ = dict.fromkeys(array.__annotations__, pa.Array)
    if kind == "arrow" and not hasattr(f, "arrow_udf"):
        pytest.skip("needs pyspark 4.1 or newer, for its arrow_udf; get it by: pip install -U 'pyspark[sql]'")
    made = {
        "plain": lambda: f.udf(lambda ms: kts.TimeIndex(entries, base).lookup(ms)[1], "bigint"),
        "pandas": lambda: f.pandas_udf(series, "bigint"),
    }
    made["arrow"] = lambda: f.arrow_udf(array, "bigint")
    records = spark.read.format("kts").option("assign", '{"orders":[0]}').load(str(ORDERS.log_dir))
    millis = f.unix_millis("timestamp")
    found = records.select(millis.alias("ms"), made[kind]()(millis).alias("at")).toArrow()
    times = np.asarray(found["ms"])
    assert np.asarray(found["at"]).tolist() == kts.TimeIndex(entries, base).lookup_many(times)[1].tolist()
    assert len(times) > 3000 and len({*found["at"].to_pylist()}) > 2
