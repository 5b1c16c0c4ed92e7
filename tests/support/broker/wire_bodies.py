"""Random bodies of every message in the broker's table, and what a reader must make of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from kts.broker import wire
from kts.broker.wire.messages import MESSAGES, Message
from kts.protocol.fields import Field

SIZES = {"int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8}
Number = Callable[[random.Random, Field], int]
TEXTS = ["", "a", "topic-1", "Grüße", "日本語", "🎈 balloon", "x" * 127, "y" * 128, "z" * 300, "\x00"]


def every_layout() -> Iterator[tuple[Message, int, bool, Sequence[Field]]]:
    """Every message, its version, whether it is a response, and its fields."""
    for message in MESSAGES.values():
        for version in message.versions:
            yield message, version, False, message.request
            yield message, version, True, message.response


def label(message: Message, version: int, is_response: bool) -> str:
    return f"{message.api_key.name} {version} {'response' if is_response else 'request'}"


def any_number(rng: random.Random, field: Field) -> int:
    """Of an integer field: its ends, what is around zero, and anything."""
    bits = 8 * SIZES[field.type] - 1
    if field.type == "uint16":
        return rng.choice([0, 1, 2**16 - 1, rng.randrange(2**16)])
    return rng.choice([0, 1, -1, 2**bits - 1, -(2**bits), rng.randrange(-(2**bits), 2**bits)])


def random_value(rng: random.Random, field: Field, version: int, number: Number = any_number) -> Any:
    """Any value of the field: its ends, null where it may be, nothing, and what a random number makes."""
    if version in field.null and rng.random() < 0.25:
        return None
    if field.is_array:
        element = field._replace(is_array=False, null=range(0))
        return [random_value(rng, element, version, number) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    if field.type == "{}":
        return random_body(rng, field.fields, version, number)
    if field.type == "bool":
        return rng.random() < 0.5
    if field.type == "uuid":
        return rng.choice([bytes(16), rng.randbytes(16)])
    if field.type == "string":
        return rng.choice(TEXTS)
    if field.type in ("bytes", "records"):
        return rng.randbytes(rng.choice([0, 1, 63, 127, 128, 700, 3000]))
    return number(rng, field)


def random_body(
    rng: random.Random, fields: Sequence[Field], version: int, number: Number = any_number
) -> dict[str, Any]:
    """A body for one version; some of its keys are left to their defaults."""
    return {
        field.name: random_value(rng, field, version, number)
        for field in fields
        if version in field.versions and rng.random() > (0.5 if field.tag is not None else 0.05)
    }


def filled(fields: Sequence[Field], body: dict[str, Any]) -> dict[str, Any]:
    """The body that a reader must find: every field of the table, with its default where the body has none."""
    return {field.name: _filled(field, body.get(field.name, field.default)) for field in fields}


def _filled(field: Field, value: Any) -> Any:
    if field.is_array and value is not None and field.type == "{}":
        return [filled(field.fields, each) for each in value]
    if field.type == "{}" and not field.is_array:
        return filled(field.fields, value)
    return value


def plain(value: Any) -> Any:
    """Views as bytes, so that bodies compare and print."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return bytes(value) if isinstance(value, memoryview) else value


def frame_of(message: Message, version: int, is_response: bool, body: dict[str, Any]) -> bytes:
    """The body as a frame without its size, correlation id 77, client id ``client``."""
    if is_response:
        chunks = wire.encode_response(message.api_key, version, 77, body)
        return b"".join(bytes(chunk) if isinstance(chunk, memoryview) else cast(bytes, chunk) for chunk in chunks)[4:]
    return wire.encode_request(message.api_key, version, 77, "client", body)[4:]


def decoded(message: Message, version: int, is_response: bool, frame: bytes) -> dict[str, Any]:
    """The body of a frame from ``frame_of``."""
    if is_response:
        correlation_id, body = wire.decode_response(message.api_key, version, memoryview(frame))
        assert correlation_id == 77
    else:
        header, body = wire.decode_request(memoryview(frame))
        assert header == (message.api_key, version, 77, "client")
    return cast(dict[str, Any], plain(body))
