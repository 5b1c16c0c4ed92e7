"""Decodes bytes into dicts: each version of a message has a reader, built once from its fields.

Every struct becomes a dict with all fields of the table; fields that the version lacks have their defaults. ``records``
are views of the frame. Every length and count is checked against the bytes left before anything is allocated, and one
budget bounds all elements of arrays and all tagged fields of a frame.

Source: the readers that Kafka generates (MessageDataGenerator), ByteBufferAccessor, ByteUtils.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from kts.errors import InvalidRequestError
from kts.protocol.fields import FIXED, Field, runs_of, tagged_of


class Cursor:
    """A position in a frame, with the bounds checks.

    Parameters
    ----------
    frame : memoryview
        The bytes after the size.
    budget : int
        The largest number of array elements and tagged fields in total.
    """

    __slots__ = ("budget", "buffer", "end", "position", "trail", "unknown_tags")

    def __init__(self, frame: memoryview, budget: int) -> None:
        self.buffer = frame
        self.position = 0
        self.end = len(frame)
        self.budget = budget
        self.trail: list[str] = []  # the fields around an error, the innermost first
        self.unknown_tags: list[int] = []  # of the tagged fields that were skipped

    def need(self, count: int, what: str) -> None:
        """Raise unless ``count`` bytes are left."""
        if count > self.end - self.position:
            self.fail(f"{count} bytes for {what}", f"{self.end - self.position} left")

    def fail(self, expected: str, found: str) -> NoReturn:
        raise InvalidRequestError(f"expected {expected}, found {found}", position=self.position)

    def charge(self, count: int, least: int, what: str) -> None:
        """Raise unless ``count`` elements of at least ``least`` bytes fit into the bytes left and the budget."""
        if count * least > self.end - self.position:
            self.fail(f"at least {count * least} bytes for {count} {what}", f"{self.end - self.position} left")
        self.budget -= count
        if self.budget < 0:
            self.fail(f"at most {self.budget + count} more {what}", f"{count}")


def read_uvarint(cursor: Cursor) -> int:
    """Read an unsigned varint of at most 32 bits."""
    position = cursor.position
    if position < cursor.end and (byte := cursor.buffer[position]) < 0x80:  # as nearly all are
        cursor.position = position + 1
        return byte
    value = shift = 0
    while True:
        if cursor.position >= cursor.end:
            cursor.fail("another byte of a varint", "the end")
        byte = cursor.buffer[cursor.position]
        cursor.position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            cursor.fail("a varint of at most 5 bytes", "a longer one")
    if value > 0xFFFFFFFF:
        cursor.fail("a varint of at most 32 bits", f"{value}")
    return value


Read = Callable[[Cursor], Any]
Step = Callable[[Cursor, dict[str, Any]], None]
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


def _read_compact_length(cursor: Cursor) -> int:
    """Read a compact length, which is stored plus one; null is -1."""
    position = cursor.position
    if position < cursor.end and (byte := cursor.buffer[position]) < 0x80:
        cursor.position = position + 1
        return byte - 1
    return read_uvarint(cursor) - 1


def _read_int16(cursor: Cursor) -> int:
    cursor.need(2, "a length")
    value: int = _INT16.unpack_from(cursor.buffer, cursor.position)[0]
    cursor.position += 2
    return value


def _read_int32(cursor: Cursor) -> int:
    cursor.need(4, "a length")
    value: int = _INT32.unpack_from(cursor.buffer, cursor.position)[0]
    cursor.position += 4
    return value


def _sized(type_: str, read_length: Read, nullable: bool) -> Read:
    """Reader of a string, bytes or records after its length; any negative length is null, as in Kafka."""

    def read(cursor: Cursor) -> Any:
        length = read_length(cursor)
        start = cursor.position
        if length < 0:
            if not nullable:
                cursor.fail(f"a length of {type_}", f"{length}, null")
            return None
        end = start + length
        if end > cursor.end:
            cursor.need(length, type_)
        if type_ == "string":
            if length > 0x7FFF:
                cursor.fail("a string of at most 32767 bytes", f"{length}")
            try:
                value: Any = str(cursor.buffer[start:end], "utf-8")
            except UnicodeDecodeError as error:
                raise InvalidRequestError(f"expected UTF-8, found {error.reason}", position=start) from error
        else:
            value = cursor.buffer[start:end] if type_ == "records" else bytes(cursor.buffer[start:end])
        cursor.position = end
        return value

    return read


def _array(read_length: Read, nullable: bool, read_elements: Callable[[Cursor, int], list[Any]], least: int) -> Read:
    def read(cursor: Cursor) -> list[Any] | None:
        count = read_length(cursor)
        if count < 0:
            if not nullable:
                cursor.fail("a number of elements", f"{count}, null")
            return None
        cursor.charge(count, least, "elements")
        return read_elements(cursor, count)

    return read


def _elements(read: Read) -> Callable[[Cursor, int], list[Any]]:
    def read_elements(cursor: Cursor, count: int) -> list[Any]:
        found: list[Any] = []
        try:
            for _ in range(count):
                found.append(read(cursor))
        except InvalidRequestError:
            cursor.trail.append(f"[{len(found)}]")
            raise
        return found

    return read_elements


def _fixed_elements(type_: str) -> Callable[[Cursor, int], list[Any]]:
    code, size = FIXED[type_], struct.calcsize(">" + FIXED[type_])

    def read_elements(cursor: Cursor, count: int) -> list[Any]:
        found = list(struct.unpack_from(f">{count}{code}", cursor.buffer, cursor.position))
        cursor.position += count * size
        return found

    return read_elements


def _struct_or_null(read: Read, tagged: bool) -> Read:
    """Reader of a struct after the sign that it is there: above 0 as a varint in a tagged field, else from 0 on."""

    def read_or_null(cursor: Cursor) -> Any:
        if tagged:
            there = 0 < read_uvarint(cursor) <= 0x7FFFFFFF
        else:
            cursor.need(1, "a struct or null")
            there = cursor.buffer[cursor.position] < 0x80
            cursor.position += 1
        return read(cursor) if there else None

    return read_or_null


def _run(fields: Sequence[Field]) -> Step:
    """Reader of adjacent fields of fixed size, in one step."""
    names = [field.name for field in fields]
    layout = struct.Struct(">" + "".join(FIXED[field.type] for field in fields))
    size, unpack = layout.size, layout.unpack_from

    def step(cursor: Cursor, found: dict[str, Any]) -> None:
        end = cursor.position + size
        if end > cursor.end:
            _short_run(cursor, fields)
        found.update(zip(names, unpack(cursor.buffer, cursor.position), strict=True))
        cursor.position = end

    return step


def _short_run(cursor: Cursor, fields: Sequence[Field]) -> None:
    """Raise an error that names the cut field."""
    for field in fields:
        size = struct.calcsize(">" + FIXED[field.type])
        if size > cursor.end - cursor.position:
            cursor.trail.append(field.name)
            cursor.need(size, field.type)
        cursor.position += size


def _field(name: str, read: Read) -> Step:
    def step(cursor: Cursor, found: dict[str, Any]) -> None:
        try:
            found[name] = read(cursor)
        except InvalidRequestError:
            cursor.trail.append(name)
            raise

    return step


def _tagged(steps: dict[int, Step]) -> Step:
    """Reader of tagged fields. Unknown ones are skipped; any order and repetition is allowed."""

    def step(cursor: Cursor, found: dict[str, Any]) -> None:
        count = _read_compact_length(cursor) + 1
        if not count:
            return
        cursor.charge(count, 2, "tagged fields")
        for _ in range(count):
            tag, size = read_uvarint(cursor), read_uvarint(cursor)
            cursor.need(size, f"tagged field {tag}")
            end = cursor.position + size
            if tag in steps:
                steps[tag](cursor, found)
                if cursor.position != end:
                    cursor.fail(f"tagged field {tag} to end at {end}", f"{cursor.position}")
            else:
                cursor.unknown_tags.append(tag)
            cursor.position = end

    return step


def _reader(field: Field, version: int, flexible: bool) -> tuple[Read, int]:
    """The reader of a field, and its least size in bytes."""
    read_long = _read_compact_length if flexible else _read_int32
    nullable = version in field.null
    if field.is_array:
        if field.type in FIXED and field.type != "uuid":  # whose code is of several bytes
            least = struct.calcsize(">" + FIXED[field.type])
            return _array(read_long, nullable, _fixed_elements(field.type), least), 1 if flexible else 4
        element = field._replace(is_array=False, null=range(0))
        read, least = _reader(element, version, flexible)
        return _array(read_long, nullable, _elements(read), max(least, 1)), 1 if flexible else 4
    if field.type == "{}":
        read, least = struct_reader(field.fields, version, flexible)
        return (_struct_or_null(read, field.tag is not None), 1) if nullable else (read, least)
    if field.type in FIXED:
        layout = struct.Struct(">" + FIXED[field.type])

        def read_fixed(cursor: Cursor) -> Any:
            cursor.need(layout.size, field.type)
            value = layout.unpack_from(cursor.buffer, cursor.position)[0]
            cursor.position += layout.size
            return value

        return read_fixed, layout.size
    if field.type == "string":
        return _sized("string", _read_compact_length if flexible else _read_int16, nullable), 1 if flexible else 2
    return _sized(field.type, read_long, nullable), 1 if flexible else 4


def fresh(field: Field) -> Any:
    """The field's default; a new object if it is mutable."""
    if isinstance(field.default, list):
        return []
    if isinstance(field.default, dict):
        return {inner.name: fresh(inner) for inner in field.fields}
    return field.default


def struct_reader(fields: Sequence[Field], version: int, flexible: bool) -> tuple[Read, int]:
    """Build the reader of a struct for one version, and compute the least size of such a struct in bytes.

    Parameters
    ----------
    fields, version, flexible
        As for ``struct_writer``.
    """
    steps: list[Step] = []
    least = int(flexible)
    for run in runs_of(fields, version):
        readers = [_reader(field, version, flexible) for field in run]
        least += sum(smallest for _, smallest in readers)
        steps.append(_run(run) if run[0].is_fixed else _field(run[0].name, readers[0][0]))
    if flexible:
        tagged = tagged_of(fields, version).items()
        steps.append(_tagged({tag: _field(field.name, _reader(field, version, flexible)[0]) for tag, field in tagged}))
    always = [field for field in fields if version not in field.versions or field.tag is not None]
    kept = {field.name: field.default for field in always if not isinstance(field.default, list | dict)}
    renewed = [field for field in always if field.name not in kept]

    def read_struct(cursor: Cursor) -> dict[str, Any]:
        found = kept.copy()
        for field in renewed:
            found[field.name] = fresh(field)
        for step in steps:
            step(cursor, found)
        return found

    return read_struct, least
