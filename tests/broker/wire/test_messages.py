"""Layouts of the 0.10 era, spelled out byte by byte from Kafka's protocol guide, not from the table."""

from __future__ import annotations

from typing import Any

import kio.index
import pytest
from support.broker.wire_bodies import plain

from kts.broker import wire
from kts.broker.wire.messages import ApiKey
from kts.errors import UnsupportedVersionError

T = "0001 74"  # the string t
ONE = "00000001"  # an array of one
PARTITION = f"{ONE} {T} {ONE} 00000002"  # topics[0] is t, partitions[0] is 2
RECORDS = "00000003 616263"


def b(text: str) -> bytes:
    return bytes.fromhex(text)


def produce_data(records: Any) -> list[Any]:
    return [{"name": "t", "partition_data": [{"index": 2, "records": records}]}]


def fetch(**partition: Any) -> dict[str, Any]:
    return {"max_wait_ms": 5, "min_bytes": 6, "topics": [{"topic": "t", "partitions": [{"partition": 2, **partition}]}]}


REQUESTS: list[tuple[ApiKey, int, dict[str, Any], str]] = [
    (ApiKey.API_VERSIONS, 0, {}, ""),
    (ApiKey.METADATA, 0, {"topics": []}, "00000000"),
    (ApiKey.METADATA, 1, {"topics": None}, "ffffffff"),
    (ApiKey.METADATA, 4, {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}, f"{ONE} {T} 00"),
    *[
        (
            ApiKey.PRODUCE,
            v,
            {"acks": -1, "timeout_ms": 9, "topic_data": produce_data(b"abc")},
            f"ffff 00000009 {PARTITION} {RECORDS}",
        )
        for v in (0, 1, 2)
    ],
    (
        ApiKey.PRODUCE,
        3,
        {"acks": 1, "timeout_ms": 9, "topic_data": produce_data(None)},
        f"ffff 0001 00000009 {PARTITION} ffffffff",
    ),
    *[
        (
            ApiKey.FETCH,
            v,
            fetch(fetch_offset=7, partition_max_bytes=8),
            f"ffffffff 00000005 00000006 {PARTITION} 0000000000000007 00000008",
        )
        for v in (0, 1, 2)
    ],
    (
        ApiKey.FETCH,
        3,
        fetch(fetch_offset=7, partition_max_bytes=8) | {"max_bytes": 10},
        f"ffffffff 00000005 00000006 0000000a {PARTITION} 0000000000000007 00000008",
    ),
    (
        ApiKey.FETCH,
        4,
        fetch(fetch_offset=7, partition_max_bytes=8) | {"max_bytes": 10, "isolation_level": 1},
        f"ffffffff 00000005 00000006 0000000a 01 {PARTITION} 0000000000000007 00000008",
    ),
    (
        ApiKey.FETCH,
        5,
        fetch(fetch_offset=7, log_start_offset=3, partition_max_bytes=8) | {"max_bytes": 10},
        f"ffffffff 00000005 00000006 0000000a 00 {PARTITION} 0000000000000007 0000000000000003 00000008",
    ),
    (
        ApiKey.LIST_OFFSETS,
        0,
        {
            "replica_id": -1,
            "topics": [{"name": "t", "partitions": [{"partition_index": 2, "timestamp": -2, "max_num_offsets": 4}]}],
        },
        f"ffffffff {PARTITION} fffffffffffffffe 00000004",
    ),
    (
        ApiKey.LIST_OFFSETS,
        1,
        {"replica_id": -1, "topics": [{"name": "t", "partitions": [{"partition_index": 2, "timestamp": -1}]}]},
        f"ffffffff {PARTITION} ffffffffffffffff",
    ),
    (
        ApiKey.LIST_OFFSETS,
        2,
        {
            "replica_id": -1,
            "isolation_level": 1,
            "topics": [{"name": "t", "partitions": [{"partition_index": 2, "timestamp": 5}]}],
        },
        f"ffffffff 01 {PARTITION} 0000000000000005",
    ),
]


def fetched(**partition: Any) -> dict[str, Any]:
    body = {"partition_index": 2, "high_watermark": 7, "records": b"abc", **partition}
    return {"throttle_time_ms": 1, "responses": [{"topic": "t", "partitions": [body]}]}


