"""The coverage of the extensions in build/fuzz: see ``trace.c``."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt

LIBRARY = Path(__file__).parents[2] / "build" / "fuzz" / "trace.so"
EDGES = 1 << 16
CALL = re.compile(r"\s*([0-9a-f]+):.*\bcall\b.*<__sanitizer_cov_trace_pc")
FUNCTION = re.compile(r"[0-9a-f]+ <(.+)>:")
OURS = re.compile(r"__pyx_fu?s?e?_?|^kts_")


class Trace:
    """Edges and basic blocks that ran. Make it before the extensions are imported: they look for its functions."""

    def __init__(self, path: Path = LIBRARY) -> None:
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self.start = library.kts_trace_start
        self.stop = library.kts_trace_stop
        self._news = library.kts_trace_news
        self._news.argtypes = (ctypes.c_void_p, ctypes.c_int)
        self._edges = library.kts_trace_edges
        self._edges.argtypes = (ctypes.c_void_p,)
        self._watch = library.kts_trace_watch
        self._watch.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
        self._watch.restype = ctypes.c_int64
        library.kts_trace_blocks.restype = ctypes.c_void_p
        self._blocks = library.kts_trace_blocks()
        self._room = np.empty(EDGES, np.uint32)
        self._modules: list[tuple[Path, int, int]] = []

    def watch(self, path: Path) -> None:
        """Report what runs in a loaded module."""
        lines = Path("/proc/self/maps").read_text().splitlines()
        spans = [line.split()[0].split("-") for line in lines if line.endswith(str(path))]
        first, last = (int(spans[i][i], 16) for i in (0, -1))
        before = self._watch(first, last)
        if before < 0:
            raise MemoryError(f"{path}: no room to watch it")
        self._modules.append((path, before, last - first))

    def news(self, unseen: npt.NDArray[np.uint8], take: bool) -> int:
        """2 for a new edge since ``start``, 1 for a new count of one, 0 for nothing; ``take``: out of ``unseen``."""
        return int(self._news(unseen.ctypes.data, take))

    def edges(self) -> npt.NDArray[np.uint32]:
        """Every edge that ran since ``start``, with the bucket of its count in the low byte."""
        return self._room[: self._edges(self._room.ctypes.data)].copy()

    def blocks(self) -> set[tuple[str, int]]:
        """(module, address) of every call that ran since the process began."""
        found = set()
        for path, before, size in self._modules:
            ran = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self._blocks + before))
            found |= {(path.name, int(at)) for at in np.flatnonzero(ran)}
        return found


def all_blocks(path: Path) -> dict[int, str]:
    """Address behind each call in a module, and the function it lies in; empty without ``objdump``."""
    try:
        lines = subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", str(path)], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    except FileNotFoundError:
        return {}
    found: dict[int, str] = {}
    function = ""
    called = False
    for line in lines:
        if header := FUNCTION.match(line):
            function = header[1]
            continue
        if called and (address := line.partition(":")[0].strip()):
            found[int(address, 16)] = function
        called = bool(CALL.match(line))
    return found
