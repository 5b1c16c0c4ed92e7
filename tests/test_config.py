"""A topic's configuration: Kafka's names, defaults and limits, and which of several settings wins."""

from __future__ import annotations

import dataclasses
import importlib
import pickle
from typing import Any

import pytest
from support.golden import goldens

import kts.config
from kts.config import Extension, LogConfig, extend, parse_integer

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

# kafka-behaviour.md section 10, by topic name: default, least value in 0.10.2, least in 3.9, greatest value
INTEGERS = {
    "message.timestamp.difference.max.ms": (LONG_MAX, 0, 0, LONG_MAX),
    "message.timestamp.before.max.ms": (LONG_MAX, 0, 0, LONG_MAX),
    "message.timestamp.after.max.ms": (LONG_MAX, 0, 0, LONG_MAX),
    "segment.bytes": (1073741824, 14, 14, INT_MAX),
    "segment.ms": (604800000, 0, 1, LONG_MAX),
    "segment.jitter.ms": (0, 0, 0, LONG_MAX),
    "segment.index.bytes": (10485760, 0, 4, INT_MAX),
    "index.interval.bytes": (4096, 0, 0, INT_MAX),
    "retention.ms": (604800000, -(2**63), -1, LONG_MAX),
    "retention.bytes": (-1, -(2**63), -(2**63), LONG_MAX),
    "max.message.bytes": (None, 0, 0, INT_MAX),
    "file.delete.delay.ms": (60000, 0, 0, LONG_MAX),
    "delete.retention.ms": (86400000, 0, 0, LONG_MAX),
    "flush.messages": (LONG_MAX, 0, 1, LONG_MAX),
    "flush.ms": (LONG_MAX, 0, 0, LONG_MAX),
    "min.insync.replicas": (1, 1, 1, INT_MAX),
    "min.compaction.lag.ms": (0, 0, 0, LONG_MAX),
    "max.compaction.lag.ms": (LONG_MAX, 1, 1, LONG_MAX),
    "time.index.interval.ms": (60000, 1, 1, LONG_MAX),  # KIP-33's, not Kafka's
}
OTHERS = {
    "message.timestamp.type": "CreateTime",
    "message.format.version": None,
    "compression.type": "producer",
    "cleanup.policy": "delete",
    "min.cleanable.dirty.ratio": 0.5,
    "preallocate": False,
    "message.downconversion.enable": True,
    "allow.negative.timestamps": False,
    "proposals": "",
    "message.timestamp.missing": "accept",
}


def value(config: LogConfig, key: str) -> Any:
    added = key in ("proposals", "time.index.interval.ms")
    return config.of_extension(key) if added else getattr(config, key.replace(".", "_"))


def words(number: int) -> str:
    return {INT_MAX: "2^31-1", LONG_MAX: "2^63-1", -(2**63): "-2^63"}.get(number, str(number))


def test_every_default_is_kafkas() -> None:
    config = LogConfig.of()
    for key, (default, *_) in INTEGERS.items():
        assert default is None or value(config, key) == default, key
    for key, other in OTHERS.items():
        assert other is None or value(config, key) is other or value(config, key) == other, key
    assert set(config.to_properties()) == set(INTEGERS) | set(OTHERS)


@pytest.mark.parametrize(
    ("generation", "version", "magic", "largest"), [("0.10.2", "0.10.2", 1, 1000012), ("3.9", "3.9", 2, 1048588)]
)
def test_format_and_largest_message_follow_the_generation(
    generation: str, version: str, magic: int, largest: int
) -> None:
    config = LogConfig.of(generation=generation)
    assert (config.message_format_version, config.magic) == (version, magic)
    assert config.max_message_bytes == largest
    assert config.generation == generation
    assert LogConfig.of({"max.message.bytes": 5}, generation=generation).max_message_bytes == 5


@pytest.mark.parametrize(("version", "generation"), [("0.9.0", "0.10.2"), ("0.10.1", "0.10.2"), ("1.0", "3.9")])
def test_the_generation_follows_the_format_where_none_is_named(version: str, generation: str) -> None:
    assert LogConfig.of({"message.format.version": version}).generation == generation
    assert LogConfig.of({"log.message.format.version": version}).generation == generation
    assert LogConfig.of({"message.format.version": version}, generation="3.9").generation == "3.9"


