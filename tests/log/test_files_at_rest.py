"""Damage of the small files of a log directory after a clean stop, judged by answers.

What the log itself says is not answered from a damaged file; what only the file says is taken for unknown, as a broker
takes it; nothing is lost on the disk, and what was found is reported.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.broker.asking import Asking

import kts
from kts._codec import crc32c
from kts.broker.broker import Broker

T = 1_700_000_000_000
SETTINGS = {"retention.ms": "-1", "segment.index.bytes": "1000", "index.interval.bytes": "100"}
END, START = 134, 12
CHECKPOINTS = ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def rows(count: int, producer: int = -1, sequence: int = 0, transactional: bool = False) -> bytes:
    values = [b"%d:%d" % (producer, sequence + at) for at in range(count)]
    columns = {"timestamp": pa.array([T] * count, pa.int64()), "value": pa.array(values)}
    about = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": transactional}
    return kts.encode(columns, **(about if producer >= 0 else {}))  # type: ignore[arg-type]


def marker(producer: int, *, commit: bool) -> bytes:
    key = b"\0\0\0\1" if commit else b"\0\0\0\0"
    columns = {"timestamp": pa.array([T], pa.int64()), "key": pa.array([key]), "value": pa.array([bytes(6)])}
    return kts.encode(columns, producer_id=producer, producer_epoch=0, transactional=True, control=True)


def opened_broker(root: Path) -> Broker:
    return Broker(root, {"log.retention.ms": "-1"}, clock=lambda: T)


def opened_log(root: Path) -> kts.Log:
    return kts.Log(root / "orders-0", SETTINGS, clock=lambda: T)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments, three leader epochs, producers, transactions: aborted, committed, one open; a moved start."""
    root = tmp_path_factory.mktemp("sound") / "data"
    sent: Counter[int] = Counter()
    with opened_broker(root) as broker:
        for name in ("orders", "other"):
            sent.clear()
            broker.topics.create(name, 1, SETTINGS)
            partition = broker.topics.get(name).partitions[0]  # type: ignore[union-attr]
            for turn in range(18):
                if turn in (6, 12):
                    partition.log.roll()
                    partition.leader_epoch += 4 * turn
                partition.append(rows(2, turn % 3 + 1, sent[turn % 3 + 1]))
                sent[turn % 3 + 1] += 2
                partition.append(rows(2))
                if turn % 3 == 1:
                    for producer, commit in ((7, False), (8, True)):
                        partition.append(rows(4, producer, sent[producer], True))
                        sent[producer] += 4
                        partition.append(marker(producer, commit=commit), origin="coordinator")
            partition.append(rows(2, 9, 0, True))
        broker.topics.get("orders").partitions[0].log.advance_log_start_offset(START)  # type: ignore[union-attr]
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copytree(sound, tmp_path / "data")
    return tmp_path / "data"


def log_answers(root: Path, *, start: int = START) -> dict[str, Any]:
    """What a log and the readers say, and whether the log still knows its producers and goes on."""
    with opened_log(root) as log:
        found = {
            "start": log.log_start_offset,
            "end": log.log_end_offset,
            "stable": log.last_stable_offset,
            "epochs": [epoch for epoch in log.leader_epochs if epoch[1] > START],
            "bytes": log.read(start, 2**20, min_one_message=True).records,
            "duplicate": log.append(rows(2, 1, 10)).duplicate is not None,
            "next": log.append(rows(1)).first_offset,
        }
    with opened_log(root) as log:
        assert (log.log_end_offset, log.recovered) == (found["next"] + 1, [])
    return found


def committed(root: Path) -> tuple[list[int], list[tuple[int, int]]]:
    """Offsets of the committed records, by the readers; the aborted transactions that a consumer is told."""
    table = kts.scan(root / "orders-0", columns=["offset"], isolation="read_committed").read_all()
    with Asking(opened_broker(root)) as client:
        told = [client.fetch("orders", at, isolation_level=1)["aborted_transactions"] for at in (START, 60, 100)]
    pairs = {(one["producer_id"], one["first_offset"]) for each in told for one in each}
    return table.column(0).to_pylist(), sorted(pairs)


