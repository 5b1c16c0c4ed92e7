"""What leaders do with single sets, case by case (kafka-behaviour.md 3, 4, 11 to 13)."""

from __future__ import annotations

import struct
import zlib

import pytest
from support.sets import generate
from support.sets.appending import NOW, START, append, column, produced, refusal, times, topic
from support.sets.generate import Rec, message

import kts
from kts import _codec, errors
from kts.broker.codes import ErrorCode
from kts.codec.validate import rules_of
from kts.errors import REASONS

N = NOW
LAT = {"message_timestamp_type": "LogAppendTime"}
LIMITED = {"message_timestamp_difference_max_ms": 1000}
COMPACTED = {"cleanup_policy": "compact"}
T0 = Rec(0, N, b"k", b"v")


def plain(*timestamps: int, magic: int = 1, attributes: int = 0) -> bytes:
    return b"".join(message(7 + i, magic, attributes, time, b"k", b"v") for i, time in enumerate(timestamps))


def wrapper(inner: bytes, *, offset: int = 0, magic: int = 1, attributes: int = 0, time: int = N) -> bytes:
    """A gzip wrapper around the bytes as they are."""
    return message(offset, magic, 1 | attributes, time, None, kts.compression.compressor(1, magic, None)(inner))


def batch(payload: bytes, count: int = 1, **how: int) -> bytes:
    return generate.batch(payload, count, **({"last_delta": count - 1, "base_time": N, "max_time": N} | how))


# --- in place --------------------------------------------------------------------------------------


def test_a_message_is_stored_as_sent_but_for_its_offset() -> None:
    data = plain(N - 5)
    done = append(data, topic())
    assert done == (struct.pack(">q", START) + data[8:], START, START, N - 5, START, -1, 1, 36, False, 0, 0, START + 1)


def test_log_append_time_is_stamped_on_every_message_and_the_first_has_the_maximum() -> None:
    done = append(plain(5, 9, N - 10**12), topic(1, **LAT, **LIMITED))
    assert times(done) == [N, N, N]
    assert column(done, "timestampType") == [1, 1, 1]
    assert (done.max_timestamp_ms, done.offset_of_max_timestamp, done.log_append_time_ms) == (N, START, N)


def test_equal_maxima_belong_to_the_first_message() -> None:
    done = append(plain(N, N + 5, N + 5, N), topic())
    assert (done.max_timestamp_ms, done.offset_of_max_timestamp) == (N + 5, START + 1)


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("settings", [{}, LAT])
def test_a_compressed_payload_is_kept_and_only_its_header_changes(magic: int, settings: dict[str, str], rng) -> None:
    records = [Rec(i, N + i, b"k", b"v" * 50) for i in range(9)]
    for codec in range(1, 5 if magic == 2 else 4):
        data = produced(rng, magic, codec, records)
        done = append(data, topic(magic, **settings), leader_epoch=3)
        head = 61 if magic == 2 else 26
        assert done.records[head:] == data[head:]
        assert times(done) == ([N] * 9 if settings else [N + i for i in range(9)])
        assert (done.first_offset, done.offset_of_max_timestamp) == (START, START + 8)
        assert not done.size_maybe_changed


def test_the_time_of_a_wrapper_becomes_the_greatest_inside(rng) -> None:
    records = [Rec(i, N + time, b"k", b"v") for i, time in enumerate((3, 9, 1))]
    data = produced(rng, 1, 3, records, wrapper_offset=0)  # kafka-python's and librdkafka's wrapper offset
    data = generate.reseal(data[:18] + bytes(8) + data[26:])
    done = append(data, topic())
    assert struct.unpack_from(">q", done.records, 18) == (N + 9,)
    assert column(done, "offset") == [START, START + 1, START + 2]
    assert not done.size_maybe_changed


