"""Requests and responses as frames: a size, a header, and a body as in the tables of ``messages``.

::

    size int32 | api_key int16 | api_version int16 | correlation_id int32 | client_id string | tagged fields | body
    size int32 | correlation_id int32 | tagged fields | body

Only flexible versions have tagged fields, and the response header of API_VERSIONS never has them.

Source: RequestHeader, ResponseHeader, ApiMessageType, RequestContext.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from kts.broker.wire.messages import MESSAGES, ApiKey, Message
from kts.errors import InvalidRequestError, UnsupportedVersionError
from kts.protocol.fields import Field
from kts.protocol.reading import Cursor, Read, struct_reader
from kts.protocol.writing import REFUSED, Output, Write, refused, struct_writer
from kts.store.local import FileRange

MAX_REQUEST_ELEMENTS = 200_000  # of arrays and tagged fields; more would turn 16 MB of bytes into GBs of objects
MAX_RESPONSE_ELEMENTS = 10_000_000
PRIVATE_FROM, LAST_VERSION = 1 << 14, (1 << 15) - 1  # versions that Kafka never uses
_HEADER = struct.Struct(">hhi")
_API_KEY = struct.Struct(">h")
_SIZE = struct.Struct(">i")
_CLIENT_ID = Field("client_id", "string", False, range(1), range(1), None, None, ())
_read_header = {flexible: struct_reader((), 0, flexible)[0] for flexible in (False, True)}
_read_client_id = struct_reader((_CLIENT_ID,), 0, False)[0]
_write_client_id = struct_writer((_CLIENT_ID,), 0, False)


Chunk = bytes | memoryview | FileRange


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


class ApiLayout(NamedTuple):
    """How requests and responses of one version of an API are read and written."""

    name: str
    flexible: bool
    read_request: Read
    read_response: Read
    write_request: Write
    write_response: Write


Fields = tuple[Field, ...]
Private = Mapping[tuple[int, int], ApiLayout]  # by API key and version
NO_PRIVATE: Private = {}


def versions(api_key: int) -> tuple[int, int]:
    """The oldest and newest served version of an API.

    Raises
    ------
    UnsupportedVersionError
        The API is not served.
    """
    message = _message(api_key)
    return message.versions[0], message.versions[-1]


def _message(api_key: int, api_version: int | None = None) -> Message:
    message = MESSAGES.get(api_key)
    if message is None:
        raise UnsupportedVersionError(f"expected an API key of {sorted(map(int, MESSAGES))}, found {api_key}")
    if api_version is not None and api_version not in message.versions:
        served = f"{message.versions[0]} to {message.versions[-1]} of {message.api_key.name}"
        raise UnsupportedVersionError(f"expected version {served}, found {api_version}")
    return message


@cache
def _kafkas_layout(api_key: int, api_version: int) -> ApiLayout:
    message = _message(api_key, api_version)
    return _layout_of(message.api_key, api_version, api_version in message.flexible, message.request, message.response)


def _layout_of(api_key: int, api_version: int, flexible: bool, request: Fields, response: Fields) -> ApiLayout:
    read_request, read_response = (struct_reader(fields, api_version, flexible)[0] for fields in (request, response))
    write_request, write_response = (struct_writer(fields, api_version, flexible) for fields in (request, response))
    name = f"{ApiKey(api_key).name} version {api_version}"
    return ApiLayout(name, flexible, read_request, read_response, write_request, write_response)


def _layout(api_key: int, api_version: int, private: Private) -> ApiLayout:
    if api_version >= PRIVATE_FROM and (found := private.get((api_key, api_version))) is not None:
        return found
    return _kafkas_layout(api_key, api_version)


def private_layouts(versions: Mapping[tuple[int, int], tuple[Fields, Fields]]) -> dict[tuple[int, int], ApiLayout]:
    """The layouts of private versions of APIs, for ``private`` of the functions below.

    Parameters
    ----------
    versions : mapping of (API key, version) to (fields of the request, fields of the response)
        Of APIs that the broker serves, in versions that Kafka never uses: 16384 to 32767. None is flexible.

    Raises
    ------
    ValueError
        The API is not served, or the version may be Kafka's.
    """
    for api_key, version in versions:
        if api_key not in MESSAGES:
            raise ValueError(f"private version: expected an API key of {sorted(map(int, MESSAGES))}, found {api_key}")
        if not PRIVATE_FROM <= version <= LAST_VERSION:
            name = ApiKey(api_key).name
            raise ValueError(
                f"private version of {name}: expected {PRIVATE_FROM} to {LAST_VERSION}, which Kafka never uses, "
                f"found {version}"
            )
    return {key: _layout_of(*key, False, *fields) for key, fields in versions.items()}


def _explained(cursor: Cursor, error: InvalidRequestError, what: str) -> InvalidRequestError:
    """The error with the path of the field in its message."""
    where = ".".join(reversed(cursor.trail)).replace(".[", "[")
    text = f"{what}: {where}: {error.message}" if where else f"{what}: {error.message}"
    return InvalidRequestError(text, position=error.position)


def api_key_of(frame: memoryview) -> int:
    """The API key of a request, which has at least these two bytes."""
    return int(_API_KEY.unpack_from(frame)[0])


def decode_request_header(frame: memoryview) -> RequestHeader:
    """Decode the header of a request, which may have an unsupported version.

    Parameters
    ----------
    frame : memoryview
        The bytes after the size.

    Raises
    ------
    InvalidRequestError
        The header is malformed.
    """
    cursor = Cursor(memoryview(frame), MAX_REQUEST_ELEMENTS)
    try:
        return _decode_header(cursor)
    except InvalidRequestError as error:
        raise _explained(cursor, error, "request header") from error


def _decode_header(cursor: Cursor) -> RequestHeader:
    cursor.need(_HEADER.size, "API key, version and correlation id")
    api_key, api_version, correlation_id = _HEADER.unpack_from(cursor.buffer, cursor.position)
    cursor.position += _HEADER.size
    return RequestHeader(api_key, api_version, correlation_id, _read_client_id(cursor)["client_id"])


def decode_request(
    frame: memoryview, *, max_elements: int = MAX_REQUEST_ELEMENTS, private: Private = NO_PRIVATE
) -> tuple[RequestHeader, dict[str, Any]]:
    """Decode a request without its size. Bytes after the body are ignored, as in Kafka.

    Parameters
    ----------
    max_elements : int
        The largest number of array elements and tagged fields in total.
    private : mapping, optional
        Private versions, from ``private_layouts``.

    Returns
    -------
    tuple
        The header, and the body with every field of the table. ``records`` are views of the frame.

    Raises
    ------
    InvalidRequestError
        The request is malformed; the message has the position, what was expected and what was found.
    UnsupportedVersionError
        The API or its version is not served.
    """
    cursor = Cursor(memoryview(frame), max_elements)
    what = "request header"
    try:
        header = _decode_header(cursor)
        layout = _layout(header.api_key, header.api_version, private)
        what = layout.name
        if layout.flexible:
            _read_header[True](cursor)
        return header, layout.read_request(cursor)
    except InvalidRequestError as error:
        raise _explained(cursor, error, what) from error


def decode_response(
    api_key: int,
    api_version: int,
    frame: memoryview,
    *,
    max_elements: int = MAX_RESPONSE_ELEMENTS,
    private: Private = NO_PRIVATE,
) -> tuple[int, dict[str, Any]]:
    """Decode a response without its size: the correlation id and the body.

    Raises
    ------
    InvalidRequestError
        The response is malformed.
    UnsupportedVersionError
        The API or its version is not known.
    """
    layout = _layout(api_key, api_version, private)
    cursor = Cursor(memoryview(frame), max_elements)
    try:
        cursor.need(_SIZE.size, "a correlation id")
        correlation_id: int = _SIZE.unpack_from(cursor.buffer)[0]
        cursor.position = _SIZE.size
        if layout.flexible and api_key != ApiKey.API_VERSIONS:
            _read_header[True](cursor)
        return correlation_id, layout.read_response(cursor)
    except InvalidRequestError as error:
        raise _explained(cursor, error, f"response to {layout.name}") from error


def encode_response(
    api_key: int, api_version: int, correlation_id: int, body: Mapping[str, Any], *, private: Private = NO_PRIVATE
) -> list[Chunk]:
    """Encode a response as chunks to send in order, beginning with the size.

    Raises
    ------
    InvalidRequestError
        The body does not match the layout; the message has the field and the value.
    UnsupportedVersionError
        The API or its version is not known.
    """
    layout = _layout(api_key, api_version, private)
    output = Output()
    output.buffer += _SIZE.pack(0) + _SIZE.pack(correlation_id)
    if layout.flexible and api_key != ApiKey.API_VERSIONS:
        output.buffer.append(0)
    return _finish(output, layout.write_response, body, f"response to {layout.name}")


def encode_request(
    api_key: int,
    api_version: int,
    correlation_id: int,
    client_id: str | None,
    body: Mapping[str, Any],
    *,
    private: Private = NO_PRIVATE,
) -> bytes:
    """Encode a request with its size.

    Raises
    ------
    InvalidRequestError
        The body does not match the layout; the message has the field and the value.
    UnsupportedVersionError
        The API or its version is not known.
    """
    layout = _layout(api_key, api_version, private)
    output = Output()
    output.buffer += _SIZE.pack(0) + _HEADER.pack(api_key, api_version, correlation_id)
    _write_client_id(output, {"client_id": client_id})
    if layout.flexible:
        output.buffer.append(0)
    chunks = _finish(output, layout.write_request, body, layout.name)
    return b"".join(chunk if isinstance(chunk, bytes | memoryview) else chunk.read() for chunk in chunks)


def _finish(output: Output, write: Write, body: Mapping[str, Any], what: str) -> list[Chunk]:
    try:
        write(output, body)
        chunks: list[Chunk] = output.flush()
        size = _SIZE.pack(sum(map(len, chunks)) - _SIZE.size)
    except REFUSED as error:
        raise refused(output, error, what) from error
    first = chunks[0]
    chunks[0] = size + bytes(first)[_SIZE.size :] if isinstance(first, bytes) else size
    return chunks
