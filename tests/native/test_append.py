"""Sets that are appended as they came: checked, and given their offsets and times in place."""

from __future__ import annotations

import struct

import pytest
from support.sets import generate
from support.sets.appending import (
    LAT,
    LIMITED,
    NOW,
    START,
    T0,
    append,
    batch,
    column,
    plain,
    produced,
    refusal,
    times,
    topic,
)
from support.sets.generate import Rec

import kts


def test_a_message_is_stored_as_sent_but_for_its_offset() -> None:
    data = plain(NOW - 5)
    done = append(data, topic())
    assert done == (
        struct.pack(">q", START) + data[8:],
        START,
        START,
        NOW - 5,
        START,
        -1,
        1,
        36,
        False,
        0,
        0,
        START + 1,
    )


def test_log_append_time_is_stamped_on_every_message_and_the_first_has_the_maximum() -> None:
    done = append(plain(5, 9, NOW - 10**12), topic(1, **LAT, **LIMITED))
    assert times(done) == [NOW, NOW, NOW]
    assert column(done, "timestampType") == [1, 1, 1]
    assert (done.max_timestamp_ms, done.offset_of_max_timestamp, done.log_append_time_ms) == (NOW, START, NOW)


def test_equal_maxima_belong_to_the_first_message() -> None:
    done = append(plain(NOW, NOW + 5, NOW + 5, NOW), topic())
    assert (done.max_timestamp_ms, done.offset_of_max_timestamp) == (NOW + 5, START + 1)


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("settings", [{}, LAT])
def test_a_compressed_payload_is_kept_and_only_its_header_changes(magic: int, settings: dict[str, str], rng) -> None:
    records = [Rec(i, NOW + i, b"k", b"v" * 50) for i in range(9)]
    for codec in range(1, 5 if magic == 2 else 4):
        data = produced(rng, magic, codec, records)
        done = append(data, topic(magic, **settings), leader_epoch=3)
        head = 61 if magic == 2 else 26
        assert done.records[head:] == data[head:]
        assert times(done) == ([NOW] * 9 if settings else [NOW + i for i in range(9)])
        assert (done.first_offset, done.offset_of_max_timestamp) == (START, START + 8)
        assert not done.size_maybe_changed


def test_the_time_of_a_wrapper_becomes_the_greatest_inside(rng) -> None:
    records = [Rec(i, NOW + time, b"k", b"v") for i, time in enumerate((3, 9, 1))]
    data = produced(rng, 1, 3, records, wrapper_offset=0)  # kafka-python's and librdkafka's wrapper offset
    data = generate.reseal(data[:18] + bytes(8) + data[26:])
    done = append(data, topic())
    assert struct.unpack_from(">q", done.records, 18) == (NOW + 9,)
    assert column(done, "offset") == [START, START + 1, START + 2]
    assert not done.size_maybe_changed


def test_the_greatest_time_of_a_batch_is_not_taken_from_its_producer() -> None:
    data = batch(generate.record(0, 0, T0) + generate.record(1, 4, T0), 2, max_time=NOW + 1000)
    done = append(data, topic(2))
    assert kts.decode(done.records, ["maxTimestamp"]).column(0).to_pylist() == [NOW + 4] * 2
    assert (done.max_timestamp_ms, done.offset_of_max_timestamp) == (NOW + 4, START + 1)


@pytest.mark.parametrize("data", [b"", b"\0" * 11, plain(NOW)[:-1]])
def test_nothing_whole_is_nothing_appended(data: bytes) -> None:
    assert append(data, topic()) == (b"", -1, -1, -1, -1, -1, 0, 0, False, 0, 0, START)


def test_stray_bytes_are_left_out_unless_they_claim_a_size() -> None:
    data = plain(NOW)
    done = append(data + b"stray", topic())
    assert (len(done.records), done.valid_bytes) == (36, 36)
    assert refusal(data + bytes(12), topic()).code == 2


def test_an_entry_may_have_max_message_bytes_and_no_byte_more() -> None:
    append(plain(NOW), topic(1, max_message_bytes=36))
    assert refusal(plain(NOW), topic(1, max_message_bytes=35)).code == 10


def test_one_wrong_crc_refuses_the_set() -> None:
    data = plain(NOW, NOW, NOW)
    assert refusal(data[:-1] + b"w", topic()).code == 2