def test_the_greatest_time_of_a_batch_is_not_taken_from_its_producer() -> None:
    data = batch(generate.record(0, 0, T0) + generate.record(1, 4, T0), 2, max_time=N + 1000)
    done = append(data, topic(2))
    assert kts.decode(done.records, ["maxTimestamp"]).column(0).to_pylist() == [N + 4] * 2
    assert (done.max_timestamp_ms, done.offset_of_max_timestamp) == (N + 4, START + 1)


# --- written anew ----------------------------------------------------------------------------------


def test_messages_grow_and_shrink_by_eight_bytes() -> None:
    up = append(plain(N, magic=0), topic(1))
    assert (len(up.records), times(up), up.max_timestamp_ms) == (36, [-1], -1)
    down = append(plain(N), topic(0))
    assert (len(down.records), times(down)) == (28, [-1])
    assert up.size_maybe_changed
    assert down.size_maybe_changed


def test_gaps_inside_a_wrapper_are_closed() -> None:
    inner = b"".join(message(offset, 1, 0, N, b"k", b"v") for offset in (0, 2, 3))
    done = append(wrapper(inner, offset=3), topic())
    assert column(done, "offset") == [START, START + 1, START + 2]
    assert done.size_maybe_changed


def test_a_message_that_grows_beyond_the_limit_is_refused_with_10() -> None:
    data = plain(N, magic=0)
    append(data, topic(0, max_message_bytes=28))
    error = refusal(data, topic(1, max_message_bytes=28))
    assert isinstance(error, kts.RecordTooLargeError)
    assert error.code == 10
    append(data, topic(1, max_message_bytes=36))


def test_headers_do_not_fit_older_formats() -> None:
    data = batch(generate.record(0, 0, Rec(0, N, b"k", b"v", [(b"h", b"x")])))
    append(data, topic(2))
    assert refusal(data, topic(1, generation="3.9")).code == -1


# --- refused ---------------------------------------------------------------------------------------


def test_the_whole_set_is_refused_for_one_record() -> None:
    config = topic(1, **LIMITED)
    append(plain(N, N - 1000, N + 1000), config)
    error = refusal(plain(N, N - 1001, N), config)
    assert isinstance(error, kts.InvalidTimestampError)
    assert (error.code, [index for index, _ in error.record_errors]) == (32, [1])


def test_a_wrong_inner_crc_is_told_with_both_numbers_and_its_place(rng) -> None:
    inner = [message(number, 1, 0, N, b"k", b"value") for number in range(3)]
    damaged = inner[2][:-1] + b"?"
    data = wrapper(inner[0] + inner[1] + damaged)
    stored, found = int.from_bytes(damaged[12:16], "big"), zlib.crc32(damaged[16:])
    words = f"inner message CRC is {found:08x}, expected the stored {stored:08x}"
    for how in ({}, {"shipped": True}):
        error = refusal(data, topic(), **how)
        assert (error.message, error.code, error.position, error.record_index) == (words, 2, 0, 2), how


def test_a_compressed_message_in_a_set_that_is_said_to_be_plain_is_told_by_its_codec() -> None:
    """Kafka's validator takes the codecs from its caller; the broker's own analysis never says so."""
    rules = rules_of(topic(0), "0.10.2", True, "client")
    found = rules.appender.set(wrapper(plain(N)), START, NOW, 0)
    assert not found.choose(0, 0)
    assert found.deep() is None
    assert rules.certain_error(found, NOW).message == "compression codec 1 in a set that is not compressed, expected 0"


def test_3_9_names_every_record_that_policy_refuses_with_a_reason() -> None:
    rows = [(N, b"k"), (N - 2000, b"k"), (N, None), (N + 2000, b"k")]
    payload = b"".join(generate.record(i, time - N, Rec(i, time, key, b"")) for i, (time, key) in enumerate(rows))
    error = refusal(batch(payload, 4), topic(2, **LIMITED, **COMPACTED))
    assert isinstance(error, kts.InvalidTimestampError)
    assert [index for index, _ in error.record_errors] == [1, 2, 3]
    assert f"timestamp {N - 2000} is out of range, expected {N - 1000} to {N + 1000}" == error.record_errors[0][1]
    assert "no key" in error.record_errors[1][1]


