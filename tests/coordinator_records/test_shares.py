"""The records of ``__share_group_state``."""

from __future__ import annotations

import pytest

from kts.coordinator_records.shares import SHARE_KEY_LAYOUT, SNAPSHOT, SNAPSHOT_LAYOUT, UPDATE, UPDATE_LAYOUT
from kts.errors import KtsError

BATCHES = [{"first_offset": 5, "last_offset": 6, "delivery_state": 2, "delivery_count": 1}]


def test_records_are_kafkas_byte_for_byte() -> None:
    """Layouts from Kafka's message definitions, written out by hand."""
    key = {"group": "sg", "topic_id": bytes(range(16)), "partition": 3}
    assert SHARE_KEY_LAYOUT.write(UPDATE, key) == b"\0\1\0\2sg" + bytes(range(16)) + b"\0\0\0\3"
    assert SHARE_KEY_LAYOUT.read(SHARE_KEY_LAYOUT.write(SNAPSHOT, key)) == key
    batches = b"\2" + bytes(7) + b"\5" + bytes(7) + b"\6" + b"\2" + b"\0\1" + b"\0"
    update = {"snapshot_epoch": 1, "leader_epoch": 2, "start_offset": 4, "state_batches": BATCHES}
    data = b"\0\0" + b"\0\0\0\1" + b"\0\0\0\2" + bytes(7) + b"\4" + batches + b"\1\0\4\0\0\0\7"
    assert UPDATE_LAYOUT.read(data) == update | {"delivery_complete_count": 7}
    assert UPDATE_LAYOUT.write(0, update | {"delivery_complete_count": 7}) == data
    times = bytes(7) + b"\x08" + bytes(7) + b"\x09"
    snapshot = update | {"state_epoch": 3, "create_timestamp": 8, "write_timestamp": 9}
    data = b"\0\0" + b"\0\0\0\1\0\0\0\3\0\0\0\2" + bytes(7) + b"\4" + times + batches + b"\0"
    assert SNAPSHOT_LAYOUT.read(data) == snapshot | {"delivery_complete_count": -1}


def test_cut_records_are_refused() -> None:
    whole = UPDATE_LAYOUT.write(
        0, {"snapshot_epoch": 1, "leader_epoch": 2, "start_offset": 4, "state_batches": BATCHES}
    )
    for cut in range(len(whole)):
        with pytest.raises(KtsError):
            UPDATE_LAYOUT.read(whole[:cut])
