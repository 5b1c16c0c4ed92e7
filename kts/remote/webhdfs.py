"""HDFS through WebHDFS, by fsspec: every answer is judged, in parallel, with time limits and repeated requests."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kts.remote.objects import Opened
from kts.store.protocol import Status

if TYPE_CHECKING:
    from fsspec.implementations.webhdfs import WebHDFS

PORTS = {False: 9870, True: 9871}  # of a name node since Hadoop 3, without TLS and with it
CONNECTIONS = 32
PAUSE_S = 0.2  # before the second attempt; each next one waits twice as long
TRY_AGAIN = (500, 502, 503, 504)


def connect(authority: str, options: dict[str, Any], limits: tuple[float, float], attempts: int) -> Hdfs:
    """A client of a name node.

    Parameters
    ----------
    authority : str
        As ``host``, ``host:9870`` or ``user@host``.
    options : dict
        Arguments of fsspec's WebHDFS, and ``connect_timeout``, ``request_timeout`` (seconds), ``max_attempts``.
    limits : (float, float)
        The two time limits without such options.
    attempts : int
        How often a request is made at most, without such an option.

    Raises
    ------
    OSError
        fsspec or requests is not installed.
    """
    try:
        import requests
        from fsspec.implementations.webhdfs import WebHDFS
        from urllib3.util.retry import Retry
    except ImportError as error:
        raise OSError(f"{error}; install them: pip install 'kafka-timestamps[webhdfs]'") from error

    limits = options.pop("connect_timeout", limits[0]), options.pop("request_timeout", limits[1])
    attempts = options.pop("max_attempts", attempts)
    taken = {*WebHDFS.__init__.__code__.co_varnames[: WebHDFS.__init__.__code__.co_argcount]}
    if unknown := sorted(options.keys() - taken):
        raise TypeError(f"unexpected argument {unknown[0]!r}")

    class Limited(requests.adapters.HTTPAdapter):
        """The library of fsspec waits for ever."""

        def send(self, request: Any, stream: bool = False, timeout: Any = None, *rest: Any, **more: Any) -> Any:
            return super().send(request, stream, timeout or limits, *rest, **more)

    where = urlsplit(f"//{authority}")
    options.setdefault("port", where.port or PORTS[bool(options.get("use_https"))])
    user = where.username or os.environ.get("HADOOP_USER_NAME")
    if user and not {"user", "token", "kerberos"} & options.keys():
        options["user"] = user
    system = WebHDFS(where.hostname, skip_instance_cache=True, **options)
    again = Retry(
        attempts - 1, redirect=0, status_forcelist=TRY_AGAIN, backoff_factor=PAUSE_S, raise_on_status=False
    )  # fmt: skip
    for scheme in ("http://", "https://"):
        system.session.mount(scheme, Limited(pool_connections=CONNECTIONS, pool_maxsize=CONNECTIONS, max_retries=again))
    system.session.hooks["response"].append(_judged)
    return Hdfs(system)


def _judged(response: Any, **_: Any) -> None:
    """Raise what an answer refuses. fsspec itself takes a data node's refusal for the bytes of the file."""
    if response.status_code < 400:
        return
    try:
        told = response.json()["RemoteException"]
        kind, why = str(told["exception"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        kind, why = "", response.reason
    kinds = {"FileNotFoundException": FileNotFoundError, "AccessControlException": PermissionError}
    raise kinds.get(kind, OSError)(f"status {response.status_code}, {kind}: {why}" if kind else
                                   f"status {response.status_code}: {why}")  # fmt: skip


@contextmanager
def _understood() -> Iterator[None]:
    """Raise OSError for an answer in which fsspec or kts misses something."""
    try:
        yield
    except OSError:  # which a ValueError of requests is, too
        raise
    except (LookupError, TypeError, ValueError) as error:
        raise OSError(f"expected an answer of WebHDFS, found one without what it has: {error!r}") from error


class Hdfs:
    """A ``Library`` of ``kts.remote.services``."""

    def __init__(self, system: WebHDFS) -> None:
        self._system = system

    @_understood()
    def opened(self, key: str) -> Opened:
        """A file as the name node knows it; its version is its number, length and time."""
        info = self._system.info(key)
        if info["type"] != "file":
            raise FileNotFoundError(f"{key} is a directory")
        size = int(info["length"])
        return Opened(_Handle(self._system, key, size), size, (info["fileId"], size, info["modificationTime"]))

    @_understood()
    def listed(self, key: str) -> Sequence[tuple[str, Status]]:
        """The names in a directory, in one request."""
        found = self._system.ls(key, detail=True)
        if any(not info["pathSuffix"] for info in found):  # how a file answers
            raise FileNotFoundError(f"{key} is a file")
        return [(info["pathSuffix"], _status(info)) for info in found]

    @_understood()
    def look(self, key: str) -> Status | None:
        """Size and time of a file; None if there is none."""
        try:
            return _status(self._system.info(key))
        except FileNotFoundError:
            return None

    def put(self, key: str, pieces: Iterable[bytes]) -> None:
        """A file, written beside its place, which takes it once it is whole."""
        part = f"{key}.part"
        try:
            with self._system.open(part, "wb") as out:
                for piece in pieces:
                    out.write(piece)
        except BaseException:
            self._system.rm(part)
            raise
        if self.look(key) is not None:  # HDFS renames over no other file
            self._system.rm(key)
        self._system.mv(part, key)
        if self.look(part) is not None:  # what was refused is told by a false in an answer of 200
            raise OSError(f"{part} could not be renamed")

    def remove(self, key: str) -> None:
        """Delete a file; FileNotFoundError if there is none."""
        self.opened(key)
        self._system.rm(key)


class _Handle:
    """An opened file: each range is asked of the name node, and sent by a data node."""

    def __init__(self, system: WebHDFS, key: str, size: int) -> None:
        self._system, self._key, self._size = system, key, size

    @_understood()
    def read_at(self, nbytes: int, offset: int) -> bytes:
        from fsspec.implementations.webhdfs import WebHDFile

        given = {"size": self._size, "cache_type": "none", "autocommit": True, "tempdir": ""}
        with WebHDFile(self._system, self._key, mode="rb", **given) as file:
            file.seek(offset)
            return bytes(file.read(nbytes))


def _status(info: dict[str, Any]) -> Status:
    return Status(int(info["length"]), int(info["modificationTime"]) * 10**6, info["type"] == "directory")