@pytest.mark.parametrize(("generation", "code"), [("0.10.2", 2), ("3.9", 87)])
def test_a_compacted_topic_needs_keys_and_takes_tombstones(generation: str, code: int) -> None:
    config = topic(1, generation=generation, **COMPACTED)
    append(message(0, 1, 0, N, b"k", None), config)
    error = refusal(message(0, 1, 0, N, None, b"v"), config)
    assert isinstance(error, kts.InvalidRecordError)
    assert error.code == code


def test_an_entry_may_have_max_message_bytes_and_no_byte_more() -> None:
    append(plain(N), topic(1, max_message_bytes=36))
    assert refusal(plain(N), topic(1, max_message_bytes=35)).code == 10


def test_one_wrong_crc_refuses_the_set() -> None:
    data = plain(N, N, N)
    assert refusal(data[:-1] + b"w", topic()).code == 2


@pytest.mark.parametrize("data", [b"", b"\0" * 11, plain(N)[:-1]])
def test_nothing_whole_is_nothing_appended(data: bytes) -> None:
    assert append(data, topic()) == (b"", -1, -1, -1, -1, -1, 0, 0, False, 0, 0, START)


def test_stray_bytes_are_left_out_unless_they_claim_a_size() -> None:
    data = plain(N)
    done = append(data + b"stray", topic())
    assert (len(done.records), done.valid_bytes) == (36, 36)
    assert refusal(data + bytes(12), topic()).code == 2


def test_nested_compression_and_a_foreign_magic_inside_are_refused() -> None:
    nested = wrapper(wrapper(plain(N)))
    assert "compressed itself" in refusal(nested, topic()).message  # type: ignore[attr-defined]
    assert "expected its wrapper's" in refusal(wrapper(plain(N, magic=0)), topic()).message  # type: ignore[attr-defined]


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
    marker = generate.record(0, 0, Rec(0, N, b"\0\0\0\1", bytes(6)))
    data = batch(marker, attributes=0x30, pid=4, epoch=0)
    assert column(append(data, topic(2), origin="coordinator"), "control") == [True]


def test_a_transaction_needs_format_2() -> None:
    data = batch(generate.record(0, 0, T0), attributes=0x10, pid=4, epoch=0, sequence=0)
    assert refusal(data, topic(1, generation="3.9")).code == 43


def test_decompression_is_bounded_for_a_set_as_a_whole() -> None:
    inner = message(0, 1, 0, N, b"k", bytes(600))
    rules = {"old": True, "shipped": True, "magic": 1, "append_time": False, "compacted": False, "client": True}
    rules |= {"replica": False, "exempt": False, "negative": False, "target": -1, "before": 2**63 - 1}
    rules |= {"after": 2**63 - 1, "largest": 2**20}
    small = _codec.Appender(**rules, max_decompressed_bytes=1000)  # type: ignore[arg-type]
    assert isinstance(small.append(wrapper(inner), START, N, 0), tuple)
    with pytest.raises(kts.DecompressionLimitError, match="bound of 365 bytes"):
        small.append(wrapper(inner) * 2, START, N, 0)


# --- where the default is not what shipped -----------------------------------------------------------


def test_no_timestamp_is_exempt_from_the_limit_and_0_10_2_did_not_exempt_it() -> None:
    config = topic(1, **LIMITED)
    assert times(append(plain(-1), config)) == [-1]
    assert refusal(plain(-1), config, shipped=True).code == 32


def test_producers_may_not_set_log_append_time_which_3_9_lets_pass() -> None:
    data = plain(N, attributes=8)
    for generation in ("0.10.2", "3.9"):
        assert refusal(data, topic(1, generation=generation)).code == 32
    done = append(data, topic(1, generation="3.9"), shipped=True)
    assert column(done, "timestampType") == [0]


