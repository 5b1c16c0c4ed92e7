"""Which records a range of times or offsets means, in real Spark, against the same rule over ``expected.jsonl``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.golden import Row, golden

ORDERS = golden("demo", "orders")
EXPECTED = {name: ORDERS.expected(name) for name in ORDERS.partitions}
TIMES = sorted(row.timestamp for rows in EXPECTED.values() for row in rows)
EARLY, LATE = TIMES[len(TIMES) // 4], TIMES[len(TIMES) // 2]


def first_since(rows: list[Row], timestamp: int) -> int | None:
    """Offset of the first record that is not older; the rule of Consumer.offsetsForTimes."""
    return next((row.offset for row in rows if row.timestamp >= timestamp), None)


def between(rows: list[Row], start: int | None, end: int | None) -> set[int]:
    return {row.offset for row in rows if (start or 0) <= row.offset and (end is None or row.offset < end)}


def offsets(df: Any) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {name: set() for name in EXPECTED}
    for row in df.select("topic", "partition", "offset").collect():
        assert row.offset not in found[f"{row.topic}-{row.partition}"]
        found[f"{row.topic}-{row.partition}"].add(row.offset)
    return found


def test_without_strict_two_times_mean_from_the_first_record_at_the_start_to_the_first_at_the_end(load: Any) -> None:
    found = offsets(load(ORDERS.log_dir, startingTimestamp=EARLY, endingTimestamp=LATE, strictTimeRange=False))
    for name, rows in EXPECTED.items():
        assert found[name] == between(rows, first_since(rows, EARLY), first_since(rows, LATE))


def test_a_range_has_exactly_the_records_between_the_times(load: Any) -> None:
    loose = offsets(load(ORDERS.log_dir, startingTimestamp=EARLY, endingTimestamp=LATE, strictTimeRange=False))
    strict = offsets(load(ORDERS.log_dir, startingTimestamp=EARLY, endingTimestamp=LATE))
    for name, rows in EXPECTED.items():
        assert strict[name] == {row.offset for row in rows if EARLY <= row.timestamp < LATE}
    assert loose != strict  # the demo has late records


def test_each_partition_can_have_times_of_its_own(load: Any) -> None:
    starts = {"orders": {"0": EARLY, "1": LATE, "2": TIMES[0]}}
    ends = {"orders": {"0": LATE, "1": TIMES[-1] + 1, "2": EARLY}}
    options = {"startingOffsetsByTimestamp": json.dumps(starts), "endingOffsetsByTimestamp": json.dumps(ends)}
    found = offsets(load(ORDERS.log_dir, startingOffsetsByTimestampStrategy="latest", **options))
    for name, rows in EXPECTED.items():
        start, end = starts["orders"][name[-1]], ends["orders"][name[-1]]
        assert found[name] == {row.offset for row in rows if start <= row.timestamp < end}


def test_a_start_behind_all_records_is_an_error_or_nothing_as_the_strategy_says(load: Any) -> None:
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy") as caught:
        load(ORDERS.log_dir, startingTimestamp=TIMES[-1] + 1).count()
    assert f"no record of orders-0 has a timestamp of {TIMES[-1] + 1} ms or later" in str(caught.value)
    options = {"startingTimestamp": TIMES[-1] + 1, "startingOffsetsByTimestampStrategy": "latest"}
    assert load(ORDERS.log_dir, **options).count() == 0


def test_an_end_behind_all_records_is_the_end_of_the_log(load: Any) -> None:
    assert load(ORDERS.log_dir, endingTimestamp=TIMES[-1] + 1).count() == len(TIMES)


def test_offsets_by_partition_with_earliest_and_latest(load: Any) -> None:
    starts = json.dumps({"orders": {"0": 10, "1": -2, "2": 2000}})
    ends = json.dumps({"orders": {"0": 20, "1": -1, "2": 2001}})
    found = offsets(load(ORDERS.log_dir, startingOffsets=starts, endingOffsets=ends))
    assert found["orders-0"] == set(range(10, 20))
    assert found["orders-1"] == {row.offset for row in EXPECTED["orders-1"]}
    assert found["orders-2"] == {2000}


def test_offsets_that_the_log_does_not_hold_are_data_loss(load: Any) -> None:
    beyond = json.dumps({"orders": {"0": 10**9}})
    options = {"assign": '{"orders": [0]}', "endingOffsets": beyond}
    with pytest.raises(Exception, match="failOnDataLoss"):
        load(ORDERS.log_dir, **options).count()
    assert load(ORDERS.log_dir, failOnDataLoss=False, **options).count() == len(EXPECTED["orders-0"])


def test_a_log_start_offset_hides_what_lies_before(load: Any) -> None:
    df = load(ORDERS.partition_dir("orders-1"), "offset bigint", logStartOffset=1500)
    assert {row.offset for row in df.collect()} == {r.offset for r in EXPECTED["orders-1"] if r.offset >= 1500}


def test_a_start_after_the_end_is_an_error(load: Any) -> None:
    with pytest.raises(
        Exception, match="startingTimestamp and endingTimestamp: orders-0 would begin at 2026-.* and end before"
    ):
        load(ORDERS.log_dir, startingTimestamp=LATE, endingTimestamp=EARLY).count()
    with pytest.raises(Exception, match="orders-0 would begin at offset"):
        load(ORDERS.log_dir, startingTimestamp=LATE, endingTimestamp=EARLY, strictTimeRange=False).count()


def test_offsets_must_name_exactly_the_partitions_that_are_read(load: Any) -> None:
    missing = json.dumps({"orders": {"0": 5, "1": 5}})
    with pytest.raises(Exception, match="startingOffsets must name exactly .* orders-2 is missing"):
        load(ORDERS.log_dir, startingOffsets=missing).count()
    surplus = json.dumps({"orders": {"0": 5, "7": 5}})
    with pytest.raises(Exception, match="orders-7 is not among the partitions that are read"):
        load(ORDERS.log_dir, assign='{"orders": [0]}', endingOffsetsByTimestamp=surplus).count()


def test_topics_by_assignment_and_pattern(load: Any) -> None:
    paths = [ORDERS.log_dir, golden("demo", "clicks").log_dir]
    found = load(paths, "topic string, partition int", assign='{"orders": [1, 2]}').distinct().collect()
    assert {tuple(row) for row in found} == {("orders", 1), ("orders", 2)}
    by_pattern = load(paths, "topic string", subscribePattern="cl.*").distinct().collect()
    assert [row.topic for row in by_pattern] == ["clicks"]
    with pytest.raises(Exception, match="option subscribePattern: no topic in .* matches cl"):  # the whole name must
        load(paths, subscribePattern="cl").count()
    by_glob = load(paths, "topic string", subscribe="cl*").distinct().collect()
    assert [row.topic for row in by_glob] == ["clicks"]
    everything = load(paths, "topic string").distinct().collect()
    assert {row.topic for row in everything} == {"orders", "clicks"}


def test_partition_directories_and_single_files_are_paths_too(load: Any) -> None:
    one = offsets(load(ORDERS.partition_dir("orders-1")))
    assert one["orders-1"] == {row.offset for row in EXPECTED["orders-1"]}
    logs = ORDERS.logs("orders-2")
    two = offsets(load(logs[:2]))
    assert two["orders-2"] == {row.offset for row in EXPECTED["orders-2"] if row.offset < int(logs[2].stem)}


def test_minimum_of_partitions_and_records_for_each(load: Any) -> None:
    tasks = load(ORDERS.log_dir, "offset bigint, partition int", maxRecordsPerPartition=500)
    sizes = [len(rows) for rows in tasks.rdd.glom().collect()]
    assert max(sizes) <= 500
    assert sum(sizes) == len(TIMES)
    many = load(ORDERS.log_dir, minPartitions=12)
    assert many.rdd.getNumPartitions() == 12
    assert offsets(many) == {name: {row.offset for row in rows} for name, rows in EXPECTED.items()}


def test_one_frame_gives_the_same_rows_to_each_query(load: Any) -> None:
    df = load(ORDERS.log_dir)
    assert (df.count(), df.where("offset < 5").count(), df.count()) == (len(TIMES), 15, len(TIMES))
    assert df.where("offset < 5").union(df.where("offset < 50")).count() == 15 + 150
