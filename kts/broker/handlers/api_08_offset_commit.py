"""OffsetCommit (key 8), versions 0 to 10.

Commits offsets of existing partitions.

Versions::

    0: for a group without members; Kafka stores these offsets in ZooKeeper, kts with the others
    1: generation and member; a commit timestamp
    2: a retention time for all offsets, and no commit timestamp
    3: throttle time, always 0
    4: as before
    5: no retention time (KIP-211)
    6: leader epochs (KIP-320)
    7: group instance id (KIP-345)
    8: flexible
    9: a code for a group that does not exist, which 4.3 uses (KIP-848)
    10: topic ids instead of names (KIP-848)

Source: KafkaApis.handleOffsetCommitRequest, GroupCoordinatorAdapter (3.9); topic ids: the schemas of 4.3.
"""

from __future__ import annotations

from kts.arguments import INT64_MAX
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.leaders import find_topic
from kts.broker.request import Body, Request
from kts.coordinator_records.groups import Committed

TOPIC_IDS_FROM, TELLS_GROUPS_FROM = 10, 9


async def handle(broker: Broker, request: Request) -> Body:
    body, by_id = request.body, request.version >= TOPIC_IDS_FROM
    now = broker.clock()
    kept = body["retention_time_ms"]
    expire_ms = None if kept == -1 else max(min(now + kept, INT64_MAX), 0)
    offsets: dict[tuple[str, int], Committed] = {}
    answers: list[Body] = []
    places: list[tuple[Body, tuple[str, int]]] = []
    for asked in body["topics"]:
        topic, error = find_topic(broker.topics, asked, by_id)
        entries = []
        for each in asked["partitions"]:
            index = each["partition_index"]
            entries.append({"partition_index": index, "error_code": error})
            if topic is None:
                continue
            if index not in topic.partitions:
                entries[-1]["error_code"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            commit_ms = now if each["commit_timestamp"] == -1 else each["commit_timestamp"]
            metadata = each["committed_metadata"] or ""
            about = (each["committed_offset"], each["committed_leader_epoch"], metadata, commit_ms, expire_ms)
            offsets[topic.name, index] = Committed(*about)
            places.append((entries[-1], (topic.name, index)))
        answers.append({"name": asked["name"], "topic_id": asked["topic_id"], "partitions": entries})
    if offsets:
        who = (body["group_id"], body["member_id"], body["group_instance_id"], body["generation_id_or_member_epoch"])
        errors = broker.coordinator.commit(*who, offsets, tells_groups=request.version >= TELLS_GROUPS_FROM)
        for entry, place in places:
            entry["error_code"] = errors[place]
    return {"topics": answers}
