"""Converts times and lengths of time between text and Kafka's milliseconds."""

from __future__ import annotations

from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import click

from kts import times
from kts.times import STEPS_MS, parse_length

from .output import TYPED_TIMES

ZONE = "kts.zone"  # in a context's meta
UNIT_OPTION = "--unit {}"
MOMENTS = (
    "ISO 8601 (2026-09-01, 2026-09-01T10:00, 2026-09-01T12:00+02:00; without an offset it is in UTC, or in --tz), "
    "'now', '-1h' or '-1d12h' before now (ms s m h d w)"
)
SPELLINGS = f"{MOMENTS}, or an integer in ms since 1970 (another unit: --unit)"


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
    try:
        return times.parse_range_time(text, unit, how=UNIT_OPTION, zone=chosen_zone() or UTC, now_ms=now_ms)
    except times.NotATimeError:
        raise ValueError(f"expected a time, found {text.strip()!r}; possible are {SPELLINGS}") from None


def show_time(ms: int | None) -> str:
    """A timestamp in ISO 8601, in the zone of ``--tz``; ``none`` for -1, and ms beyond the years 1 to 9999."""
    return times.show_time(ms, chosen_zone())


def chosen_zone() -> ZoneInfo | None:
    """The zone of ``--tz``; None is UTC."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(ZONE)


def zone_option(function: Any) -> Any:
    """``--tz``, for commands that show or take times."""

    def remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        try:
            ctx.meta[ZONE] = None if value is None else ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:
            raise click.BadParameter(
                f"expected a time zone such as Europe/Berlin, found {value!r}", ctx, param
            ) from error

    words = "The zone of shown times, and of typed ones without an offset, as Europe/Berlin. Default UTC."
    return click.option("--tz", metavar="ZONE", expose_value=False, is_eager=True, callback=remember, help=words)(
        function
    )


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
