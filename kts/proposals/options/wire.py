"""The private versions of Produce, Fetch and ListOffsets for logs of options 1, 2 and 3, and what carries them.

Version 32032 is one that Kafka never uses. Produce and ListOffsets have the fields of Kafka's versions 2 and 1. Fetch
has those of KIP-32's option 3, and what a follower needs besides: the leader's epochs (as in KIP-595) and the base
offset of its segment. A row of ``time_index`` is ``TimeIndexEntry => LogAppendTime int64, Offset int32``; its offset
counts from the fetch offset, so that of the message before is -1.

A broker answers them through an extension (``OptionLeader``). A client sends them through a connection that knows
``PRIVATE_VERSIONS``: this package opens no socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kts import errors
from kts.errors import KtsError, NotLeaderError
from kts.protocol.fields import Field, fields_of

VERSION = 32_032
PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2  # Kafka's keys
CONSUMER = -1  # the replica id of a consumer

_PRODUCE = """\
    acks                        int16    0+
    topics                      []       0+
        topic                   string   0+
        partitions              []       0+
            partition           int32    0+
            records             records  0+
""", """\
    topics                      []       0+
        topic                   string   0+
        partitions              []       0+
            partition           int32    0+
            error_code          int16    0+
            error_message       string   0+  null 0+ = null
            base_offset         int64    0+  = -1
            log_append_time_ms  int64    0+  = -1
"""  # fmt: skip
_FETCH = """\
    replica_id                  int32    0+  = -1
    max_bytes                   int32    0+
    topics                      []       0+
        topic                   string   0+
        partitions              []       0+
            partition           int32    0+
            fetch_offset        int64    0+
            last_fetched_epoch  int32    0+  = -1
            partition_max_bytes int32    0+
            index_last_offset   int64    0+  = -1
""", """\
    topics                      []       0+
        topic                   string   0+
        partitions              []       0+
            partition           int32    0+
            error_code          int16    0+
            error_message       string   0+  null 0+ = null
            high_watermark      int64    0+  = -1
            log_start_offset    int64    0+  = -1
            leader_epoch        int32    0+  = -1
            diverging_epoch     int32    0+  = -1
            diverging_end       int64    0+  = -1
            records_epoch       int32    0+  = -1
            segment_base_offset int64    0+  = -1
            records             records  0+
            time_index          []       0+
                log_append_time int64    0+
                offset          int32    0+
            index_last_offset   int64    0+  = -1
"""  # fmt: skip
_LIST_OFFSETS = """\
    topics                      []       0+
        topic                   string   0+
        partitions              []       0+
            partition           int32    0+
            timestamp           int64    0+
""", """\
    topics                      []       0+
        topic                   string   0+
        partitions              []       0+
            partition           int32    0+
            error_code          int16    0+
            error_message       string   0+  null 0+ = null
            timestamp           int64    0+  = -1
            offset              int64    0+  = -1
"""  # fmt: skip

Fields = tuple[Field, ...]
PRIVATE_VERSIONS: dict[tuple[int, int], tuple[Fields, Fields]] = {
    (key, VERSION): (fields_of(request, VERSION), fields_of(response, VERSION))
    for key, (request, response) in {PRODUCE: _PRODUCE, FETCH: _FETCH, LIST_OFFSETS: _LIST_OFFSETS}.items()
}


class OptionConnection(Protocol):
    """A connection to a broker that reads and writes ``PRIVATE_VERSIONS``."""

    def ask(self, api: int, version: int, body: Mapping[str, Any], /) -> dict[str, Any]:
        """Send a request and return the body of its answer."""


def ask_partition(
    connection: OptionConnection, api: int, topic: str, partition: int, fields: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """Ask about one partition; the row of its answer.

    Raises
    ------
    KtsError
        The leader refuses; with its code and words.
    """
    rows = [{"partition": partition, **fields}]
    answer = connection.ask(api, VERSION, {**more, "topics": [{"topic": topic, "partitions": rows}]})
    for found in answer["topics"]:
        for row in found["partitions"]:
            if (found["topic"], row["partition"]) == (topic, partition):
                if row["error_code"]:
                    raise error_of(row["error_code"], row["error_message"] or f"error {row['error_code']}")
                return dict(row)
    raise errors.InvalidRequestError(f"expected an answer about {topic}-{partition}, found none")


_CLASSES = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, KtsError) and "code" in vars(kind)
}


def error_of(code: int, message: str) -> KtsError:
    """The error for a code that a leader answered with."""
    error: KtsError = _CLASSES.get(code, KtsError)(message)
    error.code = code
    return error


def not_served(topic: str, partition: int) -> KtsError:
    """The error for a partition that is not served here."""
    return NotLeaderError(f"expected a partition that this broker leads, found {topic}-{partition}")
