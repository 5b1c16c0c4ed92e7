"""Topic and broker settings by Kafka's names, with its units, defaults and limits: ``LogConfig``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cached_property, wraps
from math import isnan
from typing import Any, NamedTuple, TypeVar

from .arguments import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from .behaviour import DEFAULT, Behaviour, TimeRules, generation_of_format, one_release
from .compression import CODECS
from .model import NO_TIMESTAMP

T = TypeVar("T")
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
COMPRESSION_TYPES = ("producer", "uncompressed", *(codec.name for codec in CODECS[1:]))
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
POLICIES = ("compact", "delete")
MISSING = ("accept", "refuse", "now")  # message.timestamp.missing, which also takes a time

# Every message format version, oldest first: its name, its highest internal version ("-IV"), its magic.
_FORMATS = {name: (-1, 0) for name in ("0.8.0", "0.8.1", "0.8.2", "0.9.0")}
_FORMATS |= {"0.10.0": (1, 1), "0.10.1": (2, 1), "0.10.2": (0, 1)}
_NEWER = "0.11.0:2 1.0:0 1.1:0 2.0:1 2.1:2 2.2:1 2.3:1 2.4:1 2.5:0 2.6:0 2.7:2 2.8:1 "
_NEWER += "3.0:1 3.1:0 3.2:0 3.3:3 3.4:0 3.5:2 3.6:2 3.7:4 3.8:0 3.9:0"
_FORMATS |= {name: (int(highest), 2) for name, _, highest in (entry.partition(":") for entry in _NEWER.split())}

FORMAT_VERSIONS = tuple(_FORMATS)
FORMAT_OF_MAGIC = {magic: name for name, (_, magic) in _FORMATS.items()}  # the newest message format version of each

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?|NaN|Infinity)", re.ASCII)
_HEX_DOUBLE = re.compile(r"([+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[dDfF]?")


class _Limits(NamedTuple):
    """Least value in every release, greatest value."""

    least: int = 0
    greatest: int = INT64_MAX


_INTEGERS = {
    "message_timestamp_difference_max_ms": _Limits(),
    "message_timestamp_before_max_ms": _Limits(),
    "message_timestamp_after_max_ms": _Limits(),
    "segment_bytes": _Limits(14, INT32_MAX),
    "internal_segment_bytes": _Limits(INT32_MIN, INT32_MAX),
    "segment_ms": _Limits(),
    "segment_jitter_ms": _Limits(),
    "segment_index_bytes": _Limits(0, INT32_MAX),
    "index_interval_bytes": _Limits(0, INT32_MAX),
    "retention_ms": _Limits(INT64_MIN),
    "retention_bytes": _Limits(INT64_MIN),
    "max_message_bytes": _Limits(0, INT32_MAX),
    "file_delete_delay_ms": _Limits(),
    "delete_retention_ms": _Limits(),
    "flush_messages": _Limits(),
    "flush_ms": _Limits(),
    "min_insync_replicas": _Limits(1, INT32_MAX),
    "min_compaction_lag_ms": _Limits(),
    "max_compaction_lag_ms": _Limits(1),
}
_BOOLEANS = ("preallocate", "message_downconversion_enable", "allow_negative_timestamps")


class _Other(NamedTuple):
    """Another name of a setting: the broker's, or KIP-32's."""

    field: str
    limits: _Limits = _Limits()
    unit_ms: int = 1
    unlimited: bool = False  # any negative number means -1


# In Kafka's order of precedence, after the topic's own names.
_OTHER_NAMES = {
    "max.message.time.difference.ms": _Other("message_timestamp_difference_max_ms"),
    "log.max.message.time.difference.ms": _Other("message_timestamp_difference_max_ms"),
    "log.roll.ms": _Other("segment_ms", _Limits(1)),
    "log.roll.hours": _Other("segment_ms", _Limits(1, INT32_MAX), HOUR_MS),
    "log.roll.jitter.ms": _Other("segment_jitter_ms"),
    "log.roll.jitter.hours": _Other("segment_jitter_ms", _Limits(0, INT32_MAX), HOUR_MS),
    "log.retention.ms": _Other("retention_ms", _INTEGERS["retention_bytes"], 1, True),
    "log.retention.minutes": _Other("retention_ms", _Limits(INT32_MIN, INT32_MAX), 60_000, True),
    "log.retention.hours": _Other("retention_ms", _Limits(INT32_MIN, INT32_MAX), HOUR_MS, True),
    "log.flush.interval.ms": _Other("flush_ms"),
    "log.flush.scheduler.interval.ms": _Other("flush_ms"),
    "log.index.size.max.bytes": _Other("segment_index_bytes", _Limits(4, INT32_MAX)),
    "log.flush.interval.messages": _Other("flush_messages", _Limits(1)),
    "log.segment.delete.delay.ms": _Other("file_delete_delay_ms"),
    "log.cleaner.delete.retention.ms": _Other("delete_retention_ms"),
    "log.cleaner.min.compaction.lag.ms": _Other("min_compaction_lag_ms"),
    "log.cleaner.max.compaction.lag.ms": _Other("max_compaction_lag_ms", _Limits(1)),
    "log.cleaner.min.cleanable.ratio": _Other("min_cleanable_dirty_ratio"),
    "message.max.bytes": _Other("max_message_bytes", _INTEGERS["max_message_bytes"]),
}
for _name in (
    "segment_bytes retention_bytes index_interval_bytes cleanup_policy preallocate message_format_version "
    "message_timestamp_type message_timestamp_difference_max_ms message_timestamp_before_max_ms "
    "message_timestamp_after_max_ms message_downconversion_enable message_timestamp_missing allow_negative_timestamps"
).split():
    _OTHER_NAMES["log." + _name.replace("_", ".")] = _Other(_name, _INTEGERS.get(_name, _Limits()))

# The names of the difference limit: Kafka's of a topic and a broker, and KIP-32's, which has no "log." names.
DIFFERENCE = "message.timestamp.difference.max.ms"
KIP_32_NAMES = ("max.message.time.difference.ms", "log.max.message.time.difference.ms")
DIFFERENCE_NAMES = (DIFFERENCE, f"log.{DIFFERENCE}", *KIP_32_NAMES)
# Who sets one of these has decided what the newest release decides by its defaults.
_DECIDED = {"message.timestamp.after.max.ms", "message.format.version"}
DECIDED = frozenset({*_DECIDED, *(f"log.{name}" for name in _DECIDED), *DIFFERENCE_NAMES})

# Topic settings for replication, tiers and codec levels: accepted, without effect.
WITHOUT_EFFECT = frozenset(
    "unclean.leader.election.enable compression.gzip.level compression.lz4.level compression.zstd.level "
    "leader.replication.throttled.replicas follower.replication.throttled.replicas remote.storage.enable "
    "remote.log.copy.disable remote.log.delete.on.disable local.retention.ms local.retention.bytes "
    "log.local.retention.ms log.local.retention.bytes".split()
)

# --- settings that an extension of the log adds -----------------------------------------------------


class Extension(NamedTuple):
    """What a setting means that an extension of the log adds to Kafka's.

    Attributes
    ----------
    parsed : callable
        Gives the value, from the name that the caller used and what he gave. Raises ValueError.
    listener : callable, optional
        Gives what a log with a value reports to (``kts.log.listeners.Maker``).
    rolls_by : callable, optional
        Gives the rule by which a log with a value rolls by time (``kts.log.policies.rolls_by``).
    """

    parsed: Callable[[str, Any], Any]
    listener: Callable[..., Any] | None = None
    rolls_by: Callable[[Any], str | None] | None = None


_DEFAULTS: dict[str, Any] = {}
_EXTENSIONS: dict[str, Callable[[], Mapping[str, Extension]]] = {}


def extend(defaults: Mapping[str, Any], load: Callable[[], Mapping[str, Extension]]) -> None:
    """Add settings to Kafka's: a topic's names, and a broker's, which begin with ``log.``.

    Parameters
    ----------
    defaults : mapping
        The default of each by its topic's name.
    load : callable
        Gives what each means. It is called when a value is given, and may import the extension.
    """
    _DEFAULTS.update(defaults)
    _EXTENSIONS.update(dict.fromkeys(defaults, load))


def extension(name: str) -> Extension:
    """What a setting means that an extension adds, by its topic's name.

    Raises
    ------
    ValueError
        The extension cannot be imported.
    """
    try:
        return _EXTENSIONS[name]()[name]
    except ImportError as error:
        raise ValueError(f"{name}: expected the extension that has this setting, found none: {error}") from error


# --- the settings of a topic ------------------------------------------------------------------------


def _takes_generation(config: type[T]) -> type[T]:
    """Let a constructor take ``generation`` for ``release``."""
    made = config.__init__

    @wraps(made)
    def init(self: T, *values: Any, generation: str | None = None, **named: Any) -> None:
        if generation is not None:
            named["release"] = one_release(named.get("release") or None, generation)
        made(self, *values, **named)

    config.__init__ = init  # type: ignore[method-assign, assignment]
    return config


@_takes_generation
@dataclass(frozen=True)
class LogConfig:
    """The settings of a topic. Fields are Kafka's names with underscores, in ms and bytes.

    Attributes
    ----------
    release : str
        "0.10.2", "3.9" or "4.3": whose limits and defaults apply; by default that of the message format, 0.10.2 or 3.9.
        ``generation`` means the same.
    max_message_bytes : int
        -1 is the release's default: 1000012 or 1048588.
    message_timestamp_before_max_ms, message_timestamp_after_max_ms : int
        -1 is the release's default: one hour after the clock in 4.3, otherwise 2^63-1. Where a release has
        ``message_timestamp_difference_max_ms``, that is used in place of 2^63-1 (KIP-937).
    internal_segment_bytes : int, optional
        Kafka 4's name of ``segment_bytes`` for tests: it takes any value and wins.
    segment_index_bytes : int
        Below 12 it counts as 12, so that each index has room for an entry. Kafka accepts less too, but then cannot
        create the time index, and the partition gets no leader.
    allow_negative_timestamps : bool
        Not a Kafka setting: accept timestamps before 1970, as KIP-228 proposed.
    message_timestamp_missing : str
        Not a Kafka setting, but a topic property that KIP-228 weighs: what a leader does with a record without a
        timestamp (-1). "accept" stores it, as Kafka; "refuse" refuses it; "now", or a time in ms, gives it that
        timestamp. "-1" makes -1 itself a time, 1969-12-31T23:59:59.999Z: no record is without one.
    added : tuple of (str, value)
        Settings of extensions that are not at their defaults, by their topics' names, as ``of`` takes them.
    undecided : bool
        Neither a release was named nor a limit set that the newest release has by default: a log tells of the first
        record that the newest release would refuse.

    Raises
    ------
    TypeError, ValueError
        A wrong value: the error names the setting, what is valid and what was found.

    Notes
    -----
    Source: LogConfig, KafkaConfig, ServerTopicConfigSynonyms; ApiVersion and MetadataVersion for the formats.
    """

    message_timestamp_type: str = "CreateTime"
    message_timestamp_difference_max_ms: int = INT64_MAX
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = -1
    message_format_version: str = ""
    segment_bytes: int = 2**30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 2**20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    max_message_bytes: int = -1
    compression_type: str = "producer"
    cleanup_policy: str = "delete"
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = DAY_MS
    preallocate: bool = False
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    min_insync_replicas: int = 1
    message_downconversion_enable: bool = True
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    allow_negative_timestamps: bool = False
    message_timestamp_missing: str = "accept"
    added: tuple[tuple[str, Any], ...] = ()
    internal_segment_bytes: int | None = None
    release: str = ""
    undecided: bool | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        asked = Behaviour.of(self.release) if self.release else DEFAULT
        version = self.message_format_version or FORMAT_OF_MAGIC[asked.greatest_magic]
        release = self.release or generation_of_format(_magic(version))
        behaviour = Behaviour.of(release)
        _magic(version, behaviour)
        made: dict[str, Any] = {"release": release, "message_format_version": version, "added": self.added}
        made["undecided"] = self._leaves_open() if self.undecided is None else self._stays_open(behaviour)
        made |= {name: getattr(behaviour, name) for name in _OF_RELEASE if getattr(self, name) == -1}
        made["internal_segment_bytes"] = small = self.internal_segment_bytes
        if small is not None:
            small = parse_integer("internal.segment.bytes", small, *_INTEGERS["internal_segment_bytes"])
            made |= {"internal_segment_bytes": small, "segment_bytes": small}
        for one in fields(self):
            if one.name not in made:
                name, value = one.name, getattr(self, one.name)
                made[name] = _parsed(name, _dotted(name), value, behaviour, _INTEGERS.get(name))
        for name in ("message_timestamp_before_max_ms", "message_timestamp_after_max_ms"):
            if made[name] == INT64_MAX:
                made[name] = made["message_timestamp_difference_max_ms"]
        for name, value in made.items():
            object.__setattr__(self, name, value)
        self._check_known(behaviour)
        self._check_missing()

    def _leaves_open(self) -> bool:
        decided = [_TOPIC_NAMES[name] for name in DECIDED & _TOPIC_NAMES.keys()]
        return not self.release and all(getattr(self, name) == getattr(type(self), name) for name in decided)

    def _stays_open(self, behaviour: Behaviour) -> bool:
        """Whether ``undecided`` holds: ``dataclasses.replace`` passes it on beside what it sets."""
        decided = [_TOPIC_NAMES[name] for name in DECIDED & _TOPIC_NAMES.keys()]
        made = {name: getattr(behaviour, name) for name in _OF_RELEASE}
        made["message_format_version"] = FORMAT_OF_MAGIC[behaviour.greatest_magic]
        return bool(self.undecided) and all(
            getattr(self, name) in (getattr(type(self), name), made.get(name)) for name in decided
        )

    def _check_known(self, behaviour: Behaviour) -> None:
        for key in behaviour.unknown_settings:
            field = _TOPIC_NAMES.get(key)
            if field in (None, "message_format_version"):  # whose magic is checked
                continue
            if (value := getattr(self, field)) != getattr(type(self), field):
                raise ValueError(f"{key}: {behaviour.release} has no such setting, found {value!r}")

    def _check_missing(self) -> None:
        missing = self.message_timestamp_missing
        if missing != "accept" and self.magic == 0:
            why = f"message format {self.message_format_version} has no timestamps"
            raise ValueError(f"message.timestamp.missing: expected accept, because {why}, found {missing!r}")
        if missing not in MISSING and int(missing) < 0 and not self.allow_negative_timestamps:
            expected = "expected 0 or more, or allow.negative.timestamps=true"
            raise ValueError(f"message.timestamp.missing: {expected}, found {missing!r}")

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any] | LogConfig | None = None,
        *,
        release: str | None = None,
        generation: str | None = None,
    ) -> LogConfig:
        """Make a LogConfig from Kafka's dotted names, a topic's or a broker's.

        Parameters
        ----------
        config : mapping, LogConfig or None
            Values as text or as Python values; None is "not set". A topic's name takes precedence over a broker's, ms
            over minutes, minutes over hours. ``max.message.time.difference.ms`` (a broker's begins with ``log.``) is
            KIP-32's name of the difference limit, refused beside Kafka's name with another value.
            Settings for replication, tiers and codec levels are ignored. So is a broker's
            ``log.message.timestamp.missing`` that a topic cannot have: its format has no timestamps, or the value is a
            time before 1970 and the topic's own ``allow.negative.timestamps`` is false. What a LogConfig has as the
            default of its release becomes that of another one.
        release : str, optional
            "0.10.2", "3.9" or "4.3"; None is that of ``message.format.version``, 0.10.2 or 3.9.
        generation : str, optional
            Another word for ``release``.

        Raises
        ------
        TypeError, ValueError
            A name that the release does not know (the error gives the nearest known one); a wrong value.

        Examples
        --------
        >>> LogConfig.of({"log.retention.hours": 1}).retention_ms
        3600000
        """
        named = one_release(release, generation)
        asked = DEFAULT if named is None else Behaviour.of(named)
        if isinstance(config, LogConfig):
            if named is None or (named == config.release and not config.undecided):
                return config
            own = config.behaviour()
            made: dict[str, Any] = {name: -1 for name in _OF_RELEASE if getattr(config, name) == getattr(own, name)}
            return replace(config, **made, release=named, undecided=False)
        if not isinstance(config, Mapping | None):
            raise TypeError(f"config: expected a mapping of settings or a LogConfig, found {type(config).__name__}")
        items = [(key, value) for key, value in (config or {}).items() if key not in WITHOUT_EFFECT]
        given = {_known(key, asked): value for key, value in items if value is not None}
        check_difference(given)
        version = given.get("message.format.version", given.get("log.message.format.version"))
        if version is not None:
            version = _text("message.format.version", version)
            _magic(version, asked)
        shell = cls(message_format_version=version or "", release=named or "")
        behaviour = shell.behaviour()
        values: dict[str, Any] = {}
        added: dict[str, Any] = {}
        ranked = _all_names()
        for key in sorted(given, key=ranked.index, reverse=True):
            name = _TOPIC_NAMES.get(key)
            if (setting := key.removeprefix("log.")) in _DEFAULTS:
                at_default = given[key] == str(_DEFAULTS[setting])  # which needs no extension
                added[setting] = _DEFAULTS[setting] if at_default else extension(setting).parsed(key, given[key])
            elif name is not None:
                values[name] = _parsed(name, key, given[key], behaviour, _INTEGERS.get(name))
            else:
                other = _OTHER_NAMES[key]
                value = _parsed(other.field, key, given[key], behaviour, other.limits)
                if other.unlimited and not (value := max(value, -1)):
                    raise ValueError(f"{key}: expected 1 or more, or -1 for no limit, found {given[key]!r}")
                values[other.field] = value * other.unit_ms if other.unit_ms > 1 and value > 0 else value
        if "message.timestamp.missing" not in given and _has_no_effect(values, shell.magic, given):
            del values["message_timestamp_missing"]
        values["undecided"] = named is None and DECIDED.isdisjoint(given)
        values["added"] = tuple(sorted(pair for pair in added.items() if pair[1] != _DEFAULTS[pair[0]]))
        return cls(**values | {"release": shell.release})

    @cached_property
    def prepared(self) -> dict[Any, Any]:
        """What others compute once from these settings, by their own keys. Not pickled or copied."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def generation(self) -> str:
        """Another word for ``release``."""
        return self.release

    @cached_property
    def magic(self) -> int:
        """Magic of the topic's format: 0, 1 or 2."""
        return _magic(self.message_format_version)

    @cached_property
    def times(self) -> TimeRules:
        """Which numbers are times."""
        return TimeRules(self.allow_negative_timestamps, self.message_timestamp_missing == str(NO_TIMESTAMP))

    def behaviour(self, shipped: bool = False) -> Behaviour:
        """How a log with these settings behaves; ``shipped``: exactly as the release."""
        return Behaviour.of(self.release, shipped, self.times)

    @cached_property
    def compacted(self) -> bool:
        """Whether the policy contains ``compact``, so that records need keys."""
        return "compact" in self.cleanup_policy.split(",")

    @cached_property
    def deletes(self) -> bool:
        """Whether the policy contains ``delete``, so that retention limits apply."""
        return "delete" in self.cleanup_policy.split(",")

    def of_extension(self, name: str) -> Any:
        """The value of a setting that an extension adds, by its topic's name."""
        return dict(self.added).get(name, _DEFAULTS[name])

    @cached_property
    def max_segment_ms(self) -> int:
        """``segment.ms``; in a compacted topic, ``max.compaction.lag.ms`` if that is less and the release knows it."""
        by_lag = self.compacted and self.behaviour().rolls_by_compaction_lag
        return min(self.segment_ms, self.max_compaction_lag_ms) if by_lag else self.segment_ms

    def to_properties(self) -> dict[str, str]:
        """All settings of the release as text by their dotted names, as ``of`` takes them."""
        skipped = {"internal.segment.bytes", *self.behaviour().unknown_settings}
        if self.segment_bytes < dict(self.behaviour().least_values).get(
            "segment.bytes", _INTEGERS["segment_bytes"].least
        ):
            skipped ^= {"internal.segment.bytes", "segment.bytes"}  # only that name takes such a size
        values = {name: getattr(self, field) for name, field in _TOPIC_NAMES.items() if name not in skipped}
        values |= {name: self.of_extension(name) for name in _DEFAULTS}
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


def check_difference(config: Mapping[str, Any]) -> None:
    """Refuse KIP-32's name of the difference limit beside another of its names with another value.

    Raises
    ------
    ValueError
        Names the settings and their values.
    """
    given = {name: config[name] for name in DIFFERENCE_NAMES if config.get(name) is not None}
    if given.keys().isdisjoint(KIP_32_NAMES):
        return  # of Kafka's own names, a topic's takes precedence over its broker's
    if len({parse_integer(name, value, 0, INT64_MAX) for name, value in given.items()}) > 1:
        names, values = " and ".join(given), " and ".join(str(value).strip() for value in given.values())
        raise ValueError(f"{names}: expected one value, as they name one limit, found {values}; leave out one")


def _has_no_effect(values: Mapping[str, Any], magic: int, given: Mapping[str, Any]) -> bool:
    """Whether the topic cannot have the ``message.timestamp.missing`` that it inherits."""
    missing = values.get("message_timestamp_missing")
    if missing is None or magic == 0:
        return missing is not None
    refuses = "allow.negative.timestamps" in given and not values["allow_negative_timestamps"]
    return refuses and missing not in MISSING and int(missing) < 0


def _dotted(name: str) -> str:
    return name.replace("_", ".")


_TOPIC_NAMES = {
    _dotted(one.name): one.name for one in fields(LogConfig) if one.name not in ("added", "release", "undecided")
}
# Fields whose default -1 is the release's rule of the same name.
_OF_RELEASE = ("max_message_bytes", "message_timestamp_after_max_ms")


def _all_names() -> list[str]:
    """Every name of a setting, a topic's before a broker's."""
    return [*_TOPIC_NAMES, *_DEFAULTS, *_OTHER_NAMES, *(f"log.{name}" for name in _DEFAULTS)]


def _known(key: Any, behaviour: Behaviour) -> str:
    if not isinstance(key, str):
        raise TypeError(f"config: expected settings named by str, found {key!r}")
    gone = unknown_names(behaviour)
    known = [name for name in _all_names() if name not in gone]
    if key not in known:
        near = get_close_matches(key.replace("_", "."), known, n=1, cutoff=0)
        of_release = f" in {behaviour.release}" if key in gone else ""
        raise ValueError(f"config: unknown setting {key!r}{of_release}; the nearest name is {near[0]}")
    return key


def unknown_names(behaviour: Behaviour) -> frozenset[str]:
    """The names of settings that kts knows and the release does not: a topic's, a broker's and KIP-32's."""
    gone = {each for name in behaviour.unknown_settings for each in (name, f"log.{name}")}
    return frozenset(gone.union(KIP_32_NAMES) if DIFFERENCE in gone else gone)


def known_settings(settings: Mapping[str, T], behaviour: Behaviour) -> dict[str, T]:
    """The settings without those that the release does not know, which an older one may have stored."""
    gone = unknown_names(behaviour)
    return {name: value for name, value in settings.items() if name not in gone}


def settings_for(names: Collection[str], settings: Mapping[str, T], behaviour: Behaviour) -> dict[str, T]:
    """Of a topic's settings and its broker's, those that mean one of a LogConfig's fields, and the release knows."""
    meant = {**_TOPIC_NAMES, **{name: other.field for name, other in _OTHER_NAMES.items()}}
    return {name: value for name, value in known_settings(settings, behaviour).items() if meant.get(name) in names}


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{key}: expected text, found {value!r}")
    return value.strip()


def _magic(version: str, behaviour: Behaviour = DEFAULT) -> int:
    """Magic of a message format version; its first two parts count, below 1.0 the first three."""
    parts = version.split(".")
    stem, _, internal = ".".join(parts[: 3 if parts[0] == "0" else 2]).partition("-IV")
    highest, magic = _FORMATS.get(stem, (-1, 9))
    known = "-IV" not in version or internal in map(str, range(highest + 1))
    if not known or not behaviour.least_magic <= magic <= behaviour.greatest_magic:
        least = next(name for name, (_, first) in _FORMATS.items() if first >= behaviour.least_magic)
        told = f"expected a release from {least} to {behaviour.release}, {found_version(version)}"
        raise ValueError(f"message.format.version: {told}")
    return magic


def found_version(version: str) -> str:
    """How an error names a version that is no release, with what KIP-32's internal version became."""
    became = "; KIP-32's 0.9.0-1 was released as 0.10.0-IV0" if version.strip() == "0.9.0-1" else ""
    return f"found {version!r}{became}"


def _parsed(name: str, key: str, value: Any, behaviour: Behaviour, limits: _Limits | None) -> Any:
    """A value as the field takes it; ``key`` is the name that the caller used."""
    if name in _INTEGERS and limits is not None:
        return parse_integer(key, value, dict(behaviour.least_values).get(key, limits.least), limits.greatest)
    if name in _BOOLEANS:
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        if not isinstance(value, bool):
            raise ValueError(f"{key}: expected true or false, found {value!r}")
        return value
    if name == "message_timestamp_missing":
        return _missing(key, value)
    if name == "min_cleanable_dirty_ratio":
        return _ratio(key, value)
    if name == "cleanup_policy":
        listed = parse_names(key, value, behaviour)
        if any(policy not in POLICIES for policy in listed):
            raise ValueError(f"{key}: expected {', '.join(POLICIES)} or both, found {value!r}")
        return ",".join(listed)
    text = _text(key, value)
    choices = {"message_timestamp_type": TIMESTAMP_TYPES, "compression_type": COMPRESSION_TYPES}.get(name)
    if name == "compression_type":
        later = {codec.name for codec in CODECS if codec.magic > behaviour.greatest_magic}
        choices = tuple(one for one in COMPRESSION_TYPES if one not in later)
    if choices is not None and text not in choices:
        raise ValueError(f"{key}: expected one of {', '.join(choices)}, found {value!r}")
    return text


def _missing(key: str, value: Any) -> str:
    if isinstance(value, str) and value.strip() in MISSING:
        return value.strip()
    try:
        return str(parse_integer(key, value, INT64_MIN, INT64_MAX))
    except ValueError:
        raise ValueError(f"{key}: expected {', '.join(MISSING)} or a time in ms, found {value!r}") from None


def _ratio(key: str, value: Any) -> float:
    number = parse_double(value.strip()) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"{key}: expected a number, found {value!r}")
    if not (isnan(number) or 0 <= number <= 1):  # Kafka takes NaN, and then the cleaner never begins by itself
        raise ValueError(f"{key}: expected 0 to 1, found {value!r}")
    return float(number)


