"""The settings of a broker: ``BrokerConfig``, with Kafka's names, units and defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Any, NamedTuple

from kts.arguments import INT16_MAX, INT32_MAX, INT64_MAX
from kts.behaviour import DEFAULT, Behaviour, generation_of_format, lines_by_release, one_release
from kts.broker.settings.inert import EFFECTIVE, check_cleaner, check_inert, inert_settings
from kts.broker.settings.topic import (
    ALL_SETTINGS,
    BROKER_NAMES,
    MINUTE_MS,
    ConfigType,
    check_level,
    check_together,
    log_config,
    merged,
)
from kts.config import FORMAT_VERSIONS, LogConfig, found_version, known_settings, unknown_names


class BrokerSetting(NamedTuple):
    """A setting of the broker itself."""

    name: str
    type: ConfigType
    default: str
    least: int | None = None
    greatest: int | None = None


# Name, type, default, least value. These defaults differ from Kafka's: `queued.max.request.bytes` (-1),
# `offsets.topic.num.partitions` (50), `group.initial.rebalance.delay.ms` (3000). `cluster.id`, `release`, `shipped`
# and `shipped.search` are kts's own settings. Those below a heading are as this release has them.
_TABLE = """\
node.id                                          INT      1                     0
broker.id                                        INT      -1                   -1
cluster.id                                       STRING   -
advertised.listeners                             STRING   -
auto.create.topics.enable                        BOOLEAN  true
delete.topic.enable                              BOOLEAN  true
num.partitions                                   INT      1                     1
default.replication.factor                       INT      1                     1
inter.broker.protocol.version                    STRING   3.9
socket.request.max.bytes                         INT      104857600             1
max.connections                                  INT      2147483647            0
max.connections.per.ip                           INT      2147483647            0
connections.max.idle.ms                          LONG     600000
queued.max.request.bytes                         LONG     268435456            -1
request.timeout.ms                               INT      30000
fetch.max.bytes                                  INT      57671680           1024
log.retention.check.interval.ms                  LONG     300000                1
log.flush.scheduler.interval.ms                  LONG     9223372036854775807
log.flush.offset.checkpoint.interval.ms          INT      60000                 0
log.flush.start.offset.checkpoint.interval.ms    INT      60000                 0
replica.high.watermark.checkpoint.interval.ms    LONG     5000
producer.id.expiration.ms                        INT      86400000              1
producer.id.expiration.check.interval.ms         INT      600000                1
group.min.session.timeout.ms                     INT      6000
group.max.session.timeout.ms                     INT      1800000
group.max.size                                   INT      2147483647            1
group.initial.rebalance.delay.ms                 INT      0
offset.metadata.max.bytes                        INT      4096
offsets.retention.minutes                        INT      10080                 1
offsets.retention.check.interval.ms              LONG     600000                1
offsets.topic.num.partitions                     INT      1                     1
offsets.topic.replication.factor                 SHORT    1                     1
offsets.topic.segment.bytes                      INT      104857600             1
offsets.topic.compression.codec                  INT      0
offsets.load.buffer.size                         INT      5242880               1
offsets.commit.timeout.ms                        INT      5000                  1
transaction.max.timeout.ms                       INT      900000                1
release                                          STRING   -
shipped                                          BOOLEAN  false
shipped.search                                   BOOLEAN  false