def produced(**partition: Any) -> dict[str, Any]:
    body = {"index": 2, "error_code": 0, "base_offset": 7, **partition}
    return {"throttle_time_ms": 1, "responses": [{"name": "t", "partition_responses": [body]}]}


def listed(**partition: Any) -> dict[str, Any]:
    return {"throttle_time_ms": 1, "topics": [{"name": "t", "partitions": [{"partition_index": 2, **partition}]}]}


METADATA: dict[str, Any] = {
    "throttle_time_ms": 1,
    "brokers": [{"node_id": 4, "host": "h", "port": 9092, "rack": None}],
    "cluster_id": "c",
    "controller_id": 4,
    "topics": [
        {
            "error_code": 5,
            "name": "t",
            "is_internal": True,
            "partitions": [
                {"error_code": 0, "partition_index": 2, "leader_id": 4, "replica_nodes": [4], "isr_nodes": []}
            ],
        }
    ],
}
LEADER = "0000 00000002 00000004 00000001 00000004 00000000"
SEVEN, ZERO = "0000000000000007", "0000000000000000"
RESPONSES: list[tuple[ApiKey, int, dict[str, Any], str]] = [
    (ApiKey.API_VERSIONS, 0, {"error_code": 35, "api_keys": []}, "0023 00000000"),
    (
        ApiKey.API_VERSIONS,
        1,
        {"api_keys": [{"api_key": 1, "min_version": 0, "max_version": 5}], "throttle_time_ms": 8},
        f"0000 {ONE} 0001 0000 0005 00000008",
    ),
    (ApiKey.METADATA, 0, METADATA, f"{ONE} 00000004 0001 68 00002384 {ONE} 0005 {T} {ONE} {LEADER}"),
    (ApiKey.METADATA, 1, METADATA, f"{ONE} 00000004 0001 68 00002384 ffff 00000004 {ONE} 0005 {T} 01 {ONE} {LEADER}"),
    (
        ApiKey.METADATA,
        2,
        METADATA,
        f"{ONE} 00000004 0001 68 00002384 ffff 0001 63 00000004 {ONE} 0005 {T} 01 {ONE} {LEADER}",
    ),
    (
        ApiKey.METADATA,
        3,
        METADATA,
        f"00000001 {ONE} 00000004 0001 68 00002384 ffff 0001 63 00000004 {ONE} 0005 {T} 01 {ONE} {LEADER}",
    ),
    (ApiKey.PRODUCE, 0, produced(), f"{PARTITION} 0000 {SEVEN}"),
    (ApiKey.PRODUCE, 1, produced(), f"{PARTITION} 0000 {SEVEN} 00000001"),
    (ApiKey.PRODUCE, 2, produced(log_append_time_ms=-1), f"{PARTITION} 0000 {SEVEN} ffffffffffffffff 00000001"),
    (ApiKey.PRODUCE, 3, produced(log_append_time_ms=7), f"{PARTITION} 0000 {SEVEN} {SEVEN} 00000001"),
    (
        ApiKey.PRODUCE,
        5,
        produced(log_append_time_ms=7, log_start_offset=0),
        f"{PARTITION} 0000 {SEVEN} {SEVEN} {ZERO} 00000001",
    ),
    (ApiKey.FETCH, 0, fetched(), f"{PARTITION} 0000 {SEVEN} {RECORDS}"),
    *[(ApiKey.FETCH, v, fetched(), f"00000001 {PARTITION} 0000 {SEVEN} {RECORDS}") for v in (1, 2, 3)],
    (
        ApiKey.FETCH,
        4,
        fetched(last_stable_offset=7, aborted_transactions=[{"producer_id": 7, "first_offset": 0}]),
        f"00000001 {PARTITION} 0000 {SEVEN} {SEVEN} {ONE} {SEVEN} {ZERO} {RECORDS}",
    ),
    (
        ApiKey.FETCH,
        5,
        fetched(last_stable_offset=7, log_start_offset=0, aborted_transactions=None),
        f"00000001 {PARTITION} 0000 {SEVEN} {SEVEN} {ZERO} ffffffff {RECORDS}",
    ),
    (
        ApiKey.LIST_OFFSETS,
        0,
        listed(error_code=3, old_style_offsets=[7, 0]),
        f"{PARTITION} 0003 00000002 {SEVEN} {ZERO}",
    ),
    (ApiKey.LIST_OFFSETS, 1, listed(timestamp=7, offset=0), f"{PARTITION} 0000 {SEVEN} {ZERO}"),
    (ApiKey.LIST_OFFSETS, 2, listed(timestamp=7, offset=0), f"00000001 {PARTITION} 0000 {SEVEN} {ZERO}"),
]


