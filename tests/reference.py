"""Slow, obvious decoder of Kafka's bytes: the oracle of the codec's tests; it shares no code with kts.

The rules are those of Kafka 3.9.2's reading classes for all magics; where ours is stricter the line says ``stricter``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import crc32c
from reference_codecs import DEFAULT_LIMIT, BadPayload, TooLarge, decompress

Row = dict[str, Any]


class Corrupt(Exception):
    """Damage: where, in which entry and record, and why."""

    def __init__(self, position: int, offset: int | None, record_index: int | None, why: str) -> None:
        super().__init__(f"{why} (position {position}, offset {offset}, record {record_index})")
        self.position, self.offset, self.record_index, self.why = position, offset, record_index, why
        self.too_large = False


# --- entries ---------------------------------------------------------------------------------------


def entries(buf: bytes) -> Iterator[tuple[int, int, int]]:
    """(position, bytes, magic) of every whole entry; a cut tail ends it, a bad size or magic raises."""
    at = 0
    while len(buf) - at >= 12:
        offset, size = struct.unpack_from(">qi", buf, at)
        if size < 14:
            raise Corrupt(at, offset, None, f"size {size} is below 14")
        if len(buf) - at < 17:
            return
        magic = struct.unpack_from(">b", buf, at + 16)[0]
        if magic not in (0, 1, 2):
            raise Corrupt(at, offset, None, f"magic {magic}")
        if size > 2**31 - 1 - 12:
            raise Corrupt(at, offset, None, f"size {size}: the entry would pass 2^31-1 bytes")
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
        except TooLarge as error:
            corrupt = Corrupt(at, None, None, str(error))
            corrupt.too_large = True
            raise corrupt from None
        except BadPayload as error:
            raise Corrupt(at, None, None, str(error)) from None


# --- magic 2 ---------------------------------------------------------------------------------------

HEADER = struct.Struct(">qiibIhiqqqhii")  # 61 bytes


class _Cursor:
    """Bytes read from the front; any read past the end is damage."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int, what: str) -> bytes:
        if n > len(self.data) - self.at:
            raise BadPayload(f"{what}: {n} bytes wanted, {len(self.data) - self.at} left")
        self.at += n
        return self.data[self.at - n : self.at]

    def _varint(self, what: str, most: int, bits: int) -> int:
        value = 0
        for i in range(most):
            byte = self.take(1, what)[0]
            value |= (byte & 0x7F) << (7 * i)
            if byte < 128:
                value &= (1 << bits) - 1  # what does not fit into the last byte is dropped, as in Java
                return (value >> 1) ^ -(value & 1)
        raise BadPayload(f"{what}: varint of more than {most} bytes")

    def varint(self, what: str) -> int:
        return self._varint(what, 5, 32)

    def varlong(self, what: str) -> int:
        return self._varint(what, 10, 64)

    def nullable(self, what: str) -> bytes | None:
        size = self.varint(f"{what} length")
        return None if size < 0 else self.take(size, what)


