"""kts.scan: ranges, columns, damage, arguments; every answer also computed here from the whole log."""

from __future__ import annotations

import pickle
import random
import struct
import warnings
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
from support.coordinators import broker
from support.golden import RECORD_COLUMNS, Golden, Row, golden_partitions, rows, scaled
from support.sets.partitions import flip, log_of, offsets

import kts

PARTITIONS = golden_partitions()


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
    for _ in range(scaled(2, 10)):
        options: dict[str, Any] = {
            "log_start_offset": log_start,
            "batch_bytes": rng.choice([1, 700, 4 << 20]),
            "views": rng.random() < 0.5,
            "unit": "ms",
        }
        first, last = sorted(rng.randint(expected[0].offset, expected[-1].offset + 2) for _ in "ab")
        found = scanned(path, starting_offsets=first, ending_offsets=last, **options)
        assert found == [row for row in expected if first <= row.offset < last]
        start, end = sorted(rng.choice(times) + rng.randint(-1, 1) for _ in "ab")
        found = scanned(path, starting_timestamp=start, ending_timestamp=end, allowed_lateness=None, **options)
        assert found == [row for row in expected if start <= row.timestamp < end]
        from_offset = next((offset for offset, timestamp in offsets if timestamp >= start), 2**63)
        to_offset = next((offset for offset, timestamp in offsets if timestamp >= end), 2**63)
        found = scanned(path, starting_timestamp=start, ending_timestamp=end, strict_time_range=False, **options)
        assert found == [row for row in expected if from_offset <= row.offset < to_offset]


def test_times_are_exact_or_mean_what_they_mean_in_sparks_kafka_source(tmp_path: Path) -> None:
    path, loose = log_of(tmp_path, [100, 200, 300, 150, 400, 250, 500]), {"strict_time_range": False}
    assert offsets(path, starting_timestamp=150, **loose) == [1, 2, 3, 4, 5, 6]
    assert offsets(path, starting_timestamp=150, ending_timestamp=300, **loose) == [1]
    assert offsets(path, ending_timestamp=300, **loose) == [0, 1]
    assert offsets(path, starting_timestamp=501, **loose) == []
    assert offsets(path, starting_timestamp=301, ending_timestamp=999, **loose) == [4, 5, 6]
    assert offsets(path, starting_timestamp=200, ending_timestamp=200, **loose) == []
    assert offsets(path, starting_timestamp=150, ending_timestamp=300) == [1, 3, 5]
    assert offsets(path, ending_timestamp=200) == [0, 3]
    assert offsets(path, starting_timestamp=250) == [2, 4, 5, 6]


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
    assert offsets(path, starting_timestamp=within - timedelta(microseconds=2)) == [1, 2]
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
        table = kts.scan(path, columns=["offset"], on_error="skip").read_all()  # here: the warning names this line
    assert table.column(0).to_pylist() == left
    [warned] = [one for one in caught if issubclass(one.category, kts.KtsWarning)]  # not of garbage of other tests
    assert warned.filename == __file__
    said = str(warned.message)
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


@pytest.mark.slow
def test_a_cut_tail_is_left_out_and_told_at_every_byte(tmp_path: Path) -> None:
    path, positions = one_file(tmp_path)
    data = path.read_bytes()
    for cut in [*range(1, positions[1]), *range(positions[8], positions[10] + 1)]:
        path.write_bytes(data[:cut])
        whole = max(i for i, p in enumerate(positions) if p <= cut)
        left = cut - positions[whole]
        for on_error in ("raise", "skip"):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                assert offsets(path, on_error=on_error) == list(range(3 * whole))
            where = f"{path}: {left} bytes at position {positions[whole]} are left out: "
            assert [str(one.message).startswith(where) for one in told] == [True] * (left > 0), cut
            assert all(one.category is kts.KtsWarning for one in told)


def test_a_tail_that_a_writer_completes_meanwhile_is_not_told(tmp_path: Path) -> None:
    path, positions = one_file(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: positions[9] + 20])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader = kts.scan(path, columns=["offset"], batch_bytes=1)
        found = [reader.read_next_batch()]
        path.write_bytes(data[: positions[10]])
        found += list(reader)
    assert sum(batch.num_rows for batch in found) in (27, 30)


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
    by_offsets = {"starting_timestamp": 2, "ending_timestamp": 3, "strict_time_range": False}
    assert offsets(path, verify_crc=False, **by_offsets) == [1]
    assert offsets(path, verify_crc=False, starting_timestamp=2, ending_timestamp=3) == list(range(1, 30, 3))
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
    with pytest.warns(UserWarning, match="each offset is read once"):
        offsets(overlapping)


