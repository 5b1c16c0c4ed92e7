"""Topics and their partitions in a log directory, and the files that a broker keeps there beside them."""

from kts.broker.topics.topics import NewTopic, Retained, Topic, Topics

__all__ = ["NewTopic", "Retained", "Topic", "Topics"]
