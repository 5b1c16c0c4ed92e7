"""The settings of topics: types, defaults, and the broker settings that their defaults come from.

Source: LogConfig, ServerTopicConfigSynonyms, TopicConfig (3.9).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from enum import IntEnum
from typing import NamedTuple

from kts.arguments import INT64_MAX
from kts.config import DIFFERENCE, DIFFERENCE_NAMES, KIP_32_NAMES, WITHOUT_EFFECT, LogConfig, check_difference

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
_DOUBLE = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|NaN|Infinity)", re.ASCII)


class ConfigType(IntEnum):
    """The type of a setting, as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class TopicSetting(NamedTuple):
    """A setting of topics.

    Attributes
    ----------
    synonyms : tuple of (str, int)
        The broker settings for the default, by precedence, each with its unit in units of the topic setting.
    least, greatest : float, optional
        The limits of settings that have no effect on a log and so are not checked there.
    """

    name: str
    type: ConfigType
    default: str
    synonyms: tuple[tuple[str, int], ...] = ()
    least: float | None = None
    greatest: float | None = None


_TABLE = """\
cleanup.policy                           LIST    delete        log.cleanup.policy
compression.gzip.level                   INT     -1            compression.gzip.level                     -1 9
compression.lz4.level                    INT     9             compression.lz4.level                       1 17
compression.type                         STRING  producer      compression.type
compression.zstd.level                   INT     3             compression.zstd.level                -131072 22
delete.retention.ms                      LONG    86400000      log.cleaner.delete.retention.ms
file.delete.delay.ms                     LONG    60000         log.segment.delete.delay.ms
flush.messages                           LONG    MAX           log.flush.interval.messages
flush.ms                                 LONG    MAX           log.flush.interval.ms,log.flush.scheduler.interval.ms
follower.replication.throttled.replicas  LIST    -             -
index.interval.bytes                     INT     4096          log.index.interval.bytes
leader.replication.throttled.replicas    LIST    -             -
local.retention.bytes                    LONG    -2            log.local.retention.bytes                  -2
local.retention.ms                       LONG    -2            log.local.retention.ms                     -2
max.compaction.lag.ms                    LONG    MAX           log.cleaner.max.compaction.lag.ms
max.message.bytes                        INT     1048588       message.max.bytes
message.downconversion.enable            BOOLEAN true          log.message.downconversion.enable
message.format.version                   STRING  3.0-IV1       log.message.format.version
message.timestamp.after.max.ms           LONG    MAX           log.message.timestamp.after.max.ms
message.timestamp.before.max.ms          LONG    MAX           log.message.timestamp.before.max.ms
message.timestamp.difference.max.ms      LONG    MAX           log.message.timestamp.difference.max.ms
message.timestamp.type                   STRING  CreateTime    log.message.timestamp.type
min.cleanable.dirty.ratio                DOUBLE  0.5           log.cleaner.min.cleanable.ratio             0 1
min.compaction.lag.ms                    LONG    0             log.cleaner.min.compaction.lag.ms           0
min.insync.replicas                      INT     1             min.insync.replicas
preallocate                              BOOLEAN false         log.preallocate
remote.log.copy.disable                  BOOLEAN false         -
remote.log.delete.on.disable             BOOLEAN false         -
remote.storage.enable                    BOOLEAN false         -
retention.bytes                          LONG    -1            log.retention.bytes
retention.ms                             LONG    604800000    log.retention.ms,log.retention.minutes,log.retention.hours
segment.bytes                            INT     1073741824    log.segment.bytes
segment.index.bytes                      INT     10485760      log.index.size.max.bytes
segment.jitter.ms                        LONG    0             log.roll.jitter.ms,log.roll.jitter.hours
segment.ms                               LONG    604800000     log.roll.ms,log.roll.hours
unclean.leader.election.enable           BOOLEAN false         unclean.leader.election.enable
"""
# Further settings of the proposals and of Kafka 4: described only where they are set.
_OWN_TABLE = """\
allow.negative.timestamps                BOOLEAN false         log.allow.negative.timestamps
internal.segment.bytes                   INT     -             -
message.timestamp.missing                STRING  accept        log.message.timestamp.missing
proposals                                LIST    -             log.proposals
time.index.interval.ms                   LONG    60000         log.time.index.interval.ms
"""


def _unit_ms(name: str) -> int:
    return HOUR_MS if name.endswith(".hours") else MINUTE_MS if name.endswith(".minutes") else 1


