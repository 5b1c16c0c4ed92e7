"""kts.scan: ranges, isolation, damage, batch sizes, arguments; every answer also computed here from the whole log."""

from __future__ import annotations

import pickle
import random
import shutil
import struct
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.golden import RECORD_COLUMNS, Golden, Row, golden_partitions, rows

import kts
from kts.dataset.plan import SegmentRange, plan, resolve_range
from kts.dataset.reader import read_range
from kts.offline.verify import verify

PARTITIONS = golden_partitions()
TRANSACTIONAL = [
    (scenario, name) for scenario, name in PARTITIONS if "readCommittedOffsets" in scenario.meta["partitions"][name]
]

LESS = [".index", ".timeindex", ".txnindex", ".snapshot"]
GONE = {"logs only": LESS, "snapshots gone": [".snapshot"], "txnindex gone": [".txnindex"]}


def scanned(path: Any, **options: Any) -> list[Row]:
    return rows(kts.scan(path, **options).read_all().select(RECORD_COLUMNS))


def everything(path: Any, log_start: int) -> list[tuple[int, int]]:
    """(offset, timestamp) of all records, control records too."""
    columns = ["offset", "timestamp"]
    table = kts.scan(path, columns=columns, include_control=True, log_start_offset=log_start).read_all()
    return list(zip(table.column(0).to_pylist(), table.column(1).cast(pa.int64()).to_pylist(), strict=True))


# --- ranges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scenario", "name"), PARTITIONS, ids=str)
def test_every_range_is_what_a_filter_of_the_whole_log_gives(scenario: Golden, name: str, rng: random.Random) -> None:
    path, log_start = scenario.partition_dir(name), scenario.log_start_offset(name)
    expected = scenario.expected(name)
    assert scanned(path, log_start_offset=log_start) == expected
    if not expected:
        return
    offsets = everything(path, log_start)
    times = [row.timestamp for row in expected]
    for _ in range(4):
        options: dict[str, Any] = {
            "log_start_offset": log_start,
            "batch_bytes": rng.choice([1, 700, 4 << 20]),
            "views": rng.random() < 0.5,
        }
        first, last = sorted(rng.randint(expected[0].offset, expected[-1].offset + 2) for _ in "ab")
        found = scanned(path, starting_offsets=first, ending_offsets=last, **options)
        assert found == [row for row in expected if first <= row.offset < last]
        start, end = sorted(rng.choice(times) + rng.randint(-1, 1) for _ in "ab")
        found = scanned(path, starting_timestamp=start, ending_timestamp=end, strict_time_range=True, **options)
        assert found == [row for row in expected if start <= row.timestamp < end]
        from_offset = next((offset for offset, timestamp in offsets if timestamp >= start), 2**63)
        to_offset = next((offset for offset, timestamp in offsets if timestamp >= end), 2**63)
        found = scanned(path, starting_timestamp=start, ending_timestamp=end, **options)
        assert found == [row for row in expected if from_offset <= row.offset < to_offset]


def log_of(tmp_path: Path, times: list[int], name: str = "t-0", per_segment: int = 3, **options: Any) -> Path:
    """A partition of single-record batches, without index files."""
    directory = tmp_path / name
    directory.mkdir(parents=True)
    for offset, ms in enumerate(times):
        with (directory / f"{offset - offset % per_segment:020}.log").open("ab") as file:
            file.write(kts.encode({"timestamp": [ms], "value": [b"%d" % offset]}, base_offset=offset, **options))
    return directory


def offsets(path: Any, **options: Any) -> list[int]:
    return kts.scan(path, columns=["offset"], **options).read_all().column(0).to_pylist()


def test_times_mean_what_they_mean_in_sparks_kafka_source(tmp_path: Path) -> None:
    path = log_of(tmp_path, [100, 200, 300, 150, 400, 250, 500])
    assert offsets(path, starting_timestamp=150) == [1, 2, 3, 4, 5, 6]
    assert offsets(path, starting_timestamp=150, ending_timestamp=300) == [1]
    assert offsets(path, ending_timestamp=300) == [0, 1]
    assert offsets(path, starting_timestamp=501) == []
    assert offsets(path, starting_timestamp=301, ending_timestamp=999) == [4, 5, 6]
    assert offsets(path, starting_timestamp=200, ending_timestamp=200) == []
    assert offsets(path, starting_timestamp=150, ending_timestamp=300, strict_time_range=True) == [1, 3, 5]
    assert offsets(path, ending_timestamp=200, strict_time_range=True) == [0, 3]
    assert offsets(path, starting_timestamp=250, strict_time_range=True) == [2, 4, 5, 6]


