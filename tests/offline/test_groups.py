"""Copies up to a time: groups go on as of then, and what cannot be known of them is told; verify finds them beyond."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.processes.cli_runs import run

import kts
from kts.coordinator_records.groups import Committed, offset_key, offset_value
from kts.offline.copy import CopiedSegment, copy
from kts.offline.verify import verify

T = 1_790_000_000_000
COUNT, CUT = 30, 20  # records, one a second; the copy ends with the segment of the last one before CUT
GROUPS = "__consumer_offsets"
Commit = tuple[int, str, int | None]  # second, group, offset


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A topic in segments of four records."""
    with kts.Log(tmp_path / "logs" / "t-0", {"segment.bytes": 300}, clock=lambda: T) as log:
        for n in range(COUNT):
            log.append_rows({"timestamp": [T + n * 1000], "value": [b"%d" % n]})
    return tmp_path / "logs"


def commit(logs: Path, commits: Sequence[Commit], *, segment_bytes: int = 10**6, **batch: Any) -> None:
    """Commits of groups, each a batch as a coordinator writes it."""
    path, config = logs / f"{GROUPS}-0", {"segment.bytes": segment_bytes, "cleanup.policy": "compact"}
    with kts.Log(path, config, clock=lambda: T) as log:
        for second, group, offset in commits:
            at = T + second * 1000
            value = None if offset is None else offset_value(Committed(offset, 0, "", at))
            rows = {"timestamp": [at], "key": [offset_key(group, "t", 0)], "value": [value]}
            log.append(kts.encode(rows, **batch))


def groups(path: Path) -> dict[str, int]:
    found = kts.committed_offsets(path)
    assert all(lag >= 0 for lag in found["lag"].to_pylist())
    return dict(zip(found["group"].to_pylist(), found["currentOffset"].to_pylist(), strict=True))


def copied(logs: Path, target: Path, second: int | None = CUT, **more: Any) -> tuple[list[CopiedSegment], list[str]]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        end = None if second is None else T + second * 1000
        done = copy(logs, target, ending_timestamp=end, **more)
    return done, [str(one.message) for one in told]


COMMITS: list[Commit] = [
    (5, "a", 5), (6, "gone", 6), (10, "a", 9), (12, "gone", None), (19, "b", 19), (19, "left", 4),
    (20, "a", 19), (21, "left", None), (25, "a", 24), (26, "b", 26),
]  # fmt: skip


@pytest.mark.parametrize("segment_bytes", [10**6, 300])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_groups_go_on_as_of_the_end_of_the_copy(
    compression: str, segment_bytes: int, logs: Path, tmp_path: Path
) -> None:
    commit(logs, COMMITS, segment_bytes=segment_bytes, compression=compression)
    for _ in range(2):
        done, told = copied(logs, tmp_path / "copy")
        assert groups(tmp_path / "copy") == {"a": 9, "b": 19, "left": 4} and told == []
        assert not any(one.rebuilt for one in done)
        assert list(map(str, verify(tmp_path / "copy", deep=True))) == []
    rows = kts.scan(tmp_path / "copy", topics=GROUPS, columns=["offset", "timestamp", "key", "value"]).read_all()
    every = kts.scan(logs, topics=GROUPS, columns=["offset", "timestamp", "key", "value"]).read_all()
    assert rows == every.slice(0, 6), "byte for byte, with their offsets"
    with kts.Log(tmp_path / "copy" / f"{GROUPS}-0") as log:
        assert (log.clean_start, log.recovered, log.log_end_offset) == (True, [], 6)
    copied(logs, tmp_path / "copy", None)
    assert kts.scan(tmp_path / "copy", topics=GROUPS).read_all() == kts.scan(logs, topics=GROUPS).read_all()


def test_groups_of_another_time_than_the_records(logs: Path, tmp_path: Path) -> None:
    commit(logs, COMMITS)
    copied(logs, tmp_path / "early", groups_at=T + 11_000)
    assert groups(tmp_path / "early") == {"a": 9, "gone": 6, "b": 19, "left": 4}, "b and left: their first ones after"
    copied(logs, tmp_path / "all", None, groups_at=T + 19_001)
    assert groups(tmp_path / "all") == {"a": 9, "b": 19, "left": 4}
    assert kts.scan(tmp_path / "all", topics="t").read_all().num_rows == COUNT
    _, told = copied(logs, tmp_path / "late", 9, groups_at=T + 60_000)
    assert groups(tmp_path / "late") == {"a": 12, "b": 12}
    assert len(told) == 2 and "group a of t-0 committed offset 24 before" in told[0] and "ends at 12" in told[0]


