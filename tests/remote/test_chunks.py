"""A log in chunks reads as the file that it was; what cannot be read is told with its place in the log."""

from __future__ import annotations

import errno
import random
from typing import Any

import numpy as np
import pytest
import zstandard

from kts.errors import CorruptRecordError, LogStorageError
from kts.remote import chunks as module
from kts.remote.chunks import Coding, RemoteLog, Unreadable
from kts.remote.manifests import ChunkIndex, decompressed
from kts.remote.objects import LEAST_BYTES, LruCache
from kts.segment.damage import _Holes
from kts.store.protocol import ByteRange, BytesFile

LOG = random.Random(3).randbytes(9_000) + bytes(1_234)


class Store(BytesFile):
    """An object that counts what is asked for."""

    def __init__(self, data: bytes) -> None:
        super().__init__("object.log", data)
        self.asked: list[tuple[int, int]] = []

    def read(self, position: int, count: int) -> bytes:
        self.asked.append((position, count))
        return super().read(position, count)


def stored(chunk_bytes: int) -> tuple[bytes, ChunkIndex]:
    parts = [zstandard.compress(LOG[i : i + chunk_bytes]) for i in range(0, len(LOG), chunk_bytes)]
    return b"".join(parts), ChunkIndex(len(LOG), chunk_bytes, np.cumsum([len(part) for part in parts]))


def opened(data: bytes, index: ChunkIndex | None, version: object = None, **more: Any) -> tuple[RemoteLog, Store]:
    store = Store(data)
    coding = Coding() if index is None else Coding(index, lambda part, size: decompressed(part, size, size))
    return RemoteLog("p.log", "object.log", len(LOG), coding, lambda ahead: store, version, **more), store


@pytest.mark.slow
@pytest.mark.parametrize("chunk_bytes", [1, 100, 1000, 4096, 10_234, 50_000])
def test_any_range_is_the_range_of_the_log(chunk_bytes: int) -> None:
    log, _ = opened(*stored(chunk_bytes))
    rng = random.Random(chunk_bytes)
    for _ in range(60 if chunk_bytes > 1 else 3):
        start, count = rng.randrange(len(LOG) + 100), rng.randrange(3000)
        assert log.read(start, count) == LOG[start : start + count]
        buffer = memoryview(bytearray(count))
        assert bytes(buffer[: log.read_into(buffer, start)]) == LOG[start : start + count]
    assert log.size() == len(LOG)


def test_only_the_chunks_of_a_range_are_fetched_each_once_and_together() -> None:
    data, index = stored(1000)
    log, store = opened(data, index)
    assert log.read(2500, 1000) == LOG[2500:3500]
    start, end = index.stored_range(2)[0], index.stored_range(3)[1]
    assert store.asked == [(start, end - start)]
    log.read(3500, 400)  # of the last chunk that was decoded
    assert len(store.asked) == 1
    assert log.stored(ByteRange("p.log", 2500, 3500)) == ByteRange("object.log", start, end)


def test_the_first_byte_that_cannot_be_read_is_told_where_a_chunk_is_changed_and_the_end_is_missing() -> None:
    data, index = stored(1000)
    changed = bytearray(data[: index.stored_range(6)[1] + 5])
    changed[index.stored_range(3)[0]] ^= 1
    log, _ = opened(bytes(changed), index)
    with pytest.raises(CorruptRecordError, match="chunk 3 of object.log") as raised:
        log.read(500, len(LOG))
    assert (raised.value.position, raised.value.end) == (3000, 4000)  # type: ignore[attr-defined]
    with pytest.raises(CorruptRecordError, match=f"found {len(changed)}: its end is missing") as raised:
        log.read(4000, len(LOG))
    assert raised.value.position == 7000
    assert _Holes(log).read(2500, 5500) == LOG[2500:3000] + bytes(1000) + LOG[4000:7000] + bytes(1000)


def test_bytes_that_a_manifest_alone_claims_are_not_asked_for() -> None:
    data, _ = stored(1000)
    log, store = opened(data, ChunkIndex(2**31 - 1, 2**30, (2**31 - 1, 2**31 - 1)))
    with pytest.raises(CorruptRecordError, match=f"expected 2147483647 bytes at least .*, found {len(data)}"):
        log.read(0, 100)
    assert store.asked == [(0, len(data))]


def test_decoded_chunks_are_kept_for_the_next_file_of_the_same_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_kept", LruCache[bytes](3 * LEAST_BYTES))
    data, index = stored(1000)
    log, store = opened(data, index, "one")
    log.read(0, 6000)
    log.close()
    log, again = opened(data, index, "one")
    assert log.read(3000, 3000) == LOG[3000:6000] and again.asked == []
    assert log.read(0, 1000) == LOG[:1000] and len(again.asked) == 1  # no longer kept
    log, other = opened(data, index, "two")
    assert log.read(4000, 10) == LOG[4000:4010] and len(other.asked) == 1


def test_a_damaged_chunk_is_told_with_its_place_and_the_others_are_read() -> None:
    data, index = stored(1000)
    start, end = index.stored_range(4)
    log, _ = opened(data[:start] + bytes(end - start) + data[end:], index)
    with pytest.raises(
        CorruptRecordError, match=rf"chunk 4 of object.log \(bytes {start} to {end}\) is damaged"
    ) as raised:
        log.read(3500, 2000)
    assert (raised.value.path, raised.value.position, raised.value.end) == ("p.log", 4000, 5000)  # type: ignore[attr-defined]
    assert log.read(3000, 1000) + log.read(5000, 1000) == LOG[3000:4000] + LOG[5000:6000]


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_cut_object_is_read_up_to_its_end(is_plain: bool) -> None:
    data, index = stored(1000)
    log, _ = opened(LOG[:4500], None) if is_plain else opened(data[: index.stored_range(4)[1] - 1], index)
    known = 4500 if is_plain else 4000
    assert log.read(0, known) == LOG[:known]
    with pytest.raises(CorruptRecordError, match="its end is missing") as raised:
        log.read(0, len(LOG))
    assert raised.value.position == known


def test_a_missing_object_is_asked_for_once_and_other_errors_are_passed_on() -> None:
    calls = []

    def missing(ahead: object) -> Any:
        calls.append(ahead)
        raise LogStorageError("there is no such object", path="object.log", errno=errno.ENOENT)

    log = RemoteLog("p.log", "object.log", 100, Coding(), missing, None, (10, None))
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="the object object.log is missing") as raised:
            log.read(20, 5)
        assert (raised.value.position, raised.value.end) == (20, 100)  # type: ignore[attr-defined]
    assert calls == [(10, 100)]

    def refused(ahead: object) -> Any:
        raise LogStorageError("access denied", errno=errno.EACCES)

    with pytest.raises(LogStorageError, match="access denied"):
        RemoteLog("p.log", "object.log", 100, Coding(), refused).read(0, 1)


def test_a_file_that_cannot_be_read_has_its_size_and_the_reason() -> None:
    file = Unreadable("p.log", 50, "the manifest is missing")
    assert file.size() == 50 and file.read(50, 10) == b""
    with pytest.raises(CorruptRecordError, match="the manifest is missing") as raised:
        file.read(7, 10)
    assert raised.value.position == 7
