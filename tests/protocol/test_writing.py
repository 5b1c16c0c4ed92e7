"""From dicts to bytes: records are not copied, and what does not fit is refused with its field."""

from __future__ import annotations

from typing import Any

import pytest

from kts.broker import wire
from kts.broker.wire.messages import ApiKey
from kts.errors import InvalidRequestError
from kts.protocol.fields import fields_of
from kts.protocol.reading import Cursor, struct_reader
from kts.protocol.writing import Output, struct_writer


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


@pytest.mark.parametrize("tag", [None, 0])
def test_a_struct_that_may_be_null_has_a_byte_in_front(tag: int | None) -> None:
    """A field has a signed one, a tagged field a varint; a tagged struct with its default is not written at all."""
    tagged = "" if tag is None else f" tag {tag}"
    (field,) = fields_of(f"    inner {{}} 0+ null 0+{tagged}\n        n int8 0+", 0)
    write = struct_writer([field], 0, True)
    read, _ = struct_reader([field], 0, True)
    there, null = (b"\1\7\0\0", b"\xff\0") if tag is None else (b"\1\0\3\1\7\0", b"\1\0\1\0")
    for body, expected in (({"inner": {"n": 7}}, there), ({"inner": None}, null)):
        output = Output()
        write(output, body)
        assert b"".join(output.flush()) == expected
        assert read(Cursor(memoryview(expected), 9)) == body
    with pytest.raises(InvalidRequestError, match="another byte|1 bytes for a struct or null"):
        read(Cursor(memoryview(b"" if tag is None else b"\1\0\0"), 9))
