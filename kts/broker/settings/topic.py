"""The settings of topics: types, defaults, and the broker settings that their defaults come from.

Source: LogConfig, ServerTopicConfigSynonyms, TopicConfig (3.9, 4.3); ThrottledReplicaListValidator, GzipCompression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from kts.arguments import INT16_MAX, INT32_MAX, INT64_MAX
from kts.behaviour import DEFAULT, Behaviour
from kts.config import (
    DECIDED,
    DIFFERENCE,
    DIFFERENCE_NAMES,
    KIP_32_NAMES,
    WITHOUT_EFFECT,
    LogConfig,
    check_difference,
    parse_integer,
    parse_names,
    unknown_names,
)

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
_REPLICA = re.compile(r"[0-9]+:[0-9]+")
NO_OWN_RETENTION = -2  # local.retention.ms and .bytes: the same as retention.ms and .bytes


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
min.cleanable.dirty.ratio                DOUBLE  0.5           log.cleaner.min.cleanable.ratio
min.compaction.lag.ms                    LONG    0             log.cleaner.min.compaction.lag.ms
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
INTEGERS = {ConfigType.INT: INT32_MAX, ConfigType.LONG: INT64_MAX, ConfigType.SHORT: INT16_MAX}
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


@cache
def settings_of(behaviour: Behaviour) -> dict[str, TopicSetting]:
    """Every setting that a topic may have in a release, with its defaults; Kafka's last."""
    gone = unknown_names(behaviour)
    made = {name: setting for name, setting in ALL_SETTINGS.items() if name not in gone}
    for name in ("max.message.bytes", "message.timestamp.after.max.ms"):
        made[name] = made[name]._replace(default=str(getattr(behaviour, name.replace(".", "_"))))
    return made


@cache
def static_defaults(behaviour: Behaviour) -> dict[str, str]:
    """The broker settings' default values by name, without those that have none."""
    made = {}
    for setting in settings_of(behaviour).values():
        if setting.synonyms:
            name, unit = setting.synonyms[-1]
            made[name] = setting.default if unit == 1 else str(int(setting.default) // unit)
    return made


def check_level(configs: Mapping[str, str], behaviour: Behaviour = DEFAULT) -> None:
    """Refuse two values of one setting, and bad values of settings that have no effect on a log.

    Parameters
    ----------
    behaviour : Behaviour
        Of the release that says how lists are written.

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
        if setting.type in INTEGERS:
            _check_integer(setting, name, value)
        if setting.type is ConfigType.LIST:
            _check_replicas(name, parse_names(name, value, behaviour))


def _check_integer(setting: TopicSetting, name: str, value: str) -> None:
    most = INTEGERS[setting.type]
    low, high = setting.least, setting.greatest
    number = parse_integer(name, value, -most - 1 if low is None else int(low), most if high is None else int(high))
    if number == 0 and setting.name == "compression.gzip.level":
        raise ValueError(f"{name}: expected 1 to 9, or -1 for the default, found {value!r}")


def _check_replicas(name: str, replicas: list[str]) -> None:
    if replicas != ["*"] and not all(map(_REPLICA.fullmatch, replicas)):
        raise ValueError(f"{name}: expected * or PARTITION:BROKER,PARTITION:BROKER,..., found {','.join(replicas)!r}")


def check_together(
    broker: Mapping[str, str],
    topic: Mapping[str, str],
    config: LogConfig,
    *,
    existing: Mapping[str, str] | None = None,
    tiers: bool = False,
) -> None:
    """Refuse settings of a topic that contradict each other, or those it had.

    Parameters
    ----------
    broker, topic : mapping
        The settings that ``config`` was made of.
    existing : mapping, optional
        The topic's own settings before.
    tiers : bool
        Whether the cluster has tiered storage.

    Raises
    ------
    ValueError
        Names the settings and their values.

    Notes
    -----
    Source: LogConfig.validateTopicLogConfigValues (3.9, 4.3).
    """

    def in_force(name: str) -> str:
        setting = TOPIC_SETTINGS[name]
        levels = [topic.get(name), *(broker.get(one) for one, _ in setting.synonyms), setting.default]
        return next(value for value in levels if value is not None).strip().lower()

    least, most = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if least > most:
        raise ValueError(f"min.compaction.lag.ms: expected at most max.compaction.lag.ms {most}, found {least}")
    if in_force("remote.storage.enable") != "true":
        before = (existing or {}).get("remote.storage.enable", "false").strip().lower()
        if before == "true" and in_force("remote.log.delete.on.disable") != "true":
            expected = "expected true, or remote.log.delete.on.disable=true to delete what is in tiered storage"
            raise ValueError(f"remote.storage.enable: {expected}, found false")
        return
    if not tiers:
        raise ValueError("remote.storage.enable: expected false, as the broker has no tiered storage, found true")
    if config.compacted:
        raise ValueError(f"cleanup.policy: expected delete in tiered storage, found {config.cleanup_policy!r}")
    only_reads = in_force("remote.log.copy.disable") == "true"
    for name, total in (("retention.bytes", config.retention_bytes), ("retention.ms", config.retention_ms)):
        local = int(in_force(f"local.{name}"))
        if local == NO_OWN_RETENTION or (local == total and only_reads):
            continue
        if only_reads:
            raise ValueError(f"local.{name}: expected {name} {total} where nothing is copied, found {local}")
        if total >= 0 and not 0 <= local <= total:
            raise ValueError(f"local.{name}: expected 0 to {name} {total}, found {local}")


def log_config(broker: Mapping[str, str], topic: Mapping[str, str], release: str, *, named: bool = True) -> LogConfig:
    """The configuration of a topic's log.

    Parameters
    ----------
    broker : mapping
        The broker's settings.
    topic : mapping
        The topic's own settings.
    release : str
        "0.10.2", "3.9" or "4.3".
    named : bool
        False: nobody asked for this release.

    Raises
    ------
    ValueError
        An unknown name or a bad value.
    """
    behaviour = Behaviour.of(release)
    known = settings_of(behaviour)
    for name in topic:
        if name not in known:
            if name in BROKER_NAMES and name not in unknown_names(behaviour):
                raise ValueError(
                    f"unknown topic setting {name!r}, which is a broker's; a topic's is {BROKER_NAMES[name].name}"
                )
            near = get_close_matches(name, known, n=1, cutoff=0)
            raise ValueError(f"unknown topic setting {name!r}; the nearest name is {near[0]}")
    check_level(topic, behaviour)
    settings = merged(broker, topic)
    made = LogConfig.of(settings, release=release)
    return made if named or not DECIDED.isdisjoint(settings) else replace(made, undecided=True)
