"""OffsetCommit, in every version."""

from __future__ import annotations

import pytest
from support.broker.asking import versions
from support.broker.group_asking import Body, ask, asked_topics, codes, told
from support.broker.group_play import T

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_commit(broker: Broker, version: int) -> None:
    async def story() -> None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        entries = [
            {"partition_index": 0, "committed_offset": 5, "committed_metadata": None},
            {"partition_index": 1, "committed_offset": 6, "committed_metadata": "x" * 4097},
            {"partition_index": 2, "committed_offset": 7, "committed_metadata": ""},
        ]
        if version >= 6:
            entries[0]["committed_leader_epoch"] = 3
        if version == 1:
            entries[0]["commit_timestamp"] = T - 1
        body: Body = {"group_id": "s", "topics": asked_topics(broker, version, t=entries, gone=entries[:1])}
        if 2 <= version <= 4:
            body["retention_time_ms"] = 1000
        found = await ask(broker, ApiKey.OFFSET_COMMIT, version, **body)
        expected = [[0, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [unknown]]
        assert codes(found["topics"]) == expected
        ((place, committed),) = broker.coordinator.fetch("s", None).items()
        assert place == ("t", 0)
        assert committed.offset == 5
        assert committed.leader_epoch == (3 if version >= 6 else -1)
        assert committed.commit_ms == (T - 1 if version == 1 else T)
        assert committed.expire_ms == (T + 1000 if 2 <= version <= 4 else None)
        only_unknown = {"topics": asked_topics(broker, version, gone=entries[:1])}
        assert codes((await ask(broker, ApiKey.OFFSET_COMMIT, version, **body | only_unknown))["topics"]) == [[unknown]]
        if version >= 1:
            body |= {"group_id": "nobody", "generation_id_or_member_epoch": 1, "member_id": "x"}
            found = await ask(broker, ApiKey.OFFSET_COMMIT, version, **body)
            assert codes(found["topics"])[0][:2] == [ErrorCode.ILLEGAL_GENERATION] * 2

    told(story)


def test_an_endless_retention_is_the_longest_there_is(broker: Broker) -> None:
    async def story() -> None:
        entry = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        topics = asked_topics(broker, 2, t=[entry])
        for retention, expire in ((2**63 - 1, 2**63 - 1), (-2, T - 2), (-(2**63), 0)):
            found = await ask(broker, ApiKey.OFFSET_COMMIT, 2, group_id="s", topics=topics, retention_time_ms=retention)
            assert codes(found["topics"]) == [[0]]
            assert broker.coordinator.fetch("s", None)["t", 0].expire_ms == expire

    told(story)
