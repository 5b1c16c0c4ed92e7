"""The topics and partitions that a request names: found by name or id, and asked so that a failure stays theirs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from kts.broker.codes import ErrorCode
from kts.broker.request import Body
from kts.broker.topics import Topic, Topics
from kts.broker.topics.partition import Partition
from kts.broker.wire.messages import ApiKey
from kts.errors import KtsError, LogClosedError, LogStorageError

logger = logging.getLogger(__name__)

LONG = 100  # partitions; longer requests use a thread


def find_topic(topics: Topics, named: Body, by_id: bool, name: str = "name") -> tuple[Topic | None, ErrorCode]:
    """A topic of a request; None with the error if it does not exist.

    Parameters
    ----------
    named : dict
        A struct of the request with the topic's name or id.
    by_id : bool
        The version has topic ids instead of names.
    name : str
        The field of the name.
    """
    topic = topics.by_id(named["topic_id"]) if by_id else topics.get(named[name])
    if topic is not None:
        return topic, ErrorCode.NONE
    return None, ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def existing(topics: Topics, named: Iterable[Body], name: str, index: str) -> list[Partition]:
    """The existing partitions of a request; ``name`` and ``index`` are the request's field names."""
    found = []
    for topic in named:
        known = topics.get(topic[name])
        if known is not None:
            found += [known.partitions[one[index]] for one in topic["partitions"] if one[index] in known.partitions]
    return found


def is_long(named: Iterable[Body]) -> bool:
    """Whether a request has too many partitions for the event loop."""
    return sum(len(topic["partitions"]) for topic in named) > LONG


def answer_of(topics: Topics, name: str, index: int, work: Callable[[Partition], Body], api: ApiKey) -> Body:
    """Call ``work`` with a partition. An error becomes its answer, and does not affect the others."""
    partition = topics.partition(name, index)
    if partition is None:
        return {"error_code": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    try:
        return work(partition)
    except (LogClosedError, LogStorageError):
        return {"error_code": int(why_closed(topics, partition))}
    except KtsError as error:
        if error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
            logger.warning("%s of %s: %s", api.name, partition, error)
        return {"error_code": int(error.code)}
    except Exception:
        logger.exception("%s of %s", api.name, partition)
        return {"error_code": int(ErrorCode.UNKNOWN_SERVER_ERROR)}


def why_closed(topics: Topics, partition: Partition) -> ErrorCode:
    """The error of a partition whose log is closed: its topic was deleted, or the disk failed."""
    if topics.partition(partition.topic, partition.index) is not partition:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.KAFKA_STORAGE_ERROR
