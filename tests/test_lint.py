"""The rules of the house that no general linter knows."""

from __future__ import annotations

import ast
import doctest
import functools
import graphlib
import importlib
import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

import kts
from kts.behaviour import GENERATIONS
from kts.cli.demo import write_demo

ROOT = Path(__file__).parent.parent
SINGLE = ["kts_command.py", "kts_pytest.py"]
FOLDERS = ["kts", "pyspark_kts"]
SOURCES = sorted(path for name in FOLDERS for path in (ROOT / name).rglob("*.py")) + [ROOT / name for name in SINGLE]
EXTENSIONS = sorted((ROOT / "kts").rglob("*.pyx"))
OURS = ("kts", "kts_command", "kts_pytest", "pyspark_kts")

# A module imports from lower floors and from its own room only. A room is a folder or a module.
ROOMS = [
    [
        "kts.errors",
        "kts.model",
        "kts.arguments",
        "kts.behaviour",
        "kts.config",
        "kts.compression",
        "kts.times",
        "kts.options",
    ],
    ["kts._codec", "kts._timeindex", "kts.protocol"],
    ["kts.avro", "kts.codec", "kts.cluster_records", "kts.coordinator_records", "kts.store"],
    ["kts.segment"],
    ["kts.remote"],
    ["kts.dataset"],
    ["kts.log"],
    ["kts.proposals"],
    ["kts.offline", "kts.study", "kts.tables"],
    ["kts"],  # the table of contents
    ["kts.broker.codes"],
    ["kts.broker.wire"],
    ["kts.broker.settings"],
    ["kts.broker.topics"],
    ["kts.broker.groups", "kts.replica"],
    ["kts.broker"],  # all other modules of the broker
    ["kts.broker.broker"],
    ["kts.broker.handlers"],
    ["kts.server", "kts.spark"],
    ["kts.testing", "pyspark_kts"],
    ["kts.cli", "kts_pytest"],
    ["kts_command"],
    ["kts.__main__", "kts.cli.__main__"],
]
FLOORS = {room: height for height, rooms in enumerate(ROOMS) for room in rooms}
TOGETHER = set(ROOMS[0])  # single modules of the lowest floor may know one another, without a circle


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor(module: str) -> tuple[str, int]:
    """The room that a module is or lies in, and its floor."""
    found = max((name for name in FLOORS if module == name or module.startswith(name + ".")), key=len)
    assert found != "kts" or module == "kts", f"{module} has no floor; give it one in {Path(__file__).name}"
    return found, FLOORS[found]


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """All that a source consists of; of a .pyx its imports, which are Python's own, a line each."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".pyx":
        text = "\n".join(line for line in text.splitlines() if re.match(r"(from [\w.]+ )?import ", line))
    return list(ast.walk(ast.parse(text)))


@functools.cache
def imported_modules(path: Path) -> frozenset[str]:
    """Which of our own modules a source imports, also inside functions, and for type hints alone."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module_name(path).split(".")
                inside = package if path.name == "__init__.py" else package[:-1]
                base = ".".join(inside[: len(inside) - node.level + 1] + ([node.module] if node.module else []))
            if base.split(".")[0] in OURS:
                names |= {full if is_module(full := f"{base}.{alias.name}") else base for alias in node.names}
    return frozenset(name for name in names if name.split(".")[0] in OURS)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists() or path.with_suffix(".pyx").exists()


def test_a_module_imports_from_lower_floors_only() -> None:
    found = []
    for path in (*SOURCES, *EXTENSIONS):
        module = module_name(path)
        home, height = floor(module)
        for other in imported_modules(path) - {module}:
            other_home, other_height = floor(other)
            if module != "kts" and home != other_home and not {home, other_home} <= TOGETHER and other_height >= height:
                found.append(f"{module} (floor {height}) imports {other} (floor {other_height})")
    assert not found, "\n".join(found)


