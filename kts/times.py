"""Times as Kafka's milliseconds: from an int, a date or text, with a guard against other units."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from fractions import Fraction
from time import time_ns
from typing import TYPE_CHECKING, Any

from kts.arguments import INT64_MAX, INT64_MIN, choice

if TYPE_CHECKING:
    import numpy as np

    Time = int | date | np.datetime64 | str
else:
    Time = int | date | str

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNITS = {"s": Fraction(1000), "ms": Fraction(1), "us": Fraction(1, 1000), "ns": Fraction(1, 1_000_000)}
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
# An integer of at least the first and below the second number, whatever its sign, is likely in this unit.
LIKELY_UNITS = ((10**8, 10**11, "s"), (10**14, 10**17, "us"), (10**17, INT64_MAX + 2, "ns"))
UNIT_ARGUMENT = 'unit="{}"'  # how a caller in Python names the unit

PARTS_OF_MS = {"us": 10**3, "ns": 10**6, "ps": 10**9, "fs": 10**12, "as": 10**15}
YEAR_2000_MS = 946_684_800_000  # earlier times of records are wrong: 0, or seconds for ms
STEPS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}

Length = int | timedelta | str | None
_INTEGER = re.compile(r"[+-]?\d+")
_NOTHING = re.compile(r"0+(ms|s|m|h|d|w)")
_LENGTH = re.compile(r"(\d+)(ms|s|m|h|d|w)")


class NotATimeError(ValueError):
    """A text is no time."""


def wall_clock() -> int:
    """Now, in ms since the epoch."""
    return time_ns() // 1_000_000


def milliseconds(
    name: str, value: object, unit: str | None = None, *, round_up: bool = True, how: str = UNIT_ARGUMENT
) -> int:
    """A time of a range or a row in ms since the epoch.

    Parameters
    ----------
    name : str
        The argument, for errors.
    value : int, aware datetime, date, numpy.datetime64 or str
        Text is ISO 8601 or an integer. A date is its first moment; like a datetime64 and a text that names no zone, it
        is in UTC.
    unit : {"s", "ms", "us", "ns"}, optional
        The unit of an integer. None means ms, and refuses an integer that looks like another unit.
    round_up : bool
        The time is an end of a range: fractions of a millisecond round up, so that "at or after" and "before" stay
        exact, as records have whole milliseconds, and text may also be ``now``, ``-1h`` or ``+1d12h``. False is the
        time of a record: it rounds down, as Java and Spark do when they write one.
    how : str
        How the caller names a unit, for the error.

    Raises
    ------
    TypeError, ValueError
        Not a time, a datetime without a zone, beyond 64 bits, or an integer that looks like another unit.

    Examples
    --------
    >>> milliseconds("starting_timestamp", "2026-09-01T10:00Z")
    1788256800000
    """
    try:
        if isinstance(value, str):
            return (
                parse_range_time(value, unit, how=how) if round_up else parse_time(value, unit, round_up=False, how=how)
            )
        if isinstance(value, datetime):
            if value.tzinfo is None or value.utcoffset() is None:
                raise ValueError(f"expected an aware datetime, found {value!r} without a time zone")
            return _of_datetime(value, round_up)
        if isinstance(value, date):
            return _of_datetime(datetime.combine(value, time.min, UTC), round_up)
        if _is_datetime64(value):
            return _of_datetime64(value, round_up)
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(
                f"expected an int (ms since the epoch), an aware datetime or ISO 8601 text, found {value!r}"
            )
        number = int(value.__index__())
        return checked(in_ms(number, unit, round_up=round_up, how=how), number)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def parse_range_time(
    text: str, unit: str | None = None, *, how: str = UNIT_ARGUMENT, zone: tzinfo = UTC, now_ms: int | None = None
) -> int:
    """As ``parse_time`` for an end of a range, which may also be ``now``, or ``-1h`` or ``+1d12h`` from now.

    Parameters
    ----------
    now_ms : int, optional
        The time of ``now``; None reads the clock.
    """
    text = text.strip()
    if text == "now":
        return checked(_now(now_ms), text)
    if text[:1] in ("-", "+") and not text[1:].isdecimal():
        step = parse_length(text[1:])
        return checked(_now(now_ms) + (step if text[0] == "+" else -step), text)
    return parse_time(text, unit, how=how, zone=zone)


def _now(now_ms: int | None) -> int:
    return wall_clock() if now_ms is None else now_ms


def parse_time(
    text: str, unit: str | None = None, *, round_up: bool = True, how: str = UNIT_ARGUMENT, zone: tzinfo = UTC
) -> int:
    """The same as ``milliseconds`` for text, in the zone if it names none; errors name no argument.

    Raises
    ------
    ValueError
        Not a time, beyond 64 bits, or an integer that looks like a day or another unit.
    """
    text = text.strip()
    if _INTEGER.fullmatch(text):
        day = _day(text) if unit is None else None
        if day is not None:
            raise ValueError(
                f"{text} looks like the day {day}; as milliseconds it would be {show_time(int(text))}. "
                f"Write {day}, or say {how.format('ms')}"
            )
        return checked(in_ms(int(text), unit, round_up=round_up, how=how), text)
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise NotATimeError(f"expected a time in ISO 8601 or an integer, found {text!r}") from None
    if moment.tzinfo is None:
        return _local(text, moment, round_up, zone)
    return _of_datetime(moment, round_up)


def _local(text: str, moment: datetime, round_up: bool, zone: tzinfo) -> int:
    """A time without an offset, in a zone; a day alone is its first moment there.

    Raises
    ------
    ValueError
        Clocks in the zone show that time twice, or never.
    """
    if len(text) <= len("2026-W36-2") and moment.time() == time.min:
        return first_moment(_of_datetime(moment.replace(tzinfo=UTC), round_up), zone)
    early, late = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if early.utcoffset() == late.utcoffset():
        return _of_datetime(early, round_up)
    try:
        readings = sorted(one.astimezone(UTC).astimezone(zone) for one in (early, late))
    except OverflowError:
        return _of_datetime(early, round_up)
    twice = early.utcoffset() > late.utcoffset()  # type: ignore[operator]  # of an aware datetime
    how_often = "twice, as clocks go back" if twice else "never, as clocks go forward"
    raise ValueError(
        f"clocks in {zone} show {text} {how_often}; write {' or '.join(one.isoformat() for one in readings)}"
    )


def first_moment(local_ms: int, zone: tzinfo) -> int:
    """The first moment, in ms since the epoch, at which clocks in a zone show a local time or a later one.

    Parameters
    ----------
    local_ms : int
        The local time in ms since 1970-01-01T00:00 by the same clocks.
    """

    def shows(ms: int) -> int:
        return ms + offset_ms(ms, zone)

    # No zone ever moved its clocks by two days, or twice within two days on either side.
    candidates = {local_ms - offset_ms(local_ms + days * STEPS_MS["d"], zone) for days in (-2, 2)}
    exact = [ms for ms in candidates if shows(ms) == local_ms]
    if exact:
        return min(exact)
    low, high = min(candidates), max(candidates)
    while low < high:  # the clocks jump over it
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) >= local_ms else (middle + 1, high)
    return low


def offset_ms(ms: int, zone: tzinfo) -> int:
    """How much clocks in a zone are ahead of UTC at a time, in ms; 0 near and beyond the years 1 and 9999."""
    try:
        ahead = (EPOCH + timedelta(milliseconds=ms)).astimezone(zone).utcoffset()
    except OverflowError:
        return 0
    return 0 if ahead is None else ahead // timedelta(milliseconds=1)


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


def length_of(name: str, value: object) -> int | None:
    """A length of time in ms; None, or the text ``unlimited``, has no bound.

    Parameters
    ----------
    name : str
        The argument, for errors.
    value : int (ms), timedelta, str or None
        Text is as for ``parse_length``, or a number of ms.

    Raises
    ------
    TypeError, ValueError
        Not a length of time, or below 0.
    """
    if value is None:
        return None
    if isinstance(value, str):
        text = value.strip().lower()
        if text == "unlimited":
            return None
        try:
            return (
                checked(int(text), text) if text.isdecimal() else 0 if _NOTHING.fullmatch(text) else parse_length(text)
            )
        except ValueError as error:
            raise ValueError(f"{name}: {error}, or unlimited") from None
    if isinstance(value, timedelta):
        ms = -(-value // timedelta(milliseconds=1))
    elif isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an int (ms), a timedelta, a text such as 1h, or None, found {value!r}")
    else:
        ms = int(value.__index__())
    if not 0 <= ms <= INT64_MAX:
        raise ValueError(f"{name}: expected 0 ms or more, found {value!r}")
    return ms


def show_length(ms: int) -> str:
    """A length of time as ``parse_length`` takes it, rounded up to the second."""
    left, found = -(-ms // 1000) * 1000, ""
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, STEPS_MS[unit])
        found += f"{count}{unit}" if count else ""
    return found or "0s"


def time_unit(name: str, value: object) -> str | None:
    """The name of a unit, or None.

    Raises
    ------
    TypeError, ValueError
    """
    return None if value is None else choice(name, value, tuple(UNITS))


def guessed_unit(number: int) -> str:
    """The likely unit of a bare integer: ``s``, ``ms``, ``us`` or ``ns``."""
    size = abs(number)
    return next((unit for least, end, unit in LIKELY_UNITS if least <= size < end), "ms")


def in_ms(number: int, unit: str | None, *, round_up: bool = True, how: str = UNIT_ARGUMENT) -> int:
    """An integer in ms, which may be beyond 64 bits.

    Raises
    ------
    ValueError
        No unit is given, and the integer looks like one other than ms, or is beyond 64 bits.
    """
    if unit is not None:
        exact = number * UNITS[unit]
        return -(-exact.numerator // exact.denominator) if round_up else exact.numerator // exact.denominator
    doubt = doubt_of(checked(number, number), how)
    if doubt:
        raise ValueError(doubt)
    return number


def doubt_of(number: int, how: str = UNIT_ARGUMENT) -> str:
    """What to tell who gives an integer that looks like another unit than ms; empty if it does not."""
    guess = guessed_unit(number)
    if guess == "ms":
        return ""
    return (
        f"{number} looks like {UNIT_NAMES[guess]} ({show_time(in_ms(number, guess))}); as milliseconds it would be "
        f"{show_time(number)}. Say which with {how.format(guess)} or {how.format('ms')}"
    )


def checked(ms: int, found: object) -> int:
    """Milliseconds within 64 bits.

    Raises
    ------
    ValueError
    """
    if not INT64_MIN <= ms <= INT64_MAX:
        raise ValueError(f"{found!r} is beyond the 64-bit milliseconds that Kafka stores")
    return ms


def _is_datetime64(value: object) -> bool:
    return getattr(getattr(value, "dtype", None), "kind", "") == "M" and getattr(value, "shape", None) == ()


def _of_datetime64(moment: Any, round_up: bool) -> int:
    import numpy as np

    if np.isnat(moment):
        raise ValueError("expected a time, found NaT")
    unit, count = np.datetime_data(moment.dtype)
    if unit in ("Y", "M"):
        moment, unit, count = moment.astype("datetime64[D]"), "D", 1
    ticks = int(moment.astype(np.int64)) * count
    exact = Fraction(ticks, PARTS_OF_MS[unit]) if unit in PARTS_OF_MS else ticks * STEPS_MS[unit.lower()]
    return checked(-(-exact // 1) if round_up else exact // 1, str(moment))


def _of_datetime(moment: datetime, round_up: bool) -> int:
    step = timedelta(milliseconds=1)
    return -((EPOCH - moment) // step) if round_up else (moment - EPOCH) // step


def _day(text: str) -> str | None:
    """The day of eight digits in ISO 8601's basic form, from 1900 to 2199; else None."""
    try:
        day = date.fromisoformat(str(int(text))) if 1900_01_01 <= int(text) <= 2199_12_31 else None
    except ValueError:
        return None
    return None if day is None else day.isoformat()


def iso(ms: int) -> str | None:
    """ISO 8601 in UTC with milliseconds, or None beyond the years 1 to 9999."""
    try:
        moment = EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None
    return moment.strftime(f"{moment.year:04d}-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def show_time(ms: int | None, zone: tzinfo | None = None) -> str:
    """A timestamp in ISO 8601, in UTC or the zone; ``none`` for -1, and ms beyond the years 1 to 9999."""
    if ms is None or ms == -1:
        return "none"
    if zone is not None:
        with suppress(OverflowError):
            return (EPOCH + timedelta(milliseconds=ms)).astimezone(zone).isoformat(timespec="milliseconds")
    return iso(ms) or f"{ms} ms"