[4.3]
advertised.listeners                             LIST     -
"""


def _parsed(line: str) -> BrokerSetting:
    name, kind, default, *least = line.split()
    greatest = {"INT": INT32_MAX, "LONG": INT64_MAX, "SHORT": INT16_MAX}.get(kind)
    low = int(least[0]) if least else None if greatest is None else -greatest - 1
    return BrokerSetting(name, ConfigType[kind], "" if default == "-" else default, low, greatest)


SETTINGS_OF = {
    release: {one.name: one for one in map(_parsed, lines)} for release, lines in lines_by_release(_TABLE).items()
}
SETTINGS = SETTINGS_OF[DEFAULT.release]
_NAMING = ("release", "inter.broker.protocol.version")  # who sets one has said which release is followed
# Names of server properties without a meaning here: other nodes, security, threads, cleaning, tiered storage.
_ELSEWHERE = re.compile(
    r"(advertised|alter\.config|authorizer|auto|background|broker|client|compression|confluent|connection|control|controller"
    r"|controlled|create\.topic|delegation|delete\.records|cordoned|early|eligible|fetch|group|host|initial|inter|kafka|leader"
    r"|listener|log\.cleaner|log\.dir\.failure|log\.initial|max\.connection|max\.incremental|max\.request|metadata|metric"
    r"|num\.io|num\.network|num\.recovery|num\.replica|password|principal|producer\.purgatory|quota|queued|remote|replica"
    r"|replication|request|reserved|rack|sasl|security|server|share|socket|ssl|super|telemetry|transaction|transactional"
    r"|unclean|unstable|zookeeper)s?\.[a-z0-9.]+|listeners|log\.dirs?|port|process\.roles"
)


class BrokerConfig:
    """The settings of a broker. Attributes are Kafka's names with underscores, in ms and bytes.

    Attributes
    ----------
    static : dict of str to str
        The given settings, by Kafka's names.
    topic_defaults : dict of str to str
        Those of them that are defaults of topics.
    followed : str
        The release whose rules the logs follow: ``release`` if it is set, else "0.10.2" if
        ``inter.broker.protocol.version`` is below 0.11, else "3.9".

    Notes
    -----
    Server properties without a meaning here are ignored, names that the release does not know are refused.

    Source: KafkaConfig, ServerLogConfigs, GroupCoordinatorConfig (3.9, 4.3).
    """

    def __init__(self, values: Mapping[str, Any], static: dict[str, str], topic_defaults: dict[str, str]) -> None:
        self._values = dict(values)
        self.static = static
        self.topic_defaults = topic_defaults

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name.replace("_", ".")]
        except KeyError:
            raise AttributeError(f"BrokerConfig has no setting {name!r}") from None

    def __repr__(self) -> str:
        return f"BrokerConfig({self.static!r})"

    @classmethod
    def of(cls, config: Mapping[str, Any] | BrokerConfig | None = None) -> BrokerConfig:
        """From settings by Kafka's dotted names, as text or Python values; None means "not set".

        Raises
        ------
        TypeError, ValueError
            An unknown name (with the nearest known one) or a bad value.
        """
        if isinstance(config, BrokerConfig):
            return config
        if not isinstance(config, Mapping | None):
            raise TypeError(f"config: expected a mapping of settings, found {type(config).__name__}")
        static = {key: _text(key, value) for key, value in (config or {}).items() if value is not None}
        values = {setting.name: _value(setting, setting.default) for setting in SETTINGS.values()}
        topic_defaults: dict[str, str] = {}
        behaviour = Behaviour.of(_followed(static.get("release", ""), ""))
        gone, inert = unknown_names(behaviour), inert_settings(behaviour)
        for name, text in static.items():
            if name in gone:
                raise ValueError(f"config: unknown setting {name!r} in {static['release']}")
            if name in BROKER_NAMES:
                topic_defaults[name] = text
            if name in SETTINGS:
                values[name] = _value(SETTINGS[name], text)
            elif name not in BROKER_NAMES and name not in inert and not _ELSEWHERE.fullmatch(name):
                if name in ALL_SETTINGS and ALL_SETTINGS[name].synonyms:
                    own = ALL_SETTINGS[name].synonyms[0][0]
                    raise ValueError(f"config: unknown setting {name!r}, which is a topic's; the broker's is {own}")
                near = get_close_matches(name, [*SETTINGS, *BROKER_NAMES, *inert], n=1, cutoff=0)
                raise ValueError(f"config: unknown setting {name!r}; the nearest name is {near[0]}")
        if "node.id" not in static and values["broker.id"] >= 0:
            values["node.id"] = values["broker.id"]
        made = cls(values, static, topic_defaults)
        check_level(topic_defaults, made.behaviour)
        check_inert(static, behaviour)
        check_cleaner(static, static)
        made.log_config({})  # raises if one is wrong
        _ = made.advertised_listener
        return made

    @property
    def node_id_is_given(self) -> bool:
        """Whether the node id was given, and so does not come from the directory."""
        return "node.id" in self.static or int(self.static.get("broker.id", -1)) >= 0

    @cached_property
    def followed(self) -> str:
        """The release whose rules the logs follow."""
        return _followed(self.release, self.inter_broker_protocol_version)

    @cached_property
    def named_release(self) -> str | None:
        """The release that was named, also by an old ``inter.broker.protocol.version``; None if none was."""
        return self.release or (None if self.behaviour is DEFAULT else self.followed)

    @property
    def generation(self) -> str:
        """Another word for ``followed``."""
        return self.followed

    @property
    def behaviour(self) -> Behaviour:
        """The rules of that release, as kts follows it by default."""
        return Behaviour.of(self.followed)

    @cached_property
    def advertised_listener(self) -> tuple[str, int] | None:
        """The host and port for clients from ``advertised.listeners``; None if it is not set."""
        given = self.advertised_listeners.split(",")[0].strip()
        if not given:
            return None
        match = re.fullmatch(r"(?:[A-Za-z0-9_]+://)?(.+):([0-9]{1,5})", given)
        if match is None or int(match[2]) > 65535:
            raise ValueError(f"advertised.listeners: expected [NAME://]HOST:PORT, found {given!r}")
        return match[1].strip("[]"), int(match[2])

    @property
    def without_effect(self) -> list[str]:
        """What was given and changes nothing here, for people: not what says the same as Kafka's default."""
        found, known = [], inert_settings(self.behaviour)
        for name, text in self.static.items():
            inert = known.get(name)
            has_effect = name in SETTINGS or name in BROKER_NAMES or name in EFFECTIVE
            if not has_effect and (inert is None or text != (inert.default or "")):
                found.append(name)
        more = self.advertised_listeners.count(",")
        return [*sorted(found), *([f"{more} of advertised.listeners (only the first counts)"] if more else [])]

    @cached_property
    def implied_format(self) -> str | None:
        """The message format that an old ``inter.broker.protocol.version`` implies if none is given."""
        spoken: str = self.inter_broker_protocol_version
        given = "log.message.format.version" in self.topic_defaults
        return None if given or _release(spoken) >= _release("3.0") else spoken

    def log_config(self, topic: Mapping[str, str], dynamic: Mapping[str, str] | None = None) -> LogConfig:
        """The log configuration of a topic with these own settings.

        Parameters
        ----------
        topic : mapping
            The topic's own settings.
        dynamic : mapping, optional
            The broker settings that were changed while it ran.

        Raises
        ------
        ValueError
            An unknown name or a bad value, or a message format newer than ``inter.broker.protocol.version``.
        """
        known = known_settings(dynamic or {}, self.behaviour)
        changed = {name: value for name, value in known.items() if name in BROKER_NAMES}
        defaults = merged(self.topic_defaults, changed)
        spoken = self.inter_broker_protocol_version
        if self.implied_format is not None:
            defaults.setdefault("log.message.format.version", self.implied_format)
        named = not self.static.keys().isdisjoint(_NAMING)
        config = log_config(defaults, topic, self.followed, named=named)
        if _release(config.message_format_version) > _release(spoken):
            found = f"found {config.message_format_version}"
            raise ValueError(
                f"message.format.version: expected at most inter.broker.protocol.version {spoken}, {found}"
            )
        return config

    def checked_topic(
        self, topic: Mapping[str, str], dynamic: Mapping[str, str], existing: Mapping[str, str] | None = None
    ) -> LogConfig:
        """The log configuration of a topic that gets these own settings in place of existing ones.

        Raises
        ------
        ValueError
            As ``log_config``; or the settings contradict each other.
        """
        config = self.log_config(topic, dynamic)
        tiers = self.static.get("remote.log.storage.system.enable", "").lower() == "true"
        broker = merged(self.topic_defaults, {**self.static, **dynamic})
        check_together(broker, topic, config, existing=existing, tiers=tiers)
        return config

    @property
    def offsets_retention_ms(self) -> int:
        """``offsets.retention.minutes`` in ms."""
        return int(self.offsets_retention_minutes) * MINUTE_MS


