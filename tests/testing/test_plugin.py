"""The pytest plugin ``kts_pytest``, in pytest runs of its own, found by its entry point as in an installed wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder whose pytest runs find kts as they would if it were installed."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]["pytest11"]
    installed = tmp_path / "installed" / "kafka_timestamps-0.2.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: kafka-timestamps\nVersion: 0.2.0\n")
    lines = "".join(f"{name} = {target}\n" for name, target in points.items())
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{lines}")
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def pytest_run(project: Path, *arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (project / f"{name}.py").write_text(text)
    if not (project / "pytest.ini").exists():
        (project / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers --strict-config -W error\n")
    path = [str(project.parent / "installed"), *(each for each in sys.path if each)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *path]), "TMPDIR": str(project.parent)}
    env.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=300)


def passed(done: subprocess.CompletedProcess[str]) -> int:
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) passed", done.stdout)
    assert found and "warning" not in done.stdout, done.stdout
    return int(found[1])


USES = """
import threading
import pytest
from kts.testing import KtsBroker

def test_produce_and_consume(kts_broker):
    assert isinstance(kts_broker, KtsBroker)
    kts_broker.set_time(5000)
    assert kts_broker.produce("orders", b"paid").timestamp == 5000
    assert [row.value for row in kts_broker.consume("orders")] == [b"paid"]

def test_each_test_has_its_own(kts_broker):
    assert kts_broker.topics() == []

def test_brokers_end_with_the_test_before():
    assert threading.active_count() == 1

@pytest.mark.kts_broker(topics={"a": 1, "b": 2}, config={"num.partitions": 4}, time=7)
class TestMarked:
    def test_as_the_class_says(self, kts_broker):
        assert kts_broker.topics() == ["a", "b"]
        assert kts_broker.partitions("b") == [0, 1]
        assert kts_broker.clock() == 7
        kts_broker.produce("c")
        assert len(kts_broker.partitions("c")) == 4

    @pytest.mark.kts_broker(topics={"b": 3, "d": 1}, time=8)
    def test_the_nearest_marker_wins(self, kts_broker):
        assert kts_broker.topics() == ["a", "b", "d"]
        assert len(kts_broker.partitions("b")) == 3
        assert kts_broker.clock() == 8

def test_several_brokers(kts_broker, kts_broker_factory, tmp_path):
    other = kts_broker_factory({"num.partitions": 2}, topics={"x": 1}, directory=tmp_path / "other")
    assert other.port != kts_broker.port
    assert other.produce("made", b"1", partition=1).partition == 1
    other.restart()
    assert other.topics() == ["made", "x"]
    assert (tmp_path / "other" / "x-0").is_dir()
"""
ALL_USES = 6


def test_the_fixtures_and_the_marker_are_listed_and_explained(project: Path) -> None:
    said = pytest_run(project, "--fixtures").stdout
    assert re.search(r"^kts_broker -- .*\n    A running Kafka broker on loopback", said, re.MULTILINE), said
    assert re.search(r"^kts_broker_factory -- ", said, re.MULTILINE)
    assert "@pytest.mark.kts_broker(config=" in pytest_run(project, "--markers").stdout


@pytest.mark.parametrize("options", ["-n 2 --import-mode=importlib", "--import-mode=append -p kts_pytest"])
def test_the_fixtures_work_in_every_import_mode_and_with_xdist(project: Path, options: str) -> None:
    assert passed(pytest_run(project, *options.split(), test_uses=USES)) == ALL_USES
    assert [path.name for path in project.parent.iterdir() if path.name.startswith("kts-")] == []


def test_the_ini_file_sets_every_broker(project: Path) -> None:
    ini = "[pytest]\nkts_broker_config =\n    num.partitions = 3\n    auto.create.topics.enable=true\n"
    (project / "pytest.ini").write_text(ini)
    uses = """
        def test_of_the_ini_file(kts_broker, kts_broker_factory):
            for broker, count in ((kts_broker, 3), (kts_broker_factory({"num.partitions": "5"}), 5)):
                broker.produce("made", "x")
                assert len(broker.partitions("made")) == count
    """
    assert passed(pytest_run(project, test_ini=re.sub("^        ", "", uses, flags=re.MULTILINE))) == 1
    (project / "pytest.ini").write_text("[pytest]\nkts_broker_config = nonsense\n")
    assert "expected name=value, found 'nonsense'" in pytest_run(project).stdout


def test_the_ini_file_names_the_release_and_a_marker_another(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\nkts_release = 4.3\n")
    uses = """
