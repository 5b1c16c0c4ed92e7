"""Log directories, ACLs, replicas, producers, transactions, all settings: what a real 3.9.2 cannot be asked for.

What it can be asked for is compared with it in test_topics_kafka.py and test_same_script.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.asking import Asking
from support.clients.raw_client import RawClient, batch

import kts
from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ApiKey, ErrorCode
from kts.broker.request import ConnectionClose, Peer
from kts.broker.settings.broker import SETTINGS, BrokerConfig
from kts.broker.settings.inert import CLEANER, INERT
from kts.errors import LogStorageError
from kts.server.dispatch import Answering
from kts.server.server import ServerThread

OPEN = Path(__file__).parents[1] / "data" / "golden" / "3.9.2" / "txn-open" / "txn-open-0"
NOW = 1_795_231_400_000  # a while after the records of OPEN


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data")) as found:
        for name in ("a", "b"):
            found.broker.topics.create(name, 2)
        yield found


def log_dir(asking: Asking, topics: Any, version: int = 5) -> Any:
    [found] = asking.ask(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})["results"]
    return found


def sizes(found: Any) -> dict[tuple[str, int], int]:
    return {
        (topic["name"], one["partition_index"]): one["partition_size"]
        for topic in found["topics"]
        for one in topic["partitions"]
    }


# --- log directories --------------------------------------------------------------------------------


def test_a_partition_has_the_same_size_before_and_after_it_is_opened(tmp_path: Path) -> None:
    with Asking(Broker(tmp_path, {"log.segment.bytes": 200})) as asking:
        topic = asking.broker.topics.create("a", 2)
        for number in range(9):
            topic.partitions[1].append(batch([b"%d" % number * 50]))
        written = topic.partitions[1].log.size_bytes
        assert len(list((tmp_path / "a-1").glob("*.log"))) > 3
        (tmp_path / "a-1" / f"{7:020}.log.deleted").write_bytes(bytes(1000))
    with Asking(Broker(tmp_path)) as asking:
        topic = asking.broker.topics.get("a")
        assert sizes(log_dir(asking, None)) == {("a", 0): 0, ("a", 1): written}
        assert not topic.partitions[1].is_open
        assert topic.partitions[1].log.size_bytes == written
        found = log_dir(asking, [{"topic": "a", "partitions": [1, 1, 5]}, {"topic": "a", "partitions": [1]}])
        assert sizes(found) == {("a", 1): written}
        assert [len(each["partitions"]) for each in found["topics"]] == [1]
        room = shutil.disk_usage(tmp_path)
        assert found["log_dir"] == str(tmp_path)
        assert (found["error_code"], found["total_bytes"], found["is_cordoned"]) == (0, room.total, False)
        assert 0 < found["usable_bytes"] < room.total


def test_what_is_offline_is_left_out_and_a_directory_that_is_gone_is_an_error(asking: Asking) -> None:
    asking.broker.topics.get("a").partitions[1].failure = LogStorageError("the disk fails")
    assert set(sizes(log_dir(asking, None))) == {("a", 0), ("b", 0), ("b", 1)}
    folder = Path(asking.broker.topics.directory)
    folder.rename(folder.with_name("away"))
    found = log_dir(asking, None)
    folder.with_name("away").rename(folder)
    assert (found["error_code"], found["topics"], found["total_bytes"]) == (ErrorCode.KAFKA_STORAGE_ERROR, [], -1)


# --- replicas ---------------------------------------------------------------------------------------


def test_nobody_is_elected_for_a_partition_that_is_offline(asking: Asking) -> None:
    asking.broker.topics.get("a").partitions[1].failure = LogStorageError("the disk fails")
    no_leader = {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    for kind, code in no_leader.items():
        asked = [{"topic": "a", "partitions": [0, 1]}]
        found = asking.ask(ApiKey.ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": asked})
        [topic] = found["replica_election_results"]
        assert [one["error_code"] for one in topic["partition_result"]] == [ErrorCode.ELECTION_NOT_NEEDED, code]
        found = asking.ask(ApiKey.ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": None})
        told = {
            topic["topic"]: [(one["partition_id"], one["error_code"]) for one in topic["partition_result"]]
            for topic in found["replica_election_results"]
        }
        assert told == {"a": [(1, code)], "b": []}


@pytest.mark.parametrize("allowed", [True, False])
def test_kafka_4s_version_of_a_reassignment_is_answered_in_kind(asking: Asking, allowed: bool) -> None:
    partitions = [{"partition_index": 0, "replicas": [1]}, {"partition_index": 1, "replicas": [1, 2]}]
    body = {"allow_replication_factor_change": allowed, "topics": [{"name": "a", "partitions": partitions}]}
    found = asking.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, body)
    assert found["allow_replication_factor_change"] is allowed
    codes = [one["error_code"] for one in found["responses"][0]["partitions"]]
    assert codes == [0, ErrorCode.INVALID_REPLICA_ASSIGNMENT]


# --- producers and transactions ---------------------------------------------------------------------


def test_an_open_transaction_of_a_real_broker_is_told_with_its_producer(tmp_path: Path) -> None:
    shutil.copytree(OPEN, tmp_path / "txn-open-0")
    with Asking(Broker(tmp_path, {"log.retention.ms": -1}, clock=lambda: NOW)) as asking:
        body = {"topics": [{"name": "txn-open", "partition_indexes": [0]}]}
        [row] = asking.ask(ApiKey.DESCRIBE_PRODUCERS, 0, body)["topics"][0]["partitions"]
        starts = sorted(one["current_txn_start_offset"] for one in row["active_producers"])
        assert starts[-1] == asking.broker.topics.get("txn-open").partitions[0].log.last_stable_offset == 18
        assert starts[:-1] == [-1] * (len(starts) - 1) != []
        ended = [one for one in row["active_producers"] if one["coordinator_epoch"] >= 0]
        assert ended != []
        found = asking.ask(ApiKey.LIST_TRANSACTIONS, 2, {"transactional_id_pattern": ".*"})
        assert (found["error_code"], found["transaction_states"]) == (0, [])


def test_many_questions_about_one_partitions_producers_have_one_answer(asking: Asking) -> None:
    partition = asking.broker.topics.get("a").partitions[0]
    for producer in range(50):
        partition.append(kts.encode({"value": [b"v"]}, producer_id=producer, producer_epoch=0, base_sequence=0))
    one = {"name": "a", "partition_indexes": [0, 0, 1] * 1000}
    found = asking.ask(
        ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [one] * 3 + [{"name": "", "partition_indexes": [0] * 9}]}
    )
    told = [(topic["name"], [each["partition_index"] for each in topic["partitions"]]) for topic in found["topics"]]
    assert told == [("a", [0, 1]), ("a", []), ("a", []), ("", [0])]
    assert sorted(each["producer_id"] for each in found["topics"][0]["partitions"][0]["active_producers"]) == [
        *range(50)
    ]


# --- ACLs and the quorum ----------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["pattern_type_filter", "resource_type_filter", "operation", "permission_type"])
def test_a_question_about_unknown_acls_closes_the_connection_as_kafka_does(asking: Asking, field: str) -> None:
    known = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3}
    known |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    for version in range(4):
        body = {**known, field: 0}
        if version == 0 and field == "pattern_type_filter":
            assert asking.ask(ApiKey.DESCRIBE_ACLS, version, body)["error_code"] == ErrorCode.SECURITY_DISABLED
            continue
        for api, asked in ((ApiKey.DESCRIBE_ACLS, body), (ApiKey.DELETE_ACLS, {"filters": [known, body]})):
            with pytest.raises(ConnectionClose, match=field):
                asking.ask(api, version, asked)


def test_there_is_no_quorum_and_clients_are_told_so(asking: Asking) -> None:
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    found = asking.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": asked})
    assert (found["error_code"], found["topics"]) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert "no metadata quorum" in found["error_message"]


# --- settings ---------------------------------------------------------------------------------------


def broker_settings(asking: Asking, *keys: str, name: str = "1") -> dict[str, Any]:
    asked = {"resource_type": 4, "resource_name": name, "configuration_keys": list(keys) or None}
    body = {"resources": [asked], "include_synonyms": True, "include_documentation": True}
    [found] = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, body)["results"]
    return {one["name"]: one for one in found["configs"]}


def test_passwords_and_what_nobody_knows_are_never_told(tmp_path: Path) -> None:
    given = {"ssl.keystore.password": "hunter2", "confluent.license": "hunter3", "sasl.jaas.config": "hunter4"}
    with Asking(Broker(tmp_path, given)) as asking:
        found = broker_settings(asking)
        assert "hunter" not in str(found)
        for name in given:
            assert (found[name]["value"], found[name]["is_sensitive"]) == (None, True)
            assert [one["value"] for one in found[name]["synonyms"]] == [None]
        assert found["confluent.license"]["documentation"] is None


def test_where_it_is_and_listens_is_told_as_it_is(tmp_path: Path) -> None:
    given = {"log.dirs": "/nowhere", "listeners": "PLAINTEXT://:9092"}
    with Broker(tmp_path, given) as broker, ServerThread(broker, "localhost") as server:
        port = server.address[1]
        body = {"resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]}
        with RawClient(("127.0.0.1", port)) as client:
            found = {
                one["name"]: one["value"]
                for one in client.ask(ApiKey.DESCRIBE_CONFIGS, 4, body)["results"][0]["configs"]
            }
        assert found["log.dirs"] == str(tmp_path)
        assert found["listeners"] == found["advertised.listeners"] == f"PLAINTEXT://localhost:{port}"


def test_a_name_that_it_listens_on_is_the_name_that_clients_are_told(tmp_path: Path) -> None:
    for number, (host, reached) in enumerate(
        [("localhost", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("0.0.0.0", "127.0.0.3")]
    ):
        with Broker(tmp_path / str(number)) as broker, ServerThread(broker, host, insecure=True) as server:
            port = server.address[1]
            with RawClient((reached, port)) as client:
                [node] = client.ask(ApiKey.METADATA, 1, {"topics": []})["brokers"]
                coordinator = client.ask(ApiKey.FIND_COORDINATOR, 0, {"key": "g"})
        told = reached if host == "0.0.0.0" else host
        assert (node["host"], node["port"]) == (coordinator["host"], coordinator["port"]) == (told, port)


def test_a_node_has_one_name_so_that_its_settings_are_told_once(asking: Asking) -> None:
    names = ["1", *("0" * count + "1" for count in range(1, 9)), "+1"]
    resources = [{"resource_type": 4, "resource_name": name, "configuration_keys": None} for name in names]
    told = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources * 3})["results"]
    assert [one["error_code"] for one in told] == [0] + [ErrorCode.INVALID_REQUEST] * 9
    assert [one["resource_name"] for one in told if one["configs"]] == ["1"]


def test_the_cleaners_settings_stay_over_a_restart_and_change_no_log(tmp_path: Path) -> None:
    for start in range(2):
        with Asking(Broker(tmp_path)) as asking:
            if not start:
                topic = asking.broker.topics.create("a")
                for name, level in (("1", "7"), ("", "8")):
                    config = {"name": "log.cleaner.backoff.ms", "value": level, "config_operation": 0}
                    resource = {"resource_type": 4, "resource_name": name, "configs": [config]}
                    body = {"resources": [resource]}
                    answer = asking.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)["responses"][0]
                    assert answer["error_code"] == 0
            topic = asking.broker.topics.get("a")
            assert topic.config == asking.broker.config.log_config({})
            [one] = broker_settings(asking, "log.cleaner.backoff.ms").values()
            assert (one["value"], one["read_only"]) == ("7", False)
            assert [(each["value"], each["source"]) for each in one["synonyms"]] == [("7", 2), ("8", 3), ("15000", 5)]
            assert list(broker_settings(asking, name="")) == ["log.cleaner.backoff.ms"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"num.io.threads": "many"},
            "num.io.threads: expected an integer from -2147483648 to 2147483647, found 'many'",
        ),
        ({"auto.leader.rebalance.enable": "yes"}, "expected true or false"),
        ({"log.cleaner.io.buffer.load.factor": "1_0"}, "expected a number"),
        ({"log.cleaner.threads": 0}, "log.cleaner.threads: expected 1 to 1"),
        (
            {"log.cleaner.threads": 200},
            "log.cleaner.dedupe.buffer.size: expected more than 1048576 bytes for each of 200",
        ),
        ({"log.cleaner.backoff.msec": 1}, None),
    ],
)
def test_a_setting_without_effect_must_still_be_one(given: dict[str, Any], told: str | None) -> None:
    if told is None:  # of another release, or somebody's own
        assert BrokerConfig.of(given).static == {name: str(value) for name, value in given.items()}
    else:
        with pytest.raises(ValueError, match=told):
            BrokerConfig.of(given)


def test_no_setting_has_an_effect_and_none(tmp_path: Path) -> None:
    assert not INERT.keys() & SETTINGS.keys()
    assert len(CLEANER) == 6
    defaults = {name: one.default for name, one in INERT.items() if one.default is not None}
    assert BrokerConfig.of(defaults).static == defaults


def test_long_answers_of_three_levels_are_encoded_in_a_thread(asking: Asking) -> None:
    """The loop is for others meanwhile."""
    here: list[str] = []

    async def ask(api: ApiKey, body: dict[str, Any]) -> None:
        answering = Answering(asking.broker)
        inside = answering._in_thread

        async def watched(work: Any, *arguments: Any) -> Any:
            here.append(work.__name__)
            return await inside(work, *arguments)

        answering._in_thread = watched  # type: ignore[method-assign]
        frame = wire.encode_request(api, 0, 1, "c", body)
        await answering(memoryview(frame)[4:], Peer())
        answering.close()

    asking.runner.run(ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}))
    asking.runner.run(ask(ApiKey.DESCRIBE_PRODUCERS, {"topics": []}))
    asking.runner.run(ask(ApiKey.LIST_TRANSACTIONS, {}))
    assert here == ["encode_response"] * 2