def test_messages_that_are_decompressed_under_log_append_time_get_it() -> None:
    data = wrapper(plain(N - 5, N - 6), offset=1)
    config = topic(1, compression_type="uncompressed", **LAT)
    fixed = append(data, config)
    assert (times(fixed), column(fixed, "timestampType")) == ([N, N], [1, 1])
    shipped = append(data, config, shipped=True)
    assert (times(shipped), column(shipped, "timestampType")) == ([N - 5, N - 6], [0, 0])


def test_inner_messages_keep_their_times_under_log_append_time_which_3_9_rewrites() -> None:
    config = topic(1, generation="3.9", compression_type="lz4", **LAT)
    data = wrapper(plain(N - 5), offset=0)
    for shipped, own in ((False, N - 5), (True, N)):
        done = append(data, config, shipped=shipped)
        assert times(done) == [N]
        inner = kts.decode(done.records, ["createTimestamp"]).column(0).cast("int64").to_pylist()
        assert inner == [own]


def test_unknown_magics_are_refused_which_0_10_2_reads_as_1() -> None:
    data = generate.reseal(plain(N)[:16] + b"\x05" + plain(N)[17:])
    assert refusal(data, topic()).code == 2
    assert column(append(data, topic(), shipped=True), "magic") == [1]


def test_several_wrappers_become_one_where_0_10_2_forgets_the_second() -> None:
    data = wrapper(message(0, 1, 0, N, b"k", b"v")) * 2
    config = topic()
    assert refusal(data, topic(1, generation="3.9")).code == 87
    done = append(data, config)
    assert column(done, "offset") == [START, START + 1]
    assert done.entries == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (message(0, 1, 1, N, None, None), "no value"),
        (wrapper(b""), "no inner message"),
        (message(0, 1, 1, N, None, b"\x1f\x8b\x08garbage"), "gzip"),
        (message(0, 1, 1, N, None, b"garbage"), "gzip"),
    ],
)
def test_bad_wrappers_are_corrupt_where_0_10_2_did_not_expect_them(data: bytes, words: str) -> None:
    error = refusal(data, topic())
    assert isinstance(error, kts.CorruptRecordError)
    assert words in error.message
    assert refusal(data, topic(), shipped=True).code == -1


def test_a_message_that_nobody_could_read_is_refused_which_shipped_stores() -> None:
    data = plain(N)
    data = generate.reseal(data[:26] + struct.pack(">i", 1000) + data[30:])
    for generation in ("0.10.2", "3.9"):
        config = topic(1, generation=generation)
        assert refusal(data, config).code == 2
        append(data, config, shipped=True)


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


# --- the words and numbers -------------------------------------------------------------------------


def test_every_reason_of_the_compiled_core_has_its_words_and_errors() -> None:
    assert list(REASONS) == list(_codec.REASONS)
    for name, reason in REASONS.items():
        assert reason.words, name
        assert reason.read or reason.append, name


def test_every_code_of_an_error_is_one_of_kafkas() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, kts.KtsError)]
    names = {one.__name__: ErrorCode(one.code).name for one in classes if one.code != -1}
    assert names["CorruptRecordError"] == "CORRUPT_MESSAGE"
    assert len(names) == len(set(names.values())) + 1  # DecompressionLimitError is damage too


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="generation: expected one of 0.10.2, 3.9, found '4.0'"):
        append(b"", topic(), generation="4.0")
    with pytest.raises(ValueError, match="origin: expected one of"):
        append(b"", topic(), origin="me")
    with pytest.raises(ValueError, match="message format 2 is unknown to 0.10.2"):
        append(b"", topic(2), generation="0.10.2")
    with pytest.raises(TypeError, match="buf: expected bytes"):
        append("text", topic())  # type: ignore[arg-type]


def test_errors_say_where() -> None:
    error = refusal(plain(N) + wrapper(wrapper(plain(N))), topic())
    assert (error.position, error.record_index) == (36, 1)
    assert "at position 36" in str(error)
