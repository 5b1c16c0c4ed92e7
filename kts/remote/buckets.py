"""Buckets as stores of files: S3, Google Cloud Storage, Azure and HDFS, through ``pyarrow.fs``."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from kts.errors import LogStorageError
from kts.remote import objects
from kts.segment import files
from kts.segment.files import ByteRange, Item, Result, Status
from kts.segment.names import parse_file_name

if TYPE_CHECKING:
    from pyarrow import fs

REQUESTS = 16  # at a time
LISTING_S = 60.0  # how long a listing answers for the sizes of its files
CONNECT_S, REQUEST_S = 10.0, 60.0
S3_ATTEMPTS = 5  # with growing pauses between them

WHOLE = ("S3FileSystem", "GcsFileSystem")  # an object shows once all of it is there
PLACES = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE")

StorageOptions = Mapping[str, Any] | None


class Service(NamedTuple):
    """What serves the addresses of a scheme."""

    name: str  # of the class in pyarrow.fs
    usual: str  # where credentials come from


SERVICES = {
    "s3": Service(
        "S3FileSystem",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), AWS_REGION, and AWS_ENDPOINT_URL for a server"
        " that is not Amazon's; or the storage options access_key, secret_key, region, endpoint_override, scheme",
    ),
    "gs": Service(
        "GcsFileSystem",
        "GOOGLE_APPLICATION_CREDENTIALS; or the storage options anonymous, access_token, endpoint_override, scheme",
    ),
    "abfss": Service("AzureFileSystem", "AZURE_STORAGE_KEY; or the storage options account_key, sas_token"),
    "hdfs": Service("HadoopFileSystem", "HADOOP_HOME, CLASSPATH and libhdfs; or the storage options user, kerb_ticket"),
}
SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "viewfs": "hdfs"}


class Found(NamedTuple):
    """A name in a listing."""

    name: str
    path: str
    status: Status

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self.status.is_directory

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return not self.status.is_directory

    def is_symlink(self) -> bool:
        return False


class Bucket:
    """A bucket: a ``WritableStore`` of ``kts.segment.files``.

    Parameters
    ----------
    root : str
        Scheme and bucket, as ``s3://logs``.
    options : dict
        Arguments of the class in ``pyarrow.fs``.
    """

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        self.root = root
        self.scheme = root.partition("://")[0].lower()
        self.service = SERVICES[SAME.get(self.scheme, self.scheme)]
        self.options = dict(options)
        self.answers = objects.Answers()
        self._lock = threading.Lock()
        self._made: tuple[fs.FileSystem, ThreadPoolExecutor, ThreadPoolExecutor] | None = None
        self._listings: dict[str, tuple[float, dict[str, Status]]] = {}

    # --- the library ---

    def _tools(self) -> tuple[fs.FileSystem, ThreadPoolExecutor, ThreadPoolExecutor]:
        with self._lock:
            if self._made is None:
                try:
                    system = _file_system(self.root, self.service, self.options)
                except OSError as error:
                    raise self.failure(error, self.root, "opening") from error
                # Work that waits for requests has threads of its own: else it could take all that the requests need.
                self._made = system, ThreadPoolExecutor(REQUESTS, "kts-get"), ThreadPoolExecutor(REQUESTS, "kts-work")
            return self._made

    def _key(self, path: str) -> str:
        """The name that the library has for a path."""
        parts = urlsplit(path, allow_fragments=False)
        host, rest = path.partition("://")[2].partition("/")[::2]
        if self.service.name == "AzureFileSystem":
            host = host.partition("@")[0]
        if self.service.name == "HadoopFileSystem":
            return f"/{rest}".rstrip("/") or parts.path
        return f"{host}/{rest}".rstrip("/")

    def failure(self, error: BaseException | None, path: str, doing: str) -> LogStorageError:
        """An error of the library, with what to look at next."""
        what = "" if error is None else str(error).strip().rstrip(".")
        message = f"{doing} failed: {what}; check the address and what gives access: {self.service.usual}"
        return LogStorageError(message, path=path, errno=getattr(error, "errno", None) or errno.EIO)

    def submit(self, work: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Run a request beside others."""
        return self._tools()[1].submit(work, *arguments)

    def opened(self, path: str) -> objects.Opened:
        """Ask for an object: its size and version, in one request."""
        try:
            handle = self._tools()[0].open_input_file(self._key(path))
            facts = {_text(name).lower(): value for name, value in (handle.metadata() or {}).items()}
            version = facts.get("generation") or facts.get("etag") or self._version(path)
            return objects.Opened(handle, handle.size(), version)
        except FileNotFoundError as error:
            self.forget(path)
            raise LogStorageError("there is no such object", path=path, errno=errno.ENOENT) from error
        except OSError as error:
            raise self.failure(error, path, "opening") from error

    def _version(self, path: str) -> Hashable:
        info = self._tools()[0].get_file_info(self._key(path))
        return info.size, info.mtime_ns

    # --- what a store answers ---

    def file(self, path: str, ahead: tuple[int, int | None] | None) -> objects.ObjectFile:
        """An object for reading."""
        known = self._listed(path)
        if known is not None and known.get(os.path.basename(path)) is None:
            raise LogStorageError("there is no such object", path=path, errno=errno.ENOENT)
        file = objects.ObjectFile(self, path, ahead)
        file.size()  # a missing object is told here, as for a file
        return file

    def files(self, ranges: Sequence[ByteRange]) -> Iterator[objects.ObjectFile]:
        """Objects that are read one after another."""
        return objects.in_order(self, [one if one.end is not None else self._to_its_end(one) for one in ranges])

    def _to_its_end(self, one: ByteRange) -> ByteRange:
        found = self.status(one.path)
        return one._replace(end=0 if found is None else found.size)

    def entries(self, path: str) -> Sequence[Found]:
        """What lies in a directory now: one request for each 1,000 names."""
        from pyarrow import fs

        path = path.rstrip("/")
        try:
            listed = self._tools()[0].get_file_info(fs.FileSelector(self._key(path)))
        except OSError as error:
            if self._look(path).type != fs.FileType.NotFound:
                raise self.failure(error, path, "listing") from error
            self.forget(path)
            raise LogStorageError("there is no such directory", path=path, errno=errno.ENOENT) from error
        found = [Found(info.base_name, f"{path}/{info.base_name}", _status(info)) for info in listed]
        self._listings[path] = time.monotonic(), {one.name: one.status for one in found}
        return sorted(found)

    def status(self, path: str) -> Status | None:
        """Size and time, as the last listing of the directory has them; else a listing or a look at the object."""
        from pyarrow import fs

        path = path.rstrip("/")
        if (known := self._listed(path)) is not None:
            return known.get(os.path.basename(path))
        is_segment_file = parse_file_name(os.path.basename(path)) is not None
        if not is_segment_file and (self._listed(f"{path}/") is not None or self._lists(path)):
            return Status(0, 0, is_directory=True)  # the names in it are asked for next
        info = self._look(path)
        return None if info.type == fs.FileType.NotFound else _status(info)

    def _look(self, path: str) -> fs.FileInfo:
        try:
            return self._tools()[0].get_file_info(self._key(path))
        except OSError as error:
            raise self.failure(error, path, "looking for it") from error

    def _lists(self, path: str) -> bool:
        try:
            return bool(self.entries(path))
        except LogStorageError as error:
            if error.errno != errno.ENOENT:
                raise
        return False

    # --- what changes it ---

    def put(self, path: str, pieces: Iterable[bytes]) -> None:
        """Make or replace an object, whole."""
        system, key = self._tools()[0], self._key(path)
        name = key if self.service.name in WHOLE else f"{key}.part"
        try:
            stream = system.open_output_stream(name)
            try:
                for piece in pieces:
                    stream.write(piece)
            except BaseException:
                stream.close()  # which makes it an object, even so
                system.delete_file(name)
                raise
            stream.close()
            if name != key:
                self._take_the_place(name, key)
        except OSError as error:
            raise self.failure(error, path, "writing") from error
        finally:
            self._forget_names(path)

    def _take_the_place(self, name: str, key: str) -> None:
        from pyarrow import fs

        system = self._tools()[0]
        if self.service.name == "HadoopFileSystem":  # it renames, but over no other file
            if system.get_file_info(key).type != fs.FileType.NotFound:
                system.delete_file(key)
            system.move(name, key)
        else:
            system.copy_file(name, key)
            system.delete_file(name)

    def remove(self, path: str) -> None:
        """Delete an object; do nothing if there is none."""
        try:
            self._tools()[0].delete_file(self._key(path))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self.failure(error, path, "deleting") from error
        finally:
            self._forget_names(path)

    def _forget_names(self, path: str) -> None:
        """A name came or went: what was listed above it may be new, too."""
        while path != self.root and "/" in path.removeprefix(f"{self.root}/"):
            self.forget(path)
            path = os.path.dirname(path)
        self.forget(path)

    def side_by_side(self, work: Callable[[Item], Result], items: Sequence[Item], path: str) -> Iterator[Result]:
        """The results of work that waits for this bucket, in order."""
        return objects.side_by_side(self._tools()[2].submit, work, items, REQUESTS)

    def _listed(self, path: str) -> dict[str, Status] | None:
        if path == self.root:
            return None  # nothing lists buckets
        known = self._listings.get(os.path.dirname(path))
        return known[1] if known is not None and time.monotonic() - known[0] < LISTING_S else None

    def forget(self, path: str) -> None:
        """The last listing no longer holds for a path."""
        self._listings.pop(os.path.dirname(path), None)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _status(info: fs.FileInfo) -> Status:
    from pyarrow import fs

    return Status(info.size or 0, info.mtime_ns or 0, info.type == fs.FileType.Directory)


