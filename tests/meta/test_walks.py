"""The walks of docs/architecture.md as they are measured: how often a room calls one that lies above it.

Imports go down only, so such a call, a climb, goes to something that was handed down: a function, or a partition as
what the rooms below ask of it.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.sets.batches import batches
from test_lint import ROOT, floor, module_name

import kts
import kts.tables
from kts.cli.demo import write_demo
from kts.spark.options import parse_options
from kts.spark.planning import plan_tasks

ROW = re.compile(r"^\| `(\w[\w. ]*)` \| (\d+) \|", re.MULTILINE)
OURS = f"{ROOT / 'kts'}{os.sep}"


def stated() -> dict[str, int]:
    """The number of climbs of each walk, by the page."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    return {name: int(count) for name, count in ROW.findall(page.partition("### As they are measured")[2])}


def climbs(work: Callable[[], object]) -> set[tuple[str, str]]:
    """The calls from a room to one above it: (the module that calls, the function that is called)."""
    found: set[tuple[str, str]] = set()

    def place(frame: types.FrameType) -> tuple[str, int] | None:
        path = frame.f_code.co_filename
        if not path.startswith(OURS):
            return None
        module = module_name(Path(path))
        return module, floor(module)[1]

    def called(frame: types.FrameType, event: str, arg: Any) -> None:
        callee = place(frame) if event == "call" else None
        if callee is None:
            return
        back = frame.f_back
        while back is not None and (caller := place(back)) is None:
            back = back.f_back
        # The lowest floor is asked by all, and calls what declares options.
        if back is not None and caller is not None and 0 < caller[1] < callee[1]:
            found.add((caller[0], f"{callee[0]}.{frame.f_code.co_name}"))

    work()  # what is done once a process is no part of the walk
    threading.setprofile(called)
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return found


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[], object]]:
    home = tmp_path_factory.mktemp("walks")
    write_demo(str(home / "demo"))
    [partition] = home.glob("demo/**/orders-0")
    topics, number = str(partition.parent), itertools.count()
    log = kts.Log(home / "written-0", {"segment.bytes": 5000}, clock=lambda: 10**12)
    records = batches(4)
    options = parse_options({"path": topics, "subscribe": "orders"})
    return {
        "kts.decode": lambda: kts.decode(records),
        "kts.scan": lambda: kts.scan(partition).read_all(),
        "Log.append": lambda: [log.append(records) for _ in range(100)],
        "Log.offset_for_timestamp": lambda: log.offset_for_timestamp(10**12),
        "PartitionLog.offset_for_timestamp": lambda: kts.open_partition(partition).offset_for_timestamp(10**12),
        "Spark plan": lambda: plan_tasks(options),
        "sync": lambda: kts.tables.sync(topics, str(home / f"table-{next(number)}")),
    }


def test_every_walk_climbs_as_often_as_the_page_says(walks: dict[str, Callable[[], object]]) -> None:
    found = {name: climbs(walk) for name, walk in walks.items()}
    told = "\n".join(f"{name}: {above} is called by {below}" for name, both in found.items() for below, above in both)
    assert {name: len(both) for name, both in found.items()} == stated(), told
