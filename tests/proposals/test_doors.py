"""The doors that switch proposals on: `kts serve`, its admin requests, and `kts follow`."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from support.broker.served import serve
from support.clients.client_librdkafka import Confluent
from support.clients.client_records import Record
from support.golden import PATIENCE_S
from support.processes.cli_runs import run
from support.waiting import wait_until

from kts.proposals import MODES
from kts.testing import KtsBroker
from kts.times import wall_clock

pytestmark = pytest.mark.slow

MINUTE = 60_000
T = 1_760_000_000_000 // MINUTE * MINUTE
EACH_MINUTE = [Record(None, b"x" * 20, T + minute * MINUTE) for minute in range(30)]


def pairs(path: Path) -> list[tuple[int, int]]:
    """(timestamp, offset) of the entries of a partition's `.time.index` files."""
    found = []
    for file in sorted(path.glob("*.time.index")):
        data, base = file.read_bytes(), int(file.name[:20])
        for at in range(0, len(data), 12):
            found.append((int.from_bytes(data[at : at + 8]), base + int.from_bytes(data[at + 8 : at + 12])))
    return found


def wait(futures: dict[object, object]) -> list[object]:
    return [future.result(PATIENCE_S) for future in futures.values()]  # type: ignore[attr-defined]


def test_a_served_log_has_the_index_and_real_clients_search_by_it(tmp_path: Path) -> None:
    options = ["--proposal", "bucket-index", "--config", f"log.time.index.interval.ms={10 * MINUTE}"]
    client = Confluent()
    with serve(tmp_path / "data", {}, *options) as broker:
        bootstrap = "{}:{}".format(*broker.address)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wait(admin.create_topics([NewTopic("t", 1, config={"segment.bytes": "1000"})]))
        for one in EACH_MINUTE:  # one batch each, or the first would hold them all
            client.produce(bootstrap, "t", [one])
        buckets = [(T + minute * MINUTE) // (10 * MINUTE) * (10 * MINUTE) for minute in range(30)]
        firsts = [(time, number) for number, time in enumerate(buckets) if not number or time != buckets[number - 1]]
        found = pairs(tmp_path / "data" / "t-0")
        assert set(firsts) <= set(found) and found == sorted(found)
        targets = [one.timestamp or 0 for one in EACH_MINUTE]
        answers = client.times(bootstrap, "t", [*targets, targets[-1] + 1])
        assert [answer and answer[0] for answer in answers] == [*range(30), None]
        assert broker.stop() == 0
        assert broker.said() == ""


def test_an_admin_client_sets_describes_and_ends_the_proposals_of_a_topic(tmp_path: Path) -> None:
    with KtsBroker(tmp_path, time=T) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        resource = ConfigResource(ResourceType.TOPIC, "t")

        def described() -> dict[str, str]:
            [told] = wait(admin.describe_configs([resource]))
            return {name: told[name].value for name in ("proposals", "time.index.interval.ms") if name in told}  # type: ignore[index, operator]

        def alter(name: str, value: str | None) -> None:
            how = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
            entry = ConfigEntry(name, value, incremental_operation=how)
            wait(
                admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])])
            )

        wait(admin.create_topics([NewTopic("t", 1)]))
        assert described() == {}
        for minute in range(5):
            broker.produce("t", b"x", timestamp_ms=T + minute * MINUTE)
        assert pairs(tmp_path / "t-0") == []
        alter("proposals", "minute-map, bucket-index")
        alter("time.index.interval.ms", "120000")
        assert described() == {"proposals": "minute-map,bucket-index", "time.index.interval.ms": "120000"}
        log = broker.log("t")
        assert log.proposals is not None and list(log.proposals.modes) == ["minute-map", "bucket-index"]
        assert [time % (2 * MINUTE) for time, _ in pairs(tmp_path / "t-0")] == [0] * len(pairs(tmp_path / "t-0")) != []
        of_broker = ConfigEntry("log.proposals", "wall-clock", incremental_operation=AlterConfigOpType.SET)
        everywhere = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[of_broker])
        wait(admin.incremental_alter_configs([everywhere]))
        assert list(log.proposals.modes) == ["minute-map", "bucket-index"]  # the topic's own
        broker.create_topic("u")
        other = broker.log("u")
        assert other.proposals is not None and list(other.proposals.modes) == ["wall-clock"]
        of_broker.incremental_operation = AlterConfigOpType.DELETE
        wait(admin.incremental_alter_configs([everywhere]))
        assert other.proposals is None
        alter("proposals", None)
        assert log.proposals is None and described() == {"time.index.interval.ms": "120000"}
        with pytest.raises(Exception, match="proposals: expected some of wall-clock, largest-timestamp, .*'buckets'"):
            alter("proposals", "buckets")
        with pytest.raises(Exception, match="proposals: expected some of wall-clock"):
            wait(admin.create_topics([NewTopic("v", 1, config={"proposals": "buckets"})]))


