"""Calls groups of ``public_calls`` with the n-th allocation failing, n = 1, 2, ... until nothing fails any more.

Usage: run.py <kts|libraries|python> <step> <group>... ``kts``: C allocations of the two extensions; ``libraries``:
those of the compression libraries; both need ``failing_malloc`` preloaded. ``python``: memory for Python's objects.
``step``: after the first allocations only every ``step``-th fails.
Prints the name of each call before it and what was found behind it, as JSON.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.sets.public_calls import Call, attempt, groups, outcome

import kts
from kts import _codec, _timeindex

COUNT = {"kts": 300, "libraries": 25, "python": 25}  # records
MODULES = {
    "kts": (_codec.__file__, _timeindex.__file__),
    "libraries": ("lz4/frame/", "zstandard/", "isal/", "/libz.so"),
}
# cramjam, in Rust, panics where its error for bad data finds no memory, panics again as it cleans up, and so aborts
ABORTS = ("snappy", "broken payload")
FIRST = 20
QUIET = 40  # so many allocations in a row that fail and change nothing: there are no more


class CMemory:
    """The preloaded library."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        library = ctypes.CDLL(None)
        library.failing_watch.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
        for name in ("failing_seen", "failing_held"):
            getattr(library, name).restype = ctypes.c_long
        library.failing_arm.argtypes = (ctypes.c_long,)
        self.arm, self.seen, self.held = library.failing_arm, library.failing_seen, library.failing_held
        for line in Path("/proc/self/maps").read_text().splitlines():
            if " r-xp " in line and any(module in line for module in modules):
                first, behind = line.split()[0].split("-")
                if library.failing_watch(int(first, 16), int(behind, 16)):
                    raise RuntimeError("too many address ranges")

    def fail(self, n: int) -> None:
        self.arm(n)

    def done(self, n: int, quiet: int) -> bool:
        """Called after the n-th: whether there was none."""
        return self.seen() < n

    def stop(self) -> None:
        self.arm(0)


class PythonMemory:
    """CPython's own test hook."""

    def __init__(self) -> None:
        import _testcapi

        self.hook, self.stop = _testcapi.set_nomemory, _testcapi.remove_mem_hooks

    def fail(self, n: int) -> None:
        self.hook(n, n + 1)

    def done(self, n: int, quiet: int) -> bool:
        return quiet >= QUIET


def raises() -> None:
    raise ValueError("text")


def python_loses_errors() -> set[str]:
    """What CPython itself makes of an error for which it has no memory left: a function of one line shows it."""
    memory, found = PythonMemory(), set()
    for n in range(1, QUIET):
        memory.fail(n)
        error = attempt(raises)
        memory.stop()
        if isinstance(error, SystemError):
            found.add(str(error))
    return found


def repeat(name: str, run: Call, memory: CMemory | PythonMemory, lost: set[str], step: int) -> dict[str, Any]:
    """How often it was refused for memory, and all that went wrong."""
    # the end of an iterator is an error that is raised, too
    raises = isinstance(attempt(run), BaseException) or "iter_decode" in name
    expected = outcome(attempt(run))
    if outcome(attempt(run)) != expected:
        raise RuntimeError("a call does not give the same twice")
    words = not isinstance(memory, PythonMemory)
    wrong: list[str] = []
    refused = cpython = n = quiet = 0
    while True:
        n += 1 if n < FIRST else step
        spare = [kts.decode(b"") for _ in range(32)]  # in place of the 16 that the codec keeps to use again
        memory.fail(n)
        found = attempt(run)
        end = memory.done(n, quiet)
        memory.stop()
        quiet += 1 if n <= FIRST else step
        if isinstance(found, MemoryError):
            refused, quiet = refused + 1, 0
        elif raises and isinstance(found, SystemError) and (str(found) in lost or str(found).endswith(" exception")):
            cpython += bool(lost)
        # an exporter of buffers that is short of memory raises its own error with no text
        elif outcome(found, words=words) != (expected if words else outcome(attempt(run), words=False)):
            wrong.append(f"allocation {n} fails: {str(outcome(found)):.200}")
        del spare, found
        if outcome(attempt(run)) != expected:
            wrong.append(f"after allocation {n} failed the call does not give what it gave")
        if end:
            return {"allocations": n, "refused": refused, "cpython": cpython, "wrong": wrong}


def main() -> None:
    kind, step, chosen = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    made = groups(COUNT[kind])
    calls = {(group, name): run for group in chosen for name, run in made[group].items()}
    for run in calls.values():
        attempt(run)  # all modules are loaded, all caches are filled
    gc.collect()
    gc.freeze()  # what is there by now stays: later collections need not look at it
    memory = PythonMemory() if kind == "python" else CMemory(MODULES[kind])
    lost = python_loses_errors() if kind == "python" else set()
    for (group, name), run in calls.items():
        if kind == "python" and all(word in name for word in ABORTS):
            continue
        print(json.dumps({"group": group, "call": name}), flush=True)
        found = repeat(name, run, memory, lost, step)
        if kind == "kts":
            gc.collect()
            held = memory.held()
            found = repeat(name, run, memory, lost, step)
            gc.collect()
            found["leaked"] = memory.held() - held
        print(json.dumps({"group": group, "call": name} | found), flush=True)


if __name__ == "__main__":
    main()
