"""What serves the addresses of each scheme: a file system of ``pyarrow.fs``, or of fsspec where Arrow lacks one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kts.remote import aws
from kts.remote.objects import Handle, Opened
from kts.remote.threads import leave_at_end
from kts.store.protocol import Status

if TYPE_CHECKING:
    from pyarrow import fs

CONNECT_S, REQUEST_S = 10.0, 60.0
ATTEMPTS = 5  # with growing pauses between them
PAGE = 1_000  # names in an answer


class Library(Protocol):
    """A client of a service. Every call raises OSError; FileNotFoundError where there is no such object."""

    def opened(self, key: str) -> Opened:
        """Ask for an object: its size and version."""

    def listed(self, key: str) -> Sequence[tuple[str, Status]]:
        """The names in a directory; FileNotFoundError if it is none. An empty one stands for keys with ``//``."""

    def look(self, key: str) -> Status | None:
        """Size and time of an object, or that it is a directory; None if there is nothing."""

    def put(self, key: str, pieces: Iterable[bytes]) -> None:
        """Make or replace an object, whole."""

    def remove(self, key: str) -> None:
        """Delete an object; FileNotFoundError if there is none."""


class Arrow:
    """A file system of ``pyarrow.fs``.

    Parameters
    ----------
    whole : bool
        An object shows once all of it is there; others are written beside their place.
    renames : bool
        It renames, but over no other file; others copy.
    google : bool
        It lists directories only if they were marked: the names of all objects below one show those in it. And it
        fetches an object, whole, as soon as it is opened: that waits for the first read.
    """

    def __init__(
        self, system: fs.FileSystem, *, whole: bool = False, renames: bool = False, google: bool = False
    ) -> None:
        self._system, self._whole, self._renames, self._google = system, whole, renames, google

    def opened(self, key: str) -> Opened:
        """As in ``Library``; one request where the answer has a version."""
        if self._google:
            found = self.look(key)
            if found is None or found.is_directory:
                raise FileNotFoundError(f"there is no object {key}")
            return Opened(_Later(lambda: self._system.open_input_file(key)), found.size, found)
        handle = self._system.open_input_file(key)
        facts = {_text(name).lower(): value for name, value in (handle.metadata() or {}).items()}
        return Opened(handle, handle.size(), facts.get("etag") or self.look(key))

    def listed(self, key: str) -> Sequence[tuple[str, Status]]:
        """As in ``Library``; one request for each 1,000 names."""
        from pyarrow import fs

        try:
            found = self._system.get_file_info(fs.FileSelector(key, recursive=self._google))
            if found and len(found) % PAGE == 0:  # S3's library takes an odd answer for an empty last page
                again = self._system.get_file_info(fs.FileSelector(key, recursive=self._google))
                if len(again) != len(found):
                    raise OSError(f"expected the same names twice, found {len(found)} and {len(again)}")
        except FileNotFoundError:
            raise
        except OSError as error:
            known = self.look(key)
            if known is not None and known.is_directory:
                raise
            raise FileNotFoundError(str(error)) from error
        listed = []
        for info in found:
            path = f"{key}/" if info.path == key else info.path  # Arrow takes the slash off a directory's empty name
            if not path.startswith(f"{key}/"):
                raise OSError(f"expected names in {key}, found {info.path}")
            name, *deeper = path[len(key) + 1 :].split("/")
            listed.append((name, Status(0, 0, is_directory=True) if deeper else _status(info)))
        return listed

    def look(self, key: str) -> Status | None:
        """As in ``Library``."""
        from pyarrow import fs

        info = self._system.get_file_info(key)
        return None if info.type == fs.FileType.NotFound else _status(info)

    def put(self, key: str, pieces: Iterable[bytes]) -> None:
        """As in ``Library``."""
        name = key if self._whole else f"{key}.part"
        stream = self._system.open_output_stream(name, compression=None)  # else the end of the name says which
        try:
            for piece in pieces:
                stream.write(piece)
        except BaseException:
            stream.close()  # which makes it an object, even so
            self._system.delete_file(name)
            raise
        stream.close()
        if self._renames:
            if self.look(key) is not None:
                self._system.delete_file(key)
            self._system.move(name, key)
        elif not self._whole:
            self._system.copy_file(name, key)
            self._system.delete_file(name)

    def remove(self, key: str) -> None:
        """As in ``Library``."""
        self._system.delete_file(key)


class _Later:
    """An object that is opened when it is read."""

    def __init__(self, opening: Callable[[], Handle]) -> None:
        self._opening = opening
        self._lock = threading.Lock()
        self._handle: Handle | None = None

    def read_at(self, nbytes: int, offset: int) -> bytes:
        with self._lock:
            if self._handle is None:
                self._handle = self._opening()
        try:
            return self._handle.read_at(nbytes, offset)
        except ValueError as error:  # how Arrow says that it could not be opened after all
            raise OSError(str(error)) from error


