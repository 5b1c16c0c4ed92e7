"""Pools whose processes are started anew (``spawn``): logs, segments, settings and errors are sent as they are."""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
from collections.abc import Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import pytest
from support.golden import data_root
from support.processes import spawned

import kts
from kts import errors

ORDERS = data_root() / "golden" / "demo" / "orders"
ERRORS = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, kts.KtsError)]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """One process, which costs a second to start."""
    with multiprocessing.get_context("spawn").Pool(1) as found:
        yield found


@pytest.mark.slow
def test_logs_answer_there_what_they_answer_here(pool: Pool) -> None:
    with kts.open(ORDERS) as logs:
        assert isinstance(logs, kts.LogDirs)
        here = spawned.facts_of_all(logs)
        assert pool.apply(spawned.facts_of_all, (logs,)) == here
        assert pool.map(spawned.facts, list(logs.values())) == list(here.values())


@pytest.mark.slow
def test_a_log_start_offset_goes_along_and_what_is_closed_stays_closed(pool: Pool) -> None:
    log = kts.open(ORDERS / "orders-0", log_start_offset=700)
    assert isinstance(log, kts.PartitionLog)
    here = spawned.facts(log)
    assert here[0][2] == 700 and pool.apply(spawned.facts, (log,)) == here
    log.close()
    with pytest.raises(kts.LogClosedError):
        pool.apply(spawned.facts, (log,))


def test_schemas_and_settings_come_back_equal(pool: Pool) -> None:
    schema, config = kts.scan(ORDERS).schema, kts.LogConfig.of({"segment.bytes": 5000, "cleanup.policy": "compact"})
    assert pool.apply(spawned.described, (schema, config)) == (schema, config)


@pytest.mark.parametrize("how", ["damage", "policy", "locked", "missing"])
def test_an_error_there_is_the_error_here(pool: Pool, tmp_path: Path, how: str) -> None:
    with kts.Log(tmp_path / "held" / "t-1", {}):
        raised: list[BaseException] = []
        for call in (spawned.fails, lambda *given: pool.apply(spawned.fails, given)):
            with pytest.raises(Exception) as error:
                call(how, str(tmp_path / "held" if how == "locked" else tmp_path))
            raised.append(error.value)
        here, there = raised
    assert type(there) is type(here) and (there.args == here.args or how == "locked")
    assert getattr(there, "code", None) == getattr(here, "code", None)
    assert set(vars(there)) == set(vars(here))
    if how in ("damage", "policy"):
        assert vars(there) == vars(here) and vars(there)["record_index"] == 1
    if how == "locked":
        assert isinstance(there, kts.LogLockedError) and "another process" in str(there)


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_keeps_all_it_says(kind: type[kts.KtsError]) -> None:
    where: dict[str, Any] = {"path": "/a/b", "position": 2**40, "offset": 2**62, "record_index": 3}
    error = kind("expected this, found that", **where, record_errors=((3, "late"),), code=kind.code)
    error.add_note("seen by a test")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(error, protocol))
        assert type(copy) is kind and str(copy) == str(error) and copy.args == error.args
        assert vars(copy) == vars(error) and copy.code == kind.code


def test_what_is_being_read_or_written_cannot_be_sent(pool: Pool, tmp_path: Path) -> None:
    """Refused with what to do; nothing waits for ever."""
    with kts.Log(tmp_path / "t-0", {}) as log:
        for given, said in (
            (log, "open log"),
            (kts.iter_decode(b""), "holds a buffer"),
            (kts.scan(ORDERS), "pickl"),
            (kts.TimeIndex(b"", 0), "holds a buffer"),
        ):
            with pytest.raises(TypeError, match=said):
                pool.apply(spawned.facts, (given,))
