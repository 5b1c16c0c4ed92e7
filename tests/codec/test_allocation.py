"""The n-th allocation of a call fails, for each n there is: a MemoryError, and then the same call gives the same."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support import TESTS
from support.golden import scaled
from support.sets import public_calls

pytestmark = pytest.mark.slow

HERE = TESTS / "allocation"
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")
STEP = scaled(8, 1)  # of the allocations that fail, behind the first twenty
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# lz4 and snappy decompress into memory of ours, and ask for none.
RUNS = {
    "kts": (*CODECS, "appending"),
    "libraries": ("gzip", "zstd"),
    "python": (*CODECS, "indexes", "arguments", "appending"),
}
READ = {"decode", "decode views", "iter_decode", "iter_decode views", "iter_decode abandoned", "max_timestamp"}
MAKERS = {
    "kts": READ | {"scan_batches", "encode", "encode, preserve_batches"},
    "python": READ | {"scan_batches", "encode", "encode, preserve_batches"},
    ("kts", "none"): READ | {"scan_batches"},  # what is encoded uncompressed goes straight into the result
    ("libraries", "gzip"): {"encode", "encode, preserve_batches"},
    "libraries": READ,
    ("python", "indexes"): {"TimeIndex.lookup_many", "TimeIndex.entries", "OffsetIndex.lookup_many"},
    ("kts", "appending"): {"append, no key"},  # decompressors and their memory are kept
    ("python", "appending"): {"append", "follow"},
    ("python", "arguments"): {"decode, no buffer", "encode, no rows"},
}  # fmt: skip


@pytest.fixture(scope="session")
def failing_malloc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library to preload; the test is skipped where it cannot be built or would not be asked."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler to build the failing malloc with")
    if SANITIZED:
        pytest.skip("malloc is the sanitizer's")
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("the failing malloc needs glibc")
    library = tmp_path_factory.mktemp("allocation") / "failing_malloc.so"
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(library), str(HERE / "failing_malloc.c")], check=True)
    return library


@cache
def found_by(kind: str, preload: Path | None) -> list[dict[str, Any]]:
    """What `run.py` found with all groups of a kind, in one process."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(HERE / "run.py"), kind, str(STEP), *RUNS[kind]],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | ({"LD_PRELOAD": str(preload)} if preload else {}),
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"{lines[-1:]}\n{done.stderr[-3000:]}"
    return [line for line in lines if "allocations" in line]


def check(kind: str, group: str, preload: Path | None) -> None:
    found = [line for line in found_by(kind, preload) if line["group"] == group]
    for line in found:
        print(json.dumps(line))
    calls = set(public_calls.groups(5)[group])
    aborts = {call for call in calls if "snappy" in call and "broken payload" in call and kind == "python"}
    assert {line["call"] for line in found} == calls - aborts
    assert not [line for line in found if line["wrong"]]
    assert not [line for line in found if line.get("leaked", 0)]
    # the injection works: whatever makes something was refused for memory
    refused = {str(line["call"]).rpartition(": ")[2] for line in found if line["refused"]}
    assert refused >= MAKERS[kind, group] if (kind, group) in MAKERS else refused >= MAKERS[kind]


@pytest.mark.parametrize(("kind", "group"), [(kind, each) for kind in ("kts", "libraries") for each in RUNS[kind]])
def test_c_memory_that_is_refused_is_a_memory_error(kind: str, group: str, failing_malloc: Path) -> None:
    check(kind, group, failing_malloc)


@pytest.mark.parametrize("group", RUNS["python"])
def test_memory_for_objects_that_is_refused_is_a_memory_error(group: str) -> None:
    if importlib.util.find_spec("_testcapi") is None:
        pytest.skip("this Python has no _testcapi, whose hook refuses memory")
    if sys.version_info >= (3, 12):
        pytest.skip("CPython itself crashes from 3.12 on: a generator without memory loses its code")
    check("python", group, None)
