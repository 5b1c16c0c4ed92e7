"""Converts times and lengths of time between text and Kafka's milliseconds."""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any

import click

from kts.arguments import INT64_MAX, INT64_MIN

from .output import TYPED_TIMES

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNITS = {"s": Fraction(1000), "ms": Fraction(1), "us": Fraction(1, 1000), "ns": Fraction(1, 1_000_000)}
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
STEPS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SPELLINGS = (
    "ISO 8601 (2026-09-01, 2026-09-01T10:00, 2026-09-01T12:00+02:00; without a zone it is UTC), "
    "'now', '-1h' or '-1d12h' before now (ms s m h d w), or an integer in ms since 1970 (another unit: --unit)"
)
_LENGTH = re.compile(r"(\d+)(ms|s|m|h|d|w)")
_INTEGER = re.compile(r"[+-]?\d+")


def parse_length(text: str) -> int:
    """Milliseconds in ``1h``, ``90s``, ``1d12h``.

    Raises
    ------
    ValueError
        Not a length of time, or zero.
    """
    total, at = 0, 0
    for part in _LENGTH.finditer(text):
        if part.start() != at:
            break
        total, at = total + int(part[1]) * STEPS_MS[part[2]], part.end()
    if at != len(text) or not 0 < total <= INT64_MAX:
        raise ValueError(f"expected a length of time such as 15m, 1h or 1d12h (ms s m h d w), found {text!r}")
    return total


def guessed_unit(number: int) -> str:
    """The likely unit of a bare integer: ``s``, ``ms``, ``us`` or ``ns``."""
    size = abs(number)
    if 10**8 <= size < 10**11:
        return "s"
    if 10**14 <= size < 10**17:
        return "us"
    return "ns" if size >= 10**17 else "ms"


def parse_time(text: str, *, unit: str | None = None, now_ms: int | None = None) -> int:
    """Milliseconds since the epoch of a time in one of the forms in ``SPELLINGS``.

    Parameters
    ----------
    unit : {"s", "ms", "us", "ns"}, optional
        The unit of an integer; None means ms, and refuses an integer that looks like another unit.
    now_ms : int, optional
        The time of ``now`` and the base of ``-1h``; None reads the clock.

    Raises
    ------
    ValueError
        Not a time, beyond 64 bits, or an integer that looks like a unit other than ms.

    Notes
    -----
    Fractions of a millisecond round up: exact for "at or after" and for "before", as records have whole milliseconds.
    """
    text = text.strip()
    if _INTEGER.fullmatch(text):
        return _checked(_from_integer(int(text), unit), text)
    if text == "now":
        return _checked(_now(now_ms), text)
    if text[:1] in ("-", "+"):
        step = parse_length(text[1:])
        return _checked(_now(now_ms) + (step if text[0] == "+" else -step), text)
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise ValueError(f"expected a time, found {text!r}; possible are {SPELLINGS}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _checked(-((EPOCH - moment) // timedelta(milliseconds=1)), text)


def _now(now_ms: int | None) -> int:
    return time.time_ns() // 1_000_000 if now_ms is None else now_ms


def _from_integer(number: int, unit: str | None) -> int:
    if unit is None:
        day = _day(number)
        if day is not None:
            raise ValueError(
                f"{number} looks like the day {day}; as milliseconds it would be {show_time(number)}. "
                f"Write {day}, or say --unit ms"
            )
        guess = guessed_unit(number)
        if guess != "ms":
            value = _scaled(number, guess)
            raise ValueError(
                f"{number} looks like {UNIT_NAMES[guess]} ({show_time(value)}); as milliseconds it would be "
                f"{show_time(number)}. Say which with --unit {guess} or --unit ms"
            )
        return number
    return _scaled(number, unit)


def _day(number: int) -> str | None:
    """The day of an eight-digit number in ISO 8601's basic form, from 1900 to 2199; else None."""
    try:
        day = date.fromisoformat(str(number)) if 1900_01_01 <= number <= 2199_12_31 else None
    except ValueError:
        return None
    return None if day is None else day.isoformat()


def _scaled(number: int, unit: str) -> int:
    exact = number * UNITS[unit]
    return -(-exact.numerator // exact.denominator)


def _checked(ms: int, text: str) -> int:
    if not INT64_MIN <= ms <= INT64_MAX:
        raise ValueError(f"{text!r} is beyond the 64-bit milliseconds that Kafka stores")
    return ms


def iso(ms: int) -> str | None:
    """ISO 8601 in UTC with milliseconds, or None beyond the years 1 to 9999."""
    try:
        moment = EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None
    return moment.strftime(f"{moment.year:04d}-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def show_time(ms: int | None) -> str:
    """A timestamp in ISO 8601; ``none`` for -1, and ms beyond the years 1 to 9999."""
    if ms is None or ms == -1:
        return "none"
    return iso(ms) or f"{ms} ms"


def show_length(ms: int) -> str:
    """``1d 2h`` for a length of time: its two largest parts."""
    parts = []
    for name in ("d", "h", "m", "s", "ms"):
        whole, ms = divmod(ms, STEPS_MS[name])
        if whole:
            parts.append(f"{whole}{name}")
    return " ".join(parts[:2]) or "0ms"


def length_callback(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Turn an option's text into a length of time in ms."""
    if value is None:
        return None
    try:
        return parse_length(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def resolve(text: str | None, option: str, unit: str | None, now: str | None) -> int | None:
    """``parse_time`` for an option. Errors name the option; later messages show the text instead of ms."""
    if text is None:
        return None
    try:
        now_ms = None if now is None else parse_time(now)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--now'") from error
    try:
        ms = parse_time(text, unit=unit, now_ms=now_ms)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=f"'{option}'") from error
    click.get_current_context().meta.setdefault(TYPED_TIMES, []).append((option, ms, text))
    return ms


def time_options(function: Any) -> Any:
    """``--unit`` and ``--now``, for every command that takes a time."""
    now = click.option("--now", metavar="TIME", help="The base of times such as -1h. Default: now.")
    function = now(function)
    return click.option(
        "--unit",
        type=click.Choice(list(UNITS)),
        help="The unit of integers given as times. Default ms; an integer that looks like another unit is refused.",
    )(function)