import pytest

def test_of_the_ini_file(kts_broker, kts_broker_factory):
    kts_broker.create_topic("t")
    assert kts_broker.log("t").release == "4.3"
    other = kts_broker_factory(release="3.9")
    other.create_topic("t")
    assert other.log("t").release == "3.9"

@pytest.mark.kts_broker(release="0.10.2")
def test_of_a_marker(kts_broker):
    kts_broker.create_topic("t")
    assert kts_broker.log("t").release == "0.10.2"
"""
    assert passed(pytest_run(project, test_release=uses)) == 2


def test_wrong_markers_are_told(project: Path) -> None:
    uses = """
import pytest

@pytest.mark.kts_broker({"num.partitions": 2})
def test_positional(kts_broker):
    pass

@pytest.mark.kts_broker(colour="red")
def test_unknown(kts_broker):
    pass

@pytest.mark.kts_broker(config={"log.retention.hours": "soon"})
def test_bad_setting(kts_broker):
    pass
"""
    done = pytest_run(project, test_wrong=uses)
    assert "3 errors" in done.stdout
    assert "expected names, as release=" in done.stdout
    assert "colour" in done.stdout
    assert "log.retention.hours: expected an integer, found 'soon'" in done.stdout


IDLE = """
import sys

def test_nothing_of_it_is_loaded():
    loaded = {name.split(".")[0] for name in sys.modules}
    assert ("kts_pytest" in loaded) is EXPECTED
    assert not loaded & {"kts", "numpy", "pyarrow"}
    assert "asyncio" not in loaded or sys.version_info >= (3, 14)  # where pdb, which pytest's plugins load, imports it
"""


def test_the_plugin_loads_nothing_where_no_test_asks_for_a_broker(project: Path) -> None:
    assert passed(pytest_run(project, "-p", "no:xdist", test_idle=IDLE.replace("EXPECTED", "True"))) == 1


def test_the_plugin_can_be_left_out(project: Path) -> None:
    idle = IDLE.replace("EXPECTED", "False") + "\ndef test_it(kts_broker):\n    pass\n"
    done = pytest_run(project, "-p", "no:kts_pytest", "-p", "no:xdist", test_idle=idle)
    assert "1 passed, 1 error" in done.stdout
    assert "fixture 'kts_broker' not found" in done.stdout


MANY = """
import gc
import os
import threading
import pytest

def held():
    gc.collect()
    return (threading.active_count(), len(os.listdir("/proc/self/fd")), len(os.listdir(os.environ["TMPDIR"])))

before = []

@pytest.mark.parametrize("number", range(5))
def test_one_of_some(kts_broker, number):
    kts_broker.produce("orders", "x")
    kts_broker.restart()
    assert kts_broker.consume("orders")

def test_before():
    before.append(held())

@pytest.mark.parametrize("number", range(20))
def test_one_more(kts_broker, number):
    kts_broker.produce("orders", "x")

def test_nothing_is_held_after_twenty_more():
    assert held() == before[0]
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors as Linux lists them")
def test_brokers_leave_no_thread_descriptor_or_directory(project: Path) -> None:
    assert passed(pytest_run(project, test_many=MANY)) == 27
    assert [path.name for path in project.parent.iterdir() if path.name.startswith("kts-")] == []
