"""Descriptions of settings: the value in force, its source, and its synonyms.

Source: ConfigHelper, DynamicBrokerConfig (3.9, 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from kts.behaviour import DEFAULT, Behaviour
from kts.broker.settings.broker import SETTINGS_OF, BrokerConfig
from kts.broker.settings.documentation import documentation as documented
from kts.broker.settings.inert import CHANGEABLE, inert_settings
from kts.broker.settings.topic import (
    ALIASES,
    BROKER_NAMES,
    OWN_BROKER_NAMES,
    OWN_SETTINGS,
    TOPIC_SETTINGS,
    ConfigType,
    TopicSetting,
    merged,
    settings_of,
    static_defaults,
)
from kts.config import parse_double, parse_names, unknown_names


class ConfigSource(IntEnum):
    """The source of a value."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class Levels(NamedTuple):
    """A broker's settings by source, in order of precedence.

    Attributes
    ----------
    node, cluster : mapping
        Changed while it runs, for this broker and for all.
    static : mapping
        Given at the start.
    behaviour : Behaviour
        Of the release whose settings these are.
    """

    node: Mapping[str, str]
    cluster: Mapping[str, str]
    static: Mapping[str, str]
    behaviour: Behaviour = DEFAULT

    @property
    def given(self) -> set[str]:
        """The names of all settings that are not defaults."""
        return {*self.static, *self.cluster, *self.node}


def levels(config: BrokerConfig, node: Mapping[str, str], cluster: Mapping[str, str], directory: str) -> Levels:
    """The levels of a broker. Its directory and an implied message format count as given."""
    static = {**config.static, "log.dirs": directory}
    implied = config.implied_format
    if implied is not None:
        static.setdefault("log.message.format.version", implied)
    return Levels(node, cluster, static, config.behaviour)


def topic_entries(
    own: Mapping[str, str], of_broker: Levels, keys: list[str] | None, *, synonyms: bool, documentation: bool = False
) -> list[dict[str, Any]]:
    """The settings of a topic.

    Parameters
    ----------
    own : mapping
        The topic's own settings.
    keys : list of str, optional
        The settings to describe; None or an empty list means all.
    synonyms : bool
        Include the synonyms of each.
    documentation : bool
        Include the sentence about each.
    """
    of_ours = OWN_BROKER_NAMES & of_broker.given
    known = settings_of(of_broker.behaviour)
    shown = {name: known[name] for name in TOPIC_SETTINGS if name in known} | {
        name: one
        for name, one in OWN_SETTINGS.items()
        if name in known and (name in own or not of_ours.isdisjoint(each for each, _ in one.synonyms))
    }
    wanted = shown if not keys else {name: shown[name] for name in dict.fromkeys(keys) if name in shown}
    entries = []
    for name, setting in wanted.items():
        first = setting.synonyms[0][0] if setting.synonyms else None
        all_synonyms = [] if first is None else _synonyms(first, [one for one, _ in setting.synonyms], of_broker)
        if (given := _given(name, own)) is not None:
            value = _normal(setting.type, own[given], of_broker.behaviour)
            all_synonyms.insert(0, _synonym(given, value, ConfigSource.TOPIC_CONFIG))
        value = _topic_value(setting, own, of_broker)
        entries.append(_entry(name, value, setting.type, all_synonyms, synonyms, read_only=False))
    return _documented(entries) if documentation else entries


def _given(name: str, values: Mapping[str, str]) -> str | None:
    """The name by which values have a setting: Kafka's, or KIP-32's."""
    return next((one for one in (name, *ALIASES.get(name, ())) if one in values), None)


