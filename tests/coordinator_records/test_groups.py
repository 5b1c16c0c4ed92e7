"""The records of ``__consumer_offsets``."""

from __future__ import annotations

import pytest
from support.broker.group_play import T, committed, subscription

from kts.coordinator_records.groups import (
    Committed,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group,
    read_key,
    read_offset,
    subscribed_topics,
)
from kts.errors import KtsError


def test_records_are_kafkas_byte_for_byte() -> None:
    """Layouts from Kafka's message definitions, written out by hand."""
    assert offset_key("gé", "t", 258) == b"\0\1\0\3g\xc3\xa9\0\1t\0\0\1\2"
    assert group_key("g") == b"\0\2\0\1g"
    plain = b"\0\3" + b"\0\0\0\0\0\0\0\7" + b"\0\0\0\3" + b"\0\1m" + T.to_bytes(8, "big")
    assert offset_value(Committed(7, 3, "m", T)) == plain
    expiring = b"\0\1" + b"\0\0\0\0\0\0\0\7" + b"\0\1m" + T.to_bytes(8, "big") + (T + 1).to_bytes(8, "big")
    assert offset_value(Committed(7, -1, "m", T, T + 1)) == expiring
    assert read_offset(b"\0\0" + bytes(7) + b"\7\0\1m" + bytes(8)) == Committed(7, -1, "m", 0)
    flexible = b"\0\4" + bytes(7) + b"\7" + b"\xff\xff\xff\xff" + b"\2m" + bytes(8) + b"\1\0\x10" + bytes(16)
    assert read_offset(flexible) == Committed(7, -1, "m", 0)
    member = {
        "member_id": "m",
        "group_instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout": 1,
        "session_timeout": 2,
        "subscription": b"s",
        "assignment": b"",
    }
    group = {
        "protocol_type": "consumer",
        "generation": 5,
        "protocol": "range",
        "leader": "m",
        "current_state_timestamp": 9,
        "members": [member],
    }
    head = b"\0\x08consumer\0\0\0\5\0\5range\0\1m"
    tail = b"\0\1c\0\2/h\0\0\0\1\0\0\0\2\0\0\0\1s\0\0\0\0"
    assert group_value(group) == b"\0\3" + head + bytes(7) + b"\x09\0\0\0\1\0\1m\xff\xff" + tail
    assert read_group(group_value(group)) == group
    oldest = b"\0\0" + head + b"\0\0\0\1\0\1m\0\1c\0\2/h\0\0\0\2\0\0\0\1s\0\0\0\0"
    older = group | {"current_state_timestamp": -1, "members": [member | {"rebalance_timeout": 2}]}
    assert read_group(oldest) == older


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1\0\5a", b"\0\0\x7f\xff\xff\xff"])
def test_what_is_no_subscription_names_no_topics(data: bytes) -> None:
    assert subscribed_topics(data) is None
    assert subscribed_topics(subscription("t", "u")) == {"t", "u"}


def test_cut_records_are_refused() -> None:
    for whole, read in (
        (offset_key("g", "t", 1), read_key),
        (group_key("g"), read_key),
        (offset_value(committed(1)), read_offset),
    ):
        for cut in range(len(whole)):
            with pytest.raises(KtsError):
                read(whole[:cut])