def holds(body: Any, part: Any) -> bool:
    """Whether a decoded body has what the vector names; defaults beside it are free."""
    if isinstance(part, dict):
        return all(holds(body[key], part[key]) for key in part)
    if isinstance(part, list):
        return len(body) == len(part) and all(map(holds, body, part))
    return bool(body == part)


def names(case: tuple[ApiKey, int, Any, str]) -> str:
    return f"{case[0].name}-{case[1]}"


@pytest.mark.parametrize("case", REQUESTS, ids=names)
def test_requests_are_the_bytes_of_the_protocol_guide(case: tuple[ApiKey, int, dict[str, Any], str]) -> None:
    key, version, body, text = case
    frame = key.to_bytes(2) + version.to_bytes(2) + b("00000001 0001 63") + b(text)
    assert wire.encode_request(key, version, 1, "c", body) == len(frame).to_bytes(4) + frame
    header, found = wire.decode_request(memoryview(frame))
    assert header == (key, version, 1, "c")
    assert holds(plain(found), body)


@pytest.mark.parametrize("case", RESPONSES, ids=names)
def test_responses_are_the_bytes_of_the_protocol_guide(case: tuple[ApiKey, int, dict[str, Any], str]) -> None:
    key, version, body, text = case
    frame = b("00000009") + b(text)
    chunks = wire.encode_response(key, version, 9, body)
    assert b"".join(bytes(chunk) for chunk in chunks if isinstance(chunk, bytes)) == len(frame).to_bytes(4) + frame
    correlation_id, found = wire.decode_response(key, version, memoryview(frame))
    assert correlation_id == 9
    lacks = {"throttle_time_ms"} if found["throttle_time_ms"] == 0 else set()
    lacks |= {"cluster_id"} if version < 2 else set()
    lacks |= {"controller_id"} if version < 1 else set()
    wanted = {name: value for name, value in body.items() if name not in lacks}
    if key == ApiKey.METADATA and version == 0:
        wanted["topics"] = [{**topic, "is_internal": False} for topic in body["topics"]]
    assert holds(plain(found), wanted)


def test_the_example_of_the_protocol_guide() -> None:
    assert wire.encode_request(ApiKey.API_VERSIONS, 0, 1, "c", {}) == b("0000000b 0012 0000 00000001 0001 63")


def test_a_flexible_header_keeps_its_client_id_and_api_versions_answers_without_tagged_fields() -> None:
    frame = wire.encode_request(
        ApiKey.API_VERSIONS, 3, 1, None, {"client_software_name": "n", "client_software_version": "v"}
    )
    assert frame[4:] == b("0012 0003 00000001 ffff 00 02 6e 02 76 00")
    assert wire.encode_response(ApiKey.API_VERSIONS, 3, 1, {}) == [b("0000000c 00000001 0000 01 00000000 00")]
    assert wire.encode_response(ApiKey.HEARTBEAT, 4, 1, {}) == [b("0000000c 00000001 00 00000000 0000 00")]


def test_the_header_of_a_version_that_is_not_served_can_be_read() -> None:
    frame = memoryview(b("0012 0063 00000005 0001 63 00 ffff"))
    assert wire.decode_request_header(frame) == (18, 99, 5, "c")
    with pytest.raises(UnsupportedVersionError, match="expected version 0 to 4 of API_VERSIONS, found 99"):
        wire.decode_request(frame)
    with pytest.raises(UnsupportedVersionError, match=r"expected an API key of \[0, 1, 2, .*, 66\], found 4"):
        wire.decode_request(memoryview(b("0004 0000 00000005 0001 63")))


def test_apis_have_kafkas_numbers_and_names() -> None:
    """The package kio has them from Kafka's own definitions."""
    named = {name: key for key, name in kio.index.api_key_map.items()}
    assert {key.name.lower(): int(key) for key in ApiKey}.items() <= named.items()


def test_the_served_versions_are_from_the_oldest_on() -> None:
    assert wire.versions(ApiKey.PRODUCE) == (0, 13)
    assert wire.versions(ApiKey.FETCH) == (0, 18)
    assert all(wire.versions(key)[0] == 0 for key in ApiKey)
