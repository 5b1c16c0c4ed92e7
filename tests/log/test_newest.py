"""What Kafka 4.3 would refuse by default is accepted with one warning where no release is named."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kts
from kts.testing import KtsBroker

NOW_MS, HOUR_MS = 1_700_000_000_000, 3_600_000
ONE_MORE = NOW_MS + HOUR_MS + 1
LARGEST = 2**63 - 1


def records(time: int, magic: int = 2) -> bytes:
    return kts.encode({"timestamp": [time], "value": [b"v"]}, magic=magic)


def told(path: Path, config: Any, *sets: bytes, release: str | None = None) -> list[str]:
    """The warnings of a log that accepts these sets."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with kts.Log(path / "t-0", config, release=release, clock=lambda: NOW_MS) as log:
            for one in sets:
                log.append(one)
            assert log.log_end_offset == len(sets)
    assert all(each.category is kts.KtsWarning and each.filename == __file__ for each in found)
    return [str(each.message) for each in found]


def test_a_create_time_that_4_3_refuses_is_told_once_with_the_rule_the_setting_and_the_release(tmp_path: Path) -> None:
    assert told(tmp_path, None, records(NOW_MS + HOUR_MS), records(-1), records(0)) == []
    [text] = told(tmp_path / "more", None, records(ONE_MORE), records(2 * NOW_MS), records(NOW_MS, 1))
    assert "CreateTime 3600001 ms ahead of the clock" in text
    for name in ("message.timestamp.after.max.ms", "3600000", "KIP-1030", 'release="4.3"'):
        assert name in text


@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_of_an_old_message_format_is_told_once(tmp_path: Path, magic: int) -> None:
    [text] = told(tmp_path, None, records(NOW_MS), records(NOW_MS, magic), records(NOW_MS, magic))
    for name in (f"message format {magic}", "message.format.version", "KIP-724", 'release="4.3"'):
        assert name in text


def test_rows_are_told_of_as_sets_are(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", clock=lambda: NOW_MS) as log, pytest.warns(kts.KtsWarning, match="ahead") as found:
        for _ in range(2):
            log.append_rows({"timestamp": [ONE_MORE], "value": [b"v"]})
    assert len(found) == 1


@pytest.mark.parametrize("release", ["3.9", "0.10.2"])
def test_who_names_a_release_is_told_nothing(tmp_path: Path, release: str) -> None:
    configs = (None, {}, kts.LogConfig(release=release), kts.LogConfig() if release == "3.9" else None)
    for number, config in enumerate(configs):
        assert told(tmp_path / str(number), config, records(ONE_MORE, 1), release=release) == []


@pytest.mark.parametrize(
    "config",
    [
        {"message.timestamp.after.max.ms": LARGEST},
        {"log.message.timestamp.after.max.ms": LARGEST},
        {"message.timestamp.difference.max.ms": LARGEST},
        {"max.message.time.difference.ms": LARGEST},
        {"message.format.version": "3.0"},
        {"message.format.version": "0.10.2"},
        kts.LogConfig(message_timestamp_after_max_ms=LARGEST),
        kts.LogConfig(message_timestamp_difference_max_ms=LARGEST - 1),
        kts.LogConfig(message_format_version="3.0"),
        kts.LogConfig(undecided=False),
    ],
)
def test_who_sets_the_limit_or_the_format_is_told_nothing(tmp_path: Path, config: Any) -> None:
    assert told(tmp_path, config, records(ONE_MORE, 1)) == []


def test_other_settings_decide_nothing(tmp_path: Path) -> None:
    for number, config in enumerate(({"retention.ms": 5}, kts.LogConfig(segment_bytes=500))):
        assert len(told(tmp_path / str(number), config, records(ONE_MORE))) == 1
    stamped = {"message.timestamp.type": "LogAppendTime"}
    assert told(tmp_path, stamped, records(ONE_MORE)) == []


def test_settings_keep_whether_they_decide(tmp_path: Path) -> None:
    open_, decided = kts.LogConfig.of({}), kts.LogConfig.of({"message.timestamp.after.max.ms": LARGEST})
    assert (open_.undecided, decided.undecided) == (True, False)
    assert open_ == decided
    for config in (open_, decided):
        assert pickle.loads(pickle.dumps(config)).undecided is config.undecided
        assert kts.LogConfig.of(config).undecided is config.undecided
        assert kts.LogConfig.of(config, release="3.9").undecided is False
    with kts.Log(tmp_path / "t-0", decided, clock=lambda: NOW_MS) as log:
        log.append(records(ONE_MORE))
        log.reconfigure({})
        with pytest.warns(kts.KtsWarning, match="ahead"):
            log.append(records(ONE_MORE))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("message_timestamp_after_max_ms", 5 * ONE_MORE),
        ("message_timestamp_difference_max_ms", LARGEST - 1),
        ("message_format_version", "3.0"),
        ("release", "4.3"),
    ],
)
def test_who_replaces_the_limit_or_the_format_has_decided(tmp_path: Path, field: str, value: Any) -> None:
    """``dataclasses.replace`` passes all other fields on."""
    changed = replace(kts.LogConfig(), **{field: value})
    assert (changed.undecided, getattr(changed, field)) == (False, value)
    assert told(tmp_path, changed, records(ONE_MORE)) == []
    assert replace(kts.LogConfig(), retention_ms=5).undecided


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for each in caplog.records if "which Kafka 4.3 refuses" in (text := each.getMessage())]


def test_a_broker_has_one_line_of_it_for_each_topic(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(), KtsBroker(time=NOW_MS) as broker:
        warnings.simplefilter("error")
        for name in ("a", "b"):
            broker.create_topic(name, 2)
        broker.create_topic("c", config={"message.timestamp.after.max.ms": str(LARGEST)})
        for name in ("a", "b", "c"):
            for partition in (0, 1, 0)[: None if name != "c" else 1]:
                broker.produce(name, b"v", partition=partition, timestamp_ms=ONE_MORE)
    assert [line.split(":")[0] for line in lines_of(caplog)] == ["topic a", "topic b"]


@pytest.mark.parametrize(
    "config",
    [
        {"release": "3.9"},
        {"inter.broker.protocol.version": "3.9"},
        {"log.message.timestamp.after.max.ms": LARGEST},
        {"log.message.format.version": "3.0"},
    ],
)
def test_a_broker_whose_owner_has_decided_says_nothing(
    config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with KtsBroker(config=config, time=NOW_MS) as broker:
        broker.create_topic("a")
        broker.produce("a", b"v", timestamp_ms=ONE_MORE)
        broker.append("a", records(NOW_MS, 1))
    assert lines_of(caplog) == []


def test_a_topic_whose_limit_is_taken_away_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with KtsBroker(time=NOW_MS) as broker:
        broker.create_topic("a", config={"message.timestamp.after.max.ms": str(LARGEST)})
        broker.produce("a", b"v", timestamp_ms=ONE_MORE)
        assert lines_of(caplog) == []
        broker.alter_topic("a", {"message.timestamp.after.max.ms": None})
        broker.produce("a", b"v", timestamp_ms=ONE_MORE)
    assert len(lines_of(caplog)) == 1
