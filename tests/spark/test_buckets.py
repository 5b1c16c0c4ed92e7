"""Spark reads a bucket: the driver plans, and each executor reaches it by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.buckets.s3 import TestBucket
from support.golden import golden

ORDERS = golden("demo", "orders")


def test_executors_reach_a_bucket_by_options_and_give_the_rows_of_the_disk(load: Any, bucket: TestBucket) -> None:
    there = bucket.put_folder(ORDERS.path, "orders")
    bucket.forget()
    # The workers of the session have been started without the bucket's environment.
    options = {"access_key": "testkey", "secret_key": "testsecret", "region": "us-east-1"}
    given = json.dumps(options | {"endpoint_override": bucket.proxy.endpoint})
    asked = {"startingTimestamp": 1_788_300_000_000, "maxRecordsPerPartition": 900}
    expected = load(ORDERS.log_dir, **asked).orderBy("partition", "offset").toArrow()
    found = load(f"{there}/order*-*", storageOptions=given, **asked).orderBy("partition", "offset").toArrow()
    assert found == expected and len(found) > 5_000
    headers = {"granularity": "batch", "storageOptions": given}
    assert load(there, **headers).count() == load(ORDERS.log_dir, granularity="batch").count()
    with pytest.raises(Exception, match=f"option path: nothing lies at {there}/none"):
        load(f"{there}/none", storageOptions=given).count()
    with pytest.raises(Exception, match="option storageOptions: expected JSON such as .*found '7'"):
        load(there, storageOptions="7").count()
