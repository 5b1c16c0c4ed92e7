"""Random Avro schemas and values; a slow reader that refuses what the specification does not allow; and columns."""

from __future__ import annotations

import datetime
import random
import struct
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa

DAY_MS = 86_400_000
MEMBERS = {"long": int, "string": str, "boolean": bool, "bytes": bytes}
LOGICAL = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    *({"type": "long", "logicalType": f"{local}timestamp-{unit}"} for local in ("", "local-")
      for unit in ("millis", "micros", "nanos")),
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 38},
    {"type": "bytes", "logicalType": "decimal", "precision": 25},
    {"type": "string", "logicalType": "unheard-of"},
]  # fmt: skip
NAMED_LOGICAL = [
    {"type": "fixed", "size": 12, "logicalType": "duration"},
    {"type": "fixed", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 10},
    {"type": "fixed", "size": 3, "logicalType": "decimal", "precision": 5, "scale": 5},
]


class SchemaMaker:
    """Random schemas that columns can have."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names: list[str] = []

    def name(self) -> str:
        self.names.append(f"{self.rng.choice(['', '', 'n.', 'a.b.'])}N{len(self.names)}")
        return self.names[-1]

    def record(self, depth: int = 3) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "record", "name": self.name()}
        made["fields"] = [
            {"name": f"f{number}", "type": self.type(depth)} for number in range(self.rng.randint(1, 5))
        ]  # fmt: skip
        return made

    def type(self, depth: int) -> Any:
        rng = self.rng
        if rng.random() < 0.25:
            kinds = ["null", self.type_within(depth)]
            rng.shuffle(kinds)
            return kinds
        if rng.random() < 0.1:
            kinds = rng.sample([*MEMBERS], rng.randint(2, 3)) + ["null"] * rng.randint(0, 1)
            rng.shuffle(kinds)
            return kinds
        return self.type_within(depth)

    def type_within(self, depth: int) -> Any:
        rng = self.rng
        choice = rng.randrange(10 if depth else 6)
        if choice < 3:
            return rng.choice(["boolean", "int", "long", "float", "double", "bytes", "string"])
        if choice == 3:
            return dict(rng.choice(LOGICAL))
        if choice == 4:
            return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "LONG_SYMBOL"]}
        if choice == 5:
            return rng.choice(
                [
                    {"type": "fixed", "name": self.name(), "size": rng.choice([0, 1, 5])},
                    rng.choice(NAMED_LOGICAL) | {"name": self.name()},
                ]
            )
        if choice == 6:
            return {"type": "array", "items": self.type(depth - 1)}
        if choice == 7:
            return {"type": "map", "values": self.type(depth - 1)}
        return self.record(depth - 1)


def stripped(told: Any) -> Any:
    """A schema without logical types: values of it are raw."""
    if isinstance(told, list):
        return [stripped(one) for one in told]
    if not isinstance(told, dict):
        return told
    return {name: stripped(one) if name in ("type", "items", "values", "fields") else one
            for name, one in told.items() if name not in ("logicalType", "precision", "scale")}  # fmt: skip


def random_value(rng: random.Random, told: Any) -> Any:
    """A raw value of a schema whose logical types can be shown by Python's own."""
    if isinstance(told, list):
        return random_value(rng, rng.choice(told))
    if isinstance(told, str):
        return _primitive(rng, told)
    kind, logical = told["type"], told.get("logicalType")
    if isinstance(kind, list | dict):
        return random_value(rng, kind)
    if logical == "decimal":
        most = 10 ** told["precision"] - 1
        number = rng.choice([0, most, -most, rng.randint(-most, most)])
        size = told["size"] if kind == "fixed" else (number.bit_length() + 8) // 8
        return number.to_bytes(size, "big", signed=True)
    if logical == "uuid":
        return str(uuid.UUID(int=rng.getrandbits(128)))
    if logical in ("date", "time-millis", "time-micros") or (logical or "").endswith(("millis", "micros", "nanos")):
        per_ms = {"s": 1, "millis": 1, "micros": 1000, "nanos": 1_000_000}
        if logical == "date":
            return rng.randint(-700_000, 2_900_000)
        unit = logical.rsplit("-", 1)[1]
        if logical.startswith("time-"):
            return rng.randint(0, DAY_MS * per_ms[unit] - 1)
        return rng.randint(-2_000_000_000_000, 4_000_000_000_000) * per_ms[unit] + rng.randint(0, per_ms[unit] - 1)
    match kind:
        case "array":
            return [random_value(rng, told["items"]) for _ in range(rng.choice([0, 1, 2, 9]))]
        case "map":
            return {
                _primitive(rng, "string"): random_value(rng, told["values"]) for _ in range(rng.choice([0, 1, 3, 12]))
            }
        case "enum":
            return rng.choice(told["symbols"])
        case "fixed":
            return rng.randbytes(told["size"])
        case "record":
            return {one["name"]: random_value(rng, one["type"]) for one in told["fields"]}
    return _primitive(rng, kind)


def _primitive(rng: random.Random, kind: str) -> Any:
    match kind:
        case "null":
            return None
        case "boolean":
            return rng.random() < 0.5
        case "int" | "long":
            bits = rng.randint(0, 31 if kind == "int" else 63)
            return rng.choice([1, -1]) * rng.getrandbits(bits) - (bits > 1 and rng.random() < 0.1)
        case "float":
            return struct.unpack("<f", struct.pack("<f", rng.gauss(0, 1e6)))[0]
        case "double":
            return rng.choice([rng.gauss(0, 1), float("inf"), float("nan"), -0.0])
        case "bytes":
            return rng.randbytes(rng.choice([0, 1, 7, 40, 200]))
    return "".join(rng.choice("abcé€😀 ") for _ in range(rng.choice([0, 1, 5, 40, 130])))


