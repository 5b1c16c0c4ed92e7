"""The messages of KIP-32's rejected options, against a decoder that shares nothing with kts."""

from __future__ import annotations

import random
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from support.damage.bombs import framings
from support.golden import scaled
from support.reference.option_messages import Row, message, rows, sealed

import kts
from kts.proposals import options

OPTIONS = [1, 2, 3]
CODECS = ["none", "gzip", "snappy", "lz4"]
EPOCH_MS = 1_700_000_000_000


def table(found: list[Row]) -> dict[str, object]:
    """Rows as ``encode`` takes them."""
    names = ("offset", "createTimestamp", "logAppendTimestamp", "key", "value")
    return dict(zip(names, map(list, zip(*found, strict=True)), strict=True)) if found else {}


def as_rows(decoded: pa.Table) -> list[Row]:
    times = [decoded[name].cast(pa.int64()).to_pylist() for name in ("createTimestamp", "logAppendTimestamp")]
    others = [decoded[name].to_pylist() for name in ("offset", "key", "value")]
    return [Row(o, c, a, k, v) for o, c, a, k, v in zip(others[0], *times, *others[1:], strict=True)]


def wrapper(option: int, offset: int, inner: bytes, create_ms: int = -1, append_ms: int = -1) -> bytes:
    packed = zlib.compressobj(wbits=31)
    return message(option, offset, create_ms, append_ms, None, packed.compress(inner) + packed.flush(), codec=1)


@pytest.mark.parametrize(
    ("option", "magic", "times"), [(1, 33, "CreateTime LogAppendTime"), (2, 34, "LogAppendTime"), (3, 35, "CreateTime")]
)
def test_each_option_lays_out_its_times_as_the_kip_draws_them(option: int, magic: int, times: str) -> None:
    columns: dict[str, list[int]] = {}
    if "CreateTime" in times:
        columns["createTimestamp"] = [0x0102030405060708]
    if "LogAppendTime" in times:
        columns["logAppendTimestamp"] = [0x1112131415161718]
    data = options.encode(columns | {"key": [b"k"], "value": [b"val"]}, option=option, base_offset=5)
    numbers = [columns.get(f"{name[0].lower()}{name[1:]}stamp", [0])[0] for name in times.split()]
    body = bytes([magic, 0]) + struct.pack(f">{len(numbers)}q", *numbers) + b"\0\0\0\1k\0\0\0\3val"
    assert data == struct.pack(">qiI", 5, 4 + len(body), zlib.crc32(body)) + body
    assert options.MAGICS[option] == magic


def test_option_1_introduces_16_bytes_overhead_and_options_2_and_3_eight() -> None:
    plain = len(kts.encode({"value": [b"v"]}, magic=0))
    assert [len(options.encode({"value": [b"v"]}, option=option)) - plain for option in OPTIONS] == [16, 8, 8]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("option", OPTIONS)
def test_what_is_encoded_is_what_the_slow_decoder_and_decode_read(option: int, codec: str, rng: random.Random) -> None:
    for _ in range(scaled(20, 300)):
        made, offset, append = [], rng.randrange(2**40), EPOCH_MS
        for _ in range(rng.randrange(1, 30)):
            offset += rng.choice((1, 1, 1, 5))
            append += rng.choice((0, 0, 7))
            create = None if option == 2 else EPOCH_MS + rng.randrange(-99, 99)
            key, value = (rng.choice((None, b"", rng.randbytes(rng.randrange(60)))) for _ in range(2))
            made.append(Row(offset, create, None if option == 3 else append, key, value))
        data = options.encode(table(made), option=option, compression=codec, batch_bytes=rng.choice((1, 200, 16384)))
        assert rows(data, option) == as_rows(options.decode(data)) == made
        found = options.walk(data, option=option, verify_crc=True)
        assert (found.error, found.end) == (None, len(data))
        assert found.last_offset[-1] == made[-1].offset
        assert options.encode(options.decode(data), option=option) == b"".join(message(option, *row) for row in made)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_create_time_of_the_wrapper_is_that_of_the_first_message_in_option_1_and_of_the_last_in_option_3(
    codec: str,
) -> None:
    columns = {"createTimestamp": [70, 50, 60], "value": [b"a", b"b", b"c"]}
    for option, expected in ((1, 70), (3, 60)):
        sent = options.encode(columns, option=option, compression=codec)
        assert options.walk(sent, option=option).create_ms.tolist() == [expected]


@pytest.mark.parametrize("option", [1, 2])
def test_the_log_append_time_of_a_compacted_wrapper_is_that_of_its_last_inner_message(option: int) -> None:
    columns = {"offset": [10, 12, 13], "logAppendTimestamp": [100, 200, 200], "value": [b"a", b"b", b"c"]}
    data = options.encode(columns, option=option, compression="gzip")
    assert options.walk(data, option=option).append_ms.tolist() == [200]
    assert [(row.offset, row.append_ms) for row in as_rows(options.decode(data))] == [(10, 100), (12, 200), (13, 200)]


