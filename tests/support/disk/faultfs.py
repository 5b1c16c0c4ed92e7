"""A stand-in for ``kts.store.local.os``: real files, every operation recorded, any of them made to fail.

``FaultyOs`` works on a real temporary directory. It knows the functions it stands in for by name and has no others, so
that a new way to change a file cannot pass unrecorded; ``unrecorded`` compares what it recorded with what is there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from support.disk.crashdisk import Disk, Op, read_tree

WRITING = frozenset(
    ["create", "pwrite", "ftruncate", "fsync", "fdatasync", "rename", "replace", "unlink", "remove", "mkdir", "rmdir"]
    + ["utime", "chmod"]
)
READING = frozenset(["open", "pread", "preadv", "fstat", "stat", "scandir", "listdir", "close"])
_SAME = frozenset(["path", "fspath", "fsdecode", "DirEntry", "PathLike", "stat_result", "sep", "name", "getpid"])


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and where.

    Parameters
    ----------
    at : int
        The first call it happens to, from 1, counted over those in ``which``.
    which : set of str
        Names of the calls it can happen to, as WRITING or READING.
    errno : int, optional
        Raised, and nothing is done (but a ``close`` closes all the same); None: nothing is raised.
    short : bool
        A write or read moves half of its bytes only; with ``errno``, that is raised at the next call.
    lasting : bool
        All later calls of ``which`` fail too.
    times : int
        How many calls of ``which`` fail in a row.
    """

    at: int
    which: frozenset[str] = WRITING
    errno: int | None = None
    short: bool = False
    lasting: bool = False
    times: int = 1

    def strikes(self, number: int) -> bool:
        """True if the call of that number raises."""
        first = self.at + self.short
        if self.errno is None or number < first:
            return False
        return self.lasting or number < first + self.times

    def halves(self, number: int) -> bool:
        """True if the call of that number moves half of its bytes."""
        return self.short and (number == self.at or (number > self.at and self.lasting and self.errno is None))


# A signal at each ``close``, the one call that Python does not repeat: nothing is wrong with the disk.
INTERRUPTED_CLOSES = Fault(1, frozenset({"close"}), errno.EINTR, lasting=True)