def _followed(release: str, spoken: str) -> str:
    """The release that is named, else that of an ``inter.broker.protocol.version``."""
    named = one_release(release or None, None)
    return named or generation_of_format(2 if not spoken or _release(spoken) >= _release("0.11.0") else 1)


def _release(version: str) -> int:
    """The rank of a release; newer releases than the known ones rank last."""
    parts = version.strip().split("-IV")[0].split(".")
    stem = ".".join(parts[: 3 if parts[0] == "0" else 2])
    if stem in FORMAT_VERSIONS:
        return FORMAT_VERSIONS.index(stem)
    if re.fullmatch(r"[4-9]\.[0-9]+", stem):
        return len(FORMAT_VERSIONS)
    raise ValueError(f"inter.broker.protocol.version: expected a release from 0.8.0 on, {found_version(version)}")


def _text(key: Any, value: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"config: expected settings named by str, found {key!r}")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"{key}: expected text or a number, found {value!r}")
    return str(value).strip()


def _value(setting: BrokerSetting, text: str) -> Any:
    if setting.type is ConfigType.STRING:
        return text
    if setting.type is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{setting.name}: expected true or false, found {text!r}")
        return text.lower() == "true"
    least, greatest = setting.least or 0, setting.greatest or INT64_MAX
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not least <= int(text) <= greatest:
        raise ValueError(f"{setting.name}: expected an integer from {least} to {greatest}, found {text!r}")
    return int(text)