def _documented(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for entry in entries:
        if entry["config_type"] != _UNKNOWN:
            entry["documentation"] = documented(entry["name"])
    return entries


def broker_entries(
    config: BrokerConfig,
    of_broker: Levels,
    keys: list[str] | None,
    *,
    synonyms: bool,
    documentation: bool = False,
    cluster_only: bool = False,
) -> list[dict[str, Any]]:
    """The settings of the broker, or with ``cluster_only`` those that were changed for all brokers."""
    hidden = OWN_BROKER_NAMES - of_broker.given
    behaviour = of_broker.behaviour
    settings = SETTINGS_OF[behaviour.release]
    everything = {*settings, *BROKER_NAMES, *inert_settings(behaviour), *of_broker.static} - _NOT_TOLD - hidden
    everything -= unknown_names(behaviour)
    names = sorted(of_broker.cluster if cluster_only else everything)
    entries = []
    for name in names:
        if keys and name not in keys:
            continue
        topic_setting = BROKER_NAMES.get(name)
        alike = [one for one, _ in topic_setting.synonyms] if topic_setting else [name]
        found = _synonyms(name, alike, of_broker)
        if cluster_only:
            found = [one for one in found if one["source"] == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG]
        kind = _broker_type(name, behaviour)
        in_force = found and found[0]["name"] in (name, *ALIASES.get(name, ()))
        value = _normal(kind, found[0]["value"], behaviour) if in_force else None
        if name in settings and not found:
            value = _normal(kind, settings[name].default, behaviour) or None
        if name == "node.id":
            value = str(config.node_id)
        entries.append(_entry(name, value, kind, found, synonyms, read_only=name not in CHANGEABLE))
    return _documented(entries) if documentation else entries


def _broker_type(name: str, behaviour: Behaviour) -> int:
    known = SETTINGS_OF[behaviour.release].get(name) or inert_settings(behaviour).get(name)
    if known is not None:
        return known.type
    setting = BROKER_NAMES.get(name)
    if setting is None:
        return _UNKNOWN
    return ConfigType.INT if name.endswith((".hours", ".minutes")) else setting.type


def _entry(
    name: str, value: str | None, kind: int, all_synonyms: list[dict[str, Any]], synonyms: bool, *, read_only: bool
) -> dict[str, Any]:
    source = all_synonyms[0]["source"] if all_synonyms else int(ConfigSource.DEFAULT_CONFIG)
    sensitive = kind in (_UNKNOWN, ConfigType.PASSWORD)
    if sensitive:  # an unknown setting may be a password
        value, all_synonyms = None, [{**one, "value": None} for one in all_synonyms]
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "is_default": False,  # version 0 alone has it, and 3.9 never sets it
        "config_source": source,
        "is_sensitive": sensitive,
        "synonyms": all_synonyms if synonyms else [],
        "config_type": int(kind),
        "documentation": None,
    }


def _synonym(name: str, value: str, source: ConfigSource) -> dict[str, Any]:
    return {"name": name, "value": value, "source": int(source)}


def _synonyms(name: str, alike: list[str], of_broker: Levels) -> list[dict[str, Any]]:
    """The values set for any of the names, by precedence, from the first one set for ``name`` on."""
    found = []
    alike = [*alike, *ALIASES.get(alike[0], ())]
    ranked = (
        (of_broker.node, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (of_broker.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (of_broker.static, ConfigSource.STATIC_BROKER_CONFIG),
        (_defaults(of_broker.behaviour), ConfigSource.DEFAULT_CONFIG),
    )
    for values, source in ranked:
        found += [_synonym(one, values[one], source) for one in alike if one in values]
    first = next(
        (number for number, one in enumerate(found) if one["name"] in (name, *ALIASES.get(name, ()))), len(found)
    )
    return found[first:]


_UNKNOWN = 0  # the type of an unknown setting
_NOT_TOLD = {"producer.id.expiration.check.interval.ms"}  # internal in Kafka


@cache
def _defaults(behaviour: Behaviour) -> dict[str, str]:
    return {
        **{one.name: one.default for one in SETTINGS_OF[behaviour.release].values() if one.default},
        **static_defaults(behaviour),
        **{one.name: one.default for one in inert_settings(behaviour).values() if one.default is not None},
    }


def _topic_value(setting: TopicSetting, own: Mapping[str, str], of_broker: Levels) -> str:
    if (given := _given(setting.name, own)) is not None:
        return _normal(setting.type, own[given], of_broker.behaviour)
    of_levels = merged(of_broker.static, of_broker.cluster, of_broker.node)
    for name, unit in setting.synonyms:
        if (given := _given(name, of_levels)) is not None:
            value = _normal(setting.type, of_levels[given], of_broker.behaviour)
            return str(max(int(value), -1) * unit if int(value) > 0 else value) if unit > 1 else value
    return setting.default


def _normal(kind: int, value: str, behaviour: Behaviour) -> str:
    """A value as Kafka formats it."""
    text = value.strip()
    if kind == ConfigType.BOOLEAN:
        return text.lower()
    if kind in (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT) and text:
        return str(int(text))
    if kind == ConfigType.DOUBLE:
        return _double(text)
    if kind == ConfigType.LIST:
        return ",".join(parse_names("", text, behaviour))
    return text


def _double(text: str) -> str:
    """A number as Java's ``Double.toString`` formats it."""
    number = parse_double(text)
    if number is None or not math.isfinite(number):
        return text
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"
