"""Counts of timestamps that Kafka cannot tell apart (KIP-228), over directories of real brokers and of our own."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.golden import goldens
from support.processes.cli_runs import lines, run
from support.reference import reference

import kts
from kts.broker.listing import SPECIAL as SPECIAL_OF_LIST_OFFSETS
from kts.offline.timestamps import SPECIAL, Timestamps, count_timestamps

OLD = -386_380_800_000
LATEST = -1


def test_every_special_number_of_list_offsets_but_minus_one_is_counted() -> None:
    assert {*SPECIAL, LATEST} == set(SPECIAL_OF_LIST_OFFSETS)


def random_log(path: Path, rng: random.Random) -> None:
    """A closed log of all magics and codecs, with times around 1970 and some marked batches."""
    settings = {"allow.negative.timestamps": "true", "segment.ms": 2**62}
    with kts.Log(path, settings) as log:
        for _ in range(rng.randrange(5, 30)):
            times = [rng.choice([-1, -1, OLD, 5, *range(-8, 1)]) for _ in range(rng.randrange(1, 6))]
            magic = rng.choice([0, 1, 2, 2])
            data = kts.encode(
                {"timestamp": np.array(times, np.int64), "value": [b"v"] * len(times)},
                magic=magic,
                compression=rng.choice(["none", "gzip", "lz4"]),
                has_timestamp=magic == 2 and rng.random() < 0.4,
                base_offset=log.log_end_offset,
                batch_bytes=2**20,
            )
            log.append_as_follower(data)
            if rng.random() < 0.1:
                log.roll()


def slowly(path: Path) -> Timestamps:
    """The same counts by the slow reader, one record at a time."""
    made, (topic, _, number) = Timestamps(), path.name.rpartition("-")
    for log in sorted(path.glob("*.log")):
        for row in reference.decode(log.read_bytes()):
            time, marked = row["timestamp"], row["magic"] == 2 and bool(row["attributes"] & 0x80)
            made.records += 1
            made.marked += marked
            made.before_1970 += time < -1
            if time == -1:
                made.minus_one += 1
                made.minus_one_marked += marked
                made.minus_one_of_magic_0 += row["magic"] == 0
            if time in SPECIAL:
                made.special[time] += 1
            if time in SPECIAL or (time == -1 and not marked):
                made.first.setdefault(time, (topic, int(number), row["offset"]))
    return made


def test_each_kind_of_timestamp_is_counted_and_its_first_record_named(tmp_path: Path, rng: random.Random) -> None:
    total = Timestamps()
    for number in range(3):
        path = tmp_path / f"t-{number}"
        random_log(path, rng)
        found = count_timestamps(kts.open_partition(path))
        assert found == slowly(path)
        total.add(found)
    assert total.minus_one > total.minus_one_marked > 0 < total.minus_one_of_magic_0
    assert all(total.special.values()) and total.ambiguous == total.minus_one - total.minus_one_marked
    [shown] = lines("stats", tmp_path, "--timestamps", "--json")
    assert (shown["records"], shown["minusOne"], shown["minusOneAmbiguous"], shown["before1970"]) == (
        (total.records, total.minus_one, total.ambiguous, total.before_1970)
    )
    assert shown["listOffsetsNumbers"] == {str(one): count for one, count in total.special.items()}
    where = {"topic": "t", "partition": total.first[-1][1], "offset": total.first[-1][2]}
    assert shown["first"]["-1"] == where
    said = run("stats", tmp_path, "--timestamps").stdout
    assert f"t-{where['partition']}, offset {where['offset']}" in said and "1969-12-31T23:59:59.999Z" in said
    assert "of these, for ListOffsets LATEST_TIERED" in said
    assert f"{total.records:,} records, {total.marked:,} of them in batches with hasTimestamp" in said
    assert len(lines("stats", tmp_path, "--timestamps", "--per", "partition", "--json")) == 3


@pytest.mark.slow
def test_real_brokers_directories_have_the_counts_that_consumers_saw() -> None:
    """Every golden directory: 2 s. Records below the log start offset are no one's."""
    ambiguous = 0
    for scenario in goldens():
        for name in scenario.partitions:
            found = count_timestamps(kts.open_partition(scenario.partition_dir(name)))
            times = Counter(row.timestamp for row in scenario.expected(name))
            if found.records == times.total():  # neither control records nor a moved log start
                assert found.minus_one == times[-1] == found.ambiguous, (scenario.name, name)
                assert found.before_1970 == sum(count for time, count in times.items() if time < -1)
                ambiguous += found.ambiguous
            assert found.marked == 0
    assert ambiguous > 0


def test_the_count_shows_what_the_migration_did(tmp_path: Path) -> None:
    """KIP-228, step 2: "write a migration tool that adds this flag to message with the negative timestamp"."""
    with kts.Log(tmp_path / "logs" / "t-0", {"allow.negative.timestamps": "true", "segment.ms": 2**62}) as log:
        log.append_rows({"timestamp": np.array([OLD, -1, -3, 7]), "value": [b"a", b"b", b"c", b"d"]})
    run("convert", tmp_path / "logs", "--to-magic", 2, "--has-timestamp", "-o", tmp_path / "two")
    both = ["--has-timestamp", "--minus-one-is-a-time"]
    run("convert", tmp_path / "logs", "--to-magic", 2, *both, "-o", tmp_path / "one")
    counts = {}
    for name in ("logs", "two", "one"):
        [found] = lines("stats", tmp_path / name, "--timestamps", "--json")
        counts[name] = found["hasTimestampMarked"], found["minusOneMarked"], found["minusOneAmbiguous"]
    assert counts == {"logs": (0, 0, 1), "two": (3, 0, 1), "one": (4, 1, 0)}
    assert "OK" in run("verify", tmp_path / "two", "--deep", "--allow-negative-timestamps").stdout
    assert "OK" in run("verify", tmp_path / "one", "--deep", "--minus-one-is-a-time").stdout
    dumped = run("dump", tmp_path / "two", "--format", "jsonl", "--columns", "offset,hasTimestamp").stdout
    assert '{"offset":1,"hasTimestamp":false}' in dumped and dumped.count("true") == 3
    said = run("convert", tmp_path / "logs", "--to-magic", 1, "--has-timestamp", "-o", tmp_path / "no", code=2).stderr
    assert "--has-timestamp needs --to-magic 2" in said
    said = run(
        "convert", tmp_path / "logs", "--to-magic", 2, "--minus-one-is-a-time", "-o", tmp_path / "no", code=2
    ).stderr
    assert "--minus-one-is-a-time needs --has-timestamp" in said
