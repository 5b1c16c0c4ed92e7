"""Reading a range: sizes, positions, transactions, and files that are cut meanwhile."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from support.golden import Golden, golden_partitions
from support.sets.partitions import flip, log_of, offsets

import kts
from kts.dataset.plan import plan
from kts.dataset.reader import read_range

PARTITIONS = golden_partitions()
TRANSACTIONAL = [
    (scenario, name) for scenario, name in PARTITIONS if "readCommittedOffsets" in scenario.meta["partitions"][name]
]

LESS = [".index", ".timeindex", ".txnindex", ".snapshot"]
GONE = {"logs only": LESS, "snapshots gone": [".snapshot"], "txnindex gone": [".txnindex"]}


@pytest.mark.slow
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


@pytest.mark.slow
def test_batches_of_a_file_that_is_cut_meanwhile_end(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    data = b"".join(kts.encode({"timestamp": [5], "value": [bytes(1000)]}, base_offset=i) for i in range(9000))
    path.write_bytes(data)
    reader = kts.open(path).batches()
    first = reader.read_next_batch().num_rows
    with path.open("r+b") as file:
        file.truncate(len(data) - 1500)
    assert 0 < first < first + sum(batch.num_rows for batch in reader) < 9000


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
    damage = [one for one in caught if issubclass(one.category, kts.DamageWarning)]
    assert bool(damage) == (lost["offset"] < stable)
    unstable = [one for one in caught if "ends at the last stable offset" in str(one.message)]
    assert bool(unstable) == (stable < scenario.meta["partitions"][name]["endOffset"])
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