ABSURD = [
    b"", b"\0" * 40, b"\xff" * 40, b"garbage\n", b"0\n", b"1\n1\norders 0 20\n", b"0\n2147483647\norders 0 20\n",
    "0\n²\norders 0 20\n".encode(), b"0\n1\norders \xc2\xb2 20\n", b"0\n" + b"9" * 5000 + b"\norders 0 20\n",
    b"0\n1\norders 0 " + b"9" * 19 + b"\n", b"0\n1\norders 0 1e3\n", b"0\n1\norders 0\n",
]  # fmt: skip


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_damaged_checkpoint_costs_no_record_and_is_kept(name: str, root: Path, sound: Path) -> None:
    """Thirteen contents; about 40 ms each."""
    expected = log_answers(root, start=START + 10)
    for content in ABSURD:
        shutil.rmtree(root)
        shutil.copytree(sound, root)
        (root / name).write_bytes(content)
        with opened_log(root) as log:
            told = [one for one in log.recovered if one.path == str(root / name)]
            # A broker makes each file empty; these two have lines when the recovery points have some.
            assert len(told) == (bool(content) or name != CHECKPOINTS[1]), content[:40]
            assert all(Path(one.aside or "").read_bytes() == content for one in told)
            assert (root / "orders-0" / f"{0:020}.log").exists()
        found = log_answers(root, start=START + 10)
        lost = {"start": 0} if name == CHECKPOINTS[0] else {}  # as a broker: the first segment's base offset
        assert {**found, "next": 0} == {**expected, **lost, "next": 0}, content[:40]


def test_a_log_start_offset_behind_the_end_hides_nothing_after_a_clean_stop(root: Path) -> None:
    (root / CHECKPOINTS[0]).write_text("0\n1\norders 0 4611686018427387904\n")
    logs = {path.name: path.read_bytes() for path in (root / "orders-0").glob("*.log")}
    with opened_log(root) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, END)
        assert [one.reason for one in log.recovered if "4611686018427387904" in (one.reason or "")]
        assert log.append(rows(1)).first_offset == END
    assert all((root / "orders-0" / name).read_bytes().startswith(data) for name, data in logs.items())
    with opened_log(root) as log:
        assert (log.log_start_offset, log.log_end_offset, log.recovered) == (0, END + 1, [])


def changed_numbers(text: str) -> list[str]:
    """Each digit another one, each line left out or doubled, and files that are none."""
    found = [
        text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :] for at in range(len(text)) if text[at].isdigit()
    ]
    found += [text[:at] for at in range(1, len(text) - 1)]
    return [*found, "0\n1\n99999999999 0\n", "0\n2\n30 0\n5 40\n", "0\n1\n2147483647 0\n", "²\n²\n", "\0" * 20]


def test_leader_epochs_that_the_batches_contradict_are_told_by_the_batches(root: Path, sound: Path) -> None:
    """Every digit of the file another one, and every cut: some sixty cases of 15 ms."""
    path = root / "orders-0" / "leader-epoch-checkpoint"
    text = (sound / "orders-0" / "leader-epoch-checkpoint").read_text()
    with opened_log(root) as log:
        right = log.leader_epochs
    assert len(right) == 3 and log.recovered == []
    first = right[0]
    for damaged in changed_numbers(text):
        (root / ".kafka_cleanshutdown").write_bytes(b"")
        path.write_text(damaged)
        with opened_log(root) as log:
            # Where the first epoch began below the log start offset, nothing is left to say.
            assert log.leader_epochs[1:] == right[1:] and log.leader_epochs[0][0] == first[0], damaged
            told = [one for one in log.recovered if one.path == str(path)]
        changed = [line for line in damaged.splitlines()[2:]] != text.splitlines()[2:]
        assert told or not changed or len(damaged) >= len(text) - 1 or not damaged, damaged


