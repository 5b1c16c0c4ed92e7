"""Times of ranges and rows: what is taken, and which integers are refused because they look like another unit."""

from __future__ import annotations

import random
import warnings
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest
from support.golden import scaled

import kts
from kts.arguments import INT64_MAX, INT64_MIN
from kts.times import (
    UNIT_NAMES,
    NotATimeError,
    first_moment,
    guessed_unit,
    in_ms,
    iso,
    milliseconds,
    offset_ms,
    parse_time,
    show_time,
    time_unit,
)

T = 1_788_256_800_000
TAKEN: list[tuple[Any, int]] = [
    (T, T),
    (np.int64(T), T),
    (0, 0),
    (-1, -1),
    (99_999_999, 99_999_999),
    (10**11, 10**11),
    (10**14 - 1, 10**14 - 1),
    (datetime(2026, 9, 1, 10, tzinfo=UTC), T),
    (datetime(2026, 9, 1, 12, tzinfo=timezone(timedelta(hours=2))), T),
    ("2026-09-01T10:00", T),
    ("2026-09-01 12:00+02:00", T),
    ("2026-09-01T10:00:00.000Z", T),
    ("20260901T1000Z", T),
    (str(T), T),
    (date(2026, 9, 1), T - 36_000_000),
    (np.datetime64("2026-09-01"), T - 36_000_000),
    (np.datetime64("2026-09"), T - 36_000_000),
    (np.datetime64("2026"), 1_767_225_600_000),
    (np.datetime64("2026-09-01T10", "h"), T),
    (np.datetime64("2026-09-01T10:00", "m"), T),
    (np.datetime64("2026-09-01T10:00:00", "s"), T),
    (np.datetime64(T, "ms"), T),
    (np.datetime64("2026-09-01T10:00:00", "ns"), T),
    (np.datetime64(T // 1000 // 7, "7s"), T // 1000 // 7 * 7000),
    (np.datetime64("-290000-01-01", "ms"), int(np.datetime64("-290000-01-01", "ms").astype(int))),
    ("1969-12-31T23:59:59.999Z", -1),
]
LOOK_LIKE = {
    10**8: "s",
    1_788_256_800: "s",
    -1_788_256_800: "s",
    10**11 - 1: "s",
    10**14: "us",
    1_788_256_800_000_000: "us",
    10**17 - 1: "us",
    10**17: "ns",
    1_788_256_800_000_000_000: "ns",
    INT64_MAX: "ns",
    INT64_MIN: "ns",
}


@pytest.mark.parametrize(("value", "expected"), TAKEN)
def test_a_time_is_an_int_a_datetime_or_text(value: Any, expected: int) -> None:
    assert milliseconds("t", value) == milliseconds("t", value, round_up=False) == expected
    assert milliseconds("t", value, "ms") == expected


def test_a_part_of_a_millisecond_rounds_as_a_datetime_does() -> None:
    for moment in (np.datetime64(T * 1000 + 1, "us"), np.datetime64(T * 10**6 + 1, "ns"), np.datetime64(1, "as")):
        exact = int(moment.astype("datetime64[ms]").astype(int))
        assert (milliseconds("t", moment), milliseconds("t", moment, round_up=False)) == (exact + 1, exact)


def test_a_range_may_begin_or_end_so_long_before_now_and_a_record_may_not() -> None:
    before = milliseconds("t", datetime.now(UTC), round_up=False)
    for text, step in (("now", 0), ("-1h", -3_600_000), ("+1d12h", 129_600_000), ("-90s", -90_000)):
        found = milliseconds("t", text)
        assert before <= found - step <= milliseconds("t", datetime.now(UTC))
        with pytest.raises(NotATimeError, match="expected a time"):
            parse_time(text)
        with pytest.raises(ValueError, match="t: expected a time"):
            milliseconds("t", text, round_up=False)


def test_no_time_of_numpy_and_times_beyond_64_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="t: expected a time, found NaT"):
        milliseconds("t", np.datetime64("NaT"))
    with pytest.raises(ValueError, match="t: .* is beyond the 64-bit milliseconds"):
        milliseconds("t", np.datetime64(INT64_MAX, "s"))


@pytest.mark.parametrize("number", LOOK_LIKE)
def test_an_integer_that_looks_like_another_unit_is_refused_unless_its_unit_is_given(number: int) -> None:
    unit = LOOK_LIKE[number]
    assert guessed_unit(number) == unit
    for value in (number, str(number)):
        with pytest.raises(ValueError, match=rf'^t: {number} looks like .*Say which with unit="{unit}" or unit="ms"$'):
            milliseconds("t", value)
        with pytest.raises(ValueError, match=f"--unit {unit} or --unit ms"):
            milliseconds("t", value, how="--unit {}")
        assert milliseconds("t", value, "ms") == number


def test_the_error_shows_both_readings() -> None:
    with pytest.raises(ValueError) as refused:
        milliseconds("starting_timestamp", 1_788_256_800)
    assert "seconds (2026-09-01T10:00:00.000Z); as milliseconds it would be 1970-01-21T16:44:16.800Z" in str(
        refused.value
    )


def test_units_scale_and_fractions_round_up_for_ranges_and_down_for_rows() -> None:
    for unit, number in (("s", T // 1000), ("us", T * 1000), ("ns", T * 10**6)):
        assert milliseconds("t", number, unit) == milliseconds("t", str(number), unit, round_up=False) == T
    for unit, number in (("us", T * 1000 + 1), ("ns", T * 10**6 + 1)):
        assert (in_ms(number, unit), in_ms(number, unit, round_up=False)) == (T + 1, T)
    assert (in_ms(-1, "us"), in_ms(-1, "us", round_up=False)) == (0, -1)
    between = datetime(2026, 9, 1, 10, microsecond=1, tzinfo=UTC)
    for value in (between, between.isoformat()):
        assert (milliseconds("t", value), milliseconds("t", value, round_up=False)) == (T + 1, T)


def test_eight_digits_as_text_may_be_a_day_and_as_an_int_are_milliseconds() -> None:
    with pytest.raises(ValueError, match='looks like the day 2026-09-01; .*say unit="ms"'):
        milliseconds("t", "20260901")
    assert milliseconds("t", "20260901", "ms") == milliseconds("t", 20260901) == 20260901


@pytest.mark.parametrize("value", [True, 1.0, None, b"2026-09-01", [1], np.float64(1), timedelta(1)])
def test_nothing_else_is_a_time(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^t: expected an int \(ms since the epoch\), an aware datetime or ISO 8601"):
        milliseconds("t", value)


def test_wrong_values_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="^t: expected an aware datetime"):
        milliseconds("t", datetime(2026, 9, 1))
    for text in ("", "yesterday", "1.5", "2026-13-01", "10:00"):
        with pytest.raises(ValueError, match="^t: expected a time in ISO 8601 or an integer"):
            milliseconds("t", text)
        with pytest.raises(NotATimeError):
            parse_time(text)
    for value in (INT64_MAX + 1, str(INT64_MIN - 1)):
        with pytest.raises(ValueError, match="64-bit"):
            milliseconds("t", value, "ms")
    with pytest.raises(ValueError, match="64-bit"):
        milliseconds("t", 2**62, "s")
    assert time_unit("unit", None) is None and time_unit("unit", "us") == "us"
    with pytest.raises(ValueError, match="unit: expected one of s, ms, us, ns, found 'm'"):
        time_unit("unit", "m")
    with pytest.raises(TypeError, match="^unit"):
        time_unit("unit", 1)


def test_a_shown_time_is_the_same_time_when_typed(rng: random.Random) -> None:
    for _ in range(300):
        ms = rng.randint(-62_135_596_800_000, 253_402_300_799_999)
        assert parse_time(iso(ms) or "") == ms
    assert [show_time(ms) for ms in (None, -1, 2**62)] == ["none", "none", f"{2**62} ms"]


def test_scans_are_guarded_and_what_answers_for_any_number_tells_what_it_looks_like(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with kts.Log(path, clock=lambda: T) as log, kts.open_partition(path) as reader:
        log.append(kts.encode({"timestamp": [T, T + 1], "value": [b"a", b"b"]}))
        for scan in (log.scan, lambda **how: kts.scan(path, **how)):
            for name in ("starting_timestamp", "ending_timestamp"):
                with pytest.raises(ValueError, match=f'^{name}: 1788256800 looks like seconds .*unit="s" or unit="ms"'):
                    scan(**{name: T // 1000})
            assert scan(starting_timestamp=T // 1000, unit="ms").read_all().num_rows == 2
            assert scan(starting_timestamp=T * 1000 + 1, unit="us").read_all().num_rows == 1
            assert scan(starting_timestamp="2026-09-01T10:00:00.001Z").read_all().num_rows == 1
        for search in (log.offset_for_timestamp, reader.offset_for_timestamp, reader.explain_offset_for_timestamp):
            for number, unit in LOOK_LIKE.items():
                with pytest.warns(kts.KtsWarning, match=f"t_ms: {number} looks like {UNIT_NAMES[unit]} .* unit=.ms."):
                    found = search(number)
                with warnings.catch_warnings(action="error"):
                    assert search(number, unit="ms") == found
            with warnings.catch_warnings(action="error"):
                second = datetime.fromtimestamp(T // 1000, UTC) + timedelta(milliseconds=1)
                answers = [search(time) for time in (T + 1, second, np.datetime64(T + 1, "ms"))]
                answers += [search(str(T + 1)), search((T + 1) * 1000, unit="us"), search("2026-09-01T10:00:00.001Z")]
                assert [getattr(one, "answer", one) for one in answers] == [(T + 1, 1)] * 6
                for time in ("now", date(2999, 1, 1)):
                    assert getattr(search(time), "answer", None) is None
                assert getattr(search("-10000w"), "answer", (T, 0)) == (T, 0)


SHOWN_TWICE_OR_NEVER = [
    # zone, local time, how often, the two moments to write instead
    ("Europe/Berlin", "2026-03-29T02:30", "never", ("2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00")),
    ("Europe/Berlin", "2026-03-29T02:00", "never", ("2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00")),
    ("Europe/Berlin", "2025-10-26 02:59:59", "twice", ("2025-10-26T02:59:59+02:00", "2025-10-26T02:59:59+01:00")),
    ("America/Havana", "2025-11-02T00:10", "twice", ("2025-11-02T00:10:00-04:00", "2025-11-02T00:10:00-05:00")),
    ("Africa/Cairo", "2026-04-24T00:00", "never", ("2026-04-23T23:00:00+02:00", "2026-04-24T01:00:00+03:00")),
    ("Australia/Lord_Howe", "2026-04-05T01:45", "twice", ("2026-04-05T01:45:00+11:00", "2026-04-05T01:45:00+10:30")),
    ("Pacific/Apia", "2011-12-30T12:00", "never", ("2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00")),
]


@pytest.mark.parametrize(("zone", "text", "how_often", "readings"), SHOWN_TWICE_OR_NEVER)
def test_a_local_time_that_is_twice_or_never_is_refused_with_both_readings(
    zone: str, text: str, how_often: str, readings: tuple[str, str]
) -> None:
    with pytest.raises(ValueError, match=f"clocks in {zone} show {text} {how_often}") as refused:
        parse_time(text, zone=ZoneInfo(zone))
    assert str(refused.value).endswith("; write " + " or ".join(readings))
    assert all(parse_time(reading, zone=ZoneInfo(zone)) for reading in readings)


@pytest.mark.parametrize(
    ("zone", "text", "moment"),
    [
        ("Europe/Berlin", "2026-03-29T01:59:59.999", "2026-03-29T00:59:59.999Z"),
        ("Europe/Berlin", "2026-03-29T03:00", "2026-03-29T01:00Z"),
        ("Europe/Berlin", "2025-10-26T03:00", "2025-10-26T02:00Z"),
        ("Europe/Berlin", "2025-10-26", "2025-10-25T22:00Z"),
        # Midnight that is never, or twice: the day begins at its first moment.
        ("Africa/Cairo", "2026-04-24", "2026-04-23T22:00Z"),
        ("America/Havana", "2025-11-02", "2025-11-02T04:00Z"),
        ("America/Toronto", "1919-03-31", "1919-03-31T04:30Z"),
        ("Pacific/Apia", "2011-12-30", "2011-12-30T10:00Z"),  # a day that Samoa left out: the next one
    ],
)
def test_other_local_times_and_days_are_the_one_moment_they_name(zone: str, text: str, moment: str) -> None:
    assert parse_time(text, zone=ZoneInfo(zone)) == parse_time(moment)


def test_the_first_moment_of_a_local_time_is_the_first_at_which_clocks_show_it(rng: random.Random) -> None:
    """Compared with a walk over the minutes before it, in any zone."""
    for _ in range(scaled(60, 300)):
        zone = ZoneInfo(rng.choice(sorted(available_timezones())))
        shown = rng.randrange(-1_500_000, 1_500_000) * 900_000
        found = first_moment(shown, zone)
        minutes = range(shown - 26 * 3_600_000, shown + 26 * 3_600_000, 60_000)
        first = next(ms for ms in minutes if ms + offset_ms(ms, zone) >= shown)
        assert first - 60_000 < found <= first, f"{zone}: {shown}"
