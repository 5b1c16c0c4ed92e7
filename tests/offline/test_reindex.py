"""Rebuilding indexes: what differs from what the log gives, and how a file is replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.golden import Golden, golden, golden_partitions

import kts
from kts.behaviour import Behaviour
from kts.errors import LogLockedError
from kts.offline.reindex import generation_of, locked, reindex, replace, write_aside
from kts.segment.locks import FileLock
from kts.segment.rebuild import IndexConfig

ORDERS = golden("demo", "orders")


def states(log: kts.PartitionLog) -> dict[str, str]:
    found = reindex(log, IndexConfig(behaviour=Behaviour.of(generation_of(log))))
    return {Path(one.path).name: one.state for segment in found for one in segment.indexes}


def test_a_log_is_of_the_generation_of_its_first_entry(tmp_path: Path) -> None:
    for magic, generation in ((0, "0.10.2"), (1, "0.10.2"), (2, "3.9")):
        folder = tmp_path / f"t-{magic}"
        folder.mkdir()
        for base, format in ((0, magic), (1, 2)):
            (folder / f"{base:020}.log").write_bytes(kts.encode({"value": [b"x"]}, magic=format, base_offset=base))
        assert generation_of(kts.open(folder)) == generation


@pytest.mark.parametrize(("scenario", "name"), golden_partitions()[::4], ids=str)
def test_what_a_broker_wrote_agrees_with_its_log(scenario: Golden, name: str) -> None:
    log = kts.open(scenario.partition_dir(name), log_start_offset=0)
    found = list(reindex(log, IndexConfig(behaviour=Behaviour.of(generation_of(log)))))
    assert [segment.valid_bytes for segment in found] == [segment.size_bytes for segment in found]
    assert not [one for segment in found for one in segment.indexes if one.state == "differs"]


def test_a_spoiled_index_is_named_and_replaced_by_what_the_broker_had(
    writable: Callable[[Golden], Golden], tmp_path: Path
) -> None:
    folder = writable(ORDERS).partition_dir("orders-0")
    log = kts.open(folder)
    assert set(states(log).values()) == {"equal"}
    path = min(folder.glob("*.timeindex"))
    before = path.read_bytes()
    for data, state in ((None, "missing"), (b"", "empty"), (before[:-12] + before[:12], "differs")):
        path.unlink(missing_ok=True)
        if data is not None:
            path.write_bytes(data)
        assert {name: said for name, said in states(log).items() if said != "equal"} == {path.name: state}
    config = IndexConfig(behaviour=Behaviour.of(generation_of(log)))
    [wrong] = [one for segment in reindex(log, config) for one in segment.indexes if one.is_finding]
    assert wrong.rebuilt == before and wrong.rebuilt_entries == len(before) // 12
    (tmp_path / "aside").mkdir()
    assert Path(write_aside(wrong, str(tmp_path / "aside"))).read_bytes() == before
    assert path.read_bytes() != before
    replace(wrong)
    assert path.read_bytes() == before


def test_nothing_is_written_below_another_programs_lock(writable: Callable[[Golden], Golden]) -> None:
    scenario = writable(ORDERS)
    log = kts.open(scenario.partition_dir("orders-0"))
    lock = FileLock(str(scenario.log_dir / ".lock"), str(scenario.partition_dir("orders-0").resolve()))
    with lock, pytest.raises(LogLockedError), locked(log):
        pytest.fail("it was not held")
    with locked(log):
        assert (scenario.log_dir / ".lock").exists()