@pytest.mark.parametrize(
    ("version", "magic"),
    [
        ("0.8.0", 0),
        ("0.8.2.2", 0),
        ("0.9.0", 0),
        ("0.9.0.1", 0),
        ("0.10.0-IV0", 1),
        ("0.10.0", 1),
        ("0.10.1-IV2", 1),
        ("0.10.2.2", 1),
        ("0.10.2-IV0", 1),
        ("0.11.0-IV2", 2),
        ("0.11.0.3", 2),
        ("1.0", 2),
        ("1.1.1", 2),
        ("2.8-IV1", 2),
        ("3.0", 2),
        ("3.9-IV0", 2),
        ("3.9.2", 2),
    ],
)
def test_the_format_version_names_a_magic_by_its_first_parts(version: str, magic: int) -> None:
    assert LogConfig.of({"message.format.version": version}).magic == magic


@pytest.mark.parametrize(
    "version", ["", "0", "1", "0.7.0", "0.10", "0.10.3", "0.10.0-IV2", "1.0-IV1", "4.0", "x", "0.10.0-"]
)
def test_an_unknown_format_version_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="^message.format.version: expected a release from 0.8.0 to 3.9, found '"):
        LogConfig.of({"message.format.version": version})


def test_a_release_of_another_time_is_refused() -> None:
    with pytest.raises(
        ValueError, match="^message.format.version: expected a release from 0.8.0 to 0.10.2, found '1.0'$"
    ):
        LogConfig.of({"message.format.version": "1.0"}, generation="0.10.2")


@pytest.mark.parametrize("key", INTEGERS)
@pytest.mark.parametrize("generation", ["0.10.2", "3.9"])
def test_limits_are_those_of_the_generation(key: str, generation: str) -> None:
    _, least_0_10, least, greatest = INTEGERS[key]
    lowest = least_0_10 if generation == "0.10.2" else least
    for number in (lowest, greatest, max(lowest, 77)):
        for given in (number, str(number), f" {number} "):
            assert value(LogConfig.of({key: given}, generation=generation), key) == number
    for number in (lowest - 1, greatest + 1):
        with pytest.raises(ValueError) as caught:
            LogConfig.of({key: number}, generation=generation)
        assert str(caught.value) == f"{key}: expected {words(lowest)} to {words(greatest)}, found {number}"


@pytest.mark.parametrize("bad", ["", "x", "1.0", "1_000", "0x10", "1e3", 1.0, True, [1], "１"])
def test_what_is_no_integer_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError) as caught:
        LogConfig.of({"segment.bytes": bad})
    assert str(caught.value) == f"segment.bytes: expected an integer, found {bad!r}"


def test_plus_signs_and_spaces_are_read_as_java_reads_them() -> None:
    assert LogConfig.of({"segment.ms": " +5 "}).segment_ms == 5