def test_no_module_imports_itself_through_others() -> None:
    graph = {module_name(path): imported_modules(path) - {module_name(path), "kts"} for path in SOURCES}
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_the_kernel_names_no_proposal() -> None:
    """But `kts.Log` has a door by that name, and a refusal says who reads the magics that were proposed."""
    kernel = [path for path in (*SOURCES, *EXTENSIONS) if floor(module_name(path))[1] <= FLOORS["kts.log"]]
    kernel += [*(ROOT / "kts").glob("*.px[di]"), *(ROOT / "kts").glob("*.pyi"), *(ROOT / "kts/native").glob("*.[ch]")]
    named = {
        path.relative_to(ROOT).as_posix(): set(
            re.findall(r"(?i)[\w.]*proposal\w*|kts\.study", path.read_text(encoding="utf-8"))
        )
        for path in kernel
    }
    assert {name: words for name, words in named.items() if words} == {
        "kts/errors.py": {"kts.proposals"},
        "kts/log/log.py": {"proposals"},
    }


# What a process has once, whoever asks: its locks, descriptors and temporary files; and what wings register. The wing
# `remote` spares requests: one bucket for all who reach it by the same options, what was read of objects, and the calls
# that are under way when the program ends. No answer depends on it.
STATE = {
    "kts/config.py": {"_DEFAULTS", "_EXTENSIONS"},
    "kts/log/directory.py": {"_changes", "_open"},
    "kts/remote/buckets.py": {"_buckets", "_lock"},
    "kts/remote/chunks.py": {"_kept"},
    "kts/remote/threads.py": {"_under_way"},
    "kts/remote/tiers.py": {"_cuts", "_manifests"},
    "kts/segment/locks.py": {"_changes", "_held", "_made"},
    "kts/store/addresses.py": {"_makers", "_modules"},
    "kts/store/descriptors.py": {"_holders", "_told"},
    "kts/store/expanded.py": {"_expanding", "_expansions"},
}
STATEFUL = {"Barrier", "Condition", "Event", "Lock", "LruCache", "RLock", "Semaphore", "count", "local"}
CHANGES = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem"}
CHANGES |= {"popleft", "remove", "setdefault", "update"}


def state(tree: ast.Module) -> set[str]:
    """The names of a module that hold what changes while the program runs: containers that functions change, locks,
    counters, and what a function assigns."""
    made = {ast.unparse(each): node.value for node in tree.body for each in targets(node)}
    found = {name for name, value in made.items() if called(value).rpartition(".")[2] in STATEFUL}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        changed, own, rebound = set[str](), set[str](), set[str]()
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                rebound |= set(node.names)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                changed.add(ast.unparse(node.value))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
                changed.add(ast.unparse(node.func.value))
        found |= (changed - own) | rebound
    return found & made.keys()


def targets(node: ast.stmt) -> list[ast.expr]:
    """What a statement gives a value to."""
    if isinstance(node, ast.AnnAssign):
        return [] if node.value is None else [node.target]
    return node.targets if isinstance(node, ast.Assign) else []


def test_state_is_seen() -> None:
    for text in (
        "x = []\ndef f(): x.append(1)",
        "x: dict[int, int] = {}\ndef f(): x[1] = 2",
        "x = {}\nclass A:\n    def f(self): del x[1]",
        "x = threading.Lock()",
        "x = 1\ndef f():\n    global x\n    x = 2",
    ):
        assert state(ast.parse(text)) == {"x"}, text
    for text in (
        "x = {1: 2}\ndef f(): return x[1]",
        "x = []\ndef f():\n    x = []\n    x.append(1)",
        "x = []\nx.append(1)",
    ):
        assert state(ast.parse(text)) == set(), text


def test_the_kernel_keeps_no_state_in_modules() -> None:
    """But what is listed with its reason."""
    found = {}
    for path in SOURCES:
        _, height = floor(module_name(path))
        if height <= FLOORS["kts.log"]:
            found[path.relative_to(ROOT).as_posix()] = state(ast.parse(path.read_text(encoding="utf-8")))
    assert {name: names for name, names in found.items() if names} == STATE


