"""What fuzzing found worth keeping is read in every way again; and the fuzzer finds what it must."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path

import fuzz.corpus
import fuzz.targets
import pytest
from fuzz.engine import Engine
from fuzz.trace import Trace, all_blocks

pytestmark = pytest.mark.slow

FUZZ = Path(fuzz.corpus.__file__).parent
TARGETS = fuzz.targets.targets()
HIDDEN = """
#include <stddef.h>
#include <stdint.h>
int hidden(const uint8_t *p, size_t n) {
    if (n > 3 && p[0] == 0x81)
        if (p[1] == 0x40)
            if (p[2] == 0xf0)
                if (p[3] == 0x07)
                    return 1;
    return 0;
}
"""


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_that_fuzzing_kept_is_read_alike_in_every_way(name: str) -> None:
    target = TARGETS[name]
    counts: Counter[str] = Counter()
    finds = [data for index, data in fuzz.corpus.index_finds() if index == name]
    for data in fuzz.corpus.committed(name) + finds:
        buffer = target.buffer(data)
        try:
            damage = target.check(buffer, random.Random(zlib.crc32(buffer)), True)
        except Exception as error:
            error.add_note(f"{name}: {buffer.hex()}")
            raise
        counts["read" if damage is None else "refused"] += 1
    print(dict(counts))
    assert counts["read"] > 5, counts
    assert counts["refused"] > 20 or name.endswith("index"), counts


class Hidden:
    """Bytes that only a search guided by coverage comes upon: one way in four billion."""

    name = "hidden"

    def __init__(self, library: ctypes.CDLL) -> None:
        self.compiled = library

    def seeds(self, rng: random.Random) -> list[bytes]:
        return [bytes(4)]

    def mutate(self, rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
        return fuzz.targets.mutators.mutate(rng, data, others, 1)

    def buffer(self, data: bytes) -> bytes:
        return data

    def check(self, buffer: bytes, rng: random.Random, full: bool) -> Exception | None:
        if self.compiled.hidden(buffer, len(buffer)):
            raise ValueError("there it is")
        return None


@pytest.mark.skipif(sys.platform != "linux", reason="the fuzzer reads /proc")
def test_the_fuzzer_finds_what_is_hidden_behind_four_comparisons(tmp_path: Path, seed: int) -> None:
    (tmp_path / "hidden.c").write_text(HIDDEN)
    compiler = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o"]
    parts = (
        [tmp_path / "trace.so", FUZZ / "trace.c"],
        [tmp_path / "hidden.so", tmp_path / "hidden.c", "-fsanitize-coverage=trace-pc"],
    )
    for part in parts:
        subprocess.run([*compiler, *part], check=True)
    program = (
        "import sys\nfrom codec import test_fuzz_corpus\n"
        "from pathlib import Path\n"
        "sys.exit(test_fuzz_corpus.search(Path(sys.argv[1]), int(sys.argv[2])))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", program, str(tmp_path), str(seed)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0


def search(folder: Path, seed: int) -> int:
    """0 if the hidden way was found, and kept as tests/regressions keeps it."""
    trace = Trace(folder / "trace.so")
    library = ctypes.CDLL(str(folder / "hidden.so"))
    trace.watch(folder / "hidden.so")
    fuzz.corpus.LOCAL = folder / "corpus"
    fuzz.corpus.REGRESSIONS = folder / "regressions"
    engine = Engine(trace, [Hidden(library)], folder, 0, seed)
    for _ in range(300):
        engine.fuzz(0.2)
        if engine.finds:
            break
    found = list((folder / "regressions").glob("found-hidden-*.txt"))
    texts = [path.read_text() for path in found]
    print(engine.executions, texts, len(trace.blocks()), len(all_blocks(folder / "hidden.so")))
    right = texts and all(bytes.fromhex(text.splitlines()[1])[:3] == b"\x81\x40\xf0" for text in texts)
    return 0 if right and texts[0].startswith("# Found by fuzzing: ValueError: there it is.") else 1