def parse_double(text: str) -> float | None:
    """A number as Java's ``Double`` parses it; None for other text."""
    if (found := _HEX_DOUBLE.fullmatch(text)) is not None:
        return float.fromhex(found[1])
    return float(text.rstrip("dDfF")) if _DOUBLE.fullmatch(text) else None


def parse_names(key: str, value: Any, behaviour: Behaviour = DEFAULT) -> list[str]:
    """The names of a setting that is a list: text with commas, or a list."""
    text = _text(key, ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value)
    names = [one.strip() for one in text.split(",")] if text else []
    if not behaviour.lists_have_no_empty_names:
        return names
    if "" in names:
        raise ValueError(f"{key}: expected no empty names, found {value!r}")
    return list(dict.fromkeys(names))


def parse_integer(key: str, value: Any, least: int, greatest: int) -> int:
    """The number of a setting, given as an integer or as text."""
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        number = int(value)
    elif isinstance(value, (bool, float, str)) or not hasattr(value, "__index__"):
        raise ValueError(f"{key}: expected an integer, found {value!r}")
    else:
        number = int(value.__index__())
    if not least <= number <= greatest:
        names = {INT32_MAX: "2^31-1", INT64_MAX: "2^63-1", INT32_MIN: "-2^31", INT64_MIN: "-2^63"}
        least_name, greatest_name = names.get(least, least), names.get(greatest, greatest)
        raise ValueError(f"{key}: expected {least_name} to {greatest_name}, found {value!r}")
    return number