# Where a source is made of an address: all others hold the one that they were given.
DOORS = {
    "kts/cli/inputs.py": "paths of the command line",
    "kts/dataset/paths.py": "paths of kts.open, kts.scan and Spark's options",
    "kts/offline/copy.py": "where a copy goes",
    "kts/offline/small_files.py": "log directories whose own files are checked",
    "kts/offline/verify.py": "the path of kts.verify",
    "kts/remote/keys.py": "files of private keys",
    "kts/remote/tiers.py": "the directory of the metadata topic, and the address of a segment",
    "kts/tables/values.py": "a schema's file",
}


def test_only_doors_make_a_source_of_an_address() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and node.module == "kts.store.source"
        if any(name.name == "source_of" for name in node.names)
    }
    assert found == DOORS.keys()


OPENS = {"open", "os.open", "io.open", "builtins.open", "mmap.mmap"}
SOURCE_NAMES = {"files", "source"}
SHORTCUTS = {"read_bytes", "read_text", "write_bytes", "write_text"}


def called(node: ast.AST) -> str:
    """The name of what is called, with the names that it is reached by; nothing where it is no call or has no name."""
    names: list[str] = []
    found = node.func if isinstance(node, ast.Call) else None
    found = found.value if isinstance(found, ast.Subscript) else found  # a class for some type
    while isinstance(found, ast.Attribute):
        names.append(found.attr)
        found = found.value
    return ".".join([found.id if isinstance(found, ast.Name) else "", *reversed(names)]).lstrip(".")


def opens(name: str) -> bool:
    """Whether a call of this name reads or writes a file, and not by a source."""
    owner, _, call = name.rpartition(".")
    return name in OPENS or (call in SHORTCUTS and owner.rpartition(".")[2] not in SOURCE_NAMES)


def test_no_assert_no_bare_except_no_open_outside_the_store() -> None:
    found = []
    for path in SOURCES:
        for node in nodes(path):
            what = None
            if isinstance(node, ast.Assert):
                what = "raise an error instead of assert"
            elif isinstance(node, ast.ExceptHandler) and node.type is None:
                what = "name the exceptions"
            elif path.parent != ROOT / "kts/store" and opens(name := called(node)):
                what = f"{name}( belongs in kts/store"
            if what:
                found.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {what}")
    assert not found, "\n".join(found)


# Files that own a binary format which is not that of entries; each format is in one file.
FORMATS = {
    "kts/broker/downconversion.py": "the cut entry that ends a fetch which was converted down",
    "kts/replica/client.py": "frames: size, correlation id",
    "kts/broker/wire/__init__.py": "frames and request headers",
    "kts/avro/resolution.py": "defaults of Avro",
    "kts/coordinator_records/layout.py": "version of a coordinator's key or value",
    "kts/offline/reindex.py": "transaction index",
    "kts/protocol/reading.py": "Kafka's types on the wire",
    "kts/protocol/writing.py": "Kafka's types on the wire",
    "kts/remote/keys.py": "RSA's blocks",
    "kts/remote/manifests.py": "sizes of chunks",
    "kts/segment/index.py": "offset index, time index",
    "kts/segment/locks.py": "struct flock",
    "kts/segment/producers.py": "value of a control record",
    "kts/segment/snapshots.py": "producer snapshot",
    "kts/segment/transactions.py": "transaction index",
    "kts/server/connection.py": "API key of a frame",
    "kts/server/framing.py": "frames: size, API key",
    "kts/tables/values.py": "the id of a schema in front of a value",
}
LAYOUT = "kts/codec/layout.py"
HEADER_POSITIONS = {12, 16, 17, 18, 21, 22, 23, 26, 27, 35, 43, 51, 53, 57, 61}
READS_BYTES = {"unpack", "unpack_from", "iter_unpack", "pack", "pack_into", "from_bytes", "Struct"}


