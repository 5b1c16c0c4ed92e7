"""The measure of test_real_brokers.py: what a broker alone says and does about its own files, about spoiled ones, and
about those that it left when it was killed."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.kafka.broker_load import Files, Load, about, complaints, differing, files_in, load, partition_files
from support.kafka.brokers import kafka

import kts

SMALL = {"segment.bytes": 2000, "index.interval.bytes": 0, "segment.index.bytes": 4096}
TOPICS = {"control-kept": SMALL, "control-spoiled": SMALL, "control-stranger": SMALL, "control-never": {}}
SETS, RECORDS = 30, 3
PLAIN = {"enable.idempotence": "false"}
OTHER_ID = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAQA"


@dataclass
class Seen:
    """What a broker said at a clean start, at one with spoiled files, and at one after it was killed."""

    version: str
    clean: list[str]
    spoiled: list[str]
    killed: list[str]
    closed: Files
    running: Files
    closed_again: Files
    recovered: Files  # by the broker
    recovered_by_kts: Files


def records() -> list[list[dict[str, Any]]]:
    value = base64.b64encode(bytes(50)).decode()
    return [[{"timestamp": 1000 * n + i, "value": value} for i in range(RECORDS)] for n in range(SETS)]


def recovered_by_kts(killed: Path) -> Files:
    with kts.Log(killed, SMALL, generation="3.9" if (killed / "partition.metadata").exists() else "0.10.2"):
        pass
    return files_in(killed)


@pytest.fixture(scope="module", params=["0.10.2.2", "3.9.2"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    version = request.param
    with kafka(version, tmp_path_factory.mktemp(f"controls-{version}")) as (broker, client):
        broker.start()
        client.ask("create", topics=TOPICS)
        for topic in [name for name in TOPICS if name != "control-never"]:
            client.ask("produce", topic=topic, settings=PLAIN, groups=records())
        broker.stop()
        closed = partition_files(broker, "control-kept")
        broker.start()
        clean = broker.said()
        client.ask("consume", topic="control-kept")
        running = partition_files(broker, "control-kept")
        broker.stop()
        closed_again = partition_files(broker, "control-kept")
        index = min(broker.partition("control-spoiled").glob("*.index"))
        if version.startswith("0."):
            index.write_bytes(index.read_bytes()[:-1])
        else:
            index.unlink()  # what an index holds no longer matters to this release
            (broker.partition("control-stranger") / "partition.metadata").write_text(OTHER_ID, encoding="utf-8")
        broker.start()
        spoiled = broker.said()
        client.ask("produce", topic="control-kept", settings=PLAIN, groups=records())
        broker.kill()
        copied = shutil.copytree(broker.data, broker.folder / "killed") / "control-kept-0"
        broker.start()
        killed = broker.said()
        broker.stop()
        recovered = partition_files(broker, "control-kept")
        files = closed, running, closed_again, recovered, recovered_by_kts(copied)
        yield Seen(version, clean, spoiled, killed, *files)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_broker_has_no_complaints_about_files_that_it_closed(seen: Seen, topic: str) -> None:
    assert about(seen.clean, topic)
    assert complaints(seen.clean, topic) == []


def test_what_a_broker_loaded_is_found_in_its_log(seen: Seen) -> None:
    end = SETS * RECORDS
    segments = len([name for name in seen.closed if name.endswith(".log")])
    nothing = seen.version.startswith("0.")
    expected = Load(segments, end, None, None, None) if nothing else Load(segments, end, 0, end, end)
    assert load(seen.clean, "control-kept") == expected
    assert segments > 3


def test_a_broker_does_not_change_what_it_closed(seen: Seen) -> None:
    assert differing(seen.closed, seen.running, running=True) == []
    assert differing(seen.closed, seen.running) != []  # the active segment's indexes have room again
    assert differing(seen.closed, seen.closed_again) == []


def test_a_spoiled_index_is_complained_of(seen: Seen) -> None:
    heard = complaints(seen.spoiled, "control-spoiled")
    says = "Found a corrupted index file" if seen.version.startswith("0.") else "Could not find offset index file"
    assert any(says in line for line in heard), heard
    assert complaints(seen.spoiled, "control-kept") == []


def test_a_foreign_topic_id_is_complained_of(seen: Seen) -> None:
    if seen.version.startswith("0."):
        pytest.skip("a topic has no id in this release")
    assert complaints(seen.spoiled, "control-stranger") != []


def test_a_missing_marker_is_complained_of(seen: Seen) -> None:
    for topic in ("control-kept", "control-never"):
        heard = complaints(seen.killed, topic)
        assert any("Recovering unflushed segment" in line for line in heard), heard


def test_kts_recovers_what_a_killed_broker_left_as_the_broker_does(seen: Seen) -> None:
    assert len(seen.recovered) > len(seen.closed)
    assert differing(seen.recovered_by_kts, seen.recovered) == []
