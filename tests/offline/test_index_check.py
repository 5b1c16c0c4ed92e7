"""The transaction index of a segment is compared with its log; other indexes: test_verify."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from support.golden import Golden, golden_partitions

from kts.offline.verify import verify


def transactional() -> tuple[Golden, str] | None:
    for scenario, name in golden_partitions():
        if list(scenario.partition_dir(name).glob("*.txnindex")) and not scenario.name.startswith("compact"):
            return scenario, name
    return None


@pytest.mark.parametrize("how", ["gone", "cut", "version", "first offset", "last offset"])
def test_aborted_transactions_are_compared_with_the_log(how: str, writable: Callable[[Golden], Golden]) -> None:
    found = transactional()
    if found is None:
        pytest.fail("the test data has no transactional scenario")
    scenario, name = found
    path = min(writable(scenario).partition_dir(name).glob("*.txnindex"))
    data, width = path.read_bytes(), struct.calcsize(">hqqqq")
    first = list(struct.unpack(">hqqqq", data[:width]))
    number = {"version": 0, "first offset": 2, "last offset": 3}.get(how)
    if how == "gone":
        path.unlink()
    elif number is None:
        path.write_bytes(data[:-1])
    else:
        first[number] += 9 if how == "version" else 1
        path.write_bytes(struct.pack(">hqqqq", *first) + data[width:])
    found_kinds = {one.kind for one in verify(path.parent)}
    assert found_kinds == {"txn-index"}