def damaged_entries(data: bytes) -> list[bytes]:
    within = data[:17] + bytes([data[17] ^ 1]) + data[18:]  # a first offset inside of the batch that it begins with
    found = [b"", b"\xff" * len(data), bytes(len(data)), bytes(34), data[:33], data + bytes(5), data[::-1], within]
    for bit in range(26 * 8):  # the last stable offset, behind that, is nobody's answer
        each = bytearray(data)
        each[bit // 8] ^= 1 << bit % 8
        found.append(bytes(each))
    return found


@pytest.mark.slow
def test_a_transaction_index_that_the_log_contradicts_gives_no_answer(
    root: Path, sound: Path, rng: random.Random
) -> None:
    """45 of the 216 cases, 25 ms each: a committed record must not vanish, an aborted one not appear."""
    right = committed(root)
    assert len(right[1]) >= 5 and len(right[0]) > 60
    paths = sorted((sound / "orders-0").glob("*.txnindex"))
    assert len(paths) == 3
    for path in paths:
        cases = damaged_entries(path.read_bytes())
        for data in [*cases[:8], *rng.sample(cases[8:], 7)]:
            (root / ".kafka_cleanshutdown").write_bytes(b"")
            (root / "orders-0" / path.name).write_bytes(data)
            assert committed(root) == right, (path.name, data.hex())


def claimed(data: bytes, count: int) -> bytes:
    """A snapshot that says so many entries, with the CRC of that."""
    body = struct.pack(">i", count) + data[10:]
    return data[:2] + struct.pack(">I", crc32c(body)) + body


def test_a_damaged_snapshot_costs_no_producer_and_no_open_transaction(
    root: Path, sound: Path, rng: random.Random
) -> None:
    expected = log_answers(root)
    assert expected["duplicate"] and expected["stable"] == END - 2
    newest = sorted((sound / "orders-0").glob("*.snapshot"))[-1]
    data = newest.read_bytes()
    flipped = bytearray(data)
    flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    for content in (b"", bytes(len(data)), b"\xff" * len(data), data[:-1], data + b"\0", bytes(flipped),
                    claimed(data, 2**31 - 1), claimed(data, -1), claimed(data, 0)):  # fmt: skip
        shutil.rmtree(root)
        shutil.copytree(sound, root)
        (root / "orders-0" / newest.name).write_bytes(content)
        assert log_answers(root) == expected, content[:12].hex()


@pytest.mark.parametrize("content", [b"", b"\0" * 43, b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"version: 0\n",
                                     b"version: 0\ntopic_id: short", b"\xff\xfe"])  # fmt: skip
def test_a_malformed_topic_id_is_told_again(content: bytes, root: Path, sound: Path) -> None:
    path = root / "orders-0" / "partition.metadata"
    path.write_bytes(content)
    assert kts.open(root / "orders-0").topic_id is None
    with Asking(opened_broker(root)) as client:
        assert client.broker.topics.left_alone == []
        assert client.list_offsets("orders", -1)["offset"] == END
    assert path.read_bytes() == (sound / "orders-0" / "partition.metadata").read_bytes()


@pytest.mark.parametrize("name", ["meta.properties", "kts-topics.json"])
def test_what_cannot_be_told_again_is_refused_and_nothing_is_touched(name: str, root: Path) -> None:
    for content in (b"", b"\0" * 50, b"\xff" * 50, b"version=7\n", b'{"version": 1', b"[]"):
        (root / name).write_bytes(content)
        before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ".lock"}
        with pytest.raises(kts.LogStorageError) as refused:
            opened_broker(root)
        assert name in str(refused.value)
        after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ".lock"}
        assert after == before, content


def test_the_marker_of_a_clean_stop_says_so_whatever_is_in_it(root: Path) -> None:
    ways: list[Callable[[Path], object]] = [lambda path: path.write_bytes(b"\xff" * 99), lambda path: path.unlink()]
    for way in ways:
        way(root / ".kafka_cleanshutdown")
        with opened_log(root) as log:
            assert (log.log_start_offset, log.log_end_offset) == (START, END)
            assert len(kts.decode(log.read(START, 2**20).records, ["offset"])) > 20
