"""The type stubs of the compiled modules say what these modules are, and a user's type checker knows kts."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.kafka.jvm import TARGET

import kts
from kts import _timeindex

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
MODULES = ["_codec", "_timeindex", "avro._datum", "proposals.options._messages", "tables._values"]
MADE_BY_CYTHON = [r"[\w.]+\._\w+\.__test__", r"[\w.]+\._\w+\.__(reduce|setstate)_cython__"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What mypy's stubtest has against the stubs of the installed package, and of a copy in which both stubs are wrong.

    One run, of five seconds, for both: most of it goes into the stubs of numpy and of Python."""
    folder = tmp_path_factory.mktemp("stubtest")
    shutil.copytree(Path(kts.__file__).parent, folder / "planted", ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    codec, index = folder / "planted/_codec.pyi", folder / "planted/_timeindex.pyi"
    swaps = [(codec, "def scan(buf", "def scan(data"), (codec, "REASONS:", "WORDS:"), (index, "check", "verify")]
    for path, right, wrong in swaps:
        text = path.read_text(encoding="utf-8")
        assert right in text
        path.write_text(text.replace(right, wrong), encoding="utf-8")
    (folder / "allowed.txt").write_text("\n".join(MADE_BY_CYTHON), encoding="utf-8")
    modules = [f"{package}.{name}" for package in ("kts", "planted") for name in MODULES]
    command = [sys.executable, "-m", "mypy.stubtest", *modules, "--concise", "--allowlist", "allowed.txt"]
    command += ["--ignore-unused-allowlist", "--mypy-config-file", str(ROOT / "pyproject.toml")]
    places = os.pathsep.join([str(Path(kts.__file__).parent.parent), str(folder)])
    env = os.environ | {"PYTHONPATH": places, "MYPYPATH": places}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and all(line.startswith(("kts.", "planted.")) for line in lines), (lines, done.stderr)
    return {name: [line for line in lines if line.startswith(f"{name}.")] for name in ("kts", "planted")}


def test_stubtest_agrees(found: dict[str, list[str]]) -> None:
    assert found["kts"] == []


def test_stubtest_sees_a_wrong_stub(found: dict[str, list[str]]) -> None:
    lines = found["planted"]
    for wrong in (
        "_codec.scan ",
        "_codec.WORDS ",
        "_codec.REASONS ",
        "_timeindex.TimeIndex.verify ",
        "_timeindex.OffsetIndex.check ",
    ):
        assert any(line.startswith(f"planted.{wrong}") for line in lines), (wrong, lines)


def index_methods() -> list[tuple[str, str, list[ast.arg]]]:
    """Class, name and positional parameters of the index methods, which have no signature that stubtest could read."""
    tree = ast.parse((ROOT / "kts/_timeindex.pyi").read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = [(node.name, item) for node in classes for item in node.body if isinstance(item, ast.FunctionDef)]
    return [(owner, item.name, item.args.posonlyargs[1:]) for owner, item in methods if item.args.posonlyargs]


@pytest.mark.parametrize(("owner", "name", "parameters"), index_methods(), ids=lambda value: str(value)[:20])
def test_index_methods_take_what_their_stub_says(owner: str, name: str, parameters: list[ast.arg]) -> None:
    method = getattr(getattr(_timeindex, owner)(b"", 0), name)
    for arguments in ([0] * (len(parameters) + 1), [0] * (len(parameters) - 1)):
        with pytest.raises(TypeError, match=r"argument"):
            method(*arguments)
    with pytest.raises(TypeError, match="keyword"):
        method(**{parameter.arg: 0 for parameter in parameters})


# --- a program of a user ----------------------------------------------------------------------------

PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UNTYPED = "kafka aiokafka pyspark pyarrow pandas".split()  # without types of their own, or not there without a JDK
TYPES = """\
from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import pyarrow as pa
from pyspark.sql import Column, DataFrame

import kts
from kts.spark import decode_in_arrow, decode_udf
from kts.testing import KtsBroker

assert_type(kts.open("x"), kts.PartitionLog | kts.LogDirs)
assert_type(kts.open(["x"]), kts.LogDirs)
assert_type(kts.open((Path("x"),)), kts.LogDirs)
assert_type(kts.open_partition(Path("x")), kts.PartitionLog)
assert_type(kts.open_log_dirs("x"), kts.LogDirs)
with kts.open_log_dirs(["x", "y"]) as logs, kts.open_partition("x") as partition, kts.Log("x") as log:
    assert_type(logs["orders", 0], kts.PartitionLog)
    assert_type(partition.offset_for_timestamp(0), kts.TimestampOffset | None)
    assert_type(partition.scan(columns=["key"]), pa.RecordBatchReader)
    assert_type(partition.batches(), pa.RecordBatchReader)
    assert_type(log.append(b"").first_offset, int)
    log.append_rows([{"value": b"x", "timestamp": 1}])
    log.append_rows({"value": [b"x"], "timestamp": [1]})
    assert_type(log.append_rows(partition.scan().read_all()).last_offset, int)
    assert_type(log.scan(starting_timestamp="2026-09-01"), pa.RecordBatchReader)
    assert_type(log.read(0, 1).records, bytes)
assert_type(kts.scan("x", starting_offsets={"orders": {0: 7}}, partitions=[0]), pa.RecordBatchReader)
assert_type(kts.scan(["x"], ending_offsets={("orders", 0): 7}, log_start_offset=7), pa.RecordBatchReader)
assert_type(kts.scan("x", decoder="offsets"), pa.RecordBatchReader)
assert_type(kts.committed_offsets("x"), pa.Table)
assert_type(kts.cluster("x", as_of="2026-09-01"), kts.ClusterState)
assert_type(kts.cluster(Path("x"), as_of=7).topic("orders").config["retention.ms"], str)
assert_type(kts.decode(memoryview(b"")), pa.RecordBatch)
assert_type(kts.decode(pa.py_buffer(b""), ["key"], views=True), pa.RecordBatch)
assert_type(kts.iter_decode(bytearray()), Iterator[pa.RecordBatch])
assert_type(kts.scan_batches(b""), pa.RecordBatch)
assert_type(kts.max_timestamp(b"").timestamp_ms, int)
assert_type(kts.encode(pa.record_batch({"value": [b"x"]})), bytes)
assert_type(kts.encode({"timestamp": [1], "value": [b"x"]}), bytes)
assert_type(kts.convert(b"", 2), bytes)
assert_type(kts.TimeIndex(b"", 0).lookup(0), tuple[int, int])
with KtsBroker() as broker:
    assert_type(broker.produce("orders", b"paid").offset, int)
    assert_type(broker.log("orders"), kts.Log)


def in_spark(frame: DataFrame) -> None:
    assert_type(decode_in_arrow(frame, "payload", keep=["path"]), DataFrame)
    assert_type(decode_udf(["offset"])("payload"), Column)
"""


def checked(folder: Path, *, stubs: bool) -> str:
    """What `mypy --strict` has against the programs in a folder, for a user with or without `pyarrow-stubs`."""
    settings = ["[mypy]", "strict = True", "pretty = False"]
    for module in UNTYPED:
        skip = module == "pyarrow" and not stubs
        settings += [f"[mypy-{module}.*]", "ignore_missing_imports = True"]
        settings += ["follow_imports = skip", "follow_imports_for_stubs = True"] if skip else []
    (folder / "mypy.ini").write_text("\n".join(settings), encoding="utf-8")
    cache = TARGET / f"mypy-{'with' if stubs else 'without'}-stubs"
    programs = sorted(path.name for path in folder.glob("*.py"))
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", str(cache), *programs]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("stubs", [True, False], ids=["with pyarrow-stubs", "without"])
def test_a_users_type_checker_finds_nothing_in_the_pages_code(stubs: bool, tmp_path: Path) -> None:
    """`mypy --strict` over every Python block of README.md and docs/: five seconds, most of it for what numpy, pyarrow
    and pyspark say of themselves; half a second where `build/tests` has it from before."""
    if stubs and importlib.util.find_spec("pyarrow-stubs") is None:
        pytest.skip("needs pyarrow-stubs; get it by: make ready")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for found in PYTHON.finditer(text):
            line = text.count("\n", 0, found.start()) + 2
            name = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
            (tmp_path / f"{name}_line_{line}.py").write_text(found[1], encoding="utf-8")
    (tmp_path / "planted.py").write_text('import kts\n\nkts.open("x")["orders", 0]\n', encoding="utf-8")
    if stubs:
        (tmp_path / "typed.py").write_text(TYPES, encoding="utf-8")
    *lines, last = checked(tmp_path, stubs=stubs).splitlines()
    assert lines == ['planted.py:3: error: Value of type "PartitionLog | LogDirs" is not indexable  [index]'], last
