"""Topics and their partitions in a log directory, and the broker's own files there."""

from kts.broker.topics.topics import Compacted, NewTopic, Retained, Topic, Topics

__all__ = ["Compacted", "NewTopic", "Retained", "Topic", "Topics"]
