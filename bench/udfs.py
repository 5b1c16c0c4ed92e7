"""Spark: kts inside functions of each kind, on record sets in a binary column, against Arrow's functions."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .corpora import START_MS, corpora
from .java import tool
from .spark_session import cpu_and_clock, session
from .table import Report, Seconds, medians

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SET_BYTES = 65536  # about four batches
RECORDS = "array<struct<offset:bigint,timestamp:timestamp,value:binary>>"
HEADERS = "array<struct<baseOffset:bigint,lastOffset:bigint,sizeInBytes:int>>"
NAMES, COLUMNS = ["baseOffset", "lastOffset", "sizeInBytes"], ["offset", "timestamp", "value"]
Made = dict[str, dict[str, Any]]


def functions(entries: bytes) -> Made:
    """By what they do, then by kind; `entries` are those of a time index."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import functions as f

    import kts
    from kts.spark import decode_udf

    def decoded(data: bytes) -> Any:
        return kts.decode(data, COLUMNS).to_pylist()

    def headers(data: bytes) -> Any:
        return kts.scan_batches(data).select(NAMES).to_pylist()

    def newest(data: bytes) -> int:
        return kts.max_timestamp(data).timestamp_ms

    def newest_arrow(sets: pa.Array) -> pa.Array:
        return pa.array([newest(one.as_buffer()) for one in sets], pa.int64())

    def headers_arrow(sets: pa.Array) -> pa.Array:
        found = [kts.scan_batches(one.as_buffer()).select(NAMES).to_struct_array() for one in sets]
        return pa.ListArray.from_arrays(pa.array(np.cumsum([0, *map(len, found)]), pa.int32()), pa.concat_arrays(found))

    def lookup_arrow(times: pa.Array) -> pa.Array:
        return pa.array(kts.TimeIndex(entries, 0).lookup_many(np.asarray(times))[1])

    def lookup_pandas(times: pd.Series) -> pd.Series:
        return pd.Series(kts.TimeIndex(entries, 0).lookup_many(times.to_numpy())[1])

    def in_pandas(work: Callable[[bytes], Any], kind: str) -> Any:
        def function(sets: pd.Series) -> pd.Series:
            return sets.map(work)

        return f.pandas_udf(typed(function, pd.Series), kind)

    def typed(function: Any, kind: type) -> Any:  # Spark needs types, not their names
        function.__annotations__ = dict.fromkeys(function.__annotations__, kind)
        return function

    def arrow(function: Any, kind: str) -> Any:
        return f.arrow_udf(typed(function, pa.Array), kind)

    index = kts.TimeIndex
    return {
        "decode": {
            "Arrow": decode_udf(COLUMNS),
            "pandas": in_pandas(decoded, RECORDS),
            "plain": f.udf(lambda data: decoded(data), RECORDS),
        },
        "scan_batches": {
            "Arrow": arrow(headers_arrow, HEADERS),
            "pandas": in_pandas(headers, HEADERS),
            "plain": f.udf(lambda data: headers(data), HEADERS),
        },
        "max_timestamp": {
            "Arrow": arrow(newest_arrow, "bigint"),
            "pandas": in_pandas(newest, "bigint"),
            "plain": f.udf(lambda data: newest(data), "bigint"),
        },
        "TimeIndex.lookup_many": {
            "Arrow": arrow(lookup_arrow, "bigint"),
            "pandas": f.pandas_udf(typed(lookup_pandas, pd.Series), "bigint"),
            "plain": f.udf(lambda ms: index(entries, 0).lookup(ms)[1], "bigint"),
        },
    }


def measured(frame: DataFrame) -> Seconds:
    """CPU seconds of all processes for all rows into the `noop` sink."""
    return lambda: cpu_and_clock(lambda: frame.write.format("noop").mode("overwrite").save())[0]


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    """A row for each function and kind."""
    try:
        from pyspark.sql.functions import arrow_udf  # noqa: F401
    except ImportError:
        report.text("The table of functions is left out: it needs pyspark 4.1 (pip install 'kafka-timestamps[spark]').")
        return
    if not shutil.which(tool("java")):
        report.text("The table of functions is left out: it needs a JDK 17.")
        return
    import struct

    import kts
    from kts.spark import decode_in_arrow

    [corpus] = corpora(2, "100 B", ["none"], total_bytes, seed)
    sets, start = [], 0
    for position, size in corpus.entries:
        if position + size - start >= SET_BYTES or position + size == len(corpus.data):
            sets.append(corpus.data[start : position + size])
            start = position + size
    entries = b"".join(struct.pack(">qi", START_MS + 100 * i, i) for i in range(100_000))
    with tempfile.TemporaryDirectory() as name:
        with kts.Log(Path(name, "sets-0"), {"max.message.bytes": 2**27}) as log:
            log.append_rows({"value": sets})
        spark = session()
        try:
            column = spark.read.format("kts").load(name).select("value").cache()
            times = spark.range(corpus.records).selectExpr(f"{START_MS} + id % 10000000 AS ms").cache()
            if (column.count(), times.count()) != (len(sets), corpus.records):
                raise ValueError(f"expected {len(sets)} record sets and {corpus.records} times")
            contenders = {"the column alone": measured(column)}
            for what, kinds in functions(entries).items():
                frame, over = (times, "ms") if what.startswith("TimeIndex") else (column, "value")
                for kind, function in kinds.items():
                    contenders[f"{what}, {kind}"] = measured(frame.select(function(over)))
            flat = decode_in_arrow(column, "value", columns=COLUMNS)
            contenders["decode, flat rows (decode_in_arrow)"] = measured(flat)
            taken = medians(contenders, rounds)
        finally:
            spark.stop()
    lines = []
    for name_, seconds in taken.items():
        best = taken.get(f"{name_.partition(',')[0]}, Arrow")
        ratio = "" if best is None else f"{best / seconds:.2f}x"
        lines.append([name_, f"{corpus.records / seconds / 1e6:.2f}", ratio])
    report.table(
        f"Functions in Spark local[1], {corpus.records:,} records of 100 B in {len(sets):,} record sets, to noop",
        ["function, kind", "Mrec per CPU s", "of Arrow's rate"],
        lines,
    )