@pytest.mark.parametrize(
    ("key", "good", "bad", "message"),
    [
        (
            "message.timestamp.type",
            {"CreateTime": "CreateTime", " LogAppendTime ": "LogAppendTime"},
            ["createtime", ""],
            "expected one of CreateTime, LogAppendTime, found",
        ),
        (
            "compression.type",
            {name: name for name in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")},
            ["none", "LZ4"],
            "expected one of producer, uncompressed, gzip, snappy, lz4, zstd, found",
        ),
        (
            "cleanup.policy",
            {"delete": "delete", "compact , delete": "compact,delete", ("compact",): "compact", "": ""},
            ["Delete", "compact;delete", "delete,"],
            "expected compact, delete or both, found",
        ),
        (
            "proposals",
            {
                "": "",
                " bucket-index , wall-clock": "bucket-index,wall-clock",
                ("minute-map", "monotonic-append-time"): "minute-map,monotonic-append-time",
            },
            ["bucket", "bucket-index,bucket-index", "Minute-Map", "wall-clock,"],
            "expected some of wall-clock, largest-timestamp, earliest-timestamp, bucket-index, minute-map, "
            "monotonic-append-time, each once, found",
        ),
        (
            "message.timestamp.missing",
            {" refuse ": "refuse", "now": "now", "accept": "accept", "0": "0", 1_500: "1500"},
            ["never", "", "Now", "1.5", 2**63, True],
            "expected accept, refuse, now or a time in ms, found",
        ),
        (
            "preallocate",
            {"TRUE": True, "false": False, True: True},
            ["1", 1, 0, "yes"],
            "expected true or false, found",
        ),
    ],
)
def test_choices_are_checked(key: str, good: dict[Any, Any], bad: list[Any], message: str) -> None:
    for given, stored in good.items():
        assert value(LogConfig.of({key: given}), key) == stored
    for given in bad:
        with pytest.raises(ValueError) as caught:
            LogConfig.of({key: given})
        assert str(caught.value) == f"{key}: {message} {given!r}"


def test_one_rule_for_rolling_at_most() -> None:
    with pytest.raises(ValueError) as caught:
        LogConfig.of({"log.proposals": "wall-clock,bucket-index,earliest-timestamp"})
    assert str(caught.value) == (
        "log.proposals: expected one of wall-clock, largest-timestamp, earliest-timestamp at most, "
        "found 'wall-clock,bucket-index,earliest-timestamp'"
    )


def test_an_extension_adds_settings_with_defaults_and_checks_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kts.config, "_DEFAULTS", dict(kts.config._DEFAULTS))
    monkeypatch.setattr(kts.config, "_EXTENSIONS", dict(kts.config._EXTENSIONS))
    loaded: list[str] = []

    def load() -> dict[str, Extension]:
        loaded.append("ours")
        return {"ours.size": Extension(lambda key, value: parse_integer(key, value, 1, 9))}

    extend({"ours.size": 5}, load)
    assert LogConfig().of_extension("ours.size") == 5
    assert LogConfig.of({"ours.size": "5"}) == LogConfig()
    assert LogConfig().to_properties()["ours.size"] == "5"
    with pytest.raises(ValueError, match="^config: unknown setting 'our.size'; the nearest name is ours.size$"):
        LogConfig.of({"our.size": 5})
    assert not loaded  # until a value is given
    config = LogConfig.of({"ours.size": " 7 ", "log.ours.size": 8})
    assert config.of_extension("ours.size") == 7 and config != LogConfig()
    assert LogConfig.of(config.to_properties()) == config == pickle.loads(pickle.dumps(config))
    assert dataclasses.replace(config, segment_ms=5).of_extension("ours.size") == 7
    with pytest.raises(ValueError, match="^log.ours.size: expected 1 to 9, found 10$"):
        LogConfig.of({"log.ours.size": 10})


def test_a_setting_whose_extension_is_not_there_is_refused_with_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kts.config, "_DEFAULTS", {"theirs": ""})
    monkeypatch.setattr(kts.config, "_EXTENSIONS", {"theirs": lambda: importlib.import_module("kts_theirs")})
    assert LogConfig.of({"theirs": ""}) == LogConfig()
    with pytest.raises(ValueError, match="^theirs: expected the extension .*, found none: No module named 'kts_theirs"):
        LogConfig.of({"log.theirs": "x"})


def test_zstd_came_after_0_10_2() -> None:
    with pytest.raises(ValueError, match="^compression.type: expected one of producer, .*, lz4, found 'zstd'$"):
        LogConfig.of({"compression.type": "zstd"}, generation="0.10.2")


