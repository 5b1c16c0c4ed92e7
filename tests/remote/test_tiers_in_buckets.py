"""Tiered storage in a bucket gives what it gives on a disk, and asks only for what it needs."""

from __future__ import annotations

import warnings

import pytest
from support.buckets.s3 import TestBucket
from support.tiered import PREFIXES, offsets, records, session

import kts
from kts.errors import CorruptRecordError, DamageWarning

pytestmark = pytest.mark.slow  # a real server


@pytest.mark.parametrize("name", ["aiven-s3", "aiven-zstd-encrypted", "local-leaders"])
def test_a_bucket_gives_the_records_and_times_of_java_clients(bucket: TestBucket, name: str) -> None:
    one = session(name)
    bucket.put_folder(one.store, "")
    bucket.forget()
    remote = f"{bucket.address}/{PREFIXES.get(name, '')}"
    logs = kts.open_log_dirs(one.data, remote=remote, remote_options=one.options)
    for partition in one.partitions:
        topic, _, number = partition.rpartition("-")
        log = logs[topic, int(number)]
        assert records(log) == one.expected(partition), partition
        if topic == "txn":
            assert offsets(log, isolation="read_committed") == one.facts(partition)["readCommittedOffsets"]
        for query in one.times(partition)["queries"][:3] if topic != "diverged" else ():
            found = log.offset_for_timestamp(query["query"])
            assert (None if found is None else found.offset) == (query["answer"] or {}).get("offset")


def test_the_bucket_alone_is_read_by_its_manifests(bucket: TestBucket) -> None:
    one = session("aiven-s3")
    bucket.put_folder(one.store, "")
    bucket.forget()
    for (topic, number), log in kts.open_log_dirs(None, remote=f"{bucket.address}/pre/fix-").items():
        facts = one.facts(f"{topic}-{number}")
        found = [row for row in records(log) if row.offset >= facts["beginningOffset"]]
        assert found and found == [row for row in one.expected(f"{topic}-{number}") if row.offset < log.log_end_offset]
    with pytest.raises(FileNotFoundError, match="no name that begins so"):
        kts.open(None, remote=f"{bucket.address}/pre/other-")


def test_a_range_asks_for_the_objects_of_its_segment_alone(bucket: TestBucket) -> None:
    one = session("aiven-zstd")
    bucket.put_folder(one.store, "store")
    bucket.forget()
    log = kts.open_partition(one.data / "ct-0", remote=f"{bucket.address}/store/")
    segment = log.segments[1]
    bucket.proxy.forget()
    first = segment.base_offset
    assert offsets(log, starting_offsets=first + 1, ending_offsets=first + 3) == [first + 1, first + 2]
    asked = {each.name for each in bucket.proxy.asked if each.method == "GET" and not each.lists}
    assert asked and all(name.startswith(f"{first:020d}-") for name in asked)


def test_a_missing_object_is_told_with_its_address(bucket: TestBucket) -> None:
    one = session("aiven-zstd")
    bucket.put_folder(one.store, "store")
    log = kts.open_partition(one.data / "ct-0", remote=f"{bucket.address}/store/")
    key = log.segments[1].path.removeprefix(f"tier+{bucket.address}/")
    bucket.delete(key)
    bucket.forget()
    with pytest.raises(CorruptRecordError, match=f"the object {bucket.address}/{key} is missing"):
        records(log)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        left = offsets(log, on_error="skip")
    first, end = log.segments[1].base_offset, log.segments[2].base_offset
    assert left == [row.offset for row in one.expected("ct-0") if not first <= row.offset < end]
    assert [one.category for one in told].count(DamageWarning) == 1
