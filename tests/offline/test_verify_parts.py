"""A partition that is checked in parts gives what it gives as a whole, or says that it cannot."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from support.golden import golden
from support.tiered import session

import kts
from kts.offline.verify import LISTED, Violation, verify_joined, verify_part, verify_partition

PARTITIONS = [("demo", "orders", name) for name in ("orders-0", "orders-1", "orders-2")] + [
    ("demo", "clicks", "clicks-0")
]


def in_parts(path: Path, sizes: list[int]) -> list[Violation] | None:
    log = kts.open_partition(path)
    found = verify_joined(log, [verify_part(part, True) for part in log.parts(sizes)])
    return None if found is None else list(found)


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


def test_parts_find_what_the_whole_finds(partition: Path, tmp_path: Path) -> None:
    """Sixty random damages, each cut anew, one upon the other up to three."""
    chance, kinds, listed = random.Random(partition.name), set[str](), 0
    for number in range(20):
        copy = Path(shutil.copytree(partition, tmp_path / str(number) / partition.name))
        for _ in range(3):
            damaged(copy, chance)
            whole = list(verify_partition(kts.open_partition(copy), True))
            left = len(kts.open_partition(copy).segments)
            sizes = list[int]()
            while left > 0:
                sizes.append(chance.randint(1, left))
                left -= sizes[-1]
            assert in_parts(copy, sizes) == whole, sizes
            kinds |= {one.kind for one in whole}
            listed += sum("more of this kind" in one.message for one in whole)
    assert len(kinds) >= 6 and listed > 0, kinds
    assert LISTED == 20


def test_transactions_need_the_whole() -> None:
    """What a part says of them depends on those before it."""
    log = kts.open_partition(session("aiven-zstd-encrypted").data / "txn-0")
    assert len(log.segments) > 1
    assert verify_joined(log, [verify_part(part) for part in log.parts([1] * len(log.segments))]) is None
