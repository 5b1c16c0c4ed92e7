"""The headers and records of one log: what no CRC covers is compared."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import kts
from kts.offline.verify import verify


def single(tmp_path: Path, data: bytes) -> Path:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(data)
    return tmp_path / "t-0"


def repaired(batch: bytes, position: int, new: bytes) -> bytes:
    """A changed v2 batch with the CRC of what it holds now."""
    from crc32c import crc32c

    data = bytearray(batch)
    data[position : position + len(new)] = new
    data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    return bytes(data)


RECORDS = {"timestamp": [5, 9, 7], "value": [b"a", b"b", b"c"]}


@pytest.mark.parametrize(
    ("name", "position", "new", "kind"),
    [
        ("record count too small", 57, struct.pack(">i", 2), "records"),
        ("record count too large", 57, struct.pack(">i", 4), "records"),
        ("record length", 61, b"\x7e", "records"),
        ("last offset delta too small", 23, struct.pack(">i", 1), "records"),
        ("max timestamp too small", 35, struct.pack(">q", 8), "timestamp"),
        ("max timestamp too large", 35, struct.pack(">q", 10), "timestamp"),
        ("unknown codec", 22, b"\x07", "records"),
    ],
)
def test_deep_finds_what_headers_and_crc_do_not_show(
    name: str, position: int, new: bytes, kind: str, tmp_path: Path
) -> None:
    good = kts.encode(RECORDS, base_offset=0)
    directory = single(tmp_path, good + repaired(kts.encode(RECORDS, base_offset=3), position, new))
    assert list(verify(directory)) == []
    found = list(verify(directory, deep=True))
    assert [(one.kind, one.position) for one in found] == [(kind, len(good))], name


def test_a_negative_record_count_stands_in_the_header(tmp_path: Path) -> None:
    good = kts.encode(RECORDS, base_offset=0)
    directory = single(tmp_path, good + repaired(kts.encode(RECORDS, base_offset=3), 57, b"\xff" * 4))
    for deep in (False, True):
        assert [(one.kind, one.position) for one in verify(directory, deep=deep)] == [("records", len(good))]


@pytest.mark.parametrize("offset", [2**62, 10**6, 2])
def test_one_wrong_offset_is_one_finding(offset: int, tmp_path: Path) -> None:
    parts = [bytearray(kts.encode(RECORDS, base_offset=3 * i)) for i in range(40)]
    parts[7][:8] = struct.pack(">q", offset)
    found = list(verify(single(tmp_path, b"".join(parts))))
    assert [one.kind for one in found] == ["offset"] and len(found[0].message) < 120


def test_deep_checks_inner_messages(tmp_path: Path) -> None:
    inner = bytearray(kts.encode(RECORDS, magic=1))
    inner[-1] ^= 1  # a value, under the inner CRC only
    wrapper = kts.encode({"timestamp": [9], "value": [bytes(inner)]}, magic=1, base_offset=2)
    import gzip
    import zlib

    payload = gzip.compress(bytes(inner))
    head = wrapper[12 + 4 : 12 + 14 + 4]
    body = struct.pack(">bbqii", head[0], 1, 9, -1, len(payload)) + payload
    message = struct.pack(">I", zlib.crc32(body)) + body
    directory = single(tmp_path, struct.pack(">qi", 2, len(message)) + message)
    assert list(verify(directory)) == []
    assert [one.kind for one in verify(directory, deep=True)] == ["records"]
