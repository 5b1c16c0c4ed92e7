"""Slow, obvious decoder of Kafka's bytes: the oracle of the codec's tests; it shares no code with kts.

The rules are those of Kafka 3.9.2's reading classes for all magics; where ours is stricter the line says ``stricter``.
What it says of damage outside of compressed payloads is word for word what kts must say.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import crc32c
from support.reference.reference_codecs import DEFAULT_LIMIT, BadPayload, TooLarge, decompress

CODEC_NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}

Row = dict[str, Any]


class Corrupt(Exception):
    """Damage: where, in which entry and record, and why; ``payload`` where compressed bytes themselves are damaged."""

    def __init__(self, position: int, offset: int | None, record_index: int | None, why: str) -> None:
        super().__init__(f"{why} (position {position}, offset {offset}, record {record_index})")
        self.position, self.offset, self.record_index, self.why = position, offset, record_index, why
        self.payload = self.too_large = False


# --- entries ---------------------------------------------------------------------------------------


def proposed(magic: int) -> str | None:
    """What is said of a magic of KIP-32's rejected options; None: it is none."""
    options = {33: 1, 34: 2, 35: 3}
    return (
        f"magic {magic} is KIP-32's option {options[magic]}, which only kts.proposals.options reads"
        if magic in options
        else None
    )


def entries(buf: bytes) -> Iterator[tuple[int, int, int]]:
    """(position, bytes, magic) of every whole entry; a cut tail ends it, a bad size or magic raises."""
    at = 0
    while len(buf) - at >= 12:
        offset, size = struct.unpack_from(">qi", buf, at)
        if size < 14:
            raise Corrupt(at, offset, None, f"size {size} is below the smallest message (14 bytes)")
        if len(buf) - at < 17:
            return
        magic = struct.unpack_from(">b", buf, at + 16)[0]
        if magic not in (0, 1, 2):
            raise Corrupt(at, offset, None, proposed(magic) or f"magic {magic} is unknown, expected 0 to 2")
        if size > 2**31 - 1 - 12:
            why = f"size {size} exceeds the largest entry Kafka can hold (2147483635 bytes)"
            raise Corrupt(at, offset, None, why)
        if len(buf) - at < size + 12:
            return
        yield at, size + 12, magic
        at += size + 12


def valid_bytes(buf: bytes) -> int:
    """Length of the whole entries at the front."""
    return sum(size for _, size, _ in entries(buf))


def decode(buf: bytes, verify_crc: bool = True, limit: int = DEFAULT_LIMIT) -> list[Row]:
    """One dict per record, with every column."""
    return [row for _, rows in decode_entries(buf, verify_crc, limit) for row in rows]


def decode_entries(buf: bytes, verify_crc: bool = True, limit: int = DEFAULT_LIMIT) -> Iterator[tuple[int, list[Row]]]:
    """(last offset, rows) of every batch or outermost message."""
    for at, size, magic in entries(buf):
        entry = buf[at : at + size]
        try:
            if magic == 2:
                yield _batch(at, entry, verify_crc, limit)
            else:
                yield _outer(at, entry, magic, verify_crc, limit)
        except BadPayload as error:
            corrupt = Corrupt(at, int.from_bytes(entry[:8], "big", signed=True), None, str(error))
            corrupt.payload, corrupt.too_large = True, isinstance(error, TooLarge)
            raise corrupt from None


# --- magic 2 ---------------------------------------------------------------------------------------

HEADER = struct.Struct(">qiibIhiqqqhii")  # 61 bytes


class Wrong(Exception):
    """Why a record or message is not one; its index is added by whoever counts."""


