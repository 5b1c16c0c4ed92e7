"""Each door of Python gives for a bucket what it gives for the same files on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import TESTS
from support.buckets.proxy import Asked
from support.buckets.s3 import TestBucket
from support.sets.biglog import FIRST_MS, write_log

import kts
from kts.offline.verify import verify

pytestmark = pytest.mark.slow  # a real server
DEMO = TESTS / "data/golden/demo"
TIMES = range(1_788_000_000_000, 1_789_000_000_000, 450_000_000)


@pytest.fixture
def there(bucket: TestBucket) -> str:
    address = bucket.put_folder(DEMO, "demo")
    bucket.forget()
    return address


def test_scans_searches_and_findings_are_those_of_the_disk(there: str) -> None:
    for name in ("orders", "clicks"):
        here = str(DEMO / name)
        assert kts.scan(f"{there}/{name}").read_all() == kts.scan(here).read_all()
        for (key, one), other in zip(kts.open(f"{there}/{name}").items(), kts.open(here).values(), strict=True):
            assert key == (other.topic, other.partition)
            assert one.log_start_offset == other.log_start_offset
            assert one.log_end_offset == other.log_end_offset
            assert one.max_timestamp() == other.max_timestamp()
            assert one.leader_epochs == other.leader_epochs and one.topic_id == other.topic_id
            assert [s.size_bytes for s in one.segments] == [s.size_bytes for s in other.segments]
            assert [one.offset_for_timestamp(t) for t in TIMES] == [other.offset_for_timestamp(t) for t in TIMES]
            assert one.batches().read_all() == other.batches().read_all()
        found = [(Path(one.path).name, *one[1:]) for one in verify(f"{there}/{name}")]
        assert found == [(Path(one.path).name, *one[1:]) for one in verify(here)]


def test_patterns_file_addresses_and_lists_are_paths(there: str) -> None:
    expected = kts.scan([DEMO / "orders", DEMO / "clicks"], columns=["offset", "key"]).read_all()
    for path in (
        f"{there}/*s",
        f"{DEMO}/[co]*s",
        f"file://{DEMO}/[co]*s",
        [f"file://{DEMO}/orders", f"{there}/clicks"],
    ):
        assert kts.scan(path, columns=["offset", "key"]).read_all() == expected, path
    assert isinstance(kts.open(f"{there}/orders/orders-*"), kts.LogDirs)
    with pytest.raises(FileNotFoundError, match="nothing matches the pattern"):
        kts.open(f"{there}/none-*")
    with pytest.raises(FileNotFoundError, match="there is nothing at this address"):
        kts.open(f"{there}/none")
    with pytest.raises(ValueError, match=r"found the pattern .*; use kts.open_log_dirs"):
        kts.open_partition(f"{there}/orders/orders-*")


def test_a_segment_that_vanishes_between_plan_and_read_is_left_out_with_a_warning(
    there: str, bucket: TestBucket
) -> None:
    log = kts.open_partition(f"{there}/orders/orders-0")
    first, following = log.segments[:2]
    expected = range(following.base_offset, log.log_end_offset)
    deleted: list[Asked] = []

    def delete_it(asked: Asked) -> None:
        if asked.name == Path(first.path).name and not deleted:
            deleted.append(asked)
            bucket.delete(first.path.removeprefix(f"{bucket.address}/"))

    bucket.proxy.before = delete_it
    with pytest.warns(kts.KtsWarning, match="was deleted while it was read"):
        offsets = log.scan(columns=["offset"]).read_all().column("offset").to_pylist()
    assert offsets == [*expected]


def test_a_hundredth_of_the_time_opens_few_bytes_of_a_large_log(bucket: TestBucket, tmp_path: Path) -> None:
    segments, records = 4, 100_000
    write_log(tmp_path / "orders-0", segments, records)
    there = bucket.put_folder(tmp_path / "orders-0", "orders-0")
    size = sum(path.stat().st_size for path in (tmp_path / "orders-0").glob("*.log"))
    length = segments * records // 100
    for first in (0, 137_000, segments * records - length):
        bucket.forget()
        times = {
            "starting_timestamp": FIRST_MS + first,
            "ending_timestamp": FIRST_MS + first + length,
            "allowed_lateness": 0,
        }
        offsets = kts.scan(there, columns=["offset"], **times).read_all().column("offset").to_pylist()
        assert offsets == [*range(first, first + length)]
        assert bucket.proxy.body_bytes < 0.05 * size, bucket.proxy.counted()
