"""The records of ``__transaction_state``."""

from __future__ import annotations

import pytest

from kts.coordinator_records.transactions import TRANSACTION_KEY_LAYOUT, TRANSACTION_LAYOUT
from kts.errors import KtsError

HEAD = bytes(7) + b"\7" + b"\0\3" + b"\0\0\0\5" + b"\1"  # producer id, epoch, timeout, state
TIMES = bytes(7) + b"\x09" + bytes(7) + b"\x08"
FOUND = {
    "producer_id": 7,
    "previous_producer_id": -1,
    "next_producer_id": -1,
    "producer_epoch": 3,
    "next_producer_epoch": -1,
    "timeout_ms": 5,
    "state": 1,
    "partitions": [{"topic": "t", "partitions": [2]}],
    "last_update_timestamp": 9,
    "start_timestamp": 8,
    "client_transaction_version": 0,
}


def test_records_are_kafkas_byte_for_byte() -> None:
    """Layouts from Kafka's message definitions, written out by hand."""
    assert TRANSACTION_KEY_LAYOUT.read(b"\0\0\0\2id") == {"transactional_id": "id"}
    plain = b"\0\0" + HEAD + b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\2" + TIMES
    assert TRANSACTION_LAYOUT.read(plain) == FOUND
    assert TRANSACTION_LAYOUT.write(0, FOUND) == plain
    tagged = b"\4" + b"\0\x08" + bytes(7) + b"\6" + b"\1\x08" + bytes(7) + b"\5" + b"\2\2\0\2" + b"\3\2\0\4"
    flexible = b"\0\1" + HEAD + b"\2\2t\2\0\0\0\2\0" + TIMES + tagged
    more = {"previous_producer_id": 6, "next_producer_id": 5, "client_transaction_version": 2, "next_producer_epoch": 4}
    assert TRANSACTION_LAYOUT.read(flexible) == FOUND | more
    assert TRANSACTION_LAYOUT.write(1, FOUND | more) == flexible


def test_tagged_fields_of_a_newer_kafka_are_skipped() -> None:
    value = b"\0\1" + HEAD + b"\0" + TIMES + b"\1\x63\2xy"
    assert TRANSACTION_LAYOUT.read(value) == FOUND | {"partitions": None}


def test_cut_records_are_refused() -> None:
    for version in (0, 1):
        whole = TRANSACTION_LAYOUT.write(version, FOUND)
        for cut in range(len(whole)):
            with pytest.raises(KtsError):
                TRANSACTION_LAYOUT.read(whole[:cut])