class _Cursor:
    """Bytes read from the front; any read past the end is damage."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, n: int) -> bytes:
        self.at += n
        return self.data[self.at - n : self.at]

    def _varint(self, most: int, bits: int) -> int:
        value, at = 0, self.at
        for i in range(most):
            if at == len(self.data):
                raise Wrong(f"the record ends inside a field, {self.left} bytes before its end")
            value |= (self.data[at] & 0x7F) << (7 * i)
            at += 1
            if self.data[at - 1] < 128:
                self.at = at
                value &= (1 << bits) - 1  # what does not fit into the last byte is dropped, as in Java
                return (value >> 1) ^ -(value & 1)
        raise Wrong(f"a varint has no end within {most} bytes")

    def varint(self) -> int:
        return self._varint(5, 32)

    def varlong(self) -> int:
        return self._varint(10, 64)

    def nullable(self, what: str) -> bytes | None:
        size = self.varint()
        if size > self.left:
            raise Wrong(f"{what} length {size} exceeds the {self.left} bytes left")
        return None if size < 0 else self.take(size)


def _batch_size(at: int, entry: bytes) -> None:
    if len(entry) < 61:
        why = f"batch length {len(entry) - 12} is below the 49 bytes of a record batch header"
        raise Corrupt(at, int.from_bytes(entry[:8], "big", signed=True), None, why)


def _same_crc(what: str, stored: int, computed: int, at: int, offset: int, i: int | None) -> None:
    if stored != computed:
        where = "" if i is None else f"inner message {i}: "
        raise Corrupt(at, offset, i, f"{where}{what} is {computed:08x}, expected the stored {stored:08x}")


def _batch(at: int, entry: bytes, verify_crc: bool, limit: int) -> tuple[int, list[Row]]:
    _batch_size(at, entry)
    fields = HEADER.unpack_from(entry)
    base, _, epoch, magic, crc, attributes, last_delta, base_time, max_time, pid, pepoch, sequence, count = fields
    codec = attributes & 7
    if codec > 4:
        raise Corrupt(at, base, None, f"compression codec {codec} is unknown, expected 0 to 4")
    if verify_crc:
        _same_crc("CRC", crc, crc32c.crc32c(entry[21:]), at, base, None)
    payload = entry[61:]
    last = _i64(base + last_delta)
    if codec and (count or payload):  # stricter: Kafka does not open the payload when the count is 0
        payload = decompress(codec, 2, payload, limit)
    if count < 0:
        raise Corrupt(at, base, None, f"record count {count} is negative")
    if count * 7 > len(payload):  # seven bytes are the smallest record
        raise Corrupt(at, base, None, f"record count {count} does not fit the {len(payload)} bytes of records")
    append_time = bool(attributes & 8)
    rows: list[Row] = []
    cursor = _Cursor(payload)
    for i in range(count):
        try:
            rows.append(_record(cursor, base, base_time, sequence, max_time if append_time else None))
        except Wrong as error:
            raise Corrupt(at, base, i, f"record {i} of {count}: {error}") from None
    if cursor.left:  # stricter for a count of 0
        why = f"{cursor.left} bytes are left after the {count} records that the batch declares"
        raise Corrupt(at, base, None, why)
    shared = {
        "timestampType": 1 if append_time else 0,
        "magic": magic,
        "codec": codec,
        "codecName": CODEC_NAMES.get(codec),
        "producerId": pid,
        "producerEpoch": pepoch,
        "partitionLeaderEpoch": epoch,
        "transactional": bool(attributes & 16),
        "control": bool(attributes & 32),
        "position": at,
        "baseOffset": base,
        "lastOffsetDelta": last_delta,
        "attributes": attributes,
        "baseTimestamp": base_time,
        "maxTimestamp": max_time,
    }
    marked = bool(attributes & 0x80)
    return last, [row | shared | {"hasTimestamp": marked or row["timestamp"] != -1} for row in rows]


def _record(cursor: _Cursor, base: int, base_time: int, base_sequence: int, append_time: int | None) -> Row:
    size = cursor.varint()
    if not 0 <= size <= cursor.left:
        raise Wrong(f"record length {size} exceeds the {cursor.left} bytes left")
    body = _Cursor(cursor.take(size))
    body.at = min(1, size)  # attributes are unused
    created = _i64(base_time + body.varlong())
    delta = body.varint()
    key = body.nullable("key")
    value = body.nullable("value")
    count = body.varint()
    if not 0 <= count <= body.left:  # two bytes are the smallest header
        raise Wrong(f"header count {count} does not fit the {body.left} bytes left")
    headers = []
    for _ in range(count):
        name_size = body.varint()
        if not 0 <= name_size <= body.left:
            raise Wrong(f"header key length {name_size} does not fit the {body.left} bytes left")
        name = body.take(name_size)
        headers.append((java_utf8(name), body.nullable("header value")))
    if body.left:
        raise Wrong(f"record length {size} leaves {body.left} bytes after the record's last field")
    return {
        "offset": _i64(base + delta),
        "timestamp": created if append_time is None else append_time,
        "createTimestamp": created,
        "sequence": _sequence(base_sequence, delta),
        "key": key,
        "value": value,
        "headers": headers or None,
    }


def _sequence(base: int, delta: int) -> int:
    if base < 0:
        return -1
    if delta >= 0 and base + delta <= 2**31 - 1:
        return base + delta
    return (base + delta - 2**31 + 2**31) % 2**32 - 2**31  # Java's arithmetic, also for negative deltas


def java_utf8(data: bytes) -> str:
    """Java's new String(bytes, UTF_8): like Python's "replace", but an encoded surrogate is one U+FFFD."""
    out, at = "", 0
    while at < len(data):
        if data[at] == 0xED and data[at + 1 : at + 2] >= b"\xa0" and data[at + 1 : at + 2] <= b"\xbf":
            out += "\ufffd"
            at += 3 if 0x80 <= (data[at + 2 : at + 3] or b"\0")[0] <= 0xBF else 2
            continue
        end = data.find(b"\xed", at + 1)
        end = len(data) if end < 0 else end
        out += data[at:end].decode("utf-8", "replace")
        at = end
    return out


# --- magic 0 and 1 ---------------------------------------------------------------------------------


def message_parts(message: bytes) -> tuple[int, int, int, bytes | None, bytes | None]:
    """(magic, attributes, timestamp, key, value) of the bytes after an entry's size field."""
    magic, attributes = struct.unpack_from(">bb", message, 4)
    cursor = _Cursor(message)
    cursor.at = 6
    timestamp = int.from_bytes(cursor.take(8), "big", signed=True) if magic == 1 else -1
    size = int.from_bytes(cursor.take(4), "big", signed=True)
    if size > cursor.left - 4:  # the length of the value is there, too
        raise Wrong(f"key length {size} exceeds the {cursor.left - 4} bytes left")
    key = None if size < 0 else cursor.take(size)
    size = int.from_bytes(cursor.take(4), "big", signed=True)
    if size > cursor.left:
        raise Wrong(f"value length {size} exceeds the {cursor.left} bytes left")
    value = None if size < 0 else cursor.take(size)
    if cursor.left:  # stricter: Kafka does not look behind the value
        raise Wrong(f"value length {size} leaves {cursor.left} bytes after the message's value")
    return magic, attributes, timestamp, key, value


