"""Reads for Fetch: limits over partitions, bytes or ranges of files, another history, aborted transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kts
from kts.broker.codes import ErrorCode
from kts.broker.fetching import (
    SMALL_BYTES,
    FetchParams,
    PartitionFetch,
    ReadResult,
    aborted_transactions,
    read_partitions,
)
from kts.broker.leaders import why_closed
from kts.broker.topics import Topics
from kts.store.local import FileRange

CONSUMER = FetchParams(replica_id=-1, max_bytes=2**30, hard_limit=False, read_committed=False)
NOW = 1_700_000_000_000
ONE = kts.encode({"timestamp": [NOW], "value": [b"vv"]})  # of an even size


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    with Topics(tmp_path / "data", clock=lambda: NOW) as found:
        yield found


def asked(topics: Topics, index: int, offset: int = 0, **more: int) -> PartitionFetch:
    topic = topics.get("t")
    assert topic is not None
    body = {"fetch_offset": offset, "partition_max_bytes": 2**20, "current_leader_epoch": -1, "last_fetched_epoch": -1}
    return PartitionFetch(topic.partitions[index], {"topic": "t"}, body | more)


def read(topics: Topics, *wanted: PartitionFetch, params: FetchParams = CONSUMER) -> list[ReadResult]:
    return asyncio.run(read_partitions(topics, params, wanted))


def test_the_limit_is_of_all_partitions_and_only_the_first_with_records_may_pass_it(topics: Topics) -> None:
    partitions = topics.create("t", 4).partitions
    for index in (1, 2, 3):
        for _ in range(3):
            partitions[index].append(ONE)
    wanted = [asked(topics, index) for index in range(4)]

    def sizes(max_bytes: int, *, hard_limit: bool = False) -> list[float]:
        params = CONSUMER._replace(max_bytes=max_bytes, hard_limit=hard_limit)
        return [len(found.records) / len(ONE) for found in read(topics, *wanted, params=params)]

    assert sizes(0) == sizes(1) == [0, 1, 0, 0]
    assert sizes(5 * len(ONE)) == [0, 3, 2, 0]
    assert sizes(11 * len(ONE) // 2) == [0, 3, 2.5, 0]  # the last entry may be cut
    assert sizes(7 * len(ONE) // 2) == [0, 3, 0, 0]  # but not one without a whole entry before it
    assert sizes(7 * len(ONE) // 2, hard_limit=True) == [0, 3, 0.5, 0]  # which versions 0 to 2 take
    assert sizes(0, hard_limit=True) == [0, 0, 0, 0]
    assert sizes(2**30) == [0, 3, 3, 3]


def test_a_partition_without_records_or_with_an_error_takes_nothing_from_the_others(topics: Topics) -> None:
    partition = topics.create("t", 2).partitions[1]
    partition.append(ONE)
    missing = PartitionFetch(None, {"topic": "u"}, {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    behind = asked(topics, 1, 7)
    found = read(topics, missing, asked(topics, 0), behind, asked(topics, 1), params=CONSUMER._replace(max_bytes=1))
    assert [one.error for one in found] == [3, 0, 1, 0]
    assert [bytes(one.records) for one in found[:3]] == [b""] * 3  # type: ignore[arg-type]
    assert len(found[3].records) == len(ONE)
    assert [one.ends_wait for one in found] == [True, False, True, False]


def test_small_sets_are_read_and_large_ones_stay_ranges_of_the_file(topics: Topics) -> None:
    partitions = topics.create("t", 2).partitions
    partitions[0].append(ONE)
    partitions[1].append(kts.encode({"timestamp": [NOW], "value": [bytes(SMALL_BYTES)]}))
    small, large = (found.records for found in read(topics, asked(topics, 0), asked(topics, 1)))
    assert isinstance(small, bytes) and isinstance(large, FileRange)
    assert small == partitions[0].log.read(0, 2**20).records
    assert large.read() == partitions[1].log.read(0, 2**20).records


def test_a_follower_of_another_history_is_told_where_they_part(topics: Topics) -> None:
    """KIP-595. The leader's epoch 0 has offsets 0 and 1, its epoch 5 begins at 2."""
    log = topics.create("t").partitions[0].log
    log.begin_leader_epoch(5)  # nothing is lost: no entry has the epoch that the broker began with
    first = log.leader_epochs[-1][0]
    for epoch in (first, first, first + 5, first + 5):
        log.append(ONE, leader_epoch=epoch)

    def parted(offset: int, last_epoch: int) -> Any:
        [found] = read(topics, asked(topics, 0, offset, last_fetched_epoch=last_epoch))
        return found.error, found.diverging, len(found.records) // len(ONE)

    assert parted(2, first) == (0, None, 2)
    assert parted(3, first) == (0, (first, 2), 0)
    assert parted(4, first + 3) == (0, (first, 2), 0)
    assert parted(5, first + 5) == (0, (first + 5, 4), 0)
    assert parted(0, first + 6)[0] == ErrorCode.OFFSET_OUT_OF_RANGE  # an epoch that nobody knows


def test_a_closed_log_says_whether_its_topic_was_deleted_or_its_disk_failed(topics: Topics) -> None:
    partition = topics.create("t").partitions[0]
    wanted = asked(topics, 0)
    partition.log.abandon()
    assert [one.error for one in read(topics, wanted)] == [why_closed(topics, partition)] == [56]
    topics.delete("t")
    topics.create("t")
    assert [one.error for one in read(topics, wanted)] == [why_closed(topics, partition)] == [3]


def test_aborted_transactions_are_those_that_overlap_what_was_read(topics: Topics) -> None:
    """Two producers, whose transactions overlap; the first one is aborted in a later segment."""
    log = topics.create("t", 1, {"segment.bytes": str(3 * 90)}).partitions[0].log

    def append(producer: int, *, ends: bytes = b"", sequence: int = 0) -> int:
        who: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "transactional": True}
        rows = {"timestamp": [NOW], "key": [ends or b"k"], "value": [bytes(6)]}
        how: dict[str, Any] = {"control": True} if ends else {"base_sequence": sequence}
        return log.append(kts.encode(rows, **who, **how), origin="coordinator").first_offset

    abort, commit = b"\0\0\0\0", b"\0\0\0\1"
    for producer, ends in ((7, b""), (8, b""), (8, commit), (9, b""), (7, abort), (9, abort)):
        append(producer, ends=ends)
    append(7, sequence=1)
    append(7, ends=commit)
    starts = [segment.base_offset for segment in log.segments]
    assert starts == [0, 3, 6]

    def told(offset: int) -> list[tuple[int, int]]:
        base = max(start for start in starts if start <= offset)
        return [(one["producer_id"], one["first_offset"]) for one in aborted_transactions(log, offset, base)]

    assert told(0) == [(7, 0)]  # the other one begins behind the segment
    assert told(4) == told(3) == [(7, 0), (9, 3)]
    assert told(5) == [(9, 3)]
    assert told(6) == told(7) == []
    params = CONSUMER._replace(read_committed=True)
    [found] = read(topics, asked(topics, 0, 4), params=params)
    assert [(one["producer_id"], one["first_offset"]) for one in found.aborted or ()] == told(4)
    assert read(topics, asked(topics, 0, 4))[0].aborted is None