class Service(NamedTuple):
    """A service, and how it is reached."""

    takes: str  # what storage options may be
    usual: str  # where credentials come from
    connect: Callable[[str, dict[str, Any]], Library]  # with host and options; TypeError if an option is unknown
    key: Callable[[str, str], str]  # the library's name for an object, of host and path


def _in_bucket(host: str, path: str) -> str:
    return f"{host}/{path}".rstrip("/")


def _in_container(host: str, path: str) -> str:
    return _in_bucket(host.partition("@")[0], path)


def _absolute(host: str, path: str) -> str:
    return f"/{path}".rstrip("/") or "/"


def _s3(host: str, options: dict[str, Any]) -> Library:
    from pyarrow import fs

    leave_at_end(fs.ensure_s3_finalized)
    options.setdefault("connect_timeout", CONNECT_S)
    options.setdefault("request_timeout", REQUEST_S)
    attempts = options.pop("max_attempts", ATTEMPTS)
    options.setdefault("retry_strategy", fs.AwsStandardS3RetryStrategy(max_attempts=attempts))
    if "endpoint_override" not in options and (endpoint := aws.s3_endpoint()):
        options["endpoint_override"] = endpoint
    if "region" not in options and (region := aws.region()):
        options["region"] = region
    if not {"region", "endpoint_override"} & options.keys():
        fs.S3FileSystem(**options, region="us-east-1")  # refuses unknown options before Amazon is asked
        options["region"] = fs.resolve_s3_region(host)
    return Arrow(fs.S3FileSystem(**options), whole=True)


def _google(host: str, options: dict[str, Any]) -> Library:
    from pyarrow import fs

    limit = options.get("retry_time_limit", REQUEST_S)
    options["retry_time_limit"] = limit if isinstance(limit, timedelta) else timedelta(seconds=limit)
    return Arrow(fs.GcsFileSystem(**options), whole=True, google=True)


def _azure(host: str, options: dict[str, Any]) -> Library:
    from pyarrow import fs

    account = host.partition("@")[2]
    if not account:
        raise ValueError("expected abfss://container@account.dfs.core.windows.net/path")
    options.setdefault("account_name", account.partition(".")[0])
    if not {"account_key", "sas_token", "client_id"} & options.keys() and "AZURE_STORAGE_KEY" in os.environ:
        options["account_key"] = os.environ["AZURE_STORAGE_KEY"]
    return Arrow(fs.AzureFileSystem(**options))


def _hadoop(host: str, options: dict[str, Any]) -> Library:
    from pyarrow import fs

    name, _, port = host.partition(":")
    options.setdefault("host", name or "default")
    options.setdefault("port", int(port or 0))
    return Arrow(fs.HadoopFileSystem(**options), renames=True)


def _webhdfs(host: str, options: dict[str, Any]) -> Library:
    from kts.remote.webhdfs import connect

    return connect(host, options, (CONNECT_S, REQUEST_S), ATTEMPTS)


SERVICES: Mapping[str, Service] = {
    "s3": Service(
        "pyarrow.fs.S3FileSystem, or max_attempts",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), AWS_REGION, and AWS_ENDPOINT_URL for a server"
        " that is not Amazon's; or the storage options access_key, secret_key, region, endpoint_override, scheme; an"
        " object of an archive (GLACIER) is refused"
        " until it is restored",
        _s3,
        _in_bucket,
    ),
    "gs": Service(
        "pyarrow.fs.GcsFileSystem",
        "GOOGLE_APPLICATION_CREDENTIALS; or the storage options anonymous, access_token, endpoint_override, scheme",
        _google,
        _in_bucket,
    ),
    "abfss": Service(
        "pyarrow.fs.AzureFileSystem",
        "AZURE_STORAGE_KEY; or the storage options account_key, sas_token",
        _azure,
        _in_container,
    ),
    "hdfs": Service(
        "pyarrow.fs.HadoopFileSystem",
        "HADOOP_HOME, CLASSPATH and libhdfs; or the storage options user, kerb_ticket",
        _hadoop,
        _absolute,
    ),
    "webhdfs": Service(
        "fsspec's WebHDFS, or connect_timeout, request_timeout, max_attempts",
        "HADOOP_USER_NAME; or the storage options user, password, token, kerberos, and data_proxy where the data nodes"
        " have other names from here",
        _webhdfs,
        _absolute,
    ),
}
SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "viewfs": "hdfs", "swebhdfs": "webhdfs"}


def service_of(scheme: str) -> Service:
    """The service of a scheme in small letters."""
    return SERVICES[SAME.get(scheme, scheme)]


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _status(info: fs.FileInfo) -> Status:
    from pyarrow import fs

    if (info.size or 0) < 0:
        raise OSError(f"expected the size of {info.path}, found {info.size}")
    return Status(info.size or 0, info.mtime_ns or 0, info.type == fs.FileType.Directory)