def _parsed(line: str) -> TopicSetting:
    name, kind, default, synonyms, *limits = line.split()
    named = () if synonyms == "-" else tuple((one, _unit_ms(one)) for one in synonyms.split(","))
    value = {"MAX": str(INT64_MAX), "-": ""}.get(default, default)
    return TopicSetting(name, ConfigType[kind], value, named, *map(float, limits))


TOPIC_SETTINGS = {setting.name: setting for setting in map(_parsed, _TABLE.splitlines())}
# KIP-32's names of the difference limit. Topics take the first one; brokers take both, as the KIP has no "log." names.
_OF_KIP_32 = TOPIC_SETTINGS[DIFFERENCE]._replace(name=KIP_32_NAMES[0])
ALIASES = dict.fromkeys((DIFFERENCE, f"log.{DIFFERENCE}"), KIP_32_NAMES)
OWN_SETTINGS = {setting.name: setting for setting in (*map(_parsed, _OWN_TABLE.splitlines()), _OF_KIP_32)}
ALL_SETTINGS = OWN_SETTINGS | TOPIC_SETTINGS  # Kafka's last, whose broker names KIP-32's setting shares
BROKER_NAMES = {
    **dict.fromkeys(KIP_32_NAMES, _OF_KIP_32),
    **{name: setting for setting in ALL_SETTINGS.values() for name, _ in setting.synonyms},
}
OWN_BROKER_NAMES = {name for name, setting in BROKER_NAMES.items() if setting.name in OWN_SETTINGS}
DYNAMIC = frozenset(
    (*KIP_32_NAMES, *(setting.synonyms[0][0] for setting in ALL_SETTINGS.values() if setting.synonyms))
) - {"log.message.format.version"}


def merged(*levels: Mapping[str, str]) -> dict[str, str]:
    """The settings of several levels, the lowest first. A level's difference limit replaces those below by any name."""
    made: dict[str, str] = {}
    for level in levels:
        if not level.keys().isdisjoint(DIFFERENCE_NAMES):
            made = {name: value for name, value in made.items() if name not in DIFFERENCE_NAMES}
        made |= level
    return made


def static_defaults() -> dict[str, str]:
    """The broker settings' default values by name, without those that have none."""
    made = {}
    for setting in ALL_SETTINGS.values():
        if setting.synonyms:
            name, unit = setting.synonyms[-1]
            made[name] = setting.default if unit == 1 else str(int(setting.default) // unit)
    return made


def check_level(configs: Mapping[str, str]) -> None:
    """Refuse two values of one setting, and bad values of settings that have no effect on a log.

    Raises
    ------
    ValueError
        Names the setting, the valid values and the value.
    """
    check_difference(configs)
    for name in WITHOUT_EFFECT & configs.keys():
        setting = TOPIC_SETTINGS.get(name) or BROKER_NAMES.get(name)
        value = configs[name].strip()
        if setting is None:
            continue
        if setting.type is ConfigType.BOOLEAN and value.lower() not in ("true", "false"):
            raise ValueError(f"{name}: expected true or false, found {value!r}")
        if setting.type in (ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE):
            _check_number(setting, name, value)


def parse_double(text: str) -> float | None:
    """A number as Java's ``Double`` parses it; None for other text."""
    return float(text) if _DOUBLE.fullmatch(text) else None


def _check_number(setting: TopicSetting, name: str, value: str) -> None:
    try:
        number = parse_double(value) if setting.type is ConfigType.DOUBLE else int(value)
    except ValueError:
        number = None
    if number is None:
        raise ValueError(f"{name}: expected a number, found {value!r}")
    low, high = setting.least, setting.greatest
    if (low is not None and not number >= low) or (high is not None and not number <= high):
        raise ValueError(f"{name}: expected {low:g} to {'any' if high is None else f'{high:g}'}, found {value!r}")


def log_config(broker: Mapping[str, str], topic: Mapping[str, str], generation: str) -> LogConfig:
    """The configuration of a topic's log.

    Parameters
    ----------
    broker : mapping
        The broker's settings.
    topic : mapping
        The topic's own settings.
    generation : str
        "0.10.2" or "3.9".

    Raises
    ------
    ValueError
        An unknown name or a bad value.
    """
    for name in topic:
        if name not in ALL_SETTINGS:
            if name in BROKER_NAMES:
                raise ValueError(
                    f"unknown topic setting {name!r}, which is a broker's; a topic's is {BROKER_NAMES[name].name}"
                )
            near = get_close_matches(name, ALL_SETTINGS, n=1, cutoff=0)
            raise ValueError(f"unknown topic setting {name!r}; the nearest name is {near[0]}")
    check_level(topic)
    return LogConfig.of(merged(broker, topic), generation=generation)
