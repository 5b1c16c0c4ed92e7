"""Rows as programs have them: which are taken, what their times are, and how they are cut into sets."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.golden import scaled

import kts
from kts.codec import rows as rows_module
from kts.codec.rows import BadTimeError, RowSet, encode_rows, row_times
from kts.times import UNITS, milliseconds

NOW = 1_788_256_800_000
HEADERS = [[{"key": "source", "value": b"till"}], None, []]
COLUMNS: dict[str, Any] = {
    "timestamp": [NOW + 5, None, -1],
    "key": [b"a", None, b""],
    "value": [b"x", b"", None],
    "headers": HEADERS,
}
EXPECTED = [
    {"timestamp": NOW + 5, "key": b"a", "value": b"x", "headers": [{"key": "source", "value": b"till"}]},
    {"timestamp": NOW, "key": None, "value": b"", "headers": None},
    {"timestamp": -1, "key": b"", "value": None, "headers": None},
]


def sets(rows: Any, **how: Any) -> list[RowSet]:
    options = {"magic": 2, "compression": "none", "batch_bytes": 2**20, "now_ms": NOW} | how
    return list(encode_rows(rows, **options))


def read(rows: Any, **how: Any) -> list[dict[str, Any]]:
    """The rows as they were encoded, with times in ms."""
    found = []
    for one in sets(rows, **how):
        batch = kts.decode(one.records, ["timestamp", "key", "value", "headers"])
        assert batch.num_rows == one.end_row - one.first_row
        found += batch.set_column(0, "timestamp", batch["timestamp"].cast("int64")).to_pylist()
    return found


def generated() -> Iterator[dict[str, Any]]:
    yield from pa.table(COLUMNS, schema=SCHEMA).to_pylist()


SCHEMA = pa.schema(
    [
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
TABLE = pa.table(COLUMNS, schema=SCHEMA)


class Stream:
    """What only has Arrow's stream, as a data frame of a library that is not known."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return TABLE.__arrow_c_stream__(requested_schema)