@dataclass
class FaultyOs:
    """``os`` below ``root``: recorded in ``trace`` and ``calls``, and failing as ``fault`` says."""

    root: str
    fault: Fault | None = None
    after: Callable[[str], None] | None = None  # called with the name of each operation that was done
    trace: list[Op] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)  # names of the calls that a fault struck

    def __post_init__(self) -> None:
        self.given, self.root = os.path.abspath(self.root), os.path.realpath(self.root)
        self._contents: dict[int, bytes] = {}
        self._directories: dict[int, dict[str, int]] = {0: {}}
        self._count = self._due = 0
        self._names: dict[str, int] = {self.root: 0}  # the paths that are there now
        self._open: dict[int, tuple[int, str]] = {}
        for path, content in sorted(read_tree(self.root).items()):
            node = self._new(os.path.join(self.root, path))
            folder, name = os.path.split(os.path.join(self.root, path))
            self._directories[self._names[folder]][name] = node
            if content is None:
                self._directories[node] = {}
            else:
                self._contents[node] = content

    def __getattr__(self, name: str) -> Any:
        if name in _SAME or name.startswith(("O_", "F_", "RTLD_")):
            return getattr(os, name)
        raise AttributeError(f"faultfs does not stand in for os.{name}; add it")

    def disk(self) -> Disk:
        """What was there before the first operation, all of it synced."""
        return Disk(self._contents, self._directories)

    def unrecorded(self) -> list[str]:
        """Paths whose real content is not what the trace says."""
        disk = self.disk()
        for op in self.trace:
            disk.step(op)
        recorded, real = disk.kept(), read_tree(self.root)
        return [p for p in sorted(recorded.keys() | real.keys()) if recorded.get(p, "") != real.get(p, "")]

    def open_files(self) -> list[str]:
        """Paths of the descriptors that were not closed."""
        return sorted(path for _, path in self._open.values())

    # --- the bookkeeping ----------------------------------------------------------------------------

    def _new(self, path: str) -> int:
        self._count += 1
        self._names[path] = self._count
        return self._count

    def _inside(self, path: Any) -> str | None:
        full = os.path.abspath(path)
        if full == self.given or full.startswith(self.given + os.sep):
            full = self.root + full[len(self.given) :]
        return full if full == self.root or full.startswith(self.root + os.sep) else None

    def _entry(self, path: str) -> tuple[int, str]:
        folder, name = os.path.split(path)
        return self._names[folder], name

    def _record(self, op: Op) -> None:
        self.trace.append(op)

    @contextmanager
    def _call(self, name: str, path: str) -> Iterator[bool]:
        """Count a call and fail it if it is its turn; gives True if it should move half of its bytes."""
        self.calls.append(name)
        short = False
        if self.fault is not None and name in self.fault.which:
            self._due += 1
            short = self.fault.halves(self._due)
            if self.fault.strikes(self._due):
                self.failed.append(name)
                raise OSError(self.fault.errno, os.strerror(self.fault.errno or 0), path)
            if short:
                self.failed.append(name)
        yield short
        if self.after is not None:
            self.after(name)

    def _path_of(self, target: Any) -> str:
        return self._open[target][1] if isinstance(target, int) and target in self._open else str(target)

    # --- reading ------------------------------------------------------------------------------------

    def stat(self, path: Any, **keywords: Any) -> os.stat_result:
        with self._call("stat", self._path_of(path)):
            return os.stat(path, **keywords)

    def fstat(self, fd: int) -> os.stat_result:
        with self._call("fstat", self._path_of(fd)):
            return os.fstat(fd)

    def scandir(self, path: Any = ".") -> Any:
        with self._call("scandir", str(path)):
            return os.scandir(path)

    def listdir(self, path: Any = ".") -> list[str]:
        with self._call("listdir", str(path)):
            return os.listdir(path)

    def pread(self, fd: int, count: int, position: int) -> bytes:
        with self._call("pread", self._path_of(fd)) as short:
            return os.pread(fd, (count + 1) // 2 if short else count, position)

    def preadv(self, fd: int, buffers: Any, position: int, flags: int = 0) -> int:
        with self._call("preadv", self._path_of(fd)) as short:
            if short:
                view = memoryview(buffers[0])
                buffers = [view[: (len(view) + 1) // 2]]
            return os.preadv(fd, buffers, position, flags)

    def open(self, path: Any, flags: int, mode: int = 0o777, **keywords: Any) -> int:
        inside = self._inside(path)
        fresh = inside is not None and flags & os.O_CREAT and not os.path.lexists(path)
        with self._call("create" if fresh else "open", str(path)):
            fd = os.open(path, flags, mode, **keywords)
        if inside is not None:
            if fresh:
                directory, name = self._entry(inside)
                node = self._new(inside)
                self._record(Op("names", names=((directory, name, node),), call=f"create {name}"))
            self._open[fd] = self._names[inside], inside
            if flags & os.O_TRUNC and not fresh:
                self._record(Op("truncate", self._names[inside], 0, call="open with O_TRUNC"))
        return fd

    def close(self, fd: int) -> None:
        path = self._path_of(fd)
        self._open.pop(fd, None)
        os.close(fd)
        with self._call("close", path):
            pass

    # --- changing -----------------------------------------------------------------------------------

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        view = memoryview(data).cast("B")
        with self._call("pwrite", self._path_of(fd)) as short:
            done = os.pwrite(fd, view[: (len(view) + 1) // 2] if short and len(view) > 1 else view, position)
            if fd in self._open:
                self._record(Op("write", self._open[fd][0], position, bytes(view[:done]), call="pwrite"))
        return done

    def ftruncate(self, fd: int, size: int) -> None:
        with self._call("ftruncate", self._path_of(fd)):
            os.ftruncate(fd, size)
            if fd in self._open:
                self._record(Op("truncate", self._open[fd][0], size, call="ftruncate"))

    def fsync(self, fd: int) -> None:
        self._sync("fsync", fd)

    def fdatasync(self, fd: int) -> None:
        self._sync("fdatasync", fd)

    def _sync(self, name: str, fd: int) -> None:
        node = self._open[fd][0] if fd in self._open else None
        kind = "failsync"
        try:
            with self._call(name, self._path_of(fd)):
                kind = "sync"  # the files lie in memory: what counts is that it was asked for
        finally:
            if node is not None:
                self._record(Op(kind, node, call=name))

    def rename(self, source: Any, target: Any) -> None:
        self._move("rename", source, target)

    def replace(self, source: Any, target: Any) -> None:
        self._move("replace", source, target)

    def _move(self, call: str, source: Any, target: Any) -> None:
        with self._call(call, str(source)):
            os.rename(source, target)
            old, new = self._inside(source), self._inside(target)
            if (old is None) != (new is None):
                raise AssertionError(f"{call} of {source} to {target} crosses the border of {self.root}")
            if old is None or new is None or old == new:
                return
            node = self._names[old]
            for path in [path for path in self._names if path == old or path.startswith(old + os.sep)]:
                self._names[new + path.removeprefix(old)] = self._names.pop(path)
            for fd, (number, path) in self._open.items():
                if path == old or path.startswith(old + os.sep):
                    self._open[fd] = number, new + path.removeprefix(old)
            names = ((*self._entry(old), -1), (*self._entry(new), node))
            self._record(Op("names", names=names, call=f"{call} {os.path.basename(old)}"))

    def unlink(self, path: Any) -> None:
        self._drop("unlink", os.unlink, path)

    def remove(self, path: Any) -> None:
        self._drop("remove", os.remove, path)

    def rmdir(self, path: Any) -> None:
        self._drop("rmdir", os.rmdir, path)

    def _drop(self, call: str, do: Callable[[Any], None], path: Any) -> None:
        with self._call(call, str(path)):
            do(path)
            inside = self._inside(path)
            if inside is not None:
                del self._names[inside]
                self._record(Op("names", names=((*self._entry(inside), -1),), call=f"{call} {os.path.basename(path)}"))

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        with self._call("mkdir", str(path)):
            os.mkdir(path, mode)
            inside = self._inside(path)
            if inside is not None:
                directory, name = self._entry(inside)
                node = self._new(inside)
                self._record(Op("names", names=((directory, name, node),), made=node, call=f"mkdir {name}"))

    def chmod(self, path: Any, mode: int) -> None:
        with self._call("chmod", self._path_of(path)):
            os.chmod(path, mode)
            self._record(Op("other", call="chmod"))

    def utime(self, path: Any, *arguments: Any, **keywords: Any) -> None:
        with self._call("utime", self._path_of(path)):
            os.utime(path, *arguments, **keywords)
            self._record(Op("other", call="utime"))
