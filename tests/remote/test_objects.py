"""Objects as files: the bytes of one version, whatever the server does meanwhile."""

from __future__ import annotations

import errno
import random
import threading
from itertools import count

import pytest
from support.buckets.doors import files
from support.buckets.proxy import Answer, Asked
from support.buckets.s3 import TestBucket
from support.golden import PATIENCE_S

from kts.errors import LogStorageError
from kts.remote import objects
from kts.store.protocol import ByteRange, ReadAhead

pytestmark = pytest.mark.slow  # a real server
PART_BYTES = 2**21
MOST_AHEAD_BYTES = 8 * PART_BYTES
SIZE = 3 * PART_BYTES + 12_345


@pytest.fixture(autouse=True)
def _parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller ones: objects need not be so large."""
    monkeypatch.setattr(objects, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(objects, "MOST_AHEAD_BYTES", MOST_AHEAD_BYTES)


@pytest.fixture(scope="module")
def data() -> bytes:
    return random.Random(7).randbytes(SIZE)


def test_any_range_is_the_bytes_of_the_object(bucket: TestBucket, data: bytes, rng: random.Random) -> None:
    path = bucket.put("a/x.bin", data)
    with files.open_file(path) as file:
        assert file.size() == SIZE
        for _ in range(40):
            start = rng.randrange(SIZE + 10)
            count = rng.choice([1, 61, 5_000, 300_000, 2**21, SIZE])
            assert file.read(start, count) == data[start : start + count], (start, count)
    for start, end in ((0, None), (10, 2**21), (SIZE - 5, None), (SIZE, None)):
        with files.open_file(path, ahead=(start, end)) as file:
            position = start
            while part := file.read(position, rng.choice([70_000, 2**20])):
                assert part == data[position : position + len(part)]
                position += len(part)
            assert position == SIZE
    buffer = bytearray(100)
    with files.open_file(path) as file:
        assert file.read_into(memoryview(buffer), SIZE - 7) == 7
    assert bytes(buffer[:7]) == data[-7:]


def test_objects_in_order_are_requested_side_by_side_and_each_byte_once(bucket: TestBucket, data: bytes) -> None:
    size = 100_000
    paths = [bucket.put(f"many/{n:02}", data[n * size : (n + 1) * size]) for n in range(20)]
    bucket.forget()
    found = []
    for file in files.in_order([ByteRange(path, 100, size) for path in paths]):
        assert file is not None
        found.append(file.read(100, size))
    assert found == [data[n * size + 100 : (n + 1) * size] for n in range(20)]
    assert bucket.proxy.counted() == {"HEAD": 20, "GET": 20}
    assert bucket.proxy.body_bytes == 20 * (size - 100)


def test_what_is_fetched_ahead_is_requested_once_and_any_other_read_is_right(bucket: TestBucket, data: bytes) -> None:
    """A reader of batches begins again where the last whole one ended, and may want a larger piece from there."""
    path = bucket.put("x.bin", data)
    bucket.forget()
    with files.open_file(path, ahead=(0, None)) as file:
        position = 0
        while part := file.read(position, PART_BYTES):
            assert part == data[position : position + PART_BYTES]
            position += max(len(part) - 1_000, 1) if position + len(part) < SIZE else len(part)
        assert bucket.proxy.body_bytes == SIZE
    with files.open_file(path, ahead=(0, None)) as file:
        for position, count in ((0, PART_BYTES), (0, SIZE - 1), (SIZE - 9, 9), (3, PART_BYTES + 1)):
            assert file.read(position, count) == data[position : position + count]


def test_what_is_at_hand_lies_in_one_request_and_other_reads_go_on_from_there(bucket: TestBucket, data: bytes) -> None:
    path = bucket.put("x.bin", data)
    bucket.forget()
    with files.open_file(path, ahead=(0, None)) as file:
        assert isinstance(file, ReadAhead)
        position = 0
        while part := file.at_hand(position, PART_BYTES // 2):
            assert part == data[position : position + len(part)]
            end = next(end for end in (SIZE // 3, SIZE * 2 // 3, SIZE) if end > position)  # no small part at the end
            assert len(part) == min(end - position, PART_BYTES // 2)
            position += len(part)
            border = file.read(position, 1_000)  # as of an entry across two requests
            assert border == data[position : position + 1_000]
            position += len(border)
        assert position == SIZE
        assert bucket.proxy.body_bytes == SIZE
    with files.open_file(path) as file:
        assert isinstance(file, ReadAhead) and not file.at_hand(0, 10)


def test_a_reader_that_stops_early_leaves_the_rest_where_it_is(bucket: TestBucket, data: bytes) -> None:
    paths = [bucket.put(f"many/{n}", data) for n in range(10)]
    bucket.forget()
    ordered = files.in_order([ByteRange(path, 0, SIZE) for path in paths])
    first = next(ordered)
    assert first is not None and first.read(0, 10) == data[:10]
    ordered.close()  # type: ignore[attr-defined]
    assert bucket.proxy.body_bytes < MOST_AHEAD_BYTES + PART_BYTES


def test_an_object_that_is_replaced_meanwhile_gives_no_mix(bucket: TestBucket, data: bytes) -> None:
    path = bucket.put("x.bin", data)
    with files.open_file(path) as file:
        assert file.read(0, 10) == data[:10]
        bucket.put("x.bin", data[::-1])
        with pytest.raises(LogStorageError, match="was replaced while it was read") as raised:
            file.read(SIZE - 10, 10)
        assert raised.value.errno == errno.ESTALE
        assert raised.value.path == path
    with files.open_file(path) as file:
        assert file.read(SIZE - 10, 10) == data[:10][::-1]


def test_an_object_that_is_replaced_between_two_ranges_gives_no_mix(bucket: TestBucket, data: bytes) -> None:
    path = bucket.put("x.bin", data)
    gets = count()  # in several threads at once

    def replace_it(asked: Asked) -> None:
        if asked.method == "GET" and next(gets) == 1:
            bucket.put("x.bin", data[::-1])

    bucket.proxy.before = replace_it
    with pytest.raises(LogStorageError) as raised, files.open_file(path, ahead=(0, None)) as file:
        file.read(0, SIZE)
    assert raised.value.errno == errno.ESTALE


def test_a_first_request_that_is_answered_last_gives_no_mix(bucket: TestBucket, data: bytes) -> None:
    path = bucket.put("x.bin", data)
    answered, others = set[str | None](), threading.Event()

    def hold_the_first(asked: Asked) -> None:
        if asked.range is not None and asked.range.startswith("bytes=0-"):
            assert others.wait(PATIENCE_S)
            bucket.put("x.bin", data[::-1])

    def note(asked: Asked, answer: Answer) -> None:
        if asked.method == "GET":
            answered.add(asked.range)
        if len(answered) == 2:
            others.set()

    bucket.proxy.before, bucket.proxy.change = hold_the_first, note
    with pytest.raises(LogStorageError) as raised, files.open_file(path, ahead=(0, None)) as file:
        file.read(0, SIZE)
    assert raised.value.errno == errno.ESTALE


def test_an_object_that_vanishes_is_a_missing_file(bucket: TestBucket, data: bytes) -> None:
    path = bucket.put("x.bin", data)
    with files.open_file(path) as file:
        assert file.read(0, 10) == data[:10]
        bucket.delete("x.bin")
        with pytest.raises(LogStorageError) as raised:
            file.read(SIZE - 10, 10)
    assert raised.value.errno == errno.ENOENT
    with pytest.raises(LogStorageError) as raised:
        files.open_file(path)
    assert raised.value.errno == errno.ENOENT
    assert not files.exists(path)


@pytest.mark.parametrize("times", [1, 2])
def test_answers_of_500_and_bodies_that_are_cut_are_asked_for_again(
    bucket: TestBucket, data: bytes, times: int
) -> None:
    path = bucket.put("x.bin", data)
    failed: dict[str, int] = {}

    def fail(asked: Asked, answer: Answer) -> Answer | None:
        which = asked.range or asked.method
        failed[which] = failed.get(which, 0) + 1
        if failed[which] > times:
            return None
        if asked.method == "GET" and failed[which] == 1:
            return Answer(answer.status, answer.headers, answer.body, sent=len(answer.body) // 2)
        return Answer(500, [("Content-Type", "application/xml")], b"<Error><Code>InternalError</Code></Error>")

    bucket.proxy.change = fail
    with files.open_file(path, ahead=(0, None)) as file:
        assert file.read(0, SIZE) == data
    assert failed["HEAD"] > times and all(count > times for count in failed.values())