BROKER_NAMES = {
    "log.message.timestamp.type": ("LogAppendTime", "message.timestamp.type", "LogAppendTime"),
    "log.message.timestamp.difference.max.ms": ("7", "message.timestamp.difference.max.ms", 7),
    "log.message.timestamp.before.max.ms": ("7", "message.timestamp.before.max.ms", 7),
    "log.message.timestamp.after.max.ms": ("7", "message.timestamp.after.max.ms", 7),
    "log.message.format.version": ("0.9.0", "message.format.version", "0.9.0"),
    "log.segment.bytes": ("99", "segment.bytes", 99),
    "log.roll.ms": ("7", "segment.ms", 7),
    "log.roll.hours": ("2", "segment.ms", 7_200_000),
    "log.roll.jitter.ms": ("7", "segment.jitter.ms", 7),
    "log.roll.jitter.hours": ("2", "segment.jitter.ms", 7_200_000),
    "log.index.size.max.bytes": ("99", "segment.index.bytes", 99),
    "log.index.interval.bytes": ("99", "index.interval.bytes", 99),
    "log.retention.ms": ("7", "retention.ms", 7),
    "log.retention.minutes": ("2", "retention.ms", 120_000),
    "log.retention.hours": ("2", "retention.ms", 7_200_000),
    "log.retention.bytes": ("7", "retention.bytes", 7),
    "message.max.bytes": ("7", "max.message.bytes", 7),
    "log.cleanup.policy": ("compact", "cleanup.policy", "compact"),
    "log.segment.delete.delay.ms": ("7", "file.delete.delay.ms", 7),
    "log.cleaner.delete.retention.ms": ("7", "delete.retention.ms", 7),
    "log.cleaner.max.compaction.lag.ms": ("7", "max.compaction.lag.ms", 7),
    "log.preallocate": ("true", "preallocate", True),
    "log.flush.interval.messages": ("7", "flush.messages", 7),
    "log.flush.interval.ms": ("7", "flush.ms", 7),
    "log.flush.scheduler.interval.ms": ("7", "flush.ms", 7),
    "log.message.downconversion.enable": ("false", "message.downconversion.enable", False),
    "log.proposals": ("minute-map", "proposals", "minute-map"),
    "log.time.index.interval.ms": ("7", "time.index.interval.ms", 7),
    "log.allow.negative.timestamps": ("true", "allow.negative.timestamps", True),
    "log.message.timestamp.missing": ("now", "message.timestamp.missing", "now"),
}


@pytest.mark.parametrize("name", BROKER_NAMES)
def test_a_brokers_name_sets_the_topics_default(name: str) -> None:
    given, key, stored = BROKER_NAMES[name]
    assert value(LogConfig.of({name: given}), key) == stored


@pytest.mark.parametrize("name", BROKER_NAMES)
def test_the_topics_own_name_beats_the_brokers_in_any_order(name: str) -> None:
    given, key, _ = BROKER_NAMES[name]
    own = {"message.timestamp.type": "CreateTime", "message.format.version": "0.10.0", "cleanup.policy": "delete"}
    own |= {"preallocate": "false", "message.downconversion.enable": "true", "proposals": "bucket-index"}
    own |= {"allow.negative.timestamps": "false", "message.timestamp.missing": "refuse"}
    mine = own.get(key, "55")
    alone = value(LogConfig.of({key: mine}), key)
    assert value(LogConfig.of({name: given, key: mine}), key) == alone
    assert value(LogConfig.of({key: mine, name: given}), key) == alone


@pytest.mark.parametrize(
    ("names", "key"),
    [
        (["log.retention.ms", "log.retention.minutes", "log.retention.hours"], "retention.ms"),
        (["log.roll.ms", "log.roll.hours"], "segment.ms"),
        (["log.roll.jitter.ms", "log.roll.jitter.hours"], "segment.jitter.ms"),
        (["log.flush.interval.ms", "log.flush.scheduler.interval.ms"], "flush.ms"),
    ],
)
def test_ms_beat_minutes_which_beat_hours(names: list[str], key: str) -> None:
    while names:
        expected = value(LogConfig.of({names[0]: 3}), key)
        assert value(LogConfig.of(dict.fromkeys(names, 3)), key) == expected
        assert value(LogConfig.of(dict.fromkeys(reversed(names), 3)), key) == expected
        names = names[1:]


@pytest.mark.parametrize("unit", ["ms", "minutes", "hours"])
def test_a_brokers_retention_is_unlimited_when_negative_and_never_zero(unit: str) -> None:
    assert LogConfig.of({f"log.retention.{unit}": -5}).retention_ms == -1
    with pytest.raises(ValueError) as caught:
        LogConfig.of({f"log.retention.{unit}": 0})
    assert str(caught.value) == f"log.retention.{unit}: expected 1 or more, or -1 for no limit, found 0"
    assert LogConfig.of({"retention.ms": 0}).retention_ms == 0


@pytest.mark.parametrize(
    ("name", "bad", "limits"),
    [
        ("log.roll.ms", 0, "1 to 2^63-1"),
        ("log.roll.hours", 0, "1 to 2^31-1"),
        ("log.roll.jitter.hours", -1, "0 to 2^31-1"),
        ("log.index.size.max.bytes", 3, "4 to 2^31-1"),
        ("log.flush.interval.messages", 0, "1 to 2^63-1"),
        ("log.retention.hours", 2**31, "-2^31 to 2^31-1"),
        ("log.segment.bytes", 13, "14 to 2^31-1"),
    ],
)
@pytest.mark.parametrize("generation", ["0.10.2", "3.9"])
def test_a_brokers_own_limits_hold_for_its_names(name: str, bad: int, limits: str, generation: str) -> None:
    with pytest.raises(ValueError) as caught:
        LogConfig.of({name: bad}, generation=generation)
    assert str(caught.value) == f"{name}: expected {limits}, found {bad}"


