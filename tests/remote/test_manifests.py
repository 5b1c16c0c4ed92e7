"""Manifests: what the plugin wrote, and what contradicts itself."""

from __future__ import annotations

import base64
import json
import random
import struct
from typing import Any

import pytest
import zstandard
from support.tiered import names, session

from kts.errors import CorruptRecordError
from kts.remote.manifests import decompressed, read_manifest


def real(name: str = "aiven-plain") -> dict[str, Any]:
    path = next(iter(sorted(session(name).store.rglob("*.rsm-manifest"))))
    return json.loads(path.read_text())


def read(found: dict[str, Any]) -> Any:
    return read_manifest(json.dumps(found).encode(), "m.rsm-manifest")


def variable(sizes: list[int], width: int, *, count: int | None = None, tail: bytes = b"") -> str:
    data = struct.pack(">i", len(sizes) if count is None else count)
    if len(sizes) > 1:
        base = min(sizes[:-1])
        data += struct.pack(">ib", base, width) + b"".join((s - base).to_bytes(width, "big") for s in sizes[:-1])
    data += struct.pack(">i", sizes[-1]) if sizes else b""
    return base64.b64encode(zstandard.compress(data + tail)).decode()


@pytest.mark.parametrize("topic", ["..", "", "a/b", "a\0", "x" * 250])
def test_a_topic_that_kafka_does_not_allow_is_refused(topic: str) -> None:
    found = real()
    found["remoteLogSegmentMetadata"]["remoteLogSegmentId"]["topicIdPartition"]["topicPartition"]["topic"] = topic
    with pytest.raises(CorruptRecordError, match="topic: expected a topic of 1 to 249 characters"):
        read(found)


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("aiven")])
def test_the_chunks_of_every_manifest_are_the_whole_object(name: str) -> None:
    paths = sorted(session(name).store.rglob("*.rsm-manifest"))
    assert paths
    for path in paths:
        found = read_manifest(path.read_bytes(), str(path))
        log = path.with_suffix(".log")
        assert found.chunks.stored_bytes == log.stat().st_size
        assert sum(found.chunks.bytes_of(i) for i in range(found.chunks.count)) == found.chunks.size
        ranges = [found.chunks.stored_range(i) for i in range(found.chunks.count)]
        assert [end for _, end in ranges[:-1]] == [start for start, _ in ranges[1:]]
        last = max(start + size for start, size in found.indexes.values())
        assert last == path.with_suffix(".indexes").stat().st_size
        assert found.copy is not None and path.name.startswith(
            f"{found.copy.start_offset:020d}-{found.copy.segment_id}"
        )


def test_sizes_of_chunks_of_each_width() -> None:
    rng = random.Random(1)
    manifest = real("aiven-zstd")
    for width in (1, 2, 3, 4):
        sizes = [1 + rng.randrange(min(256**width, 2**30)) for _ in range(5)]
        manifest["chunkIndex"] = {"type": "variable", "originalChunkSize": 10, "originalFileSize": 41,
                                  "transformedChunks": variable(sizes, width)}  # fmt: skip
        chunks = read(manifest).chunks
        assert [end - start for start, end in map(chunks.stored_range, range(5))] == sizes
        assert (chunks.bytes_of(0), chunks.bytes_of(4), chunks.stored_bytes) == (10, 1, sum(sizes))
    for sizes, size in (([7], 9), ([], 0)):
        manifest["chunkIndex"] |= {"originalFileSize": size, "transformedChunks": variable(sizes, 1)}
        assert read(manifest).chunks.count == len(sizes)


@pytest.mark.parametrize(
    "text, words",
    [
        (variable([5, 6], 1, count=3), "expected the sizes of 2 chunks, found 3"),
        (variable([5, 6], 1, tail=b"x"), "expected 14 bytes, found 15"),
        (variable([5, 0], 1), "expected sizes above 0, found 0"),
        (base64.b64encode(b"no frame").decode(), "expected a zstd frame"),
        (base64.b64encode(zstandard.compress(bytes(10**7))).decode(), "found more than 24"),
        ("???", "expected base64"),
    ],
)
def test_sizes_that_are_none_are_refused(text: str, words: str) -> None:
    manifest = real("aiven-zstd")
    manifest["chunkIndex"] = {"type": "variable", "originalChunkSize": 10, "originalFileSize": 15,
                              "transformedChunks": text}  # fmt: skip
    with pytest.raises(CorruptRecordError, match=words) as raised:
        read(manifest)
    assert raised.value.path == "m.rsm-manifest"


