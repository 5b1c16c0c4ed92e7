"""Exact dumps: what is made of their rows is the log that they came from, or there are no rows."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from support.golden import data_root, golden_logs, scaled
from support.sets import random_logs

import kts
from kts import _codec
from kts.compression import codec_id, compressor
from kts.errors import CorruptRecordError, KtsError
from kts.offline.exact import EXACT_COLUMNS, ExactAppender, ExactBatches, NotExactError, exact_rows, exact_schema

DIRECTORIES = sorted({log.parent for log in golden_logs()})
NAMES = [str(path.relative_to(data_root() / "golden")) for path in DIRECTORIES]


def partition(path: Path) -> kts.PartitionLog:
    log = kts.open(path)
    assert isinstance(log, kts.PartitionLog)
    return log


def all_rows(path: Path) -> pa.Table:
    return pa.Table.from_batches(list(exact_rows(partition(path))), exact_schema())


def made_of(rows: pa.Table, target: Path, piece_rows: int | None = None) -> list[int]:
    """Append rows in pieces; the segments that were left out."""
    batches = ExactBatches()
    with kts.Log(target) as log:
        appender = ExactAppender(log)
        for piece in rows.to_batches(piece_rows):
            for one in batches.add(piece):
                appender.append(one)
        for one in batches.finish():
            appender.append(one)
        appender.finish()
    return appender.left_out


def headers_of(data: bytes) -> pa.RecordBatch:
    """All that headers say and codecs do not choose."""
    return kts.scan_batches(data).drop_columns(["position", "sizeInBytes"])


def records_of(data: bytes) -> pa.RecordBatch:
    return kts.decode(data, kts.ALL_COLUMNS).drop_columns(["position"])


def check_alike(source: Path, target: Path, left_out: list[int]) -> None:
    """The segments are the same: in all bytes, or where batches are compressed in all headers and records."""
    wanted = {path.name: path.read_bytes() for path in source.glob("*.log") if int(path.stem) not in left_out}
    found = {path.name: path.read_bytes() for path in target.glob("*.log")}
    assert found.keys() == wanted.keys()
    for name, data in wanted.items():
        data = data[: kts.valid_bytes(data)]
        plain = not any(kts.scan_batches(data)["codec"].to_pylist())
        if plain:
            assert found[name] == data
        else:
            assert headers_of(found[name]).equals(headers_of(data))
            assert records_of(found[name]).equals(records_of(data))
    for base_offset in left_out:
        assert not (source / f"{base_offset:020}.log").stat().st_size


@pytest.mark.slow  # every directory that a real broker wrote: transactions, compaction, all formats
@pytest.mark.parametrize("source", DIRECTORIES, ids=NAMES)
def test_what_real_brokers_wrote_comes_back(source: Path, tmp_path: Path) -> None:
    target = tmp_path / source.name
    left_out = made_of(all_rows(source), target)
    check_alike(source, target, left_out)
    there, here = partition(source), partition(target)
    assert here.log_end_offset == there.log_end_offset
    assert here.last_stable_offset == there.last_stable_offset


@pytest.mark.slow
def test_random_logs_come_back_from_pieces_of_any_size(rng: random.Random, tmp_path: Path) -> None:
    for number in range(scaled(10, 200)):
        shape = random_logs.shape(rng)
        source, target = tmp_path / f"{number}" / "t-0", tmp_path / f"{number}-again" / "t-0"
        random_logs.write(rng, source, shape)
        rows = all_rows(source)
        left_out = made_of(rows, target, rng.choice((None, 1, 7, 100)))
        assert not left_out, shape
        check_alike(source, target, left_out)


def test_an_empty_batch_and_an_empty_last_segment_have_rows(tmp_path: Path) -> None:
    encoder = _codec.Encoder()
    encoder.empty_batch((16, 5, 7, -1, 99, 3, 9, 1, 4))
    empty = encoder.result()
    source = tmp_path / "a" / "t-0"
    with kts.Log(source) as log:
        log.truncate_fully_and_start_at(5)
        log.append_as_follower(empty)
        log.append_as_follower(kts.encode({"value": [b"v"]}, base_offset=20, partition_leader_epoch=4))
        log.roll()
    rows = all_rows(source)
    assert rows["records"].to_pylist() == [0, 1, None]
    assert rows["offset"].to_pylist() == [None, 20, None]
    assert rows["segment"].to_pylist() == [5, 5, 21]
    assert made_of(rows, tmp_path / "b" / "t-0") == []
    assert (tmp_path / "b" / "t-0" / f"{5:020}.log").read_bytes()[: len(empty)] == empty
    check_alike(source, tmp_path / "b" / "t-0", [])
    assert partition(tmp_path / "b" / "t-0").leader_epochs == [(3, 5), (4, 20)]


def test_a_mark_that_minus_one_is_a_time_stays(tmp_path: Path) -> None:
    source, target = tmp_path / "a" / "t-0", tmp_path / "b" / "t-0"
    data = kts.encode({"timestamp": [-1, None, -1, 5], "value": [b"v"] * 4}, has_timestamp=True)
    made_of(all_rows(log_of(data, source)), target)
    check_alike(source, target, [])
    assert kts.decode((target / f"{0:020}.log").read_bytes(), ["hasTimestamp"])["hasTimestamp"].to_pylist() == [
        *(True, False, True, True)
    ]


def test_a_batch_without_records_states_all_of_its_header() -> None:
    with pytest.raises(ValueError, match="nothing follows"):
        _codec.Encoder().empty_batch((0, None, 7, -1, 99, 3, 9, 1, 4))  # type: ignore[arg-type]


# --- no rows ----------------------------------------------------------------------------------------


def log_of(data: bytes, path: Path) -> Path:
    path.mkdir(parents=True)
    (path / f"{0:020}.log").write_bytes(data)
    return path


def test_a_wrapper_around_several_magics_is_refused(tmp_path: Path) -> None:
    inner = _codec.message(0, 0, 0, -1, b"old") + _codec.message(1, 0, 1, 10, b"new")
    gzip = codec_id("gzip", 1)
    wrapper = _codec.message(1, gzip, 1, 10, compressor(gzip, 1, None)(inner))
    with pytest.raises(KtsError, match="several magics"):
        all_rows(log_of(wrapper, tmp_path / "t-0"))
    assert len(kts.decode(wrapper)) == 2


def test_an_entry_that_would_be_spelled_otherwise_is_refused_with_its_position(tmp_path: Path) -> None:
    good = kts.encode({"value": [b"v"]})
    other = bytearray(kts.encode({"value": [b"v"]}, base_offset=1))
    other[62] = 1  # the attributes of a record, which Kafka does not use
    other[17:21] = _codec.crc32c(bytes(other[21:])).to_bytes(4, "big")
    path = log_of(good + bytes(other), tmp_path / "t-0")
    assert len(kts.decode(good + bytes(other))) == 2
    with pytest.raises(KtsError, match="spelled") as caught:
        all_rows(path)
    assert caught.value.position == len(good)


def test_damage_is_refused_with_its_position_and_a_cut_tail_is_told(tmp_path: Path) -> None:
    good, other = kts.encode({"value": [b"v"]}), bytearray(kts.encode({"value": [b"v"]}, base_offset=1))
    other[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC") as caught:
        all_rows(log_of(good + bytes(other), tmp_path / "t-0"))
    assert caught.value.position == len(good)
    told: list[tuple[str, int]] = []
    cut = log_of(good + bytes(other[:30]), tmp_path / "t-1")
    rows = list(exact_rows(partition(cut), left_out=lambda path, size: told.append((Path(path).name, size))))
    assert sum(batch.num_rows for batch in rows) == 1 and told == [(f"{0:020}.log", 30)]


# --- no batches -------------------------------------------------------------------------------------


def changed(rows: pa.Table, name: str, row: int, value: object) -> pa.Table:
    column = rows[name].to_pylist()
    column[row] = value
    return rows.set_column(rows.column_names.index(name), name, pa.array(column, rows.schema.field(name).type))


@pytest.mark.parametrize("name", [name for name in EXACT_COLUMNS if name not in ("key", "value", "headers")])
def test_a_row_without_a_field_is_named_and_what_lies_before_it_came_out(name: str, tmp_path: Path) -> None:
    data = b"".join(kts.encode({"value": [b"v"] * 3}, base_offset=3 * number) for number in range(3))
    rows = all_rows(log_of(data, tmp_path / "t-0"))
    if name == "createTimestamp":  # follows from the timestamp
        made_of(changed(rows, name, 4, None), tmp_path / "new" / "t-0")
        return
    batches = ExactBatches()
    found = b""
    with pytest.raises(NotExactError) as caught:
        for piece in (*changed(rows, name, 4, None).to_batches(), None):
            for one in batches.add(piece) if piece is not None else batches.finish():
                found += one.data
    assert caught.value.row in (4, 5)
    assert found == data[: len(data) // 3]


def test_a_batch_of_which_rows_are_missing_is_refused(tmp_path: Path) -> None:
    rows = all_rows(log_of(kts.encode({"value": [b"v"] * 3}), tmp_path / "t-0"))
    for kept in (rows.slice(0, 2), rows.slice(1), rows.take([0, 2])):
        with pytest.raises(NotExactError, match="expected 3 rows of its batch, found 2"):
            made_of(kept, tmp_path / "new" / "t-0")


def test_rows_of_a_batch_agree_in_its_fields(tmp_path: Path) -> None:
    rows = all_rows(log_of(kts.encode({"value": [b"v"] * 3}), tmp_path / "t-0"))
    for name in ("producerId", "attributes", "maxTimestamp", "partition"):
        with pytest.raises(NotExactError, match="rows of one batch differ"):
            made_of(changed(rows, name, 1, 1), tmp_path / "new" / "t-0")
