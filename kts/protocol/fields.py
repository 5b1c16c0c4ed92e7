"""The fields of a struct in Kafka's binary protocol, parsed from a table with a line per field.

A field is ``name type versions``, then optionally ``null versions``, ``= default`` and ``tag number``, in this order;
more indented lines are the fields of the struct above. Types are
``bool int8 int16 uint16 int32 int64 float64 uuid string bytes records``; ``{}`` is a struct, ``[]`` an array of
structs, and ``[]int32`` an array of the type that follows. A struct that may be null begins with a byte that says so.
In flexible versions strings, bytes, records and arrays have a compact length, and each struct ends with its tagged
fields (KIP-482).

Source: the JSON message definitions, of which Kafka generates its classes (MessageGenerator).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

NONE = range(0)
# The types of fixed size, with their codes in ``struct``.
FIXED = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}
FIXED |= {"float64": "d", "uuid": "16s"}
_ABSENT: dict[str, Any] = {"bool": False, "uuid": bytes(16), "string": "", "bytes": b"", "records": None}
_LINE = re.compile(
    r"(?P<indent> +)(?P<name>\w+) +(?P<type>(\[\])?\w+|\[\]|\{\}) +(?P<versions>[\d+-]+)"
    r"( +null (?P<null>[\d+-]+))?( += (?P<default>\S+))?( +tag (?P<tag>\d+))?"
)


class Field(NamedTuple):
    """One field of a struct.

    ``type`` is the name of a primitive, ``{}`` for a struct, or the type of the elements of an array. ``default`` is
    the value in versions without the field, and of a key that the caller leaves out.
    """

    name: str
    type: str
    is_array: bool
    versions: range
    null: range
    default: Any
    tag: int | None
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return self.name

    @property
    def is_fixed(self) -> bool:
        """True if all values have the same size."""
        return self.type in FIXED and not self.is_array


def versions_of(text: str, last: int) -> range:
    """Parse versions: ``3``, ``3-5``, or ``3+`` for all from 3 on."""
    low, _, high = text.partition("-")
    if text.endswith("+"):
        return range(int(text[:-1]), last + 1)
    return range(int(low), int(high or low) + 1)


def _default(type_: str, is_array: bool, text: str | None, fields: tuple[Field, ...]) -> Any:
    if text == "null":
        return None
    if text is not None:
        return text == "true" if type_ == "bool" else int(text)
    if is_array:
        return []
    if type_ == "{}":
        return {field.name: field.default for field in fields}
    return _ABSENT.get(type_, 0)


def _fields(lines: list[str], indent: int, last: int) -> Iterator[Field]:
    """Parse and remove the leading lines that are indented by at least ``indent``."""
    while lines:
        found = _LINE.fullmatch(lines[0])
        if found is None or len(found["indent"]) < indent:
            return
        del lines[0]
        inside = tuple(_fields(lines, indent + 4, last))
        is_array = found["type"].startswith("[]")
        type_ = (found["type"][2:] or "{}") if is_array else found["type"]
        yield Field(
            found["name"],
            type_,
            is_array,
            versions_of(found["versions"], last),
            versions_of(found["null"], last) if found["null"] else NONE,
            _default(type_, is_array, found["default"], inside),
            int(found["tag"]) if found["tag"] else None,
            inside,
        )


def fields_of(text: str, last: int) -> tuple[Field, ...]:
    """The fields of a table; ``last`` is its newest version.

    Raises
    ------
    ValueError
        A line is not a field.
    """
    lines = [line for line in text.split("\n") if line]
    found = tuple(_fields(lines, 4, last))
    if lines:
        raise ValueError(f"expected a field, found {lines[0]!r}")
    return found


def runs_of(fields: Sequence[Field], version: int) -> Iterator[tuple[Field, ...]]:
    """The untagged fields of a version in order: adjacent fields of fixed size together, every other field alone."""
    there = [field for field in fields if version in field.versions and field.tag is None]
    for is_fixed, adjacent in groupby(there, lambda field: field.is_fixed):
        if is_fixed:
            yield tuple(adjacent)
        else:
            yield from ((field,) for field in adjacent)


def tagged_of(fields: Sequence[Field], version: int) -> dict[int, Field]:
    """The tagged fields of a version in order of their tags."""
    found = {field.tag: field for field in fields if version in field.versions and field.tag is not None}
    return dict(sorted(found.items()))
