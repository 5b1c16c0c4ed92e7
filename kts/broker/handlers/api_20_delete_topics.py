"""DeleteTopics (key 20), versions 0 to 6.

Deletes topics and their committed offsets.

Versions::

    1: throttle time, always 0
    2: as before
    3: TOPIC_DELETION_DISABLED, which earlier versions get as INVALID_REQUEST
    4: flexible
    5: error messages (KIP-599)
    6: topics by name or id (KIP-516)

Source: ControllerApis, ReplicationControlManager (3.9).
"""

from __future__ import annotations

from collections import Counter

from kts.broker.broker import Broker
from kts.broker.codes import DONE, ErrorCode, failed, refusal
from kts.broker.request import Body, Request
from kts.broker.threads import in_thread
from kts.broker.topics import Topics
from kts.model import ZERO_UUID


async def handle(broker: Broker, request: Request) -> Body:
    names: set[str] = set()
    answers = await in_thread(_delete_topics, broker.topics, request, names)
    if names:
        broker.coordinator.topics_deleted(sorted(names))
    return {"responses": answers}


def _delete_topics(topics: Topics, request: Request, deleted: set[str]) -> list[Body]:
    body = request.body
    asked = body.get("topics") or [{"name": name, "topic_id": ZERO_UUID} for name in body.get("topic_names") or ()]
    if not topics.config.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if request.version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        return [_deleted(one["name"], one["topic_id"], refusal(code, "Topic deletion is disabled.")) for one in asked]
    answers, chosen = [], dict[bytes, str]()
    names = Counter(one["name"] for one in asked if one["topic_id"] == ZERO_UUID and one["name"] is not None)
    ids = Counter(bytes(one["topic_id"]) for one in asked if one["name"] is None and one["topic_id"] != ZERO_UUID)
    invalid = ErrorCode.INVALID_REQUEST
    for one in asked:
        if one["name"] is None and one["topic_id"] == ZERO_UUID:
            result = refusal(invalid, "Neither topic name nor id were specified.")
            answers.append(_deleted(None, ZERO_UUID, result))
        elif one["name"] is not None and one["topic_id"] != ZERO_UUID:
            result = refusal(invalid, "You may not specify both topic name and topic id.")
            answers.append(_deleted(one["name"], one["topic_id"], result))
    for topic_id, times in ids.items():
        topic = topics.by_id(topic_id)
        if times > 1:
            answers.append(_deleted(None, topic_id, refusal(invalid, "Duplicate topic id.")))
        elif topic is None:
            answers.append(_deleted(None, topic_id, refusal(ErrorCode.UNKNOWN_TOPIC_ID)))
        else:
            chosen[topic_id] = topic.name
    for name, times in names.items():
        topic = topics.get(name)
        if times > 1:
            answers.append(_deleted(name, ZERO_UUID, refusal(invalid, "Duplicate topic name.")))
        elif topic is None:
            answers.append(_deleted(name, ZERO_UUID, refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        elif topic.topic_id in ids:
            chosen.pop(topic.topic_id, None)
            result = refusal(invalid, "The provided topic name maps to an ID that was already supplied.")
            answers.append(_deleted(name, topic.topic_id, result))
        else:
            chosen[topic.topic_id] = name
    for (topic_id, name), error in zip(chosen.items(), topics.delete_all(chosen.values()), strict=True):
        if error is not None:
            answers.append(_deleted(name, topic_id, failed(error)))
        else:
            deleted.add(name)
            answers.append(_deleted(name, topic_id, DONE))
    return answers


def _deleted(name: str | None, topic_id: bytes, result: Body) -> Body:
    return {"name": name, "topic_id": topic_id, **result}
