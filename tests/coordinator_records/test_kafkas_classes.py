"""Keys and values of every type and version, written and read by the classes that Kafka 4.3.1 generates."""

from __future__ import annotations

import base64
import json
import random
import re
import struct
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.golden import scaled
from support.kafka.jvm import JAVA, Jvm

from kts.coordinator_records import groups, modern, shares, transactions
from kts.coordinator_records.layout import Layout, as_json
from kts.errors import KtsError
from kts.protocol.fields import Field

pytestmark = pytest.mark.java
Json = dict[str, Any]
COORDINATORS = ("group", "share", "transaction")
OURS = {  # by Kafka's names
    "groupId": "group",
    "transactionTimeoutMs": "timeoutMs",
    "transactionStatus": "state",
    "transactionPartitions": "partitions",
    "partitionIds": "partitions",
    "transactionLastUpdateTimestampMs": "lastUpdateTimestamp",
    "transactionStartTimestampMs": "startTimestamp",
}
LAYOUTS = {
    "OffsetCommitKey": groups.OFFSET_KEY_LAYOUT,
    "OffsetCommitValue": groups.OFFSET_LAYOUT,
    "LegacyOffsetCommitKey": groups.OFFSET_KEY_LAYOUT,
    "LegacyOffsetCommitValue": groups.OFFSET_LAYOUT,
    "GroupMetadataKey": groups.GROUP_KEY_LAYOUT,
    "GroupMetadataValue": groups.GROUP_LAYOUT,
    "ShareSnapshotKey": shares.SHARE_KEY_LAYOUT,
    "ShareUpdateKey": shares.SHARE_KEY_LAYOUT,
    "ShareSnapshotValue": shares.SNAPSHOT_LAYOUT,
    "ShareUpdateValue": shares.UPDATE_LAYOUT,
    "TransactionLogKey": transactions.TRANSACTION_KEY_LAYOUT,
    "TransactionLogValue": transactions.TRANSACTION_LAYOUT,
    **{f"{each.name}Key": each.key for each in modern.TYPES.values() if each.value is not None},
    **{f"{each.name}Value": each.value for each in modern.TYPES.values() if each.value is not None},
}
NUMBERS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "int64": 63}


class Case(NamedTuple):
    """A key or value of Kafka's: its definition, a version, and the layout of ours."""

    coordinator: str
    spec: Json
    version: int

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.spec["name"]]

    @property
    def ours(self) -> int:
        """What stands before the fields: the version of a value, the type of a key."""
        return int(self.spec["apiKey"]) if self.spec["type"] == "coordinator-key" else self.version


@cache
def jvm() -> Jvm:
    return Jvm(JAVA / "tools/tools-4.3.1.xml", JAVA / "tools/CoordinatorValues.java")


@cache
def cases() -> list[Case]:
    """Every version of every definition in the jars of the coordinators."""
    found = []
    for name in COORDINATORS:
        [jar] = [
            each for each in jvm().class_path.split(":") if Path(each).name == f"kafka-{name}-coordinator-4.3.1.jar"
        ]
        with zipfile.ZipFile(jar) as opened:
            for path in sorted(each for each in opened.namelist() if re.fullmatch(r"common/message/\w+\.json", each)):
                spec = json.loads(re.sub(r"(?m)^\s*//.*$", "", opened.read(path).decode()))
                found += [Case(name, spec, version) for version in within(spec["validVersions"], 9)]
    return found


def within(text: str, last: int) -> range:
    low, _, high = text.removesuffix("+").partition("-")
    return range(int(low), last + 1 if text.endswith("+") else int(high or low) + 1)


def fields_of(case: Case, fields: list[Json]) -> list[Json]:
    """The fields of a version; ``fields`` are those of structs that are defined aside."""
    structs = {each["name"]: each["fields"] for each in case.spec.get("commonStructs", ())}
    there = [each for each in fields if case.version in within(each.get("versions", each.get("taggedVersions")), 9)]
    return [each | {"fields": each.get("fields", structs.get(each["type"].removeprefix("[]")))} for each in there]


def made(case: Case, fields: list[Json], rng: random.Random) -> Json:
    """Fields at random, in Kafka's JSON; tagged ones are there or not."""
    found = {}
    for field in fields_of(case, fields):
        if "tag" in field and rng.random() < 0.3:
            continue
        null = case.version in within(field["nullableVersions"], 9) if "nullableVersions" in field else False
        name = field["name"][0].lower() + field["name"][1:]
        found[name] = None if null and rng.random() < 0.3 else value(case, field, field["type"], rng)
    return found