def _file_system(root: str, service: Service, options: dict[str, Any]) -> fs.FileSystem:
    from pyarrow import fs

    make = getattr(fs, service.name, None)
    if make is None:
        raise ValueError(f"this build of pyarrow has no {service.name}")
    given = dict(options)
    host = root.partition("://")[2]
    if service.name == "S3FileSystem":
        given.setdefault("connect_timeout", CONNECT_S)
        given.setdefault("request_timeout", REQUEST_S)
        given.setdefault("retry_strategy", fs.AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS))
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if endpoint:  # the library takes it from options alone
            given.setdefault("endpoint_override", endpoint)
        if not ({"region", "endpoint_override"} & given.keys() or any(map(os.environ.get, PLACES))):
            given["region"] = fs.resolve_s3_region(host)
    elif service.name == "GcsFileSystem":
        given.setdefault("retry_time_limit", timedelta(seconds=REQUEST_S))
    elif service.name == "AzureFileSystem":
        container, _, account = host.partition("@")
        if not account:
            raise ValueError("expected abfss://container@account.dfs.core.windows.net/path")
        given.setdefault("account_name", account.partition(".")[0])
        if not {"account_key", "sas_token", "client_id"} & given.keys() and "AZURE_STORAGE_KEY" in os.environ:
            given["account_key"] = os.environ["AZURE_STORAGE_KEY"]
    elif service.name == "HadoopFileSystem":
        name, _, port = host.partition(":")
        given.setdefault("host", name or "default")
        given.setdefault("port", int(port or 0))
    try:
        return make(**given)
    except TypeError as error:
        raise ValueError(f"storage_options: {error}; expected arguments of pyarrow.fs.{service.name}") from error


