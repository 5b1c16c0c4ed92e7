"""One blocking connection to a broker: frames, correlation ids, and which versions of the APIs both sides speak."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from kts.broker import wire
from kts.broker.codes import ApiError, ApiKey, ErrorCode
from kts.errors import InvalidRequestError, UnsupportedVersionError

MAX_FRAME_BYTES = 100 * 2**20  # socket.request.max.bytes
MAX_ELEMENTS, MAX_TOPICS_ELEMENTS = 100_000, 1_000_000  # of arrays in an answer; Metadata may be about a whole cluster
_SIZE = struct.Struct(">i")
_CORRELATION = struct.Struct(">i")
_PIECE_BYTES = 1 << 18
_VERSIONS_OF_0_9: dict[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (0, 1),
    ApiKey.FETCH: (0, 1),
    ApiKey.LIST_OFFSETS: (0, 0),
    ApiKey.METADATA: (0, 0),
}
_PROBES = 2  # rounds of questions that Kafka 0.9 does not answer as others do
_FIRST_PROBE_S, _PROBE_S = 10.0, 2.0  # how long each is waited for


class DisconnectedError(ApiError):
    """The broker cannot be reached, hung up, or did not answer in time; one may try again.

    Attributes
    ----------
    ignored : bool
        It was there, and did not send a byte of an answer.
    """

    ignored = False

    def __init__(self, message: str, *, ignored: bool = False) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)
        self.ignored = ignored


class Connection:
    """A connection to one broker, made when it is first needed. A context manager.

    Parameters
    ----------
    host, port : str, int
    client_id : str
    timeout_s : float
        For a connection to be made, and for each whole answer.
    max_frame_bytes : int
        No answer may be larger.

    Notes
    -----
    One request at a time. Memory for an answer is taken as its bytes come, not on the word of its size. After any error
    the connection is closed; the next request makes a new one.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "kts",
        timeout_s: float = 30.0,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self.host, self.port = host, port
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.max_frame_bytes = max_frame_bytes
        self.waiting = False  # for an answer
        self._socket: socket.socket | None = None
        self._versions: Mapping[int, tuple[int, int]] | None = None
        self._answers_api_versions = self._was_0_9 = False
        self._correlation = 0

    def __repr__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    # --- versions ---------------------------------------------------------------------------------

    def versions(self) -> Mapping[int, tuple[int, int]]:
        """What the broker serves: by API, the oldest and the newest version.

        Notes
        -----
        Kafka 0.9 says nothing when it is asked for that, and answers Metadata of any version as if it were the oldest.
        A broker counts as one only if it does both again and again.
        """
        if self._versions is None:
            try:
                self._versions = self._ask_versions()
                self._answers_api_versions = True
            except DisconnectedError as error:
                if not error.ignored or self._answers_api_versions or not self._is_0_9():
                    raise
                self._versions = _VERSIONS_OF_0_9
                self._was_0_9 = True
        return self._versions

    @property
    def is_0_9(self) -> bool:
        """Whether the broker was taken for one of Kafka 0.9."""
        return self._versions is _VERSIONS_OF_0_9

    def version(self, api: ApiKey, highest: int | None = None) -> int:
        """The newest version of an API that both sides speak.

        Raises
        ------
        UnsupportedVersionError
            There is none.
        """
        ours = wire.versions(api)
        theirs = self.versions().get(api)
        if theirs is None:
            raise UnsupportedVersionError(f"expected a broker that serves {api.name}, found that {self} does not")
        most = min(ours[1], theirs[1], ours[1] if highest is None else highest)
        if most < max(ours[0], theirs[0]):
            raise UnsupportedVersionError(
                f"expected {api.name} of version {ours[0]} to {ours[1]}, found {theirs[0]} to {theirs[1]} at {self}"
            )
        return most

    def serves(self, api: ApiKey, version: int = 0) -> bool:
        """Whether the broker serves a version of an API."""
        least, most = self.versions().get(api, (1, 0))
        return least <= version <= most

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        answer = self.ask(ApiKey.API_VERSIONS, 0, {}, timeout_s=_PROBE_S if self._was_0_9 else _FIRST_PROBE_S)
        if answer["error_code"]:
            raise error_of(answer["error_code"], f"{self} refuses ApiVersions")
        return {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}

    def _is_0_9(self) -> bool:
        for _ in range(_PROBES):
            self.ask(ApiKey.METADATA, 0, {"topics": []})  # it is there, and speaks
            for api, version in ((ApiKey.METADATA, 1), (ApiKey.API_VERSIONS, 0)):
                try:
                    self.ask(api, version, {"topics": []}, timeout_s=_PROBE_S)
                    return False
                except InvalidRequestError:
                    continue
                except DisconnectedError as error:
                    if not error.ignored:
                        raise
        return True

    # --- requests ---------------------------------------------------------------------------------

    def ask(
        self,
        api: ApiKey,
        version: int,
        body: Mapping[str, Any],
        *,
        patience_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """One request and its answer.

        Parameters
        ----------
        patience_s : float
            How long the broker may wait by the request's own words, besides the timeout.
        timeout_s : float, optional
            Less than the connection's.

        Raises
        ------
        DisconnectedError
            No answer.
        InvalidRequestError
            An answer that is none: its size, its correlation id, its fields.
        """
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        frame = wire.encode_request(api, version, self._correlation, self.client_id, dict(body))
        try:
            self.waiting = True
            answer = self._exchange(frame, min(timeout_s or self.timeout_s, self.timeout_s) + patience_s)
            self.waiting = False
            found = _CORRELATION.unpack_from(answer)[0]
            if found != self._correlation:
                raise InvalidRequestError(f"expected the answer to request {self._correlation}, found that to {found}")
            most = MAX_TOPICS_ELEMENTS if api == ApiKey.METADATA else MAX_ELEMENTS
            return wire.decode_response(api, version, answer, max_elements=most)[1]
        except InvalidRequestError as error:
            self.close()
            raise InvalidRequestError(f"{api.name} {version} of {self}: {error}") from error
        except BaseException:
            self.close()
            raise
        finally:
            self.waiting = False

    def _exchange(self, frame: bytes, patience_s: float) -> memoryview:
        until = time.monotonic() + patience_s
        connected = self._connect()
        received = 0
        try:
            connected.settimeout(patience_s)
            connected.sendall(frame)
            head = bytearray()
            self._receive(connected, head, _SIZE.size, until)
            received = len(head)
            size = _SIZE.unpack(head)[0]
            if not _CORRELATION.size <= size <= self.max_frame_bytes:
                raise InvalidRequestError(f"expected an answer of 4 to {self.max_frame_bytes} bytes, found {size}")
            answer = bytearray()
            self._receive(connected, answer, size, until)
            return memoryview(answer).toreadonly()
        except TimeoutError as error:
            raise DisconnectedError(f"{self} did not answer within {patience_s:g} s", ignored=not received) from error
        except (EOFError, ConnectionError) as error:
            said = "closed the connection" if isinstance(error, EOFError) else f"is gone: {error}"
            raise DisconnectedError(f"{self} {said}", ignored=not received) from error
        except OSError as error:
            raise DisconnectedError(f"{self}: {error}") from error

    def _receive(self, connected: socket.socket, into: bytearray, count: int, until: float) -> None:
        """Read that many bytes; the buffer grows with them."""
        while len(into) < count:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connected.settimeout(left)
            piece = connected.recv(min(count - len(into), _PIECE_BYTES))
            if not piece:
                raise EOFError
            into += piece

    def _connect(self) -> socket.socket:
        if self._socket is None:
            try:
                self._socket = socket.create_connection((self.host, self.port), self.timeout_s)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except (OSError, UnicodeError) as error:
                raise DisconnectedError(f"cannot reach {self}: {error}") from error
        return self._socket

    def close(self) -> None:
        """Hang up; the next request connects again, and asks anew what the broker serves."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._versions = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def error_of(code: int, message: str) -> ApiError:
    """A code that a broker answered with."""
    try:
        error = ErrorCode(code)
    except ValueError:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{message}: error {code}")
    return ApiError(error, f"{message}: {error.name}")
