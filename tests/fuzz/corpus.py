"""Where inputs are kept: small packed files in git, one file an input in build/fuzz, finds in tests/regressions."""

from __future__ import annotations

import hashlib
import lzma
import mmap
import re
import struct
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent
PACKED = HERE / "corpus"
REGRESSIONS = HERE.parent / "regressions"
INDEX_REGRESSIONS = REGRESSIONS / "indexes"
MOST_BUFFER = 1 << 18
LOCAL = HERE.parents[1] / "build" / "fuzz" / "corpus"
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def pack(inputs: Iterable[bytes]) -> bytes:
    """The inputs in order of their sizes, behind their sizes."""
    ordered = sorted(set(inputs), key=lambda data: (len(data), data))
    head = struct.pack(f"<{len(ordered) + 1}I", len(ordered), *map(len, ordered))
    return lzma.compress(head + b"".join(ordered), filters=FILTERS)


def unpack(packed: bytes) -> list[bytes]:
    data = lzma.decompress(packed)
    (count,) = struct.unpack_from("<I", data)
    at, found = 4 * count + 4, []
    for size in struct.unpack_from(f"<{count}I", data, 4):
        found.append(data[at : at + size])
        at += size
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes behind the last input")
    return found


def committed(target: str) -> list[bytes]:
    """The inputs of a target that git keeps."""
    path = PACKED / f"{target}.xz"
    return unpack(path.read_bytes()) if path.exists() else []


def commit(target: str, inputs: Iterable[bytes]) -> int:
    """Keep these inputs of a target, and no others; the bytes they take in git."""
    PACKED.mkdir(exist_ok=True)
    packed = pack(inputs)
    (PACKED / f"{target}.xz").write_bytes(packed)
    return len(packed)


class Folder:
    """The local inputs of one target, shared by the processes that work on it."""

    def __init__(self, target: str) -> None:
        self.path = LOCAL / target
        self.path.mkdir(parents=True, exist_ok=True)
        self._known: set[str] = set()

    def add(self, data: bytes) -> None:
        name = digest(data)
        self._known.add(name)
        path = self.path / name
        if not path.exists():
            aside = path.with_name(f"{name}.new")
            aside.write_bytes(data)
            aside.replace(path)

    def news(self) -> list[bytes]:
        """Inputs that were not seen here before."""
        names = {path.name for path in self.path.iterdir() if not path.suffix} - self._known
        self._known |= names
        return [(self.path / name).read_bytes() for name in sorted(names)]


def keep_find(target: str, data: bytes, what: str) -> Path:
    """Write a find as tests/regressions wants it: a sentence, and the bytes in hexadecimal."""
    folder = INDEX_REGRESSIONS if target.endswith("index") else REGRESSIONS
    folder.mkdir(exist_ok=True)
    sentence = re.sub(r"\s+", " ", what).strip().rstrip(".")[:300]
    digits = data.hex()
    lines = [digits[i : i + 64] for i in range(0, len(digits), 64)]
    path = folder / f"found-{target}-{digest(data)}.txt"
    path.write_text("\n".join([f"# Found by fuzzing: {sentence}.", *lines, ""]), encoding="utf-8")
    return path


def known_finds() -> set[str]:
    """Digests of what was found and not put away yet: such inputs are not run again."""
    more = {path.name for path in LOCAL.glob("again/*")}
    return more | {path.stem.rpartition("-")[2] for path in REGRESSIONS.rglob("found-*.txt")}


def keep_again(data: bytes) -> None:
    """Remember one more input for which the process ends as for others, which were kept as finds."""
    Folder("again").add(data)


def index_finds() -> list[tuple[str, bytes]]:
    """(target, input) of every kept find in an index."""
    paths = sorted(INDEX_REGRESSIONS.glob("*.txt"))
    texts = [path.read_text(encoding="utf-8").splitlines() for path in paths]
    names = [path.stem.split("-")[1] for path in paths]
    return [(name, bytes.fromhex("".join(lines[1:]))) for name, lines in zip(names, texts, strict=True)]


class Current:
    """The input that runs now, or ran last, in a file, for whoever finds the process dead."""

    HEAD = struct.Struct("<Q?16sI")  # executions, whether it runs, target, size; the bytes follow
    SIZE = HEAD.size + MOST_BUFFER

    def __init__(self, path: Path) -> None:
        if not path.exists() or path.stat().st_size != self.SIZE:
            path.write_bytes(bytes(self.SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self.SIZE)

    def put(self, executions: int, target: str, data: bytes) -> None:
        self.HEAD.pack_into(self._map, 0, executions, True, target.encode(), len(data))
        self._map[self.HEAD.size : self.HEAD.size + len(data)] = data

    def rest(self) -> None:
        """It has run."""
        self._map[8] = 0

    def get(self) -> tuple[int, bool, str, bytes]:
        executions, runs, target, size = self.HEAD.unpack_from(self._map)
        return executions, runs, target.rstrip(b"\0").decode(), self._map[self.HEAD.size : self.HEAD.size + size]