def test_a_bad_value_is_refused_even_where_another_name_wins() -> None:
    with pytest.raises(ValueError, match="^log.retention.hours: expected an integer, found 'x'$"):
        LogConfig.of({"retention.ms": 5, "log.retention.hours": "x"})


def test_the_kips_name_of_the_difference_is_an_alias_that_never_gives_another_value() -> None:
    kip, shipped = "max.message.time.difference.ms", "message.timestamp.difference.max.ms"
    for name in (kip, f"log.{kip}"):
        assert LogConfig.of({name: 5}).message_timestamp_difference_max_ms == 5
        assert LogConfig.of({name: " 5", shipped: 5, f"log.{shipped}": None}).message_timestamp_difference_max_ms == 5
        for other in (shipped, f"log.{shipped}"):
            with pytest.raises(ValueError, match=f"^{other} and {name}: expected one value, .*, found 6 and 5; leave"):
                LogConfig.of({name: 5, other: 6})


def test_before_and_after_fall_back_to_the_difference_while_they_are_long_max() -> None:
    config = LogConfig.of({"message.timestamp.difference.max.ms": 9, "message.timestamp.after.max.ms": 4})
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (9, 4)
    config = LogConfig.of({"message.timestamp.difference.max.ms": 9, "message.timestamp.after.max.ms": LONG_MAX})
    assert config.message_timestamp_after_max_ms == 9
    assert LogConfig.of().message_timestamp_before_max_ms == LONG_MAX


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("segment.byte", "segment.bytes"),
        ("segment_bytes", "segment.bytes"),
        ("retention.hours", "log.retention.hours"),
        ("message.timestamp.typ", "message.timestamp.type"),
        ("Cleanup.Policy", "cleanup.policy"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(key: str, near: str) -> None:
    with pytest.raises(ValueError) as caught:
        LogConfig.of({key: "1"})
    assert str(caught.value) == f"config: unknown setting {key!r}; the nearest name is {near}"


def test_wrong_types_are_named() -> None:
    with pytest.raises(TypeError, match="^config: expected settings named by str, found 3$"):
        LogConfig.of({3: 1})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="^config: expected a mapping of settings or a LogConfig, found list$"):
        LogConfig.of([1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^compression.type: expected text, found 5$"):
        LogConfig.of({"compression.type": 5})
    with pytest.raises(ValueError, match=r"^generation: expected one of 0.10.2, 3.9, 4.3, found '2.0'$"):
        LogConfig.of(generation="2.0")


def test_what_a_log_has_no_use_for_is_passed_over_whatever_its_value() -> None:
    brokers = ["unclean.leader.election.enable", "remote.storage.enable", "compression.gzip.level"]
    brokers += ["local.retention.ms", "leader.replication.throttled.replicas"]
    assert LogConfig.of(dict.fromkeys(brokers, "x") | {"segment.ms": 7}) == LogConfig.of({"segment.ms": 7})


def test_the_dirty_ratio_is_a_number_as_java_writes_it() -> None:
    name = "min.cleanable.dirty.ratio"
    for text, number in {"0.25": 0.25, " 1 ": 1, ".5d": 0.5, "0x1p-1": 0.5, "5e-1F": 0.5, "1.": 1}.items():
        assert LogConfig.of({name: text}).min_cleanable_dirty_ratio == number
        assert LogConfig.of({"log.cleaner.min.cleanable.ratio": text}).min_cleanable_dirty_ratio == number
    assert LogConfig.of({name: 0}).min_cleanable_dirty_ratio == 0
    assert LogConfig.of({name: "NaN"}).min_cleanable_dirty_ratio != 0  # no ratio is above it
    for wrong in ("x", "", "1_0", "0x1", True, None.__class__):
        with pytest.raises(ValueError, match=f"^{name}: expected a number, found "):
            LogConfig.of({name: wrong})
    for wrong in ("1.01", "-0.1", 2, "Infinity"):
        with pytest.raises(ValueError, match=f"^{name}: expected 0 to 1, found "):
            LogConfig.of({name: wrong})


def test_every_topic_configuration_of_the_golden_brokers_is_taken() -> None:
    taken = 0
    for scenario in goldens():
        topics = scenario.meta.get("topics", {}).values() or [scenario.meta]
        for given in (topic["configs"] for topic in topics):
            generation = "0.10.2" if scenario.version in ("0.9.0.1", "0.10.0.1", "0.10.2.2") else "3.9"
            properties = LogConfig.of(given, generation=generation).to_properties()
            if "internal.segment.bytes" in given:
                given = given | {"segment.bytes": given["internal.segment.bytes"]}
            known = {key: text for key, text in given.items() if key in properties}
            assert {key: properties[key] for key in known} == {key: str(text) for key, text in known.items()}, scenario
            taken += len(known)
    assert taken > 200


def test_kafka_4_has_a_name_of_its_own_for_small_segments() -> None:
    assert LogConfig.of({"internal.segment.bytes": "99"}).segment_bytes == 99


def test_none_is_not_set() -> None:
    assert LogConfig.of({"retention.ms": None, "log.retention.hours": 1}).retention_ms == 3_600_000
    assert LogConfig.of(None) == LogConfig()


@pytest.mark.parametrize(
    ("policy", "compacted", "deletes"),
    [("delete", False, True), ("compact", True, False), ("compact,delete", True, True), ("", False, False)],
)
def test_the_policy_says_whether_records_are_compacted_and_deleted(policy: str, compacted: bool, deletes: bool) -> None:
    config = LogConfig.of({"cleanup.policy": policy})
    assert (config.compacted, config.deletes) == (compacted, deletes)


def test_a_compacted_topic_of_3_9_rolls_by_the_compaction_lag_if_that_is_less() -> None:
    lag = {"max.compaction.lag.ms": 10, "segment.ms": 20}
    assert LogConfig.of(lag).max_segment_ms == 20
    assert LogConfig.of(lag | {"cleanup.policy": "compact"}).max_segment_ms == 10
    assert LogConfig.of(lag | {"cleanup.policy": "compact"}, generation="0.10.2").max_segment_ms == 20


def test_properties_give_the_same_configuration_back() -> None:
    given = {
        "segment.ms": 5,
        "message.format.version": "0.10.0",
        "preallocate": True,
        "cleanup.policy": "compact,delete",
    }
    config = LogConfig.of(given)
    properties = config.to_properties()
    assert all(isinstance(text, str) for text in properties.values())
    assert properties["preallocate"] == "true"
    assert LogConfig.of(properties) == config
    assert LogConfig.of(config) is config


def test_a_configuration_is_checked_however_it_is_made() -> None:
    with pytest.raises(ValueError, match="^segment.ms: expected 1 to 2\\^63-1, found 0$"):
        LogConfig(segment_ms=0)
    with pytest.raises(ValueError, match="^segment.ms: expected 1 to 2\\^63-1, found -3$"):
        dataclasses.replace(LogConfig(), segment_ms=-3)
    zero = LogConfig.of({"segment.ms": 0}, generation="0.10.2")
    with pytest.raises(ValueError, match="^segment.ms: expected 1 to 2\\^63-1, found 0$"):
        LogConfig.of(dataclasses.replace(zero, message_format_version="0.9.0"), generation="3.9")
    with pytest.raises(dataclasses.FrozenInstanceError):
        zero.segment_ms = 5  # type: ignore[misc]


def test_a_missing_timestamp_gets_a_time_before_1970_only_where_those_are_allowed() -> None:
    for given in ("-1", -386380800000):
        with pytest.raises(ValueError, match="expected 0 or more, or allow.negative.timestamps=true, found '-"):
            LogConfig.of({"message.timestamp.missing": given})
        both = {"message.timestamp.missing": given, "log.allow.negative.timestamps": "true"}
        assert LogConfig.of(both).message_timestamp_missing == str(given)
        assert LogConfig.of(both).times.minus_one == (given == "-1")
    with pytest.raises(
        ValueError, match="expected accept, because message format 0.9.0 has no timestamps, found 'now'"
    ):
        LogConfig.of({"message.timestamp.missing": "now", "message.format.version": "0.9.0"})
