"""KIP-32: brokers keep zero copy for clients that know the messages' magic. Fetch 0 to 3 send what lies on disk."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.broker.asking import Asking
from support.golden import scaled
from support.sets.segments import walk
from support.waiting import wait_for_later_changes

import kts
from kts.broker.broker import Broker
from kts.broker.downconversion import down_convert, newest_magic
from kts.broker.wire.messages import ApiKey
from kts.errors import KtsError, LogStorageError
from kts.replica.client import Connection
from kts.segment import magics
from kts.store.local import File
from kts.testing import KtsBroker

NOW = 1_500_000_000_000
FORMATS = {0: "0.9.0", 1: "0.10.0", 2: "0.11.0"}
CODECS = ["none", "none", "gzip", "lz4"]


def records(magic: int, *, first: int = 0, count: int = 3, size: int = 1000, codec: str = "none") -> bytes:
    rows = {
        "timestamp": [NOW + at for at in range(count)],
        "value": [b"%d" % (first + at) * size for at in range(count)],
    }
    return kts.encode(rows, magic=magic, base_offset=first, compression=codec, batch_bytes=2**20)


# --- through a socket -----------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that each call of sendfile was to send; the calls are made."""
    found: list[int] = []
    sendfile = os.sendfile

    def counted(out: int, into: int, offset: int, count: int) -> int:
        found.append(count)  # the client may have the bytes before the call returns
        return sendfile(out, into, offset, count)

    monkeypatch.setattr(os, "sendfile", counted)
    return found


def fetched(broker: KtsBroker, version: int, offset: int, limit: int = 2**20) -> bytes:
    """The records of one answer."""
    rows = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": limit}]
    body = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 2**30, "topics": [{"topic": "t", "partitions": rows}]}
    with Connection(broker.host, broker.port) as connection:
        [found] = connection.ask(ApiKey.FETCH, version, body)["responses"][0]["partitions"]
    assert found["error_code"] == 0
    return bytes(found["records"])


