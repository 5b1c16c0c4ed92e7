"""The code blocks of the README and of docs/ do what they say, and print what stands below them."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest
from support import ROOT
from support.golden import PATIENCE_S
from support.kafka.jvm import FLAGS, JAVA, java_tool, maven_class_path, spark_environ
from support.pages import PAGES, Block, blocks, lay, typed
from support.processes.scripts import run_script

import kts
from kts.behaviour import RELEASES
from kts.cli.demo import write_demo
from kts.testing import KtsBroker

JAVA_BLOCKS = [
    block
    for page in PAGES
    for block in re.findall(r"^```java\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
]
BLOCKS = [block for block in blocks() if not block.in_spark]
FRONT = [block for block in BLOCKS if block.place.startswith("README") and ("kts.Log(" in block.code or block.is_test)]
ENTRIES = re.compile(r"entries=\d+")
IN_SPARK = [block for block in blocks() if block.in_spark]


def script(code: str, folder: Path) -> Path:
    """A block as a file. Libraries take ``python -c`` for a person who types."""
    (folder / "block.py").write_text(code, encoding="utf-8")
    return folder / "block.py"


@pytest.mark.slow
def test_a_slow_block_prints_no_progress_bar(tmp_path: Path) -> None:
    """DuckDB draws one into the output of ``python -c`` after two seconds, as of a query on a loaded machine."""
    code = "import duckdb; print(duckdb.sql(\"SELECT current_setting('enable_progress_bar')\").fetchall())"
    done = run_script(script(code, tmp_path), tmp_path, {})
    assert done.stdout == "[(False,)]\n"


@pytest.mark.parametrize("block", BLOCKS, ids=attrgetter("place"))
def test_a_code_block_runs(block: Block, tmp_path: Path) -> None:
    """Each block runs alone, in a folder that has the demo or the same `tests/`, and nothing else."""
    if "kcat" in block.code and shutil.which("kcat") is None:
        pytest.skip("needs kcat; get it by: sudo apt install kcat")
    folder = lay(tmp_path / "folder", block)
    env = spark_environ() if "spark" in block.code else {}
    if block.language == "python" and not block.is_test:
        done = run_script(script(block.code, tmp_path), folder, env)
    else:
        done = typed(block, folder, env)
    assert done.returncode == 0, f"{block.place}\n{done.stdout}\n{done.stderr}"
    block.check(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("block", FRONT, ids=attrgetter("place"))
def test_an_example_of_the_front_page_runs_under_each_release(block: Block, release: str, tmp_path: Path) -> None:
    """A log and a broker, of a release that is named; only the messages of 0.10.2 are entries each."""
    folder = lay(tmp_path / "folder", block)
    if block.is_test:
        done = typed(block, folder, {"PYTEST_ADDOPTS": f"-o kts_release={release}"})
        assert done.returncode == 0 and "1 passed" in done.stdout, f"{done.stdout}\n{done.stderr}"
        return
    assert (asked := block.code.replace("clock=", f'release="{release}", clock=')) != block.code
    done = run_script(script(asked, tmp_path), folder, {})
    assert done.returncode == 0, done.stderr
    assert block.shown is not None
    assert ENTRIES.sub("", done.stdout) == ENTRIES.sub("", block.shown)


@pytest.fixture(scope="module")
def said_in_spark(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the blocks that make a Spark session print, and their errors; in one folder, which the session keeps."""
    environ = os.environ | spark_environ()
    folder = tmp_path_factory.mktemp("spark")
    write_demo(str(folder / "demo"))
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/support/spark/blocks.py")],
        input=json.dumps({block.place: block.code for block in IN_SPARK}),
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("block", IN_SPARK, ids=attrgetter("place"))
def test_a_code_block_runs_in_spark(block: Block, said_in_spark: dict[str, list[str]]) -> None:
    said, error = said_in_spark[block.place]
    assert error == "", f"{block.place}\n{said}\n{error}"
    block.check(said)


def test_the_pages_show_python_and_shell() -> None:
    assert {block.language for block in BLOCKS} == {"python", "shell"}
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
