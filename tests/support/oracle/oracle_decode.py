"""What kts reads in a byte string, in the shape that `oracle/README.md` gives decoded bytes."""

from __future__ import annotations

import base64
import zlib
from typing import Any

from support.oracle.oracle_errors import error_object
from support.reference import reference, reference_codecs
from support.reference.decoded import rows_of

import kts
from kts.behaviour import Behaviour
from kts.codec.refusals import as_shipped

Row = dict[str, Any]
NO_SEQUENCE = -1


def decode(data: bytes, gen: str) -> Row:
    """The answer of the family `decode`; a wrong CRC is said, any other damage is an error where it stands."""
    try:
        valid_bytes = kts.valid_bytes(data)
        entries = rows_of(kts.scan_batches(data))
    except kts.KtsError as error:
        return {"valid_bytes_error": error_object(error), _LISTS.get(gen, "batches") + "_error": error_object(error)}
    read = [_records(data, entry, gen) for entry in entries]
    out: Row = {"valid_bytes": valid_bytes}
    if gen not in _LISTS:
        pairs = zip(entries, read, strict=True)
        out["batches"] = [_batch(data, entry, rows, error) for entry, (rows, error) in pairs]
        return out
    out["shallow"] = [_shallow(data, entry) for entry in entries]
    out["deep"] = []
    for entry, (rows, error) in zip(entries, read, strict=True):
        valid = _valid(data, entry, len(rows))
        out["deep"] += [_deep(row) | {"valid": valid[i]} for i, row in enumerate(rows)]
        if error is not None:
            out["deep_error"] = error
            break
    return out


_LISTS = {"0.10.2": "shallow"}  # what 0.10.2 alone calls its entries


def text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def _records(data: bytes, entry: Row, gen: str) -> tuple[list[Row], Row | None]:
    whole = data[entry["position"] : entry["position"] + entry["sizeInBytes"]]
    try:
        return rows_of(kts.decode(whole, kts.ALL_COLUMNS, verify_crc=False)), None
    except kts.CorruptRecordError as error:
        return [], error_object(as_shipped(error, Behaviour.of(gen, shipped=True)))


def _head(data: bytes, entry: Row) -> Row:
    """What both releases say of an entry."""
    start = entry["position"]
    crc_at = start + (17 if entry["magic"] == 2 else 12)
    codec = entry["codec"]
    head = {
        "magic": entry["magic"],
        "size": entry["sizeInBytes"],
        "crc": int.from_bytes(data[crc_at : crc_at + 4], "big"),
        "valid": entry["crcOk"],
        "ts_type": entry["timestampType"],
    }
    known = codec <= (4 if entry["magic"] == 2 else 3)
    return head | ({"codec": codec} if known else {"codec_error": {"class": "java.lang.IllegalArgumentException"}})


def _shallow(data: bytes, entry: Row) -> Row:
    own = {
        "offset": entry["lastOffset"],
        "attributes": int.from_bytes(data[entry["position"] + 17 : entry["position"] + 18], "big", signed=True),
        "ts": entry["maxTimestamp"],
    }
    return _head(data, entry) | own


def _valid(data: bytes, entry: Row, count: int) -> list[bool]:
    """Whether the CRC of each message of an entry is right; 0.10.2 asks every one of them."""
    if entry["codec"] == 0:
        return [entry["crcOk"]] * count
    start = entry["position"] + 12
    payload = reference.message_parts(data[start : start + entry["sizeInBytes"] - 12])[-1]
    plain = reference_codecs.decompress(entry["codec"], entry["magic"], payload or b"")
    valid, at = [], 0
    for _ in range(count):
        size = int.from_bytes(plain[at + 8 : at + 12], "big")
        valid.append(zlib.crc32(plain[at + 16 : at + 12 + size]) == int.from_bytes(plain[at + 12 : at + 16], "big"))
        at += 12 + size
    return valid


def _deep(row: Row) -> Row:
    return {
        "offset": row["offset"],
        "magic": row["magic"],
        "ts": row["timestamp"],
        "ts_type": row["timestampType"],
        "key": text(row["key"]),
        "value": text(row["value"]),
    }


def _batch(data: bytes, entry: Row, rows: list[Row], error: Row | None) -> Row:
    batch = _head(data, entry)
    batch |= {
        "last_offset": entry["lastOffset"],
        "next_offset": entry["lastOffset"] + 1,
        "max_ts": entry["maxTimestamp"],
    }
    if entry["baseOffset"] is not None:
        batch["base_offset"] = entry["baseOffset"]
    elif rows:
        batch["base_offset"] = rows[0]["offset"]
    else:
        batch["base_offset_error"] = error
    if entry["magic"] == 2:
        batch |= _batch_facts(data, entry)
    batch["records"] = [_record(row, entry) for row in rows]
    if error is not None and entry["magic"] < 2 and entry["codec"] == 0:  # a message, whatever its lengths say
        times = {"ts": entry["maxTimestamp"], "ts_type": entry["timestampType"]}
        batch["records"] = [{"offset": batch["last_offset"], **times, "field_error": error}]
    elif error is not None:
        batch["records_error"] = error
    return batch


def _batch_facts(data: bytes, entry: Row) -> Row:
    """What only a record batch of magic 2 says."""
    base_sequence = entry["baseSequence"]
    facts = {
        "base_ts": entry["baseTimestamp"],
        "pid": entry["producerId"],
        "epoch": entry["producerEpoch"],
        "base_seq": base_sequence,
        "last_seq": _last_sequence(base_sequence, entry["lastOffset"] - entry["baseOffset"]),
        "txn": entry["transactional"],
        "control": entry["control"],
        "leader_epoch": entry["partitionLeaderEpoch"],
        "count": entry["count"],
    }
    attributes = int.from_bytes(data[entry["position"] + 21 : entry["position"] + 23], "big")
    if attributes & 0x40:
        facts["delete_horizon"] = entry["baseTimestamp"]
    return facts


def _last_sequence(first: int, count: int) -> int:
    """Kafka's sum, also where a negative count wraps."""
    if first == NO_SEQUENCE:
        return NO_SEQUENCE
    limit = _int32(2**31 - 1 - count)
    return _int32(count - (2**31 - 1 - first) - 1 if first > limit else first + count)


def _int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def _record(row: Row, entry: Row) -> Row:
    record = {"offset": row["offset"], "ts": row["timestamp"], "key": text(row["key"]), "value": text(row["value"])}
    if entry["magic"] == 2:
        headers = [[name, text(value)] for name, value in row["headers"] or ()]
        return record | {"sequence": row["sequence"], "headers": headers}
    record["ts_type"] = row["timestampType"]
    if row["magic"] != entry["magic"]:
        record["inner_magic_differs"] = True
    return record
