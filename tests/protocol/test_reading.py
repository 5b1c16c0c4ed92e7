"""Frames that lie: every cut, every hostile length at every place, malformed requests by the thousand."""

from __future__ import annotations

import random
import resource
import tracemalloc
from collections import Counter

import pytest
from support.broker.malformed_requests import HOSTILE, malformed_requests, valid_requests
from support.broker.wire_bodies import decoded, every_layout, frame_of, label, random_body
from support.golden import scaled

from kts.broker import wire
from kts.broker.wire.messages import ApiKey
from kts.errors import InvalidRequestError, UnsupportedVersionError

PLACES = scaled(15, 60)  # behind the header's API and version, in each message
REQUESTS = scaled(10_000, 200_000)  # more of them are handled to their end in test_hostile_in_process


@pytest.mark.slow
def test_every_cut_of_every_message_is_an_invalid_request(rng: random.Random) -> None:
    cuts = 0
    for message, version, back, fields in every_layout():
        frame = memoryview(frame_of(message, version, back, random_body(rng, fields, version)))[:1500]
        whole = len(frame) < 1500
        for length in range(len(frame) if whole else 400):
            try:  # cheaper than pytest.raises
                if back:
                    wire.decode_response(message.api_key, version, frame[:length])
                else:
                    wire.decode_request(frame[:length])
            except InvalidRequestError as error:
                assert error.position is not None, label(message, version, back)
                cuts += 1
            else:
                pytest.fail(f"{label(message, version, back)}: read {length} bytes of {len(frame)}")
    assert cuts > 20_000


def test_hostile_lengths_at_every_place_of_every_message_are_refused_or_read(rng: random.Random) -> None:
    outcomes: Counter[str] = Counter()
    for message, version, back, fields in every_layout():
        frame = frame_of(message, version, back, random_body(rng, fields, version))
        for at in {*range(4), *rng.sample(range(4, 64), PLACES)} & {*range(len(frame))}:
            for value in HOSTILE:
                lie = memoryview(frame[:at] + value + frame[at + len(value) :])
                try:
                    if back:
                        wire.decode_response(message.api_key, version, lie)
                    else:
                        wire.decode_request(lie)
                    outcomes["read"] += 1
                except InvalidRequestError:
                    outcomes["refused"] += 1
                except UnsupportedVersionError:
                    assert not back
                    assert at < 4
                    outcomes["unsupported"] += 1
    assert min(outcomes.values()) > 1000, outcomes


def test_malformed_requests_are_read_or_refused_in_little_memory(rng: random.Random) -> None:
    valid = valid_requests(rng)
    for frame in valid:
        wire.decode_request(memoryview(frame))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes: Counter[str] = Counter()
    for frame in malformed_requests(rng, REQUESTS, valid):
        try:
            wire.decode_request(memoryview(frame))
            outcomes["read"] += 1
        except InvalidRequestError:
            outcomes["refused"] += 1
        except UnsupportedVersionError:
            outcomes["unsupported"] += 1
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert sum(outcomes.values()) == REQUESTS
    assert min(outcomes.values()) > REQUESTS // 50, outcomes
    assert grown < 64 * 1024, f"{grown} KiB more than before"


def peak_of(frame: bytes) -> int:
    """The most bytes of memory that refusing the frame takes."""
    view = memoryview(frame)
    tracemalloc.start()
    with pytest.raises(InvalidRequestError):
        wire.decode_request(view)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_a_claimed_count_takes_no_memory() -> None:
    whole = wire.encode_request(ApiKey.METADATA, 1, 1, "c", {"topics": []})[4:]
    assert peak_of(whole[:-4] + b"\x7f\xff\xff\xff" + bytes(4000)) < 100_000
    flexible = wire.encode_request(ApiKey.METADATA, 9, 1, "c", {"topics": []})[4:]
    at = flexible.index(b"\x01", 11)
    assert peak_of(flexible[:at] + b"\xff\xff\xff\xff\x07" + bytes(4000)) < 100_000


@pytest.mark.slow
def test_more_elements_than_any_request_needs_are_refused_before_they_are_read() -> None:
    names = [{"name": ""}] * (wire.MAX_REQUEST_ELEMENTS + 1)
    assert peak_of(wire.encode_request(ApiKey.METADATA, 1, 1, "c", {"topics": names})[4:]) < 100_000
    many = [{"topic": "t", "partitions": [{}] * 1000}] * (wire.MAX_REQUEST_ELEMENTS // 1000)
    with pytest.raises(
        InvalidRequestError, match=r"topics\[199\]\.partitions: expected at most 800 more elements, found"
    ):
        wire.decode_request(memoryview(wire.encode_request(ApiKey.FETCH, 4, 1, "c", {"topics": many}))[4:])


def test_tagged_fields_by_the_million_are_refused_before_they_are_read() -> None:
    frame = wire.encode_request(ApiKey.METADATA, 9, 1, "c", {"topics": None})[4:]
    million = b"\xc0\x84\x3d" + b"\x64\x00" * 1_000_000
    with pytest.raises(InvalidRequestError, match="expected at most 200000 more tagged fields, found 1000000"):
        wire.decode_request(memoryview(frame[:-1] + million))
    assert peak_of(frame[:-1] + million) < 100_000


def test_a_tagged_field_must_fill_its_size() -> None:
    frame = wire.encode_request(ApiKey.FETCH, 12, 1, "c", {"cluster_id": "abc"})[4:]
    body = decoded_fetch(frame)
    assert body["cluster_id"] == "abc"
    assert frame.endswith(b"\x01\x00\x04\x04abc")
    with pytest.raises(InvalidRequestError, match="cluster_id|tagged field 0"):
        decoded_fetch(frame[:-6] + b"\x00\x05\x04abc!")
    # Twice, out of order or beside unknown ones is free, as it is for Kafka; the last one counts.
    assert decoded_fetch(frame[:-7] + b"\x03\x00\x04\x04xyz\x63\x01!\x00\x04\x04abc")["cluster_id"] == "abc"


def decoded_fetch(frame: bytes) -> dict[str, object]:
    return wire.decode_request(memoryview(frame))[1]


def test_text_must_be_utf_8() -> None:
    frame = wire.encode_request(ApiKey.METADATA, 1, 1, "c", {"topics": [{"name": "ab"}]})[4:]
    with pytest.raises(
        InvalidRequestError, match=r"METADATA version 1: topics\[0\]\.name: expected UTF-8, found .* at position 17"
    ):
        wire.decode_request(memoryview(frame[:-2] + b"\xff\xfe"))


def test_bytes_behind_the_body_are_ignored_as_kafka_ignores_them(rng: random.Random) -> None:
    for message, version, back, fields in every_layout():
        frame = frame_of(message, version, back, random_body(rng, fields, version))
        assert decoded(message, version, back, frame + b"more") == decoded(message, version, back, frame)
