"""The layouts of all messages on the wire, parsed from tables with a line per field.

A message starts with ``API first-last flexible first+`` (or ``none``), and has a ``request`` and a ``response``. A
field is ``name type versions``, then where they apply ``null versions``, ``= default`` and ``tag number``, in this
order; more indented lines are the fields of the struct above. Types are
``bool int8 int16 uint16 int32 int64 uuid string bytes``
and ``records``; ``{}`` is a struct, ``[]`` an array of structs, ``[]int32`` an array of what follows. Strings, bytes,
records and arrays have a compact length in flexible versions, and each struct ends there with its tagged fields
(KIP-482).

Source: the message definitions of Kafka 3.9 (clients/src/main/resources/common/message) and the schemas of 4.3.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from kts.broker.codes import ApiKey
from kts.broker.wire import messages_cluster, messages_groups, messages_partitions, messages_topics

NONE = range(0)
_ABSENT: dict[str, Any] = {"bool": False, "uuid": bytes(16), "string": "", "bytes": b"", "records": None}
_LINE = re.compile(
    r"(?P<indent> +)(?P<name>\w+) +(?P<type>(\[\])?\w+|\[\]|\{\}) +(?P<versions>[\d+-]+)"
    r"( +null (?P<null>[\d+-]+))?( += (?P<default>\S+))?( +tag (?P<tag>\d+))?"
)


class Field(NamedTuple):
    """One field of a message.

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


class Message(NamedTuple):
    """An API: its versions, its flexible versions, and the fields of its request and response."""

    api_key: ApiKey
    versions: range
    flexible: range
    request: tuple[Field, ...]
    response: tuple[Field, ...]


def _versions(text: str, last: int) -> range:
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
            _versions(found["versions"], last),
            _versions(found["null"], last) if found["null"] else NONE,
            _default(type_, is_array, found["default"], inside),
            int(found["tag"]) if found["tag"] else None,
            inside,
        )


def fields_of(text: str, last: int) -> tuple[Field, ...]:
    """The fields of a struct that is not a message, such as a record of an internal topic; ``last`` is its newest
    version."""
    lines = text.strip("\n").split("\n")
    found = tuple(_fields(lines, 4, last))
    if lines:
        raise ValueError(f"expected a field, found {lines[0]!r}")
    return found


def _messages(text: str) -> Iterator[Message]:
    for part in text.strip().split("\n\n"):
        lines = part.split("\n")
        name, served, _, flexible = lines[0].split()
        versions = _versions(served, 0)
        last = versions[-1]
        at = lines.index("response")
        request, response = lines[2:at], lines[at + 1 :]
        message = Message(
            ApiKey[name],
            versions,
            NONE if flexible == "none" else _versions(flexible, last),
            tuple(_fields(request, 4, last)),
            tuple(_fields(response, 4, last)),
        )
        if lines[1] != "request" or request or response:
            raise ValueError(f"{name}: expected fields, found {(request + response + lines[1:2])[0]!r}")
        yield message


MESSAGES: dict[int, Message] = {
    message.api_key: message
    for text in (messages_partitions.TEXT, messages_topics.TEXT, messages_groups.TEXT, messages_cluster.TEXT)
    for message in _messages(text)
}