@pytest.mark.parametrize("restarted", [None, "cleanly", "after a crash"])
@pytest.mark.parametrize("magic", [0, 1])
def test_what_needs_no_conversion_is_sent_by_sendfile(
    sent: list[int], magic: int, restarted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its headers are read only at the first fetch after a crash."""
    reading, reads = magics.read, []

    def counted(file: File, start: int, end: int, size: int, enough: int) -> Any:
        reads.append(end - start)
        return reading(file, start, end, size, enough)

    monkeypatch.setattr(magics, "read", counted)
    with KtsBroker() as broker:
        broker.create_topic("t", 1, {"message.format.version": FORMATS[magic]})
        for _ in range(20):
            broker.log("t").append(records(magic, size=2000))
        if restarted:
            wait_for_later_changes(Path(broker.log("t").segments[0].path))
            (broker.kill if restarted == "after a crash" else broker.stop)()
            broker.start()
        stored = broker.log("t").read(0, 2**20).records
        for version in range(5):
            sent.clear()
            answer = fetched(broker, version, 0)
            if newest_magic(version) < magic:
                assert not sent and {entry.magic for entry in walk(answer)} == {0}
            else:
                assert sum(sent) > 0 and answer == stored, version
        assert bool(reads) == (restarted == "after a crash")


def test_of_a_mixed_log_each_part_is_sent_by_sendfile_to_who_knows_it(sent: list[int]) -> None:
    """As a migration leaves it: v0, then v1, then v0 after a rollback; the same after a restart and a truncation."""
    with KtsBroker() as broker:
        broker.create_topic("t", 1, {})
        starts = []
        for magic in (0, 1, 0):
            broker.alter_topic("t", {"message.format.version": FORMATS[magic]})
            starts.append(broker.log("t").log_end_offset)
            for _ in range(20):
                broker.log("t").append(records(magic, size=1000))
        end = broker.log("t").log_end_offset
        for turn in ("appended", "restarted", "restarted", "truncated"):
            if turn == "restarted":
                broker.restart()
            elif turn == "truncated":
                broker.log("t").truncate_to(end - 1)
            for version in (1, 2):
                for start, magic in zip(starts, (0, 1, 0), strict=True):
                    sent.clear()
                    answer = fetched(broker, version, start, 40_000)
                    found = {entry.magic for entry in walk(answer)}
                    assert found == ({magic} if version == 2 else {0})
                    assert (sum(sent) > 0) == (version == 2 or magic == 0), (turn, version, magic)


def test_an_answer_of_many_mib_needs_no_memory(sent: list[int]) -> None:
    """Only what is converted is read, so that its limit of 16 MiB a request does not apply."""
    with KtsBroker() as broker:
        broker.create_topic("t", 1, {"message.format.version": "0.10.0"})
        for _ in range(20):
            broker.log("t").append(records(1, count=1, size=950_000))
        assert len(fetched(broker, 2, 0, 2**30)) == len(fetched(broker, 4, 0, 2**30)) > 1 << 24
        assert sum(sent) > 1 << 24


# --- the same bytes as before ---------------------------------------------------------------------


def expected(log: kts.Log, offset: int, limit: int, version: int) -> tuple[int, bytes]:
    """The error and the records of an answer by reading and walking over all of it."""
    magic = newest_magic(version)
    try:
        found = log.read(offset, limit, min_one_message=version > 2)
        return 0, down_convert(found.records, magic, offset, log.config.behaviour()).records
    except KtsError as error:
        return error.code, b""


def compare(asking: Asking, rng: random.Random, count: int, *, raw: bool = False) -> None:
    log = asking.broker.topics.get("t").partitions[0].log
    for _ in range(count):
        offset = rng.randrange(log.log_start_offset, log.log_end_offset + 1)
        limit, version = rng.choice([0, 30, 2000, 40_000, 100_000, 2**30]), rng.randrange(4)
        row = asking.fetch("t", offset, version=version, partition_max_bytes=limit)
        found = row["error_code"], bytes(row["records"] or b"")
        wanted = [expected(log, offset, limit, version)]
        if raw:
            wanted.append((0, bytes(asking.fetch("t", offset, version=4, partition_max_bytes=limit)["records"])))
        assert found in wanted, (offset, limit, version)


@contextmanager
def asked(folder: Path) -> Iterator[Asking]:
    with Asking(Broker(folder, clock=lambda: NOW)) as asking:
        if asking.broker.topics.get("t") is None:
            asking.create(segment_bytes="200000")
        yield asking


def change(asking: Asking, rng: random.Random) -> None:
    """Append as a leader or as a follower, change the format, or truncate."""
    partition = asking.broker.topics.get("t").partitions[0]
    end, magic = partition.log.log_end_offset, rng.randrange(3)
    size = {"count": rng.randrange(1, 6), "size": rng.choice([10, 5000]), "codec": rng.choice(CODECS)}
    match rng.randrange(8):
        case 0:
            asking.broker.topics.alter("t", {"message.format.version": FORMATS[magic]})
        case 1:
            partition.log.truncate_to(rng.randrange(max(0, end - 30), end + 1))
        case 2 if partition.log.config.magic == 2:  # mixed, as a leader's log may be
            sets = [records(chosen, first=end + 9 * at, **size) for at, chosen in enumerate((magic, rng.randrange(3)))]
            partition.log.append_as_follower(b"".join(sets))
        case _:
            partition.append(records(rng.randrange(3), **size))


def test_answers_over_mixed_magics_are_byte_for_byte_what_reading_all_gives(tmp_path: Path, rng: random.Random) -> None:
    """Appended, truncated, restarted and set to other formats at random. Takes seconds, for some thousand answers."""
    for number in range(scaled(3, 40)):
        for _ in range(4):
            with asked(tmp_path / str(number)) as asking:
                for _ in range(25):
                    change(asking, rng)
                    compare(asking, rng, 4)


@pytest.mark.slow
@pytest.mark.parametrize("learned", [False, True], ids=["unread", "known"])
def test_damaged_headers_are_answered_as_before(tmp_path: Path, rng: random.Random, learned: bool) -> None:
    """Where the log knows the magics already, later damage goes to the client as it does by Fetch 4."""
    with asked(tmp_path / "data") as asking:
        asking.create("whole")
        for magic in (0, 1, 2, 1, 0):
            asking.broker.topics.alter("t", {"message.format.version": FORMATS[magic]})
            for _ in range(6):
                asking.broker.topics.get("t").partitions[0].append(records(magic, size=3000))
        log = asking.broker.topics.get("t").partitions[0].log
        path, entries = Path(log.segments[0].path), walk(Path(log.segments[0].path).read_bytes())
    whole = path.read_bytes()
    for entry in rng.sample(entries, 8):
        for at, byte in ((16, 7), (16, rng.randrange(3)), (8, 0x7F), (11, 1), (30, 0xFF)):
            path.write_bytes(whole)
            with asked(tmp_path / "data") as asking:
                log = asking.broker.topics.get("t").partitions[0].log
                if learned:
                    compare(asking, rng, 10)
                    asking.fetch("t", version=3)
                with path.open("r+b") as file:
                    file.seek(entry.position + at)
                    file.write(bytes([byte]))
                if (at, byte) == (16, 7):
                    row = asking.fetch("t", entry.offset, version=rng.randrange(4))
                    assert row["error_code"] == kts.CorruptRecordError.code
                compare(asking, rng, 10, raw=learned)


def test_no_client_gets_a_newer_magic_while_others_append_and_truncate(tmp_path: Path, rng: random.Random) -> None:
    """Takes a second, for some hundred answers between any two steps of the writer."""
    with asked(tmp_path / "data") as asking:
        partition = asking.broker.topics.get("t").partitions[0]
        done, rounds = threading.Event(), scaled(150, 3000)

        def write() -> None:
            try:
                for number in range(rounds):
                    end = partition.log.log_end_offset
                    if number % 5 == 4:
                        partition.log.truncate_to(max(0, end - rng.randrange(1, 40)))
                    for _ in range(4):
                        first, magic = partition.log.log_end_offset, number % 3
                        partition.log.append_as_follower(records(magic, first=first, count=4, size=3000))
            finally:
                done.set()

        writer = threading.Thread(target=write)
        writer.start()
        answers = 0
        while not done.is_set() or answers < 20:
            end = partition.log.log_end_offset
            version = answers % 4
            try:
                row = asking.fetch("t", max(0, end - answers % 50), version=version, partition_max_bytes=100_000)
            except LogStorageError:  # of a range that was truncated before it was sent: a client sees no answer
                continue
            found = {entry.magic for entry in walk(bytes(row["records"] or b""))}
            assert max(found, default=0) <= newest_magic(version)
            answers += 1
        writer.join()
        compare(asking, rng, 30)