def test_a_group_that_is_only_known_from_later_is_told_and_goes_on_where_it_can(logs: Path, tmp_path: Path) -> None:
    """It began later, or the cleaner removed what it had committed before."""
    commit(logs, [(5, "a", 5), (22, "late", 2), (25, "late", 25), (26, "beyond", 26)])
    _, told = copied(logs, tmp_path / "copy")
    assert groups(tmp_path / "copy") == {"a": 5, "late": 2, "beyond": 20}
    assert [("group late of t-0" in one, "goes on at 2" in one) for one in sorted(told, reverse=True)][0] == (
        True,
        True,
    )
    assert any("group beyond of t-0 has no offset from before" in one and "goes on at 20" in one for one in told)
    assert list(map(str, verify(tmp_path / "copy", deep=True))) == []
    shutil.rmtree(tmp_path / "copy")
    shutil.rmtree(logs / f"{GROUPS}-0")
    commit(logs, [(26, "beyond", 26)])
    end = kts.times.show_time(T + CUT * 1000)
    done = run("copy", logs, tmp_path / "copy", "--to", end)
    assert "group beyond of t-0" in done.stderr and groups(tmp_path / "copy") == {"beyond": 20}


def test_many_groups_are_told_in_a_few_lines(logs: Path, tmp_path: Path) -> None:
    commit(logs, [(25, f"g{n:03}", 25) for n in range(100)])
    _, told = copied(logs, tmp_path / "copy")
    assert len(told) == 21 and "80 more" in told[-1] and set(groups(tmp_path / "copy").values()) == {20}


def test_only_what_a_transaction_had_committed_by_then_counts(logs: Path, tmp_path: Path) -> None:
    path = logs / f"{GROUPS}-0"
    commit(logs, [(5, "a", 1)])
    who = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    with kts.Log(path, clock=lambda: T) as log:
        for second, marked, offset in [(6, 7, 6), (18, 21, 18)]:
            at = T + second * 1000
            key, value = offset_key("a", "t", 0), offset_value(Committed(offset, 0, "", at))
            end = log.log_end_offset
            rows = {"timestamp": [at], "key": [key], "value": [value]}
            log.append_as_follower(kts.encode(rows, base_offset=end, base_sequence=end - 1, **who))
            mark = {"timestamp": [T + marked * 1000], "key": [b"\0\0\0\1"], "value": [b"\0" * 6]}
            log.append_as_follower(kts.encode(mark, base_offset=end + 1, control=True, **who))
        rows = {"timestamp": [T + 19_000], "key": [offset_key("hangs", "t", 0)], "value": [value]}
        log.append_as_follower(kts.encode(rows, base_offset=5, base_sequence=0, **who | {"producer_id": 8}))
    commit(logs, [(25, "late", 25)])
    assert groups(logs) == {"a": 18, "late": 25}
    _, told = copied(logs, tmp_path / "copy")
    assert groups(tmp_path / "copy") == {"a": 6, "late": 20}
    assert len(told) == 1 and "group late of t-0" in told[0], "what lies behind an open transaction is seen, too"
    assert list(map(str, verify(tmp_path / "copy", deep=True))) == []


def test_verify_finds_a_group_beyond_the_end_of_its_log(logs: Path) -> None:
    commit(logs, [(5, "a", COUNT), (6, "b", COUNT + 1), (7, "c", 99), (8, "c", None)])
    (found,) = verify(logs)
    assert (found.kind, found.path) == ("group", str(logs / f"{GROUPS}-0"))
    assert found.message == f"group b committed offset {COUNT + 1} of t-0, and its log ends at {COUNT}"
    done = run("verify", logs, code=1)
    assert "group b committed" in done.stdout and "group a" not in done.stdout
    assert [line for line in done.stderr.splitlines() if line.startswith("next: ")] == [f"next: kts groups {logs}"]
    run("verify", logs, "--topic", "t")
