"""The modes that a log follows: chosen by name, and nothing at all without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.golden import PATIENCE_S

import kts
from kts.cli.inputs import INDEX_PROPOSALS, PROPOSALS
from kts.config import LogConfig
from kts.proposals import MODES, ROLLS_BY, made
from kts.proposals.index import IndexMode
from kts.proposals.modes import RollingMode
from kts.testing import KtsBroker


def test_wrong_names_and_contradicting_rules_are_refused(tmp_path: object) -> None:
    log = kts.PartitionLog(str(tmp_path), "t", 0)
    with pytest.raises(ValueError, match="'buckets' is unknown; there are wall-clock, largest-timestamp"):
        made(("buckets",), log, LogConfig())
    with pytest.raises(ValueError, match="one rule for rolling at most, found wall-clock, largest-timestamp"):
        made(("wall-clock", "largest-timestamp"), log, LogConfig())
    with pytest.raises(ValueError, match="expected each once"):
        made(("minute-map", "minute-map"), log, LogConfig())
    with pytest.raises(TypeError, match="found the string 'minute-map'"):
        made("minute-map", log, LogConfig())


def test_the_settings_and_the_commands_know_each_proposal_by_name() -> None:
    assert tuple(MODES) == PROPOSALS
    made_of = {name: make(LogConfig()) for name, make in MODES.items()}
    assert [name for name, mode in made_of.items() if isinstance(mode, RollingMode)] == list(ROLLS_BY)
    assert [name for name, mode in made_of.items() if isinstance(mode, IndexMode)] == list(INDEX_PROPOSALS)


@pytest.mark.slow
def test_without_a_proposal_neither_log_nor_broker_imports_them(tmp_path: Path) -> None:
    program = f"""
import sys, kts
from kts.testing import KtsBroker
with kts.Log({str(tmp_path / "t-0")!r}) as log:
    log.append(kts.encode({{"value": [b"x"]}})); log.roll(); log.roll_if_due(); log.offset_for_timestamp(5)
    assert log.proposals is None
with KtsBroker({str(tmp_path / "broker")!r}) as broker:
    broker.create_topic("t"); broker.produce("t", b"x"); broker.run_retention()
assert not any("proposals" in name for name in sys.modules)
with kts.Log({str(tmp_path / "t-0")!r}, {{"proposals": "wall-clock"}}):
    assert "kts.proposals" in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=PATIENCE_S).returncode == 0


WITHOUT = """
import sys
sys.modules["kts.proposals"] = None  # what an import of it then says
import kts
from kts.testing import KtsBroker
folder = sys.argv[1]
"""


def without_proposals(program: str, folder: Path) -> None:
    """Run a program in a kts whose `kts.proposals` cannot be imported."""
    command = [sys.executable, "-c", WITHOUT + program, str(folder)]
    done = subprocess.run(command, timeout=PATIENCE_S, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_log_is_written_searched_recovered_and_served_where_proposals_cannot_be_imported(tmp_path: Path) -> None:
    program = """
sets = [kts.encode({"value": [b"x"], "timestamp": [time]}) for time in (5, 9, 7)]
log = kts.Log(f"{folder}/t-0", {"segment.bytes": 100, "proposals": ""})
for one in sets:
    log.append(one)
log.abandon()
with open(log.segments[-1].path, "ab") as file:
    file.write(b"cut")
with kts.Log(f"{folder}/t-0") as log:
    assert [one.bytes_cut for one in log.recovered if one.path.endswith(".log")] == [3]
    assert log.offset_for_timestamp(6) == (9, 1) and log.max_timestamp() == (9, 1)
    log.roll_if_due(); log.reconfigure({"retention.ms": 1}); log.delete_old_segments()
with KtsBroker(folder) as broker:
    assert broker.produce("t", b"y").offset == 3
    assert [record.offset for record in broker.consume("t")] == [3]
    broker.alter_topic("t", {"segment.bytes": 100}); broker.run_retention()
"""
    without_proposals(program, tmp_path)


@pytest.mark.slow
def test_a_setting_that_names_a_proposal_says_what_is_missing_where_it_cannot_be_imported(tmp_path: Path) -> None:
    with KtsBroker(tmp_path) as broker:
        broker.create_topic("t", config={"proposals": "bucket-index"})
    program = """
def refusal(what):
    try:
        what()
    except (ValueError, kts.LogStorageError) as error:
        return str(error)

says = "proposals: expected the extension that has this setting, found none: "
for what in (
    lambda: KtsBroker(folder).__enter__(),
    lambda: kts.Log(f"{folder}/t-0", {"proposals": "bucket-index"}),
    lambda: kts.Log(f"{folder}/t-0", proposals=["bucket-index"]),
):
    said = refusal(what) or ""
    assert says in said and "kts.proposals" in said, said
assert says.replace("proposals", "time.index.interval.ms", 1) in refusal(
    lambda: kts.LogConfig.of({"log.time.index.interval.ms": 5}))
kts.Log(f"{folder}/t-0").close()  # without the setting it is a log as any other
"""
    without_proposals(program, tmp_path)
