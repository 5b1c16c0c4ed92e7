"""The layout of a coordinator's keys and values: an int16 version, then the fields of that version."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from kts.errors import InvalidRequestError, UnsupportedVersionError
from kts.model import uuid_text
from kts.protocol.fields import Field, fields_of
from kts.protocol.reading import Cursor, struct_reader
from kts.protocol.writing import REFUSED, Output, refused, struct_writer

MAX_ELEMENTS = 1_000_000  # of the arrays of one record
VERSION = struct.Struct(">h")
NEVER = 1 << 15  # no version is flexible


class Layout:
    """The fields of a key or value, with a reader and a writer for each version, which are built on first use.

    Parameters
    ----------
    what : str
        For messages.
    text : str
        The table, as in ``kts.protocol.fields``.
    newest, flexible : int
        The newest version, and the first flexible one.
    """

    def __init__(self, what: str, text: str, newest: int, flexible: int = NEVER) -> None:
        self.what = what
        self.newest = newest
        self.flexible = flexible
        self.fields = fields_of(text, newest)
        self._reader = cache(lambda version: struct_reader(self.fields, version, version >= flexible)[0])
        self._writer = cache(lambda version: struct_writer(self.fields, version, version >= flexible))

    def read(self, data: bytes, version: int | None = None) -> dict[str, Any]:
        """Read a key or value, as of another version if one is given.

        Raises
        ------
        InvalidRequestError
            The bytes do not match their version.
        UnsupportedVersionError
            The version is unknown.
        """
        if version is None:
            version = version_of(data, self.what)
        if not 0 <= version <= self.newest:
            message = f"{self.what}: expected a version from 0 to {self.newest}, found {version}"
            raise UnsupportedVersionError(message)
        found: dict[str, Any] = self._reader(version)(Cursor(memoryview(data)[VERSION.size :], MAX_ELEMENTS))
        return found

    def write(self, version: int, found: Mapping[str, Any]) -> bytes:
        """Write a version and its fields."""
        output = Output()
        output.buffer += VERSION.pack(version)
        try:
            self._writer(version)(output, found)
        except REFUSED as error:
            raise refused(output, error, self.what) from error
        return b"".join(output.flush())


def as_json(fields: Sequence[Field], found: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with the names of Kafka's message definitions, for JSON: ids as Kafka prints them, bytes in base64."""
    shown = {}
    for field in fields:
        first, *rest = field.name.split("_")
        shown[first + "".join(map(str.capitalize, rest))] = _value_as_json(field, found[field.name])
    return shown


def _value_as_json(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.is_array:
        element = field._replace(is_array=False)
        return [_value_as_json(element, each) for each in value]
    if field.type == "{}":
        return as_json(field.fields, value)
    if field.type == "uuid":
        return uuid_text(value)
    return base64.b64encode(value).decode() if field.type == "bytes" else value


def version_of(data: bytes, what: str) -> int:
    """The version of a key or value.

    Raises
    ------
    InvalidRequestError
        It is shorter than a version.
    """
    if len(data) < VERSION.size:
        raise InvalidRequestError(f"{what}: expected a version of {VERSION.size} bytes, found {len(data)}")
    return int(VERSION.unpack_from(data)[0])