def test_offsets_and_words(tmp_path: Path) -> None:
    log_of(tmp_path, [5] * 7)
    log_of(tmp_path, [5] * 4, name="t-1")
    both = {"t": {0: 2, 1: 3}}
    assert offsets(tmp_path, starting_offsets=both) == [2, 3, 4, 5, 6, 3]
    assert offsets(tmp_path, ending_offsets=both) == [0, 1, 0, 1, 2]
    assert offsets(tmp_path, starting_offsets={"t": {1: -1}}) == [0, 1, 2, 3, 4, 5, 6]
    assert offsets(tmp_path, starting_offsets=-2, ending_offsets=-1, partitions=[1]) == [0, 1, 2, 3]
    assert offsets(tmp_path, starting_offsets="latest") == []
    assert offsets(tmp_path, ending_offsets=-2) == []
    assert offsets(tmp_path, starting_offsets=5, ending_offsets=100) == [5, 6]
    assert offsets(tmp_path, starting_offsets=6, starting_timestamp=5, partitions={"t": [1]}) == [0, 1, 2, 3]


def test_datetimes_are_taken_with_their_zone(tmp_path: Path) -> None:
    start = datetime(2026, 1, 1, 10, 0, tzinfo=UTC)
    ms = int(start.timestamp()) * 1000
    path = log_of(tmp_path, [ms - 1, ms, ms + 1])
    assert offsets(path, starting_timestamp=start) == [1, 2]
    assert offsets(path, ending_timestamp=start.astimezone(timezone(timedelta(hours=-7)))) == [0]
    with pytest.raises(ValueError, match="starting_timestamp.*aware"):
        kts.scan(path, starting_timestamp=datetime(2026, 1, 1))
    within = start + timedelta(microseconds=1)
    assert offsets(path, starting_timestamp=within) == [2]
    assert offsets(path, ending_timestamp=within) == [0, 1]
    assert offsets(path, starting_timestamp=within - timedelta(microseconds=2), strict_time_range=True) == [1, 2]
    before_1970 = datetime(1969, 12, 31, 23, 59, 59, 999500, tzinfo=UTC)
    assert offsets(path, ending_timestamp=before_1970) == []


# --- columns --------------------------------------------------------------------------------------


def test_columns_have_the_types_and_order_that_were_asked_for(tmp_path: Path) -> None:
    path = log_of(tmp_path, [5] * 4, name="my.topic-3")
    reader = kts.scan(path)
    assert reader.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    assert reader.schema.field("topic").type == pa.string() and reader.schema.field("partition").type == pa.int32()
    assert reader.read_all().column("topic").to_pylist() == ["my.topic"] * 4
    names = ["partition", *reversed(kts.ALL_COLUMNS), "topic"]
    table = kts.scan(path, columns=names).read_all()
    assert table.column_names == names and table.column("partition").to_pylist() == [3] * 4
    assert kts.scan(path, columns=[]).schema.names == []
    assert sum(batch.num_rows for batch in kts.scan(path, columns=[])) == 4


