"""Answers a frame: decode, handle, encode, and turn failures into error codes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, TypeVar

from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.handlers import handle
from kts.broker.request import ConnectionClose, Peer, Request
from kts.broker.wire import PRIVATE_FROM, Chunk, RequestHeader, api_key_of, decode_request, encode_response
from kts.broker.wire.messages import MESSAGES, ApiKey
from kts.broker.wire.releases import offered
from kts.errors import InvalidRequestError, KtsError, UnsupportedVersionError

T = TypeVar("T")

OTHER_REQUEST_BYTES = 16 << 20  # the largest request without records
AT_ONCE_BYTES = 1 << 15  # a larger one without records is decoded and answered in a thread
AT_ONCE = 1000  # structs; answers and Produce requests with more use a thread
SLOW_THREADS = 2  # separate, so that the other threads stay available


def frame_limit(socket_request_max_bytes: int) -> Callable[[int], int]:
    """The largest request of each API, in bytes; raises UnsupportedVersionError for other APIs."""
    limits = {api_key: min(socket_request_max_bytes, OTHER_REQUEST_BYTES) for api_key in MESSAGES}
    limits[ApiKey.PRODUCE] = socket_request_max_bytes

    def limit(api_key: int) -> int:
        most = limits.get(api_key)
        if most is None:
            raise UnsupportedVersionError(f"expected an API key of {sorted(limits)}, found {api_key}")
        return most

    return limit


class Answering:
    """Answers frames for a broker; ``close`` ends its threads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._private = broker.private.layouts
        # An old inter.broker.protocol.version announces fewer versions, and takes what a migration may still send.
        self._offered = offered(broker.config.release or None)
        self._slow = ThreadPoolExecutor(SLOW_THREADS, thread_name_prefix="kts-slow")

    def close(self) -> None:
        """End the threads."""
        self._slow.shutdown()

    async def __call__(self, frame: memoryview, peer: Peer) -> list[Chunk] | None:
        """The chunks to send; None if the client wants no answer.

        Raises
        ------
        ConnectionClose, KtsError
            The connection must be closed.
        """
        is_large = len(frame) > AT_ONCE_BYTES and api_key_of(frame) != ApiKey.PRODUCE
        try:
            header, body = await self._in_thread(decode_request, frame) if is_large else await self._decoded(frame)
            self._check_offered(header)
        except UnsupportedVersionError:
            return self._unknown_version(frame)
        request = Request(header.api_key, header.api_version, header.client_id, body, peer)
        try:
            reply = await handle(self._broker, request)
        except KtsError as error:
            reply = refusal(request, error)
        if reply is None:
            return None
        layout = header.api_key, header.api_version, header.correlation_id
        if is_large or is_long(reply):
            return await self._in_thread(encode_response, *layout, reply)
        return encode_response(*layout, reply, private=self._private)

    def _check_offered(self, header: RequestHeader) -> None:
        """Refuse a version that kts serves and the release has not."""
        one = self._offered.get(header.api_key)
        if header.api_version < PRIVATE_FROM and (one is None or header.api_version not in one.versions):
            raise UnsupportedVersionError(f"expected a version of the release, found {header.api_version}")

    def _unknown_version(self, frame: memoryview) -> list[Chunk]:
        """The answer to an unsupported version: ApiVersions 0 with the versions of that; others close the connection.

        Source: KIP-511, ApiVersionsRequest.
        """
        header = wire.decode_request_header(frame)
        one = self._offered.get(header.api_key)
        if header.api_key != ApiKey.API_VERSIONS or one is None:
            served = "none" if one is None else f"{one.versions[0]} to {one.versions[-1]}"
            name = ApiKey(header.api_key).name
            raise ConnectionClose(f"expected version {served} of {name}, found {header.api_version}")
        body = {
            "error_code": ErrorCode.UNSUPPORTED_VERSION,
            "api_keys": [{"api_key": header.api_key, "min_version": one.versions[0], "max_version": one.versions[-1]}],
        }
        return encode_response(ApiKey.API_VERSIONS, 0, header.correlation_id, body)

    async def _decoded(self, frame: memoryview) -> tuple[RequestHeader, dict[str, Any]]:
        """Decode a request. One with records is quick to decode, unless it has many partitions."""
        if len(frame) <= AT_ONCE_BYTES:
            return decode_request(frame, private=self._private)
        try:
            return decode_request(frame, max_elements=AT_ONCE, private=self._private)
        except InvalidRequestError:
            return await self._in_thread(decode_request, frame)

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        call = partial(work, *arguments, private=self._private)
        return await asyncio.get_running_loop().run_in_executor(self._slow, call)


def is_long(reply: dict[str, Any]) -> bool:
    """Whether an answer has too many structs to encode in the event loop, counted in all levels of lists."""
    level, count = [reply], 0
    while level:
        lists = [rows for one in level for rows in one.values() if isinstance(rows, list)]
        count += sum(map(len, lists))
        if count > AT_ONCE:
            return True
        level = [one for rows in lists for one in rows if isinstance(one, dict)]
    return False


def refusal(request: Request, error: KtsError) -> dict[str, Any]:
    """A response with an error for the whole request. If it has no field for that, the connection is closed."""
    if not has_error_field(request.api_key, request.version):
        raise ConnectionClose(f"{ApiKey(request.api_key).name} failed with error {error.code}: {error}") from error
    return {"error_code": error.code, "error_message": str(error)}


@cache
def has_error_field(api_key: int, version: int) -> bool:
    """Whether a response has a field for an error of the whole request."""
    return any(field.name == "error_code" and version in field.versions for field in MESSAGES[api_key].response)
