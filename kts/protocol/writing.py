"""Encodes dicts as bytes: each version of a message has a writer, built once from its fields.

A key that the dict lacks is written with its default; fields that the version lacks are left out; tagged fields are
written only if they differ from their default. Large records are not copied: they become chunks of their own.

Source: the writers that Kafka generates (MessageDataGenerator), SendBuilder.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kts.errors import InvalidRequestError
from kts.protocol.fields import FIXED, Field, runs_of, tagged_of

SMALL = 1024  # smaller parts are copied, larger ones are chunks
REFUSED = (AttributeError, KeyError, OverflowError, TypeError, ValueError, struct.error)
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_ONE_BYTE = [bytes([value]) for value in range(0x80)]


class Output:
    """The output: finished chunks, and a buffer for the bytes after them."""

    __slots__ = ("buffer", "chunks", "trail")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.chunks: list[Any] = []
        self.trail: list[str] = []  # the fields around an error, the innermost first

    def append(self, data: Any) -> None:
        """Append bytes, a view or a file range; only small ones are copied."""
        if len(data) <= SMALL and isinstance(data, bytes | bytearray | memoryview):
            self.buffer += data
        elif len(data):
            self.flush()
            self.chunks.append(data)

    def flush(self) -> list[Any]:
        """The chunks, with the bytes of the buffer."""
        if self.buffer:
            self.chunks.append(bytes(self.buffer))
            self.buffer.clear()
        return self.chunks


Write = Callable[[Output, Any], None]
Step = Callable[[Output, Mapping[str, Any]], None]


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _compact_length(length: int) -> bytes:
    return uvarint(length + 1)


def _sized(type_: str, pack_length: Callable[[int], bytes], nullable: bool) -> Write:
    def write(output: Output, value: Any) -> None:
        if value is None:
            if not nullable:
                raise TypeError(f"expected {type_}, found None")
            output.buffer += pack_length(-1)
        elif type_ == "string":
            data = value.encode()
            if len(data) > 0x7FFF:
                raise ValueError(f"expected a string of at most 32767 bytes, found {len(data)}")
            output.buffer += pack_length(len(data))
            output.buffer += data
        else:
            output.buffer += pack_length(len(value))
            output.append(value)

    return write


def _array(pack_length: Callable[[int], bytes], nullable: bool, write: Write) -> Write:
    def write_array(output: Output, values: Sequence[Any] | None) -> None:
        if values is None:
            if not nullable:
                raise TypeError("expected a list, found None")
            output.buffer += pack_length(-1)
            return
        output.buffer += pack_length(len(values))
        index = -1
        try:
            for index, value in enumerate(values):  # noqa: B007 - for the error message
                write(output, value)
        except REFUSED:
            output.trail.append(f"[{index}]")
            raise

    return write_array


def _struct_or_null(write: Write, null: bytes) -> Write:
    """Writer of a struct after a byte that says that it is there."""

    def write_or_null(output: Output, value: Any) -> None:
        output.buffer += null if value is None else b"\1"
        if value is not None:
            write(output, value)

    return write_or_null


def _run(fields: Sequence[Field]) -> Step:
    """Writer of adjacent fields of fixed size, in one step."""
    named = [(field.name, field.default) for field in fields]
    layout = struct.Struct(">" + "".join(FIXED[field.type] for field in fields))
    uuids = [field.name for field in fields if field.type == "uuid"]

    def step(output: Output, body: Mapping[str, Any]) -> None:
        for name in uuids:
            _check_uuid(body.get(name, bytes(16)))
        try:
            output.buffer += layout.pack(*[body.get(name, default) for name, default in named])
        except struct.error as error:
            found = {name: body.get(name, default) for name, default in named}
            raise ValueError(f"{error}: {found}") from error

    return step


def _check_uuid(value: bytes) -> None:
    if len(value) != 16:
        raise ValueError(f"expected a uuid of 16 bytes, found {len(value)}")


def _field(field: Field, write: Write) -> Step:
    name, default = field.name, field.default

    def step(output: Output, body: Mapping[str, Any]) -> None:
        try:
            write(output, body.get(name, default))
        except REFUSED:
            output.trail.append(name)
            raise

    return step


def _filled(field: Field, value: Any) -> Any:
    """A struct completed with its defaults, to compare it with the default."""
    if isinstance(value, Mapping) and isinstance(field.default, dict):
        return field.default | {key: value[key] for key in field.default if key in value}
    return value


def _tagged(fields: dict[int, tuple[Field, Write]]) -> Step:
    def step(output: Output, body: Mapping[str, Any]) -> None:
        written = []
        for tag, (field, write) in fields.items():
            value = body.get(field.name, field.default)
            if _filled(field, value) != field.default:
                inner = Output()
                try:
                    write(inner, value)
                except REFUSED:
                    output.trail += [*inner.trail, field.name]
                    raise
                written.append((tag, b"".join(inner.flush())))
        output.buffer += uvarint(len(written))
        for tag, data in written:
            output.buffer += uvarint(tag) + uvarint(len(data)) + data

    return step


def _writer(field: Field, version: int, flexible: bool) -> Write:
    pack_long = _compact_length if flexible else _INT32.pack
    nullable = version in field.null
    if field.is_array:
        element = _writer(field._replace(is_array=False, null=range(0)), version, flexible)
        return _array(pack_long, nullable, element)
    if field.type == "{}":
        write = struct_writer(field.fields, version, flexible)
        return _struct_or_null(write, b"\0" if field.tag is not None else b"\xff") if nullable else write
    if field.type in FIXED:
        layout = struct.Struct(">" + FIXED[field.type])

        def write_fixed(output: Output, value: Any) -> None:
            if field.type == "uuid":
                _check_uuid(value)
            output.buffer += layout.pack(value)

        return write_fixed
    if field.type == "string":
        return _sized("string", _compact_length if flexible else _INT16.pack, nullable)
    return _sized(field.type, pack_long, nullable)


def struct_writer(fields: Sequence[Field], version: int, flexible: bool) -> Write:
    """Build the writer of a struct for one version.

    Parameters
    ----------
    fields : sequence of Field
        Of a message, or of a field of type ``{}``.
    version : int
        Of the API or the record.
    flexible : bool
        Whether this version is flexible.
    """
    steps = [
        _run(run) if run[0].is_fixed else _field(run[0], _writer(run[0], version, flexible))
        for run in runs_of(fields, version)
    ]
    if flexible:
        tagged = tagged_of(fields, version).items()
        steps.append(_tagged({tag: (field, _writer(field, version, flexible)) for tag, field in tagged}))

    def write_struct(output: Output, body: Mapping[str, Any]) -> None:
        for step in steps:
            step(output, body)

    return write_struct


def refused(output: Output, error: Exception, what: str) -> InvalidRequestError:
    """The error for a body that does not fit its layout."""
    where = ".".join(reversed(output.trail)).replace(".[", "[") or "its fields"
    return InvalidRequestError(f"{what} cannot be written: {where}: {error}")
