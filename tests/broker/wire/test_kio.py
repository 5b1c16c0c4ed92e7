"""The package kio as a second opinion on every message and version that it knows."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import random
import uuid
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import kio.index
import kio.serial
import pytest
from kio.schema.errors import ErrorCode
from support.broker.wire_bodies import any_number, decoded, every_layout, filled, frame_of, label, random_body

from kts.broker.wire.messages import MESSAGES
from kts.protocol.fields import Field

EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
OLDEST_OF_KIO = {"PRODUCE": 3, "FETCH": 4, "LIST_OFFSETS": 1, "OFFSET_COMMIT": 2, "OFFSET_FETCH": 1, "CREATE_TOPICS": 2}
OLDEST_OF_KIO |= {"DELETE_TOPICS": 1, "OFFSET_FOR_LEADER_EPOCH": 2, "DESCRIBE_CONFIGS": 1}
OLDEST_OF_KIO |= {"DESCRIBE_LOG_DIRS": 1, "DESCRIBE_ACLS": 1, "CREATE_ACLS": 1, "DELETE_ACLS": 1}


def number(rng: random.Random, field: Field) -> int:
    """For kio an error code must be one of Kafka's, and a time one that Python's datetime has, or most often -1."""
    if field.name.endswith("error_code"):
        return int(rng.choice(list(ErrorCode)))
    is_time = field.type == "int64" and ("timestamp" in field.name or field.name.endswith("_ms"))
    never = [] if field.name == "transaction_start_time_ms" else [-1]
    return rng.choice([*never, 0, 1, rng.randrange(2**40), 253_402_300_799_000]) if is_time else any_number(rng, field)


def same(fields: Sequence[Field], version: int, body: dict[str, Any], theirs: Any) -> bool:
    """Whether a kio entity has the values of our body, and its names but for the units."""
    wanted = [field for field in fields if version in field.versions]
    found = {each.name: getattr(theirs, each.name) for each in dataclasses.fields(theirs)}
    return len(wanted) == len(found) and all(
        same_value(field, version, body[field.name], found[name_of(field, found)]) for field in wanted
    )


def name_of(field: Field, found: dict[str, Any]) -> str:
    return field.name if field.name in found else field.name.removesuffix("_ms")


def same_value(field: Field, version: int, ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:  # kio has no nil uuid, and no time before 1970
        return theirs is None and ours in (None, bytes(16), -1)
    if isinstance(theirs, datetime.datetime):
        return bool((theirs - EPOCH) // datetime.timedelta(milliseconds=1) == ours)
    if field.is_array:
        one = field._replace(is_array=False)
        return len(ours) == len(theirs) and all(
            same_value(one, version, each, other) for each, other in zip(ours, theirs, strict=True)
        )
    if field.type == "{}":
        return same(field.fields, version, ours, theirs)
    if isinstance(theirs, datetime.timedelta):
        return bool(theirs // datetime.timedelta(milliseconds=1) == ours)
    if isinstance(theirs, uuid.UUID):
        return bool(theirs.bytes == ours)
    if isinstance(theirs, enum.Enum):
        return bool(theirs.value == ours)
    return bool(theirs == ours)


@pytest.mark.slow
def test_kio_reads_what_we_write_and_we_read_what_it_writes(rng: random.Random) -> None:
    known = set()
    for message, version, back, fields in every_layout():
        load = kio.index.load_response_schema if back else kio.index.load_request_schema
        try:
            schema = load(message.api_key, version)
        except kio.index.UnknownEntity:
            continue
        known.add((message.api_key.name, version))
        head = schema.__header_schema__
        for _ in range(4):
            body = random_body(rng, fields, version, number)
            frame = frame_of(message, version, back, body)
            where = label(message, version, back)
            header, size = kio.serial.entity_reader(head)(frame, 0)
            theirs, body_size = kio.serial.entity_reader(schema)(frame, size)
            assert size + body_size == len(frame), where
            assert header.correlation_id == 77
            ours = filled(fields, body)
            assert same(fields, version, ours, theirs), f"{where}: {ours} {theirs}"
            out = BytesIO()
            kio.serial.entity_writer(head)(out, header)
            kio.serial.entity_writer(schema)(out, theirs)
            assert decoded(message, version, back, out.getvalue()) == ours, where
    wanted = {
        (message.api_key.name, version)
        for message in MESSAGES.values()
        for version in message.versions
        if version >= OLDEST_OF_KIO.get(message.api_key.name, 0)
    }
    assert known == wanted


def test_kio_refuses_an_unknown_tagged_field_which_we_skip(rng: random.Random) -> None:
    message, version = MESSAGES[3], 9
    frame = frame_of(message, version, False, {"topics": None})
    assert frame.endswith(b"\0")
    tagged = frame[:-1] + bytes([2, 9, 2]) + b"ab" + bytes([100, 0])
    assert decoded(message, version, False, tagged) == decoded(message, version, False, frame)
    schema: Any = kio.index.load_request_schema(3, version)
    head: Any = schema.__header_schema__
    _, size = kio.serial.entity_reader(head)(tagged, 0)
    with pytest.raises(Exception, match=r"9|tag"):
        kio.serial.entity_reader(schema)(tagged, size)
