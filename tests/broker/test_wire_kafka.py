"""The whole table against the classes that Kafka generates, and the oldest versions against those it had before.

Every API, version and direction goes through Kafka as random messages: it must read the fields that we wrote, and write
the same bytes again.
"""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from support.broker.wire_bodies import decoded, every_layout, filled, frame_of, label, random_body
from support.kafka.jvm import JAVA, Jvm

from kts.broker.wire.messages import MESSAGES, Message
from kts.protocol.fields import Field

FOLDER = JAVA / "wire"
Item = tuple[Message, int, bool, Sequence[Field], dict[str, Any] | None]
# What 4.3.1 and 3.9.2 know of the table's layouts, and what the newest version of 3.9 and the oldest of 4 leave out.
NEW_TO_4 = {"PRODUCE": 11, "FETCH": 17, "LIST_OFFSETS": 9, "METADATA": 12, "OFFSET_COMMIT": 9, "OFFSET_FETCH": 9}
NEW_TO_4 |= {"DESCRIBE_GROUPS": 5, "INIT_PRODUCER_ID": 5, "DESCRIBE_CLUSTER": 1}
NEW_TO_4 |= {"DESCRIBE_LOG_DIRS": 4, "ALTER_PARTITION_REASSIGNMENTS": 0, "LIST_TRANSACTIONS": 1}
GONE_IN_4 = {"PRODUCE": 3, "FETCH": 4, "LIST_OFFSETS": 1, "OFFSET_COMMIT": 2, "OFFSET_FETCH": 1, "CREATE_TOPICS": 2}
GONE_IN_4 |= {"DELETE_TOPICS": 1, "OFFSET_FOR_LEADER_EPOCH": 2, "DESCRIBE_CONFIGS": 1}
GONE_IN_4 |= {"DESCRIBE_LOG_DIRS": 1, "DESCRIBE_ACLS": 1, "CREATE_ACLS": 1, "DELETE_ACLS": 1}


def kafkas_answers(version: str, program: str, items: list[bytes]) -> list[tuple[bytes, Any] | str]:
    """What a Java program of this folder says to each item: the bytes again and the JSON, or why not."""
    source = FOLDER / ("old" if program == "OldWireMessages" else "new") / f"{program}.java"
    stdin = b"".join(struct.pack(">i", len(item)) + item for item in items)
    said = Jvm(FOLDER / f"clients-{version}.xml", source).run(program, stdin=stdin)
    answers: list[tuple[bytes, Any] | str] = []
    at = 0
    while at < len(said):
        parts: list[bytes | None] = []
        for _ in range(2):
            (size,) = struct.unpack_from(">i", said, at)
            parts.append(said[at + 4 : at + 4 + size] if size >= 0 else None)
            at += 4 + max(size, 0)
        first, second = parts
        assert second is not None
        answers.append(second.decode() if first is None else (first, json.loads(second)))
    assert len(answers) == len(items)
    return answers


def item_of(message: Message, version: int, is_response: bool, frame: bytes) -> bytes:
    return struct.pack(">bhh", is_response, message.api_key, version) + frame


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def as_json(field: Field, value: Any, version: int) -> Any:
    """The value as Kafka's JSON has it; of records it says nothing."""
    if value is None:
        return None
    if field.is_array:
        return [as_json(field._replace(is_array=False), each, version) for each in value]
    if field.type == "{}":
        return body_as_json(field.fields, value, version)
    if field.type == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if field.type == "bytes":
        return base64.b64encode(value).decode()
    return "" if field.type == "records" else value


def body_as_json(fields: Sequence[Field], body: dict[str, Any], version: int) -> dict[str, Any]:
    return {
        camel(field.name): as_json(field, body[field.name], version)
        for field in fields
        if version in field.versions and (field.tag is None or body[field.name] != field.default)
    }


def nameless(value: Any) -> Any:
    """The values in their order: some names changed after 2.8."""
    if isinstance(value, dict):
        return [nameless(each) for each in value.values()]
    return [nameless(each) for each in value] if isinstance(value, list) else value


def random_items(rng: random.Random, count: int) -> list[Item]:
    return [(*layout, random_body(rng, layout[3], layout[1])) for layout in every_layout() for _ in range(count)]


