"""From dicts to bytes: records are not copied, and what does not fit is refused with its field."""

from __future__ import annotations

from typing import Any

import pytest

from kts.broker import wire
from kts.broker.wire.messages import ApiKey
from kts.errors import InvalidRequestError


def produce_data(records: Any) -> list[Any]:
    return [{"name": "t", "partition_data": [{"index": 2, "records": records}]}]


def fetched(**partition: Any) -> dict[str, Any]:
    body = {"partition_index": 2, "high_watermark": 7, "records": b"abc", **partition}
    return {"throttle_time_ms": 1, "responses": [{"topic": "t", "partitions": [body]}]}


def test_records_are_not_copied() -> None:
    frame = wire.encode_request(ApiKey.PRODUCE, 9, 1, "c", {"topic_data": produce_data(b"x" * 5000)})[4:]
    records = wire.decode_request(memoryview(frame))[1]["topic_data"][0]["partition_data"][0]["records"]
    assert isinstance(records, memoryview)
    assert records.obj is frame
    large = memoryview(b"y" * 5000)
    chunks = wire.encode_response(ApiKey.FETCH, 4, 1, fetched(records=large))
    assert any(chunk is large for chunk in chunks)
    assert len(chunks) == 2


def test_a_body_that_does_not_fit_is_refused_with_the_field() -> None:
    with pytest.raises(InvalidRequestError, match=r"FETCH version 4 .*: responses\[0\]\.partitions\[0\]"):
        wire.encode_response(ApiKey.FETCH, 4, 1, fetched(high_watermark=2**63))
    with pytest.raises(
        InvalidRequestError, match=r"METADATA version 1 .*: topics\[0\]\.name: expected string, found None"
    ):
        wire.encode_request(ApiKey.METADATA, 1, 1, "c", {"topics": [{"name": None}]})
