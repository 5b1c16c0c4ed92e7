"""The ways to find a record by its time give the same answers over Kafka's own logs."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support.golden import Golden, golden, golden_partitions
from support.reference import reference

import kts
from kts.proposals.comparing import Continuing, OneSegment, lookups

ORDERS = golden("demo", "orders")
ASKED = [(scenario, name) for scenario, name in golden_partitions() if scenario.offsets_for_times(name)][::2]
PARTITIONS = [(str(scenario), scenario.partition_dir(name)) for scenario, name in golden_partitions()]


def linear(path: Path, target: int, log_start: int) -> tuple[int, int] | None:
    for log in sorted(path.glob("*.log")):
        for row in reference.decode(log.read_bytes()):
            if row["timestamp"] >= target and row["offset"] >= log_start:
                return row["timestamp"], row["offset"]
    return None


@pytest.mark.slow
def test_every_lookup_finds_the_first_record_in_kafka_s_logs(rng: random.Random) -> None:
    asked = 0
    for _, path in rng.sample(PARTITIONS, 25):
        log = kts.open(path)
        records = [row for one in sorted(path.glob("*.log")) for row in reference.decode(one.read_bytes())]
        records = [row for row in records if row["offset"] >= log.log_start_offset]
        stamps = [row["timestamp"] for row in records] or [0]
        ways = lookups(log, interval_ms=rng.choice([1, 1000, 60_000, 3_600_000]))
        for _ in range(12):
            near = rng.choice(stamps) + rng.choice((-1, 0, 1))
            target = rng.choice([near, rng.randint(min(stamps), max(stamps)), -1])
            hit = next(((r["timestamp"], r["offset"]) for r in records if r["timestamp"] >= target), None)
            for way in ways:
                if isinstance(way, OneSegment):
                    assert way.search(log, target).found == log.offset_for_timestamp(target, shipped_search=True)
                else:
                    assert way.search(log, target).found == hit, (path, target, way.name)
                    asked += 1
    assert asked >= 600


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "name"), ASKED, ids=str)
def test_the_one_segment_search_answers_as_the_broker_did(
    scenario: Golden, name: str, writable: Callable[[Golden], Golden]
) -> None:
    said = scenario.offsets_for_times(name)
    assert said is not None
    log = kts.open(writable(scenario).partition_dir(name), log_start_offset=scenario.log_start_offset(name))
    for query in said["queries"]:
        answer = query["answer"]
        expected = None if answer is None else (answer["timestamp"], answer["offset"])
        assert OneSegment().search(log, query["query"]).found == expected, query


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "name"), golden_partitions(), ids=str)
def test_a_search_for_the_time_of_an_index_entry_finds_the_first_record_of_that_time(
    scenario: Golden, name: str
) -> None:
    # Brokers of 0.10 indexed the last of the records with one time.
    path = scenario.partition_dir(name)
    log = kts.open(path, log_start_offset=0)
    times = {time for segment in log.segments for time in segment.time_index().entries()[0].tolist()}
    records = [row for one in sorted(path.glob("*.log")) for row in reference.decode(one.read_bytes())]
    ways = [way for way in lookups(log) if not isinstance(way, OneSegment)]
    for target in sorted(time for time in times if time >= 0)[:8]:
        hit = next(((r["timestamp"], r["offset"]) for r in records if r["timestamp"] >= target), None)
        assert log.offset_for_timestamp(target) == hit
        assert {way.name: way.search(log, target).found for way in ways} == {way.name: hit for way in ways}


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_the_search_that_goes_on_needs_no_index(damage: str, writable, rng: random.Random) -> None:  # type: ignore[no-untyped-def]
    scenario = writable(ORDERS)
    path = scenario.partition_dir("orders-0")
    for index in path.glob("*.timeindex"):
        if damage == "missing":
            index.unlink()
        else:
            index.write_bytes(b"")
    log = kts.open(path)
    top = log.max_timestamp().timestamp_ms
    for _ in range(5):
        target = rng.randint(top - 10**6, top)
        assert Continuing().search(log, target).found == linear(path, target, 0)