def _message_size(at: int, entry: bytes, magic: int) -> None:
    if magic == 1 and len(entry) < 34:  # 14 bytes, enough for magic 0, are there
        why = f"message size {len(entry) - 12} is below the 22 bytes that its magic needs"
        raise Corrupt(at, int.from_bytes(entry[:8], "big", signed=True), None, why)


def _outer(at: int, entry: bytes, magic: int, verify_crc: bool, limit: int) -> tuple[int, list[Row]]:
    _message_size(at, entry, magic)
    offset, _, crc, _, attributes = struct.unpack_from(">qiIbb", entry)
    codec = attributes & 7
    if codec > 4:
        raise Corrupt(at, offset, None, f"compression codec {codec} is unknown, expected 0 to 4")
    if codec == 4:
        raise Corrupt(at, offset, None, f"codec zstd in a message of magic {magic}, which cannot carry it")
    if verify_crc:
        _same_crc("CRC", crc, zlib.crc32(entry[16:]), at, offset, None)
    try:
        _, attributes, timestamp, key, value = message_parts(entry[12:])
    except Wrong as error:
        raise Corrupt(at, offset, None, str(error)) from None
    shared = {"position": at, "codec": codec, "codecName": CODEC_NAMES.get(codec), "attributes": attributes}
    kind = -1 if magic == 0 else attributes >> 3 & 1
    if codec == 0:
        created = None if kind == 1 else timestamp  # the append time has replaced the only one
        return offset, [_legacy_row(offset, magic, timestamp, created, kind, key, value) | shared]
    if value is None:
        raise Corrupt(at, offset, None, "a compressed message has no value")
    inner = list(_inner(decompress(codec, magic, value, limit), at, offset, verify_crc))
    if not inner:
        raise Corrupt(at, offset, None, "a compressed message holds no inner message")
    base = 0
    if magic == 1 and offset != 0:
        if offset < inner[-1][0]:
            why = f"wrapper offset {offset} is below the last inner offset {inner[-1][0]}"
            raise Corrupt(at, offset, None, why)
        base = offset - inner[-1][0]
    rows = []
    for inner_offset, inner_magic, created, key, value in inner:
        if inner_magic == 0:
            time, inner_kind = -1, -1
        else:
            time, inner_kind = (timestamp if kind == 1 else created), kind
        absolute = _i64(base + inner_offset)
        rows.append(_legacy_row(absolute, inner_magic, time, created, inner_kind, key, value) | shared)
    return offset, rows


