"""The modes that a log follows: chosen by name, and nothing at all without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.golden import PATIENCE_S

import kts
from kts.config import PROPOSALS, ROLLING_PROPOSALS, LogConfig
from kts.proposals import MODES, made
from kts.proposals.modes import RollingMode


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


def test_the_settings_know_each_proposal_by_name() -> None:
    assert tuple(MODES) == PROPOSALS
    rolling = [name for name, make in MODES.items() if isinstance(make(LogConfig()), RollingMode)]
    assert tuple(rolling) == ROLLING_PROPOSALS


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
