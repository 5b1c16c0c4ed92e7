"""What a set is refused with: the error, its code, its words, and what a Kafka release answers instead."""

from __future__ import annotations

import base64
import zlib

import pytest
from support.oracle.oracle_convert import convert as asked
from support.sets import generate
from support.sets.appending import (
    COMPACTED,
    LIMITED,
    NOW,
    START,
    T0,
    append,
    batch,
    plain,
    refusal,
    topic,
    wrapper,
)
from support.sets.generate import Rec, message

import kts
from kts.behaviour import Behaviour
from kts.codec.validate import rules_of


def test_the_whole_set_is_refused_for_one_record() -> None:
    config = topic(1, **LIMITED)
    append(plain(NOW, NOW - 1000, NOW + 1000), config)
    error = refusal(plain(NOW, NOW - 1001, NOW), config)
    assert isinstance(error, kts.InvalidTimestampError)
    assert (error.code, [index for index, _ in error.record_errors]) == (32, [1])


def test_3_9_names_every_record_that_policy_refuses_with_a_reason() -> None:
    rows = [(NOW, b"k"), (NOW - 2000, b"k"), (NOW, None), (NOW + 2000, b"k")]
    payload = b"".join(generate.record(i, time - NOW, Rec(i, time, key, b"")) for i, (time, key) in enumerate(rows))
    error = refusal(batch(payload, 4), topic(2, **LIMITED, **COMPACTED))
    assert isinstance(error, kts.InvalidTimestampError)
    assert [index for index, _ in error.record_errors] == [1, 2, 3]
    assert f"timestamp {NOW - 2000} is out of range, expected {NOW - 1000} to {NOW + 1000}" == error.record_errors[0][1]
    assert "no key" in error.record_errors[1][1]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (message(0, 1, 1, NOW, None, None), "no value"),
        (wrapper(b""), "no inner message"),
        (message(0, 1, 1, NOW, None, b"\x1f\x8b\x08garbage"), "gzip"),
        (message(0, 1, 1, NOW, None, b"garbage"), "gzip"),
    ],
)
def test_bad_wrappers_are_corrupt_where_0_10_2_did_not_expect_them(data: bytes, words: str) -> None:
    error = refusal(data, topic())
    assert isinstance(error, kts.CorruptRecordError)
    assert words in error.message
    assert refusal(data, topic(), shipped=True).code == -1


def test_compressed_batches_out_of_step_are_refused_with_87(rng) -> None:
    payload = generate.record(0, 0, T0) + generate.record(5, 0, T0)
    config = topic(2)
    data = batch(generate.compress(rng, 3, 2, payload), 2, attributes=3)
    assert refusal(data, config).code == 87
    assert refusal(data, config, shipped=True).code == -1
    longer = bytearray(generate.record(0, 0, T0))
    longer[0] += 2
    data = batch(generate.compress(rng, 3, 2, bytes(longer)), attributes=3)
    assert refusal(data, config).code == 87
    append(data, config, shipped=True)


def test_zstd_into_an_older_format_is_76_and_shipped_minus_1() -> None:
    data = batch(generate.record(0, 0, T0))
    config = topic(1, generation="3.9", compression_type="zstd")
    assert refusal(data, config).code == 76
    assert refusal(data, config, shipped=True).code == -1


def test_errors_say_where() -> None:
    error = refusal(plain(NOW) + wrapper(wrapper(plain(NOW))), topic())
    assert (error.position, error.record_index) == (36, 1)
    assert "at position 36" in str(error)


def test_escaped_errors_have_the_code_they_shipped_with() -> None:
    data = bytearray(kts.encode({"value": [b"v" * 99]}, magic=1, compression="gzip"))
    data[-6] ^= 1
    case = {"bytes": base64.b64encode(data).decode(), "to_magic": 0, "gen": "0.10.2"}
    assert asked(case)["error"]["class"] == "KafkaException"
    with pytest.raises(kts.CorruptRecordError):
        kts.convert(bytes(data), 0, verify_crc=False)


def test_a_wrong_inner_crc_is_told_with_both_numbers_and_its_place(rng) -> None:
    inner = [message(number, 1, 0, NOW, b"k", b"value") for number in range(3)]
    damaged = inner[2][:-1] + b"?"
    data = wrapper(inner[0] + inner[1] + damaged)
    stored, found = int.from_bytes(damaged[12:16], "big"), zlib.crc32(damaged[16:])
    words = f"inner message CRC is {found:08x}, expected the stored {stored:08x}"
    for how in ({}, {"shipped": True}):
        error = refusal(data, topic(), **how)
        assert (error.message, error.code, error.position, error.record_index) == (words, 2, 0, 2), how


def test_a_compressed_message_in_a_set_that_is_said_to_be_plain_is_told_by_its_codec() -> None:
    """Kafka's validator takes the codecs from its caller; the broker's own analysis never says so."""
    rules = rules_of(topic(0), Behaviour.of("0.10.2", shipped=True), "client")
    found = rules.appender.set(wrapper(plain(NOW)), START, NOW, 0)
    assert not found.choose(0, 0)
    assert found.deep() is None
    assert rules.certain_error(found, NOW).message == "compression codec 1 in a set that is not compressed, expected 0"
