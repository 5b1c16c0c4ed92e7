"""A partition that is worked on in parts gives what it gives as a whole."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from support.golden import golden
from support.tiered import session

import kts
from kts.dataset.partition import PartitionLog
from kts.errors import CorruptRecordError
from kts.offline.facts import Facts, facts_of
from kts.offline.findings import Violation
from kts.offline.reindex import SegmentFinding, TransactionIndexes, generation_of, rebuilt_segments, reindex
from kts.offline.timestamps import Timestamps, count_timestamps
from kts.offline.verify import folded, verify_partition
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


def verified(log: PartitionLog, parts: list[PartitionLog], deep: bool = False) -> list[Violation]:
    """What is found in parts, of which the last is read first, and whose facts come from other processes."""
    facts = [pickle.dumps(list(facts_of(part, deep=deep))) for part in reversed(parts)]
    there: list[list[Facts]] = [pickle.loads(one) for one in reversed(facts)]
    return list(folded(log, chain.from_iterable(there)))


def reindexed(parts: list[PartitionLog]) -> list[SegmentFinding]:
    """What is rebuilt in parts, likewise."""
    facts = [pickle.dumps(list(rebuilt_segments(part, IndexConfig()))) for part in reversed(parts)]
    transactions, found = TransactionIndexes(IndexConfig()), list[SegmentFinding]()
    for one in chain.from_iterable(pickle.loads(part) for part in reversed(facts)):
        index = transactions.index_of(one)
        found.append(one.found if index is None else one.found._replace(indexes=(*one.found.indexes, index)))
    return found


@pytest.mark.slow
def test_parts_find_what_the_whole_finds(partition: Path, tmp_path: Path) -> None:
    kinds, listed = set[str](), 0
    for log, parts in damages(partition, tmp_path, random.Random(partition.name)):
        whole = list(verify_partition(log, True))
        assert verified(log, parts, True) == whole, parts
        kinds |= {one.kind for one in whole}
        listed += sum("more of this kind" in one.message for one in whole)
    assert len(kinds) >= 6 and listed > 0, kinds


@pytest.mark.slow
def test_parts_rebuild_what_the_whole_rebuilds(partition: Path, tmp_path: Path) -> None:
    states = set[str]()
    for log, parts in damages(partition, tmp_path, random.Random(partition.name)):
        whole = list(reindex(log, IndexConfig()))
        assert reindexed(parts) == whole, parts
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


@pytest.mark.slow
def test_parts_count_what_the_whole_counts(partition: Path, tmp_path: Path) -> None:
    outcomes = set[type]()
    for log, parts in damages(partition, tmp_path, random.Random(partition.name)):
        found = counted(parts)
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


def rows(producer: int, *, ends: bytes | None = None) -> bytes:
    """A transactional batch, or the marker that ends a transaction: ABORT or COMMIT."""
    columns = {"timestamp": [1], "key": [ends and b"\0\0\0" + ends], "value": [bytes(6)]}
    more = {"producer_id": producer, "producer_epoch": 0, "transactional": True}
    return kts.encode(columns, base_sequence=-1 if ends else 0, control=ends is not None, **more)  # type: ignore[arg-type]


ABORT, COMMIT = b"\0", b"\1"


@pytest.fixture
def transactional(tmp_path: Path) -> Path:
    """Eight segments, and transactions of three producers that begin, end, and go through them."""
    chance = random.Random("transactions")
    with kts.Log(tmp_path / "t-0") as log:
        for _ in range(8):
            for _ in range(chance.randrange(1, 8)):
                producer, ends = chance.randrange(3), chance.choice([None, None, ABORT, COMMIT])
                log.append(rows(producer, ends=ends), origin="replication" if ends is None else "coordinator")
            log.roll()
    return tmp_path / "t-0"


@pytest.mark.slow
def test_transactions_through_parts_are_those_of_the_whole(transactional: Path, tmp_path: Path) -> None:
    """Also where the transaction index lies, a segment is damaged, or the snapshot at the start knows what is open."""
    chance, kinds, states = random.Random("parts"), set[str](), set[str]()
    for number in range(40):
        copy = Path(shutil.copytree(transactional, tmp_path / str(number) / "t-0"))
        for _ in range(chance.randrange(3)):
            path = chance.choice(sorted(copy.glob("*.txnindex")) + sorted(copy.glob("*.log")))
            data = bytearray(path.read_bytes())
            if data:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
        if chance.randrange(2):
            min(copy.glob("*.log")).unlink()
        log = kts.open_partition(copy)
        if log.segments != log.whole_segments:  # an offset was hit, and segments overlap: then nothing is cut
            continue
        parts = log.parts(cuts(chance, len(log.segments)))
        whole, indexes = list(verify_partition(log)), list(reindex(log, IndexConfig()))
        assert verified(log, parts) == whole and reindexed(parts) == indexes, parts
        kinds |= {one.kind for one in whole}
        states |= {one.state for found in indexes for one in found.indexes if one.kind == ".txnindex"}
    assert "txn-index" in kinds and states >= {"equal", "differs"}, (kinds, states)


def test_transactions_of_tiered_storage_in_parts_are_those_of_the_whole() -> None:
    one = session("aiven-zstd-encrypted")
    log = kts.open_partition(one.data / "txn-0", remote=one.remote, remote_options=one.options)
    parts = log.parts([1] * len(log.segments))
    assert len(parts) > 3 and verified(log, parts) == list(verify_partition(log)) == []
