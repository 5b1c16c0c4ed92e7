"""Times as people type them."""

from __future__ import annotations

import random

import pytest
from support.golden import golden
from support.processes.cli_runs import run

from kts.arguments import INT64_MAX, INT64_MIN
from kts.cli.times import parse_time, show_length, show_time
from kts.times import parse_length

NOW = 1_800_000_000_000
SPELLED = {
    "1970-01-01": 0,
    "1970-01-01T00:00:00.001Z": 1,
    "2026-09-01": 1_788_220_800_000,
    "2026-09-01T10:00": 1_788_256_800_000,
    "2026-09-01 10:00": 1_788_256_800_000,
    "2026-09-01T10:00Z": 1_788_256_800_000,
    "2026-09-01T12:00+02:00": 1_788_256_800_000,
    "2026-09-01T10:00:00.0001Z": 1_788_256_800_001,  # rounds up: at or after, and before, stay exact
    "1969-12-31T23:59:59.999Z": -1,
    "9999-12-31T23:59:59.999Z": 253_402_300_799_999,
    "now": NOW,
    "-1h": NOW - 3_600_000,
    "-1d12h": NOW - 129_600_000,
    "+90s": NOW + 90_000,
    "-250ms": NOW - 250,
    "0": 0,
    "-1": -1,
    "-2": -2,
    "99999999": 99_999_999,
    "100000000000": 100_000_000_000,
    "1788256800000": 1_788_256_800_000,
    "-1788256800000": -1_788_256_800_000,
}
GUARDED = {
    "100000000": ("seconds", "s"),
    "1788256800": ("seconds", "s"),
    "-1788256800": ("seconds", "s"),
    "99999999999": ("seconds", "s"),
    "100000000000000": ("microseconds", "us"),
    "1788256800000000": ("microseconds", "us"),
    "99999999999999999": ("microseconds", "us"),
    "100000000000000000": ("nanoseconds", "ns"),
    "1788256800000000000": ("nanoseconds", "ns"),
    str(INT64_MIN): ("nanoseconds", "ns"),
}


@pytest.mark.parametrize("text", SPELLED)
def test_every_spelling_is_the_millisecond_it_says(text: str) -> None:
    assert parse_time(text, now_ms=NOW) == SPELLED[text]


@pytest.mark.parametrize("text", GUARDED)
def test_integers_that_look_like_another_unit_are_refused_with_their_reading(text: str) -> None:
    name, unit = GUARDED[text]
    with pytest.raises(ValueError, match=f"looks like {name} .*--unit {unit} or --unit ms"):
        parse_time(text)
    assert parse_time(text, unit="ms") == int(text)


def test_units_scale_and_round_up() -> None:
    assert parse_time("1788256800", unit="s") == 1_788_256_800_000
    assert parse_time("1788256800000001", unit="us") == 1_788_256_800_001
    assert parse_time("-1", unit="us") == 0
    assert parse_time("1788256800000000000", unit="ns") == 1_788_256_800_000


@pytest.mark.parametrize("text", ["", "yesterday", "-", "1.5", "-1y", "2026-13-01", "-h", "10:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a (time|length of time)"):
        parse_time(text)


def test_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="64-bit"):
        parse_time(str(INT64_MAX + 1), unit="ms")
    assert parse_time(str(INT64_MAX), unit="ms") == INT64_MAX


@pytest.mark.parametrize("text", ["", "0h", "1", "h", "1h2", "1hh", "-1h"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="length of time"):
        parse_length(text)


def test_shown_times_and_lengths_read_back(rng: random.Random) -> None:
    for _ in range(500):
        ms = rng.randrange(-62_135_596_800_000, 253_402_300_800_000)
        if ms != -1:
            assert parse_time(show_time(ms)) == ms
        length = rng.randrange(1, 10 ** rng.randrange(1, 12))
        shown = parse_length(show_length(length).replace(" ", ""))
        assert shown <= length < shown * 1.5 + 1
    assert [show_time(ms) for ms in (None, -1, 2**62, INT64_MIN)] == ["none", "none", f"{2**62} ms", f"{INT64_MIN} ms"]


def test_options_say_which_of_them_is_wrong() -> None:
    path = golden("demo", "orders").log_dir
    for option, command in (("--from", "dump"), ("--to", "dump"), ("--time", "offset-for")):
        said = run(command, path, option, "1788256800", code=2).stderr
        assert option in said and "looks like seconds (2026-09-01T10:00:00.000Z)" in said
    assert "'--now'" in run("dump", path, "--from", "-1h", "--now", "soon", code=2).stderr
    assert "'--by'" in run("stats", path, "--by", "soon", code=2).stderr


def test_a_time_before_now_counts_from_now() -> None:
    path = golden("demo", "orders").partition_dir("orders-1")
    said = [
        run("offset-for", path, "--time", time, "--now", "2026-09-02").stdout for time in ("-14h", "2026-09-01T10:00")
    ]
    assert said[0] == said[1] and "2026-09-01T10:0" in said[0]


def test_eight_digits_that_spell_a_day_are_refused_with_both_readings() -> None:
    with pytest.raises(ValueError, match="20260903 looks like the day 2026-09-03; as milliseconds .*1970.*--unit ms"):
        parse_time("20260903")
    assert parse_time("20260903", unit="ms") == 20260903
    assert parse_time("20261399") == 20261399  # no such day
