"""Recovery of a segment: the indexes that a plain loop gives, and a report of what was cut off."""

from __future__ import annotations

import random
import struct
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.golden import data_root
from support.sets.segments import START_MS, Entry, appended, index_bytes, made_set, walk

import kts
from kts._codec import crc32c
from kts.behaviour import Behaviour, TimeRules
from kts.segment.entries import Batches
from kts.segment.log_segment import LogSegment
from kts.segment.rebuild import IndexConfig, RebuiltIndexes, Recovered, rebuild
from kts.store.local import File

GENERATIONS = ["0.10.2", "3.9"]


def rebuilt(path: str | Path, base: int = 0, **config: Any) -> RebuiltIndexes:
    with File(str(path)) as file:
        return rebuild(file, file.size(), base, IndexConfig(**config))


def sound(log: bytes, entry: Entry) -> bool:
    data = log[entry.position : entry.position + entry.size]
    if entry.magic == 2:
        return entry.size >= 61 and struct.unpack_from(">I", data, 17)[0] == crc32c(data[21:])
    return entry.magic < 2 and struct.unpack_from(">I", data, 12)[0] == zlib.crc32(data[16:])


def first_offset(entry: bytes) -> int | None:
    """None where the offsets inside a wrapper contradict its own."""
    try:
        return int(kts.decode(entry, ["offset"]).column(0)[0].as_py())
    except kts.CorruptRecordError:
        return None


def slow_rebuild(log: bytes, base: int, config: IndexConfig) -> tuple[bytes, bytes, int]:
    """Kafka's loop over the entries, where a full index stops growing and what is not in order ends the log."""
    offsets, times = b"", b""
    end, last_entry, before = 0, 0, base - 1
    last_offset, largest, reached, last_time, last_reached = base, -1, base, -1, base
    for entry in walk(log):
        fits = base <= entry.offset < base + 2**31
        written = struct.unpack_from(">q", log, entry.position)[0]  # of a batch the first one
        if not sound(log, entry) or not fits or min(written, entry.offset) <= before:
            break
        before = entry.offset
        offset: int | None = entry.offset
        if config.behaviour.release == "0.10.2":
            offset = first_offset(log[entry.position : entry.position + entry.size])
        indexed = end - last_entry > config.index_interval_bytes
        room = len(offsets) // 8 < config.segment_index_bytes // 8
        room &= len(times) // 12 < config.segment_index_bytes // 12 - 1 and offset is not None
        if indexed and room and offsets and offset <= last_offset:
            break
        later = entry.time > largest
        if indexed and room and (entry.offset if later else reached) < last_reached:
            break
        if later:
            largest, reached = entry.time, entry.offset
        if indexed:
            last_entry = end
            if room:
                offsets += struct.pack(">ii", offset - base, entry.position)
                last_offset = offset
                if largest > last_time:
                    times += struct.pack(">qi", largest, reached - base)
                    last_time, last_reached = largest, reached
        end += entry.size
    if largest > last_time:
        times += struct.pack(">qi", largest, reached - base)
    return offsets, times, end


