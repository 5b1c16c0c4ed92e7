"""Kafka's own command line tools against a served directory."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from support.kafka.java_tools import TOOLS, JavaTools
from support.processes.cli_runs import run

import kts
from kts.broker.broker import Broker
from kts.server.server import ServerThread

TOPICS, CONFIGS, OFFSETS = TOOLS + "TopicCommand", "kafka.admin.ConfigCommand", TOOLS + "GetOffsetShell"
GROUPS = TOOLS + "consumer.group.ConsumerGroupCommand"
T = 1_700_000_000_000


def fields(said: str, start: str) -> list[list[str]]:
    """The words of the lines that begin so."""
    return [words for line in said.splitlines() if (words := line.split()) and words[0] == start]


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_kafkas_tools_work_as_with_a_real_broker(tmp_path: Path, version: str) -> None:
    with Broker(tmp_path / "data") as broker:
        thread = ServerThread(broker)
        host, port = thread.start()
        try:
            with JavaTools(version, f"{host}:{port}", tmp_path) as tools:
                about_topics(tools, broker)
                about_configs(tools)
                about_offsets(tools, broker, tmp_path)
                about_groups(tools, broker, tmp_path)
                about_the_broker(tools, broker)
                about_log_dirs_and_producers(tools, broker)
                about_replicas(tools, tmp_path)
                about_what_there_is_not(tools)
        finally:
            thread.stop()


def about_topics(tools: JavaTools, broker: Broker) -> None:
    assert "Created topic a." in tools.run(TOPICS, "--create", "--topic", "a", "--partitions", 2)
    code, said = tools.ask(TOPICS, "--create", "--topic", "a")
    assert code == 1
    assert "Topic 'a' already exists." in said
    for wrong in (["--config", "nonsense=1"], ["--replication-factor", "3"], ["--partitions", "0"]):
        assert tools.ask(TOPICS, "--create", "--topic", "b", *wrong)[0] == 1
    tools.run(TOPICS, "--alter", "--topic", "a", "--partitions", 3)
    tools.run(TOPICS, "--create", "--topic", "b", "--config", "retention.ms=1000000")
    said = tools.run(TOPICS, "--describe", "--topic", "a")
    assert "PartitionCount: 3\tReplicationFactor: 1" in said
    assert len(re.findall(r"Partition: \d\s+Leader: 1\s+Replicas: 1\s+Isr: 1", said)) == 3
    assert "Configs: retention.ms=1000000" in tools.run(TOPICS, "--describe", "--topics-with-overrides")
    tools.run(TOPICS, "--delete", "--topic", "b")
    assert tools.run(TOPICS, "--list").split() == ["a"]
    assert broker.topics.names() == ["a"]


def about_configs(tools: JavaTools) -> None:
    topic = ["--entity-type", "topics", "--entity-name", "a"]
    tools.run(CONFIGS, *topic, "--alter", "--add-config", "retention.ms=5000,message.timestamp.type=LogAppendTime")
    tools.run(CONFIGS, *topic, "--alter", "--delete-config", "retention.ms")
    said = tools.run(CONFIGS, *topic, "--describe")
    assert "DYNAMIC_TOPIC_CONFIG:message.timestamp.type=LogAppendTime" in said
    assert "retention.ms" not in said
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in tools.run(CONFIGS, *topic, "--describe", "--all")
    tools.run(CONFIGS, *topic, "--alter", "--delete-config", "message.timestamp.type")
    code, said = tools.ask(CONFIGS, *topic, "--alter", "--add-config", "retention.ms=x")
    assert (code, "InvalidConfigurationException" in said) == (1, True)
    node = ["--entity-type", "brokers", "--entity-name", "1"]
    tools.run(CONFIGS, *node, "--alter", "--add-config", "log.retention.ms=999999")
    assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=999999" in tools.run(CONFIGS, *node, "--describe")
    tools.run(CONFIGS, *node, "--alter", "--delete-config", "log.retention.ms")
    tools.run(CONFIGS, *node, "--alter", "--add-config", "log.cleaner.threads=2")
    all_of_them = tools.run(CONFIGS, *node, "--describe", "--all")
    assert (
        "  log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2" in all_of_them
    )
    assert "  ssl.key.password=null sensitive=true" in all_of_them
    assert f"  listeners=PLAINTEXT://{tools.bootstrap} " in all_of_them
    assert len(all_of_them.splitlines()) > 310
    tools.run(CONFIGS, *node, "--alter", "--delete-config", "log.cleaner.threads")


def about_offsets(tools: JavaTools, broker: Broker, folder: Path) -> None:
    topic = broker.topics.get("a")
    assert topic is not None
    times = pa.array([T + number for number in (0, 50, 20)], pa.int64())
    topic.partitions[1].append(kts.encode({"timestamp": times, "value": pa.array([b"v"] * 3, pa.binary())}))
    for asked, expected in (
        ("latest", "a:0:0 a:1:3 a:2:0"),
        ("earliest", "a:0:0 a:1:0 a:2:0"),
        ("max-timestamp", "a:1:1"),
        (str(T + 1), "a:1:1"),
    ):
        assert tools.run(OFFSETS, "--topic", "a", "--time", asked).split() == expected.split()
    asked_for = folder / "delete.json"
    partitions = [{"topic": "a", "partition": index, "offset": offset} for index, offset in ((0, 0), (1, 2), (2, 9))]
    asked_for.write_text(json.dumps({"partitions": partitions, "version": 1}), encoding="utf-8")
    said = tools.run(TOOLS + "DeleteRecordsCommand", "--offset-json-file", asked_for)
    assert "partition: a-1\tlow_watermark: 2" in said
    assert "partition: a-2\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException" in said
    assert tools.run(OFFSETS, "--topic", "a", "--time", "earliest").split()[1] == "a:1:2"


def about_log_dirs_and_producers(tools: JavaTools, broker: Broker) -> None:
    topic = broker.topics.get("a")
    assert topic is not None
    rows = {"timestamp": [T], "value": [b"v"]}
    topic.partitions[2].append(kts.encode(rows, producer_id=31, producer_epoch=4, base_sequence=0))
    said = tools.run(TOOLS + "LogDirsCommand", "--describe", "--topic-list", "a,none").splitlines()
    [told] = json.loads(said[-1])["brokers"]
    [found] = told["logDirs"]
    assert (told["broker"], found["logDir"], found["error"]) == (1, broker.topics.directory, None)
    sizes = {each["partition"]: each["size"] for each in found["partitions"]}
    assert sizes == {f"a-{index}": one.log.size_bytes for index, one in topic.partitions.items()}
    transactions = TOOLS + "TransactionsCommand"
    said = tools.run(transactions, "describe-producers", "--topic", "a", "--partition", 2)
    assert fields(said, "31") == [["31", "4", "-1", "0", str(T), "None"]]
    for asked in (["list"], ["find-hanging", "--broker-id", 1]):
        assert len(tools.run(transactions, *asked).strip().splitlines()) == 1  # a head and nothing below it
    code, said = tools.ask(transactions, "describe", "--transactional-id", "x")
    assert (code, "the ID could not be found" in said) == (1, True)


def about_replicas(tools: JavaTools, folder: Path) -> None:
    reassign, asked_for = TOOLS + "reassign.ReassignPartitionsCommand", folder / "reassign.json"
    asked = ["--reassignment-json-file", asked_for]
    partitions = [{"topic": "a", "partition": index, "replicas": [1]} for index in range(3)]
    asked_for.write_text(json.dumps({"partitions": partitions, "version": 1}), encoding="utf-8")
    assert "No partition reassignments found." in tools.run(reassign, "--list")
    assert "Successfully started partition reassignments for a-0,a-1,a-2" in tools.run(reassign, *asked, "--execute")
    assert len(re.findall("Reassignment of partition a-. is completed.", tools.run(reassign, *asked, "--verify"))) == 3
    assert "None of the specified partition reassignments are active." in tools.run(reassign, *asked, "--cancel")
    elect = TOOLS + "LeaderElectionCommand"
    assert not tools.run(elect, "--election-type", "preferred", "--all-topic-partitions").strip()
    said = tools.run(elect, "--election-type", "unclean", "--topic", "a", "--partition", 1)
    assert "Valid replica already elected for partitions a-1" in said
    code, said = tools.ask(elect, "--election-type", "preferred", "--topic", "none", "--partition", 0)
    assert (code, "UnknownTopicOrPartitionException" in said) == (1, True)


def about_what_there_is_not(tools: JavaTools) -> None:
    acls = ("kafka.admin." if tools.version.startswith("3") else TOOLS) + "AclCommand"
    acl = ["--allow-principal", "User:a", "--operation", "Read", "--topic", "a"]
    for asked in (["--list"], ["--add", *acl], ["--remove", "--force", *acl]):
        code, said = tools.ask(acls, *asked)
        assert (code, "SecurityDisabledException" in said) == (1, True)
    code, said = tools.ask(TOOLS + "MetadataQuorumCommand", "describe", "--status")
    assert code == 1
    assert "UnsupportedVersionException: this broker has no metadata quorum" in said


def about_groups(tools: JavaTools, broker: Broker, folder: Path) -> None:
    perf = ["--topic", "a", "--group", "g", "--timeout", "120000"]
    count = ["--messages", "1"] if tools.version.startswith("3") else ["--num-records", "1"]
    tools.run(TOOLS + "ConsumerPerformance", *perf, *count)
    assert fields(tools.run(GROUPS, "--list", "--state"), "g") == [["g", "Empty"]]
    group = ["--group", "g"]
    described = fields(tools.run(GROUPS, "--describe", *group), "g")
    assert sorted(each[:6] for each in described) == [
        ["g", "a", "0", "0", "0", "0"],
        ["g", "a", "1", "3", "3", "0"],
        ["g", "a", "2", "0", "0", "0"],
    ]
    state = fields(tools.run(GROUPS, "--describe", *group, "--state"), "g")
    assert state[0][-2:] == ["Empty", "0"]
    reset = [*group, "--reset-offsets", "--topic", "a"]
    tools.run(GROUPS, *reset, "--to-earliest", "--dry-run")
    assert broker.coordinator.fetch("g", None)["a", 1].offset == 3
    tools.run(GROUPS, *reset, "--to-earliest", "--execute")
    assert broker.coordinator.fetch("g", None)["a", 1].offset == 2
    late = ["--to-datetime", "2033-01-01T00:00:00.000"]
    tools.run(GROUPS, *group, "--reset-offsets", "--topic", "a:1", *late, "--execute")
    assert broker.coordinator.fetch("g", None)["a", 1].offset == 3
    tools.run(GROUPS, *group, "--delete-offsets", "--topic", "a:0")
    assert sorted(broker.coordinator.fetch("g", None)) == [("a", 1), ("a", 2)]
    exported = folder / "exported.csv"
    tools.run(GROUPS, "--group", "h", "--reset-offsets", "--topic", "a:1", "--to-earliest", "--execute")
    for names in (["g"], ["g", "h"]):  # the lines of several groups begin with the group
        wanted = [word for name in names for word in ("--group", name)]
        exported.write_text(run("groups", folder / "data", "--export", *wanted).stdout, encoding="utf-8")
        before = broker.coordinator.fetch("g", None)
        assert "was successful" in tools.run(GROUPS, "--delete", *group)
        tools.run(GROUPS, *wanted, "--reset-offsets", "--from-file", exported, "--execute")
        after = broker.coordinator.fetch("g", None)
        assert {place: each.offset for place, each in after.items()} == {("a", 1): 3, ("a", 2): before["a", 2].offset}
        assert broker.coordinator.fetch("h", None)["a", 1].offset == 2
    assert "was successful" in tools.run(GROUPS, "--delete", *group, "--group", "h")
    assert "GroupIdNotFoundException" in tools.ask(GROUPS, "--delete", *group)[1]
    assert not tools.run(GROUPS, "--list").strip()


def about_the_broker(tools: JavaTools, broker: Broker) -> None:
    versions = ("kafka.admin." if tools.version.startswith("3") else TOOLS) + "BrokerApiVersionsCommand"
    said = tools.run(versions)
    assert "Produce(0): 0 to 13" in said
    assert "JoinGroup(11): 0 to 9" in said
    cluster = ["cluster-id", "--bootstrap-server", tools.bootstrap]
    assert broker.cluster_id in tools.run(TOOLS + "ClusterTool", *cluster, bootstrap=False)
    perf = ["--topic", "a", "--num-records", "1", "--record-size", "1", "--throughput", "-1"]
    perf += ["--producer-props", f"bootstrap.servers={tools.bootstrap}", "--transactional-id", "x"]
    perf += ["--transaction-duration-ms", "1000"]
    code, said = tools.ask(TOOLS + "ProducerPerformance", *perf, bootstrap=False)  # refused at once, not after a minute
    assert code == 1
    assert "TransactionalIdAuthorizationException" in said
