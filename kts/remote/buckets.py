"""Buckets as stores of files: access, listings, and errors that say what to do."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from kts.errors import LogStorageError
from kts.remote import objects
from kts.remote.services import SAME, SERVICES, Library, service_of
from kts.remote.threads import Limit, Threads
from kts.segment.names import LOG_DIRECTORY_FILES, is_partition_file
from kts.segment.rereading import warn
from kts.store import addresses
from kts.store.local import Bytes
from kts.store.protocol import ByteRange, Item, Result, Status
from kts.store.source import Store

REQUESTS = 16  # at a time
LISTING_S = 60.0  # how long a listing answers for the sizes of its files
ANSWER_S = 1.0  # how long one that was asked whether a directory is there answers, once, what is in it
TIME_LIMIT_S = 120.0  # of a request with all its attempts

_UNREACHABLE = ("", ".", "..")  # parts of a key that a path cannot have


class ListedObject(NamedTuple):
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


class Bucket(Store):
    """A bucket and how it is reached; a ``Source``, which is pickled as these two alone.

    Parameters
    ----------
    root : str
        Scheme and bucket, as ``s3://logs``.
    options : dict
        What its service takes, see ``kts.remote.services``; and ``time_limit``, in seconds.
    """

    def __init__(self, root: str, options: Mapping[str, Any]) -> None:
        self.root = root
        self.service = service_of(root.partition("://")[0])
        self.options = dict(options)
        self._host = root.partition("://")[2]
        self._limit = Limit(time_limit(self.options.get("time_limit", TIME_LIMIT_S)))
        self.begin()

    def __repr__(self) -> str:
        return f"Bucket({self.root!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.root, self.options)

    def begin(self) -> None:
        """Begin anew: without a connection, an answer or a listing."""
        self.answers = objects.LruCache[bytes](objects.KEPT_BYTES)
        # Work that waits for requests has threads of its own: else it could take all that the requests need.
        self._requests, self._work = Threads("kts-get", REQUESTS), Threads("kts-work", REQUESTS)
        self._asking = Threads("kts-ask")
        self.answered = self.failed = False
        self._lock = threading.Lock()
        self._made: Library | None = None
        self._listings: dict[str, tuple[float, dict[str, Status]]] = {}
        self._names: dict[str, tuple[float, Sequence[ListedObject]]] = {}  # in directories that were found a moment ago

    @property
    def is_refused(self) -> bool:
        """True if it failed and never answered: nobody reads by options that gave no access."""
        return self.failed and not self.answered

    # --- the library ---

    def _library(self) -> Library:
        with self._lock:
            if self._made is None:
                self._made = self._connected()
            return self._made

    def _connected(self) -> Library:
        scheme = self.root.partition("://")[0]
        if not self._host and SAME.get(scheme, scheme) != "hdfs":
            raise ValueError(f"expected an address such as {scheme}://bucket/key, found one without a bucket")
        options = {name: value for name, value in self.options.items() if name != "time_limit"}
        if scheme == "swebhdfs":
            options.setdefault("use_https", True)
        try:
            return self.service.connect(self._host, options)
        except TypeError as error:
            raise ValueError(
                f"storage_options: {error}; expected time_limit or arguments of {self.service.takes}"
            ) from error
        except OSError as error:
            raise self.failure(error, self.root, "opening") from error

    def _key(self, path: str) -> str:
        """The name that the library has for a path."""
        rest = path.partition("://")[2].partition("/")[2]
        if "//" in rest:
            raise LogStorageError("expected an address without an empty name (//)", path=path, errno=errno.EINVAL)
        return self.service.key(self._host, rest)

    def failure(self, error: BaseException | None, path: str, doing: str) -> LogStorageError:
        """An error of the library, with what to look at next."""
        self.failed = True
        what = "" if error is None else str(error).strip().rstrip(".")
        message = f"{doing} failed: {what}; check the address and what gives access: {self.service.usual}"
        return LogStorageError(message, path=path, errno=getattr(error, "errno", None) or errno.EIO)

    def submit(self, work: Callable[..., Result], *given: Any) -> Future[Result]:
        """Run work that asks for an object beside others."""
        return self._requests.submit(work, *given)

    def ask(self, path: str, doing: str, work: Callable[..., Result], *given: Any) -> Result:
        """The result of work that waits for the service; its errors, and a wait that was too long, with the path."""
        return self.wait(path, doing, self._asking.submit(work, *given))

    def wait(self, path: str, doing: str, work: Future[Result], sent: Callable[[], int] = lambda: 0) -> Result:
        """The result of such work that was submitted; while it sends, the limit of time grows with the bytes."""
        try:
            found = self._limit.wait(work, sent)
        except FileNotFoundError:
            raise
        except Exception as error:
            if not isinstance(error, OSError) and not _is_of_arrow(error):
                raise
            raise self.failure(error, path, doing) from error
        self.answered = True
        return found

    def opened(self, path: str) -> objects.Opened:
        """Ask for an object: its size and version, in one request, and without a limit of time."""
        try:
            return self._library().opened(self._key(path))
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

    def entries(self, path: str) -> Sequence[ListedObject]:
        """What lies in a directory now: one request for each 1,000 names."""
        path, began = path.rstrip("/"), time.monotonic()
        if (asked := self._names.pop(path, None)) is not None and began - asked[0] < ANSWER_S:
            return asked[1]
        try:
            listed = self.ask(path, "listing", lambda: self._library().listed(self._key(path)))
        except FileNotFoundError as error:
            if self._shows(path):
                message = "expected names in it, as the directory above shows it, found none"
                raise self.failure(OSError(message), path, "listing") from error
            raise LogStorageError("there is no such directory", path=path, errno=errno.ENOENT) from error
        # A directory comes before an object of its name, which some tools put there as a mark.
        known = dict(sorted(listed, key=lambda one: one[1].is_directory))
        for odd in filter(known.__contains__, _UNREACHABLE):
            del known[odd]
            warn(f"{path}/{odd}: left out: no path leads to an object with {odd or 'an empty name'} in its key", path)
        for name in [name for name, status in known.items() if status == (0, status.modified_ns, False)]:
            if name.endswith(".log") and (seen := self._look(f"{path}/{name}")) is not None:
                known[name] = seen  # an odd size in a list becomes 0
        self._listings[path] = began, known
        return sorted(ListedObject(name, f"{path}/{name}", status) for name, status in known.items())

    def status(self, path: str) -> Status | None:
        """Size and time, as the last listing of the directory has them; else a listing or a look at the object."""
        path = path.rstrip("/")
        if (known := self._listed(path)) is not None:
            return known.get(os.path.basename(path))
        name = os.path.basename(path)
        is_file = is_partition_file(name) or name in LOG_DIRECTORY_FILES
        if not is_file and (self._listed(f"{path}/") is not None or self._lists(path)):
            return Status(0, 0, is_directory=True)  # the names in it are asked for next
        return self._look(path)

    def _look(self, path: str) -> Status | None:
        return self.ask(path, "looking for it", lambda: self._library().look(self._key(path)))

    def _shows(self, path: str) -> bool:
        """Whether the directory above, if it was listed, still shows a directory: some answers are wrongly empty."""
        if self._listed(path) is None:
            return False
        self.forget(path)
        above, name = os.path.split(path)
        return any(one.name == name and one.is_dir() for one in self.entries(above))

    def _lists(self, path: str) -> bool:
        began = time.monotonic()
        try:
            found = self.entries(path)
        except LogStorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return False
        self._names[path] = began, found
        return bool(found)

    # --- what changes it ---

    def put(self, path: str, pieces: Iterable[Bytes]) -> None:
        """Make or replace an object, whole."""
        sent = 0

        def counted() -> Iterator[Bytes]:
            nonlocal sent
            for piece in pieces:
                sent += len(piece)
                yield piece

        try:
            work = self._asking.submit(lambda: self._library().put(self._key(path), map(bytes, counted())))
            self.wait(path, "writing", work, lambda: sent)
        finally:
            self._forget_names(path)

    def remove(self, path: str, *, missing_ok: bool = False) -> None:
        """Delete an object; do nothing if there is none."""
        try:
            self.ask(path, "deleting", lambda: self._library().remove(self._key(path)))
        except FileNotFoundError:
            pass
        finally:
            self._forget_names(path)

    def _forget_names(self, path: str) -> None:
        """A name came or went: what was listed above it may be new, too."""
        while path != self.root and "/" in path.removeprefix(f"{self.root}/"):
            self.forget(path)
            path = os.path.dirname(path)
        self.forget(path)

    def together(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results of work that waits for this bucket, in order."""
        return objects.side_by_side(self._work.submit, work, items, REQUESTS)

    def _listed(self, path: str) -> dict[str, Status] | None:
        if path == self.root:
            return None  # nothing lists buckets
        known = self._listings.get(os.path.dirname(path))
        return known[1] if known is not None and time.monotonic() - known[0] < LISTING_S else None

    def forget(self, path: str) -> None:
        """The last listing no longer holds for a path."""
        self._listings.pop(os.path.dirname(path), None)
        self._names.pop(os.path.dirname(path), None)

    def refresh(self) -> None:
        """No listing holds any more."""
        self._listings.clear()
        self._names.clear()