@pytest.mark.parametrize("option", [1, 2])
def test_messages_of_a_wrapper_that_is_not_compacted_share_its_log_append_time(option: int) -> None:
    inner = b"".join(message(option, relative, 5, -1) for relative in range(3))
    data = wrapper(option, 42, inner, 5, EPOCH_MS)
    found = as_rows(options.decode(data))
    assert [(row.offset, row.append_ms) for row in found] == [(40, EPOCH_MS), (41, EPOCH_MS), (42, EPOCH_MS)]
    assert found == rows(data, option)
    times = [1, 1, 2]  # one wrapper cannot say both, so there are two
    split = options.encode({"logAppendTimestamp": times, "value": [b"v"] * 3}, option=option, compression="lz4")
    assert options.walk(split, option=option).append_ms.tolist() == [1, 2]
    assert [row.append_ms for row in as_rows(options.decode(split))] == times


def test_a_time_that_the_option_does_not_have_is_null_and_cannot_be_written() -> None:
    decoded = options.decode(message(2, 0, append_ms=7) * 1)
    assert (decoded["createTimestamp"].null_count, decoded["logAppendTimestamp"].null_count) == (1, 0)
    assert options.decode(message(3, 0, 7))["logAppendTimestamp"].null_count == 1
    with pytest.raises(ValueError, match="createTimestamp: messages of option 2 do not have it"):
        options.encode({"createTimestamp": [7]}, option=2)
    with pytest.raises(ValueError, match="logAppendTimestamp: messages of option 3 do not have it"):
        options.encode({"logAppendTimestamp": [7]}, option=3)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"option": 4}, ValueError, "option 4 is Kafka's format"),
        ({"option": "1"}, TypeError, "option: expected an int"),
        ({"compression": "zstd"}, kts.UnsupportedCompressionTypeError, "zstd needs magic 2"),
        ({"rows": {"timestamp": [1]}}, ValueError, "unknown column 'timestamp'"),
        ({"rows": {"offset": [3, 3]}}, ValueError, "offset: expected increasing"),
        ({"rows": {"key": [b"k"], "value": []}}, ValueError, "different lengths"),
        ({"rows": {"value": [1.5]}}, TypeError, "value: expected bytes"),
    ],
)
def test_a_wrong_argument_is_named(wrong: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        options.encode(**({"rows": {"value": [b"v"]}, "option": 1} | wrong))  # type: ignore[arg-type]


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", OPTIONS)
def test_a_message_is_a_cut_tail_until_its_last_byte_is_there(option: int) -> None:
    first, last = message(option, 0), message(option, 1, key=b"key")
    for length in range(len(last)):
        data = first + last[:length]
        assert options.decode(data, option=option).num_rows == len(options.walk(data, option=option).size) == 1
        assert options.walk(data, option=option).end == len(first)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("option", OPTIONS)
def test_a_changed_byte_is_refused_with_its_position_unless_no_crc_covers_it(option: int, codec: str) -> None:
    columns = {"key": [b"k", None], "value": [b"v" * 30, b"w"]}
    before, data = message(option, 0), options.encode(columns, option=option, compression=codec, base_offset=1)
    size = int(options.walk(data, option=option).size[0])
    for at in range(size):
        broken = bytearray(before + data)
        broken[len(before) + at] ^= 0x81
        if at < 8:  # the offset
            continue
        try:
            found = options.decode(bytes(broken)).num_rows
        except kts.CorruptRecordError as error:
            assert (error.position, error.reason is not None) == (len(before), True), at
        else:
            assert at < 12 and found == 1, at  # a size beyond the end: a cut tail


def changed(entry: bytes, at: int, number: int, form: str = ">i") -> bytes:
    out = bytearray(entry)
    struct.pack_into(form, out, at, number)
    return bytes(out)


def key_at(option: int) -> int:
    return 34 if option == 1 else 26


@pytest.mark.parametrize("option", OPTIONS)
def test_lengths_that_lie_are_refused_with_their_reason(option: int) -> None:
    sound, key = message(option, 3, key=b"k", value=b"value"), key_at(option)
    least = key - 4
    cases = [
        (changed(sound, 8, 13), "BAD_SIZE", "size 13 is below"),
        (changed(sound, 8, -1), "BAD_SIZE", "size -1 is below"),
        (changed(sound, 8, 2**31 - 1), "SIZE_OVERFLOW", "exceeds the largest entry"),
        (changed(sound, 8, least - 1), "SHORT_MESSAGE", f"size {least - 1} is below the {least}"),
        (sealed(changed(sound, key, 2**31 - 1)), "MESSAGE_KEY", "key length 2147483647 exceeds"),
        (sealed(changed(sound, key + 5, 2**30)), "MESSAGE_VALUE", "value length 1073741824 exceeds"),
        (sealed(changed(sound, key + 5, 4)), "MESSAGE_REST", "leaves 1 bytes"),
        (sealed(changed(sound, key + 5, -1)), "MESSAGE_REST", "leaves 5 bytes"),
        (sealed(changed(sound, 17, 5, ">b")), "BAD_CODEC", "codec 5 is unknown, expected 0 to 3"),
        (sealed(changed(sound, 17, 4, ">b")), "BAD_CODEC", "codec 4 is unknown, expected 0 to 3"),
        (sealed(changed(sound, 16, 1, ">b")), "OPTION_MAGIC", f"magic is 1, expected {32 + option}"),
        (changed(sound, 12, 0), "BAD_CRC", "expected the stored 00000000"),
    ]
    for bad, reason, words in cases:
        for read in (options.decode, options.walk):
            if read is options.walk and reason.startswith("MESSAGE_"):
                continue  # it looks at headers alone
            verify = {"verify_crc": True}
            with pytest.raises(kts.CorruptRecordError, match=words) as caught:
                found = read(sound + bad + sound, option=option, **verify)
                raise found.error
            assert (caught.value.reason, caught.value.position, caught.value.offset) == (reason, len(sound), 3)


@pytest.mark.parametrize("option", OPTIONS)
def test_inner_messages_that_lie_are_refused_with_their_reason(option: int) -> None:
    def of(*inner: bytes, offset: int = 9) -> bytes:
        return wrapper(option, offset, b"".join(inner))

    one, two, three = (message(option, relative) for relative in range(3))
    cases = [
        (of(one, one), 1, "INNER_OFFSET", "relative offset of the inner message is 0, expected 1 or more"),
        (of(three, two), 1, "INNER_OFFSET", "is 1, expected 3 or more"),
        (of(message(option, -1)), 0, "INNER_OFFSET", "is -1, expected 0 or more"),
        (of(one, two, offset=0), None, "WRAPPER_OFFSET", "wrapper offset 0 is below the last inner offset 1"),
        (of(), None, "WRAPPER_EMPTY", "holds no inner message"),
        (of(one, one[:9]), 1, "RECORD_LENGTH", "length 12 exceeds the 9 bytes left"),
        (of(one, changed(two, 8, 2**30)), 1, "RECORD_LENGTH", "length 1073741824 exceeds the"),
        (of(one, changed(two, 12, 0)), 1, "INNER_CRC", "inner message CRC"),
        (
            of(kts.encode({"value": [b"long enough"]}, magic=1)),
            0,
            "INNER_MAGIC",
            f"expected its wrapper's {32 + option}",
        ),
        (of(wrapper(option, 0, one)), 0, "NESTED", "compressed itself"),
        (of(one, changed(two, 8, 3)), 1, "SHORT_INNER", "inner message size 3"),
        (of(sealed(changed(one, key_at(option), 99))), 0, "MESSAGE_KEY", "key length 99 exceeds"),
        (message(option, 9, value=None, codec=1), None, "WRAPPER_NULL", "has no value"),
        (message(option, 9, value=b"no gzip", codec=1), None, "PAYLOAD", "gzip data"),
        (message(option, 9, value=b"", codec=2), None, "PAYLOAD", "snappy data is empty"),
    ]
    for bad, record, reason, words in cases:
        with pytest.raises(kts.CorruptRecordError, match=words) as caught:
            options.decode(one + bad, option=option)
        assert (caught.value.reason, caught.value.position, caught.value.record_index) == (reason, len(one), record)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("framing", [name for name in framings(0) if not name.startswith("zstd")])
def test_a_wrapper_never_decompresses_beyond_the_bound(option: int, framing: str) -> None:
    codec, payload = framings(2**20)[framing]
    bomb = message(option, 0, value=payload(), codec=codec)
    with pytest.raises(kts.DecompressionLimitError, match="max_decompressed_bytes") as caught:
        options.decode(message(option, 0) + bomb, max_decompressed_bytes=1000)
    assert caught.value.position == len(message(option, 0))


def test_random_bytes_are_refused_or_read_as_the_slow_decoder_reads_them(rng: random.Random) -> None:
    for _ in range(scaled(2000, 30_000)):
        option = rng.choice(OPTIONS)
        data = bytearray(options.encode({"value": [b"v" * 9] * 3}, option=option, compression=rng.choice(CODECS)))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        broken = bytes(sealed(bytes(data)) if rng.random() < 0.7 else data)
        try:
            found = options.decode(broken, option=option)
        except kts.CorruptRecordError as error:
            assert error.position is not None and (error.reason or isinstance(error, kts.DecompressionLimitError))
        else:
            end = options.walk(broken, option=option).end
            assert as_rows(found) == rows(broken[:end], option)


def test_arrow_columns_of_any_kind_are_taken_as_they_are() -> None:
    values = pa.chunked_array([[b"a", None], [b"", b"long" * 9]]).slice(1, 3)
    times = pa.array([1, 2, None], pa.timestamp("s", tz="UTC"))
    data = options.encode(pa.table({"value": values, "createTimestamp": times}), option=3)
    found = as_rows(options.decode(data))
    assert [(row.create_ms, row.value) for row in found] == [(1000, None), (2000, b""), (-1, b"long" * 9)]
    assert options.encode({"createTimestamp": np.array([5])}, option=1) == message(1, 0, 5, value=None)
    assert options.encode({}, option=1) == b""
    assert options.decode(b"").num_rows == 0
