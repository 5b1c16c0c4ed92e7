"""Spark reads a log directory and its tiered storage: planned on the driver, decrypted and decoded by executors."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from support.tiered import session

import kts.spark
from kts.dataset.reader import read_range
from kts.spark.options import STREAM, parse_options
from kts.spark.streaming import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def options(name: str) -> dict[str, str]:
    one = session(name)
    return {"remote": one.remote, "remoteOptions": json.dumps({"private_keys": one.keys})}


@pytest.mark.parametrize(
    "name, partition", [("aiven-zstd-encrypted", "txn-0"), ("local-4", "txn-0"), ("local-leaders", "diverged-0")]
)
def test_executors_give_the_rows_that_java_consumers_saw(load: Any, name: str, partition: str) -> None:
    one = session(name)
    found = load(one.data / partition, maxRecordsPerPartition=60, **options(name)).orderBy("offset").toArrow()
    expected = one.expected(partition)
    assert found["offset"].to_pylist() == [row.offset for row in expected]
    assert found["value"].to_pylist() == [row.value for row in expected]
    if partition == "txn-0":
        committed = load(one.data / partition, isolation="read_committed", **options(name)).toArrow()
        assert sorted(committed["offset"].to_pylist()) == one.facts(partition)["readCommittedOffsets"]


@pytest.mark.parametrize("name", ["aiven-zstd-encrypted", "local-4"])
def test_the_store_alone_and_whole_partitions(spark: SparkSession, load: Any, name: str) -> None:
    one = session(name)
    alone = kts.spark.read(spark, None, topics=["restart"], columns=["offset"], **options(name))
    found = sorted(row.offset for row in alone.collect())
    assert found == [row.offset for row in one.expected("restart-0")][: len(found)] and len(found) > 300
    findings = load(one.data, granularity="finding", **options(name)).collect()
    assert findings == []


@pytest.mark.slow
def test_a_stream_goes_through_both_tiers_as_one_log() -> None:
    one = session("aiven-zstd-encrypted")
    given = {"path": str(one.data), "subscribe": "txn", "startingOffsets": "earliest", "isolation": "read_committed"}
    asked = parse_options(given | options("aiven-zstd-encrypted"), STREAM)
    stream, found = Stream(asked), list[int]()
    at = stream.initial()
    while (following := stream.latest(at, 70, None, 0)) != at:
        for task in pickle.loads(pickle.dumps(stream.tasks(at, following))):
            for part in task.ranges:
                for rows in read_range(part, columns=["offset"], isolation="read_committed"):
                    found += rows["offset"].to_pylist()
        at = following
    assert found == one.facts("txn-0")["readCommittedOffsets"]


def test_wrong_options_are_named(load: Any) -> None:
    one = session("aiven-zstd-encrypted")
    with pytest.raises(Exception, match="remote_options: expected layout, private_keys and metadata, found keys"):
        load(one.data, remote=one.remote, remoteOptions='{"keys": {}}').count()
    with pytest.raises(Exception, match="expected the private key k1 among private_keys"):
        load(one.data / "txn-0", remote=one.remote).toArrow()
