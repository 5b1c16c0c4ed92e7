"""Some work in a fresh directory, and every fault that can strike it."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from support.disk.faultfs import INTERRUPTED_CLOSES, READING, WRITING, Fault, FaultyOs
from support.disk.scripted_lives import in_place_of_os

from kts.errors import LogStorageError

Work = Callable[[str], object]


def attempt(folder: Path, work: Work, fault: Fault | None) -> tuple[FaultyOs, object]:
    """The result of some work in a fresh directory, or the error it raised."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "old").write_bytes(b"old" * 50)
    system = FaultyOs(str(folder), fault)
    with in_place_of_os(system):
        try:
            result = work(str(folder))
        except LogStorageError as error:
            result = error
    return system, result


def faults(system: FaultyOs) -> Iterator[Fault]:
    """Every fault at every call that a flawless run made."""
    for which in (WRITING, READING):
        count = sum(name in which for name in system.calls)
        for at in range(1, count + 1):
            for number in (errno.EIO, errno.ENOSPC):
                yield Fault(at, which, number)
            yield Fault(at, which, errno.EIO, lasting=True)
    yield INTERRUPTED_CLOSES
    for name in ("pwrite", "pread", "preadv"):
        for at in range(1, system.calls.count(name) + 1):
            yield Fault(at, frozenset({name}), short=True)
            yield Fault(at, frozenset({name}), errno.ENOSPC, short=True)
