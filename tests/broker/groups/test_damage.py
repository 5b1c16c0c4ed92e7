"""Damage in ``__consumer_offsets`` after a clean stop: what is sound is kept, what is not is reported."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support.broker.group_play import Clock, T, make, open_topics, play
from support.reference import reference

from kts.broker.codes import ErrorCode
from kts.broker.groups import Coordinator
from kts.broker.topics import Topics
from kts.coordinator_records.groups import TOPIC, Committed

GROUPS = 60


def commit(coordinator: Coordinator, group_id: str, offset: int) -> None:
    done = coordinator.commit(group_id, "", None, -1, {("t", 0): Committed(offset, 3, "m" * 50, T)})
    assert set(done.values()) == {ErrorCode.NONE}


def known(coordinator: Coordinator) -> dict[str, int]:
    return {group.group_id: group.offsets["t", 0].offset for group in coordinator.groups()}


class Started:
    """Topics and a coordinator over a directory; a context manager that stops them cleanly."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Coordinator:
        self.topics: Topics = open_topics(self.folder, Clock())
        self.coordinator = make(self.topics, Clock(), num_partitions=1)
        return self.coordinator

    def __exit__(self, *_: object) -> None:
        self.coordinator.close()
        self.topics.close()


def batches(path: Path) -> list[tuple[int, int, int]]:
    """(position, end, offset) of each batch; a commit is one."""
    found = reference.scan_batches(path.read_bytes())
    return [(one["position"], one["position"] + one["sizeInBytes"], one["lastOffset"]) for one in found]


def in_a_value(at: int, end: int) -> tuple[int, bytes]:
    return end - 20, b"\xff\xff\xff"


def in_the_size(at: int, end: int) -> tuple[int, bytes]:
    return at + 8, b"\x5a\x00\x13\x77"


def in_the_offset(at: int, end: int) -> tuple[int, bytes]:
    return at + 4, b"\x13\x13\x13\x13"


def a_sector(at: int, end: int) -> tuple[int, bytes]:
    return at - at % 512, random.Random(at).randbytes(512)


def zeros(at: int, end: int) -> tuple[int, bytes]:
    return at - at % 512, bytes(512)


PLACES = {
    "closed": 9,
    "front of the active": 0,
    "middle of the active": 20,
    "near the end of the active": -4,  # behind the last index entry: a start cuts there
    "last of the active": -1,
}
CASES = [(place, way) for place in PLACES for way in (in_a_value, in_the_size, a_sector)]
CASES += [("middle of the active", in_the_offset), ("near the end of the active", zeros)]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "way"), CASES)
def test_groups_that_are_not_damaged_are_kept(
    place: str, way: Callable[[int, int], tuple[int, bytes]], tmp_path: Path
) -> None:
    """A commit a group; one place in the files is damaged. Costs 0.2 s a case."""
    folder = tmp_path / "data"

    async def fill() -> None:
        with Started(folder) as coordinator:
            for number in range(GROUPS):
                commit(coordinator, f"g{number}", number)
                if number == GROUPS // 3:
                    coordinator.journal.make_topic().partitions[0].log.roll()

    play(fill())
    logs = sorted((folder / f"{TOPIC}-0").glob("*.log"))
    path = logs[0 if place == "closed" else 1]
    found = batches(path)
    at, end, _ = found[PLACES[place]]
    where, what = way(at, end)
    data = bytearray(path.read_bytes())
    what = what[: len(data) - where]
    data[where : where + len(what)] = what
    path.write_bytes(data)
    hit = {offset for start, stop, offset in found if start < where + len(what) and where < stop}
    expected = {f"g{number}": number for number in range(GROUPS) if number not in hit}
    if way is in_the_offset:  # no CRC covers it: the commit itself is sound
        expected |= {f"g{number}": number for number in hit}

    async def look() -> None:
        with Started(folder) as coordinator:
            assert known(coordinator) == expected
            if way is not in_the_offset:
                assert any(path.name in problem for problem in coordinator.journal.problems)
            commit(coordinator, "later", 99)
        with Started(folder) as coordinator:
            assert known(coordinator) == expected | {"later": 99}

    play(look())