def value(case: Case, field: Json, type_: str, rng: random.Random) -> Any:
    if type_.startswith("[]"):
        return [
            value(case, field, type_[2:], rng)
            for _ in range(rng.choice([0, 1, 1, 2, 130 if rng.random() < 0.1 else 3]))
        ]
    if type_ in NUMBERS:
        largest = 2 ** NUMBERS[type_] - 1
        return rng.choice([0, 1, largest, rng.randrange(largest), *([] if type_ == "uint16" else [-1, -largest - 1])])
    if type_ == "uuid":
        return base64.urlsafe_b64encode(rng.choice([bytes(16), rng.randbytes(16)])).decode().rstrip("=")
    if type_ == "bytes":
        return base64.b64encode(rng.randbytes(rng.randrange(9))).decode()
    if type_ == "string":
        return rng.choice(["", "a", "topic-é", "x" * rng.randrange(200), "😀"])
    return made(case, field["fields"], rng)


def whole(case: Case, fields: list[Json], found: Json) -> Json:
    """Kafka's JSON, which lacks tagged fields that have their default, with our names and these."""
    shown = {}
    for field in fields_of(case, fields):
        name = field["name"][0].lower() + field["name"][1:]
        type_, inner = field["type"], field["fields"]
        if name in found:
            each = found[name]
        elif inner and not type_.startswith("[]"):
            each = {"sessionTimeoutMs": 0, "supportedProtocols": []}  # the only struct in a tagged field
        else:
            nothing = "AAAAAAAAAAAAAAAAAAAAAA" if type_ == "uuid" else [] if type_.startswith("[]") else 0
            each = nothing if field.get("default") is None else int(field["default"])
        if inner and each is not None:
            several = isinstance(each, list)
            each = [whole(case, inner, one) for one in each] if several else whole(case, inner, each)
        shown[OURS.get(name, name)] = each
    return shown


def asked(requests: list[tuple[Case, str]]) -> list[tuple[bytes, Json | None]]:
    """The bytes after the version, and what Kafka reads of them, with all fields of the version; None if nothing."""
    lines = [f"{case.coordinator}\t{case.spec['name']}\t{case.version}\t{text}" for case, text in requests]
    answers = jvm().run("CoordinatorValues", stdin="\n".join(lines).encode()).decode().splitlines()
    found: list[tuple[bytes, Json | None]] = []
    for (case, _), answer in zip(requests, answers, strict=True):
        data, shown = answer.split("\t")
        read = whole(case, case.spec["fields"], json.loads(shown)) if shown else None
        found.append((base64.b64decode(data), read))
    return found


def read_by_kts(case: Case, data: bytes) -> Json:
    """The fields that the version has."""
    return as_json(ours_of(case.layout.fields, case.ours), case.layout.read(struct.pack(">h", case.ours) + data))


def ours_of(fields: Sequence[Field], version: int) -> list[Field]:
    there = [field for field in fields if version in field.versions]
    return [field._replace(fields=tuple(ours_of(field.fields, version))) for field in there]


def test_random_records_of_every_type_and_version_are_read_as_kafkas_classes_read_them(rng: random.Random) -> None:
    assert {case.spec["name"] for case in cases()} == LAYOUTS.keys()
    requests = [
        (case, json.dumps(made(case, case.spec["fields"], rng))) for case in cases() for _ in range(scaled(12, 1000))
    ]
    for (case, text), (data, expected) in zip(requests, asked(requests), strict=True):
        assert expected is not None, text
        assert read_by_kts(case, data) == expected, case.spec["name"]


def test_mutated_records_are_refused_or_read_as_kafkas_classes_read_them(rng: random.Random) -> None:
    sound = [(case, json.dumps(made(case, case.spec["fields"], rng))) for case in cases() for _ in range(3)]
    requests = []
    for (case, _), (data, _) in zip(sound, asked(sound), strict=True):
        for _ in range(scaled(12, 500)):
            at = rng.randrange(len(data))
            hostile = rng.choice([rng.randbytes(1), b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff", b"\0", b""])
            mutated = data[:at] + hostile + data[at + rng.choice([0, 1, len(hostile)]) :]
            requests.append((case, base64.b64encode(mutated).decode()))
    refused = read = 0
    for (case, _), (data, expected) in zip(requests, asked(requests), strict=True):
        try:
            found = read_by_kts(case, data)
        except KtsError:
            refused += 1
        else:
            assert found == expected, (case.spec["name"], data)
            read += 1
    assert refused > len(requests) // 10
    assert read > len(requests) // 10