def column_value(told: Any, value: Any) -> Any:
    """What fastavro made of a value, as ``shown`` shows it."""
    if isinstance(told, list):
        others = [one for one in told if one != "null"]
        if value is None or len(others) == 1:
            return None if value is None else column_value(others[0], value)
        return {one: value if type(value) is MEMBERS[one] else None for one in others}
    if isinstance(told, str):
        return struct.unpack("<f", struct.pack("<f", value))[0] if told == "float" else value
    match told["type"]:
        case "array":
            return [column_value(told["items"], one) for one in value]
        case "map":
            return [(name, column_value(told["values"], one)) for name, one in value.items()]
        case "record":
            return {one["name"]: column_value(one["type"], value[one["name"]]) for one in told["fields"]}
    return f"{value:f}" if isinstance(value, Decimal) else str(value) if isinstance(value, uuid.UUID) else value


def shown(array: pa.Array) -> list[Any]:
    """The values of an array; times in nanoseconds and any beyond Python's as numbers, decimals as text."""
    if pa.types.is_struct(array.type):
        columns = [shown(array.field(number)) for number in range(array.type.num_fields)]
        names = [one.name for one in array.type]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] or [{}] * len(array)
    elif pa.types.is_list(array.type) or pa.types.is_map(array.type):
        edges = array.offsets.to_pylist()
        parts = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
        items: list[Any] = [shown(part) for part in parts]
        pairs = [*zip(*items, strict=True)] if len(items) == 2 else items[0]
        rows = [pairs[first:end] for first, end in zip(edges, edges[1:], strict=False)]
    elif pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        rows = array.cast(pa.int64()).to_pylist()
    elif pa.types.is_decimal(array.type):
        rows = [None if one is None else f"{one:f}" for one in array.to_pylist()]
    else:
        rows = array.to_pylist()
        if pa.types.is_timestamp(array.type) and array.type.tz:
            rows = [None if one is None else one.replace(tzinfo=datetime.UTC) for one in rows]
    return [row if there else None for row, there in zip(rows, array.is_valid().to_pylist(), strict=True)]


class Unsound(Exception):
    """The specification does not allow these bytes."""


class AvroCursor:
    """Reads one value of a schema without logical types, by the letter of Avro's specification."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.names: dict[str, Any] = {}

    def whole(self, told: Any) -> Any:
        self.learn(told)
        found = self.value(told)
        if self.at != len(self.data):
            raise Unsound
        return found

    def learn(self, told: Any) -> None:
        """Keep all types that have a name."""
        if isinstance(told, list):
            for one in told:
                self.learn(one)
        elif isinstance(told, dict):
            if "name" in told and "type" in told:
                self.names.setdefault(told["name"], told)
            self.learn([*told.values()])

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise Unsound
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, bits: int) -> int:
        found = shift = 0
        while True:
            [byte] = self.take(1)
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if found >= 1 << bits or shift > (35 if bits == 32 else 70):
            raise Unsound
        return found >> 1 ^ -(found & 1)

    def choice(self, choices: list[Any], bits: int) -> Any:
        number = self.number(bits)
        if not 0 <= number < len(choices):
            raise Unsound
        return choices[number]

    def text(self) -> str:
        try:
            return self.take(self.number(64)).decode()
        except UnicodeDecodeError as error:
            raise Unsound from error

    def blocks(self, item: Any) -> list[Any]:
        items: list[Any] = []
        while count := self.number(64):
            end = None
            if count < 0:
                size = self.number(64)
                end = self.at + size
                if size < 0:
                    raise Unsound
            for _ in range(abs(count)):
                items.append(item())
                if len(items) > len(self.data) + 70_000:
                    raise Unsound
            if end not in (None, self.at):
                raise Unsound
        return items

    def value(self, told: Any) -> Any:
        if isinstance(told, list):
            branch = self.choice(told, 64)
            value = self.value(branch)
            others = [one for one in told if one != "null"]
            if len(others) == 1 or branch == "null":
                return value
            return {one: value if one == branch else None for one in others}
        if isinstance(told, str) and told in self.names:
            told = self.names[told]
        match told if isinstance(told, str) else told["type"]:
            case "null":
                return None
            case "boolean":
                [byte] = self.take(1)
                if byte > 1:
                    raise Unsound
                return byte == 1
            case "int":
                return self.number(32)
            case "long":
                return self.number(64)
            case "float":
                return struct.unpack("<f", self.take(4))[0]
            case "double":
                return struct.unpack("<d", self.take(8))[0]
            case "string":
                return self.text()
            case "bytes":
                return self.take(self.number(64))
            case "fixed":
                return self.take(told["size"])
            case "enum":
                return self.choice(told["symbols"], 32)
            case "record":
                return {one["name"]: self.value(one["type"]) for one in told["fields"]}
            case "array":
                return self.blocks(lambda: self.value(told["items"]))
            case "map":
                return [*dict(self.blocks(lambda: (self.text(), self.value(told["values"])))).items()]
        raise AssertionError(told)
