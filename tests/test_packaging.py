"""One wheel, the same from the repository and from the sdist; it needs no compiler, and importing it costs little."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from support.demo import content
from support.kafka.jvm import spark_environ
from support.pages import Block, blocks, lay, typed

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PACKED = ["kts", "pyspark_kts", "kts_command.py", "kts_pytest.py", "setup.py", "pyproject.toml", "MANIFEST.in"]
PACKED += ["README.md", "CHANGES.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", ".ci", ".github", "bench", "docs"]
PACKED += ["examples", "Makefile", "mkdocs.yml", "tests"]
GENERATED = shutil.ignore_patterns("*.so", "_*.c", "__pycache__", "build")
WARNINGS = {"CFLAGS": "-Wall -Wextra -Wno-missing-field-initializers"}


def run(*command: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        pytest.fail(f"{command} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def built(source: Path, into: Path, kind: str) -> tuple[Path, list[str]]:
    """The one sdist or wheel that the build front end makes of `source`, and what the C compiler says of our lines."""
    command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", into, source]
    said = run(*command, cwd=into, env=os.environ | WARNINGS)
    [result] = into.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return result, re.findall(r"^\S*?((?:_\w+\.pyx|native/\w+\.[ch]):\d+).* warning: (.*)", said, re.MULTILINE)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packed, so that the build leaves nothing behind here. Its compiler optimises little: enough for
    all warnings, in half the time."""
    copy = tmp_path_factory.mktemp("source")
    for name in PACKED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=GENERATED)
        else:
            shutil.copyfile(ROOT / name, copy / name)
    if (ROOT / "build/c").exists():  # of `make ready`: the sdist needs none, so its C need not be made again
        shutil.copytree(ROOT / "build/c", copy / "build/c")
    optimise(copy, "-O3", "-O1")
    return copy


def optimise(source: Path, before: str, after: str) -> None:
    text = (source / "setup.py").read_text(encoding="utf-8")
    usual = 'compile_args = ["{}"]'
    assert usual.format(before) in text
    (source / "setup.py").write_text(text.replace(usual.format(before), usual.format(after)), encoding="utf-8")


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source, tmp_path_factory.mktemp("sdist"), "sdist")[0]


