"""``kts truncate``: says what would go and changes nothing; with --in-place does just that."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.golden import Golden, golden
from support.processes.cli_runs import lines, run

import kts

ORDERS = golden("demo", "orders")
LEGACY = golden("demo", "legacy")


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder: its bytes and its time."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def offsets(path: Path) -> list[int]:
    return kts.scan(path, columns=["offset"], include_control=True).read_all()["offset"].to_pylist()


def truncate(path: Path, to_offset: int, *options: str) -> dict[str, Any]:
    [answer] = lines("truncate", path, "--to-offset", to_offset, "--json", *options)
    return answer


@pytest.mark.parametrize("scenario", [ORDERS, LEGACY], ids=str)
def test_in_place_takes_what_the_dry_run_said_and_no_more(scenario: Golden, tmp_path: Path, rng: random.Random) -> None:
    for number in range(3):
        copy = scenario.copy(tmp_path / str(number))
        path = copy.partition_dir(copy.partitions[0])
        before = offsets(path)
        for target in sorted(rng.sample(range(before[0], before[-1] + 1), 3), reverse=True):
            was = files(copy.log_dir)
            size = sum(log.stat().st_size for log in path.glob("*.log"))
            plan = truncate(path, target)
            assert not plan["done"] and files(copy.log_dir) == was
            done = truncate(path, target, "--in-place")
            assert done == plan | {"done": True}
            left = offsets(path)
            assert left == before[: len(left)] and len(before) - len(left) == done["records"]
            gone = before[len(left) :]
            assert [offset for offset in gone if offset < target] == between(done["earlierOffsets"], gone)
            assert all(offset < target for offset in left)
            assert size - sum(log.stat().st_size for log in path.glob("*.log")) == done["sizeInBytes"]
            assert "OK" in run("verify", path).stdout
            with kts.Log(path, {"message.format.version": "0.10.2" if scenario is LEGACY else "3.9"}) as log:
                assert log.log_end_offset == done["logEndOffset"] and log.recovered == []
            before = left


def between(given: dict[str, int] | None, gone: list[int]) -> list[int]:
    return [] if given is None else [offset for offset in gone if given["first"] <= offset <= given["last"]]


def test_people_see_which_segments_go_and_why_earlier_offsets_do() -> None:
    shown = run("truncate", ORDERS.partition_dir("orders-0"), "--to-offset", 1000).stdout.splitlines()
    assert shown[0].split() == ["segment", "would", "go", "batches", "records", "size"]
    assert shown[1].startswith("00000000000000000000.log  from position 89,335        7      145")
    assert [line.split()[:4] for line in shown[2:5]] == [
        [f"{base:020d}.log", "all", "of", "it"] for base in (1138, 1363, 2826)
    ]
    assert shown[5] == "offset 1000 lies inside a batch, which goes as a whole, with offsets 993 to 999"
    assert shown[6] == "2,049 records in 101 batches, 176.9 KiB would be cut; the log would end at offset 993"


def test_in_place_says_what_it_did(writable: Callable[[Golden], Golden]) -> None:
    path = writable(ORDERS).partition_dir("orders-0")
    shown = run("truncate", path, "--to-offset", 1000, "--in-place").stdout.splitlines()
    assert shown[0].split() == ["segment", "gone", "batches", "records", "size"]
    assert shown[-1] == "2,049 records in 101 batches, 176.9 KiB cut; the log ends at offset 993"


def test_from_the_log_s_end_on_there_is_nothing_to_cut(writable: Callable[[Golden], Golden]) -> None:
    path = writable(ORDERS).partition_dir("orders-0")
    before = offsets(path)
    for target in (before[-1] + 1, before[-1] + 1000):
        for options in ([], ["--in-place"]):
            shown = run("truncate", path, "--to-offset", target, *options).stdout
            assert shown == f"nothing to cut: the log ends at offset {before[-1] + 1}\n"
    assert offsets(path) == before


def test_everything_goes_from_the_first_offset_on(writable: Callable[[Golden], Golden]) -> None:
    path = writable(ORDERS).partition_dir("orders-0")
    done = truncate(path, 0, "--in-place")
    assert offsets(path) == [] and done["logEndOffset"] == 0 and done["records"] == 3042
    with kts.Log(path) as log:
        assert log.append(kts.encode({"value": [b"x"]})).first_offset == 0


def test_a_log_in_use_is_left_alone(writable: Callable[[Golden], Golden]) -> None:
    scenario = writable(ORDERS)
    path = scenario.partition_dir("orders-0")
    with kts.Log(path):
        was = {name: data for name, (data, _) in files(path).items()}
        said = run("truncate", path, "--to-offset", 5, "--in-place", code=3).stderr
        assert "already open for writing" in said and "stop the broker (or the other program) first" in said
        assert {name: data for name, (data, _) in files(path).items()} == was
        assert json.loads(run("truncate", path, "--to-offset", 5, "--json").stdout)["records"] > 0


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    path = ORDERS.partition_dir("orders-0")
    assert "--to-offset" in run("truncate", path, code=2).stderr
    assert "is not in the range" in run("truncate", path, "--to-offset", -1, code=2).stderr
    assert "expected one partition directory" in run("truncate", ORDERS.log_dir, "--to-offset", 5, code=2).stderr
    lone = ORDERS.logs("orders-0")[0]
    assert "expected one partition directory" in run("truncate", lone, "--to-offset", 5, code=2).stderr
    assert "no such file" in run("truncate", tmp_path / "t-0", "--to-offset", 5, "--in-place", code=2).stderr
    assert not (tmp_path / "t-0").exists()
