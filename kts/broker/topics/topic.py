"""A topic that is served."""

from __future__ import annotations

from dataclasses import dataclass

from kts.broker.topics.partitions import Partition
from kts.config import LogConfig
from kts.segment.names import INTERNAL_TOPICS


@dataclass
class Topic:
    """A topic.

    Attributes
    ----------
    topic_id : bytes
        16 of them.
    partitions : dict of int to Partition
    configs : dict of str to str
        What was set for it.
    config : LogConfig
        What holds for it.
    """

    name: str
    topic_id: bytes
    partitions: dict[int, Partition]
    configs: dict[str, str]
    config: LogConfig

    @property
    def is_internal(self) -> bool:
        """Whether Kafka keeps its own state in it."""
        return self.name in INTERNAL_TOPICS