def test_a_number_of_chunks_takes_no_memory_on_its_word() -> None:
    """The sizes of 2 billion chunks of one size are a frame of a few bytes for each million."""
    manifest = real("aiven-zstd")
    manifest["chunkIndex"] = {"type": "variable", "originalChunkSize": 1, "originalFileSize": 2**31 - 1,
                              "transformedChunks": variable([5, 6], 4, count=2**31 - 1)}  # fmt: skip
    with pytest.raises(CorruptRecordError, match="expected at most 4194304 chunks, found 2147483647 bytes in chunks"):
        read(manifest)


def test_a_chunk_size_above_the_object_counts_for_nothing_where_there_is_one_chunk() -> None:
    chunks = read(real("aiven-prefix")).chunks
    assert chunks.count == 1 and chunks.chunk_bytes > chunks.size == chunks.stored_bytes


@pytest.mark.parametrize(
    "where, value, words",
    [
        (["version"], "2", "version: expected 1, found '2'"),
        (["compression"], 1, "compression: expected true or false"),
        (["chunkIndex"], None, "chunkIndex: expected an object"),
        (["chunkIndex", "type"], "other", "type: expected fixed or variable"),
        (["chunkIndex", "originalFileSize"], -1, "originalFileSize: expected a number from 0"),
        (["chunkIndex", "originalFileSize"], True, "originalFileSize: expected a number"),
        (["chunkIndex", "originalChunkSize"], 0, "originalChunkSize: expected a number from 1"),
        (["chunkIndex", "originalFileSize"], 0, "expected chunks of 0 bytes in all, found a last one of"),
        (["chunkIndex", "originalFileSize"], 8807, "expected chunks of 4096 bytes and a last one of"),
        (["chunkIndex", "transformedChunkSize"], 4097, "expected chunks of 4096 bytes"),
        (["encryption"], {"dataKey": "abc", "aad": ""}, "dataKey: expected the id of a key pair"),
        (["encryption"], {"dataKey": "k:AA==", "aad": 7}, "aad: expected text"),
        (["segmentIndexes", "offset"], None, "segmentIndexes: expected offset, found none"),
        (["segmentIndexes", "offset", "size"], "8", "size: expected a number"),
        (["remoteLogSegmentMetadata", "endOffset"], -1, "endOffset: expected a number"),
        (["remoteLogSegmentMetadata", "segmentLeaderEpochs"], {"x": 1}, "segmentLeaderEpochs: expected numbers"),
        (["remoteLogSegmentMetadata", "segmentLeaderEpochs"], {"²": 1}, "segmentLeaderEpochs: expected numbers"),
        (["remoteLogSegmentMetadata", "segmentLeaderEpochs"], {"1" * 5000: 1}, "segmentLeaderEpochs: expected numbers"),
        (["remoteLogSegmentMetadata", "segmentLeaderEpochs"], {}, "leader_epochs: expected rising"),
    ],
)
def test_a_wrong_field_is_named(where: list[str], value: object, words: str) -> None:
    manifest: Any = real()
    inner = manifest
    for name in where[:-1]:
        inner = inner[name]
    inner[where[-1]] = value
    with pytest.raises(CorruptRecordError, match=words):
        read(manifest)


def test_older_manifests_and_unknown_fields_are_read() -> None:
    manifest = real()
    del manifest["remoteLogSegmentMetadata"]
    manifest["later"] = {"a": 1}
    assert read(manifest).copy is None


def test_a_manifest_of_a_broker_4_3_1_says_more_and_is_read_as_before() -> None:
    manifest = real()
    manifest["remoteLogSegmentMetadata"]["txnIdxEmpty"] = True
    assert read(manifest).copy == read(real()).copy


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"7", b"null", b"{}"])
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="the manifest m.rsm-manifest is damaged"):
        read_manifest(data, "m.rsm-manifest")


def test_changed_bytes_are_read_or_refused() -> None:
    for name in ("aiven-plain", "aiven-changed"):
        data = json.dumps(real(name)).encode()
        rng, refused = random.Random(7), 0
        for _ in range(600):
            changed = bytearray(data)
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            try:
                read_manifest(bytes(changed), "m")
            except CorruptRecordError:
                refused += 1
        assert 300 < refused < 600


def test_a_frame_that_grows_beyond_its_bound_is_refused() -> None:
    bomb = zstandard.compress(bytes(10**8))
    with pytest.raises(ValueError, match="found more than 1000"):
        decompressed(bomb, 1000, 1000)
    with pytest.raises(ValueError, match="expected 5 bytes in a zstd frame, found 3"):
        decompressed(zstandard.compress(b"abc"), 5, 5)
    assert decompressed(zstandard.compress(bytes(10**7)), 10**7, 10**7) == bytes(10**7)
    with pytest.raises(ValueError, match="expected at most 134217728 bytes in a zstd frame of .* found 2000000000"):
        decompressed(bomb, 2 * 10**9, 2 * 10**9)