def test_positions_are_those_in_the_file(tmp_path: Path) -> None:
    path = log_of(tmp_path, list(range(3000)), per_segment=2000)
    table = kts.scan(path, columns=["position", "offset"], batch_bytes=5000).read_all()
    sizes = [len(kts.encode({"timestamp": [0], "value": [b"%d" % offset]})) for offset in range(3000)]
    expected = [sum(sizes[offset - offset % 2000 : offset]) for offset in range(0, 3000, 97)]
    assert table.column("position").to_pylist()[::97] == expected
    batches = kts.open(path).batches().read_all()
    assert batches.column("position").to_pylist() == table.column("position").to_pylist()
    assert batches.column("segment").to_pylist() == [0] * 2000 + [2000] * 1000
    assert batches.column_names[-1] == "segment" and batches.schema.field("segment").type == pa.int64()


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4"])
def test_batches_have_about_the_size_that_was_asked_for(compression: str, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    with (directory / f"{0:020}.log").open("wb") as file:
        for i in range(200):
            data = {"timestamp": range(100), "value": [bytes([i]) * 200] * 100}
            file.write(kts.encode(data, base_offset=i * 100, compression=compression, batch_bytes=1 << 20))
    sizes = [batch.nbytes for batch in kts.scan(directory, batch_bytes=400_000)]
    assert len(sizes) > 5 and max(sizes) < 900_000
    assert sorted(sizes)[len(sizes) // 2] > 200_000
    assert offsets(directory, batch_bytes=400_000) == list(range(20_000))


# --- transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("scenario", "name"), TRANSACTIONAL, ids=str)
@pytest.mark.parametrize("how", ["as it is", "logs only", "snapshots gone", "damaged txnindex", "txnindex gone"])
def test_read_committed_is_what_a_consumer_read(
    scenario: Golden, name: str, how: str, writable: Callable[[Golden], Golden]
) -> None:
    directory = writable(scenario).partition_dir(name)
    for path in directory.iterdir():
        if path.suffix in GONE.get(how, []):
            path.unlink()
        elif how == "damaged txnindex" and path.suffix == ".txnindex":
            path.write_bytes(path.read_bytes()[:-1])
    expected = scenario.meta["partitions"][name]["readCommittedOffsets"]
    log_start = scenario.log_start_offset(name)
    assert offsets(directory, isolation="read_committed", log_start_offset=log_start) == expected
    middle = expected[len(expected) // 2] if expected else 0
    assert offsets(directory, isolation="read_committed", starting_offsets=middle, log_start_offset=log_start) == [
        offset for offset in expected if offset >= middle
    ]
    log = kts.open(directory)
    assert isinstance(log, kts.PartitionLog)
    assert log.last_stable_offset == scenario.meta["partitions"][name]["lastStableOffset"]


@pytest.mark.parametrize(("scenario", "name"), TRANSACTIONAL[:3], ids=str)
def test_read_committed_goes_on_behind_damage_when_skipping(
    scenario: Golden, name: str, writable: Callable[[Golden], Golden]
) -> None:
    directory = writable(scenario).partition_dir(name)
    for path in directory.iterdir():
        if path.suffix in LESS:
            path.unlink()
    log_start = scenario.log_start_offset(name)
    table = kts.scan(directory, columns=["offset", "transactional", "position"], log_start_offset=log_start).read_all()
    lost = next(row for row in table.to_pylist() if not row["transactional"])
    flip(scenario_log(directory, lost["offset"]), lost["position"] + 50)
    expected = [o for o in scenario.meta["partitions"][name]["readCommittedOffsets"] if o != lost["offset"]]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = offsets(directory, isolation="read_committed", on_error="skip", log_start_offset=log_start)
    stable = scenario.meta["partitions"][name]["lastStableOffset"]
    assert bool(caught) == (lost["offset"] < stable)
    assert set(found) <= set(expected) and len(found) >= len(expected) - 3


def scenario_log(directory: Path, offset: int) -> Path:
    """The segment that holds an offset."""
    return max(path for path in directory.glob("*.log") if int(path.stem) <= offset)


@pytest.mark.parametrize(("scenario", "name"), TRANSACTIONAL[:3], ids=str)
def test_an_abort_that_no_txnindex_lists_is_not_silent(
    scenario: Golden, name: str, writable: Callable[[Golden], Golden]
) -> None:
    directory = writable(scenario).partition_dir(name)
    for path in directory.glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[:-34])  # without its last entry
    with pytest.raises(kts.CorruptIndexError, match=r"aborted at offset \d+ is not in the \.txnindex") as error:
        offsets(directory, isolation="read_committed")
    assert error.value.path and error.value.offset is not None
    with pytest.warns(UserWarning, match="is not in the .txnindex"):
        offsets(directory, isolation="read_committed", on_error="skip")
    for path in directory.glob("*.txnindex"):
        path.unlink()
    expected = scenario.meta["partitions"][name]["readCommittedOffsets"]
    for options in ({}, {"batch_bytes": 1}, {"views": True}, {"columns": ["offset"]}):
        table = kts.scan(directory, isolation="read_committed", **options).read_all()
        assert table.column("offset").to_pylist() == expected
    log = kts.open(directory)
    assert isinstance(log, kts.PartitionLog)
    for first in range(0, expected[-1] + 1, 3):
        parts = plan(log, first, 2**63 - 1, range_bytes=1, isolation="read_committed")
        found = [
            offset
            for part in parts
            for batch in read_range(part, columns=["offset"], isolation="read_committed")
            for offset in batch.column(0).to_pylist()
        ]
        assert found == [offset for offset in expected if offset >= first]


def test_control_records_come_only_when_asked() -> None:
    if not TRANSACTIONAL:
        pytest.fail("the test data has no transactional scenario")
    scenario, name = TRANSACTIONAL[0]
    path = scenario.partition_dir(name)
    table = kts.scan(path, columns=["offset", "control"], include_control=True).read_all()
    control = [row["offset"] for row in table.to_pylist() if row["control"]]
    assert control and not set(control) & set(offsets(path))
    assert sorted([*offsets(path), *control]) == table.column(0).to_pylist()


# --- damage ---------------------------------------------------------------------------------------


def one_file(tmp_path: Path, magic: int = 2, **options: Any) -> tuple[Path, list[int]]:
    """A lone segment of ten batches of three records; their positions and the end."""
    parts = [
        kts.encode(
            {"timestamp": [1, 2, 3], "value": [b"%d-%d" % (i, n) for n in range(3)]},
            base_offset=3 * i, magic=magic, **options,
        )
        for i in range(10)
    ]  # fmt: skip
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(parts))
    return path, [sum(map(len, parts[:i])) for i in range(11)]


def flip(path: Path, position: int, value: int = 0xFF) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= value
    path.write_bytes(data)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(("field", "value"), [(30, 1), (16, 0x40), (8, 0x7F), (10, 0x11), (9, 0x80), (8, 0x80)])
def test_damage_in_the_middle_costs_that_batch_only_and_is_named(
    field: int, value: int, on_error: str, tmp_path: Path
) -> None:
    """CRC, magic, and sizes: too large for the file, too large for the batch, negative."""
    path, positions = one_file(tmp_path)
    flip(path, positions[4] + field, value)
    left = [offset for offset in range(30) if offset // 3 != 4]
    if on_error == "raise":
        found: list[int] = []
        with pytest.raises(kts.CorruptRecordError) as error:
            for batch in kts.scan(path, columns=["offset"], batch_bytes=1):
                found += batch.column(0).to_pylist()
        assert found == left[:12]
        assert error.value.position == positions[4] and error.value.path == str(path)
        assert pickle.loads(pickle.dumps(error.value)).position == positions[4]
        return
    with pytest.warns(UserWarning, match="damaged and left out") as caught:
        assert offsets(path, on_error="skip") == left
    assert len(caught) == 1 and caught[0].filename == __file__
    said = str(caught[0].message)
    assert str(path) in said and said.count("position") == 1 and f"position {positions[4]}" in said
    assert f"{positions[5] - positions[4]} bytes" in said


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_damaged_messages_are_skipped_too(magic: int, compression: str, tmp_path: Path) -> None:
    path, positions = one_file(tmp_path, magic=magic, compression=compression)
    flip(path, positions[4] + 20)
    lost = {12, 13, 14} if compression == "gzip" else {12}
    with pytest.warns(UserWarning, match="damaged and left out"):
        assert offsets(path, on_error="skip") == [offset for offset in range(30) if offset not in lost]


def test_garbage_of_any_length_between_batches_is_skipped(tmp_path: Path, rng: random.Random) -> None:
    path, positions = one_file(tmp_path)
    data = path.read_bytes()
    for length in (1, 5, 11, 12, 13, 17, 100, 5000):
        for filler in (bytes(length), rng.randbytes(length), b"\xff" * length):
            path.write_bytes(data[: positions[4]] + filler + data[positions[4] :])
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert offsets(path, on_error="skip") == list(range(30))
            assert len(caught) == 1
            with pytest.raises(kts.CorruptRecordError):
                offsets(path)


def test_damage_everywhere_gives_what_is_left(tmp_path: Path, rng: random.Random) -> None:
    path, positions = one_file(tmp_path)
    data = path.read_bytes()
    for _ in range(60):
        broken = bytearray(data)
        hit = set()
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(data))
            if at - max(p for p in positions if p <= at) >= 8:  # offsets are under no CRC
                broken[at] ^= 1 << rng.randrange(8)
                hit.add(max(i for i, p in enumerate(positions) if p <= at))
        path.write_bytes(broken)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = offsets(path, on_error="skip")
        untouched = [offset for offset in range(30) if offset // 3 not in hit]
        assert [offset for offset in found if offset // 3 not in hit] == untouched
        assert found == sorted(found)


def test_a_cut_tail_is_left_out_silently_at_every_byte(tmp_path: Path) -> None:
    path, positions = one_file(tmp_path)
    data = path.read_bytes()
    for cut in range(positions[8], positions[10] + 1):
        path.write_bytes(data[:cut])
        whole = max(i for i, p in enumerate(positions) if p <= cut)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for on_error in ("raise", "skip"):
                assert offsets(path, on_error=on_error) == list(range(3 * whole))


def test_a_cut_segment_that_others_follow_is_damage(tmp_path: Path) -> None:
    directory = log_of(tmp_path, [5] * 9)
    first = directory / f"{3:020}.log"
    first.write_bytes(first.read_bytes()[:-5])
    with pytest.raises(kts.CorruptRecordError, match="closed segment") as error:
        offsets(directory)
    assert error.value.path == str(first)
    with pytest.warns(UserWarning, match="damaged and left out"):
        assert offsets(directory, on_error="skip") == [0, 1, 2, 3, 4, 6, 7, 8]
    assert offsets(first) == [3, 4]


def test_times_are_found_behind_damage_when_skipping(tmp_path: Path) -> None:
    directory = log_of(tmp_path, [10, 20, 30, 40, 50, 60], per_segment=6)
    path = directory / f"{0:020}.log"
    flip(path, 30)
    with pytest.warns(UserWarning):
        assert offsets(directory, on_error="skip", starting_timestamp=5) == [1, 2, 3, 4, 5]
    assert offsets(directory, on_error="skip", starting_timestamp=35) == [3, 4, 5]
    with pytest.raises(kts.CorruptRecordError):
        offsets(directory, starting_timestamp=35)


def test_verify_crc_false_reads_over_a_wrong_crc_only(tmp_path: Path) -> None:
    path, positions = one_file(tmp_path)
    flip(path, positions[4] + 17)
    with pytest.raises(kts.CorruptRecordError, match="CRC"):
        offsets(path)
    assert offsets(path, verify_crc=False) == list(range(30))
    assert offsets(path, verify_crc=False, starting_timestamp=2, ending_timestamp=3) == [1]
    with pytest.raises(kts.CorruptRecordError, match="CRC"):
        offsets(path, starting_timestamp=4)
    assert offsets(path, verify_crc=False, starting_timestamp=4) == []


def test_a_bomb_is_refused_by_the_setting(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(kts.encode({"value": [bytes(1 << 20)]}, compression="gzip"))
    with pytest.raises(kts.DecompressionLimitError, match="max_decompressed_bytes") as error:
        kts.scan(path, max_decompressed_bytes=1000).read_all()
    assert error.value.path == str(path)


def test_a_wrong_size_that_spans_sound_batches_costs_only_its_own(tmp_path: Path) -> None:
    path, positions = one_file(tmp_path)
    size = positions[6] - positions[4] - 12
    data = bytearray(path.read_bytes())
    data[positions[4] + 8 : positions[4] + 12] = struct.pack(">i", size)
    path.write_bytes(data)
    with pytest.warns(UserWarning, match=f"{positions[5] - positions[4]} bytes at position {positions[4]}"):
        assert offsets(path, on_error="skip") == [offset for offset in range(30) if offset // 3 != 4]


def test_record_sets_in_values_are_not_taken_for_batches(tmp_path: Path) -> None:
    inner = kts.encode({"value": [b"inner"]}, base_offset=4)
    parts = [kts.encode({"value": [inner * 3]}, base_offset=offset) for offset in range(5)]
    parts[2] = parts[2][:-1] + b""
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(parts))
    with pytest.warns(UserWarning):
        assert offsets(path, on_error="skip") == [0, 1, 3, 4]


def test_a_range_in_front_of_damage_is_read_without_error(tmp_path: Path) -> None:
    path, positions = one_file(tmp_path)
    flip(path, positions[6] + 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for on_error in ("raise", "skip"):
            assert offsets(path, ending_offsets=18, on_error=on_error) == list(range(18))
            assert offsets(path, starting_offsets=4, ending_offsets=9, on_error=on_error) == [4, 5, 6, 7, 8]
    with pytest.raises(kts.CorruptRecordError):
        offsets(path, ending_offsets=19)


def test_offsets_out_of_order_are_given_with_a_warning(tmp_path: Path) -> None:
    path, positions = one_file(tmp_path)
    flip(path, positions[4], 0x40)
    with pytest.warns(UserWarning, match=r"offset 4611686018427387916 follows 11 .* not in order"):
        assert len(offsets(path)) == 30
    overlapping = log_of(tmp_path, [1, 2, 3, 4])
    (overlapping / f"{2:020}.log").write_bytes((overlapping / f"{0:020}.log").read_bytes())
    with pytest.warns(UserWarning, match="offset 0 follows 1 .* base offset 2"):
        offsets(overlapping)


def test_segments_that_overlap_give_each_offset_once_and_a_warning(tmp_path: Path) -> None:
    directory = log_of(tmp_path, [1, 2, 3, 4, 5, 6], per_segment=3)
    again = kts.encode({"timestamp": [3], "value": [b"2"]}, base_offset=3)
    with (directory / f"{0:020}.log").open("ab") as file:
        file.write(again)
    with pytest.warns(UserWarning, match="starts at offset 3, but the one before it ends with 3"):
        assert offsets(directory) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("cut", [1, 1000, 5000, 0])
def test_a_file_cut_within_a_batch_while_it_is_read_ends_the_reading(cut: int, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    size = len(kts.encode({"timestamp": [5], "value": [bytes(1000)]}, base_offset=0))
    path.write_bytes(
        b"".join(kts.encode({"timestamp": [5], "value": [bytes(1000)]}, base_offset=i) for i in range(3000))
    )
    left = 1000 * size + cut
    for start in (
        lambda: kts.scan(path, columns=["value"], batch_bytes=50_000),
        lambda: kts.scan(path, batch_bytes=50_000, on_error="skip"),
        lambda: kts.scan(path, views=True, batch_bytes=50_000),
    ):
        copy = path.read_bytes()
        reader = start()
        read = reader.read_next_batch().num_rows
        with path.open("r+b") as file:
            file.truncate(left)
        read += sum(batch.num_rows for batch in reader)
        assert 1000 <= read <= 1000 + left // size
        path.write_bytes(copy)


def test_batches_of_a_file_that_is_cut_meanwhile_end(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    data = b"".join(kts.encode({"timestamp": [5], "value": [bytes(1000)]}, base_offset=i) for i in range(9000))
    path.write_bytes(data)
    reader = kts.open(path).batches()
    first = reader.read_next_batch().num_rows
    with path.open("r+b") as file:
        file.truncate(len(data) - 1500)
    assert 0 < first < first + sum(batch.num_rows for batch in reader) < 9000


# --- parts ---------------------------------------------------------------------------------------


def indexed_log(tmp_path: Path, count: int, interval: int) -> Path:
    """One segment of single-record batches with an offset index as 2.0 and later write it."""
    directory = tmp_path / "t-0"
    directory.mkdir(parents=True)
    position, since, index = 0, 0, b""
    with (directory / f"{0:020}.log").open("wb") as file:
        for offset in range(count):
            data = kts.encode({"timestamp": [1000 + offset], "value": [bytes(80)]}, base_offset=offset)
            if since > interval:
                index += struct.pack(">ii", offset, position)
                since = 0
            file.write(data)
            position += len(data)
            since += len(data)
    (directory / f"{0:020}.index").write_bytes(index)
    return directory


@pytest.mark.parametrize("range_bytes", [None, 1, 1000, 10_000, 10**9])
def test_ranges_are_cut_at_index_entries_and_lose_nothing(range_bytes: int | None, tmp_path: Path) -> None:
    log = kts.open(indexed_log(tmp_path, 500, 1000))
    assert isinstance(log, kts.PartitionLog)
    size = log.segments[0].size_bytes
    for start, end in ((0, 500), (0, 2**63 - 1), (123, 456), (7, 8), (499, 500)):
        parts = plan(log, start, end, range_bytes=range_bytes)
        found: list[int] = []
        for part in parts:
            assert pickle.loads(pickle.dumps(part)) == part
            for batch in read_range(part, columns=["offset"]):
                found += batch.column(0).to_pylist()
        assert found == list(range(start, min(end, 500)))
        assert all(a.end_position == b.start_position for a, b in zip(parts, parts[1:], strict=False))
        read = sum(part.end_position - part.start_position for part in parts)
        assert read <= size * (min(end, 500) - start) / 500 + 2 * 1300
    if range_bytes == 10_000:
        assert 4 < len(plan(log, 0, 500, range_bytes=range_bytes)) <= size // 10_000 + 1
    assert plan(log, 5, 5) == [] and plan(log, 500, 600)[0].end_offset == 600


@pytest.mark.parametrize(("scenario", "name"), PARTITIONS[::3], ids=str)
def test_pieces_of_golden_logs_lose_nothing(scenario: Golden, name: str, rng: random.Random) -> None:
    log = kts.open(scenario.partition_dir(name), log_start_offset=scenario.log_start_offset(name))
    assert isinstance(log, kts.PartitionLog)
    expected = [row.offset for row in scenario.expected(name)]
    end = log.log_end_offset
    for range_bytes in (1, 500, 2000, None):
        first, last = sorted(rng.randint(0, end + 1) for _ in "ab")
        parts = plan(log, first, last, range_bytes=range_bytes)
        found = [
            offset
            for part in parts
            for batch in read_range(part, columns=["offset"])
            for offset in batch.column(0).to_pylist()
        ]
        assert found == [offset for offset in expected if first <= offset < last]


def test_an_index_that_points_into_batches_is_not_believed(tmp_path: Path) -> None:
    directory = indexed_log(tmp_path, 500, 1000)
    index = directory / f"{0:020}.index"
    data = bytearray(index.read_bytes())
    for at in range(7, len(data), 8):
        data[at] ^= 1
    index.write_bytes(data)
    log = kts.open(directory)
    assert isinstance(log, kts.PartitionLog)
    assert log.log_end_offset == 500
    assert offsets(directory, starting_offsets=321, ending_offsets=400) == list(range(321, 400))
    assert [part.start_position for part in plan(log, 321, 400, range_bytes=1000)] == [0]


def test_a_resolved_range_is_plain_offsets(tmp_path: Path) -> None:
    log = kts.open(log_of(tmp_path, [100, 200, 300]))
    assert isinstance(log, kts.PartitionLog)
    assert resolve_range(log) == (0, 2**63 - 1)
    assert resolve_range(log, starting_timestamp=150, ending_timestamp=250) == (1, 2)
    assert resolve_range(log, starting_timestamp=150, ending_timestamp=250, strict_time_range=True) == (1, 2**63 - 1)
    assert resolve_range(log, starting_offset=-1) == (3, 2**63 - 1)
    assert resolve_range(log, starting_timestamp=999, ending_timestamp=150) == (2**63 - 1, 1)


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"columns": ["nope"]}, ValueError, "columns.*nope"),
        ({"columns": "offset"}, TypeError, "columns"),
        ({"columns": ["offset", "offset"]}, ValueError, "columns"),
        ({"isolation": "committed"}, ValueError, "isolation.*read_committed"),
        ({"isolation": 1}, TypeError, "isolation"),
        ({"on_error": "ignore"}, ValueError, "on_error.*skip"),
        ({"strict_time_range": 1}, TypeError, "strict_time_range"),
        ({"include_control": None}, TypeError, "include_control"),
        ({"verify_crc": "no"}, TypeError, "verify_crc"),
        ({"batch_bytes": 0}, ValueError, "batch_bytes"),
        ({"batch_bytes": 1.5}, TypeError, "batch_bytes"),
        ({"max_decompressed_bytes": -1}, ValueError, "max_decompressed_bytes"),
        ({"starting_timestamp": "2026-01-01"}, TypeError, "starting_timestamp"),
        ({"ending_timestamp": 2**63}, ValueError, "ending_timestamp"),
        ({"starting_timestamp": 5, "ending_timestamp": 4}, ValueError, "starting_timestamp.*ending_timestamp"),
        ({"starting_offsets": 5, "ending_offsets": 4}, ValueError, "starting_offsets.*ending_offsets"),
        ({"starting_offsets": -3}, ValueError, "starting_offsets"),
        ({"starting_offsets": "first"}, TypeError, "starting_offsets"),
        ({"ending_offsets": {"t": {0: None}}}, TypeError, "ending_offsets"),
        ({"ending_offsets": {"u": {0: 5}}}, kts.UnknownTopicOrPartitionError, "ending_offsets.*u-0"),
        ({"topics": 5}, TypeError, "topics"),
        ({"topics": [5]}, TypeError, "topics"),
        ({"topics": ["none"]}, kts.UnknownTopicOrPartitionError, "none.*t"),
        ({"partitions": 5}, TypeError, "partitions"),
        ({"partitions": ["0"]}, TypeError, "partitions"),
        ({"partitions": [-1]}, ValueError, "partitions"),
        ({"partitions": [7]}, kts.UnknownTopicOrPartitionError, "partition 7"),
        ({"partitions": {"t": [7]}}, kts.UnknownTopicOrPartitionError, "t-7"),
    ],
)
def test_wrong_arguments_are_refused_at_once_by_name(
    options: dict[str, Any], error: type[Exception], says: str, tmp_path: Path
) -> None:
    log_of(tmp_path, [5])
    with pytest.raises(error, match=says):
        kts.scan(tmp_path, **options)


def test_an_unknown_argument_of_a_log_is_refused_by_its_own_name(tmp_path: Path) -> None:
    log = kts.open(log_of(tmp_path, [5]))
    assert isinstance(log, kts.PartitionLog)
    with pytest.raises(TypeError, match=r"scan\(\).*topics"):
        log.scan(topics=["t"])  # type: ignore[call-arg]


def test_a_piece_says_what_it_is_in_plain_types(tmp_path: Path) -> None:
    log = kts.open(log_of(tmp_path, [5, 6]))
    assert isinstance(log, kts.PartitionLog)
    part = plan(log, 0, 2)[0]
    assert isinstance(part, SegmentRange)
    assert all(isinstance(value, (str, int, tuple)) for value in vars(part).values())
    shutil.rmtree(log.path)
    with pytest.raises(kts.LogStorageError):
        list(read_range(part))


def hostile(kind: str) -> bytes:
    header = struct.pack(">qiibI", 0, 1 << 20, 0, 2, 0) + struct.pack(">hiqqqhii", 0, 0, 5, 5, -1, -1, -1, 1)
    message = struct.pack(">qi", 0, 1 << 19) + bytes(6) + b"\xff" * 8
    return {
        "zeros": bytes(8 << 20),
        "ones": b"\xff" * (8 << 20),
        "noise": random.Random(5).randbytes(8 << 20),
        "batches that claim much": header * ((2 << 20) // len(header)),
        "messages that claim much": message * ((2 << 20) // len(message)),
    }[kind]


@pytest.mark.parametrize("kind", ["zeros", "ones", "noise", "batches that claim much", "messages that claim much"])
def test_no_damage_costs_more_than_its_length(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(hostile(kind) + kts.encode({"value": [b"ok"]}, base_offset=7))
    start = time.process_time()
    with pytest.warns(UserWarning):
        assert offsets(path, on_error="skip") == [7]
    assert time.process_time() - start < 5
    assert list(verify(path))
    assert time.process_time() - start < 10