def test_segments_that_overlap_give_each_offset_once_and_a_warning(tmp_path: Path) -> None:
    directory = log_of(tmp_path, [1, 2, 3, 4, 5, 6], per_segment=3)
    again = kts.encode({"timestamp": [3], "value": [b"2"]}, base_offset=3)
    with (directory / f"{0:020}.log").open("ab") as file:
        file.write(again)
    with pytest.warns(UserWarning, match="starts at offset 3, but the one before it ends with 3"):
        assert offsets(directory) == [0, 1, 2, 3, 4, 5]


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
        ({"starting_timestamp": "soon"}, ValueError, "starting_timestamp.*ISO 8601"),
        ({"starting_timestamp": b"2026-01-01"}, TypeError, "starting_timestamp"),
        ({"ending_timestamp": 2**63}, ValueError, "ending_timestamp"),
        ({"ending_timestamp": 5, "unit": "min"}, ValueError, "unit.*s, ms, us, ns"),
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


# --- decoders of internal topics ------------------------------------------------------------------


def test_a_decoder_reads_its_topic_of_a_directory_and_partitions_given_by_their_path() -> None:
    folder = broker("4.3.1")
    for decoder, topic in (("offsets", "__consumer_offsets"), ("transactions", "__transaction_state")):
        found = kts.scan(folder, decoder=decoder).read_all()
        assert {*found["topic"].to_pylist()} == {topic}
        assert found.schema.names[:4] == ["topic", "partition", "offset", "timestamp"]
        assert found.schema.names[-2:] == ["key", "value"]
        raw = kts.scan(folder, topics=[topic], columns=["partition", "offset", "key", "value"]).read_all()
        assert found.select(raw.schema.names) == raw
        assert kts.scan(folder / f"{topic}-0", decoder=decoder).read_all().num_rows > 0
        for options in ({"views": True, "columns": found.schema.names[:-2]}, {"batch_bytes": 1}):
            again = kts.scan(folder, decoder=decoder, **options).read_all()
            assert again == found.select(again.schema.names)
    with pytest.raises(kts.UnknownTopicOrPartitionError, match="there is no topic __transaction_state in"):
        kts.scan(broker("0.10.2.2"), decoder="transactions")


def test_columns_of_a_decoder_go_with_those_of_records_and_need_the_decoder() -> None:
    folder = broker("3.9.2")
    columns = ["magic", "group", "offset", "members", "timestampType"]
    found = kts.scan(folder, decoder="offsets", columns=columns, include_control=True).read_all()
    assert found.schema.names == columns
    markers = found.filter(pa.compute.is_null(found["group"]))
    assert 0 < markers.num_rows < found.num_rows
    for wrong in ({"columns": ["group"]}, {"decoder": "transactions", "columns": ["group"]}):
        with pytest.raises(ValueError, match="unknown column 'group'"):
            kts.scan(folder, **wrong)
    with pytest.raises(
        ValueError, match="decoder: expected one of offsets, transactions, share, metadata, found 'group'"
    ):
        kts.scan(folder, decoder="group")


def test_a_record_that_cannot_be_decoded_is_raised_after_those_before_it_or_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-3"
    sound = kts.scan(broker("3.9.2") / "__consumer_offsets-0", columns=["key", "value"]).read_all()
    whole = pa.concat_tables([sound, pa.table({"key": [b"", b"\0\1"], "value": [b"v", b"v"]}), sound])
    with kts.Log(folder) as log:
        log.append(kts.encode(whole.combine_chunks().to_batches()[0]))
    columns = ["offset", "group"]
    reader = kts.scan(folder, decoder="offsets", columns=columns)
    found: list[int] = []
    with pytest.raises(kts.CorruptRecordError, match="offset 3 of __consumer_offsets-3 is not a record of") as caught:
        for batch in reader:
            found += batch["offset"].to_pylist()
    assert found == [0, 1, 2]
    assert (caught.value.path, caught.value.position, caught.value.offset) == (str(next(folder.glob("*.log"))), 0, 3)
    with pytest.warns(kts.KtsWarning, match="offset 3 of .* is left out, and 1 more after it: key: expected"):
        rest = kts.scan(folder, decoder="offsets", columns=columns, on_error="skip").read_all()
    assert rest["offset"].to_pylist() == [0, 1, 2, 5, 6, 7]
    assert {*rest["group"].to_pylist()} == {"readers"}
