"""An interrupted swap: readers give what a broker gives after it completed the swap, and no crash changes that."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from support.disk.crashdisk import State, read_tree, write_tree
from support.disk.faultfs import FaultyOs
from support.disk.scripted_lives import in_place_of_os, quick_directory
from support.golden import scaled
from support.sets.log_records import NOW, batch

import kts

Files = dict[str, tuple[int, ...]]  # by name without the zeros: the first offsets of the batches, each of 3 records

STATES: dict[str, tuple[Files, list[int]]] = {  # as a broker 3.9.2 served them after its start
    "none deleted": ({"0.log": (0, 3), "6.log": (6, 9), "0.log.swap": (3, 9), "12.log": (12,)}, [3, 9, 12]),
    "one deleted": ({"0.log.deleted": (0, 3), "6.log": (6, 9), "0.log.swap": (3, 9), "12.log": (12,)}, [3, 9, 12]),
    "all deleted": (
        {"0.log.deleted": (0, 3), "6.log.deleted": (6, 9), "0.log.swap": (3, 9), "12.log": (12,)},
        [3, 9, 12],
    ),
    "three covered": (
        {"0.log": (0,), "3.log": (3,), "6.log": (6, 9), "0.log.swap": (0, 6), "12.log": (12,)},
        [0, 6, 12],
    ),
    "swap below cleaned": (
        {"0.log": (0, 3), "6.log": (6, 9), "0.log.swap": (3,), "6.log.cleaned": (9,), "12.log": (12,)},
        [3, 6, 9, 12],
    ),
    "swap above cleaned": (
        {"0.log": (0, 3, 6, 9), "0.log.cleaned": (0, 3), "6.log.swap": (6, 9), "12.log": (12,)},
        [0, 3, 6, 9, 12],
    ),
    "split": ({"0.log": (0, 3, 6, 9), "0.log.swap": (0, 3), "6.log.swap": (6, 9), "12.log": (12,)}, [0, 3, 6, 9, 12]),
}


def laid(folder: Path | str, files: Files) -> Path:
    path = Path(folder) / "t-0"
    path.mkdir(parents=True)
    for name, firsts in files.items():
        data = b"".join(batch(*range(NOW + one, NOW + one + 3), base_offset=one) for one in firsts)
        base, _, suffix = name.partition(".")
        (path / f"{int(base):020d}.{suffix}").write_bytes(data)
    return path


def offsets(path: Path | str) -> list[int]:
    found: list[int] = kts.scan(path, columns=["offset"]).read_all().column("offset").to_pylist()
    return found


def threes(firsts: list[int]) -> list[int]:
    return [first + i for first in firsts for i in range(3)]


def drawn(rng: random.Random) -> Files:
    """Segments of a log, and swaps and other files on their way that replace some of them."""
    borders = sorted({0, *rng.sample(range(3, 30, 3), rng.randrange(1, 5))})
    files = {f"{base}.log": tuple(range(base, end, 3)) for base, end in zip(borders, [*borders[1:], 30], strict=True)}
    swapped = 0  # swaps do not overlap
    for base in borders:
        kind = rng.choice(["", "", ".swap", ".swap", ".cleaned", ".deleted"])
        if kind == ".deleted":
            files[f"{base}.log.deleted"] = files.pop(f"{base}.log")
        elif kind and base >= swapped:
            swapped = rng.choice([one for one in [*borders, 30] if one > base])
            files[f"{base}.log{kind}"] = tuple(one for one in range(base, swapped, 3) if rng.random() > 0.3)
    return files


@pytest.mark.parametrize("state", STATES)
def test_readers_give_what_a_broker_gives_after_it_completed_a_swap(state: str, tmp_path: Path) -> None:
    path, wanted = laid(tmp_path, STATES[state][0]), threes(STATES[state][1])
    before = read_tree(str(path))
    assert offsets(path) == wanted
    assert kts.open(path).batches().read_all().num_rows * 3 == len(wanted)  # type: ignore[union-attr]
    assert read_tree(str(path)) == before
    with kts.Log(path, clock=lambda: NOW) as log:
        assert log.scan(columns=["offset"]).read_all().column("offset").to_pylist() == wanted
    assert offsets(path) == wanted


def test_readers_and_a_start_agree_about_any_swap(tmp_path: Path, rng: random.Random) -> None:
    for number in range(scaled(20, 100)):
        files = drawn(rng)
        path = laid(tmp_path / f"{number}", files)
        found = offsets(path)
        with kts.Log(path, clock=lambda: NOW) as log:
            assert log.scan(columns=["offset"]).read_all().column("offset").to_pylist() == found, files
        assert offsets(path) == found, files


@pytest.mark.parametrize("name", STATES)
def test_a_crash_while_a_swap_is_completed_changes_nothing_that_is_read(name: str, rng: random.Random) -> None:
    wanted = threes(STATES[name][1])
    with quick_directory() as folder:
        home = os.path.join(folder, "life")
        system = FaultyOs(str(laid(home, STATES[name][0]).parent))
        disk = system.disk()
        with in_place_of_os(system):
            log = kts.Log(os.path.join(home, "t-0"), clock=lambda: NOW)
            log.abandon()
        found: dict[int, State] = {}
        for op in system.trace:
            disk.step(op)
            found |= {state.digest(): state for state in disk.states(rng, count=3)}
        for state in rng.sample(list(found.values()), min(len(found), scaled(6, 20))):
            where = os.path.join(folder, "crashed")
            write_tree(where, state.tree)
            assert offsets(f"{where}/t-0") == wanted, state.label
            with kts.Log(f"{where}/t-0", clock=lambda: NOW) as log:
                assert log.scan(columns=["offset"]).read_all().column("offset").to_pylist() == wanted
            shutil.rmtree(where)