@pytest.mark.parametrize("name", MODES)
def test_every_proposal_can_be_named_to_a_broker_and_its_follower(name: str, tmp_path: Path) -> None:
    with KtsBroker(tmp_path / "a", {"log.proposals": name}, time=T) as broker:
        broker.create_topic("t")
        broker.produce("t", b"x")
        log = broker.log("t")
        assert log.proposals is not None and list(log.proposals.modes) == [name]
        run("follow", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--once", tmp_path / "b")
    with KtsBroker(tmp_path / "b") as replica:
        log = replica.log("t")
        assert log.proposals is not None and list(log.proposals.modes) == [name]


def test_a_followers_index_is_its_leaders(tmp_path: Path) -> None:
    with KtsBroker(tmp_path / "a", {"log.segment.bytes": 1000}, time=T) as broker:
        broker.create_topic("t")
        for one in EACH_MINUTE:
            broker.produce("t", one.value, timestamp_ms=one.timestamp)
        command = ["follow", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--once"]
        run(*command, "--proposal", "bucket-index", tmp_path / "b")
        broker.alter_topic("t", {"proposals": "bucket-index"})  # the leader builds its own later
        ours, theirs = (
            {file.name: file.read_bytes() for file in (tmp_path / name / "t-0").glob("*.time.index")} for name in "ab"
        )
        assert ours == theirs and len(ours) > 2


def test_a_served_log_that_is_idle_rolls_and_retention_removes_its_old_segment(tmp_path: Path) -> None:
    """Buys that a process's own housekeeping asks, which it does once a second: about three seconds."""
    settings = {
        "log.roll.ms": 1000,
        "log.retention.ms": 14_000,
        "log.retention.check.interval.ms": 100,
        "log.segment.delete.delay.ms": 0,
    }
    client = Confluent()
    with serve(tmp_path / "data", settings, "--proposal", "largest-timestamp") as broker:
        bootstrap = "{}:{}".format(*broker.address)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wait(admin.create_topics([NewTopic("idle", 1), NewTopic("kafkas", 1, config={"proposals": ""})]))
        now = wall_clock()
        for topic in ("idle", "kafkas"):  # twelve seconds old: due to roll, and two seconds later to be deleted
            client.produce(bootstrap, topic, [Record(None, b"x", now - 12_000)])
        bases: dict[str, list[list[int]]] = {"idle": [], "kafkas": []}

        def look() -> bool:
            for topic, seen in bases.items():
                found = sorted(int(file.stem) for file in (tmp_path / "data" / f"{topic}-0").glob("*.log"))
                if found not in seen[-1:]:
                    seen.append(found)
            return bases["idle"][-1] == bases["kafkas"][-1] == [1]

        wait_until("retention", look)
        assert bases["idle"][:2] == [[0], [0, 1]]  # it rolled before retention came
        assert client.ends(bootstrap, "idle") == (1, 1)
        assert [sent.offset for sent in client.produce(bootstrap, "idle", [Record(None, b"y", None)])] == [1]
        assert broker.stop() == 0
