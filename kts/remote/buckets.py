"""Buckets as stores of files: access, listings, and errors that say what to do."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from kts.errors import LogStorageError
from kts.remote import objects
from kts.remote.services import SAME, SERVICES, Library, service_of
from kts.segment import files
from kts.segment.files import ByteRange, Item, Result, Status
from kts.segment.names import parse_file_name

REQUESTS = 16  # at a time
LISTING_S = 60.0  # how long a listing answers for the sizes of its files

StorageOptions = Mapping[str, Any] | None


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
        What its service takes: see ``kts.remote.services``.
    """

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        self.root = root
        self.service = service_of(root.partition("://")[0])
        self.options = dict(options)
        self.answers = objects.Kept[bytes](objects.KEPT_BYTES)
        self._lock = threading.Lock()
        self._made: tuple[Library, ThreadPoolExecutor, ThreadPoolExecutor] | None = None
        self._listings: dict[str, tuple[float, dict[str, Status]]] = {}

    # --- the library ---

    def _tools(self) -> tuple[Library, ThreadPoolExecutor, ThreadPoolExecutor]:
        with self._lock:
            if self._made is None:
                library = self._connected()
                # Work that waits for requests has threads of its own: else it could take all that the requests need.
                self._made = library, ThreadPoolExecutor(REQUESTS, "kts-get"), ThreadPoolExecutor(REQUESTS, "kts-work")
            return self._made

    def _connected(self) -> Library:
        options, scheme = dict(self.options), self.root.partition("://")[0]
        if scheme == "swebhdfs":
            options.setdefault("use_https", True)
        try:
            return self.service.connect(self.root.partition("://")[2], options)
        except TypeError as error:
            raise ValueError(f"storage_options: {error}; expected arguments of {self.service.takes}") from error
        except OSError as error:
            raise self.failure(error, self.root, "opening") from error

    def _key(self, path: str) -> str:
        """The name that the library has for a path."""
        host, _, rest = path.partition("://")[2].partition("/")
        return self.service.key(host, rest)

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
            return self._tools()[0].opened(self._key(path))
        except FileNotFoundError as error:
            self.forget(path)
            raise LogStorageError("there is no such object", path=path, errno=errno.ENOENT) from error
        except OSError as error:
            raise self.failure(error, path, "opening") from error

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
        path = path.rstrip("/")
        try:
            listed = self._tools()[0].listed(self._key(path))
        except FileNotFoundError as error:
            self.forget(path)
            raise LogStorageError("there is no such directory", path=path, errno=errno.ENOENT) from error
        except OSError as error:
            raise self.failure(error, path, "listing") from error
        # A directory comes before an object of its name, which some tools put there as a mark.
        known = dict(sorted(listed, key=lambda one: one[1].is_directory))
        self._listings[path] = time.monotonic(), known
        return sorted(Found(name, f"{path}/{name}", status) for name, status in known.items())

    def status(self, path: str) -> Status | None:
        """Size and time, as the last listing of the directory has them; else a listing or a look at the object."""
        path = path.rstrip("/")
        if (known := self._listed(path)) is not None:
            return known.get(os.path.basename(path))
        is_segment_file = parse_file_name(os.path.basename(path)) is not None
        if not is_segment_file and (self._listed(f"{path}/") is not None or self._lists(path)):
            return Status(0, 0, is_directory=True)  # the names in it are asked for next
        try:
            return self._tools()[0].look(self._key(path))
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
        try:
            self._tools()[0].put(self._key(path), pieces)
        except OSError as error:
            raise self.failure(error, path, "writing") from error
        finally:
            self._forget_names(path)

    def remove(self, path: str) -> None:
        """Delete an object; do nothing if there is none."""
        try:
            self._tools()[0].remove(self._key(path))
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

    def forget_all(self) -> None:
        """No listing holds any more."""
        self._listings.clear()


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

    What was listed in the bucket is forgotten: a caller that names a path sees it as it is now.
    """
    if files.scheme_of(path) not in (*SERVICES, *SAME):
        return
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"storage_options: expected a dictionary, found {type(options).__name__}")
    bucket = bucket_of(path)
    if options is None or bucket.options == dict(options):
        bucket.forget_all()
    else:
        _buckets[bucket.root] = Bucket(bucket.root, options)


def known_options() -> dict[str, dict[str, Any]]:
    """The options of each bucket of this process, for ``use_all`` in another one."""
    return {root: bucket.options for root, bucket in _buckets.items()}


def use_all(options: Mapping[str, Mapping[str, Any]]) -> None:
    """Reach buckets as another process does."""
    for root, one in options.items():
        use_options(root, one)


files.serve_schemes((*SERVICES, *SAME), bucket_of)