def literal(node: ast.expr | None) -> object:
    """The constant of ``16``, ``at + 16`` or ``at + 16 :``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        node = node.right
    if isinstance(node, ast.Slice):
        return literal(node.lower)
    return node.value if isinstance(node, ast.Constant) else None


def header_reads(source: Iterable[ast.AST], owns_format: bool) -> list[int]:
    """Lines that read bytes at a header's position, or read integers from bytes at all."""
    found = []
    for node in source:
        if isinstance(node, ast.Call) and not owns_format:
            reads = called(node).rpartition(".")[2] in READS_BYTES
        else:
            reads = isinstance(node, ast.Subscript) and literal(node.slice) in HEADER_POSITIONS
        if reads:
            found.append(node.lineno)
    return found


def of_text(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def test_header_reads_are_seen() -> None:
    for line in ("data[16]", "data[at + 43 : at + 51]", "int.from_bytes(data[8:12], 'big')", "S.unpack_from(data, 8)"):
        assert header_reads(of_text(line), owns_format=False) == [1], line
    for line in ("data[0]", "data[:8]", "columns['count']", "entries[i].producer_id", "data[at:end]"):
        assert header_reads(of_text(line), owns_format=False) == [], line
    assert header_reads(of_text("S.unpack_from(data, 8)"), owns_format=True) == []
    assert header_reads(of_text("data[16]"), owns_format=True) == [1]


def test_only_the_layout_knows_byte_positions_of_an_entry() -> None:
    names = {path.relative_to(ROOT).as_posix(): path for path in SOURCES}
    found = {name: header_reads(nodes(names[name]), owns_format=name in FORMATS) for name in names.keys() - {LAYOUT}}
    reading = {name: lines for name, lines in found.items() if lines}
    assert reading == {}, "these lines read bytes; use kts.codec.layout, or list the format in FORMATS"


def test_the_lists_of_formats_name_files_that_exist() -> None:
    assert [name for name in (*FORMATS, LAYOUT) if not (ROOT / name).exists()] == []


WORD_TESTS = {"startswith", "endswith", "find", "match", "search", "fullmatch", "partition", "split", "replace"}


def recorded_words(source: Iterable[ast.AST]) -> set[str]:
    """The expressions that are the text of a recorded warning."""
    found = set()
    for node in source:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "str" and node.args:
            text, message = ast.unparse(node), node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "args":
            text, message = ast.unparse(node), node.value.value
        else:
            continue
        if isinstance(message, ast.Attribute) and message.attr == "message":
            found.add(text)
    return found


def word_decisions(source: Iterable[ast.AST]) -> list[int]:
    """Lines that test or cut the text of a caught error, or of a warning that was recorded."""
    source = list(source)
    scopes = [(recorded_words(source), source)]
    for handler in source:
        if isinstance(handler, ast.ExceptHandler) and handler.name:
            words = {f"str({handler.name})", f"{handler.name}.message", f"{handler.name}.args[0]"}
            scopes.append((words, list(ast.walk(handler))))
    found = []
    for words, inside in scopes:
        if not words:
            continue
        texts = set(words)
        for node in inside:
            if isinstance(node, ast.Assign) and ast.unparse(node.value) in words:
                texts |= {ast.unparse(target) for target in node.targets}
        for node in inside:
            if isinstance(node, ast.Compare):
                asked = [node.left, *node.comparators]
            elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in WORD_TESTS:
                asked = [*node.args, node.func.value] if isinstance(node.func, ast.Attribute) else [*node.args]
            else:
                continue
            if any(ast.unparse(each) in texts for each in asked):
                found.append(node.lineno)
    return found


def test_decisions_from_words_are_seen() -> None:
    for line in ("'CRC' in str(e)", "e.message.startswith('x')", "re.match('x', str(e))", "e.args[0] == 'x'"):
        assert word_decisions(of_text(f"try:\n    f()\nexcept E as e:\n    if {line}:\n        raise\n")) == [4], line
    assert word_decisions(of_text("try:\n    f()\nexcept E as e:\n    if e.code == 2:\n        say(str(e))\n")) == []
    recorded = "with warnings.catch_warnings(record=True) as told:\n    f()\nfor one in told:\n"
    for line in ("str(one.message).startswith(path)", "'x' in str(one.message)", "one.message.args[0] == 'x'"):
        assert word_decisions(of_text(f"{recorded}    if {line}:\n        say(str(one.message))\n")) == [4], line
    assert (
        word_decisions(of_text(f"{recorded}    if isinstance(one.message, W):\n        say(str(one.message))\n")) == []
    )


def test_no_decision_is_taken_from_the_words_of_an_error() -> None:
    found = {path.relative_to(ROOT).as_posix(): word_decisions(nodes(path)) for path in SOURCES}
    assert {name: lines for name, lines in found.items() if lines} == {}, "look at the error's class, code or reason"


# What a release does is asked by the names of rules. These files name a release for another reason.
RELEASES_NAMED = {
    "kts/behaviour.py": "the releases and their rules",
    "kts/broker/topics/topics.py": "which topics follow a release exactly",
    "kts/cli/retention.py": "the default of an option",
    "kts/config.py": "message formats, and the settings' door",
    "kts/study/indexes.py": "message formats",
}


def release_decisions(source: Iterable[ast.AST]) -> list[int]:
    """Lines that name a release, compare one, or decide by whether it is followed exactly."""
    found = []
    for node in source:
        asked: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            asked = [side for side in sides if ast.unparse(side).rpartition(".")[2] in ("generation", "release")]
            asked *= not any(isinstance(side, ast.Constant) and side.value is None for side in sides)
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            asked = [node.test]
        elif isinstance(node, ast.BoolOp):
            asked = [*node.values]
        elif isinstance(node, ast.UnaryOp):
            asked = [node.operand]
        elif isinstance(node, ast.Constant) and node.value in GENERATIONS:
            found.append(node.lineno)
        exactly = [one for one in asked if isinstance(one, ast.Attribute) and one.attr == "shipped"]
        if exactly or (asked and isinstance(node, ast.Compare)):
            found.append(node.lineno)
    return found


def test_decisions_by_release_are_seen() -> None:
    for line in (
        "old = config.generation == '1.0'",
        "log.behaviour.release != other",
        "name('3.9')",
        "f(x if self.shipped else y)",
        "new = not (self.shipped or y)",
    ):
        assert release_decisions(of_text(line)), line
    for line in ("generation is None", "f(shipped=log.shipped)", "'3.9 and 0.10.2'", "if behaviour.sets_aside: f()"):
        assert not release_decisions(of_text(line)), line


def test_what_a_release_does_is_asked_by_the_names_of_rules() -> None:
    found = {path.relative_to(ROOT).as_posix(): release_decisions(nodes(path)) for path in SOURCES}
    deciding = {name: lines for name, lines in found.items() if lines and name not in RELEASES_NAMED}
    assert deciding == {}, "ask the behaviour, and declare a rule in kts/behaviour.py if there is none"
    assert all(found[name] for name in RELEASES_NAMED)


# A limit is written once, in kts/arguments.py.
LIMITS = {2**31 - 1, 2**63 - 1, 128 * 2**20}
POWERS = {ast.Pow: pow, ast.LShift: int.__lshift__, ast.Mult: int.__mul__, ast.Sub: int.__sub__}


def number(node: ast.AST) -> int | None:
    """The value of an expression of numbers alone, such as ``2**31 - 1``."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in POWERS:
        left, right = number(node.left), number(node.right)
        if left is not None and right is not None and 0 <= right < 1 << 40:
            return int(POWERS[type(node.op)](left, right))
    return None


def test_a_limit_is_written_once() -> None:
    found = []
    for path in SOURCES:
        for node in nodes(path) if path != ROOT / "kts/arguments.py" else ():
            mask = isinstance(node, ast.Constant) and node.value == 0x7FFFFFFF  # of bits
            if isinstance(node, ast.BinOp | ast.Constant) and not mask and number(node) in LIMITS:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: take the limit from kts.arguments")
    assert not found, "\n".join(found)


# The client and log of the proposals have the names of kts.testing's client and of kts.Log: they do the same.
PUBLIC_TWICE = {"Appended", "ConsumerRecord", "Entries", "RecordMetadata"}
A_CLASS = re.compile(r"^ *(?:cdef )?class (\w+)", re.MULTILINE)


def test_a_class_name_stands_for_one_thing() -> None:
    named = Counter(name for path in [*SOURCES, *EXTENSIONS] for name in A_CLASS.findall(path.read_text("utf-8")))
    assert {name for name, count in named.items() if count > 1} == PUBLIC_TWICE


def own_test(path: Path) -> Path:
    """Where the tests of one file of the package lie: `kts/a/b.py` has `tests/a/test_b.py`."""
    inside = path.relative_to(ROOT / "kts")
    return ROOT / "tests" / inside.parent / f"test_{path.stem.lstrip('_')}.py"


def test_each_file_of_the_package_has_its_test_file() -> None:
    sources = [*(ROOT / "kts").rglob("*.py"), *EXTENSIONS, *(ROOT / "kts/native").glob("*.c")]
    sources = [path for path in sources if path.name not in ("__init__.py", "__main__.py")]
    tested = [path for path in map(own_test, sources) if path.exists()]
    assert [path for path in tested if "def test_" not in path.read_text(encoding="utf-8")] == []
    assert sorted(path.relative_to(ROOT).as_posix() for path in sources if not own_test(path).exists()) == []


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_the_files_that_a_page_for_contributors_names_exist(page: str) -> None:
    named = set(re.findall(r"`([a-z]+/[\w/.]*\w)", (ROOT / page).read_text(encoding="utf-8")))
    there = {
        name for name in named for at in (ROOT, ROOT / "kts") if (at / name).exists() or (at / f"{name}.py").exists()
    }
    assert len(named) > 5 and named - there == set()


FOLDERS_OF_TEXT = ["docs", "kts", "pyspark_kts", "tests", "bench", "examples"]
TEXTS = ["*.md", ".ci/*", ".github/**/*.yml", "Makefile", "pyproject.toml"]
TEXTS += [f"{folder}/**/*.{kind}" for folder in FOLDERS_OF_TEXT for kind in ("py", "md")]
PIP_INSTALL = re.compile(r"pip install(?: -[\w-]+)* ['\"]?([\w./*][\w./*-]*)")


def test_what_a_reader_is_told_to_install_is_this_project() -> None:
    """`kts` on the index is another project. What is named is `.`, a wheel, this project or a library of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = sum(project["optional-dependencies"].values(), project["dependencies"])
    right = {project["name"], *(re.split(r"[\[=<>~!; ]", each)[0] for each in requirements)}
    texts = {path: path.read_text(encoding="utf-8") for pattern in TEXTS for path in ROOT.glob(pattern)}
    texts.pop(Path(__file__))
    named = [(path, name) for path, text in texts.items() for name in PIP_INSTALL.findall(text)]
    assert len(named) > 5
    wheel = re.compile(r"(.*/)?(kafka_timestamps-.*|\*)\.whl")
    wrong = [(path, name) for path, name in named if name != "." and name not in right and not wheel.fullmatch(name)]
    assert wrong == []
    assert [path for path, text in texts.items() if re.search(r"\bkts\[(spark|plot|test|bench|docs)", text)] == []


def test_the_drawing_of_the_rooms_shows_each_of_them() -> None:
    drawn = (ROOT / "docs/architecture.svg").read_text(encoding="utf-8")
    rooms = [room.removeprefix("kts.").removeprefix("broker.") for rooms in ROOMS for room in rooms]
    assert [
        room for room in rooms if room not in drawn and room not in ("kts_command", "__main__", "cli.__main__")
    ] == []


def make_lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """`make lint` in a folder, with the tools that run this test."""
    tools = [f"BIN={Path(sys.executable).parent}", "INSTALLED=", "BUILT=", f"PYTHON={sys.executable}"]
    return subprocess.run(["make", "lint", *tools], cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
def test_make_lint_sees_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    if (ROOT / ".mypy_cache").exists():  # of `make lint`, which has just run: only what is planted is looked at again
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / ".mypy_cache")
    for name in ("kts", "pyspark_kts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    for name in ("Makefile", "pyproject.toml", *SINGLE):
        shutil.copy2(ROOT / name, tmp_path / name)
    planted = tmp_path / "kts/planted.py"
    for text, finding in (("import os\n", "F401"), ("def f(x):\n    return x\n", "no-untyped-def")):
        planted.write_text(text, encoding="utf-8")
        done = make_lint(tmp_path)
        said = done.stdout + done.stderr
        assert done.returncode != 0 and finding in said
    assert said.count("error: ") == said.count("planted.py") == 1, said  # ruff and mypy find nothing else


def test_every_tier_lints_first_and_knows_its_marks() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    marks = re.findall(r'^    "(\w+): ', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    for goal in ("check", "test", "test-all"):
        assert re.search(rf"^{goal}:.*\blint\b", makefile, re.MULTILINE)
        commands = subprocess.run(["make", "-n", goal], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        [expression] = re.findall(r'-m "(.*)"$', commands, re.MULTILINE) or [""]
        assert set(expression.replace("not ", "").split(" and ")) - {""} <= set(marks)
        assert bool(expression) == (goal == "check")
        assert ("KTS_LENGTH=full" in commands) == (goal == "test-all")


def test_every_public_name_is_there_and_documented() -> None:
    for name in kts.__all__:
        value = getattr(kts, name)
        if callable(value):
            assert (inspect.getdoc(value) or "").strip(), f"kts.{name} has no docstring"


def test_dir_and_the_reference_show_what_is_public_and_nothing_else(tmp_path: Path) -> None:
    assert dir(kts) == sorted([*kts.__all__, "__version__"])
    write_demo(str(tmp_path))
    page = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    shown = {*re.findall(r"^::: kts\.(\w+)$", page, re.MULTILINE), *re.findall(r"`kts\.([A-Z_]+)`", page)}
    assert shown == set(kts.__all__) - set(kts.errors.__all__) | {"errors"}
    with kts.open_partition(tmp_path / "orders/orders-0") as reader, kts.Log(tmp_path / "new-0") as writer:
        for name, log in (("PartitionLog", reader), ("Log", writer)):
            [members] = re.findall(rf"^::: kts\.{name}\n    options:\n      members: \[(.*)\]", page, re.MULTILINE)
            assert sorted(members.split(", ")) == dir(log)
            for member in dir(log):
                attribute = getattr(type(log), member, None)
                assert hasattr(log, member) and (attribute is None or inspect.getdoc(attribute)), f"{name}.{member}"


EXAMPLES = [path for path in SOURCES if ">>> " in path.read_text(encoding="utf-8") and "spark" not in path.parts]


@pytest.mark.parametrize("path", EXAMPLES, ids=module_name)
def test_the_examples_of_docstrings_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_demo(str(tmp_path / "demo"))
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(importlib.import_module(module_name(path)))
    assert found.attempted
    assert not found.failed


@pytest.mark.parametrize("path", sorted((ROOT / "kts/native").glob("*.[ch]")), ids=lambda path: path.name)
def test_each_file_of_the_core_compiles_alone_without_a_warning(path: Path) -> None:
    command = ["cc", "-fsyntax-only", "-std=c11", "-Wall", "-Wextra", "-Werror", "-x", "c", "-"]
    said = subprocess.run(
        command, input=f'#include "{path.name}"\n', cwd=path.parent, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