def _is_of_arrow(error: Exception) -> bool:
    """Whether it is an error that Arrow has no other word for; its ValueError is about options."""
    from pyarrow import ArrowException

    return isinstance(error, ArrowException) and not isinstance(error, ValueError)


def time_limit(limit: object) -> float:
    """The storage option ``time_limit``, checked."""
    if not isinstance(limit, (int, float)) or isinstance(limit, bool) or not 0 < limit < threading.TIMEOUT_MAX:
        raise ValueError(f"storage_options: time_limit: expected a number of seconds, found {limit!r}")
    return float(limit)


# --- the buckets of this process ------------------------------------------------------------------

_lock = threading.Lock()
_buckets: dict[str, list[Bucket]] = {}  # by root: one for all who reach it by the same options spares connections


def bucket_of(path: str, options: addresses.StorageOptions = None) -> Bucket:
    """The bucket of a path, reached by these options. None is the first ones of this process that gave access."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"storage_options: expected a dictionary, found {type(options).__name__}")
    root = root_of(path)
    with _lock:
        known = _buckets.setdefault(root, [])
        if options is None:
            found = next((one for one in known if not one.is_refused), known[0] if known else None)
        else:
            found = next((one for one in known if one.options == dict(options)), None)
            if found is not None and found.is_refused:
                found.begin()
        if found is None:
            known.append(found := Bucket(root, options or {}))
        return found


def root_of(path: str) -> str:
    """Scheme and bucket of a path."""
    scheme, _, rest = path.partition("://")
    return f"{scheme.lower()}://{rest.partition('/')[0]}"


def _unpickled(root: str, options: Mapping[str, Any]) -> Bucket:
    """The bucket in another process; what that listed before is older than what is planned."""
    bucket = bucket_of(root, options)
    bucket.refresh()
    return bucket


def _begin_all() -> None:
    """After a fork: the threads of the libraries are not those of this process, and somebody may have had the lock."""
    global _lock
    _lock = threading.Lock()
    for known in _buckets.values():
        for bucket in known:
            bucket.begin()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_begin_all)
addresses.serve_schemes((*SERVICES, *SAME), bucket_of)
