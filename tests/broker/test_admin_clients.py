"""The admin clients of kafka-python and confluent-kafka, about the cluster: what a broker of one has to say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kts
from kts.broker.broker import Broker
from kts.server.server import ServerThread

T = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that listens on a name, and has records of a producer in a-0."""
    with Broker(tmp_path_factory.mktemp("served")) as found, ServerThread(found, "localhost"):
        topic = found.topics.create("a", 2)
        rows = {"timestamp": [T], "value": [b"v"]}
        topic.partitions[0].append(kts.encode(rows, producer_id=31, producer_epoch=4, base_sequence=0))
        yield found


def bootstrap(broker: Broker) -> str:
    assert broker.listener is not None
    return "{}:{}".format(*broker.listener)


def test_kafka_python_is_told_what_there_is_and_what_not(broker: Broker) -> None:
    from kafka import TopicPartition, admin
    from kafka.errors import (
        InvalidReplicationAssignmentError,
        SecurityDisabledError,
        TransactionalIdNotFoundError,
        UnsupportedVersionError,
    )

    client = admin.KafkaAdminClient(bootstrap_servers=bootstrap(broker))
    try:
        [told] = client.describe_log_dirs()
        [found] = told["log_dirs"]
        topic = broker.topics.get("a")
        assert topic is not None
        assert (told["broker"], found["log_dir"]) == (broker.node_id, broker.topics.directory)
        sizes = {each["partition_index"]: each["partition_size"] for each in found["topics"][0]["partitions"]}
        assert sizes == {index: one.log.size_bytes for index, one in topic.partitions.items()}
        assert found["usable_bytes"] < found["total_bytes"]
        first = TopicPartition("a", 0)
        [producer] = client.describe_producers([first])[first].active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (31, 4, 0)
        assert (producer.last_timestamp, producer.current_transaction_start_offset) == (T, -1)
        assert client.elect_leaders(0, {"a": [0, 1]}).error_code == 0
        assert client.list_partition_reassignments() == {}
        assert client.alter_partition_reassignments({first: [broker.node_id]}) == {first: None}
        assert client.alter_partition_reassignments({first: [7]}) == {first: InvalidReplicationAssignmentError}
        assert client.list_transactions() == {broker.node_id: []}
        assert client.find_hanging_transactions() == []
        with pytest.raises(TransactionalIdNotFoundError):
            client.describe_transactions(["x"])
        with pytest.raises(UnsupportedVersionError, match="no metadata quorum"):
            client.describe_metadata_quorum()
        pattern = admin.ResourcePattern(admin.ResourceType.TOPIC, "a")
        rights = (admin.ACLOperation.READ, admin.ACLPermissionType.ALLOW)
        acl = admin.ACL("User:a", "*", *rights, resource_pattern=pattern)
        with pytest.raises(SecurityDisabledError):
            client.describe_acls(acl)
        assert client.create_acls([acl])["failed"] == [SecurityDisabledError]
        assert client.delete_acls([acl])[0][2] is SecurityDisabledError
    finally:
        client.close()


def test_librdkafka_is_told_what_there_is_and_what_not(broker: Broker) -> None:
    from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
    from confluent_kafka import admin as confluent

    client = confluent.AdminClient({"bootstrap.servers": bootstrap(broker), "log_level": 0})
    elected = client.elect_leaders(ElectionType.PREFERRED, [TopicPartition("a", 0), TopicPartition("a", 9)]).result(30)
    codes = {each.partition: error.code() for each, error in elected.items()}
    assert codes == {0: KafkaError.ELECTION_NOT_NEEDED, 9: KafkaError.UNKNOWN_TOPIC_OR_PART}
    acl = confluent.AclBinding(
        confluent.ResourceType.TOPIC,
        "a",
        confluent.ResourcePatternType.LITERAL,
        "User:a",
        "*",
        confluent.AclOperation.READ,
        confluent.AclPermissionType.ALLOW,
    )
    wanted = confluent.AclBindingFilter(
        confluent.ResourceType.ANY,
        None,
        confluent.ResourcePatternType.ANY,
        None,
        None,
        confluent.AclOperation.ANY,
        confluent.AclPermissionType.ANY,
    )
    assert client.describe_acls(wanted).result(30) == []  # of a refusal it tells nothing, with a real broker neither
    futures = [client.create_acls([acl])[acl], client.delete_acls([wanted])[wanted]]
    for future in futures:
        with pytest.raises(KafkaException) as caught:
            future.result(30)
        assert caught.value.args[0].code() == KafkaError.SECURITY_DISABLED
    [node] = client.describe_cluster().result(30).nodes
    assert (node.host, node.port) == broker.listener
    resource = confluent.ConfigResource(confluent.ResourceType.BROKER, str(broker.node_id))
    found = client.describe_configs([resource])[resource].result(30)
    assert found["log.cleaner.threads"].value == "1"
    assert found["ssl.key.password"].is_sensitive