@pytest.fixture(scope="module")
def from_sdist(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    place = tmp_path_factory.mktemp("from-sdist")
    return built(unpacked(sdist, place), place, "wheel")


@pytest.fixture(scope="module")
def wheel(from_sdist: tuple[Path, list[str]]) -> Path:
    return from_sdist[0]


def unpacked(sdist: Path, into: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    return into / sdist.name.removesuffix(".tar.gz")


def members(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def texts(wheel: Path) -> dict[str, bytes]:
    """What a wheel holds, less what the compiler made and the list of checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith((".so", "/RECORD"))}


def test_the_wheel_has_both_packages_the_extensions_and_their_stubs(wheel: Path) -> None:
    names = members(wheel)
    extensions = {re.sub(r"\.(cpython|abi3)[^/]*", "", name) for name in names if name.endswith(".so")}
    inner = {"kts/avro/_datum", "kts/proposals/options/_messages", "kts/tables/_values"}
    assert extensions == {"kts/_codec", "kts/_timeindex", *inner}
    assert {"kts/_codec.pyi", "kts/_timeindex.pyi", "kts/py.typed", "pyspark_kts/__init__.py", "kts_pytest.py"} <= names
    suffixes = {Path(name).suffix for name in names if not name.split("/")[0].endswith(".dist-info")}
    assert suffixes <= {".py", ".pyi", ".so", ".typed", ".gz", ".txt"}, "no sources of extensions belong in the wheel"
    for kind in ("py", "txt", "gz"):
        found = [path for name in ("kts", "pyspark_kts") for path in (ROOT / name).rglob(f"*.{kind}")]
        assert {str(path.relative_to(ROOT)) for path in found} <= names


def test_the_sdist_carries_sources_stubs_and_tests_but_nothing_generated(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"kts/_codec.pyx", "kts/_codec.pyi", "kts/_codec.pxd", "kts/_timeindex.pyx", "LICENSE", "README.md"} <= names
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "kts/native").glob("*.[ch]")} <= names
    assert {"CONTRIBUTING.md", "docs/index.md", "docs/orders.svg", "mkdocs.yml"} <= names
    assert {"Makefile", "tests/conftest.py", "tests/data/README.md", "tests/java/pom.xml", "bench/__main__.py"} <= names
    assert not [name for name in names if re.fullmatch(r"kts/[^/]*\.c|.*\.so|build/.*|.*\.pyc", name)]


def test_the_sdist_builds_without_a_warning_of_our_lines(from_sdist: tuple[Path, list[str]]) -> None:
    assert from_sdist[1] == []


def test_the_repository_builds_the_same_wheel_and_its_warnings_are_seen(
    source: Path, sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    with (source / "kts/native/platform.h").open("a", encoding="utf-8") as header:
        header.write("#ifndef KTS_PLANTED\n#define KTS_PLANTED\n")  # the header is read twice
        header.write("static int kts_planted(unsigned a, int b) { return a < b; }\n#endif\n")
    with (source / "kts/_timeindex.pyx").open("a", encoding="utf-8") as module:
        module.write("\ncdef int planted(unsigned int a, int b) noexcept nogil:\n    return a < b\n")
    optimise(source, "-O1", "-O0")
    again, warnings = built(source, tmp_path, "wheel")
    assert again.name == wheel.name
    assert members(again) == members(wheel)
    assert texts(again) == texts(wheel)
    assert {place.split(":")[0] for place, _ in warnings} == {"native/platform.h", "_timeindex.pyx"}


def test_the_wheel_installs_without_a_compiler_reads_a_log_and_brings_its_fixtures(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "empty"
    venv.create(place, with_pip=False)
    kept = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "SSL_", "HTTP", "http", "HOME"))}
    env = kept | {"PATH": str(place / "bin")}
    assert shutil.which("cc", path=env["PATH"]) is None
    assert shutil.which("gcc", path=env["PATH"]) is None
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python"]
    run(*pip, "install", "-q", "--only-binary=:all:", "--no-compile", wheel, "pytest", cwd=tmp_path, env=env)
    log = Path(__file__).parent / "data/golden/3.9.2/ct-zstd/ct-zstd-0/00000000000000000000.log"
    program = f"import kts, pathlib; print(kts.decode(pathlib.Path({str(log)!r}).read_bytes()).num_rows)"
    assert int(run(place / "bin" / "python", "-c", program, cwd=tmp_path, env=env)) > 10
    assert "offset-for" in run(place / "bin" / "kts", "--help", cwd=tmp_path, env=env)
    test = "def test_it(kts_broker):\n    assert kts_broker.produce('orders', 'paid').offset == 0\n"
    (tmp_path / "test_it.py").write_text(test, encoding="utf-8")
    assert "1 passed" in run(place / "bin" / "python", "-m", "pytest", "test_it.py", cwd=tmp_path, env=env)


@pytest.fixture(scope="module")
def unpacked_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has the wheel's kts, beside the packages that are installed here."""
    place = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(wheel).extractall(place)
    program = "import kts, kts_command; print(kts.__file__, kts_command.__file__)"
    env = {"PYTHONPATH": str(place)}
    found = run(sys.executable, "-c", program, cwd=place, env=os.environ | env).split()
    assert found == [str(place / "kts/__init__.py"), str(place / "kts_command.py")]
    return env


def test_the_wheel_brings_the_demo(unpacked_wheel: dict[str, str], tmp_path: Path) -> None:
    said = run(sys.executable, "-m", "kts", "demo", cwd=tmp_path, env=os.environ | unpacked_wheel)
    assert "kts ls demo/orders" in said
    found = {path.relative_to(tmp_path / "demo").as_posix(): path for path in (tmp_path / "demo").glob("*/*/*")}
    assert {name: path.read_bytes() for name, path in found.items()} == {n: data for n, (data, _) in content().items()}


def test_the_blocks_with_the_demo_run_from_the_wheel(unpacked_wheel: dict[str, str], tmp_path: Path) -> None:
    """15 seconds: README's, the tutorials' and the reference's own words for a user without a clone. Blocks of Python
    run in one process, but those in Spark: test_readme.py runs these, and they read what the others read."""
    found = [block for block in blocks() if block.reads_the_demo and not block.reads_the_repository]
    typed_in, programs = [], []
    for number, block in enumerate(found):
        if block.language == "shell" and "spark" not in block.code:
            done = typed(block, lay(tmp_path / str(number), block), unpacked_wheel)
            assert done.returncode == 0, f"{block.place}\n{done.stdout}\n{done.stderr}"
            block.check(done.stdout)
            typed_in.append(block)
        elif block.language == "python" and "spark" not in block.code:
            programs.append(block)
    assert len(typed_in) > 10 and len(programs) > 10
    run_blocks(programs, tmp_path / "programs", unpacked_wheel)


def test_the_readmes_block_in_spark_runs_from_the_wheel(unpacked_wheel: dict[str, str], tmp_path: Path) -> None:
    """Ten seconds: driver and executors import the wheel, which registers its format."""
    found = [block for block in blocks() if block.place.startswith("README.md") and block.in_spark]
    assert found
    run_blocks(found, tmp_path / "spark", unpacked_wheel | spark_environ())


def run_blocks(programs: list[Block], folder: Path, environ: dict[str, str]) -> None:
    """Run blocks of Python in one process, in one new folder."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/support/spark/blocks.py")],
        input=json.dumps({block.place: block.code for block in programs}),
        cwd=lay(folder, programs[0]),
        env=os.environ | environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    for block in programs:
        assert said[block.place][1] == "", f"{block.place}\n{said[block.place]}"
        block.check(said[block.place][0])


def test_sources_that_are_not_compiled_say_so(tmp_path: Path) -> None:
    """Python in the root of a clone finds them before the kts that is installed."""
    shutil.copytree(ROOT / "kts", tmp_path / "kts", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    done = subprocess.run([sys.executable, "-c", "import kts"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"ImportError: expected the compiled kts, found its sources in {tmp_path / 'kts'}: compile" in done.stderr


def test_importing_kts_imports_neither_arrow_nor_spark_nor_the_command_lines_libraries(tmp_path: Path) -> None:
    program = "import sys, kts; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = set(run(sys.executable, "-c", program, cwd=tmp_path).split())
    assert "kts" in loaded
    assert not loaded & {"pyarrow", "pyspark", "pyspark_kts", "py4j", "click", "rich", "matplotlib", "pandas"}