@pytest.mark.slow
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_rebuild_is_what_a_loop_over_the_entries_gives(
    generation: str, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [{"compression": "none"}, {"compression": "gzip"}, {"compression": "lz4"}]
    for number in range(120):
        monkeypatch.setattr("kts.segment.rebuild._ROWS_AT_ONCE", rng.choice([1, 7, 4096]))
        monkeypatch.setattr("kts.segment.entries.SLICE_BYTES", rng.choice([400, 3000, 2**22]))
        base = offset = rng.choice([0, 5, 2**40])
        log, spread = b"", rng.choice([0, 30, 5000])
        for step in range(rng.randrange(1, 60)):
            offset += rng.choice([0, 0, 0, 1, 100])
            count, magic = rng.randrange(1, 7), rng.choice([0, 1, 2])
            time = START_MS + 40 * step if rng.random() < 0.95 else -1
            log += made_set(rng, magic, offset, count, time, spread if time > 0 else 0, **rng.choice(kinds))
            offset += count
        if rng.random() < 0.5:
            log = spoiled(log, rng)
        path = tmp_path / f"{number}.log"
        path.write_bytes(log)
        config = IndexConfig(rng.choice([0, 100, 700, 4096]), rng.choice([24, 60, 4096]), Behaviour.of(generation))
        found = rebuilt(path, base, **config._asdict())
        expected = slow_rebuild(log, base, config)
        assert (found.offset_index, found.time_index, found.valid_bytes) == expected, f"{number}: {config} {found}"
        assert (found.reason is None) == (found.valid_bytes == len(log))
        assert found.batches == sum(entry.position < found.valid_bytes for entry in walk(log))


def spoiled(log: bytes, rng: random.Random) -> bytes:
    data = bytearray(log)
    how = rng.randrange(5)
    if how == 0:
        return log[: rng.randrange(len(log))]
    if how == 1:
        return log + rng.randbytes(rng.randrange(1, 60))
    if how == 2:
        return log + bytes(rng.randrange(1, 5000))
    if how == 3:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    else:
        entry = rng.choice(walk(log))  # the offset is under no CRC
        struct.pack_into(">q", data, entry.position, rng.choice([0, 3, 2**62, -1]))
    return bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_indexes_that_were_written_live_equal_a_rebuild(
    generation: str, negative: bool, tmp_path: Path, rng: random.Random
) -> None:
    for number in range(25):
        folder = tmp_path / str(number)
        folder.mkdir()
        config = {"index.interval.bytes": rng.choice([0, 300, 4096])}
        config |= {"allow.negative.timestamps": True} if negative else {}
        segment = LogSegment(str(folder), 50, kts.LogConfig.of(config, generation=generation), now_ms=0)
        offset = 50
        for _ in range(rng.randrange(1, 60)):
            magic, count = rng.choice([1, 2]), rng.randrange(1, 6)
            how = {"compression": rng.choice(["gzip", "lz4"])}  # one entry a set, as a rebuild sees them
            if negative:  # -1, which is none, must not come up by chance
                records = made_set(rng, magic, offset, count, rng.choice([-(10**6), 10**6, -2000]), 900, **how)
                time = max(t for t in kts.decode(records, ["timestamp"]).column(0).cast("int64").to_pylist())
                last = walk(records)[-1].offset
                segment.append(records, offset, last, time, last)
            else:
                appended(made_set(rng, magic, offset, count, START_MS, **how)).to(segment)
            offset += count
        config = segment.index_config()
        largest = segment.max_timestamp_so_far
        segment.close()
        found = rebuilt(segment.path, 50, **config._asdict())
        assert (found.offset_index, found.time_index) == index_bytes(segment.path)
        assert (found.largest_timestamp_ms, found.offset_of_largest) == largest
        assert found.next_offset == offset


def test_negative_times_hidden_behind_none_are_found_where_they_count(tmp_path: Path) -> None:
    log = b""
    for offset, times in ((0, [-1, -1]), (2, [-1, -700]), (4, [-900, -1]), (6, [-1, -600])):
        log += kts.encode({"timestamp": times, "value": [b"v", b"w"]}, magic=2, base_offset=offset)
    path = tmp_path / "x.log"
    path.write_bytes(log)
    found = rebuilt(path, index_interval_bytes=0, behaviour=Behaviour.of("3.9", times=TimeRules(before_1970=True)))
    assert found.time_index == struct.pack(">qiqi", -700, 3, -600, 7)
    assert len(found.offset_index) == 3 * 8
    assert (found.largest_timestamp_ms, found.offset_of_largest) == (-600, 7)
    assert rebuilt(path, index_interval_bytes=0).time_index == b""


# --- the report -----------------------------------------------------------------------------------


def three_batches(tmp_path: Path, generation: str = "3.9") -> tuple[LogSegment, list[Entry]]:
    segment = LogSegment(
        str(tmp_path), 0, kts.LogConfig.of({"index.interval.bytes": 0}, generation=generation), now_ms=0
    )
    for offset in range(3):
        table = {"timestamp": [START_MS + offset], "value": [bytes(50)]}
        appended(bytes(kts.encode(table, magic=2, base_offset=offset))).to(segment)
    segment.close()
    return segment, walk(Path(segment.path).read_bytes())


def flip(data: bytearray, entries: list[Entry]) -> bytearray:
    data[entries[1].position + 70] ^= 4
    return data


def far(data: bytearray, entries: list[Entry]) -> bytearray:
    struct.pack_into(">q", data, entries[1].position, 2**31)
    return data


def back(data: bytearray, entries: list[Entry]) -> bytearray:
    struct.pack_into(">q", data, entries[2].position, 0)
    return data


def magic_3(data: bytearray, entries: list[Entry]) -> bytearray:
    data[entries[2].position + 16] = 3
    return data


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize(
    ("spoil", "left", "reason"),
    [
        (lambda data, entries: data[:-5], 2, "is cut, 113 bytes are left"),
        (lambda data, entries: data + bytes(100), 3, "zeros after the last entry"),
        (lambda data, entries: data + b"\0" * 7, 3, "is cut, 7 bytes are left"),
        (flip, 1, "the CRC is wrong"),
        (far, 1, "offset 2147483648 does not fit into the segment"),
        (back, 2, "expected an offset above 1, found 0"),
        (magic_3, 2, "magic"),
        (lambda data, entries: bytearray(), 0, None),
    ],
    ids=["cut", "zeros", "few zeros", "flipped", "far offset", "not rising", "magic", "empty"],
)
def test_what_is_cut_off_is_reported_and_the_rest_is_whole(
    spoil: Callable[[bytearray, list[Entry]], bytearray],
    left: int,
    reason: str | None,
    generation: str,
    tmp_path: Path,
) -> None:
    segment, entries = three_batches(tmp_path, generation)
    data = spoil(bytearray(Path(segment.path).read_bytes()), entries)
    Path(segment.path).write_bytes(data)
    again = LogSegment(str(tmp_path), 0, kts.LogConfig.of(segment.config, generation=generation), now_ms=0)
    end = entries[left - 1].position + entries[left - 1].size if left else 0
    first = again.recover()
    assert first == Recovered(segment.path, end, len(data) - end, first.reason, left)
    assert (first.reason is None) if reason is None else reason in (first.reason or "")
    assert Path(segment.path).read_bytes() == data[:end]
    assert (again.size, again.next_offset()) == (end, left)
    assert again.max_timestamp_so_far == ((START_MS + left - 1, left - 1) if left else (-1, 0))
    indexes = index_bytes(segment.path)
    assert [len(index) for index in indexes] == [8 * max(left - 1, 0), 12 * left - 12 * (left > 1)]
    assert again.recover() == Recovered(segment.path, end, 0, None, left)
    assert index_bytes(segment.path) == indexes
    again.resize_indexes()
    table = {"timestamp": [START_MS + 9], "value": [b"v"]}
    appended(bytes(kts.encode(table, magic=2, base_offset=left))).to(again)
    assert again.next_offset() == left + 1
    again.close()


def test_a_tail_is_sound_or_says_what_is_not(tmp_path: Path) -> None:
    segment, entries = three_batches(tmp_path)
    stem = segment.path.removesuffix(".log")
    names = (segment.path, f"{stem}.index", f"{stem}.timeindex")
    kept = {name: Path(name).read_bytes() for name in names}
    log, offsets, times = names
    end = struct.pack(">qi", START_MS + 2, 2**30 + 2)
    for name, data, fault in (
        (log, kept[log], None),
        (log, kept[log][:-1], "is cut"),
        (log, flip(bytearray(kept[log]), entries[1:]), "the CRC of a batch in the tail is wrong"),
        (offsets, kept[offsets][:-8] + struct.pack(">ii", 7, entries[2].position), "an entry that is not the log's"),
        (offsets, kept[offsets][:-8] + struct.pack(">ii", 2, len(kept[log])), "an entry that is not the log's"),
        (times, kept[times][:-12] + end, f"the time index ends with offset {2**30 + 2}, the log with 2"),
        (times, kept[times], None),
    ):
        Path(name).write_bytes(data)
        found = LogSegment(str(tmp_path), 0, kts.LogConfig.of(segment.config, generation="3.9"), now_ms=0).tail_fault()
        assert found is None if fault is None else fault in (found or ""), (name, fault, found)
        Path(name).write_bytes(kept[name])


def test_who_follows_a_recovery_sees_every_sound_entry_once_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    monkeypatch.setattr("kts.segment.entries.SLICE_BYTES", 700)
    log = b"".join(made_set(rng, 2, 3 * n, 3, START_MS + n) for n in range(40))
    entries = walk(log)
    bad = rng.randrange(1, 40)
    data = bytearray(log)
    data[entries[bad].position + 61] ^= 1
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(data)
    seen: list[bytes] = []
    positions: list[int] = []

    def visit(batches: Batches) -> None:
        seen.append(bytes(batches.records()))
        positions.extend(batches.column("position").tolist())
        for row, position in enumerate(batches.column("position").tolist()):
            assert bytes(batches.entry(row)) == log[position : position + int(batches.column("size")[row])]

    segment = LogSegment(str(tmp_path), 0, now_ms=0)
    report = segment.recover(visit)
    assert b"".join(seen) == log[: entries[bad].position]
    assert positions == [entry.position for entry in entries[:bad]]
    assert (report.position, report.reason) == (entries[bad].position, "the CRC is wrong")
    segment.close()


def test_an_entry_larger_than_a_slice_is_read_and_a_size_that_lies_takes_no_memory(tmp_path: Path) -> None:
    large = kts.encode({"value": [bytes(6 * 2**20)], "timestamp": [7]}, magic=2, batch_bytes=2**24)
    path = tmp_path / "x.log"
    path.write_bytes(large + large[:8] + struct.pack(">i", 2**31 - 20) + large[12:])
    found = rebuilt(path)
    assert (found.valid_bytes, found.batches, found.largest_timestamp_ms) == (len(large), 1, 7)
    assert found.reason == f"an entry of {2**31 - 8} bytes is cut, {len(large)} bytes are left"


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    batch = bytearray(kts.encode({"value": [bytes(16000)], "timestamp": [START_MS]}, magic=2, batch_bytes=2**20))
    path = tmp_path / "x.log"
    with path.open("wb") as file:
        for offset in range(4000):
            struct.pack_into(">q", batch, 0, offset)
            file.write(batch)
    rebuilt(path)
    tracemalloc.start()
    try:
        found = rebuilt(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.batches == 4000
    assert peak < 8 * 2**20


# --- what brokers did -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.10.2.2", "3.9.2", "4.3.1"])
def test_a_killed_brokers_segments_are_recovered_as_it_did_itself(version: str, tmp_path: Path) -> None:
    folder = data_root() / "golden" / version / "killed"
    with tarfile.open(folder / "killed.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    topics = Path(folder / "meta.json").read_text(encoding="utf-8")
    recovered = 0
    for expected in sorted((folder / "recovered").rglob("*.log")):
        directory = tmp_path / "data" / expected.parent.name
        interval = 256 if "gzip" in expected.parent.name else 300
        assert f'"index.interval.bytes": {interval}' in topics
        generation = "0.10.2" if version == "0.10.2.2" else "3.9"
        config = {"index.interval.bytes": interval}
        segment = LogSegment(
            str(directory), int(expected.stem), kts.LogConfig.of(config, generation=generation), now_ms=0
        )
        report = segment.recover()
        assert (report.bytes_cut, report.reason) == (0, None)
        assert Path(segment.path).read_bytes() == expected.read_bytes()
        assert index_bytes(segment.path) == index_bytes(expected)
        recovered += 1
        segment.close()
    assert recovered >= 4


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_batch_that_lacks_its_first_bytes_is_cut_though_its_crc_is_right(generation: str, tmp_path: Path) -> None:
    # A crash kept the end of a write and not the last bytes of the sector it began in: the base offset is 0 then.
    log = b"".join(kts.encode({"value": [b"x" * 40, b"y"]}, base_offset=base) for base in (7, 9))
    path = tmp_path / f"{7:020d}.log"
    path.write_bytes(log[: len(log) // 2] + bytes(8) + log[len(log) // 2 + 8 :])
    found = rebuilt(path, 7, behaviour=Behaviour.of(generation))
    assert (found.valid_bytes, found.next_offset) == (len(log) // 2, 9)
    assert found.reason == "expected an offset above 8, found 0"
    assert rebuilt(path, 7, behaviour=Behaviour.of(generation, shipped=True)).valid_bytes == (
        len(log) // 2 if generation == "3.9" else len(log)
    )
    path.write_bytes(b"\xff" * 8 + log[8:])  # -1 is no unknown offset, as that of a wrapper
    found = rebuilt(path, 0, behaviour=Behaviour.of(generation))
    assert (found.valid_bytes, found.reason) == (0, "expected an offset above -1, found -1")


@pytest.mark.parametrize("damaged", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01", b"\x00\x00\x7f\xff"], ids=bytes.hex)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_an_offset_that_no_crc_covers_stops_no_append_after_a_clean_stop(
    magic: int, damaged: bytes, tmp_path: Path
) -> None:
    """The tail's offsets are checked too: above one another, and within the segment."""
    path = tmp_path / "t-0"
    one = kts.encode({"timestamp": [START_MS], "value": [b"one"]}, magic=magic)
    config = {"message.format.version": "2.0" if magic == 2 else ("0.9.0", "0.10.2")[magic]}
    with kts.Log(path, config) as log:
        log.append(one)
        log.append(one)
    data = bytearray((path / f"{0:020}.log").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4] = damaged
    (path / f"{0:020}.log").write_bytes(data)
    with kts.Log(path, config) as log:
        (found,) = (one for one in log.recovered if one.bytes_cut)
        assert (found.position, found.bytes_cut) == (len(data) // 2, len(data) // 2)
        assert found.aside is not None and Path(found.aside).read_bytes() == data[len(data) // 2 :]
        assert log.append(one).first_offset == 1
        assert kts.decode(log.read(0, 1000).records, ["offset"]).column(0).to_pylist() == [0, 1]
