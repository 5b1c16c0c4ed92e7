"""Topics and their partitions in a log directory, and the broker's own files there."""

from kts.broker.topics.topics import NewTopic, Retained, Topic, Topics

__all__ = ["NewTopic", "Retained", "Topic", "Topics"]
