"""What leaders do with single sets, case by case (kafka-behaviour.md 3, 4, 11 to 13)."""

from __future__ import annotations

import struct

import pytest
from support.sets import generate
from support.sets.appending import (
    COMPACTED,
    LIMITED,
    NOW,
    START,
    T0,
    append,
    batch,
    column,
    plain,
    refusal,
    times,
    topic,
    wrapper,
)
from support.sets.generate import Rec, message

import kts
from kts import _codec

# --- refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("generation", "code"), [("0.10.2", 2), ("3.9", 87)])
def test_a_compacted_topic_needs_keys_and_takes_tombstones(generation: str, code: int) -> None:
    config = topic(1, generation=generation, **COMPACTED)
    append(message(0, 1, 0, NOW, b"k", None), config)
    error = refusal(message(0, 1, 0, NOW, None, b"v"), config)
    assert isinstance(error, kts.InvalidRecordError)
    assert error.code == code


def test_nested_compression_and_a_foreign_magic_inside_are_refused() -> None:
    nested = wrapper(wrapper(plain(NOW)))
    assert "compressed itself" in refusal(nested, topic()).message  # type: ignore[attr-defined]
    assert "expected its wrapper's" in refusal(wrapper(plain(NOW, magic=0)), topic()).message  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"base": 1}, "expected 0 from a client"),
        ({"count": 0, "last_delta": 0}, "record count"),
        ({"last_delta": 3}, "last offset delta is 3"),
        ({"last_delta": -1}, "last offset delta"),
        ({"attributes": 0x20}, "control batch"),
        ({"pid": 4, "epoch": 0}, "base sequence -1"),
    ],
)
def test_what_a_client_may_not_say_of_a_batch(how: dict[str, int], words: str) -> None:
    error = refusal(batch(generate.record(0, 0, T0), **how), topic(2))  # type: ignore[arg-type]
    assert isinstance(error, kts.InvalidRecordError)
    assert words in error.message
    assert error.code == 87


def test_a_coordinator_may_write_control_batches() -> None:
    marker = generate.record(0, 0, Rec(0, NOW, b"\0\0\0\1", bytes(6)))
    data = batch(marker, attributes=0x30, pid=4, epoch=0)
    assert column(append(data, topic(2), origin="coordinator"), "control") == [True]


def test_a_transaction_needs_format_2() -> None:
    data = batch(generate.record(0, 0, T0), attributes=0x10, pid=4, epoch=0, sequence=0)
    assert refusal(data, topic(1, generation="3.9")).code == 43


def test_decompression_is_bounded_for_a_set_as_a_whole() -> None:
    inner = message(0, 1, 0, NOW, b"k", bytes(600))
    rules = {"old": True, "shipped": True, "magic": 1, "append_time": False, "compacted": False, "client": True}
    rules |= {"replica": False, "exempt": False, "negative": False, "target": -1, "before": 2**63 - 1}
    rules |= {"after": 2**63 - 1, "largest": 2**20}
    small = _codec.Appender(**rules, max_decompressed_bytes=1000)  # type: ignore[arg-type]
    assert isinstance(small.append(wrapper(inner), START, NOW, 0), tuple)
    with pytest.raises(kts.DecompressionLimitError, match="bound of 365 bytes"):
        small.append(wrapper(inner) * 2, START, NOW, 0)


# --- where the default is not what shipped -----------------------------------------------------------


def test_no_timestamp_is_exempt_from_the_limit_and_0_10_2_did_not_exempt_it() -> None:
    config = topic(1, **LIMITED)
    assert times(append(plain(-1), config)) == [-1]
    assert refusal(plain(-1), config, shipped=True).code == 32


def test_producers_may_not_set_log_append_time_which_3_9_lets_pass() -> None:
    data = plain(NOW, attributes=8)
    for generation in ("0.10.2", "3.9"):
        assert refusal(data, topic(1, generation=generation)).code == 32
    done = append(data, topic(1, generation="3.9"), shipped=True)
    assert column(done, "timestampType") == [0]


def test_unknown_magics_are_refused_which_0_10_2_reads_as_1() -> None:
    data = generate.reseal(plain(NOW)[:16] + b"\x05" + plain(NOW)[17:])
    assert refusal(data, topic()).code == 2
    assert column(append(data, topic(), shipped=True), "magic") == [1]


def test_a_message_that_nobody_could_read_is_refused_which_shipped_stores() -> None:
    data = plain(NOW)
    data = generate.reseal(data[:26] + struct.pack(">i", 1000) + data[30:])
    for generation in ("0.10.2", "3.9"):
        config = topic(1, generation=generation)
        assert refusal(data, config).code == 2
        append(data, config, shipped=True)


# --- arguments -------------------------------------------------------------------------


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="origin: expected one of"):
        append(b"", topic(), origin="me")
    with pytest.raises(TypeError, match="buf: expected bytes"):
        append("text", topic())  # type: ignore[arg-type]
