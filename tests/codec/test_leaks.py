"""Calls of everything public, with good and with bad input, leave no memory, descriptor or thread behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import TESTS
from support.golden import scaled
from support.sets.biglog import write_log

LOOPS = scaled(5_000, 50_000)
DIRECTORY_LOOPS = 500
# What counting and the allocators themselves may add: below one block and three bytes a call, or a page of a file call
SLACK = {"kib": 128, "blocks": 1000, "arrow": 0, "descriptors": 0, "threads": 0}
DIRECTORY_SLACK = SLACK | {"kib": 512, "blocks": 400}
READ = ["decode", "decode views", "iter_decode", "iter_decode views", "iter_decode abandoned", "max_timestamp"]
CALLS = [*READ, "scan_batches", "valid_bytes", "encode", "append", "follow"]
INDEX = ["", ".lookup", ".lookup_many", ".entries", ".check"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "asan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer keeps what is freed; memory says nothing"
    ),
]


def repeated(*arguments: str) -> dict[str, dict[str, int]]:
    done = subprocess.run(
        [sys.executable, "-m", "support.sets.repeat_calls", *arguments],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    print(done.stdout)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line.pop("call"): line for line in lines}


def grown(found: dict[str, dict[str, int]], slack: dict[str, int]) -> dict[str, dict[str, int]]:
    return {call: left for call, left in found.items() if any(left[key] > most for key, most in slack.items())}


def test_the_codec_and_the_indexes_keep_nothing() -> None:
    found = repeated("calls", str(LOOPS))
    good = [*CALLS, *(f"{kind}{use}" for kind in ("TimeIndex", "OffsetIndex") for use in INDEX)]
    bad = [*(call for call in good if not call.endswith(".entries"))]
    assert set(found) == {*good, *(f"{call}, bad input" for call in bad)}
    assert not [call for call in good if found[call]["refused"]]
    assert all(found[f"{call}, bad input"]["refused"] for call in bad if not call.endswith(".check"))
    assert not grown(found, SLACK)


def test_what_reads_directories_closes_its_files(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", 2, 40, batch_bytes=1000)
    write_log(tmp_path / "t-1", 2, 40)
    log = min((tmp_path / "t-1").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.write_bytes(data)
    found = repeated("directories", str(DIRECTORY_LOOPS), str(tmp_path))
    assert len(found) == 16
    assert found["open, no such path"]["refused"] == found["scan, damaged"]["refused"] == DIRECTORY_LOOPS
    assert not grown(found, DIRECTORY_SLACK)


def test_a_leak_of_one_object_a_call_would_be_seen() -> None:
    program = """
import sys; sys.argv = ["", "calls", "1"]
from support.sets import repeat_calls
kept = []
repeat_calls.RECORDS = 1
before = repeat_calls.left()
repeat_calls.loop([lambda: kept.append(object())], 50000)
after = repeat_calls.left()
print(after["blocks"] - before["blocks"], after["kib"] - before["kib"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=TESTS)
    blocks, kib = map(int, done.stdout.split())
    assert blocks > SLACK["blocks"] and kib > SLACK["kib"]


def test_the_memory_of_a_large_call_serves_the_next_one_and_is_given_back_after_smaller_ones() -> None:
    """What a new mapping costs page by page is paid once; who decodes less from then on gets the memory back."""
    program = """
import kts
def kib():
    return int(open("/proc/self/smaps_rollup").read().split("Anonymous:")[1].split()[0])
small = kts.encode({"value": [b"v" * 100] * 10_000})
large = small * 64
assert kts.decode(small).num_rows == 10_000
assert sum(piece.num_rows for piece in kts.iter_decode(large)) == 640_000
before = kib()
assert kts.decode(large).num_rows == 640_000
kept = kib()
assert kts.decode(large).num_rows == 640_000
again = kib()
for _ in range(6):
    assert sum(piece.num_rows for piece in kts.iter_decode(large)) == 640_000
print(kept - before, again - kept, kib() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    kept, again, after = map(int, done.stdout.split())
    assert kept > 64 * 1024 and again < 1024 and after < 24 * 1024
