"""Spark reads a bucket, at once or as a stream: the driver plans, and each executor reaches it by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.buckets.s3 import TestBucket
from support.golden import golden

import kts

ORDERS = golden("demo", "orders")


def test_executors_reach_a_bucket_by_options_and_give_the_rows_of_the_disk(load: Any, bucket: TestBucket) -> None:
    there = bucket.put_folder(ORDERS.path, "orders")
    bucket.forget()
    # The workers of the session have been started without the bucket's environment.
    given = json.dumps(bucket.options)
    asked = {"startingTimestamp": 1_788_300_000_000, "maxRecordsPerPartition": 900}
    expected = load(ORDERS.log_dir, **asked).orderBy("partition", "offset").toArrow()
    found = load(f"{there}/order*-*", storageOptions=given, **asked).orderBy("partition", "offset").toArrow()
    assert found == expected and len(found) > 5_000
    headers = {"granularity": "batch", "storageOptions": given}
    assert load(there, **headers).count() == load(ORDERS.log_dir, granularity="batch").count()
    with pytest.raises(Exception, match=f"option path: there is nothing at {there}/none"):
        load(f"{there}/none", storageOptions=given).count()
    with pytest.raises(Exception, match="option storageOptions: expected JSON such as .*found '7'"):
        load(there, storageOptions="7").count()


def test_a_stream_finds_what_comes_into_a_bucket(spark: Any, bucket: TestBucket, tmp_path: Path) -> None:
    """Larger objects in place of the active segment's, new segments and a new partition, each
    within the minute in which a listing would answer."""
    given = {"startingOffsets": "earliest", "isolation": "read_committed", "storageOptions": json.dumps(bucket.options)}
    logs = {name: kts.Log(tmp_path / "logs" / name, {"segment.bytes": 2000}) for name in ("orders-0", "orders-1")}

    def append(name: str, count: int) -> None:
        log = logs[name]
        for row in range(log.log_end_offset, log.log_end_offset + count):
            log.append_rows({"value": [b"%d" % row * 50], "timestamp": [1_700_000_000_000 + row]})
        log.flush()
        bucket.put_folder(tmp_path / "logs" / name, f"logs/{name}")

    append("orders-0", 5)
    table = spark.readStream.format("kts").options(**given).load(f"{bucket.address}/logs")
    write = table.select("partition", "offset").writeStream.format("parquet")
    query = write.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "rows"))
    try:
        query.processAllAvailable()
        for name, count in (("orders-0", 43), ("orders-1", 30)):
            append(name, count)
            query.processAllAvailable()
    finally:
        query.stop()
        for log in logs.values():
            log.close()
    assert len(list((tmp_path / "logs/orders-0").glob("*.log"))) > 2
    found = spark.read.parquet(str(tmp_path / "rows")).orderBy("partition", "offset").collect()
    assert [tuple(row) for row in found] == [(0, n) for n in range(48)] + [(1, n) for n in range(30)]
