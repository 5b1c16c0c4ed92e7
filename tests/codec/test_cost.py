"""Bytes made to cost much: each is read, or refused, in time and memory that grow as the bytes and the rows do.

No time is asserted. The sizes are such that a reader which looks at every piece once for each piece before it would not
come to an end, and a child process that hangs is stopped. Memory is what the child's resident pages grow by at their
peak: below the bytes read, the bytes decompressed, twice what Arrow holds in the end (columns grow), and 32 MiB.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.damage import attacks
from support.sets import generate

import kts
from kts._timeindex import OffsetIndex, TimeIndex

pytestmark = pytest.mark.slow

HANGS_SECONDS = 300
SPARE_BYTES = 32 << 20
PROGRAM = """
import json, os, signal, sys, time
import kts, pyarrow

small = kts.encode({"key": [b"k"], "value": [b"v"]})

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10

def pieces(data, **options):
    made = held = 0
    for batch in kts.iter_decode(data, kts.ALL_COLUMNS, **options):
        made += batch.num_rows
        held = max(held, batch.nbytes)
    return made, held

def whole(data, **options):
    batch = kts.decode(data, kts.ALL_COLUMNS, **options)
    return batch.num_rows, batch.nbytes

calls = {
    "pieces": pieces,
    "pieces of views": lambda data: pieces(data, views=True),
    "max_timestamp": lambda data: (None, kts.max_timestamp(data) and 0),
    "decode": whole,
    "views": lambda data: whole(data, views=True),
    "scan_batches": lambda data: (None, kts.scan_batches(data).nbytes),
    "valid_bytes": lambda data: (kts.valid_bytes(data), 0),
}

def measure(path):
    data = open(path, "rb").read()
    for call in calls.values():
        call(small)  # a fork maps the pages of libraries anew
    before = status("VmRSS")
    for name, call in calls.items():
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")
        start = time.process_time()
        words = rows = held = None
        try:
            rows, held = call(data)
        except kts.CorruptRecordError as error:
            words = str(error)
        seconds = time.process_time() - start
        yield [name, rows, held or 0, words, status("VmHWM") - before, seconds]

for call in calls.values():
    call(small)
for path in sys.stdin:
    child = os.fork()
    if child == 0:
        signal.alarm(int(sys.argv[1]))
        print(json.dumps(list(measure(path.strip()))), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("null", flush=True)
"""


@pytest.fixture(scope="module")
def measuring() -> Iterator[subprocess.Popen[str]]:
    """A process that is warm, and forks for each file whose path it is told: no call uses another's memory again."""
    command = [sys.executable, "-c", PROGRAM, str(HANGS_SECONDS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
    assert process.returncode == 0


def memory_counts() -> bool:
    return "asan" not in os.environ.get("LD_PRELOAD", "")


@pytest.mark.parametrize("attack", [pytest.param(attack, id=attack.name) for attack in attacks.ATTACKS])
def test_an_attack_costs_no_more_than_its_size(
    attack: attacks.Attack, measuring: subprocess.Popen[str], tmp_path: Path
) -> None:
    data = attack.make(attack.n)
    (tmp_path / "data").write_bytes(data)
    assert measuring.stdin is not None and measuring.stdout is not None
    print(tmp_path / "data", file=measuring.stdin, flush=True)
    lines = json.loads(measuring.stdout.readline())
    assert lines is not None, f"it crashed, or did not end in {HANGS_SECONDS} s"
    assert len(lines) == 7
    most = 0
    for name, rows, held, words, grown, seconds in lines:
        most = max(most, held)
        print(f"{name}: {len(data)} bytes, {grown / 2**20:.1f} MiB more, {held / 2**20:.1f} MiB held, {seconds:.3f} s")
        if name == "valid_bytes":
            assert rows == len(data)
        elif name != "scan_batches" and attack.rows is None:
            assert words is not None and re.fullmatch(attack.words, words), words
        else:
            assert words is None
            assert rows in (None, attack.rows)
        if memory_counts():
            assert grown < SPARE_BYTES + attack.plain(attack.n) + len(data) + 2 * most, name


def test_a_time_index_of_a_million_equal_entries_is_searched_and_checked() -> None:
    for index, width, layout in (
        (TimeIndex, 12, struct.pack(">qi", 1000, 7)),
        (OffsetIndex, 8, struct.pack(">ii", 7, 1000)),
    ):
        found = index(layout * 1_000_000, 0)
        assert len(found) == 1_000_000
        targets = np.array([999, 1000, 1001, 6, 7, 8] * 50_000)
        keys, values = found.lookup_many(targets)
        expected = [found.lookup(int(target)) for target in targets[:6]]
        assert list(zip(keys.tolist(), values.tolist(), strict=True)) == expected * 50_000
        words = found.check()
        assert len(words) <= 102 and words[-1].startswith("stopped at entry"), words[-1]
        zeros = index(layout + bytes(width * 1_000_000), 0)
        assert len(zeros) == 1
        assert index(bytes(width * 1_000_000), 0).lookup(5) == ((-1, 0) if width == 12 else (0, 0))


def damaged(i: int) -> bytes:
    message = generate.message(i, 1, 0, 0, b"k", b"v")
    return message[:12] + b"\0\0\0\0" + message[16:]


def claims(n: int) -> bytes:
    """Every 20 bytes the header of an entry that says it holds all of the rest."""
    return b"".join(struct.pack(">qiII", 0, 20 * (n - i) - 12, 0, 0) for i in range(n))


@pytest.mark.parametrize(
    ("name", "data", "rows"),
    [
        ("every entry", b"".join(map(damaged, range(20_000))), 0),
        ("every second", b"".join((damaged, attacks.sound)[i % 2](i) for i in range(4_000)), 2_000),
        ("entries that lie in each other", claims(50_000), 0),
    ],
)
def test_a_segment_full_of_damage_is_read_past_it(name: str, data: bytes, rows: int, tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(data)
    program = (
        "import sys, warnings, kts\n"
        "warnings.simplefilter('ignore')\n"
        "print(sum(b.num_rows for b in kts.scan(sys.argv[1], on_error='skip')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "t-0")],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == rows


def test_the_table_of_attacks_is_of_kafkas_codecs_and_all_sizes() -> None:
    assert len({attack.name for attack in attacks.ATTACKS}) == len(attacks.ATTACKS) >= 30
    assert len(attacks.claimed_count(0)(1)) <= 70
    with pytest.raises(kts.CorruptRecordError, match="record count 2147483647 does not fit the 7 bytes"):
        kts.decode(attacks.claimed_count(0)(1))