class OneArray:
    """What only has Arrow's array."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


@pytest.mark.parametrize(
    "rows",
    [
        COLUMNS,
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        Stream(),
        OneArray(),
        TABLE.to_pylist(),
        tuple(TABLE.to_pylist()),
        generated(),
        pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
        {name: TABLE[name] for name in SCHEMA.names},
        {name: TABLE[name].chunk(0) for name in SCHEMA.names},
        TABLE.append_column("__index_level_0__", pa.array([1, 2, 3])),
        [{"timestamp": NOW + 5, "key": "a", "value": "x", "headers": [("source", b"till")]}, {"value": ""}]
        + [{"timestamp": -1, "key": ""}],
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_rows_of_every_form_are_the_same_records(rows: Any) -> None:
    assert read(rows) == EXPECTED


@pytest.mark.parametrize("kind", ["binary", "large_binary", "binary_view", "string", "large_string", "string_view"])
def test_keys_and_values_are_of_any_binary_or_text_type(kind: str) -> None:
    column = pa.array(["ab", None, "", "c" * 30], getattr(pa, kind)())
    wanted = [b"ab", None, b"", b"c" * 30]
    for given in (column, column.dictionary_encode() if "view" not in kind else column):
        for table in (pa.table({"key": given, "value": given}), pa.table({"key": given, "value": given}).slice(1)):
            found = read(table)
            assert [row["key"] for row in found] == [row["value"] for row in found] == wanted[4 - len(table) :]


def test_data_frames_of_pandas() -> None:
    import pandas

    frame = pandas.DataFrame(
        {
            "timestamp": pandas.to_datetime([NOW + 1, NOW + 2, None], unit="ms", utc=True),
            "key": pandas.Categorical(["a", "b", None]),
            "value": [b"x", None, "y"],
        }
    )
    expected = [(NOW + 1, b"a", b"x"), (NOW + 2, b"b", None), (NOW, None, b"y")]
    frame["value"] = [b"x", None, b"y"]
    assert [(row["timestamp"], row["key"], row["value"]) for row in read(frame)] == expected
    odd = frame[frame.index != 1]  # its index is a column in Arrow
    assert [(row["timestamp"], row["key"], row["value"]) for row in read(odd)] == [expected[0], expected[2]]
    series = {"timestamp": frame["timestamp"], "value": frame["value"]}
    assert [(row["timestamp"], row["value"]) for row in read(series)] == [(a, c) for a, _, c in expected]


def test_data_frames_of_polars() -> None:
    import polars

    frame = polars.DataFrame(
        {
            "timestamp": [datetime(2026, 9, 1, 10, 0, 0, 1999, UTC), None],
            "key": ["a", None],
            "value": [b"x", b""],
            "headers": [[{"key": "source", "value": b"till"}], None],
        }
    )
    expected = [
        {"timestamp": NOW + 1, "key": b"a", "value": b"x", "headers": [{"key": "source", "value": b"till"}]},
        {"timestamp": NOW, "key": None, "value": b"", "headers": None},
    ]
    assert read(frame) == read({name: frame[name] for name in frame.columns}) == expected
    assert read(frame.with_columns(polars.col("key").cast(polars.Categorical))) == expected


def test_relations_of_duckdb() -> None:
    import duckdb

    relation = duckdb.sql("SELECT 'x'::BLOB AS value, TIMESTAMPTZ '2026-09-01 12:00:00+02' AS timestamp")
    assert [(row["timestamp"], row["value"]) for row in read(relation)] == [(NOW, b"x")]


def test_what_a_scan_gives_is_taken_and_only_the_record_is_kept() -> None:
    batch = kts.decode(kts.encode(COLUMNS, base_offset=7, producer_id=5), list(kts.ALL_COLUMNS))
    expected = [EXPECTED[0], EXPECTED[1] | {"timestamp": -1}, EXPECTED[2]]
    assert read(batch) == expected
    [one] = sets(batch)
    header = kts.scan_batches(one.records).to_pylist()[0]
    assert (header["baseOffset"], header["producerId"]) == (0, -1)


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ({}, ValueError, "at least one of timestamp, key, value, headers"),
        ([], ValueError, "at least one row, found none"),
        ({"value": []}, ValueError, "at least one row, found none"),
        (TABLE.slice(0, 0), ValueError, "at least one row, found none"),
        ({"offset": [1]}, ValueError, "at least one of"),
        (b"encoded", TypeError, "found bytes; Log.append takes encoded batches"),
        ("text", TypeError, "found str"),
        (5, TypeError, "found int"),
        (None, TypeError, "found NoneType"),
        ([b"x"], TypeError, "expected dicts, found bytes as row 0"),
        ([{}, 5], TypeError, "expected dicts, found int as row 1"),
        (pa.chunked_array([[1]]), TypeError, "expected a stream of columns"),
        ({"vaule": [b"x"]}, ValueError, "unknown column 'vaule'; known are timestamp, key, value, headers"),
        ({"value": [1]}, ValueError, "column 'value'"),
        ({"value": b"one"}, ValueError, "column 'value': expected a list or an array, found one bytes"),
        ({"value": ["a"], "key": ["a", "b"]}, ValueError, "columns differ in length"),
        ({"value": ["a"], "headers": [{"a": b"x"}]}, ValueError, "column 'headers'"),
        (pa.table({"value": [1]}), ValueError, "column 'value': expected binary, found int64"),
        (pa.table([["a"], ["b"]], names=["key", "key"]), ValueError, "column 'key' is there twice"),
        ({"timestamp": [1.5]}, ValueError, "column 'timestamp': expected timestamps, int64 or ISO 8601 text"),
        ({"timestamp": [0, NOW // 1000]}, ValueError, 'row 1: timestamp: 1788256800 looks like seconds .*unit="s" or'),
        ({"timestamp": ["2026-09-01", "soon"]}, ValueError, "row 1: timestamp: expected a time in ISO 8601"),
        ({"timestamp": [None, datetime(2026, 9, 1)]}, ValueError, "row 1: timestamp: expected an aware datetime"),
        ({"timestamp": np.array([None, datetime(2026, 9, 1)])}, ValueError, "row 1: .* expected an aware datetime"),
        ({"timestamp": [0, "2026-09-01", NOW * 1000]}, ValueError, "row 2: timestamp: .* looks like microseconds"),
        ({"timestamp": [datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 9, 1)]}, ValueError, "row 1: .*aware"),
        ({"timestamp": np.array([2**63], np.uint64)}, ValueError, "column 'timestamp'"),
    ],
    ids=str,
)
def test_what_are_no_rows_is_refused_with_its_place(rows: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"^rows: .*{words}"):
        sets(rows)


def test_a_bad_row_is_named_by_its_number_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "PIECE_ROWS", 10)
    monkeypatch.setattr(rows_module, "PIECE_BYTES", 100)
    with pytest.raises(ValueError, match="^rows: row 57: timestamp: 1788256800 looks like seconds"):
        sets([{"timestamp": NOW // 1000 if row == 57 else NOW} for row in range(90)])
    with pytest.raises(ValueError, match="^rows: row 57: timestamp: 1788256800 looks like seconds"):
        sets({"timestamp": [NOW // 1000 if row == 57 else NOW for row in range(90)]})


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("compression", ["none", "gzip", "lz4"])
def test_rows_are_cut_into_sets_below_a_limit(
    magic: int, compression: str, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    monkeypatch.setattr(rows_module, "PIECE_BYTES", 20_000)  # so that there are several pieces
    values = [rng.randbytes(rng.randrange(2000)) for _ in range(60)]
    done = sets({"value": values}, magic=magic, compression=compression, batch_bytes=5000)
    assert [one.first_row for one in done] == [0, *(one.end_row for one in done[:-1])]
    assert done[-1].end_row == 60 and len(done) > 10
    for one in done:
        assert len(one.records) <= 5200
        assert kts.decode(one.records, ["value"]).column(0).to_pylist() == values[one.first_row : one.end_row]
    alone = sets({"value": values}, magic=magic, compression=compression, batch_bytes=1)
    assert [(one.first_row, one.end_row) for one in alone] == [(row, row + 1) for row in range(60)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_columns_of_timestamps_have_their_own_unit_and_round_down(unit: str, rng: random.Random) -> None:
    most = int(2**62 / max(UNITS[unit], 1))
    numbers = [rng.randrange(-most, most) for _ in range(100)] + [-1, 0, 1]
    expected = [number * UNITS[unit].numerator // UNITS[unit].denominator for number in numbers]
    for zone in (None, "UTC", "Europe/Berlin"):
        column = pa.array([*numbers, None], pa.timestamp(unit, zone))
        assert row_times(column).to_pylist() == [*expected, None]
        assert row_times(column.slice(5)).to_pylist() == [*expected[5:], None]
    assert row_times(pa.array([*numbers, None]), unit).to_pylist() == [*expected, None]
    with pytest.raises(BadTimeError, match="64-bit") as refused:
        row_times(pa.array([0, -(2**62)], pa.timestamp("s") if unit == "s" else None), "s")
    assert refused.value.row == 1


def test_a_column_of_integers_is_guarded_as_one_integer_is(rng: random.Random) -> None:
    edges = [10**8, 10**11, 10**14, 10**17, 2**63 - 1, -(2**63)]
    for _ in range(scaled(300, 3000)):
        number = max(min(rng.choice(edges) * rng.choice([-1, 1]) + rng.randrange(-2, 3), 2**63 - 1), -(2**63))
        try:
            expected: Any = milliseconds("t", number)
        except ValueError as error:
            with pytest.raises(BadTimeError) as refused:
                row_times(pa.array([0, None, number, number]))
            assert (refused.value.row, f"t: {refused.value}") == (2, str(error))
        else:
            assert row_times(pa.array([0, number])).to_pylist() == [0, expected]
        assert row_times(pa.array([number]), "ms").to_pylist() == [number]


def test_a_column_of_text_is_read_as_one_text_is(rng: random.Random) -> None:
    texts: list[str | None] = ["2026-W36-2", "20260901T1000Z", "2026-09-01", "0001-01-01T00:00Z", str(NOW), "-1", None]
    for _ in range(scaled(300, 3000)):
        moment = datetime(1, 1, 2, tzinfo=UTC) + timedelta(microseconds=rng.randrange(315_000_000_000_000_000))
        moment = (
            moment.astimezone(timezone(timedelta(minutes=rng.randrange(-900, 900)))) if rng.random() < 0.5 else moment
        )
        text = moment.isoformat(rng.choice("T "), rng.choice(["auto", "minutes", "seconds", "milliseconds"]))
        texts.append(rng.choice([text, text[:-6], text.replace("+00:00", "Z"), text.lower()]))
    rng.shuffle(texts)
    expected = [None if text is None else milliseconds("t", text, round_up=False) for text in texts]
    for column in (pa.array(texts), pa.array(texts, pa.large_string()), pa.array(texts).dictionary_encode()):
        assert row_times(column).to_pylist() == expected
    assert row_times(pa.array(texts[3:])).to_pylist() == expected[3:]
    with pytest.raises(BadTimeError, match="expected a time") as refused:
        row_times(pa.array([*texts, "2026-13-01T00:00Z"]))
    assert refused.value.row == len(texts)


def test_lists_hold_times_of_several_kinds() -> None:
    given = [NOW, "2026-09-01T12:00+02:00", datetime(2026, 9, 1, 10, 0, 0, 999, UTC), np.int64(NOW), None]
    assert [row["timestamp"] for row in read({"timestamp": given})] == [NOW] * 5
    assert [row["timestamp"] for row in read([{"timestamp": one} for one in given])] == [NOW] * 5
    assert [row["timestamp"] for row in read({"timestamp": [NOW // 1000]}, unit="s")] == [NOW]
    assert [row["timestamp"] for row in read({"timestamp": np.array(["2026-09-01T10:00"], "M8[s]")})] == [NOW]
    late = datetime(2026, 9, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    for column in ([late, NOW, None], (late, NOW, None), np.array([late, NOW, None], object)):
        assert [row["timestamp"] for row in read({"timestamp": column})] == [NOW] * 3
    assert [row["timestamp"] for row in read({"timestamp": [late, NOW // 1000, "2026-09-01"]}, unit="s")] == [
        NOW,
        NOW,
        NOW - 36_000_000,
    ]


@pytest.mark.parametrize("unit", [None, "s"])
def test_pandas_columns_of_objects_hold_times_of_several_kinds(unit: str | None) -> None:
    """Arrow takes the type of the first object for all: it reads an int after a datetime as microseconds."""
    import pandas

    late = datetime(2026, 9, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    number = NOW // 1000 if unit == "s" else NOW
    far = datetime(3000, 1, 1, tzinfo=UTC)  # a column of ns has no such time
    for times in (
        [late, number],
        [number, late],
        [pandas.Timestamp(late), np.int64(number)],
        ["2026-09-01T10:00Z", number],
    ):
        column = pandas.Series([*times, None, pandas.NaT, float("nan"), far], dtype=object)
        expected = [NOW, NOW, 7, 7, 7, 32_503_680_000_000]
        frame = pandas.DataFrame({"timestamp": column, "value": [b"v"] * 6})
        for rows in (frame, {"timestamp": column}):
            assert [row["timestamp"] for row in read(rows, now_ms=7, unit=unit)] == expected
    naive = pandas.Series([number, datetime(2026, 9, 1)], dtype=object)
    for rows in (pandas.DataFrame({"timestamp": naive}), {"timestamp": naive}):
        with pytest.raises(ValueError, match="^rows: row 1: timestamp: expected an aware datetime, found"):
            sets(rows, unit=unit)


@pytest.mark.parametrize("unit", [None, "s"])
def test_dicts_hold_times_of_several_kinds_in_any_order(
    unit: str | None, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    number = NOW // 1000 if unit == "s" else NOW
    kinds = [number, "2026-09-01T12:00+02:00", datetime(2026, 9, 1, 10, tzinfo=UTC), np.int64(number), None]
    times = [one for one in kinds for _ in range(7)] + rng.choices(kinds, k=40)
    for rows in (3, 7, 100):  # pieces of one kind, and of several
        for size in (20, 10_000):
            monkeypatch.setattr(rows_module, "PIECE_ROWS", rows)
            monkeypatch.setattr(rows_module, "PIECE_BYTES", size)
            assert [row["timestamp"] for row in read([{"timestamp": one} for one in times], unit=unit)] == [NOW] * 75
            for bad in ("soon", datetime(2026, 9, 1), 2**64):
                given = [*times[:57], bad, *times[58:]]
                with pytest.raises(ValueError, match="^rows: row 57: timestamp: "):
                    sets([{"timestamp": one} for one in given], unit=unit)