# --- the buckets of this process ------------------------------------------------------------------

_buckets: dict[str, Bucket] = {}
_process: list[int] = [os.getpid()]


def bucket_of(path: str) -> Bucket:
    """The bucket of a path; made at its first use in this process."""
    if _process[0] != os.getpid():  # the library's threads are not those of a forked process
        _process[0] = os.getpid()
        for root, bucket in list(_buckets.items()):
            _buckets[root] = Bucket(root, bucket.options)
    root = _root(path)
    found = _buckets.get(root)
    return found if found is not None else _buckets.setdefault(root, Bucket(root, {}))


def _root(path: str) -> str:
    scheme, _, rest = path.partition("://")
    return f"{scheme.lower()}://{rest.partition('/')[0]}"


def use_options(path: str, options: StorageOptions) -> None:
    """From now on this process reaches the bucket of a path with these options; None leaves them as they are.

    What was listed of the path is forgotten: a caller that names it sees it as it is now.
    """
    if files.scheme_of(path) not in (*SERVICES, *SAME):
        return
    if options is None:
        bucket_of(path).forget(path)
        bucket_of(path).forget(f"{path.rstrip('/')}/")
        return
    if not isinstance(options, Mapping):
        raise TypeError(f"storage_options: expected a dictionary, found {type(options).__name__}")
    root = _root(path)
    known = _buckets.get(root)
    if known is None or known.options != dict(options):
        _buckets[root] = Bucket(root, options)


def known_options() -> dict[str, dict[str, Any]]:
    """The options of each bucket of this process, for ``use_all`` in another one."""
    return {root: bucket.options for root, bucket in _buckets.items()}


def use_all(options: Mapping[str, Mapping[str, Any]]) -> None:
    """Reach buckets as another process does."""
    for root, one in options.items():
        use_options(root, one)


files.serve_schemes((*SERVICES, *SAME), bucket_of)
