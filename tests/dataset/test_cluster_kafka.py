"""``kts.cluster`` beside real brokers, and beside Kafka's image over histories that no broker would make."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.clusters import LOG, VERSIONS, check_described, images_of, of_image, of_state, random_data, records_of
from support.golden import scaled
from support.kafka.brokers import write_properties
from support.kafka.cluster_play import CLUSTER, format_standalone, image, play, values
from support.kafka.jvm import require_java

import kts
from kts.cluster_records.columns import decode_records
from kts.cluster_records.layout import number_of, read_record, record_types, write_record
from kts.cluster_records.secrets import SECRETS

pytestmark = pytest.mark.java
FEATURES = {"3.9.2": 21, "4.3.1": 30}  # metadata.version
Row = dict[str, Any]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_brokers_disk_says_what_it_said_itself(version: str, tmp_path: Path) -> None:
    """Ten seconds a release: the broker, its Admin client, and its classes over its log and its snapshots."""
    require_java()
    made = tmp_path / "made"
    (tmp_path / "broker").mkdir()
    play(version, tmp_path / "broker", made)
    check_described(made)
    for offset, expected_state in images_of(made).items():
        assert of_state(kts.cluster(made, as_of=offset)) == of_image(expected_state)
    for file, expected in records_of(made).items():
        path = made / (file if file == "bootstrap.checkpoint" else f"{LOG}/{file}")
        rows = kts.scan(path, decoder="metadata", columns=["offset", "fields"]).read_all().to_pylist()
        assert len(rows) == len(expected)
        for row, one in zip(rows, expected, strict=True):
            assert row["offset"] == one["offset"]
            if "[hidden]" not in row["fields"]:
                assert json.loads(row["fields"]) == one["data"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_directory_that_was_only_formatted_says_features_and_voters(version: str, tmp_path: Path) -> None:
    require_java()
    settings = {"process.roles": "broker,controller", "node.id": 7, "controller.listener.names": "CONTROLLER"}
    settings |= {"listeners": "PLAINTEXT://:1,CONTROLLER://localhost:2", "log.dirs": tmp_path / "data"}
    given = write_properties(tmp_path / "server.properties", settings | {"controller.quorum.voters": "1@localhost:2"})
    format_standalone(version, given)
    with pytest.warns(kts.KtsWarning, match="it is empty, as the directory was formatted"):
        state = kts.cluster(tmp_path / "data")
    assert (state.cluster_id, state.node_id) == (CLUSTER, 7)
    assert (state.features["metadata.version"], state.features["kraft.version"]) == (FEATURES[version], 1)
    assert state.voters == {7: (7, state.directory_id, (("CONTROLLER", "localhost", 2, None),))}


@pytest.mark.parametrize("version", VERSIONS)
def test_random_records_of_every_type_are_read_as_kafka_writes_them(version: str, seed: int) -> None:
    require_java()
    number = 0
    for made in values(version, random.Random(seed), scaled(2, 40)):
        value = base64.b64decode(made["bytes"])
        found = read_record(value)
        assert write_record(found.name or "", found.version, found.fields or {}) == value
        columns, refused = decode_records(["fields"], pa.array([value]))
        name = record_types()[made["apiKey"]].name
        fields = json.loads(columns["fields"][0].as_py())
        assert not refused
        if "[hidden]" not in fields.values():
            assert fields == made["data"]
        else:
            assert name in (*SECRETS, "Config")
        number += 1
    assert number >= (2 * 36 if version == "4.3.1" else 2 * 34)


def history(rng: random.Random, version: str) -> list[bytes]:
    """Records in an order that means something, with every type that a state is made of."""
    ids = [rng.randbytes(16) for _ in range(6)]
    topics: dict[bytes, set[int]] = {}
    brokers: dict[int, int] = {}
    tokens = ["a", "b"]
    level = FEATURES[version]
    made = [write_record("FeatureLevel", 0, {"name": "metadata.version", "featureLevel": level})]
    newest = {"RegisterBroker": 3, "BrokerRegistrationChange": 2} if version == "3.9.2" else {}

    def add(name: str, /, **fields: Any) -> None:
        of = record_types()[number_of(name)]
        made.append(write_record(name, newest.get(name, of.newest), fields))

    elr = version == "4.3.1"
    if elr:  # an image leaves these replicas out without the feature
        add("FeatureLevel", name="eligible.leader.replicas.version", featureLevel=1)

    def nodes() -> list[int]:
        return rng.sample(range(5), rng.randrange(4))

    def change(*choices: Any) -> Any:
        return rng.choice([None, *choices])

    for _ in range(scaled(120, 400)):
        topic = rng.choice(ids)
        broker = rng.randrange(3)
        match rng.randrange(19):
            case 0 if topic not in topics:
                topics[topic] = set()
                add("Topic", name=f"t{ids.index(topic)}", topicId=topic)
            case 1 if topic in topics and rng.random() < 0.5:
                del topics[topic]
                add("RemoveTopic", topicId=topic)
            case 2 | 3 if topic in topics:
                number = len(topics[topic])
                topics[topic].add(number)
                replicas = rng.sample(range(5), 3)
                extra = {name: nodes() for name in ("eligibleLeaderReplicas", "lastKnownElr") if elr}
                add(
                    "Partition", partitionId=number, topicId=topic, replicas=replicas, isr=replicas[:2],
                    leader=replicas[0], leaderEpoch=0, partitionEpoch=0,
                    directories=[rng.randbytes(16) for _ in replicas],
                    addingReplicas=nodes(), removingReplicas=nodes(), leaderRecoveryState=rng.randrange(2), **extra,
                )  # fmt: skip
            case 4 | 5 | 6 if topics.get(topic):
                replicas = rng.sample(range(5), 3)
                moved = rng.random() < 0.5
                extra = {"eligibleLeaderReplicas": change(nodes()), "lastKnownElr": change(nodes())}
                add(
                    "PartitionChange", partitionId=rng.choice(sorted(topics[topic])), topicId=topic,
                    isr=change(nodes()), leader=rng.choice([-2, -1, 0, 1]), replicas=replicas if moved else None,
                    directories=[rng.randbytes(16) for _ in replicas] if moved else None,
                    addingReplicas=change(nodes()), removingReplicas=change(nodes()),
                    leaderRecoveryState=rng.choice([-1, 0, 1]), **(extra if version == "4.3.1" else {}),
                )  # fmt: skip
            case 7 | 8:
                kind, name = rng.choice(
                    [(4, ""), (4, "1"), (16, "m"), *[(2, f"t{ids.index(each)}") for each in topics]]
                )
                value = rng.choice([None, "1", ""])
                add("Config", resourceType=kind, resourceName=name, name=rng.choice(["a", "retention.ms"]), value=value)
            case 9:
                entity = rng.choice([[("user", "a")], [("user", None), ("client-id", "b")], [("ip", None)]])
                add(
                    "ClientQuota", entity=[{"entityType": kind, "entityName": name} for kind, name in entity],
                    key=rng.choice(["producer_byte_rate", "consumer_byte_rate"]), value=rng.random(),
                    remove=rng.random() < 0.3,
                )  # fmt: skip
            case 10:
                brokers[broker] = len(made)
                given = {"name": "A", "host": "h", "port": rng.randrange(65536), "securityProtocol": 0}
                add(
                    "RegisterBroker", brokerId=broker, brokerEpoch=len(made), endPoints=[given],
                    fenced=rng.random() < 0.5,
                    rack=change("r1"), incarnationId=rng.randbytes(16), logDirs=[rng.randbytes(16)],
                    inControlledShutdown=rng.random() < 0.5,
                )  # fmt: skip
            case 11 | 12 if broker in brokers:
                extra = {"cordonedLogDirs": change([rng.randbytes(16)], [])} if version == "4.3.1" else {}
                add(
                    "BrokerRegistrationChange", brokerId=broker, brokerEpoch=brokers[broker],
                    fenced=rng.choice([-1, 0, 1]),
                    inControlledShutdown=rng.randrange(2), logDirs=change([rng.randbytes(16)]) or [], **extra,
                )  # fmt: skip
            case 13 if broker in brokers:
                name = rng.choice(["FenceBroker", "UnfenceBroker", "UnregisterBroker"])
                if name == "UnregisterBroker":
                    add(name, brokerId=broker, brokerEpoch=brokers.pop(broker))
                else:
                    add(name, id=broker, epoch=brokers[broker])
            case 14:
                user = {"name": rng.choice("xy"), "mechanism": rng.choice([1, 2])}
                if rng.random() < 0.7:
                    keys = {"salt": b"s", "storedKey": b"k" * 32, "serverKey": b"v" * 32}
                    add("UserScramCredential", **user, iterations=rng.randrange(4096, 9999), **keys)
                elif any(read_record(each).name == "UserScramCredential" for each in made):
                    add("RemoveUserScramCredential", **user)
            case 15:
                add("ProducerIds", brokerId=1, brokerEpoch=1, nextProducerId=1000 * len(made))
            case 16:
                data = random_data(rng, record_types()[number_of("DelegationToken")].fields, 0)
                token = rng.choice(tokens)
                data |= {"tokenId": token, "owner": "User:a", "requester": "User:a", "renewers": ["User:b"]}
                add("DelegationToken", **data)
            case 17 if version == "4.3.1":
                add("ClearElr", topicName=rng.choice(["", *[f"t{ids.index(each)}" for each in topics]]))
            case 18:
                add("BeginTransaction")
                add("FeatureLevel", name=rng.choice(["f", "g"]), featureLevel=rng.randrange(3))
                add(rng.choice(["EndTransaction", "AbortTransaction"]))
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_a_random_history_adds_up_to_kafkas_image(version: str, seed: int, tmp_path: Path) -> None:
    require_java()
    rng = random.Random(seed)
    for number in range(scaled(3, 40)):
        folder = tmp_path / str(number)
        made = history(rng, version)
        with kts.Log(folder / LOG) as log:
            for value in made:
                log.append_rows([{"timestamp": 1000 + log.log_end_offset, "value": value}])
        file = folder / LOG / f"{0:020}.log"
        for offset in [*sorted(rng.sample(range(len(made)), 10)), len(made) - 1]:
            found = of_state(kts.cluster(folder, as_of=offset))
            assert found == of_image(image(version, file, offset)), offset
