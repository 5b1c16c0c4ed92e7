"""What a broker appended, appended again: kts leaves the same directory, byte for byte and file by file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.golden import Golden, goldens

import kts

LEFT_OUT = {
    "compact-": "the cleaner rewrote the segments",
    "restart": "index intervals begin anew at each start",
    "killed": "the broker recovered",
    "empty": "nothing was appended",
    "retention-all": "nothing is left",
}
# Uncompressed or gzip, CreateTime: what a leader was sent can be told from what it wrote.
LEADER = [
    *("ct-gzip", "ct-none", "extreme-gzip", "extreme-none", "fmt09-gzip", "future-oneseg", "index-full"),
    *("notime-gzip", "notime-none", "old-producer-gzip", "old-producer-none", "one", "order-gzip", "order-none"),
    *("recode-lz4-uncompressed-ct", "recode-none-gzip-ct", "roll-ms-gzip", "same-stamp"),
]


def scenarios(*versions: str) -> list[Golden]:
    return [
        scenario
        for scenario in goldens()
        if scenario.version in versions and not any(scenario.name.startswith(name) for name in LEFT_OUT)
    ]


def entries(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        yield data[position : position + size]
        position += size


def log_of(scenario: Golden, partition: str, folder: Path, **more: object) -> kts.Log:
    topic = partition.rpartition("-")[0]
    settings = scenario.meta["topics"][topic]["configs"]
    clock = scenario.meta["brokerClockAtStart"]
    return kts.Log(folder / partition, settings, clock=lambda: clock, **more)  # type: ignore[arg-type]


def bytes_of(directory: Path) -> dict[str, bytes]:
    left = {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "partition.metadata"}
    return {name: data for name, data in left.items() if not name.endswith(".deleted")}


def assert_same(scenario: Golden, partition: str, folder: Path) -> None:
    theirs, ours = bytes_of(scenario.partition_dir(partition)), bytes_of(folder / partition)
    assert sorted(ours) == sorted(theirs)
    assert [name for name in theirs if ours[name] != theirs[name]] == []


@pytest.mark.parametrize("scenario", scenarios("3.9.2", "4.3.1"), ids=str)
def test_a_follower_of_3_9_leaves_the_directory_that_the_broker_left(scenario: Golden, tmp_path: Path) -> None:
    for partition in scenario.partitions:
        start = scenario.log_start_offset(partition)
        first = min(int(path.name[:20]) for path in scenario.logs(partition))
        with log_of(scenario, partition, tmp_path) as log:
            if first:  # retention took what was there before
                log.truncate_fully_and_start_at(first)
            for path in scenario.logs(partition):
                for batch in entries(path.read_bytes()):
                    log.append_as_follower(batch)
            assert log.log_start_offset == first
            log.advance_log_start_offset(start)
        assert log.recovered == []
        ours = tmp_path / partition
        if first and not (ours / f"{first:020d}.snapshot").exists():
            # The broker took a snapshot when it rolled here; to us it is the beginning.
            (ours / f"{first:020d}.snapshot").write_bytes(
                (scenario.partition_dir(partition) / f"{first:020d}.snapshot").read_bytes()
            )
        assert_same(scenario, partition, tmp_path)


def sent(scenario: Golden, partition: str) -> Iterator[bytes]:
    """The sets of a scenario as they were appended: its steps say how many records went together."""
    left = iter(list(entries(b"".join(path.read_bytes() for path in scenario.logs(partition)))))
    for step in scenario.meta["steps"]:
        told = re.match(r"\w+: (\d+) records, flush", step)
        count, together = int(told[1]) if told else 0, []
        while count > 0:
            together.append(next(left))
            count -= kts.decode(together[-1], ["offset"]).num_rows
        if together:
            yield b"".join(together)
    assert next(left, None) is None


@pytest.mark.parametrize("name", LEADER)
def test_a_leader_of_0_10_leaves_the_directory_that_the_broker_left(name: str, tmp_path: Path) -> None:
    scenario = next(one for one in goldens() if (one.version, one.name) == ("0.10.2.2", name))
    for partition in scenario.partitions:
        with log_of(scenario, partition, tmp_path, generation="0.10.2") as log:
            for records in sent(scenario, partition):
                log.append(records)
        assert_same(scenario, partition, tmp_path)


def test_what_is_left_out_is_left_out_for_a_reason() -> None:
    assert len(scenarios("3.9.2")) > 25
    for prefix in LEFT_OUT:
        assert any(scenario.name.startswith(prefix) for scenario in goldens())


def in_place(scenario: Golden) -> bool:
    """Whether the broker kept the bytes that it was sent, but for the offset and the epoch."""
    configs = [topic["configs"] for topic in scenario.meta["topics"].values()]
    return not any("message.timestamp.type" in one or "compression.type" in one for one in configs) and not (
        scenario.name.startswith(("retention-", "delete-records", "v1-producer", "old-producer", "fmt"))
    )


@pytest.mark.parametrize("scenario", [one for one in scenarios("3.9.2") if in_place(one)], ids=str)
def test_a_leader_of_3_9_leaves_the_directory_that_the_broker_left(scenario: Golden, tmp_path: Path) -> None:
    for partition in scenario.partitions:
        with log_of(scenario, partition, tmp_path) as log:
            for path in scenario.logs(partition):
                for batch in entries(path.read_bytes()):
                    log.append(bytes(8) + batch[8:], origin="coordinator")
        assert_same(scenario, partition, tmp_path)
