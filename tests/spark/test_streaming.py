"""The offsets of streaming queries and the tasks of their micro-batches. Needs no Spark."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.golden import golden
from support.sets.partitions import flip

import kts
from kts.dataset.increments import Json
from kts.dataset.reader import read_range
from kts.spark.options import STREAM, Options, parse_options
from kts.spark.planning import Task
from kts.spark.streaming import Stream

NOW_MS = 1_700_000_000_000
Writer = Callable[..., kts.Log]


def options(path: object, **given: object) -> Options:
    return parse_options({"path": str(path), **{name: str(value) for name, value in given.items()}}, STREAM)


def stream(path: object, **given: object) -> Stream:
    return Stream(options(path, **{"startingOffsets": "earliest", **given}))


def latest(of: Stream, start: Json | None, most: int | None = None, least: int | None = None, now_s: float = 0) -> Json:
    return of.latest(start, most, least, now_s)


def available(of: Stream, start: Json) -> Json:
    """The end of the first micro-batch of what is available now."""
    of.prepare_available_now()
    return latest(of, start)


def read(tasks: list[Task], isolation: str = "read_uncommitted") -> list[tuple[str, int, int]]:
    found = []
    for task in tasks:
        for part in task.ranges:
            for rows in read_range(
                part,
                columns=["topic", "partition", "offset"],
                within=task.within,
                isolation=isolation,
            ):
                found += [tuple(row.values()) for row in rows.to_pylist()]
    return found


def all_of(topic: str, partition: int, start: int, end: int) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for offset in range(start, end)]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """``writer("orders-0", 5)``: the log of a partition, after five more records."""
    logs: dict[str, kts.Log] = {}

    def write(name: str, count: int, checkpoint: bool = True) -> kts.Log:
        log = logs.get(name) or logs.setdefault(name, kts.Log(tmp_path / name, {"segment.bytes": 2000}))
        end = log.log_end_offset
        for first in range(end, end + count, 5):
            times = range(first, min(first + 5, end + count))
            log.append_rows({"value": [b"x" * 100] * len(times), "timestamp": [NOW_MS + each for each in times]})
        if checkpoint:
            log.checkpoint()
        return log

    yield write
    for log in logs.values():
        log.close()


def test_offsets_are_those_of_sparks_kafka_source_in_order(writer: Writer, tmp_path: Path) -> None:
    for name in ("orders-10", "orders-2", "clicks-0"):
        writer(name, 7)
    query = stream(tmp_path)
    assert str(query.initial()) == "{'clicks': {'0': 0}, 'orders': {'2': 0, '10': 0}}"
    assert str(latest(query, query.initial())) == "{'clicks': {'0': 7}, 'orders': {'2': 7, '10': 7}}"
    assert query.reported() == {"clicks": {"0": 7}, "orders": {"2": 7, "10": 7}}


def test_a_new_query_starts_at_the_latest_offset_unless_told_otherwise(writer: Writer, tmp_path: Path) -> None:
    writer("orders-0", 30)
    start = Stream(options(tmp_path)).initial()
    assert start == {"orders": {"0": -1}}
    fixed = latest(stream(tmp_path), start)
    writer("orders-0", 5)
    assert stream(tmp_path).tasks(start, fixed) == []  # also for a query that was killed and plans it again
    end = latest(stream(tmp_path), fixed)
    assert read(stream(tmp_path).tasks(fixed, end)) == all_of("orders", 0, 30, 35)


def test_each_kind_of_start(writer: Writer, tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1"):
        writer(name, 30)

    def initial(**given: object) -> Any:
        return Stream(options(tmp_path, **given)).initial()["orders"]

    assert initial(startingOffsets='{"orders": {"0": 12, "1": -2}}') == {"0": 12, "1": 0}
    assert initial(startingOffsets='{"orders": {"0": -1, "1": 30}}') == {"0": -1, "1": 30}
    assert initial(startingTimestamp=NOW_MS + 9) == {"0": 9, "1": 9}
    by_time = f'{{"orders": {{"0": {NOW_MS + 3}, "1": {NOW_MS + 30}}}}}'
    assert initial(startingOffsetsByTimestamp=by_time, startingOffsetsByTimestampStrategy="latest") == {
        "0": 3,
        "1": -1,
    }
    with pytest.raises(kts.OffsetOutOfRangeError, match="startingOffsetsByTimestampStrategy to latest"):
        initial(startingOffsetsByTimestamp=by_time)
    with pytest.raises(kts.OffsetOutOfRangeError, match="has offsets 0 to 30"):
        initial(startingOffsets='{"orders": {"0": 31, "1": 0}}')
    with pytest.raises(ValueError, match="must name exactly the partitions"):
        initial(startingOffsets='{"orders": {"0": 1}}')


def test_a_strict_start_leaves_out_older_records_of_later_partitions_too(writer: Writer, tmp_path: Path) -> None:
    writer("orders-0", 20)
    query = stream(tmp_path, startingTimestamp=NOW_MS + 12, strictTimeRange="true")
    start = query.initial()
    writer("orders-1", 15)
    found = read(query.tasks(start, latest(query, start)))
    assert found == [*all_of("orders", 0, 12, 20), *all_of("orders", 1, 12, 15)]


def test_only_what_is_below_the_high_watermark_is_given(writer: Writer, tmp_path: Path) -> None:
    writer("orders-0", 10)
    writer("orders-0", 10, checkpoint=False)
    query = stream(tmp_path)
    assert latest(query, {"orders": {"0": 0}}) == {"orders": {"0": 10}}
    writer("orders-0", 0)
    assert latest(query, {"orders": {"0": 10}}) == {"orders": {"0": 20}}


def test_without_a_checkpoint_whole_batches_are_given(writer: Writer, tmp_path: Path) -> None:
    log = writer("orders-0", 10, checkpoint=False)
    query = stream(tmp_path)
    assert latest(query, {"orders": {"0": 0}}) == {"orders": {"0": 10}}
    part_of_one = kts.encode({"value": [b"late"], "timestamp": [NOW_MS]}, base_offset=10)[:-1]
    [segment] = sorted(Path(log.path).glob("*.log"))[-1:]
    with segment.open("ab") as file:
        file.write(part_of_one)
    assert latest(query, {"orders": {"0": 0}}) == {"orders": {"0": 10}}


def test_a_checkpoint_that_is_older_than_what_was_read_is_no_loss(writer: Writer, tmp_path: Path) -> None:
    writer("orders-0", 10)
    writer("orders-0", 10, checkpoint=False)
    start = {"orders": {"0": 15}}
    assert latest(stream(tmp_path), start) == start


def test_read_committed_stops_at_the_first_open_transaction() -> None:
    scenario = golden("4.3.1", "txn-open")
    [name] = scenario.partitions
    log = kts.open_partition(scenario.partition_dir(name))
    topic, index = name.rsplit("-", 1)
    ends = {
        isolation: latest(stream(log.path, isolation=isolation), None)[topic][index]
        for isolation in ("read_committed", "read_uncommitted")
    }
    assert ends["read_committed"] == log.last_stable_offset < ends["read_uncommitted"]
    query = stream(log.path, isolation="read_committed")
    start = query.initial()
    given = read(query.tasks(start, latest(query, start)), "read_committed")
    rows = kts.scan(log.path, columns=["offset"], isolation="read_committed").read_all()
    assert [offset for _, _, offset in given] == rows["offset"].to_pylist()


def test_a_limit_is_shared_by_what_each_partition_has(writer: Writer, tmp_path: Path, rng: random.Random) -> None:
    for number, count in enumerate((100, 50, 3, 0)):
        writer(f"orders-{number}", count)
    query = stream(tmp_path)
    start = query.initial()
    assert latest(query, start, most=60) == {"orders": {"0": 39, "1": 19, "2": 1, "3": 0}}
    assert latest(query, start, most=153) == latest(query, start)
    given = []
    while (end := latest(query, start, most=rng.randrange(1, 40))) != start:
        given += read(query.tasks(start, end))
        start = end
    assert sorted(given) == [*all_of("orders", 0, 0, 100), *all_of("orders", 1, 0, 50), *all_of("orders", 2, 0, 3)]


def test_a_minimum_waits_until_it_is_there_or_the_delay_has_passed(writer: Writer, tmp_path: Path) -> None:
    writer("orders-0", 10)
    query = stream(tmp_path, minOffsetsPerTrigger=8, maxTriggerDelay="5m")
    first = latest(query, {"orders": {"0": 0}}, least=8, now_s=1000)
    writer("orders-0", 7)
    assert latest(query, first, least=8, now_s=1100) == first
    assert latest(query, first, least=8, now_s=1299) == first
    second = latest(query, first, least=8, now_s=1300)
    assert second == {"orders": {"0": 17}}
    writer("orders-0", 8)
    assert latest(query, second, least=8, now_s=1301) == {"orders": {"0": 25}}


def test_what_is_available_now_is_no_more_and_comes_in_parts(writer: Writer, tmp_path: Path) -> None:
    writer("orders-0", 20)
    query = stream(tmp_path, minOffsetsPerTrigger=8)
    query.prepare_available_now()
    writer("orders-0", 20)
    writer("orders-1", 20)
    start = query.initial()
    ends = []
    for _ in range(4):
        start = latest(query, {"orders": {"0": start["orders"]["0"]}}, most=8, least=8)
        ends.append(start)
    assert ends == [{"orders": {"0": end}} for end in (8, 16, 20, 20)]


def test_new_partitions_and_topics_are_read_from_their_first_offset(writer: Writer, tmp_path: Path) -> None:
    writer("orders-0", 10)
    query = stream(tmp_path, subscribePattern="orders|clicks")
    start = latest(query, query.initial())
    for name in ("orders-1", "clicks-0", "views-0"):
        writer(name, 5)
    end = latest(query, start)
    assert end == {"clicks": {"0": 5}, "orders": {"0": 10, "1": 5}}
    assert read(query.tasks(start, end)) == [*all_of("clicks", 0, 0, 5), *all_of("orders", 1, 0, 5)]
    assert latest(query, start, most=4) == {"clicks": {"0": 2}, "orders": {"0": 10, "1": 2}}


def test_a_pattern_waits_for_its_topic_and_says_so_but_a_name_must_be_there(writer: Writer, tmp_path: Path) -> None:
    writer("views-0", 5)
    with pytest.raises(kts.UnknownTopicOrPartitionError, match="no topic matches ord"):
        stream(tmp_path, subscribe="ord*").initial()
    query = stream(tmp_path, subscribePattern="ord.*")
    with pytest.warns(kts.KtsWarning, match=r"no topic in .* matches ord\.\* yet: the query waits"):
        start = latest(query, query.initial())
    assert start == {}
    writer("orders-0", 3)
    for waited in (query, stream(tmp_path, subscribe="ord*")):
        assert latest(waited, start) == {"orders": {"0": 3}}


def test_before_pyspark_4_2_the_query_remembers_where_it_is(writer: Writer, tmp_path: Path) -> None:
    writer("orders-0", 10, checkpoint=False)
    query = stream(tmp_path)
    assert latest(query, None) == {"orders": {"0": 10}}
    shutil.copyfile(_checkpoint_of(tmp_path, "orders 0 5"), tmp_path / "replication-offset-checkpoint")
    assert latest(query, None) == {"orders": {"0": 10}}


def _checkpoint_of(folder: Path, line: str) -> Path:
    path = folder / "made"
    path.write_text(f"0\n1\n{line}\n", encoding="utf-8")
    return path


# --- loss -----------------------------------------------------------------------------------------


def lost(work: Callable[[Stream], Any], path: Path, match: str) -> Any:
    """What the work gives without what was lost, after it was told in both ways."""
    with pytest.raises(kts.OffsetOutOfRangeError, match=f"{match}.*set failOnDataLoss to false"):
        work(stream(path))
    with pytest.warns(kts.KtsWarning, match=match):
        return work(stream(path, failOnDataLoss="false"))


def test_what_retention_deleted_is_told(writer: Writer, tmp_path: Path) -> None:
    log = writer("orders-0", 100)
    log.advance_log_start_offset(40)
    start, end = {"orders": {"0": 10}}, {"orders": {"0": 60}}
    match = r"offsets 10 to 40 \(not included\) of orders-0 were deleted"
    assert read(lost(lambda query: query.tasks(start, end), tmp_path, match)) == all_of("orders", 0, 40, 60)
    log.advance_log_start_offset(90)
    match = r"offsets 10 to 60 \(not included\) of orders-0 were deleted"
    assert lost(lambda query: query.tasks(start, end), tmp_path, match) == []


def test_a_new_partition_without_its_first_records_is_told(writer: Writer, tmp_path: Path) -> None:
    writer("orders-0", 10)
    writer("orders-1", 30).advance_log_start_offset(20)
    start, end = {"orders": {"0": 10}}, {"orders": {"0": 10, "1": 30}}
    tasks = lost(lambda query: query.tasks(start, end), tmp_path, r"offsets 0 to 20 \(not included\) of orders-1")
    assert read(tasks) == all_of("orders", 1, 20, 30)


def test_a_log_that_was_cut_is_told(writer: Writer, tmp_path: Path) -> None:
    log = writer("orders-0", 60)
    log.truncate_to(30)
    start, end = {"orders": {"0": 20}}, {"orders": {"0": 60}}
    match = r"offsets 30 to 60 \(not included\) of orders-0 are gone; it ends at 30"
    assert read(lost(lambda query: query.tasks(start, end), tmp_path, match)) == all_of("orders", 0, 20, 30)
    match = "orders-0 was read up to offset 60, and ends now at offset 30"
    assert lost(lambda query: latest(query, end), tmp_path, match) == {"orders": {"0": 30}}
    assert lost(lambda query: available(query, end), tmp_path, match) == {"orders": {"0": 30}}


def test_a_micro_batch_that_would_go_back_is_a_loss(writer: Writer, tmp_path: Path) -> None:
    """What a restarted query of pyspark 4.1 plans, whose driver does not know where it was, of a log that was cut."""
    writer("orders-0", 60).truncate_to(30)
    start = {"orders": {"0": 60}}
    match = "orders-0 was read up to offset 60, and ends now at offset 30"
    assert lost(lambda query: query.tasks(start, latest(query, None)), tmp_path, match) == []


def test_damage_at_the_end_is_skipped_as_in_a_batch_query(writer: Writer, tmp_path: Path) -> None:
    log = writer("orders-0", 15, checkpoint=False)
    path = Path(log.segments[-1].path)
    *_, last = kts.scan_batches(path.read_bytes())["position"].to_pylist()
    flip(path, last + 16, 0x70)  # its magic
    with pytest.raises(kts.CorruptRecordError):
        latest(stream(tmp_path), None)
    query = stream(tmp_path, onError="skip")
    start = query.initial()
    end = latest(query, start)
    assert end == {"orders": {"0": 10}} and read(query.tasks(start, end)) == all_of("orders", 0, 0, 10)


@pytest.mark.parametrize("named", [{}, {"subscribe": "clicks,orders"}, {"assign": '{"clicks": [0], "orders": [0]}'}])
def test_a_deleted_partition_is_told(writer: Writer, tmp_path: Path, named: dict[str, str]) -> None:
    writer("orders-0", 10)
    start, end = {"clicks": {"0": 3}, "orders": {"0": 3}}, {"clicks": {"0": 8}, "orders": {"0": 8}}
    for work in (lambda query: latest(query, start), lambda query: query.tasks(start, end)):
        with pytest.raises((kts.OffsetOutOfRangeError, kts.UnknownTopicOrPartitionError), match="clicks"):
            work(stream(tmp_path, **named))
    query = stream(tmp_path, failOnDataLoss="false", **named)
    with pytest.warns(kts.KtsWarning, match="clicks-0"):
        assert latest(query, start) == {"orders": {"0": 10}}
    with pytest.warns(kts.KtsWarning, match="clicks-0"):
        assert read(query.tasks(start, end)) == all_of("orders", 0, 3, 8)


def test_a_micro_batch_that_is_planned_again_has_the_same_records(writer: Writer, tmp_path: Path) -> None:
    writer("orders-0", 55)
    start, end = {"orders": {"0": 7}}, {"orders": {"0": 41}}
    before = read(stream(tmp_path).tasks(start, end))
    log = writer("orders-0", 300)
    log.roll()
    assert read(stream(tmp_path, minPartitions=4).tasks(start, end)) == before == all_of("orders", 0, 7, 41)
    assert len(stream(tmp_path, minPartitions=4).tasks(start, end)) >= 4