def _inner(
    plain: bytes, at: int, outer_offset: int, verify_crc: bool
) -> Iterator[tuple[int, int, int, bytes | None, bytes | None]]:
    here = i = 0
    while len(plain) - here >= 12:
        offset, size = struct.unpack_from(">qi", plain, here)

        def wrong(why: str, i: int = i) -> Corrupt:
            return Corrupt(at, outer_offset, i, f"inner message {i}: {why}")

        if size < 14:
            raise wrong(f"inner message size {size} is below the smallest message (14 bytes)")
        here += 12
        if size > len(plain) - here:
            return  # a cut tail, as Kafka
        message = plain[here : here + size]
        crc, magic, attributes = struct.unpack_from(">Ibb", message)
        if magic not in (0, 1):  # stricter: Kafka reads any other magic like 1
            raise wrong(proposed(magic) or f"inner message magic {magic} is unknown, expected 0 or 1")
        if magic == 1 and size < 22:
            raise wrong(f"inner message size {size} is below the smallest message (22 bytes)")
        if attributes & 7:
            raise wrong(f"inner message is compressed itself (codec {attributes & 7})")
        if verify_crc:
            _same_crc("inner message CRC", crc, zlib.crc32(message[4:]), at, outer_offset, i)
        try:
            _, _, timestamp, key, value = message_parts(message)
        except Wrong as error:
            raise wrong(str(error)) from None
        yield offset, magic, timestamp, key, value
        here += size
        i += 1


def _legacy_row(
    offset: int, magic: int, time: int, created: int | None, kind: int, key: bytes | None, value: bytes | None
) -> Row:
    return {
        "offset": offset,
        "timestamp": time,
        "timestampType": kind,
        "key": key,
        "value": value,
        "headers": None,
        "magic": magic,
        "producerId": -1,
        "producerEpoch": -1,
        "sequence": -1,
        "partitionLeaderEpoch": -1,
        "transactional": False,
        "control": False,
        "createTimestamp": created,
        "baseOffset": None,
        "lastOffsetDelta": None,
        "baseTimestamp": None,
        "maxTimestamp": None,
        "hasTimestamp": time != -1,
    }


def _i64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


# --- questions over batches ------------------------------------------------------------------------


def scan_batches(buf: bytes) -> list[Row]:
    """One dict per batch or outermost message, from headers alone."""
    return [
        _scan_batch(at, buf[at : at + n]) if magic == 2 else _scan_message(at, buf[at : at + n], magic)
        for at, n, magic in entries(buf)
    ]


def _scan_batch(at: int, entry: bytes) -> Row:
    _batch_size(at, entry)
    fields = HEADER.unpack_from(entry)
    base, _, epoch, magic, crc, attributes, last_delta, base_time, max_time, pid, pepoch, sequence, count = fields
    return {
        "position": at,
        "sizeInBytes": len(entry),
        "magic": magic,
        "baseOffset": base,
        "lastOffset": _i64(base + last_delta),
        "count": count,
        "baseTimestamp": base_time,
        "maxTimestamp": max_time,
        "timestampType": attributes >> 3 & 1,
        "codec": attributes & 7,
        "partitionLeaderEpoch": epoch,
        "producerId": pid,
        "producerEpoch": pepoch,
        "baseSequence": sequence,
        "transactional": bool(attributes & 16),
        "control": bool(attributes & 32),
        "crcOk": crc32c.crc32c(entry[21:]) == crc,
    }


def _scan_message(at: int, entry: bytes, magic: int) -> Row:
    _message_size(at, entry, magic)
    offset, _, crc, _, attributes = struct.unpack_from(">qiIbb", entry)
    plain = attributes & 7 == 0
    time = struct.unpack_from(">q", entry, 18)[0] if magic == 1 else -1
    return {
        "position": at,
        "sizeInBytes": len(entry),
        "magic": magic,
        "baseOffset": offset if plain else None,
        "lastOffset": offset,
        "count": 1 if plain else None,
        "baseTimestamp": time,
        "maxTimestamp": time,
        "timestampType": -1 if magic == 0 else attributes >> 3 & 1,
        "codec": attributes & 7,
        "partitionLeaderEpoch": -1,
        "producerId": -1,
        "producerEpoch": -1,
        "baseSequence": -1,
        "transactional": False,
        "control": False,
        "crcOk": zlib.crc32(entry[16:]) == crc,
    }


def max_timestamp(buf: bytes, verify_crc: bool = True) -> tuple[int, int, int]:
    """(timestamp, offset, last offset of its entry) of the first record with the greatest timestamp above -1."""
    best = (-1, -1, -1)
    for last, rows in decode_entries(buf, verify_crc):
        for row in rows:
            if row["timestamp"] > best[0]:
                best = (row["timestamp"], row["offset"], last)
    return best


def offset_for_timestamp(buf: bytes, target: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record whose timestamp is not below the target."""
    for row in decode(buf):
        if row["timestamp"] >= target:
            return row["timestamp"], row["offset"]
    return None
