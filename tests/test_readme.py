"""The code blocks of the README and of docs/ do what they say, and print what stands below them."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.golden import PATIENCE_S
from support.kafka.jvm import FLAGS, JAVA, java_tool, maven_class_path, spark_environ
from support.processes.scripts import run_script

import kts
from kts.testing import KtsBroker

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A block of code, and the block of text behind it, which is what it prints; `...` there stands for anything.
FENCE = re.compile(r"^```(python|shell)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
BLOCKS = []
JAVA_BLOCKS = []
for page in PAGES:
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    JAVA_BLOCKS += re.findall(r"^```java\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    BLOCKS += [
        (f"{name}:{text.count(chr(10), 0, found.start()) + 2}", *found.groups()) for found in FENCE.finditer(text)
    ]

IN_SPARK = {
    place: (code, shown) for place, language, code, shown in BLOCKS if language == "python" and "SparkSession" in code
}
BLOCKS = [block for block in BLOCKS if block[0] not in IN_SPARK]


def script(code: str, folder: Path) -> Path:
    """A block as a file. Libraries take ``python -c`` for a person who types."""
    (folder / "block.py").write_text(code, encoding="utf-8")
    return folder / "block.py"


def test_a_slow_block_prints_no_progress_bar(tmp_path: Path) -> None:
    """DuckDB draws one into the output of ``python -c`` after two seconds, as of a query on a loaded machine."""
    code = "import duckdb; print(duckdb.sql(\"SELECT current_setting('enable_progress_bar')\").fetchall())"
    done = run_script(script(code, tmp_path), tmp_path, {})
    assert done.stdout == "[(False,)]\n"


@pytest.mark.parametrize(("place", "language", "code", "shown"), BLOCKS, ids=[block[0] for block in BLOCKS])
def test_a_code_block_runs(place: str, language: str, code: str, shown: str | None, tmp_path: Path) -> None:
    """Each block runs alone, in a folder that has the same `tests/` and nothing else."""
    if "kcat" in code and shutil.which("kcat") is None:
        pytest.skip("needs kcat; get it by: sudo apt install kcat")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "tests").symlink_to(ROOT / "tests")
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    if "spark" in code:
        env |= spark_environ()
    if language == "python" and "\ndef test_" not in code:
        done = run_script(script(code, tmp_path), folder, env)
    else:
        command = ["bash", "-euo", "pipefail", "-c", code]
        if language == "python":  # a test file
            (folder / "test_block.py").write_text(code, encoding="utf-8")
            command = [sys.executable, "-m", "pytest", "-p", "kts_pytest", "test_block.py"]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{place}\n{done.stdout}\n{done.stderr}"
    check_output(place, code, shown, done.stdout)


def check_output(place: str, code: str, shown: str | None, said: str) -> None:
    """A block prints what stands below it, and something in any case."""
    assert said.strip(), f"{place}: a block shows something"
    if shown is not None:
        checker, example = doctest.OutputChecker(), doctest.Example(code, shown)
        same = checker.check_output(shown.rstrip(), said.rstrip(), doctest.ELLIPSIS)
        assert same, f"{place}\n{checker.output_difference(example, said, doctest.REPORT_UDIFF)}"


@pytest.fixture(scope="module")
def said_in_spark(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the blocks that make a Spark session print, and their errors; in one folder, which the session keeps."""
    environ = os.environ | spark_environ()
    folder = tmp_path_factory.mktemp("spark")
    (folder / "tests").symlink_to(ROOT / "tests")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/support/spark/blocks.py")],
        input=json.dumps({place: code for place, (code, _) in IN_SPARK.items()}),
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("place", IN_SPARK)
def test_a_code_block_runs_in_spark(place: str, said_in_spark: dict[str, list[str]]) -> None:
    said, error = said_in_spark[place]
    assert error == "", f"{place}\n{said}\n{error}"
    check_output(place, *IN_SPARK[place], said)


def test_the_pages_show_python_and_shell() -> None:
    assert {language for _, language, _, _ in BLOCKS} == {"python", "shell"}
    others = {name for page in PAGES for name in re.findall(r"^```(\w+)$", page.read_text(encoding="utf-8"), re.M)}
    assert others.isdisjoint({"bash", "sh", "console", "py"}), "blocks of these names would not run"


def test_the_reference_has_every_public_name() -> None:
    page = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\bkts\.(\w+)", page))
    assert set(kts.__all__) - set(kts.errors.__all__) - named == set()  # `::: kts.errors` is those of one module


@pytest.mark.parametrize(
    ("module", "page"), [("tables", "python"), ("study", "python"), ("testing", "python"), ("spark", "spark")]
)
def test_the_reference_has_every_public_name_of_a_module(module: str, page: str) -> None:
    names = importlib.import_module(f"kts.{module}").__all__
    text = (ROOT / f"docs/reference/{page}.md").read_text(encoding="utf-8")
    assert [name for name in names if f"\n::: kts.{module}.{name}\n" not in text] == []


def links(page: Path) -> list[str]:
    """The targets of a page's links to other files of the repository."""
    found = re.findall(
        r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    )
    return [target for target in found if "://" not in target and not target.startswith("#")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    """In the repository; `make docs` sees that they do on the site."""
    missing = [target for target in links(page) if not (page.parent / target.partition("#")[0]).exists()]
    assert missing == []


@pytest.mark.parametrize("code", JAVA_BLOCKS)
def test_a_java_program_talks_to_a_broker_for_tests(code: str, tmp_path: Path) -> None:
    jars = maven_class_path(JAVA / "pom.xml")
    (tmp_path / "Orders.java").write_text(code, encoding="utf-8")
    with KtsBroker() as broker:
        command = [java_tool("java"), *FLAGS, "-cp", jars, "Orders.java", broker.bootstrap_servers]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["1800000000000", "1800000000000", "CreateTime", "paid"]
        assert [record.value for record in broker.consume("orders")] == [b"paid"]
