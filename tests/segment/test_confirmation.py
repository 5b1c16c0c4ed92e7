"""What brokers wrote into indexes is confirmed by their logs; what a damaged entry says is not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.disk.counting import counting
from support.golden import golden_logs
from support.reference import reference

import kts
from kts._timeindex import OffsetIndex, TimeIndex
from kts.segment.confirmation import confirmed_place, confirmed_time
from kts.store import local
from kts.store.local import File, RereadFile
from kts.store.source import files

LOGS = golden_logs()


def entries(log: Path, kind: type[OffsetIndex] | type[TimeIndex], suffix: str, width: int) -> list[tuple[int, int]]:
    path = log.with_suffix(suffix)
    if not path.exists():
        return []
    index = kind(files.read_used(str(path), width), int(log.stem))
    first, second = index.entries()
    return list(zip(first.tolist(), second.tolist(), strict=True))


def places(log: Path) -> list[tuple[int, int]]:
    return entries(log, OffsetIndex, ".index", 8)


def times(log: Path) -> list[tuple[int, int]]:
    return entries(log, TimeIndex, ".timeindex", 12)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: "/".join(log.parts[-5:]))
def test_brokers_indexes_are_confirmed(log: Path) -> None:
    with File(str(log)) as file:
        size, before, known = file.size(), 0, [(int(log.stem), 0)]
        for offset, position in places(log):
            found = confirmed_place(file, size, offset, position, before)
            assert found is not None, f"({offset}, {position})"
            before = position
            known.append((offset, position))
        start = 0
        for timestamp, offset in times(log):
            assert confirmed_time(file, size, timestamp, offset, start) is not None, f"({timestamp}, {offset})"
            start = max(position for place, position in known if place <= offset)


def test_there_is_something_to_confirm() -> None:
    assert sum(len(places(log)) for log in LOGS) > 500 and sum(len(times(log)) for log in LOGS) > 500


def test_a_flipped_bit_that_is_confirmed_hides_nothing(rng: random.Random) -> None:
    """Every entry of a few logs with one bit flipped: what lies before a confirmed place is of no use."""
    logs = [log for log in LOGS if len(places(log)) > 2 and len(times(log)) > 2]
    refused = 0
    for log in rng.sample(logs, 12):
        headers = reference.scan_batches(log.read_bytes())
        borders = [header["position"] for header in headers]
        with File(str(log)) as file:
            size, at = file.size(), places(log)
            for number in rng.sample(range(len(at)), min(len(at), 8)):
                before = at[number - 1][1] if number else 0
                for bit in range(64):
                    offset, position = at[number]
                    offset, position = (offset ^ 1 << bit, position) if bit < 31 else (offset, position ^ 1 << bit - 31)
                    if confirmed_place(file, size, offset, position, before) is None:
                        refused += 1
                        continue
                    assert position in borders
                    assert all(h["lastOffset"] < offset for h in headers if h["position"] < position), (
                        log,
                        number,
                        bit,
                    )
            when, base = times(log), int(log.stem)
            for number in rng.sample(range(len(when)), min(len(when), 8)):
                low = max((place for offset, place in at if number and offset <= when[number - 1][1]), default=0)
                for bit in range(80):
                    time, offset = when[number]
                    time, offset = (
                        (time ^ 1 << bit, offset) if bit < 48 else (time, base + (offset - base ^ 1 << bit - 48))
                    )
                    start = confirmed_time(file, size, time, offset, low)
                    if start is None:
                        refused += 1
                        continue
                    early = [h for h in headers if h["position"] < start and h["count"] != 0]
                    assert start in borders and all(h["maxTimestamp"] < time for h in early), (log, number, bit)
    assert refused > 3000


def test_a_batch_inside_a_value_is_no_place(tmp_path: Path) -> None:
    inner = kts.encode({"timestamp": [5], "value": [b"x" * 40]}, base_offset=1)
    outer = kts.encode({"timestamp": [9], "value": [bytes(inner)]}, base_offset=3)
    first = kts.encode({"timestamp": [4], "value": [b"y" * 9000]}, base_offset=0)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(first) + bytes(outer))
    inside = path.read_bytes().index(bytes(inner))
    with File(str(path)) as file:
        size = file.size()
        assert confirmed_place(file, size, 3, len(first)) is not None
        assert confirmed_place(file, size, 3, inside, inside) is not None  # its CRC is right, so only the way tells
        assert confirmed_place(file, size, 3, inside) is None
        assert confirmed_place(file, size, 3, inside, len(first)) is None
        assert confirmed_place(file, size - 1, 3, len(first)) is None  # not whole below the published size


def test_bytes_that_are_read_again_are_those_of_the_file(tmp_path: Path, rng: random.Random) -> None:
    path, data = tmp_path / "some", rng.randbytes(3 * local.KEPT_BYTES)
    path.write_bytes(data)
    with counting() as asked, RereadFile(str(path)) as file:
        for _ in range(20):
            place = rng.randrange(len(data) + 10)
            for _ in range(10):
                begin = max(place + rng.randrange(-50, 20_000), 0)
                count = rng.choice([0, 1, rng.randrange(20_000), rng.randrange(2 * local.KEPT_BYTES)])
                assert file.read(begin, count) == data[begin : begin + count]
                memory = bytearray(count)
                assert file.read_into(memoryview(memory), begin) == len(data[begin : begin + count])
                assert memory[: len(data[begin:])] == data[begin : begin + count]
        before = asked["pread"]
        assert file.read(5, 100) + file.read(105, 100) + file.read(5, 200) == data[5:205] + data[5:205]
        assert asked["pread"] <= before + 2


@pytest.mark.parametrize("count", [9, 190], ids=["1 KB", "21 KB"])
def test_a_search_opens_the_log_once_and_reads_what_confirms_its_entries_once(tmp_path: Path, count: int) -> None:
    every, value, start = 60, b"v" * 100, 1_700_000_000_000
    with kts.Log(tmp_path / "t-0", {"retention.ms": -1}) as log:
        for number in range(every):
            times = [start + number * count + i for i in range(count)]
            log.append(kts.encode({"timestamp": times, "value": [value] * count}, batch_bytes=2**20))
    (tmp_path / "kts-index-checksum-checkpoint").unlink()  # so that the log must confirm what the indexes say
    folder, opened = tmp_path / "t-0", kts.open(tmp_path / "t-0")
    small = sum(path.stat().st_size for path in [*folder.glob("*index"), *tmp_path.glob("*-checkpoint")])
    one = next(folder.glob("*.log")).stat().st_size // every
    for target in range(start + every * count // 2, start + every * count // 2 + 3 * count, max(count // 3, 1)):
        with counting() as asked:
            found = opened.offset_for_timestamp(target)
        assert found is not None and found == (target, target - start)
        # Two entries of the index and what lies between them, and the slice that holds the answer.
        assert asked["bytes read"] - small < 4 * max(one, 4096 + one) + 2**14
        assert asked["open"] <= 3 + len(list(tmp_path.glob("*-checkpoint"))), "the log and each index once"
