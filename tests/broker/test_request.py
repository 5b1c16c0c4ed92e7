"""A decoded request and its sender."""

from __future__ import annotations

from pathlib import Path

from kts.broker.broker import Broker
from kts.broker.request import Peer, Request
from kts.broker.wire.messages import ApiKey


def test_a_request_from_inside_the_process_reached_no_address_of_the_broker(tmp_path: Path) -> None:
    inside = Request(ApiKey.METADATA, 0, None, {})
    outside = inside._replace(connection=Peer("127.0.0.1", ("127.0.0.3", 9093)))
    with Broker(tmp_path) as broker:
        broker.listener = ("0.0.0.0", 9093)
        assert [broker.advertised(each) for each in (inside, outside)] == [("0.0.0.0", 9093), ("127.0.0.3", 9093)]
