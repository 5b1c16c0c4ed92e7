"""DeleteRecords, in every version."""

from __future__ import annotations

import pytest
from support.broker.asking import NOT_FOUND, Asking, listed


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_are_deleted_up_to_an_offset(asking: Asking, version: int) -> None:
    asking.create()
    log = asking.append(*range(10))
    log.advance_high_watermark(8)
    for offset, wanted in ((0, (0, 0)), (3, (0, 3)), (2, (0, 3)), (9, (1, -1)), (11, (1, -1)), (-2, (1, -1)),
                           (-1, (0, 8))):  # fmt: skip
        assert asking.delete_records(offset, version=version) == wanted
    assert log.log_start_offset == 8
    assert asking.fetch("t", 7)["error_code"] == 1
    assert listed(asking.list_offsets("t", -2)) == (0, -1, 8)
    assert listed(asking.list_offsets("t", 0)) == NOT_FOUND


def test_what_cannot_be_deleted(asking: Asking, old: Asking) -> None:
    asking.create("compacted", cleanup_policy="compact")
    asking.create("both", cleanup_policy="compact,delete")
    asking.create("__consumer_offsets")
    for name in ("compacted", "both"):
        asking.append(1, name=name, magic=1)
    old.create()
    old.append(1, magic=1)
    assert asking.delete_records(1, name="compacted") == (44, -1)
    assert asking.delete_records(1, name="both") == (0, 1)
    assert asking.delete_records(0, name="__consumer_offsets") == (17, -1)
    assert asking.delete_records(0, name="missing") == (3, -1)
    assert asking.delete_records(0, name="both", partition=4) == (3, -1)
    assert old.delete_records(1) == (35, -1)  # 0.10.2 has no log start offset of its own
