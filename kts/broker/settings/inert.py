"""Settings of Kafka's brokers without an effect here, and the cleaner's; ``inert.txt`` has types, defaults and limits.

Source: KafkaConfig and the classes that its definition is put together from, LogCleaner.validateReconfiguration (3.9,
4.3).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from kts.arguments import INT32_MAX
from kts.behaviour import DEFAULT, Behaviour, lines_by_release
from kts.broker.settings.topic import DYNAMIC, INTEGERS, ConfigType
from kts.config import parse_double
from kts.store.source import files


class InertSetting(NamedTuple):
    """A setting without effect; ``default`` is None if Kafka has none."""

    name: str
    type: ConfigType
    default: str | None
    least: float | None = None
    greatest: float | None = None


MIB = 1 << 20


def _parsed(line: str) -> InertSetting:
    name, kind, default, *limits = line.split()
    value = {"-": None, "''": ""}.get(default, default.replace("~", "org.apache.kafka."))
    return InertSetting(name, ConfigType[kind], value, *map(float, limits))


_LINES = lines_by_release(files.read_bytes(os.path.join(os.path.dirname(__file__), "inert.txt")).decode("utf-8"))
ALL_INERT = frozenset(line.split()[0] for lines in _LINES.values() for line in lines)


@cache
def inert_settings(behaviour: Behaviour) -> dict[str, InertSetting]:
    """The settings without an effect that a release has, by name."""
    return {one.name: one for one in map(_parsed, _LINES[behaviour.release])}


# Settings of the cleaner that may change while a broker runs.
CLEANER = frozenset(name for name in ALL_INERT if name.startswith("log.cleaner.")) - {"log.cleaner.enable"}
CHANGEABLE = DYNAMIC | CLEANER
_ENABLE, _THREADS, _BUFFER = "log.cleaner.enable", "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
_LOAD, _BACKOFF = "log.cleaner.io.buffer.load.factor", "log.cleaner.backoff.ms"
EFFECTIVE = frozenset({_ENABLE, _THREADS, _BUFFER, _LOAD, _BACKOFF})


class CleanerSettings(NamedTuple):
    """The settings of the cleaner that have an effect.

    Attributes
    ----------
    dedupe_buffer_bytes : int
        Of one thread, as there is one here.
    """

    enabled: bool
    backoff_ms: int
    dedupe_buffer_bytes: int
    load_factor: float


def cleaner_settings(configs: Mapping[str, str]) -> CleanerSettings:
    """The cleaner's settings among those of a broker."""
    known = inert_settings(DEFAULT)
    values = {name: (configs.get(name) or known[name].default or "").strip() for name in EFFECTIVE}
    return CleanerSettings(
        values[_ENABLE].lower() == "true",
        int(values[_BACKOFF]),
        min(int(values[_BUFFER]) // max(int(values[_THREADS]), 1), INT32_MAX),
        parse_double(values[_LOAD]) or 0.0,
    )


def check_inert(configs: Mapping[str, str], behaviour: Behaviour = DEFAULT) -> None:
    """Refuse values of a wrong type or beyond the limits, as Kafka does. Other names are ignored.

    Raises
    ------
    ValueError
        Names the setting, the valid values and the value.
    """
    known = inert_settings(behaviour)
    for name in configs.keys() & known.keys():
        setting, text = known[name], configs[name].strip()
        if setting.type is ConfigType.BOOLEAN and text.lower() not in ("true", "false"):
            raise ValueError(f"{name}: expected true or false, found {text!r}")
        if setting.type is ConfigType.DOUBLE and parse_double(text) is None:
            raise ValueError(f"{name}: expected a number, found {text!r}")
        if (most := INTEGERS.get(setting.type)) is not None:
            least = -most - 1 if setting.least is None else int(setting.least)
            greatest = most if setting.greatest is None else int(setting.greatest)
            digits = text[1:] if text[:1] in ("+", "-") else text
            if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(text) <= greatest):
                raise ValueError(f"{name}: expected an integer from {least} to {greatest}, found {text!r}")


def check_cleaner(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Refuse changes of the cleaner's threads and memory that Kafka refuses.

    Raises
    ------
    ValueError
        Names the setting, the valid values and the value.
    """
    default = inert_settings(DEFAULT)
    now, wanted = (int(one.get(_THREADS) or default[_THREADS].default or 0) for one in (before, after))
    if not max(now // 2, 1) <= wanted <= max(now * 2, 1):
        raise ValueError(f"{_THREADS}: expected {max(now // 2, 1)} to {max(now * 2, 1)} after {now}, found {wanted}")
    memory = int(after.get(_BUFFER) or default[_BUFFER].default or 0)
    if memory // wanted <= MIB:
        raise ValueError(f"{_BUFFER}: expected more than {MIB} bytes for each of {wanted} threads, found {memory}")