def _batch(at: int, entry: bytes, verify_crc: bool, limit: int) -> tuple[int, list[Row]]:
    offset = int.from_bytes(entry[:8], "big", signed=True)
    if len(entry) < 61:
        raise Corrupt(at, offset, None, f"batch of {len(entry)} bytes, at least 61 needed")
    fields = HEADER.unpack_from(entry)
    base, _, epoch, magic, crc, attributes, last_delta, base_time, max_time, pid, pepoch, sequence, count = fields
    if verify_crc and crc32c.crc32c(entry[21:]) != crc:
        raise Corrupt(at, base, None, "CRC-32C differs")
    codec = attributes & 7
    if codec > 4:
        raise Corrupt(at, base, None, f"codec {codec}")
    if count < 0:
        raise Corrupt(at, base, None, f"record count {count}")
    payload = entry[61:]
    last = _i64(base + last_delta)
    if codec and (count or payload):  # stricter: Kafka does not open the payload when the count is 0
        try:
            payload = decompress(codec, 2, payload, limit)
        except TooLarge:
            raise
        except BadPayload as error:
            raise Corrupt(at, base, None, str(error)) from None
    append_time = bool(attributes & 8)
    rows: list[Row] = []
    cursor = _Cursor(payload)
    for i in range(count):
        try:
            rows.append(_record(cursor, base, base_time, sequence, max_time if append_time else None))
        except BadPayload as error:
            raise Corrupt(at, base, i, str(error)) from None
    if cursor.at != len(payload):  # stricter for a count of 0
        raise Corrupt(at, base, None, f"{len(payload) - cursor.at} bytes left after {count} records")
    shared = {
        "timestampType": 1 if append_time else 0,
        "magic": magic,
        "codec": codec,
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
    return last, [row | shared for row in rows]


def _record(cursor: _Cursor, base: int, base_time: int, base_sequence: int, append_time: int | None) -> Row:
    size = cursor.varint("record length")
    if size < 0:
        raise BadPayload(f"record length {size}")
    body = _Cursor(cursor.take(size, "record"))
    body.take(1, "attributes")
    created = _i64(base_time + body.varlong("timestamp delta"))
    delta = body.varint("offset delta")
    key = body.nullable("key")
    value = body.nullable("value")
    count = body.varint("header count")
    if count < 0:
        raise BadPayload(f"header count {count}")
    headers = []
    for i in range(count):
        name_size = body.varint(f"header {i}: key length")
        if name_size < 0:
            raise BadPayload(f"header {i}: key length {name_size}")
        name = body.take(name_size, f"header {i}: key")
        headers.append((java_utf8(name), body.nullable(f"header {i}: value")))
    if body.at != size:
        raise BadPayload(f"record length {size}, but its fields end after {body.at} bytes")
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


def message_parts(message: bytes, verify_crc: bool) -> tuple[int, int, int, bytes | None, bytes | None]:
    """(magic, attributes, timestamp, key, value) of the bytes after an entry's size field."""
    crc, magic, attributes = struct.unpack_from(">Ibb", message)
    if magic not in (0, 1):
        raise BadPayload(f"magic {magic}")  # stricter inside wrappers: Kafka reads any other magic like 1
    if verify_crc and zlib.crc32(message[4:]) != crc:
        raise BadPayload("CRC-32 differs")
    cursor = _Cursor(message[6:])
    timestamp = int.from_bytes(cursor.take(8, "timestamp"), "big", signed=True) if magic == 1 else -1
    parts = []
    for what in ("key", "value"):
        size = int.from_bytes(cursor.take(4, f"{what} length"), "big", signed=True)
        parts.append(None if size < 0 else cursor.take(size, what))
    if cursor.at != len(cursor.data):  # stricter: Kafka does not look behind the value
        raise BadPayload(f"{len(cursor.data) - cursor.at} bytes left after the value")
    return magic, attributes, timestamp, parts[0], parts[1]


def _outer(at: int, entry: bytes, magic: int, verify_crc: bool, limit: int) -> tuple[int, list[Row]]:
    offset = int.from_bytes(entry[:8], "big", signed=True)
    try:
        _, attributes, timestamp, key, value = message_parts(entry[12:], verify_crc)
    except BadPayload as error:
        raise Corrupt(at, offset, None, str(error)) from None
    codec = attributes & 7
    shared = {"position": at, "codec": codec, "attributes": attributes}
    kind = -1 if magic == 0 else attributes >> 3 & 1
    if codec == 0:
        return offset, [_legacy_row(offset, magic, timestamp, timestamp, kind, key, value) | shared]
    if codec > 3:
        raise Corrupt(at, offset, None, f"codec {codec} in a message of magic {magic}")
    if value is None:
        raise Corrupt(at, offset, None, "wrapper message without a value")
    try:
        inner = list(_inner(decompress(codec, magic, value, limit), at, offset, verify_crc))
    except TooLarge:
        raise
    except BadPayload as error:
        raise Corrupt(at, offset, None, str(error)) from None
    if not inner:
        raise Corrupt(at, offset, None, "wrapper message with nothing inside")
    base = 0
    if magic == 1 and offset != 0:
        if offset < inner[-1][0]:
            raise Corrupt(at, offset, None, f"wrapper offset {offset} below its last inner offset {inner[-1][0]}")
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
        if size < 14:
            raise Corrupt(at, outer_offset, i, f"inner size {size} is below 14")
        here += 12
        if size > len(plain) - here:
            return  # a cut tail, as Kafka
        try:
            magic, attributes, timestamp, key, value = message_parts(plain[here : here + size], verify_crc)
        except BadPayload as error:
            raise Corrupt(at, outer_offset, i, str(error)) from None
        if attributes & 7:
            raise Corrupt(at, outer_offset, i, "inner message is compressed itself")
        yield offset, magic, timestamp, key, value
        here += size
        i += 1


def _legacy_row(
    offset: int, magic: int, time: int, created: int, kind: int, key: bytes | None, value: bytes | None
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
    if len(entry) < 61:
        raise Corrupt(at, int.from_bytes(entry[:8], "big", signed=True), None, f"batch of {len(entry)} bytes")
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
    offset, _, crc, _, attributes = struct.unpack_from(">qiIbb", entry)
    if magic == 1 and len(entry) < 34:
        raise Corrupt(at, offset, None, f"message of magic 1 in {len(entry)} bytes, at least 34 needed")
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
