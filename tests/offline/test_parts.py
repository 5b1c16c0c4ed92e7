"""A partition that is worked on in parts gives what it gives as a whole, or says that it cannot."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.golden import golden
from support.tiered import session

import kts
from kts.dataset.partition import NotInParts, PartitionLog
from kts.errors import CorruptRecordError
from kts.offline.reindex import generation_of, reindex
from kts.offline.timestamps import Timestamps, count_timestamps
from kts.offline.verify import verify_joined, verify_part, verify_partition
from kts.segment.rebuild import IndexConfig

PARTITIONS = [("demo", "orders", name) for name in ("orders-0", "orders-1", "orders-2")] + [
    ("demo", "clicks", "clicks-0")
]


@pytest.fixture(params=PARTITIONS, ids=lambda one: one[2])
def partition(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    where, scenario, name = request.param
    return Path(shutil.copytree(golden(where, scenario).partition_dir(name), tmp_path / name))


def damaged(partition: Path, chance: random.Random) -> None:
    """Do one kind of harm to one file."""
    log = chance.choice(sorted(partition.glob("*.log")))
    data = bytearray(log.read_bytes())
    kind = chance.choice(["byte", "cut", "index", "no index", "gone", "epochs", "snapshot", "many"])
    if kind == "byte":
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del data[chance.randrange(len(data)) :]
    elif kind == "many":  # more than are listed of a kind in a file
        for at in range(20, len(data), 200):
            data[at] ^= 1
    log.write_bytes(data)
    index = log.with_suffix(chance.choice([".index", ".timeindex"]))
    if kind == "index" and index.exists():
        index.write_bytes(bytes(reversed(index.read_bytes())))
    elif kind == "no index":
        index.unlink(missing_ok=True)
    elif kind == "gone" and len(list(partition.glob("*.log"))) > 2:
        log.unlink()
    elif kind == "epochs":
        (partition / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 1000000\n")
    elif kind == "snapshot":
        (partition / f"{10**9:020}.snapshot").write_bytes(b"x")


def cuts(chance: random.Random, count: int) -> list[int]:
    """Sizes of parts, so many segments in all."""
    sizes = list[int]()
    while left := count - sum(sizes):
        sizes.append(chance.randint(1, left))
    return sizes


def damages(
    partition: Path, tmp_path: Path, chance: random.Random
) -> Iterator[tuple[PartitionLog, list[PartitionLog]]]:
    """Sixty random damages, one upon the other up to three, and the log in parts, each time cut anew."""
    for number in range(20):
        copy = Path(shutil.copytree(partition, tmp_path / str(number) / partition.name))
        for _ in range(3):
            damaged(copy, chance)
            log = kts.open_partition(copy)
            yield log, log.parts(cuts(chance, len(log.segments)))


def test_parts_find_what_the_whole_finds(partition: Path, tmp_path: Path) -> None:
    kinds, listed = set[str](), 0
    for log, parts in damages(partition, tmp_path, random.Random(partition.name)):
        whole = list(verify_partition(log, True))
        assert list(verify_joined(log, [verify_part(part, True) for part in parts])) == whole, parts
        kinds |= {one.kind for one in whole}
        listed += sum("more of this kind" in one.message for one in whole)
    assert len(kinds) >= 6 and listed > 0, kinds


def test_parts_rebuild_what_the_whole_rebuilds(partition: Path, tmp_path: Path) -> None:
    states = set[str]()
    for log, parts in damages(partition, tmp_path, random.Random(partition.name)):
        whole = list(reindex(log, IndexConfig()))
        assert [found for part in parts for found in reindex(part, IndexConfig())] == whole, parts
        states |= {index.state for found in whole for index in found.indexes}
    assert len(states) >= 3, states


def counted(logs: list[PartitionLog]) -> Timestamps | str:
    """What is counted, or the error."""
    made = Timestamps()
    try:
        for log in logs:
            made.add(count_timestamps(log))
    except CorruptRecordError as error:
        return str(error)
    return made


def test_parts_count_what_the_whole_counts(partition: Path, tmp_path: Path) -> None:
    outcomes = set[type]()
    for log, parts in damages(partition, tmp_path, random.Random(partition.name)):
        try:
            found = counted(parts)
        except NotInParts:
            continue
        assert found == counted([log]), parts
        outcomes.add(type(found))
    assert outcomes == {Timestamps, str}


def test_parts_of_segments_that_overlap_count_each_record_once(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", {"segment.bytes": 500}) as log:
        log.append_rows({"value": [bytes(50)] * 60}, compression="none")
    first, second, *_ = sorted((tmp_path / "t-0").glob("*.log"))
    first.write_bytes(first.read_bytes() + second.read_bytes())
    with pytest.warns(kts.KtsWarning, match="each offset is read once"):
        whole = kts.open_partition(tmp_path / "t-0")
        parts = whole.parts([1, len(whole.segments) - 1])
        assert sum(count_timestamps(part).records for part in parts) == count_timestamps(whole).records == 60


def test_a_part_is_of_the_generation_of_the_logs_first_entry(tmp_path: Path) -> None:
    for version in ("0.10.2", "3.0"):
        with kts.Log(tmp_path / "t-0", {"message.format.version": version, "segment.bytes": 500}) as log:
            log.append_rows({"value": [bytes(50)] * 20})
            log.roll()
    whole = kts.open_partition(tmp_path / "t-0")
    parts = whole.parts([1] * len(whole.segments))
    assert {generation_of(part) for part in parts} == {generation_of(whole)} == {"0.10.2"}


def test_transactions_need_the_whole() -> None:
    """What a part says of them depends on those before it."""
    log = kts.open_partition(session("aiven-zstd-encrypted").data / "txn-0")
    first, *others = log.parts([1] * len(log.segments))
    assert others
    with pytest.raises(NotInParts):
        verify_part(first)
    assert list(reindex(first, IndexConfig()))  # nothing lies before it
    with pytest.raises(NotInParts):
        list(reindex(others[0], IndexConfig()))