@pytest.mark.parametrize("kafka", ["2.8.2", "3.9.2", "4.3.1"])
def test_kafkas_own_classes_read_what_we_write_and_write_it_the_same(kafka: str, rng: random.Random) -> None:
    items = random_items(rng, 2)
    frames = [frame_of(message, version, back, body or {}) for message, version, back, _, body in items]
    asked = [item_of(*item[:3], frame) for item, frame in zip(items, frames, strict=True)]
    answers = kafkas_answers(kafka, "WireMessages", asked)
    known: set[str] = set()
    for (message, version, back, fields, body), frame, answer in zip(items, frames, answers, strict=True):
        where = label(message, version, back)
        ours = filled(fields, body or {})
        assert decoded(message, version, back, frame) == ours, where
        if isinstance(answer, str):
            assert "no such version" in answer or "Unsupported API key" in answer, f"{where}: {answer}"
            continue
        known.add(where)
        again, read = answer
        said = body_as_json(fields, ours, version)
        if kafka == "2.8.2":
            said.pop("zkMigrationReady", None)  # a tagged field that 2.8 does not know, and kept as it came
            assert nameless(read) == nameless(said), where
        else:
            assert read == said, where
        assert again == frame, where
    names = {where.rpartition(" ")[0] for where in known}
    wanted = {
        f"{message.api_key.name} {version}"
        for message in MESSAGES.values()
        for version in message.versions
        if (kafka != "4.3.1" or version >= GONE_IN_4.get(message.api_key.name, 0))
        and (kafka != "3.9.2" or version <= NEW_TO_4.get(message.api_key.name, version))
    }
    assert kafka == "2.8.2" or names == wanted
    assert len(known) == 2 * len(names)


@pytest.mark.parametrize("kafka", ["3.9.2", "4.3.1"])
def test_defaults_are_those_of_kafkas_classes(kafka: str) -> None:
    layouts = list(every_layout())
    asked = [struct.pack(">bhh", 2 + back, message.api_key, version) for message, version, back, _ in layouts]
    compared = 0
    for (message, version, back, fields), answer in zip(
        layouts, kafkas_answers(kafka, "WireMessages", asked), strict=True
    ):
        if isinstance(answer, str):
            continue
        compared += 1
        written, said = answer
        frame = frame_of(message, version, back, {})
        assert frame.endswith(written), label(message, version, back)
        assert said == body_as_json(fields, filled(fields, {}), version), label(message, version, back)
    assert compared > 250


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def positional(field: Field, value: Any, version: int) -> Any:
    """The value as OldWireMessages.java says it."""
    if value is None or isinstance(value, int):
        return value
    if field.is_array:
        return [positional(field._replace(is_array=False), each, version) for each in value]
    if field.type == "{}":
        return [positional(each, value[each.name], version) for each in field.fields if version in each.versions]
    return (value.encode() if isinstance(value, str) else value).hex()


def test_the_layouts_that_kafka_0_10_wrote_by_hand_read_what_we_write_and_write_it_the_same(rng: random.Random) -> None:
    items = random_items(rng, 2)
    frames = [frame_of(message, version, back, body or {}) for message, version, back, _, body in items]
    asked = [item_of(*item[:3], frame) for item, frame in zip(items, frames, strict=True)]
    known = set()
    for (message, version, back, fields, body), frame, answer in zip(
        items, frames, kafkas_answers("0.10.2.2", "OldWireMessages", asked), strict=True
    ):
        if isinstance(answer, str):
            continue
        again, read = answer
        ours = filled(fields, body or {})
        where = label(message, version, back)
        wanted = [positional(each, ours[each.name], version) for each in fields if version in each.versions]
        assert list(leaves(read)) == list(leaves(wanted)), where  # it has a struct more here, and one less there
        assert again == frame, where
        known.add(where.rpartition(" ")[0])
    oldest = {"PRODUCE": 2, "FETCH": 3, "LIST_OFFSETS": 1, "METADATA": 2, "OFFSET_COMMIT": 2, "OFFSET_FETCH": 2}
    oldest |= {"FIND_COORDINATOR": 0, "JOIN_GROUP": 1, "HEARTBEAT": 0, "LEAVE_GROUP": 0, "SYNC_GROUP": 0}
    oldest |= {"DESCRIBE_GROUPS": 0, "LIST_GROUPS": 0, "API_VERSIONS": 0, "CREATE_TOPICS": 1, "DELETE_TOPICS": 0}
    assert known == {f"{name} {version}" for name, last in oldest.items() for version in range(last + 1)}
