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

from kts.broker.codes import ApiKey
from kts.broker.wire.messages import MESSAGES, Message
from kts.errors import InvalidRequestError, UnsupportedVersionError
from kts.protocol.fields import Field
from kts.protocol.reading import Cursor, Read, struct_reader
from kts.protocol.writing import REFUSED, Output, Write, refused, struct_writer
from kts.segment.files import FileRange

MAX_REQUEST_ELEMENTS = 200_000  # of arrays and tagged fields; more would turn 16 MB of bytes into GBs of objects
MAX_RESPONSE_ELEMENTS = 10_000_000
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


SERVED: dict[ApiKey, tuple[int, int]] = {
    message.api_key: (message.versions[0], message.versions[-1]) for message in MESSAGES.values()
}


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
def _readers(api_key: int, api_version: int) -> tuple[str, bool, Read, Read]:
    message = _message(api_key, api_version)
    flexible = api_version in message.flexible
    request, response = (
        struct_reader(fields, api_version, flexible)[0] for fields in (message.request, message.response)
    )
    return f"{message.api_key.name} version {api_version}", flexible, request, response


@cache
def _writers(api_key: int, api_version: int) -> tuple[str, bool, Write, Write]:
    message = _message(api_key, api_version)
    flexible = api_version in message.flexible
    request, response = (struct_writer(fields, api_version, flexible) for fields in (message.request, message.response))
    return f"{message.api_key.name} version {api_version}", flexible, request, response


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
    frame: memoryview, *, max_elements: int = MAX_REQUEST_ELEMENTS
) -> tuple[RequestHeader, dict[str, Any]]:
    """Decode a request without its size. Bytes after the body are ignored, as in Kafka.

    Parameters
    ----------
    max_elements : int
        The largest number of array elements and tagged fields in total.

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
        what, flexible, read, _ = _readers(header.api_key, header.api_version)
        if flexible:
            _read_header[True](cursor)
        return header, read(cursor)
    except InvalidRequestError as error:
        raise _explained(cursor, error, what) from error


def decode_response(
    api_key: int, api_version: int, frame: memoryview, *, max_elements: int = MAX_RESPONSE_ELEMENTS
) -> tuple[int, dict[str, Any]]:
    """Decode a response without its size: the correlation id and the body.

    Raises
    ------
    InvalidRequestError
        The response is malformed.
    UnsupportedVersionError
        The API or its version is not known.
    """
    what, flexible, _, read = _readers(api_key, api_version)
    cursor = Cursor(memoryview(frame), max_elements)
    try:
        cursor.need(_SIZE.size, "a correlation id")
        correlation_id: int = _SIZE.unpack_from(cursor.buffer)[0]
        cursor.position = _SIZE.size
        if flexible and api_key != ApiKey.API_VERSIONS:
            _read_header[True](cursor)
        return correlation_id, read(cursor)
    except InvalidRequestError as error:
        raise _explained(cursor, error, f"response to {what}") from error


def encode_response(api_key: int, api_version: int, correlation_id: int, body: Mapping[str, Any]) -> list[Chunk]:
    """Encode a response as chunks to send in order, beginning with the size.

    Raises
    ------
    InvalidRequestError
        The body does not match the layout; the message has the field and the value.
    UnsupportedVersionError
        The API or its version is not known.
    """
    what, flexible, _, write = _writers(api_key, api_version)
    output = Output()
    output.buffer += _SIZE.pack(0) + _SIZE.pack(correlation_id)
    if flexible and api_key != ApiKey.API_VERSIONS:
        output.buffer.append(0)
    return _finish(output, write, body, f"response to {what}")


def encode_request(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: Mapping[str, Any]
) -> bytes:
    """Encode a request with its size.

    Raises
    ------
    InvalidRequestError
        The body does not match the layout; the message has the field and the value.
    UnsupportedVersionError
        The API or its version is not known.
    """
    what, flexible, write, _ = _writers(api_key, api_version)
    output = Output()
    output.buffer += _SIZE.pack(0) + _HEADER.pack(api_key, api_version, correlation_id)
    _write_client_id(output, {"client_id": client_id})
    if flexible:
        output.buffer.append(0)
    chunks = _finish(output, write, body, what)
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
