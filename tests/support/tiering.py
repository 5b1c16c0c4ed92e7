"""Copies of segments in tiered storage as a plugin makes them, for what the brokers' own sessions lack.

Each number is the caller's choice: sizes of chunks, compression, encryption, which segments stay on the disk too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import kts

PAIR = rsa.generate_private_key(65537, 2048)
PEM = PAIR.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
TOPIC_ID = "wn2IAAAAAAAAAAAAAAAAAA"
FILES = {"offset": ".index", "timestamp": ".timeindex", "producerSnapshot": ".snapshot", "transaction": ".txnindex"}


def wrapped(message: bytes, label: bytes = b"", first: int = 0, mark: int = 1) -> bytes:
    """A data key in OAEP with SHA3-512 by the public key; RFC 8017, 7.1.1."""

    def mask(seed: bytes, count: int) -> bytes:
        return b"".join(hashlib.sha3_512(seed + n.to_bytes(4, "big")).digest() for n in range(count // 64 + 1))[:count]

    def xored(one: bytes, other: bytes) -> bytes:
        return bytes(a ^ b for a, b in zip(one, other, strict=True))

    numbers = PAIR.public_key().public_numbers()
    inner = hashlib.sha3_512(label).digest() + bytes(256 - len(message) - 2 * 64 - 2) + bytes([mark]) + message
    seed = os.urandom(64)
    masked = xored(inner, mask(seed, len(inner)))
    block = bytes([first]) + xored(seed, mask(masked, 64)) + masked
    return pow(int.from_bytes(block, "big"), numbers.e, numbers.n).to_bytes(256, "big")


def chunk_sizes(sizes: Sequence[int]) -> str:
    """``transformedChunks`` of a manifest."""
    data = struct.pack(">i", len(sizes))
    if len(sizes) > 1:
        base, most = min(sizes[:-1]), max(sizes[:-1])
        width = max(((most - base).bit_length() + 7) // 8, 1)
        data += struct.pack(">ib", base, width) + b"".join((one - base).to_bytes(width, "big") for one in sizes[:-1])
    data += struct.pack(">i", sizes[-1]) if sizes else b""
    return base64.b64encode(zstandard.compress(data)).decode()


@dataclass
class Copied:
    """A partition directory of which the older segments lie in a store, too or alone.

    Attributes
    ----------
    folder : Path
        Has ``data/t-0``, the log directory's partition, and ``store``.
    manifests : dict
        By base offset.
    """

    folder: Path
    manifests: dict[int, Path] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.folder / "data" / "t-0"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def options(self) -> dict[str, Any]:
        return {"private_keys": {"k1": PEM}}

    def open(self, **options: Any) -> kts.PartitionLog:
        return kts.open_partition(self.data, remote=self.store, remote_options=self.options | options)

    def alone(self, **options: Any) -> kts.PartitionLog:
        return kts.open_log_dirs(None, remote=self.store, remote_options=self.options | options)["t", 0]

    def change(self, base_offset: int, change: Callable[[dict[str, Any]], object]) -> Path:
        """Change a manifest."""
        path = self.manifests[base_offset]
        found = json.loads(path.read_text())
        change(found)
        path.write_text(json.dumps(found))
        return path


def copied(
    partition: Path,
    folder: Path,
    *,
    chunk_bytes: Callable[[int], int] = lambda number: 4 << 20,
    compressed: Callable[[int], bool] = lambda number: False,
    encrypted: Callable[[int], bool] = lambda number: False,
    local: int = 1,
    told: bool = True,
) -> Copied:
    """Copy all segments but the last one into Aiven's layout, and leave the last few in the log directory.

    Parameters
    ----------
    partition : Path
        A directory with plain segments.
    chunk_bytes, compressed, encrypted : callable
        Of the segment with a number.
    told : bool
        Manifests repeat the metadata.
    """
    made = Copied(folder)
    shutil.copytree(partition, made.data)
    (made.data / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
    (made.data / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    logs = sorted(made.data.glob("*.log"))
    place = made.store / f"t-{TOPIC_ID}" / "0"
    place.mkdir(parents=True)
    for number, (log, following) in enumerate(zip(logs, logs[1:], strict=False)):
        base, end = int(log.stem), int(following.stem) - 1
        name = base64.urlsafe_b64encode(random.Random(base).randbytes(16)).decode().rstrip("=")
        coding = _Coding(compressed(number), encrypted(number))
        chunks = coding.log(log.read_bytes(), chunk_bytes(number))
        indexes, places = b"", {}
        snapshot = made.data / f"{end + 1:020d}.snapshot"
        for key, suffix in [*FILES.items()][:3] + [("leaderEpoch", "")] + [*FILES.items()][3:]:
            path = snapshot if key == "producerSnapshot" else log.with_suffix(suffix)
            data = b"0\n1\n0 0\n" if key == "leaderEpoch" else path.read_bytes() if path.exists() else None
            if key == "transaction" and not data:
                places[key] = None
                continue
            stored = coding.encrypted(data or b"") if data else b""
            places[key] = {"position": len(indexes), "size": len(stored)}
            indexes += stored
        told_of = {
            "remoteLogSegmentId": {"topicIdPartition": {"topicId": TOPIC_ID, "topicPartition": {"topic": "t",
                                   "partition": 0}}, "id": name},
            "startOffset": base, "endOffset": end, "maxTimestampMs": coding.greatest, "brokerId": 1,
            "eventTimestampMs": 1_700_000_000_000 + number, "segmentLeaderEpochs": {"0": base},
        }  # fmt: skip
        manifest = {"version": "1", "chunkIndex": chunks, "segmentIndexes": places, "compression": coding.compressed}
        manifest |= coding.manifest | ({"remoteLogSegmentMetadata": told_of} if told else {})
        stem = place / f"{base:020d}-{name}"
        stem.with_suffix(".log").write_bytes(coding.stored)
        stem.with_suffix(".indexes").write_bytes(indexes)
        made.manifests[base] = stem.with_suffix(".rsm-manifest")
        made.manifests[base].write_text(json.dumps(manifest))
        if number < len(logs) - local:
            for path in made.data.glob(f"{base:020d}.*"):
                path.unlink()
    (made.data.parent / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {int(logs[0].stem)}\n")
    return made


class _Coding:
    """How a segment is stored."""

    def __init__(self, compressed: bool, is_encrypted: bool) -> None:
        self.compressed = compressed
        self.stored = b""
        self.greatest = -1
        self.manifest: dict[str, Any] = {}
        self._cipher: AESGCM | None = None
        self._aad = os.urandom(32)
        if is_encrypted:
            key = os.urandom(32)
            self._cipher = AESGCM(key)
            told = {"dataKey": f"k1:{base64.b64encode(wrapped(key)).decode()}"}
            self.manifest["encryption"] = told | {"aad": base64.b64encode(self._aad).decode()}

    def encrypted(self, data: bytes) -> bytes:
        if self._cipher is None:
            return data
        iv = os.urandom(12)
        return iv + self._cipher.encrypt(iv, data, self._aad)

    def log(self, data: bytes, size: int) -> dict[str, Any]:
        """The chunk index; the object is ``stored``."""
        times = kts.scan_batches(data)["maxTimestamp"].cast("int64").to_pylist()
        self.greatest = max(times, default=-1)
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        pieces = [zstandard.compress(one) for one in pieces] if self.compressed else pieces
        pieces = [self.encrypted(one) for one in pieces]
        self.stored = b"".join(pieces)
        found: dict[str, Any] = {"originalChunkSize": size, "originalFileSize": len(data)}
        if self.compressed:
            return found | {"type": "variable", "transformedChunks": chunk_sizes([len(one) for one in pieces])}
        more = 28 if self._cipher is not None else 0
        return found | {"type": "fixed", "transformedChunkSize": size + more,
                        "finalTransformedChunkSize": len(pieces[-1]) if pieces else 0}  # fmt: skip
