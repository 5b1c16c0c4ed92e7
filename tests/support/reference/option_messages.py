"""Messages of KIP-32's options 1, 2 and 3, written and read slowly, field by field, as the KIP draws them."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from support.reference import reference_codecs

HAS_CREATE, HAS_APPEND = (1, 3), (1, 2)


class Row(NamedTuple):
    """One message as a reader sees it; a time that the option does not have is None."""

    offset: int
    create_ms: int | None
    append_ms: int | None
    key: bytes | None
    value: bytes | None


def _field(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


def message(
    option: int,
    offset: int,
    create_ms: int | None = -1,
    append_ms: int | None = -1,
    key: bytes | None = None,
    value: bytes | None = b"v",
    codec: int = 0,
) -> bytes:
    """Offset MessageSize Crc MagicByte Attributes [CreateTime] [LogAppendTime] Key Value."""
    body = struct.pack(">bb", 32 + option, codec)
    if option in HAS_CREATE:
        body += struct.pack(">q", create_ms)
    if option in HAS_APPEND:
        body += struct.pack(">q", append_ms)
    body += _field(key) + _field(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def sealed(entry: bytes) -> bytes:
    """The message with the size and CRC that its bytes have."""
    body = entry[16:]
    return entry[:8] + struct.pack(">iI", len(body) + 4, zlib.crc32(body)) + body


def rows(data: bytes, option: int) -> list[Row]:
    """Every message of a sound set."""
    found, at = [], 0
    while at < len(data):
        offset, size, crc, magic, attributes = struct.unpack_from(">qiIbb", data, at)
        codec = attributes & 7
        body = data[at + 16 : at + 12 + size]
        assert (magic, zlib.crc32(body)) == (32 + option, crc)
        create, append, rest = None, None, body[2:]
        if option in HAS_CREATE:
            create, rest = struct.unpack_from(">q", rest)[0], rest[8:]
        if option in HAS_APPEND:
            append, rest = struct.unpack_from(">q", rest)[0], rest[8:]
        fields: list[bytes | None] = []
        for _ in range(2):
            length, rest = struct.unpack_from(">i", rest)[0], rest[4:]
            fields.append(None if length < 0 else rest[:length])
            rest = rest[max(length, 0) :]
        assert rest == b""
        if codec:
            inner = rows(reference_codecs.decompress(codec, 1, fields[1] or b""), option)
            shared = [row.offset for row in inner] == list(range(len(inner)))
            for row in inner:
                own = append if shared else row.append_ms
                found.append(row._replace(offset=offset - inner[-1].offset + row.offset, append_ms=own))
        else:
            found.append(Row(offset, create, append, *fields))
        at += 12 + size
    return found
