"""What the commands that change a partition share: settings, and the log opened for writing or the reason why not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kts.errors import LogLockedError

from .output import note

if TYPE_CHECKING:
    from kts.config import LogConfig
    from kts.dataset.partition import PartitionLog
    from kts.log.log import Log

FORMATS = ("0.9.0", "0.10.2", "3.9")  # a message format version for each magic

directory_argument = click.argument("directory", metavar="DIR")
config_option = click.option(
    "--config", "settings", metavar="KEY=VALUE", multiple=True, help="A topic setting by Kafka's name; repeatable."
)


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """``key=value`` texts as a mapping."""
    parsed = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"expected KEY=VALUE, found {text!r}", param_hint="'--config'")
        parsed[key.strip()] = value.strip()
    return parsed


def make_config(settings: Sequence[str], directory: str) -> LogConfig:
    """The topic's settings; the message format is that of what lies there, unless it is set."""
    from kts.config import LogConfig

    parsed = parse_settings(settings)
    if not {"message.format.version", "log.message.format.version"} & set(parsed):
        magic = newest_magic(directory)
        if magic is not None:
            parsed["message.format.version"] = FORMATS[magic]
    try:
        return LogConfig.of(parsed)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--config'") from error


def newest_magic(directory: str) -> int | None:
    """The magic of the last segment's first batch; None where there is no batch."""
    if not os.path.isdir(directory):
        return None
    for segment in reversed(partition(directory).segments):
        for headers in segment.batches(0, None, 1 << 12):
            if headers.num_rows:
                return int(headers["magic"][0].as_py())
    return None


def partition(directory: str) -> PartitionLog:
    """One partition directory, read-only; anything else is wrong use."""
    from .inputs import open_logs

    logs = open_logs([directory])
    if len(logs) != 1 or logs[0].lone or os.path.abspath(logs[0].path) != os.path.abspath(directory):
        raise click.UsageError(f"expected one partition directory (such as orders-0), found {directory}")
    return logs[0]


@contextmanager
def writable_log(
    directory: str, config: LogConfig | None = None, *, create: bool = False, clock: Callable[[], int] | None = None
) -> Iterator[Log]:
    """The log opened for writing, closed at the end.

    Raises
    ------
    LogLockedError
        A broker or another program has it, and what to do about that.
    """
    from kts.log.log import Log

    named: dict[str, Any] = {"create": create}
    if clock is not None:
        named["clock"] = clock
    with advice_on_locks():
        log = Log(directory, config, **named)
    say_what_was_recovered(log)
    with log:
        yield log


@contextmanager
def advice_on_locks() -> Iterator[None]:
    """Let an error about a lock say what to do, and one about a directory's name be wrong use."""
    try:
        yield
    except LogLockedError as error:
        advice = "stop the broker (or the other program) first, or work on a copy of the log directory"
        raise LogLockedError(f"{error.message}: {advice}", path=error.path) from error
    except ValueError as error:  # not a partition's name
        raise click.UsageError(str(error)) from error


def say_what_was_recovered(log: Log) -> None:
    """What start-up cut, removed or rebuilt."""
    for found in log.recovered:
        note(f"at start-up, {found}")
