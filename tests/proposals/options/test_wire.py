"""The private versions' layouts, byte by byte, and errors that keep their code over the wire."""

from __future__ import annotations

import pytest
from support.broker.option_replicas import LAYOUTS

from kts import errors
from kts.broker import wire
from kts.errors import InvalidRequestError, OffsetOutOfRangeError
from kts.proposals.options.wire import FETCH, PRIVATE_VERSIONS, VERSION, ask_partition, error_of


def test_a_time_index_entry_is_logappendtime_int64_and_offset_int32() -> None:
    entry = {"log_append_time": 0x0102030405060708, "offset": -1}
    rows = [{"partition": 0, "error_code": 0, "records": b"\xaa\xbb", "time_index": [entry]}]
    body = {"topics": [{"topic": "t", "partitions": rows}]}
    sent = b"".join(map(bytes, wire.encode_response(FETCH, VERSION, 1, body, private=LAYOUTS)))  # type: ignore[arg-type]
    records, index = bytes.fromhex("00000002 aabb"), bytes.fromhex("00000001 0102030405060708 ffffffff")
    assert records + index in sent
    assert sent.endswith(index + b"\xff" * 8)  # index_last_offset


def test_the_private_version_is_one_that_kafka_never_uses() -> None:
    assert {version for _, version in PRIVATE_VERSIONS} == {VERSION}
    assert VERSION >= wire.PRIVATE_FROM
    assert all(wire.versions(key)[1] < VERSION for key, _ in PRIVATE_VERSIONS)


def test_an_error_keeps_its_class_and_its_code() -> None:
    assert type(error_of(1, "x")) is OffsetOutOfRangeError
    assert (type(error_of(77, "x")), error_of(77, "x").code) == (errors.KtsError, 77)
    for name in errors.__all__:
        kind = getattr(errors, name)
        if getattr(kind, "code", -1) != -1:
            assert issubclass(kind, type(error_of(kind.code, "x")))


def test_an_answer_about_another_partition_is_none() -> None:
    class Other:
        def ask(self, api: int, version: int, body: object, /) -> dict[str, object]:
            return {"topics": [{"topic": "t", "partitions": [{"partition": 1, "error_code": 0}]}]}

    with pytest.raises(InvalidRequestError, match="expected an answer about t-0, found none"):
        ask_partition(Other(), FETCH, "t", 0, {})
