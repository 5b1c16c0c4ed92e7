"""kts.encode: what it takes, what it writes, how it divides rows into batches, what it refuses."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import kts

FORMATS = [(m, c) for m in (0, 1, 2) for c in ("none", "gzip", "snappy", "lz4", "zstd") if m == 2 or c != "zstd"]
every_format = pytest.mark.parametrize(("magic", "compression"), FORMATS)


def ints(values: list[int]) -> pa.Array:
    return pa.array(values, pa.int64())


def column(data: bytes, name: str) -> list[Any]:
    values = kts.decode(data, [name]).column(0)
    return (values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_pylist()


@every_format
def test_nulls_empties_gaps_and_times_come_back(magic: int, compression: str) -> None:
    offsets, times = [3, 4, 9, 1 << 40], [-1, 0, 1 << 62, -(1 << 62)]
    keys, values = [None, b"", b"k", b"\xff"], [b"", None, b"v" * 100_000, b"w"]
    batch = {"offset": ints(offsets), "timestamp": ints(times), "key": keys, "value": values}
    data = kts.encode(batch, magic=magic, compression=compression)
    assert column(data, "offset") == offsets
    assert column(data, "timestamp") == (times if magic else [-1] * 4)
    assert (column(data, "key"), column(data, "value")) == (keys, values)
    assert set(column(data, "timestampType")) == {0 if magic else -1}
    assert set(column(data, "codec")) == {["none", "gzip", "snappy", "lz4", "zstd"].index(compression)}


@pytest.mark.parametrize("batch", [{}, {"value": []}, pa.table({"value": pa.array([], pa.binary())})])
def test_no_rows_are_no_bytes(batch: Any) -> None:
    assert kts.encode(batch) == b""


def test_record_batches_tables_and_dicts_are_the_same() -> None:
    keys = pa.chunked_array([[b"a", None], [], [b"ccc"]], pa.binary())
    times = pa.chunked_array([[1, 2], [3]], pa.timestamp("ms", tz="UTC"))
    table = pa.table({"key": keys, "timestamp": times})
    expected = kts.encode({"key": [b"a", None, b"ccc"], "timestamp": ints([1, 2, 3])})
    assert kts.encode(table) == expected
    assert kts.encode(table.combine_chunks().to_batches()[0]) == expected
    assert kts.encode({"key": keys, "timestamp": times}) == expected


def test_slices_of_larger_arrays_are_read_at_their_place() -> None:
    count = 100
    headers = [[(f"h{i}", None), ("x", b"%d" % i)][: i % 3] or None for i in range(count)]
    batch = kts.decode(
        kts.encode(
            {
                "key": [b"%d" % i if i % 7 else None for i in range(count)],
                "value": [b"v%d" % i for i in range(count)],
                "headers": headers,
                "timestamp": ints(list(range(count))),
            }
        )
    )
    part = batch.slice(37, 20)
    again = kts.decode(kts.encode(part))
    assert again.equals(part)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view(), pa.binary(2)]
)
def test_other_arrow_strings_are_taken_as_bytes(kind: pa.DataType) -> None:
    values = pa.array(["ab", None, "cd"]).cast(pa.binary()).cast(kind)
    assert column(kts.encode({"value": values}), "value") == [b"ab", None, b"cd"]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_timestamps_of_any_unit_are_taken_as_milliseconds(unit: str) -> None:
    times = pa.array([1_600_000_000_000], pa.timestamp("ms", tz="Europe/Paris")).cast(pa.timestamp(unit, tz="UTC"))
    assert column(kts.encode({"timestamp": times}), "timestamp") == [1_600_000_000_000]


def test_a_time_between_milliseconds_is_refused_not_rounded() -> None:
    with pytest.raises(ValueError, match="timestamp"):
        kts.encode({"timestamp": pa.array([1], pa.timestamp("us"))})


@every_format
def test_batches_hold_about_the_bytes_asked_for(magic: int, compression: str) -> None:
    data = kts.encode({"value": [bytes(100)] * 1000}, magic=magic, compression=compression, batch_bytes=2000)
    if magic == 2 or compression != "none":
        plain = kts.scan_batches(kts.encode({"value": [bytes(100)] * 1000}, magic=magic, batch_bytes=2000))
        scan = kts.scan_batches(data)
        assert 50 <= scan.num_rows <= 100
        if magic == 2:
            assert max(plain.column("sizeInBytes").to_pylist()) <= 2000
            assert scan.column("count").to_pylist() == plain.column("count").to_pylist()
    assert column(data, "offset") == list(range(1000))


def test_a_record_beyond_the_batch_bytes_has_a_batch_of_its_own() -> None:
    data = kts.encode({"value": [b"a", bytes(5000), b"b"]}, batch_bytes=1)
    assert kts.scan_batches(data).column("count").to_pylist() == [1, 1, 1]


def test_offsets_too_far_apart_for_one_batch_start_another() -> None:
    offsets = [0, 1 << 31, (1 << 31) + 5]
    data = kts.encode({"offset": ints(offsets)})
    assert kts.scan_batches(data).column("count").to_pylist() == [1, 2]
    assert column(data, "offset") == offsets


def test_sequences_go_on_over_batches_and_wrap() -> None:
    last = 2**31 - 1
    data = kts.encode(
        {"value": [bytes(50)] * 10},
        batch_bytes=200,
        producer_id=7,
        producer_epoch=3,
        base_sequence=last - 4,
        transactional=True,
    )
    assert kts.scan_batches(data).num_rows > 2
    assert column(data, "sequence") == [last - 4, last - 3, last - 2, last - 1, last, 0, 1, 2, 3, 4]
    assert set(column(data, "producerId")) == {7} and set(column(data, "producerEpoch")) == {3}
    assert set(column(data, "transactional")) == {True} and set(column(data, "control")) == {False}


def test_log_append_time_is_the_time_of_every_batch_and_records_keep_theirs() -> None:
    how: dict[str, Any] = {"timestamp_type": "LogAppendTime", "log_append_time_ms": 99, "batch_bytes": 150}
    for magic, compression in FORMATS:
        data = kts.encode({"timestamp": ints([1, 2, 3])}, magic=magic, compression=compression, **how)
        expected = {0: ([-1] * 3, [-1] * 3, [-1] * 3), 1: ([99] * 3, [1, 2, 3], [1] * 3)}
        expected[2] = expected[1]
        if (magic, compression) == (1, "none"):  # a message has room for one time only
            expected[1] = ([99] * 3, [None] * 3, [1] * 3)
        found = tuple(column(data, name) for name in ("timestamp", "createTimestamp", "timestampType"))
        assert found == expected[magic], (magic, compression)
    own = kts.encode({"timestamp": ints([1]), "createTimestamp": ints([5])}, **how)
    assert column(own, "createTimestamp") == [5]


def test_decoded_columns_are_encoded_to_the_same_rows_without_preserving_batches() -> None:
    data = kts.encode({"timestamp": ints([5, -1]), "value": [b"x", None]}, compression="zstd")
    rows = kts.decode(data, kts.ALL_COLUMNS)
    assert kts.decode(kts.encode(rows)).equals(kts.decode(data))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("name", "batch", "how"),
    [
        ("headers", {"headers": [[("h", b"")]]}, {}),
        ("producer_id", {"value": [b""]}, {"producer_id": 1}),
        ("transactional", {"value": [b""]}, {"transactional": True}),
        ("control", {"value": [b""]}, {"control": True}),
    ],
)
def test_what_only_magic_2_carries_is_refused_below(magic: int, name: str, batch: Any, how: dict[str, Any]) -> None:
    with pytest.raises(kts.UnsupportedForMessageFormatError, match=name) as caught:
        kts.encode(batch, magic=magic, **how)
    assert caught.value.code == 43


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_needs_magic_2(magic: int) -> None:
    with pytest.raises(kts.UnsupportedCompressionTypeError, match="zstd"):
        kts.encode({"value": [b""]}, magic=magic, compression="zstd")


def test_empty_headers_are_no_headers_in_any_magic() -> None:
    for magic in (0, 1, 2):
        data = kts.encode({"value": [b"", b""], "headers": [[], None]}, magic=magic)
        assert column(data, "headers") == [None, None]


@pytest.mark.parametrize(
    ("batch", "how", "error", "words"),
    [
        ({}, {"magic": 3}, ValueError, "magic"),
        ({}, {"magic": True}, ValueError, "magic"),
        ({}, {"compression": "brotli"}, ValueError, "compression"),
        ({}, {"compression": "gzip", "level": 99}, ValueError, "level"),
        ({}, {"compression": "gzip", "level": "6"}, TypeError, "level"),
        ({}, {"compression": "snappy", "level": 1}, ValueError, "level"),
        ({}, {"timestamp_type": "create"}, ValueError, "timestamp_type"),
        ({}, {"timestamp_type": "LogAppendTime"}, ValueError, "log_append_time_ms"),
        ({}, {"base_offset": -1}, ValueError, "base_offset"),
        ({"value": [b"", b""]}, {"base_offset": 2**63 - 1}, ValueError, "base_offset"),
        ({}, {"base_offset": 1.5}, TypeError, "base_offset"),
        ({}, {"batch_bytes": 0}, ValueError, "batch_bytes"),
        ({}, {"producer_epoch": 1 << 15}, ValueError, "producer_epoch"),
        ([], {}, TypeError, "batch"),
        ({"values": [b""]}, {}, ValueError, "values"),
        ({"value": [b""], "key": []}, {}, ValueError, "length"),
        ({"value": [1]}, {}, ValueError, "value"),
        ({"offset": [1, 1]}, {}, ValueError, "offset.*row 1"),
        ({"offset": [-1, 1]}, {}, ValueError, "offset"),
        ({"offset": [None]}, {}, ValueError, "offset"),
        ({"timestamp": [b"x"]}, {}, ValueError, "timestamp"),
        ({"timestamp": [1.5]}, {}, ValueError, "timestamp"),
        ({"offset": ["1"]}, {}, ValueError, "offset"),
        ({"headers": pa.array([[{"key": "k", "val": b"v"}]])}, {}, ValueError, "headers.*val"),
        ({"headers": [[{"key": "k", "val": b"v"}]]}, {}, ValueError, "headers|'val'"),
        ({"headers": [[("k", 1)]]}, {}, ValueError, "headers"),
        ({"headers": [[(None, b"")]]}, {}, ValueError, "headers"),
        ({"value": [b""]}, {"preserve_batches": True}, ValueError, "preserve_batches"),
    ],
)
def test_a_wrong_argument_is_named(batch: Any, how: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        kts.encode(batch, **how)


def test_a_wrapper_of_several_magics_is_not_preserved_in_silence() -> None:
    rows = kts.decode(kts.encode({"value": [b"a", b"b"]}, magic=1, compression="gzip"), kts.ALL_COLUMNS)
    place = rows.schema.get_field_index("magic")
    mixed = rows.set_column(place, "magic", pa.array([0, 1], pa.int8()))
    with pytest.raises(ValueError, match="several magics"):
        kts.encode(mixed, preserve_batches=True)


def test_the_fields_of_headers_are_found_by_name() -> None:
    data = kts.encode({"headers": pa.array([[{"value": b"v", "key": "k"}]])})
    assert column(data, "headers") == [[{"key": "k", "value": b"v"}]]


def test_headers_come_as_lists_or_maps() -> None:
    rows = [[("a", b"1"), ("b", None)], None, [], [("c", b"")]]
    expected = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, None, [{"key": "c", "value": b""}]]
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    dicts = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    for kind in (pa.map_(pa.string(), pa.binary()), pa.list_(entry), pa.large_list(entry)):
        array = pa.array(rows if pa.types.is_map(kind) else dicts, kind)
        assert column(kts.encode({"headers": array}), "headers") == expected, kind
        assert column(kts.encode({"headers": array[1:]}), "headers") == expected[1:], kind
    fixed = pa.array([dicts[0], dicts[0]], pa.list_(entry, 2))
    assert column(kts.encode({"headers": fixed}), "headers") == [expected[0]] * 2


def test_the_last_offset_of_all_is_written() -> None:
    assert column(kts.encode({"value": [b"x"]}, base_offset=2**63 - 1), "offset") == [2**63 - 1]


def test_batches_of_several_files_at_the_same_position_are_kept_apart() -> None:
    parts = [
        kts.encode({"value": [b"a"]}),
        kts.encode(
            {"value": [b"b"]}, base_offset=1, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0
        ),
        kts.encode({"value": [b"c"]}, base_offset=2, magic=0),
        kts.encode({"value": [b"d"]}, base_offset=3, magic=1),
    ]
    rows = pa.Table.from_batches([kts.decode(part, kts.ALL_COLUMNS) for part in parts])
    assert kts.encode(rows, preserve_batches=True) == b"".join(parts)


def test_rows_repeated_or_out_of_order_are_no_batch_to_preserve() -> None:
    rows = kts.decode(kts.encode({"value": [b"a", b"b", b"c"]}), kts.ALL_COLUMNS)
    for wrong in (pa.Table.from_batches([rows, rows]), rows.take([2, 0])):
        with pytest.raises(ValueError, match="rise strictly"):
            kts.encode(wrong, preserve_batches=True)


def test_one_large_row_says_nothing_of_the_others() -> None:
    """The result's memory is guessed from what the first rows took, but never beyond what all rows can take."""
    for rows in (10_000, 1_000_000):
        values = pa.array([b"x" * 10_384_963] + [b""] * rows, pa.binary())
        assert column(kts.encode({"value": values}), "value") == values.to_pylist()


def test_headers_fill_batches_to_the_last_byte() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[("", None)] * 1000] * 20, kind)
    sizes = kts.scan_batches(kts.encode({"headers": headers})).column("sizeInBytes").to_pylist()
    # a record: 2 + 1 + 1 + 1 + 1 + 1 for lengths and deltas, 2 for the count, 2 a header, and a length of 2 before it
    assert sizes == [16133, 16133, 8097]


@pytest.mark.parametrize("name", ["attributes", "lastOffsetDelta", "partitionLeaderEpoch", "producerEpoch", "sequence"])
def test_what_does_not_fit_its_field_is_named(name: str) -> None:
    table = pa.table(kts.decode(kts.encode({"value": [b"v"]}, producer_id=1, base_sequence=0), kts.ALL_COLUMNS))
    place = table.schema.get_field_index(name)
    wide = table.set_column(place, name, pa.array([1 << 40], pa.int64()))
    with pytest.raises(ValueError, match=f"column '{name}': {1 << 40} at row 0 does not fit"):
        kts.encode(wide, preserve_batches=True)
